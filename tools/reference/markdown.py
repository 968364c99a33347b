"""Markdown of generated pages."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make reference`; do not edit. -->\n"


def page(title: str, introduction: str, *sections: str) -> str:
    return "\n".join([NOTICE, f"# {title}\n", f"{introduction.strip()}\n", *(f"{s.strip()}\n" for s in sections)])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """A vertical bar would end the cell, also within code; so would a line end."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""
