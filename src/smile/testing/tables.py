"""Tables of expected rows: one for each view, a line for each row. Printed tables are read back as the same rows.

Rows are JSON objects, as subscribers receive them. docs/test-files.md describes the notation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from smile.knowledge.types import RelationType
from smile.knowledge.values.json import Json
from smile.testing.cells import QUOTED, parse_cell, print_cell, print_value

FLAGS = ("deleted", "final", "stays")
T = TypeVar("T")


class TableError(ValueError):
    """What is wrong with a line of a table; `line` is its number."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def row_key(row: Json) -> str:
    """Identifies a row among those of all views."""
    return msgspec.json.encode([row["view"], row["key"]], order="sorted").decode()


def parse_tables(lines: Iterable[tuple[int, str]], types: Mapping[str, RelationType], changes: bool) -> dict[int, Json]:
    """The rows of numbered lines, by their numbers. Only `changes` may have deleted rows."""
    rows: dict[int, Json] = {}
    line_by_key: dict[str, int] = {}
    view = ""
    for number, line in lines:
        try:
            first, *cells = split_cells(line)
            if first:
                view = _parse_header(first, cells, types)
            elif not view:
                raise ValueError("a row has no table: the line above the first row has the view and its columns")
            else:
                rows[number] = row = _parse_row(view, types[view], cells, changes)
                if (first_line := line_by_key.setdefault(row_key(row), number)) != number:
                    raise ValueError(f"line {first_line} has a row with this key already")
        except ValueError as problem:
            raise TableError(number, str(problem)) from None
    return rows


def split_cells(line: str) -> list[str]:
    """The text between bars; a bar in quotes does not count."""
    parts = re.split(rf"({QUOTED})|\|", line)
    cells = [""]
    for text, quoted in zip(parts[::2], [*parts[1::2], None], strict=True):
        cells[-1] += text
        if quoted is not None:
            cells[-1] += quoted
        else:
            cells.append("")
    return [cell.strip() for cell in cells[:-1]]


def _parse_header(view: str, names: Sequence[str], types: Mapping[str, RelationType]) -> str:
    if view not in types:
        raise ValueError(f"{view!r} is none of the views of this test: {', '.join(types)}")
    if list(names[:-1] if names and not names[-1] else names) != list(_columns(types[view])):
        raise ValueError(
            f"these are not the columns of {view}; its table begins with: {print_header(view, types[view])}"
        )
    return view


def _parse_row(view: str, type_: RelationType, cells: Sequence[str], changes: bool) -> Json:
    heading, count = type_.heading, len(_columns(type_))
    if not count <= len(cells) <= count + 1:
        raise ValueError(
            f"a row of {view} has {count} cells, and may have another with flags; this one has {len(cells)}"
        )
    flags = _parse_flags(cells[count] if len(cells) > count else "", changes)
    texts = dict(zip(_columns(type_), cells, strict=False))
    row: Json = {"view": view, "key": {c: _named_cell(c, texts[c], type_, False)[0] for c in heading.key}}
    if "deleted" in flags:
        if any(texts[c] for c in heading.value_columns):
            raise ValueError("a deleted row has values; leave the cells after its key empty")
        return {**row, **flags}
    known = {c: _named_cell(c, texts[c], type_, type_.columns[c].evolves) for c in heading.value_columns}
    row["row"] = {c: value for c, (value, _) in known.items()}
    row["knowledge"] = {c: knowledge for c, (_, knowledge) in known.items() if knowledge is not None}
    return {**row, **flags}


def _named_cell(column: str, text: str, type_: RelationType, evolves: bool) -> tuple[Any, Json | None]:
    try:
        return parse_cell(text, type_.heading.columns[column], evolves)
    except ValueError as problem:
        raise ValueError(f"{column}: {problem}") from None


def _parse_flags(text: str, changes: bool) -> Json:
    flags: Json = {}
    for flag in filter(None, (part.strip() for part in text.split(","))):
        steps = re.fullmatch(r"steps (\d+)", flag)
        name = "steps" if steps else flag
        if name not in (*FLAGS, "steps"):
            raise ValueError(
                f"{flag!r} is not a flag of a row; there are deleted, final, stays and steps with a number"
            )
        if name in flags:
            raise ValueError(f"the flag {flag!r} is given twice")
        if name == "deleted" and not changes:
            raise ValueError("deleted rows are listed in sections of changes only")
        flags[name] = int(steps[1]) if steps else True
    return {"final": False, **flags}


# ── printing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_tables(rows: Iterable[Json], types: Mapping[str, RelationType]) -> str:
    """The rows as a test file has them; views in the order in which they come first."""
    return "\n".join(line for _, line in table_lines(((None, row) for row in rows), types))


def table_lines(rows: Iterable[tuple[T, Json]], types: Mapping[str, RelationType]) -> Iterator[tuple[T | None, str]]:
    """The lines of the printed tables, each with what came with its row; None for the first line of a table."""
    by_view: dict[str, list[tuple[T, Json]]] = {}
    for mark, row in rows:
        by_view.setdefault(row["view"], []).append((mark, row))
    view_width = max(map(len, by_view), default=0)
    for view, group in by_view.items():
        table = [[view, *_columns(types[view]), ""], *(["", *_print_row(row, types[view])] for _, row in group)]
        widths = [view_width, *(max(map(len, column)) for column in list(zip(*table, strict=True))[1:])]
        for of, cells in zip([None, *(mark for mark, _ in group)], table, strict=True):
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            yield of, " | ".join(padded).rstrip()


def print_header(view: str, type_: RelationType) -> str:
    return " | ".join([view, *_columns(type_)])


def _columns(type_: RelationType) -> tuple[str, ...]:
    return type_.heading.key + type_.heading.value_columns


def _print_row(row: Json, type_: RelationType) -> list[str]:
    heading = type_.heading
    cells = [print_value(row["key"][c], heading.columns[c]) for c in heading.key]
    if row.get("deleted"):
        cells += ["" for _ in heading.value_columns]
    else:
        cells += [print_cell(row["row"][c], row["knowledge"].get(c), heading.columns[c]) for c in heading.value_columns]
    flags = [flag for flag in FLAGS if row.get(flag)]
    return [*cells, ", ".join([*flags, *([f"steps {row['steps']}"] if "steps" in row else [])])]
