"""The configuration of Sphinx for `make docs`.

The pages are plain Markdown in docs/, to be read without a site too. What a site needs besides is added here while they
are read: the navigation, which has the order of docs/README.md. Links that lead out of docs/ become text.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")

project = "SMILE"
author = "The SMILE authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
exclude_patterns = ["decisions/0000-template.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "SMILE"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"
# Lexers know neither MMPL nor the language of test programs, and SmileSQL's # and -> are errors to them.
suppress_warnings = ["misc.highlighting_failure", "myst.xref_missing_lexer"]
highlight_language = "none"


def navigation(readme: str) -> str:
    """A table of contents for each section of the README, and one with the decisions."""
    parts = []
    for section in readme.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        pages = [target.partition("#")[0] for _, target in LINK.findall(section) if target.endswith(".md")]
        entries = "\n".join(dict.fromkeys(pages))
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n")
    parts.append("```{toctree}\n:hidden:\n:caption: Decisions\n:glob:\n:titlesonly:\n\ndecisions/*\n```\n")
    return "\n".join(parts)


def unlink(docname: str, text: str) -> str:
    """The text without links to files that are not pages of the site."""
    folder = (DOCS / docname).parent

    def replace(link: re.Match[str]) -> str:
        label, target = link.groups()
        path = (folder / target.partition("#")[0]).resolve()
        is_elsewhere = "://" not in target and (path.is_dir() or not path.is_relative_to(DOCS))
        return label if is_elsewhere else link[0]

    return LINK.sub(replace, text)


def read_source(_: Sphinx, docname: str, source: list[str]) -> None:
    text = unlink(docname, source[0])
    # What follows the language in the first line of a block is for the tests.
    text = re.sub(r"^```(\w+) [^\n]*$", r"```\1", text, flags=re.MULTILINE)
    source[0] = f"{text}\n\n{navigation(source[0])}" if docname == root_doc else text


def setup(app: Sphinx) -> None:
    app.connect("source-read", read_source)
