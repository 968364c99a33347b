"""A range: the final value is in lo..hi, or NULL if that is possible. An end that is None is no bound. Bounds only
become tighter.

Ranges represent counts and sums, and also MAX and MIN, whose ranges have one end that never moves.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from smile.algebra.types import Value
from smile.knowledge.values.cell_knowledge import Contradiction, WireKnowledge, format_value


class Nullability(Enum):
    """Whether the final value may be NULL."""

    NEVER = "never"
    MAYBE = "maybe"
    ONLY = "only"


NEVER, MAYBE, ONLY = Nullability
RangeEnd = Any  # a value of an ordered type, or None: the ends of one range are of one type


@dataclass(frozen=True)
class Range:
    lo: RangeEnd = None
    hi: RangeEnd = None
    nulls: Nullability = NEVER
    now: Value = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.nulls is ONLY:
            self._set(lo=None, hi=None, now=None)
        elif self.lo is not None and self.hi is not None:
            if self.hi < self.lo:
                raise Contradiction(f"no value lies in {format_value(self.lo)}..{format_value(self.hi)}")
            if self.is_final and (self.now is None or self.now != self.lo):
                self._set(now=self.lo)

    def _set(self, **values: Value) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def exactly(value: Value) -> "Range":
        return Range(nulls=ONLY) if value is None else Range(value, value, NEVER, value)

    @staticmethod
    def bottom(lo: RangeEnd = None, hi: RangeEnd = None, now: Value = None) -> "Range":
        """Only the domain is known: the final value is in it, or NULL."""
        return Range(lo, hi, MAYBE, now)

    @staticmethod
    def at_least(lo: RangeEnd, now: Value = None) -> "Range":
        return Range(lo, None, NEVER, lo if now is None else now)

    @staticmethod
    def at_most(hi: RangeEnd, now: Value = None) -> "Range":
        return Range(None, hi, NEVER, hi if now is None else now)

    @staticmethod
    def between(lo: RangeEnd, hi: RangeEnd, now: Value = None) -> "Range":
        return Range(lo, hi, NEVER, now)

    @property
    def is_final(self) -> bool:
        return self.nulls is ONLY or (self.nulls is NEVER and self.lo is not None and self.lo == self.hi)

    @property
    def is_unknown(self) -> bool:
        """Whether there is no bound to send to a client. If NULL is possible, no bound is sure to hold."""
        return self.nulls is MAYBE or (self.nulls is NEVER and self.lo is None and self.hi is None)

    def filled(self, limits: "Range") -> "Range":
        """The range with the ends of `limits` where it has none."""
        if self.nulls is ONLY or (self.lo is not None and self.hi is not None):
            return self
        lo, hi = limits.lo if self.lo is None else self.lo, limits.hi if self.hi is None else self.hi
        return Range(lo, hi, self.nulls, self.now)

    def contains(self, value: Value) -> bool:
        if value is None:
            return self.nulls is not NEVER
        return self.nulls is not ONLY and is_lower_bound(self.lo, value) and is_upper_bound(self.hi, value)

    def evolves_to(self, other: object) -> bool:
        if not isinstance(other, Range):
            return False
        if other.nulls is not NEVER and self.nulls is NEVER:
            return False
        if other.nulls is ONLY:
            return True
        return self.nulls is not ONLY and is_lower_bound(self.lo, other.lo) and is_upper_bound(self.hi, other.hi)

    def merge(self, other: "Range") -> "Range":
        may_be_null = self.nulls is not NEVER and other.nulls is not NEVER
        lo, hi = max_lower_bound(self.lo, other.lo), min_upper_bound(self.hi, other.hi)
        no_value = ONLY in (self.nulls, other.nulls) or (lo is not None and hi is not None and hi < lo)
        if no_value and not may_be_null:
            raise Contradiction(f"{self.show()} and {other.show()} cannot both be true")
        return Range(lo, hi, ONLY if no_value else MAYBE if may_be_null else NEVER, self.now)

    def show(self) -> str:
        if self.is_final:
            return f"={format_value(None if self.nulls is ONLY else self.lo)}"
        if self.is_unknown:
            return "?"
        if self.hi is None:
            return f"≥{format_value(self.lo)}"
        return f"≤{format_value(self.hi)}" if self.lo is None else f"[{format_value(self.lo)}..{format_value(self.hi)}]"

    def wire(self) -> WireKnowledge:
        if self.is_final:
            return {"exactly": None if self.nulls is ONLY else self.lo}
        if self.is_unknown:
            return {"unknown": True}
        if self.hi is None:
            return {"at_least": self.lo}
        return {"at_most": self.hi} if self.lo is None else {"between": [self.lo, self.hi]}


def is_lower_bound(lo: RangeEnd, value: RangeEnd) -> bool:
    """Whether `lo` is a lower bound of `value`, which may itself be the lower end of a range. None is minus
    infinity."""
    return lo is None or (value is not None and bool(lo <= value))


def is_upper_bound(hi: RangeEnd, value: RangeEnd) -> bool:
    """The same for an upper bound. None is infinity."""
    return hi is None or (value is not None and bool(value <= hi))


def max_lower_bound(a: RangeEnd, b: RangeEnd) -> RangeEnd:
    """The lower end of the intersection of two ranges."""
    return b if a is None else a if b is None else max(a, b)


def min_upper_bound(a: RangeEnd, b: RangeEnd) -> RangeEnd:
    """The upper end of the intersection of two ranges."""
    return b if a is None else a if b is None else min(a, b)


def hull(ranges: "list[Range]", now: Value = None) -> Range:
    """The smallest range that contains all of `ranges`, of which there is at least one."""
    with_values = [r for r in ranges if r.nulls is not ONLY]
    if not with_values:
        return Range.exactly(None)
    lo = None if any(r.lo is None for r in with_values) else min(r.lo for r in with_values)
    hi = None if any(r.hi is None for r in with_values) else max(r.hi for r in with_values)
    return Range(lo, hi, NEVER if all(r.nulls is NEVER for r in ranges) else MAYBE, now)
