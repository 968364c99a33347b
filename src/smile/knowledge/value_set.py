"""A set of values of one data type: an interval, the values themselves if they are few, and whether NULL is in it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from smile import limits
from smile.algebra.types import Value
from smile.knowledge.values.range import (
    MAYBE,
    NEVER,
    ONLY,
    Range,
    RangeEnd,
    is_lower_bound,
    is_upper_bound,
    max_lower_bound,
    min_upper_bound,
)


@dataclass(frozen=True)
class ValueSet:
    """All values in lo..hi, or only those of `values` if it is not None. An end that is None is no bound."""

    lo: RangeEnd = None
    hi: RangeEnd = None
    values: frozenset[Value] | None = None
    nullable: bool = True

    @staticmethod
    def of(values: Iterable[Value], nullable: bool) -> "ValueSet":
        """Exactly these values, none of which is NULL."""
        listed = frozenset(values)
        ordered = sorted(listed)  # type: ignore[type-var]  # values of one data type
        is_short = len(ordered) <= limits.listed_values_max
        lo, hi = (ordered[0], ordered[-1]) if ordered else (None, None)
        return ValueSet(lo, hi, listed if is_short else None, nullable)

    @staticmethod
    def from_range(cell: Range) -> "ValueSet":
        return ONLY_NULL if cell.nulls is ONLY else ValueSet(cell.lo, cell.hi, None, cell.nulls is MAYBE)

    @property
    def has_values(self) -> bool:
        """Whether it contains anything but NULL."""
        if self.values is not None:
            return bool(self.values)
        return self.lo is None or self.hi is None or bool(self.lo <= self.hi)

    @property
    def is_empty(self) -> bool:
        return not (self.nullable or self.has_values)

    def contains(self, value: Value) -> bool:
        if value is None:
            return self.nullable
        if self.values is not None:
            return value in self.values
        return is_lower_bound(self.lo, value) and is_upper_bound(self.hi, value)

    def intersection(self, other: "ValueSet") -> "ValueSet":
        nullable = self.nullable and other.nullable
        lists = [s for s in (self.values, other.values) if s is not None]
        if lists:
            return ValueSet.of((v for v in min(lists, key=len) if self.contains(v) and other.contains(v)), nullable)
        both = ValueSet(max_lower_bound(self.lo, other.lo), min_upper_bound(self.hi, other.hi), None, nullable)
        return both if both.has_values else ValueSet.of((), nullable)

    def union(self, other: "ValueSet") -> "ValueSet":
        """The smallest set of this kind that contains both."""
        nullable = self.nullable or other.nullable
        if not (self.has_values and other.has_values):
            return replace(self if self.has_values else other, nullable=nullable)
        if self.values is not None and other.values is not None:
            return ValueSet.of(self.values | other.values, nullable)
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        return ValueSet(lo, hi, None, nullable)

    def clip(self, cell: Range) -> Range | None:
        """What remains of the cell in lo..hi; None if nothing does."""
        interval = replace(self, values=None) if self.values else self
        rest = interval.intersection(ValueSet.from_range(cell))
        return None if rest.is_empty else rest.to_range(cell.now)

    def to_range(self, now: Value = None) -> Range:
        """As a range, which has no list of values. The set must not be empty."""
        if not self.has_values:
            return Range.exactly(None)
        return Range(self.lo, self.hi, MAYBE if self.nullable else NEVER, now)


ONLY_NULL = ValueSet(values=frozenset())
