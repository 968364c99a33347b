"""Rows point by point, for joins that go row by row: of each its mask, what is known of every column, and its steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.kernels.joins.sides import Rows, Side
from smile.kernels.layout import Evolving
from smile.knowledge.cells import range_of
from smile.knowledge.comparison import compare
from smile.knowledge.known import Known
from smile.knowledge.mask import F, Mask, T, Truth, image
from smile.knowledge.transfer import operand

Key = tuple[Any, ...]
Cells = Mapping[str, Known]

UNHEARD = Mask.of((True, False), False)
"""Whether something nobody has heard of will turn out to be there."""


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


def all_of(*some: Mask) -> Mask:
    return reduce(lambda a, b: image(_and, a, b), some, T)


def any_of(some: Iterable[Mask]) -> Mask:
    return reduce(lambda a, b: image(_or, a, b), some, F)


def none_of(mask: Mask) -> Mask:
    return image(lambda a: None if a is None else not a, mask)


def _and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Truth, b: Truth) -> Truth:
    return True if a is True or b is True else None if a is None or b is None else False


def equal(a: Known, b: Known) -> Mask:
    """a = b, with NULL for NULL."""
    x, y = range_of(a), range_of(b)
    return Mask(compare("=", x, y), None if x.now is None or y.now is None else x.now == y.now)
