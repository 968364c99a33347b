"""Ranges under functions that grow either way: their extremes are at the corners of the operands' box, or at zero.

`smile.knowledge.corners` says where it is cut. Where a corner is undefined nothing is known, unless there is no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from smile.columns.knowledge import Ranges
from smile.columns.values import Array, Bools, Values
from smile.kernels.expressions.images import corner
from smile.kernels.expressions.numbers import Kernel
from smile.kernels.expressions.operands import (
    NEVER,
    ONLY,
    PERHAPS,
    Operand,
    as_range,
    either,
    points,
    ranges,
    strict_nulls,
    without,
)


class _Extremes:
    """The least and the greatest of several columns, some rows of which are beyond all numbers."""

    def __init__(self, count: int) -> None:
        self.lo: Values | None = None
        self.hi: Values | None = None
        self.seen = np.zeros(count, bool)
        self.below = np.zeros(count, bool)
        self.above = np.zeros(count, bool)

    def add(self, data: Array, there: Bools) -> None:
        if self.lo is None or self.hi is None:
            self.lo = self.hi = Values(data)
        else:
            fresh = there & ~self.seen
            self.lo = Values(np.where(fresh | (there & (data < self.lo.data)), data, self.lo.data))
            self.hi = Values(np.where(fresh | (there & (data > self.hi.data)), data, self.hi.data))
        self.seen = self.seen | there

    def range(self, now: Values, args: Sequence[Ranges], bad: Bools) -> Ranges:
        """What the function may become of these operands, being undefined at some corners."""
        codes = strict_nulls(args)
        none = np.zeros(len(bad), bool) if codes is None else codes == ONLY
        bad = bad & ~none
        only = none | (bad & reduce(np.logical_and, map(points, args)))
        maybe = bad if codes is None else bad | (codes == PERHAPS)
        nulls = np.where(only, np.uint8(ONLY), np.where(maybe, np.uint8(PERHAPS), np.uint8(NEVER)))
        if only.any():
            now = without(now, only)
        if self.lo is None or self.hi is None:
            return ranges(now, None, None, nulls)
        kept = self.seen & ~(bad | only)
        lo, hi = Values(self.lo.data, kept & ~self.below), Values(self.hi.data, kept & ~self.above)
        return ranges(now, lo, hi, nulls)


@dataclass(frozen=True)
class Corners:
    """`*` and `/`: the extremes are at the corners of the operands' box. A quotient by what may be zero is unknown."""

    compute: Kernel
    division: bool

    def __call__(self, operands: Sequence[Operand]) -> Ranges:
        a, b = (as_range(o) for o in operands)
        found = None
        if b.lo is b.hi and b.lo is not None:
            found = _by_point(self.compute, a, b, b.lo)
        elif a.lo is a.hi and a.lo is not None and not self.division:
            found = _by_point(lambda operands, valid: self.compute(operands[::-1], valid), b, a, a.lo)
        return self._carefully(a, b) if found is None else found

    def _carefully(self, a: Ranges, b: Ranges) -> Ranges:
        count = len(a)
        now, _ = corner(self.compute, (a.now, b.now))
        bad = self._by_zero(b) if self.division else np.zeros(count, bool)
        found = _Extremes(count)
        tried: list[tuple[Values | None, Values | None]] = []
        for x, x_sign in ((a.lo, -1), (a.hi, 1)):
            for y, y_sign in ((b.lo, -1), (b.hi, 1)):
                if x is not None and y is not None:
                    if any(x is p and y is q for p, q in tried) and x.valid is None and y.valid is None:
                        continue
                    tried.append((x, y))
                bad = bad | self._corner(found, x, x_sign, y, y_sign, now.data.dtype)
        return found.range(now, (a, b), bad)

    def _corner(
        self, found: _Extremes, x: Values | None, x_sign: int, y: Values | None, y_sign: int, dtype: np.dtype[Any]
    ) -> Bools:
        """Takes one corner into account; where it is undefined."""
        count = len(found.seen)
        undefined = np.zeros(count, bool)
        there = np.zeros(count, bool)
        if x is not None and y is not None:
            value, bad = corner(self.compute, (x, y))
            there = x.there() & y.there()
            undefined = undefined if bad is None else bad
            found.add(value.data, there)
            if x.valid is None and y.valid is None:
                return undefined
        outside = ~there
        product = _sign(x, x_sign, count) * _sign(y, y_sign, count)
        vanishing = outside & (product == 0)
        if self.division:
            # Anything finite or not, divided by more than all numbers, is nothing.
            vanishing = outside & (np.ones(count, bool) if y is None else y.nulls())
        found.below = found.below | (outside & ~vanishing & (product < 0))
        found.above = found.above | (outside & ~vanishing & (product > 0))
        if vanishing.any():
            found.add(np.zeros(count, dtype), vanishing)
        return undefined

    def _by_zero(self, b: Ranges) -> Bools:
        found = np.ones(len(b), bool)
        if b.lo is not None:
            found &= b.lo.nulls() | (b.lo.data <= 0)
        if b.hi is not None:
            found &= b.hi.nulls() | (b.hi.data >= 0)
        return found


def _by_point(compute: Kernel, a: Ranges, b: Ranges, factor: Values) -> Ranges | None:
    """By an exact number: its sign says which end goes where. None if there is an overflow, or a zero."""
    if (factor.data == 0).any():
        return None
    now, bad_now = corner(compute, (a.now, b.now))
    ends: list[Values | None] = []
    for end in (a.lo, a.hi):
        found, bad = None, None
        if end is a.now and factor is b.now:
            found, bad = now, bad_now
        elif end is not None:
            found, bad = corner(compute, (end, factor))
        if bad is not None:
            return None
        ends.append(found)
    lo, hi = ends
    down = factor.data < 0
    if down.any():
        lo, hi = either(down, hi, lo), either(down, lo, hi)
    return ranges(now, lo, hi, strict_nulls((a, b)))


def _sign(end: Values | None, beyond: int, count: int) -> Array:
    if end is None:
        return np.full(count, beyond, np.int64)
    found = (end.data > 0).astype(np.int64) - (end.data < 0).astype(np.int64)
    return found if end.valid is None else np.where(end.valid, found, beyond)


@dataclass(frozen=True)
class Absolute:
    """The distance from zero: nothing is the least of it wherever zero is possible."""

    compute: Kernel

    def __call__(self, operands: Sequence[Operand]) -> Ranges:
        arg = as_range(operands[0])
        count = len(arg)
        now, _ = corner(self.compute, (arg.now,))
        bad = np.zeros(count, bool)
        found = _Extremes(count)
        around = np.ones(count, bool)
        for end, sign in ((arg.lo, -1), (arg.hi, 1)):
            if end is None:
                found.above[:] = True
                continue
            size, undefined = corner(self.compute, (end,))
            bad = bad if undefined is None else bad | undefined
            found.add(size.data, end.there())
            found.above |= end.nulls()
            around &= end.nulls() | (end.data >= 0 if sign > 0 else end.data <= 0)
        found.add(np.zeros(count, now.data.dtype), around)
        return found.range(now, (arg,), bad)
