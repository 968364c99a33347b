"""Ranges under strict monotone functions, with the results of `smile.knowledge.values.range_arithmetic`.

Where the function may overflow or be undefined the result has no bounds; it is permanently NULL if all operands are
single values. Functions that are defined everywhere within the limits of their operands do not pay for this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra.coercions import fit_number
from smile.algebra.functions.base import DECREASING, INFINITY, NOT_MONOTONE, Monotonicity, ScalarFunction, Signature
from smile.algebra.types import BOOL, DataType, Value
from smile.columns import values as v
from smile.columns.knowledge import MaskColumn, RangeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.expressions.arithmetic_kernels import Kernel
from smile.kernels.expressions.column_functions import all_valid
from smile.kernels.expressions.operands import (
    ALWAYS_NULL,
    FALSE,
    MAYBE_NULL,
    NEVER_NULL,
    NULL,
    TRUE,
    Operand,
    OperandLimits,
    as_range,
    canonical_mask,
    canonical_ranges,
    is_single_valued,
    null_where,
    strict_nulls,
    truth_bits,
)

KnowledgeFunction = Callable[[Sequence[Operand]], Operand]


@dataclass(frozen=True)
class MonotoneFunction:
    """A function that is monotone in each argument. Arguments in which it is not monotone must be single values, else
    the result has no bounds.

    `is_partial`: it may be undefined where it is not monotone. `limit_values`: the lower and the upper end where an
    argument has none; None is no bound. `is_injective`: a range never narrows to a single value unless all operands do.
    """

    compute: Kernel
    growth: tuple[Monotonicity, ...]
    result: DataType
    limits: OperandLimits
    is_partial: bool = False
    limit_values: tuple[Value, Value] = (None, None)
    is_injective: bool = False

    def __call__(self, operands: Sequence[Operand]) -> Operand:
        args = [as_range(o) for o in operands]
        is_simple = NOT_MONOTONE not in self.growth and self.limit_values == (None, None)
        if is_simple and not self.limits.can_be_undefined:
            result = self._without_overflow(args)
            if result is not None:
                return result
        return self._with_undefined_ends(args)

    def _without_overflow(self, args: list[RangeColumn]) -> RangeColumn | None:
        """The fast path; None if there is an overflow, which there can be only in absent rows."""
        nows = [a.now for a in args]
        now, now_undefined = value_at_corner(self.compute, nows)
        ends: list[ValueColumn | None] = []
        for low in (True, False):
            end_arguments = self._end_arguments(args, low)
            if None in end_arguments:
                ends.append(None)
            elif all(a is b for a, b in zip(end_arguments, nows, strict=True)):
                if now_undefined is not None:
                    return None
                ends.append(now)
            else:
                corner = [e for e in end_arguments if e is not None]
                end, undefined = value_at_corner(self.compute, corner)
                if undefined is not None:
                    return None
                ends.append(end)
        lo, hi = ends
        return (
            RangeColumn(now, lo, hi, strict_nulls(args))
            if self.is_injective
            else canonical_ranges(now, lo, hi, strict_nulls(args))
        )

    def _end_arguments(self, args: list[RangeColumn], low: bool) -> list[ValueColumn | None]:
        return [a.lo if (g is DECREASING) != low else a.hi for a, g in zip(args, self.growth, strict=True)]

    def _with_undefined_ends(self, args: list[RangeColumn]) -> Operand:
        count = len(args[0])
        null_codes = strict_nulls(args)
        null_codes = np.zeros(count, np.uint8) if null_codes is None else null_codes
        is_imprecise = np.zeros(count, bool)
        for arg, growth in zip(args, self.growth, strict=True):
            if growth is NOT_MONOTONE:
                is_imprecise |= ~is_single_valued(arg)
        is_computable = ~is_imprecise & (null_codes != ALWAYS_NULL)
        now, _ = value_at_corner(self.compute, [a.now for a in args])
        is_undefined = self._is_undefined(args, is_computable)
        is_always_null = (null_codes == ALWAYS_NULL) | (
            is_undefined & np.logical_and.reduce([is_single_valued(a) for a in args])
        )
        may_be_null = is_undefined | (null_codes == MAYBE_NULL) | (is_imprecise & self.is_partial)
        nulls = np.where(
            is_always_null, np.uint8(ALWAYS_NULL), np.where(may_be_null, np.uint8(MAYBE_NULL), np.uint8(NEVER_NULL))
        )
        has_bounds = is_computable & ~(is_undefined | is_always_null)
        now = null_where(now, is_always_null) if is_always_null.any() else now
        lo = self._end_value(args, True, has_bounds)
        if self.result == BOOL:
            return _as_masks(now, lo, nulls)
        return canonical_ranges(now, lo, self._end_value(args, False, has_bounds), nulls)

    def _is_undefined(self, args: list[RangeColumn], is_computable: Bools) -> Bools:
        """The rows in which the function may overflow or be undefined. The limits stand for absent ends."""
        is_undefined = np.zeros(len(is_computable), bool)
        if not self.limits.can_be_undefined:
            return is_undefined
        lower = [self.limits.fill_lower(i, arg) for i, arg in enumerate(args)]
        upper = [self.limits.fill_upper(i, arg) for i, arg in enumerate(args)]
        for low in (True, False):
            ends = [a if (g is DECREASING) != low else b for a, b, g in zip(lower, upper, self.growth, strict=True)]
            has_ends = is_computable
            for end in ends:
                has_ends = np.zeros(len(has_ends), bool) if end is None else has_ends & end.is_valid()
            corner = [ValueColumn(e.data, has_ends) for e in ends if e is not None]
            if len(corner) == len(ends):
                undefined = value_at_corner(self.compute, corner)[1]
                is_undefined = is_undefined if undefined is None else is_undefined | undefined
            if self.is_partial:  # only text has no limits
                is_undefined = is_undefined | (is_computable & ~has_ends)
        return is_undefined

    def _end_value(self, args: list[RangeColumn], low: bool, has_bounds: Bools) -> ValueColumn | None:
        """One end of the result; not valid where there is no bound."""
        limit = self.limit_values[0 if low else 1]
        ends = [e for e in self._end_arguments(args, low) if e is not None]
        if len(ends) < len(args):
            return None if limit is None else null_where(v.constant(limit, self.result, len(has_bounds)), ~has_bounds)
        has_ends = has_bounds if (valid := all_valid(ends)) is None else has_bounds & valid
        end, _ = value_at_corner(self.compute, [ValueColumn(e.data, has_ends) for e in ends])
        if limit is None:
            return end
        return v.where(has_bounds & ~has_ends, v.constant(limit, self.result, len(has_bounds)), end)


def value_at_corner(compute: Kernel, ends: Sequence[ValueColumn]) -> tuple[ValueColumn, Bools | None]:
    """The function at a corner, and the rows in which it is undefined there although all ends are valid.
    None: in no row."""
    valid = all_valid(ends)
    data, undefined = compute([e.data for e in ends], valid)
    if undefined is None:
        return ValueColumn(data, valid), None
    if valid is None:
        return ValueColumn(data, ~undefined), undefined
    undefined = undefined & valid
    return ValueColumn(data, valid & ~undefined), undefined if undefined.any() else None


def _as_masks(now: ValueColumn, point: ValueColumn | None, nulls: Array) -> MaskColumn:
    """A Boolean result as masks: single where `point` is valid, else unknown."""
    possible = np.full(len(now), TRUE | FALSE, np.uint8)
    if point is not None:
        possible = np.where(point.is_valid(), truth_bits(ValueColumn(point.data)), possible)
    possible = np.where(nulls == MAYBE_NULL, possible | np.uint8(NULL), possible)
    return canonical_mask(np.where(nulls == ALWAYS_NULL, np.uint8(NULL), possible), truth_bits(now))


def monotone_function(
    scalar: ScalarFunction, signature: Signature, compute: Kernel, limits: OperandLimits
) -> MonotoneFunction:
    """The range function of a catalogue function that has no argument with the monotonicity MONOTONE."""
    growth = tuple(scalar.monotonicity_in(i) for i in range(len(signature.args)))
    is_whole = all(t.name != "float" for t in signature.args) and "timestamp" not in {t.name for t in signature.args}
    return MonotoneFunction(
        compute,
        growth,
        signature.result,
        limits,
        scalar.partial,
        (_limit_value(scalar, -INFINITY, signature), _limit_value(scalar, INFINITY, signature)),
        scalar.name in ("+", "-", "neg") and is_whole,
    )


def _limit_value(scalar: ScalarFunction, end: float, signature: Signature) -> Value:
    """The result where the first argument has no bound; None: no bound."""
    if scalar.limit_at_infinity is None:
        return None
    limit = scalar.limit_at_infinity((end, *(0,) * (len(signature.args) - 1)))
    if isinstance(limit, float) and abs(limit) == INFINITY:
        return None
    return fit_number(limit, signature.result)  # type: ignore[arg-type]  # only functions of numbers have limits
