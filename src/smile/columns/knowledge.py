"""Columns of knowledge: the knowledge of one cell for every row. Each kind of column has the points of one monotonic
domain.

Columns whose cells are all exact are plain `ValueColumn`s. The kind of a column follows from the program, never from
its data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import values as v
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Nullability, Range
from smile.knowledge.values.transfer import exact_cell

ColumnKind = Literal["exact", "range", "mask", "latest", "object"]

NULLABILITY_BY_CODE: tuple[Nullability, ...] = (NEVER, MAYBE, ONLY)
"""Whether a range may be NULL, by its code in a column."""
_NEVER, _MAYBE, _ONLY = range(3)


class RangeColumn:
    """The ranges of many cells: current values, lower and upper bounds. A bound that is NULL in a row is absent in that
    row; a whole array that is None is absent in all rows. `nulls` says which cells can still become NULL; None is no
    cell."""

    __slots__ = ("hi", "lo", "now", "nulls")
    kind: ColumnKind = "range"

    def __init__(
        self, now: ValueColumn, lo: ValueColumn | None, hi: ValueColumn | None, nulls: Array | None = None
    ) -> None:
        self.now, self.lo, self.hi, self.nulls = now, lo, hi, nulls

    def __len__(self) -> int:
        return len(self.now)

    def take(self, indices: Indices) -> "RangeColumn":
        now = self.now.take(indices)
        lo = now if self.lo is self.now else None if self.lo is None else self.lo.take(indices)
        hi = now if self.hi is self.now else None if self.hi is None else self.hi.take(indices)
        return RangeColumn(now, lo, hi, None if self.nulls is None else self.nulls[indices])

    def same(self, other: "RangeColumn") -> Bools:
        equal = self.now.same(other.now)
        for a, b in ((self.lo, other.lo), (self.hi, other.hi)):
            if a is not None and b is not None:
                equal = equal & a.same(b)
            elif a is not None or b is not None:
                equal = equal & (a if a is not None else b).is_null()  # type: ignore[union-attr]
        if self.nulls is not None or other.nulls is not None:
            equal = equal & (self.null_codes() == other.null_codes())
        return equal

    def null_codes(self) -> Array:
        return np.zeros(len(self), np.uint8) if self.nulls is None else self.nulls

    def is_final(self) -> Bools:
        """Where the value is final."""
        codes = self.null_codes()
        if self.lo is None or self.hi is None:
            return codes == _ONLY
        ends_equal = self.lo.is_valid() & self.hi.is_valid() & v.equal_data(self.lo.data, self.hi.data)
        return (codes == _ONLY) | ((codes == _NEVER) & ends_equal)

    def knowledge_at(self, index: int, data: DataType) -> Range:
        lo = None if self.lo is None else self.lo.value_at(index, data)
        hi = None if self.hi is None else self.hi.value_at(index, data)
        nulls = NEVER if self.nulls is None else NULLABILITY_BY_CODE[self.nulls[index]]
        return Range(lo, hi, nulls, self.now.value_at(index, data))


class MaskColumn:
    """Knowledge of Booleans. The bits of `possible` say which of true (1), false (2) and NULL (4) are possible; `now`
    is one of these numbers."""

    __slots__ = ("now", "possible")
    kind: ColumnKind = "mask"

    def __init__(self, possible: Array, now: Array) -> None:
        self.possible, self.now = possible, now

    def __len__(self) -> int:
        return len(self.now)

    def take(self, indices: Indices) -> "MaskColumn":
        return MaskColumn(self.possible[indices], self.now[indices])

    def same(self, other: "MaskColumn") -> Bools:
        return np.asarray((self.possible == other.possible) & (self.now == other.now))

    def is_final(self) -> Bools:
        return np.asarray((self.possible & (self.possible - np.uint8(1))) == 0)

    def knowledge_at(self, index: int, data: DataType) -> Mask:
        # In an absent row no bit is set. Reading it gives NULL.
        possible, now = int(self.possible[index]) or 4, int(self.now[index]) or 4
        truths = [t for t, bit in ((True, 1), (False, 2), (None, 4)) if possible & bit]
        return Mask.from_truths(truths, {1: True, 2: False, 4: None}[now])


class LatestColumn:
    """Latest values. `bounds` are those of the final values and have the current ones. `value` is that of the latest
    event that stays, at `tick` and `source`; `tick` is not valid where there is none. A column of this kind can hold
    ranges and masks too: they have no such event."""

    __slots__ = ("bounds", "source", "tick", "value")
    kind: ColumnKind = "latest"

    def __init__(self, bounds: RangeColumn, value: ValueColumn, tick: ValueColumn, source: Array) -> None:
        self.bounds, self.value, self.tick, self.source = bounds, value, tick, source

    @staticmethod
    def from_ranges(bounds: RangeColumn) -> "LatestColumn":
        zeros = np.zeros(len(bounds), np.int64)
        return LatestColumn(bounds, bounds.now, ValueColumn(zeros, np.zeros(len(bounds), bool)), zeros)

    @property
    def now(self) -> ValueColumn:
        return self.bounds.now

    def __len__(self) -> int:
        return len(self.tick)

    def take(self, indices: Indices) -> "LatestColumn":
        bounds = self.bounds.take(indices)
        value = bounds.now if self.value is self.bounds.now else self.value.take(indices)
        return LatestColumn(bounds, value, self.tick.take(indices), self.source[indices])

    def same(self, other: "LatestColumn") -> Bools:
        has_event = self.tick.is_valid()
        same_event = (self.source == other.source) & self.value.same(other.value)
        is_settled = self.tick.same(other.tick) & (~has_event | same_event)
        return np.asarray(self.bounds.same(other.bounds) & (is_settled | self.bounds.is_final()))

    def is_final(self) -> Bools:
        return self.bounds.is_final()

    def knowledge_at(self, index: int, data: DataType) -> LatestValue:
        tick = None if self.tick.valid is not None and not self.tick.valid[index] else int(self.tick.data[index])
        occurred_at = None if tick is None else (tick, int(self.source[index]))
        return LatestValue(self.value.value_at(index, data), occurred_at, self.bounds.knowledge_at(index, data))


class ObjectColumn:
    """Points as Python objects: for nested relations."""

    __slots__ = ("points",)
    kind: ColumnKind = "object"

    def __init__(self, points: Array) -> None:
        self.points = points

    def __len__(self) -> int:
        return len(self.points)

    def take(self, indices: Indices) -> "ObjectColumn":
        return ObjectColumn(self.points[indices])

    def same(self, other: "ObjectColumn") -> Bools:
        pairs = zip(self.points, other.points, strict=True)
        return np.fromiter((a is b or (type(a) is type(b) and a == b and a.now == b.now) for a, b in pairs), bool)

    def is_final(self) -> Bools:
        return np.fromiter((p.is_final for p in self.points), bool, len(self.points))

    def knowledge_at(self, index: int, data: DataType) -> CellKnowledge:
        return self.points[index]  # type: ignore[no-any-return]


KnowledgeColumn = ValueColumn | RangeColumn | MaskColumn | LatestColumn | ObjectColumn
COLUMN_CLASSES: Mapping[ColumnKind, type] = {
    "exact": ValueColumn, "range": RangeColumn, "mask": MaskColumn, "latest": LatestColumn, "object": ObjectColumn
}  # fmt: skip
C = TypeVar("C", ValueColumn, RangeColumn, MaskColumn, LatestColumn, ObjectColumn)


def knowledge_at(column: KnowledgeColumn, index: int, data: DataType) -> CellKnowledge:
    """The knowledge of one cell."""
    return (
        exact_cell(column.value_at(index, data), data)
        if isinstance(column, ValueColumn)
        else column.knowledge_at(index, data)
    )


def current_values(column: KnowledgeColumn) -> ValueColumn:
    """The current values: the result of plain SQL."""
    if isinstance(column, ValueColumn):
        return column
    if isinstance(column, MaskColumn):
        return ValueColumn(column.now == 1, None if not (column.now == 4).any() else column.now != 4)
    assert not isinstance(column, ObjectColumn), "a nested relation has no plain value"
    return column.now


def is_final(column: KnowledgeColumn) -> Bools:
    return np.ones(len(column), bool) if isinstance(column, ValueColumn) else column.is_final()


# ── construction ────────────────────────────────────────────────────────────────────────────────────────────────────


def from_points(points: Sequence[Any], kind: ColumnKind, data: DataType) -> KnowledgeColumn:
    """A column of the given kind. The points are of its domain."""
    if kind == "exact":
        return v.from_python([p.now for p in points], data)
    if kind == "mask":
        bits = {True: 1, False: 2, None: 4}
        possible = np.fromiter((sum(bits[t] for t in p.possible) for p in points), np.uint8, len(points))
        return MaskColumn(possible, np.fromiter((bits[p.now] for p in points), np.uint8, len(points)))
    if kind == "range":
        return _ranges_from_points(points, data)
    if kind == "latest":
        return _latest_from_points(points, data)
    point_array = np.empty(len(points), object)
    point_array[:] = points
    return ObjectColumn(point_array)


def _ranges_from_points(points: Sequence[Range], data: DataType) -> RangeColumn:
    lo, hi = v.from_python([p.lo for p in points], data), v.from_python([p.hi for p in points], data)
    nulls = np.fromiter((NULLABILITY_BY_CODE.index(p.nulls) for p in points), np.uint8, len(points))
    return RangeColumn(v.from_python([p.now for p in points], data), lo, hi, nulls)


def _latest_from_points(points: Sequence[Any], data: DataType) -> LatestColumn:
    """The points may be ranges and masks too."""
    bounds = _ranges_from_points([to_range(p) for p in points], data)
    events = [(p.value, p.occurred_at) if isinstance(p, LatestValue) else (None, None) for p in points]
    value = v.from_python([value for value, _ in events], data)
    tick = v.from_python([None if at is None else at[0] for _, at in events], DataType("time"))
    return LatestColumn(bounds, value, tick, np.array([0 if at is None else at[1] for _, at in events], np.int64))


def exact_column(values: ValueColumn, kind: ColumnKind, data: DataType) -> KnowledgeColumn:
    """Plain values as a column of the given kind. All of its cells are final."""
    is_valid = values.is_valid()
    if kind in ("range", "latest"):
        nulls = None if values.valid is None else np.where(is_valid, 0, _ONLY).astype(np.uint8)
        exact = RangeColumn(values, values, values, nulls)
        return exact if kind == "range" else LatestColumn.from_ranges(exact)
    if kind == "mask":
        now = np.where(is_valid, np.where(values.data, 1, 2), 4).astype(np.uint8)
        return MaskColumn(now, now)
    return values if kind == "exact" else to_object_column(values, data)


def to_object_column(column: KnowledgeColumn, data: DataType) -> ObjectColumn:
    """A column of any kind as a column of points."""
    if isinstance(column, ObjectColumn):
        return column
    point_array = np.empty(len(column), object)
    for index in range(len(column)):
        point_array[index] = knowledge_at(column, index, data)
    return ObjectColumn(point_array)


def column_kind(data: DataType, domain: str) -> ColumnKind:
    """The kind of a column whose knowledge can change, by its type and its domain from type analysis."""
    if data.name == "relation":
        return "object"
    if domain == "latest" and data != BOOL:
        return "latest"
    return "mask" if data == BOOL else "range"


def concat(parts: Sequence[C]) -> C:
    """Concatenates columns of one kind. There is at least one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    assert all(type(p) is type(first) for p in parts), [type(p).__name__ for p in parts]
    if isinstance(first, ValueColumn):
        return v.concat(parts)
    if isinstance(first, RangeColumn):
        return _concat_ranges(parts)
    if isinstance(first, MaskColumn):
        return MaskColumn(
            *(np.concatenate([getattr(p, attribute) for p in parts]) for attribute in ("possible", "now"))
        )
    if isinstance(first, ObjectColumn):
        return ObjectColumn(np.concatenate([p.points for p in parts]))
    bounds = _concat_ranges([p.bounds for p in parts])
    value, tick = (v.concat([getattr(p, attribute) for p in parts]) for attribute in ("value", "tick"))
    return LatestColumn(bounds, value, tick, np.concatenate([p.source for p in parts]))


def _concat_ranges(parts: Sequence[RangeColumn]) -> RangeColumn:
    now = v.concat([p.now for p in parts])
    lo, hi = (_concat_ends([(p, getattr(p, end)) for p in parts]) for end in ("lo", "hi"))
    nulls = None if all(p.nulls is None for p in parts) else np.concatenate([p.null_codes() for p in parts])
    return RangeColumn(now, lo, hi, nulls)


def _concat_ends(parts: list[tuple[RangeColumn, ValueColumn | None]]) -> ValueColumn | None:
    if all(end is None for _, end in parts):
        return None
    return v.concat([v.nulls_like(p.now, len(p)) if end is None else end for p, end in parts])


def where(condition: Bools, a: C, b: C) -> C:
    """Selects each row from `a` where the condition holds, else from `b`. Both are of one kind."""
    joined = concat([a, b])
    count = len(a)
    return joined.take(np.where(condition, np.arange(count), np.arange(count, 2 * count)))
