"""Ranges under strict monotone functions, with the results of `smile.knowledge.values.range_arithmetic`.

Where the function overflows or is undefined at a corner of the operands' box the result has no bounds; it is
permanently NULL if all operands are single values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

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
    as_range,
    canonical_mask,
    canonical_ranges,
    end_null_where,
    is_single_valued,
    null_where,
    strict_nulls,
    truth_bits,
)

KnowledgeFunction = Callable[[Sequence[Operand]], Operand]
LimitValue = Literal["nothing", "no bound"] | Value
"""The limit of a function where an argument has no bound: undefined ("nothing"), unbounded, or a value."""


@dataclass(frozen=True)
class MonotoneFunction:
    """A function that is monotone in each argument. Arguments in which it is not monotone must be single values, else
    the result has no bounds.

    `limits` are those of the lower and of the upper end. `is_partial`: it may be undefined. `is_injective`: a range
    never narrows to a single value unless all operands do.
    """

    compute: Kernel
    growth: tuple[Monotonicity, ...]
    result: DataType
    is_partial: bool = False
    limits: tuple[LimitValue, LimitValue] = ("no bound", "no bound")
    is_injective: bool = False

    def __call__(self, operands: Sequence[Operand]) -> Operand:
        args = [as_range(o) for o in operands]
        if NOT_MONOTONE not in self.growth and self.limits == ("no bound", "no bound"):
            result = self._without_overflow(args)
            if result is not None:
                return result
        return self._with_undefined_ends(args)

    def _without_overflow(self, args: list[RangeColumn]) -> RangeColumn | None:
        """The fast path; None if there is an overflow in any row."""
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
        (lo, lo_undefined), (hi, hi_undefined) = (self._end_value(args, low, is_computable) for low in (True, False))
        is_undefined = lo_undefined | hi_undefined
        is_always_null = (null_codes == ALWAYS_NULL) | (
            is_undefined & np.logical_and.reduce([is_single_valued(a) for a in args])
        )
        may_be_null = is_undefined | (null_codes == MAYBE_NULL) | (is_imprecise & self.is_partial)
        nulls = np.where(
            is_always_null, np.uint8(ALWAYS_NULL), np.where(may_be_null, np.uint8(MAYBE_NULL), np.uint8(NEVER_NULL))
        )
        has_no_bound = is_undefined | is_imprecise | is_always_null
        now = null_where(now, is_always_null) if is_always_null.any() else now
        if self.result == BOOL:
            return _as_masks(now, end_null_where(lo, has_no_bound), nulls)
        return canonical_ranges(now, end_null_where(lo, has_no_bound), end_null_where(hi, has_no_bound), nulls)

    def _end_value(self, args: list[RangeColumn], low: bool, is_computable: Bools) -> tuple[ValueColumn | None, Bools]:
        """One end of the result, and the rows in which it is undefined."""
        limit = self.limits[0 if low else 1]
        end_arguments = self._end_arguments(args, low)
        nowhere = np.zeros(len(is_computable), bool)
        if None in end_arguments:
            end, is_undefined, is_valid = None, nowhere, nowhere
        else:
            within = [ValueColumn(e.data, e.is_valid() & is_computable) for e in end_arguments if e is not None]
            valid = all_valid(within)
            assert valid is not None
            is_valid = valid
            end, undefined = value_at_corner(self.compute, within)
            is_undefined = nowhere if undefined is None else undefined
        if limit == "no bound":
            return end, is_undefined
        is_unbounded = is_computable & ~is_valid
        if limit == "nothing":
            return end, is_undefined | is_unbounded
        limit_column = v.constant(limit, self.result, len(is_computable))
        return v.where(is_unbounded, limit_column, end) if end is not None else null_where(
            limit_column, ~is_unbounded
        ), is_undefined


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


_UNDEFINED_LIMITS: Final[tuple[LimitValue, LimitValue]] = ("nothing", "nothing")


def monotone_function(scalar: ScalarFunction, signature: Signature, compute: Kernel) -> MonotoneFunction:
    """The range function of a catalogue function that has no argument with the monotonicity MONOTONE."""
    growth = tuple(scalar.monotonicity_in(i) for i in range(len(signature.args)))
    limits: tuple[LimitValue, LimitValue] = ("no bound", "no bound")
    if scalar.limit_at_infinity is not None:
        other_arguments = (0,) * (len(signature.args) - 1)
        limits = tuple(
            _limit_value(scalar.limit_at_infinity((end, *other_arguments)), signature.result)
            for end in (-INFINITY, INFINITY)
        )  # type: ignore[assignment]
    elif scalar.partial:
        limits = _UNDEFINED_LIMITS
    is_whole = all(t.name != "float" for t in signature.args) and "timestamp" not in {t.name for t in signature.args}
    return MonotoneFunction(
        compute, growth, signature.result, scalar.partial, limits, scalar.name in ("+", "-", "neg") and is_whole
    )


def _limit_value(limit: Any, result: DataType) -> LimitValue:
    if isinstance(limit, float) and abs(limit) == INFINITY:
        return "no bound"
    fitted = fit_number(limit, result)
    return "nothing" if fitted is None else fitted
