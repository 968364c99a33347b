"""Sets of values of one column: a finite union of intervals, and whether NULL is in it. All operations are exact.

Values are represented by points, whose order is that of the values. Every point has a successor: an integer the next
one, a decimal the next of its scale, a float the next float, a string the same with a NUL at its end. So every interval
is half open: from its first point up to the first point after it. The end of strings and bytes is unbounded: None.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from smile.algebra.coercions import EXACT_CONTEXT, digits_and_scale, type_ends
from smile.algebra.types import BOOL, BYTES, FLOAT, INT_MAX, INT_MIN, STRING, DataType, Value

Point = Any  # int, float, str or bytes, by the type of the column


class PointInterval(NamedTuple):
    """The points p with first <= p < end."""

    first: Point
    end: Point | None


@dataclass(frozen=True)
class PointScale:
    """How the values of a type are represented by points."""

    type: DataType

    @cached_property
    def all_points(self) -> PointInterval:
        if self.type == STRING:
            return PointInterval("", None)
        if self.type == BYTES:
            return PointInterval(b"", None)
        if self.type == BOOL:
            return PointInterval(0, 2)
        if self.type == FLOAT:
            return PointInterval(-math.nextafter(math.inf, 0), math.inf)
        if self.type.name == "decimal":
            digits = digits_and_scale(self.type)[0]
            return PointInterval(1 - 10**digits, 10**digits)
        lo, hi = type_ends(self.type) or (INT_MIN, INT_MAX)
        return PointInterval(lo, hi + 1)

    @property
    def is_discrete(self) -> bool:
        """Whether points are integers."""
        return self.type not in (STRING, BYTES, FLOAT)

    def point(self, value: Value) -> Point:
        if isinstance(value, Decimal):
            return int(value.scaleb(digits_and_scale(self.type)[1], EXACT_CONTEXT))
        return int(value) if isinstance(value, bool) else value

    def value(self, point: Point) -> Value:
        if self.type == BOOL:
            return bool(point)
        if self.type.name == "decimal":
            return Decimal(point).scaleb(-digits_and_scale(self.type)[1], EXACT_CONTEXT)
        value: Value = point
        return value

    def successor(self, point: Point) -> Point:
        if self.type == STRING:
            return point + "\0"
        if self.type == BYTES:
            return point + b"\0"
        return math.nextafter(point, math.inf) if self.type == FLOAT else point + 1


@dataclass(frozen=True)
class IntervalSet:
    """The intervals are ordered, not empty, and neither overlap nor touch."""

    has_null: bool
    intervals: tuple[PointInterval, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.has_null or self.intervals)

    def contains_point(self, point: Point | None) -> bool:
        """None is NULL."""
        if point is None:
            return self.has_null
        return any(first <= point and (end is None or point < end) for first, end in self.intervals)

    def union(self, other: "IntervalSet") -> "IntervalSet":
        return interval_set((*self.intervals, *other.intervals), self.has_null or other.has_null)

    def intersection(self, other: "IntervalSet") -> "IntervalSet":
        pieces, mine, others = list[PointInterval](), self.intervals, other.intervals
        i = j = 0
        while i < len(mine) and j < len(others):
            first, end = max(mine[i].first, others[j].first), _least_end(mine[i].end, others[j].end)
            if end is None or first < end:
                pieces.append(PointInterval(first, end))
            if end == mine[i].end:
                i += 1
            else:
                j += 1
        return IntervalSet(self.has_null and other.has_null, tuple(pieces))

    def complement(self, scale: PointScale) -> "IntervalSet":
        first, last = scale.all_points
        pieces, start = list[PointInterval](), first
        for interval in self.intervals:
            if start is not None and start < interval.first:
                pieces.append(PointInterval(start, interval.first))
            start = interval.end
        if start is not None and (last is None or start < last):
            pieces.append(PointInterval(start, last))
        return IntervalSet(not self.has_null, tuple(pieces))

    def is_subset(self, other: "IntervalSet") -> bool:
        if self == other:
            return True
        if self.has_null and not other.has_null:
            return False
        j, others = 0, other.intervals
        for first, end in self.intervals:
            while j < len(others) and others[j].end is not None and others[j].end <= first:
                j += 1
            if j == len(others) or first < others[j].first:
                return False
            other_end = others[j].end
            if other_end is not None and (end is None or other_end < end):
                return False
        return True

    def is_disjoint(self, other: "IntervalSet") -> bool:
        return self.intersection(other).is_empty

    def simple_point(self) -> Point | None:
        """A point for examples: 0 if there is one, otherwise one at an end. None is NULL; the set is not empty."""
        if not self.intervals:
            return None
        first = self.intervals[0].first
        if isinstance(first, str | bytes):
            return first
        return 0 if self.contains_point(0) else first if first > 0 else self.intervals[-1].first

    def listed_points(self, scale: PointScale, count_max: int) -> Sequence[Point | None] | None:
        """All points, NULL as None, if they are at most `count_max` and each is an interval of its own."""
        if len(self.intervals) + self.has_null > count_max:
            return None
        points: list[Point | None] = [None] if self.has_null else []
        for first, end in self.intervals:
            if end is None or scale.successor(first) != end:
                return None
            points.append(first)
        return points


@lru_cache(maxsize=256)
def scale_of(data_type: DataType) -> PointScale:
    return PointScale(data_type)


def _least_end(a: Point | None, b: Point | None) -> Point | None:
    return b if a is None else a if b is None else min(a, b)


def interval_set(intervals: Iterable[PointInterval], has_null: bool = False) -> IntervalSet:
    """The union of any intervals."""
    merged = list[PointInterval]()
    for first, end in sorted((i for i in intervals if i.end is None or i.first < i.end), key=lambda i: i.first):
        if merged and (merged[-1].end is None or first <= merged[-1].end):
            last = merged[-1].end
            merged[-1] = PointInterval(merged[-1].first, None if last is None or end is None else max(last, end))
        else:
            merged.append(PointInterval(first, end))
    return IntervalSet(has_null, tuple(merged))


EMPTY: Final = IntervalSet(False, ())
ONLY_NULL: Final = IntervalSet(True, ())
