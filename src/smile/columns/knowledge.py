"""Columns of knowledge: of every row what is known of one cell. Each kind has the points of one monotonic domain.

`Exact` cells are plain `Values`, which know no more than themselves. Which kind a column is follows from the program,
never from its data.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import values as v
from smile.columns.values import Array, Bools, Indices, Values
from smile.knowledge.known import Known
from smile.knowledge.latest import Latest
from smile.knowledge.mask import Mask
from smile.knowledge.range import MAYBE, NEVER, ONLY, Nulls, Range
from smile.knowledge.transfer import exactly

Kind = Literal["exact", "range", "mask", "latest", "object"]

NULLS: tuple[Nulls, ...] = (NEVER, MAYBE, ONLY)
"""Whether a range may be NULL, by the number it has in a column."""
_NEVER, _MAYBE, _ONLY = range(3)


class Ranges:
    """`lo` or `hi` None: no row has that bound; not valid: this row has none. `nulls` None: no row may be NULL."""

    __slots__ = ("hi", "lo", "now", "nulls")
    kind: Kind = "range"

    def __init__(self, now: Values, lo: Values | None, hi: Values | None, nulls: Array | None = None) -> None:
        self.now, self.lo, self.hi, self.nulls = now, lo, hi, nulls

    def __len__(self) -> int:
        return len(self.now)

    def take(self, at: Indices) -> "Ranges":
        now = self.now.take(at)
        lo = now if self.lo is self.now else None if self.lo is None else self.lo.take(at)
        hi = now if self.hi is self.now else None if self.hi is None else self.hi.take(at)
        return Ranges(now, lo, hi, None if self.nulls is None else self.nulls[at])

    def same(self, other: "Ranges") -> Bools:
        found = self.now.same(other.now)
        for a, b in ((self.lo, other.lo), (self.hi, other.hi)):
            if a is not None and b is not None:
                found = found & a.same(b)
            elif a is not None or b is not None:
                found = found & (a if a is not None else b).nulls()  # type: ignore[union-attr]
        if self.nulls is not None or other.nulls is not None:
            found = found & (self.null_codes() == other.null_codes())
        return found

    def null_codes(self) -> Array:
        return np.zeros(len(self), np.uint8) if self.nulls is None else self.nulls

    def finals(self) -> Bools:
        """Where the value is known for good."""
        codes = self.null_codes()
        if self.lo is None or self.hi is None:
            return codes == _ONLY
        met = self.lo.there() & self.hi.there() & v.equal_data(self.lo.data, self.hi.data)
        return (codes == _ONLY) | ((codes == _NEVER) & met)

    def known(self, index: int, data: DataType) -> Range:
        lo = None if self.lo is None else self.lo.at(index, data)
        hi = None if self.hi is None else self.hi.at(index, data)
        nulls = NEVER if self.nulls is None else NULLS[self.nulls[index]]
        return Range(lo, hi, nulls, self.now.at(index, data))


class Masks:
    """Of Booleans: bits say which of true (1), false (2) and NULL (4) are possible; `now` is one of these numbers."""

    __slots__ = ("now", "possible")
    kind: Kind = "mask"

    def __init__(self, possible: Array, now: Array) -> None:
        self.possible, self.now = possible, now

    def __len__(self) -> int:
        return len(self.now)

    def take(self, at: Indices) -> "Masks":
        return Masks(self.possible[at], self.now[at])

    def same(self, other: "Masks") -> Bools:
        return np.asarray((self.possible == other.possible) & (self.now == other.now))

    def finals(self) -> Bools:
        return np.asarray((self.possible & (self.possible - np.uint8(1))) == 0)

    def known(self, index: int, data: DataType) -> Mask:
        # Of a row nobody has heard of nothing is possible: whoever looks nevertheless finds NULL.
        possible, now = int(self.possible[index]) or 4, int(self.now[index]) or 4
        truths = [t for t, bit in ((True, 1), (False, 2), (None, 4)) if possible & bit]
        return Mask.of(truths, {1: True, 2: False, 4: None}[now])


class Latests:
    """`value` is not valid where it is NULL or there is none; `tick` is valid where there is one."""

    __slots__ = ("now", "sealed", "source", "tick", "value")
    kind: Kind = "latest"

    def __init__(self, value: Values, tick: Values, source: Array, sealed: Bools, now: Values) -> None:
        self.value, self.tick, self.source, self.sealed, self.now = value, tick, source, sealed, now

    def __len__(self) -> int:
        return len(self.now)

    def take(self, at: Indices) -> "Latests":
        return Latests(
            self.value.take(at), self.tick.take(at), self.source[at], self.sealed[at], self.now.take(at)
        )  # fmt: skip

    def same(self, other: "Latests") -> Bools:
        where = self.tick.same(other.tick) & (self.tick.nulls() | (self.source == other.source))
        what = self.value.same(other.value) & self.now.same(other.now)
        return np.asarray(where & what & (self.sealed == other.sealed))

    def finals(self) -> Bools:
        return self.sealed

    def known(self, index: int, data: DataType) -> Latest:
        tick = None if self.tick.valid is not None and not self.tick.valid[index] else int(self.tick.data[index])
        at = None if tick is None else (tick, int(self.source[index]))
        return Latest(self.value.at(index, data), at, bool(self.sealed[index]), self.now.at(index, data))


class Objects:
    """The points themselves: of nested relations, and where points of several domains stand in one column. `data` is
    their type, None for nested relations."""

    __slots__ = ("data", "points")
    kind: Kind = "object"

    def __init__(self, points: Array, data: DataType | None = None) -> None:
        self.points = points
        self.data = None if data is None or data.name == "relation" else data

    def __len__(self) -> int:
        return len(self.points)

    def take(self, at: Indices) -> "Objects":
        return Objects(self.points[at], self.data)

    def same(self, other: "Objects") -> Bools:
        pairs = zip(self.points, other.points, strict=True)
        return np.fromiter((a is b or (type(a) is type(b) and a == b and a.now == b.now) for a, b in pairs), bool)

    def finals(self) -> Bools:
        return np.fromiter((p.is_final for p in self.points), bool, len(self.points))

    def known(self, index: int, data: DataType) -> Known:
        return self.points[index]  # type: ignore[no-any-return]


Column = Values | Ranges | Masks | Latests | Objects
C = TypeVar("C", Values, Ranges, Masks, Latests, Objects)


def known(column: Column, index: int, data: DataType) -> Known:
    """What is known of one cell."""
    return exactly(column.at(index, data), data) if isinstance(column, Values) else column.known(index, data)


def now_of(column: Column) -> Values:
    """What plain SQL gives."""
    if isinstance(column, Values):
        return column
    if isinstance(column, Masks):
        return Values(column.now == 1, None if not (column.now == 4).any() else column.now != 4)
    if isinstance(column, Objects):
        assert column.data is not None, "a nested relation has no plain value"
        return v.of_python([None if p is None else p.now for p in column.points], column.data)
    return column.now


def finals(column: Column) -> Bools:
    return np.ones(len(column), bool) if isinstance(column, Values) else column.finals()


# ── making them of points ───────────────────────────────────────────────────────────────────────────────────────────


def of_points(points: Sequence[Any], kind: Kind, data: DataType) -> Column:
    """From points of the kind's domain."""
    if kind == "exact":
        return v.of_python([p.now for p in points], data)
    if kind == "mask":
        bits = {True: 1, False: 2, None: 4}
        possible = np.fromiter((sum(bits[t] for t in p.possible) for p in points), np.uint8, len(points))
        return Masks(possible, np.fromiter((bits[p.now] for p in points), np.uint8, len(points)))
    if kind == "range":
        lo, hi = v.of_python([p.lo for p in points], data), v.of_python([p.hi for p in points], data)
        nulls = np.fromiter((NULLS.index(p.nulls) for p in points), np.uint8, len(points))
        return Ranges(v.of_python([p.now for p in points], data), lo, hi, nulls)
    if kind == "latest":
        tick = v.of_python([None if p.at is None else p.at[0] for p in points], DataType("time"))
        source = np.array([0 if p.at is None else p.at[1] for p in points], np.int64)
        sealed = np.array([p.sealed for p in points], bool)
        value, now = (v.of_python([getattr(p, part) for p in points], data) for part in ("value", "now"))
        return Latests(value, tick, source, sealed, now)
    found = np.empty(len(points), object)
    found[:] = points
    return Objects(found, data)


def exactly_as(values: Values, kind: Kind, data: DataType) -> Column:
    """Plain values as knowledge of a kind: all of them are final."""
    there = values.there()
    if kind == "range":
        return Ranges(
            values, values, values, None if values.valid is None else np.where(there, 0, _ONLY).astype(np.uint8)
        )
    if kind == "mask":
        now = np.where(there, np.where(values.data, 1, 2), 4).astype(np.uint8)
        return Masks(now, now)
    if kind == "latest":
        when = Values(np.zeros(len(values), np.int64), values.valid)
        return Latests(values, when, when.data, np.ones(len(values), bool), values)
    return values if kind == "exact" else points_of(values, data)


def points_of(column: Column, data: DataType) -> Objects:
    """Knowledge of any kind, point by point."""
    if isinstance(column, Objects):
        return column
    found = np.empty(len(column), object)
    for index in range(len(column)):
        found[index] = known(column, index, data)
    return Objects(found, data)


def kind_of(data: DataType, domain: str) -> Kind:
    """Of a column whose knowledge can change, by what type analysis says of it."""
    if data.name == "relation":
        return "object"
    if domain == "latest" and data != BOOL:
        return "latest"
    return "mask" if data == BOOL else "range"


def concat(parts: Sequence[C]) -> C:
    """One after the other; there is at least one, and all are of one kind."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Values):
        return v.concat(parts)
    if isinstance(first, Ranges):
        return _concat_ranges(parts)
    if isinstance(first, Masks):
        return Masks(*(np.concatenate([getattr(p, part) for p in parts]) for part in ("possible", "now")))
    if isinstance(first, Objects):
        return Objects(np.concatenate([p.points for p in parts]), first.data)
    value, tick, now = (v.concat([getattr(p, part) for p in parts]) for part in ("value", "tick", "now"))
    source, sealed = (np.concatenate([getattr(p, part) for p in parts]) for part in ("source", "sealed"))
    return Latests(value, tick, source, sealed, now)


def _concat_ranges(parts: Sequence[Ranges]) -> Ranges:
    now = v.concat([p.now for p in parts])
    lo, hi = (_concat_ends([(p, getattr(p, end)) for p in parts]) for end in ("lo", "hi"))
    nulls = None if all(p.nulls is None for p in parts) else np.concatenate([p.null_codes() for p in parts])
    return Ranges(now, lo, hi, nulls)


def _concat_ends(parts: list[tuple[Ranges, Values | None]]) -> Values | None:
    if all(end is None for _, end in parts):
        return None
    return v.concat([v.empty_like(p.now, len(p)) if end is None else end for p, end in parts])


def where(chosen: Bools, a: C, b: C) -> C:
    """Row by row the one or the other; both are of one kind."""
    both = concat([a, b])
    count = len(a)
    return both.take(np.where(chosen, np.arange(count), np.arange(count, 2 * count)))
