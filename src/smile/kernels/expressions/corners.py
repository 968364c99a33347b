"""Ranges under `*`, `/` and `abs`: the extremes are at the corners of the operands' box, or at zero.

The results are those of `knowledge.values.range_arithmetic`. Where the function may overflow or be undefined the result
has no bounds; it is permanently NULL if all operands are single values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from smile.columns.knowledge import RangeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.expressions.arithmetic_kernels import Kernel
from smile.kernels.expressions.monotone_ranges import value_at_corner
from smile.kernels.expressions.operands import (
    ALWAYS_NULL,
    MAYBE_NULL,
    NEVER_NULL,
    Operand,
    OperandLimits,
    as_range,
    canonical_ranges,
    is_single_valued,
    null_where,
    select_end,
    strict_nulls,
)


class _RangeBuilder:
    """The least and the greatest value of several columns in each row, and the rows that lack one of these bounds."""

    def __init__(self, count: int) -> None:
        self.lo: ValueColumn | None = None
        self.hi: ValueColumn | None = None
        self.has_value = np.zeros(count, bool)
        self.is_unbounded_below = np.zeros(count, bool)
        self.is_unbounded_above = np.zeros(count, bool)

    def add(self, data: Array, where: Bools) -> None:
        if self.lo is None or self.hi is None:
            self.lo = self.hi = ValueColumn(data)
        else:
            is_first = where & ~self.has_value
            self.lo = ValueColumn(np.where(is_first | (where & (data < self.lo.data)), data, self.lo.data))
            self.hi = ValueColumn(np.where(is_first | (where & (data > self.hi.data)), data, self.hi.data))
        self.has_value = self.has_value | where

    def build(self, now: ValueColumn, args: Sequence[RangeColumn], undefined: Bools) -> RangeColumn:
        """The range of the function of these operands; `undefined` has the rows in which a corner is undefined."""
        null_codes = strict_nulls(args)
        is_null_operand = np.zeros(len(undefined), bool) if null_codes is None else null_codes == ALWAYS_NULL
        undefined = undefined & ~is_null_operand
        is_always_null = is_null_operand | (undefined & reduce(np.logical_and, map(is_single_valued, args)))
        may_be_null = undefined if null_codes is None else undefined | (null_codes == MAYBE_NULL)
        nulls = np.where(
            is_always_null, np.uint8(ALWAYS_NULL), np.where(may_be_null, np.uint8(MAYBE_NULL), np.uint8(NEVER_NULL))
        )
        if is_always_null.any():
            now = null_where(now, is_always_null)
        if self.lo is None or self.hi is None:
            return canonical_ranges(now, None, None, nulls)
        has_bounds = self.has_value & ~(undefined | is_always_null)
        lo, hi = (
            ValueColumn(self.lo.data, has_bounds & ~self.is_unbounded_below),
            ValueColumn(self.hi.data, has_bounds & ~self.is_unbounded_above),
        )
        return canonical_ranges(now, lo, hi, nulls)


@dataclass(frozen=True)
class ProductFunction:
    """`*` and `/`: the extremes are at the corners of the operands' box. A quotient has no bounds if the divisor may be
    zero."""

    compute: Kernel
    is_division: bool
    limits: OperandLimits

    def __call__(self, operands: Sequence[Operand]) -> RangeColumn:
        a, b = (as_range(o) for o in operands)
        result = None
        if self.limits.can_be_undefined:
            return self._from_all_corners(a, b)
        if b.lo is b.hi and b.lo is not None:
            result = _times_exact_factor(self.compute, a, b, b.lo)
        elif a.lo is a.hi and a.lo is not None and not self.is_division:
            result = _times_exact_factor(lambda operands, valid: self.compute(operands[::-1], valid), b, a, a.lo)
        return self._from_all_corners(a, b) if result is None else result

    def _from_all_corners(self, a: RangeColumn, b: RangeColumn) -> RangeColumn:
        count = len(a)
        now, _ = value_at_corner(self.compute, (a.now, b.now))
        is_undefined = self._can_be_zero(b) if self.is_division else np.zeros(count, bool)
        if self.limits.can_be_undefined:
            is_undefined = is_undefined | self._can_overflow(a, b)
        builder = _RangeBuilder(count)
        tried: list[tuple[ValueColumn | None, ValueColumn | None]] = []
        for x, x_sign in ((a.lo, -1), (a.hi, 1)):
            for y, y_sign in ((b.lo, -1), (b.hi, 1)):
                if x is not None and y is not None:
                    if any(x is p and y is q for p, q in tried) and x.valid is None and y.valid is None:
                        continue
                    tried.append((x, y))
                self._add_corner(builder, x, x_sign, y, y_sign, now.data.dtype)
        return builder.build(now, (a, b), is_undefined)

    def _can_overflow(self, a: RangeColumn, b: RangeColumn) -> Bools:
        """The rows in which the result may overflow. The limits stand for absent ends."""
        is_undefined = np.zeros(len(a), bool)
        for x in (self.limits.fill_lower(0, a), self.limits.fill_upper(0, a)):
            for y in (self.limits.fill_lower(1, b), self.limits.fill_upper(1, b)):
                if x is not None and y is not None:  # an operand without limits is always NULL
                    undefined = value_at_corner(self.compute, (x, y))[1]
                    is_undefined = is_undefined if undefined is None else is_undefined | undefined
        return is_undefined

    def _add_corner(
        self,
        builder: _RangeBuilder,
        x: ValueColumn | None,
        x_sign: int,
        y: ValueColumn | None,
        y_sign: int,
        dtype: np.dtype[Any],
    ) -> None:
        """Adds one corner to the range."""
        count = len(builder.has_value)
        has_corner = np.zeros(count, bool)
        if x is not None and y is not None:
            value, _ = value_at_corner(self.compute, (x, y))
            has_corner = x.is_valid() & y.is_valid()
            builder.add(value.data, has_corner)
            if x.valid is None and y.valid is None:
                return
        is_unbounded = ~has_corner
        product = _end_sign(x, x_sign, count) * _end_sign(y, y_sign, count)
        is_zero = is_unbounded & (product == 0)
        if self.is_division:
            # The limit of any quotient is 0 as the divisor goes to infinity.
            is_zero = is_unbounded & (np.ones(count, bool) if y is None else y.is_null())
        builder.is_unbounded_below = builder.is_unbounded_below | (is_unbounded & ~is_zero & (product < 0))
        builder.is_unbounded_above = builder.is_unbounded_above | (is_unbounded & ~is_zero & (product > 0))
        if is_zero.any():
            builder.add(np.zeros(count, dtype), is_zero)

    def _can_be_zero(self, b: RangeColumn) -> Bools:
        can_be_zero = np.ones(len(b), bool)
        if b.lo is not None:
            can_be_zero &= b.lo.is_null() | (b.lo.data <= 0)
        if b.hi is not None:
            can_be_zero &= b.hi.is_null() | (b.hi.data >= 0)
        return can_be_zero


def _times_exact_factor(compute: Kernel, a: RangeColumn, b: RangeColumn, factor: ValueColumn) -> RangeColumn | None:
    """The product or quotient with an exact number, whose sign decides which end becomes which. None if there is an
    overflow or a zero."""
    if (factor.data == 0).any():
        return None
    now, now_undefined = value_at_corner(compute, (a.now, b.now))
    ends: list[ValueColumn | None] = []
    for end in (a.lo, a.hi):
        product, undefined = None, None
        if end is a.now and factor is b.now:
            product, undefined = now, now_undefined
        elif end is not None:
            product, undefined = value_at_corner(compute, (end, factor))
        if undefined is not None:
            return None
        ends.append(product)
    lo, hi = ends
    is_negative = factor.data < 0
    if is_negative.any():
        lo, hi = select_end(is_negative, hi, lo), select_end(is_negative, lo, hi)
    return canonical_ranges(now, lo, hi, strict_nulls((a, b)))


def _end_sign(end: ValueColumn | None, unbounded_sign: int, count: int) -> Array:
    if end is None:
        return np.full(count, unbounded_sign, np.int64)
    signs = (end.data > 0).astype(np.int64) - (end.data < 0).astype(np.int64)
    return signs if end.valid is None else np.where(end.valid, signs, unbounded_sign)


@dataclass(frozen=True)
class AbsoluteFunction:
    """`abs`: the least value is 0 wherever the operand may be zero."""

    compute: Kernel
    limits: OperandLimits

    def __call__(self, operands: Sequence[Operand]) -> RangeColumn:
        arg = as_range(operands[0])
        count = len(arg)
        now, _ = value_at_corner(self.compute, (arg.now,))
        is_undefined = np.zeros(count, bool)
        if self.limits.can_be_undefined:
            for filled in (self.limits.fill_lower(0, arg), self.limits.fill_upper(0, arg)):
                undefined = None if filled is None else value_at_corner(self.compute, (filled,))[1]
                is_undefined = is_undefined if undefined is None else is_undefined | undefined
        builder = _RangeBuilder(count)
        can_be_zero = np.ones(count, bool)
        for end, sign in ((arg.lo, -1), (arg.hi, 1)):
            if end is None:
                builder.is_unbounded_above[:] = True
                continue
            magnitude, _ = value_at_corner(self.compute, (end,))
            builder.add(magnitude.data, end.is_valid())
            builder.is_unbounded_above |= end.is_null()
            can_be_zero &= end.is_null() | (end.data >= 0 if sign > 0 else end.data <= 0)
        builder.add(np.zeros(count, now.data.dtype), can_be_zero)
        return builder.build(now, (arg,), is_undefined)
