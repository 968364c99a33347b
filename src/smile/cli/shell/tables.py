"""Prints rows as aligned columns of text."""

from collections.abc import Sequence
from unicodedata import east_asian_width

NULL_TEXT = "NULL"


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str | None]], right: Sequence[bool]) -> str:
    """A header, a line, the rows and their number. The columns that `right` says are aligned on the right."""
    cells = [[NULL_TEXT if value is None else _printable(value) for value in row] for row in rows]
    widths = [max([_width(name), *(_width(row[index]) for row in cells)]) for index, name in enumerate(columns)]
    lines = [_format_line(columns, widths, [False] * len(columns)), "-+-".join("-" * width for width in widths)]
    lines += [_format_line(row, widths, right) for row in cells]
    return "\n".join([*lines, f"({len(rows)} row{'s' * (len(rows) != 1)})"])


def _format_line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        padding = " " * (width - _width(cell))
        parts.append(padding + cell if is_right else cell + padding)
    return " | ".join(parts).rstrip()


def _printable(value: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _width(text: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
