"""Tables of expected rows: one for each view, a line for each row. Printed tables are read back as the same rows.

Rows are JSON objects, as subscribers receive them. See README.md in this folder for the notation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from smile.knowledge.types import RelationType
from tests.programs.cells import QUOTED, Json, parse_cell, print_cell, print_value

FLAGS = ("deleted", "final", "stays")


class TableError(ValueError):
    """What is wrong with a line of a table; `line` is its number."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def parse_tables(lines: Iterable[tuple[int, str]], types: Mapping[str, RelationType], changes: bool) -> list[Json]:
    """The rows of numbered lines. Only `changes` may have deleted rows."""
    rows: list[Json] = []
    view = ""
    for number, line in lines:
        try:
            first, *cells = split_cells(line)
            if first:
                view = _parse_header(first, cells, types)
            elif not view:
                raise ValueError("a row has no table: the line above the first row has the view and its columns")
            else:
                rows.append(_parse_row(view, types[view], cells, changes))
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
        raise ValueError(f"the program does not subscribe to a view {view!r}; it subscribes to {', '.join(types)}")
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
    lines: list[str] = []
    ordered = _by_view(rows)
    view_width = max((len(row["view"]) for row in ordered), default=0)
    for view, group in groupby(ordered, key=lambda row: str(row["view"])):
        type_ = types[view]
        table = [[view, *_columns(type_), ""], *(["", *_print_row(row, type_)] for row in group)]
        widths = [view_width, *(max(map(len, column)) for column in list(zip(*table, strict=True))[1:])]
        lines += [
            " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
        ]
    return "\n".join(lines)


def _by_view(rows: Iterable[Json]) -> list[Json]:
    by_view: dict[str, list[Json]] = {}
    for row in rows:
        by_view.setdefault(row["view"], []).append(row)
    return [row for group in by_view.values() for row in group]


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
