"""Every link of the documents leads somewhere, every page is in docs/README.md, and the generated pages are up to date."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs import ROOT
from tools.reference.pages import pages

DOCS = ROOT / "docs"
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("programs/**/*.md"), ROOT / "tests/programs/README.md"]
)
LINK = re.compile(r"!?\[[^\]]+\]\(([^)\s]+)\)")


def links(document: Path) -> list[str]:
    """The targets of the relative links, in prose."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [target for target in LINK.findall(re.sub(r"`[^`\n]*`", "", text)) if "://" not in target]


@cache
def anchors(document: Path) -> set[str]:
    """Those that GitHub and the web site give to the headings."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for target in links(document):
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c!\n[x](#a-b-c) [y](#a-c) [z](none.md) `[code](none.md)`\n\n```\n[block](none.md)\n```\n")
    assert links(page) == ["#a-b-c", "#a-c", "none.md"]
    assert anchors(page) == {"a-b-c"}


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = {(DOCS / target.partition("#")[0]).resolve() for target in links(DOCS / "README.md")}
    all_pages = {path for path in DOCS.rglob("*.md") if path.parent.name != "decisions"} - {DOCS / "README.md"}
    assert sorted(all_pages - listed) == []


def test_generated_pages_are_up_to_date() -> None:
    generated = pages()
    assert {path.name for path in generated} >= {path.name for path in (DOCS / "reference").glob("*.md")}
    stale = [str(path.relative_to(ROOT)) for path, text in generated.items() if path.read_text() != text]
    assert stale == [], "run `make reference`"
