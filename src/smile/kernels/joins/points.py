"""Rows point by point, for joins that go row by row: of each its mask, what is known of every column, and its steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.kernels.joins.sides import Rows, Side
from smile.kernels.layout import Evolving
from smile.knowledge.cells import range_of
from smile.knowledge.known import Known
from smile.knowledge.mask import Mask
from smile.knowledge.transfer import operand

Key = tuple[Any, ...]
Cells = Mapping[str, Known]


@dataclass(frozen=True)
class Row:
    mask: Mask
    cells: Cells
    steps: int


def rows_of(side: Side, rows: Rows) -> dict[Key, Row]:
    """By their keys; those nobody has heard of are left out."""
    found = {}
    version = rows.version
    columns: dict[str, Column] = {c: rows.fixed[c] for c in side.layout.fixed}
    columns |= {c: version.columns[c] for c in side.layout.evolving}
    types = side.layout.types
    for i, code in enumerate(version.mask.tolist()):
        if code != masks.ABSENT:
            cells = {c: k.known(column, i, types[c]) for c, column in columns.items()}
            found[tuple(cells[c].now for c in side.key)] = Row(masks.known(code), cells, int(version.steps[i]))
    return found


def column_of(cells: Sequence[Known], evolving: Evolving) -> Column:
    """Cells as a column of a kind."""
    if evolving.kind == "mask":
        return k.of_points([operand(c, evolving.data) for c in cells], "mask", evolving.data)
    if evolving.kind == "range":
        return k.of_points([range_of(c) for c in cells], "range", evolving.data)
    return k.of_points(cells, evolving.kind, evolving.data)
