"""Relations as dictionaries: for each present key, the row with its mask and the knowledge of every column.

A cell is a Mask if its column is Boolean, else a Range, a LatestValue or a NestedRelation; key columns are exact. The
mask of a row is never NULL.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.time_forms import START, TICKS_PER_UNIT
from smile.algebra.types import TICKS_PER_MICROSECOND, DataType
from smile.knowledge.seals import PeriodEnd, Seal, SealPoint
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.comparison import comparison_truths, null_test_truths
from smile.knowledge.values.mask import Mask
from smile.reference.history import END

Key = tuple[Any, ...]
Cells = Mapping[str, CellKnowledge]
Horizons = Mapping[str, int]


@dataclass(frozen=True)
class ReferenceRow:
    """`steps` is the number of events it has absorbed."""

    mask: Mask
    cells: Cells
    steps: int

    @property
    def is_shown(self) -> bool:
        return self.mask.is_shown

    @property
    def is_final(self) -> bool:
        return self.mask.is_permanently_hidden or (
            self.mask.is_permanently_shown and all(c.is_final for c in self.cells.values())
        )


Relation = dict[Key, ReferenceRow]


def key_of(cells: Cells, names: Iterable[str]) -> Key:
    return tuple(cells[name].now for name in names)


def sort_key(key: Key) -> Key:
    """The key in a form that can be compared even if it contains NULLs, which come last."""
    return tuple((part is None, False if part is None else part) for part in key)


# ── cells ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def at_most_mask(a: CellKnowledge, b: CellKnowledge) -> Mask:
    """The mask of a <= b. It is NULL if an operand is NULL."""
    x, y = to_range(a), to_range(b)
    return Mask(comparison_truths("<=", x, y), None if x.now is None or y.now is None else x.now <= y.now)  # type: ignore[operator]


def not_distinct_mask(a: CellKnowledge, b: CellKnowledge) -> Mask:
    """The mask of a IS NOT DISTINCT FROM b. NULLs group together."""
    x, y = to_range(a), to_range(b)
    return Mask(null_test_truths("is not distinct from", [x, y]), x.now == y.now)


# ── seals ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_sealed(seals: Mapping[str, Seal], cells: Cells, types: Mapping[str, DataType], horizons: Horizons) -> bool:
    """Whether no event that is still possible can affect a row with these cells."""
    return all(is_seal_reached(seal, cells, types, horizons[stream]) for stream, seal in seals.items())


def is_seal_reached(seal: Seal, cells: Cells, types: Mapping[str, DataType], horizon: int) -> bool:
    """Whether the horizon has reached the seal. At the end of time every seal is reached, even `never`."""
    if horizon >= END:
        return True
    ticks = [_tick_of(cells, point, types) for point, _ in seal.terms]
    if seal.is_never or None in ticks:
        return False
    return all(
        tick + offset <= horizon for tick, (_, offset) in zip(ticks, seal.terms, strict=True) if tick is not None
    )


def _tick_of(cells: Cells, point: SealPoint, types: Mapping[str, DataType]) -> int | None:
    if point == START:
        return 0
    if isinstance(point, PeriodEnd):
        end = evaluate_expr(point.expr, {c: cells[c].now for c in point.columns}, types)
        return None if end is None else int(end) * TICKS_PER_MICROSECOND
    value = cells[point].now
    if value is None:
        return None
    return int(value) * TICKS_PER_UNIT[types[point]]
