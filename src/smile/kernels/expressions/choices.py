"""COALESCE, NULLIF, GREATEST, LEAST and CASE on knowledge.

The bounds are the hull of all operands that may be chosen; `now` is the value of the operand that is chosen at present.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from smile.algebra.types import DataType
from smile.columns import values as v
from smile.columns.knowledge import MaskColumn, RangeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.expressions.column_functions import ColumnFunction, constant_column, is_less
from smile.kernels.expressions.logic import possible_truths
from smile.kernels.expressions.operands import (
    ALWAYS_NULL,
    MAYBE_NULL,
    NEVER_NULL,
    TRUE,
    Operand,
    as_mask,
    as_range,
    canonical_mask,
    canonical_ranges,
    end_null_where,
    is_single_valued,
    null_where,
    select_end,
)
from smile.knowledge.value_set import ValueSet

ChoiceFunction = Callable[[Sequence[Operand]], RangeColumn]
IsBetter = Callable[[Array, Array], Bools]


def _greater(a: Array, b: Array) -> Bools:
    return is_less(b, a)


def _best_end(
    ends: Sequence[tuple[ValueColumn | None, Bools]], better: IsBetter, skips_missing: bool = False
) -> ValueColumn | None:
    """The best of the ends, in each row over those that take part. A missing end is beyond all others, unless
    `skips_missing`."""
    best: ValueColumn | None = None
    count = len(ends[0][1])
    has_best, is_missing = np.zeros(count, bool), np.zeros(count, bool)
    for end, takes_part in ends:
        if end is None:
            is_missing |= takes_part
            continue
        has_end = takes_part if end.valid is None else takes_part & end.valid
        is_missing |= takes_part & ~has_end
        if best is None:
            best = end
        else:
            best = v.where(
                has_end & (~has_best | better(end.data, best.data)), ValueColumn(end.data), ValueColumn(best.data)
            )
        has_best = has_best | has_end
    if best is None:
        return None
    return ValueColumn(best.data, has_best if skips_missing else has_best & ~is_missing)


def hull(
    args: Sequence[RangeColumn], possible: Sequence[Bools]
) -> tuple[ValueColumn | None, ValueColumn | None, Array | None]:
    """The hull of the operands that are possible, of which every row has at least one: both ends, and the
    nullability."""
    can_have_value = [
        p if a.nulls is None else p & (a.nulls != ALWAYS_NULL) for a, p in zip(args, possible, strict=True)
    ]
    lo = _best_end([(a.lo, t) for a, t in zip(args, can_have_value, strict=True)], is_less)
    hi = _best_end([(a.hi, t) for a, t in zip(args, can_have_value, strict=True)], _greater)
    nullable = [p & (a.nulls != NEVER_NULL) for a, p in zip(args, possible, strict=True) if a.nulls is not None]
    if not nullable:
        return lo, hi, None
    is_always_null = ~reduce(np.logical_or, can_have_value)
    null_codes = np.where(reduce(np.logical_or, nullable), np.uint8(MAYBE_NULL), np.uint8(NEVER_NULL))
    return lo, hi, np.where(is_always_null, np.uint8(ALWAYS_NULL), null_codes)


def _all_true(count: int) -> Bools:
    return np.ones(count, bool)


def coalesce(now_function: ColumnFunction) -> ChoiceFunction:
    def run(operands: Sequence[Operand]) -> RangeColumn:
        args = [as_range(o) for o in operands]
        if args[0].nulls is None and args[0].now.valid is None:
            return args[0]
        can_continue = _all_true(len(args[0]))
        reached = []
        for arg in args:
            reached.append(can_continue)
            can_continue = can_continue & (arg.null_codes() != NEVER_NULL)
        lo, hi, nulls = hull(args, reached)
        nulls = None if nulls is None else np.where((nulls != ALWAYS_NULL) & ~can_continue, np.uint8(NEVER_NULL), nulls)
        return canonical_ranges(now_function([a.now for a in args]), lo, hi, nulls)

    return run


def nullif(now_function: ColumnFunction) -> ChoiceFunction:
    def run(operands: Sequence[Operand]) -> RangeColumn:
        value, other = (as_range(o) for o in operands)
        null_codes = value.null_codes()
        can_be_equal = possible_truths("=", value, other) & np.uint8(TRUE) != 0
        always_equal = (
            can_be_equal & is_single_valued(value) & is_single_valued(other) & (other.null_codes() == NEVER_NULL)
        )
        is_always_null = (null_codes == ALWAYS_NULL) | always_equal
        nulls = np.where(
            is_always_null, np.uint8(ALWAYS_NULL), np.where(can_be_equal, np.uint8(MAYBE_NULL), null_codes)
        )
        now_values = now_function([value.now, other.now])
        if not is_always_null.any():
            return canonical_ranges(now_values, value.lo, value.hi, nulls)
        return canonical_ranges(
            null_where(now_values, is_always_null),
            end_null_where(value.lo, is_always_null),
            end_null_where(value.hi, is_always_null),
            nulls,
        )

    return run


def greatest_or_least(now_function: ColumnFunction, greatest: bool) -> ChoiceFunction:
    """The function skips NULLs, so only operands that are never NULL certainly take part."""
    better = _greater if greatest else is_less

    def run(operands: Sequence[Operand]) -> RangeColumn:
        args = [as_range(o) for o in operands]
        lo, hi, nulls = hull(args, [_all_true(len(args[0]))] * len(args))
        never_null = [a.null_codes() == NEVER_NULL for a in args]
        any_never_null = reduce(np.logical_or, never_null)
        inner_ends = [(a.lo if greatest else a.hi, s) for a, s in zip(args, never_null, strict=True)]
        inner = _best_end(inner_ends, better, skips_missing=True)
        outer = lo if greatest else hi
        chosen = select_end(any_never_null, inner, outer)
        lo, hi = (chosen, hi) if greatest else (lo, chosen)
        nulls = None if nulls is None else np.where(any_never_null, np.uint8(NEVER_NULL), nulls)
        return canonical_ranges(now_function([a.now for a in args]), lo, hi, nulls)

    return run


# ── CASE ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class RangeClip:
    """What remains of a range between two ends, as `ValueSet.clip`. The range itself where nothing remains."""

    def __init__(self, values: ValueSet, data: DataType) -> None:
        self.values = values
        self.lo, self.hi = (None if e is None else constant_column(e, data) for e in (values.lo, values.hi))

    def is_possible(self, operand: Operand) -> Bools:
        """Where something remains."""
        ranges = as_range(operand)
        return self._has_values(ranges, *self._ends(ranges)) | self._is_nullable(ranges)

    def __call__(self, operand: Operand) -> RangeColumn:
        ranges = as_range(operand)
        lo, hi = self._ends(ranges)
        has_values, is_nullable = self._has_values(ranges, lo, hi), self._is_nullable(ranges)
        is_empty, is_always_null = ~has_values & ~is_nullable, ~has_values & is_nullable
        null_codes = np.where(is_nullable, np.uint8(MAYBE_NULL), np.uint8(NEVER_NULL))
        null_codes = np.where(is_empty, ranges.null_codes(), null_codes)
        lo, hi = (
            end_null_where(select_end(is_empty, before, end), is_always_null)
            for before, end in ((ranges.lo, lo), (ranges.hi, hi))
        )
        now = null_where(ranges.now, is_always_null)
        return canonical_ranges(now, lo, hi, np.where(is_always_null, np.uint8(ALWAYS_NULL), null_codes))

    def _ends(self, ranges: RangeColumn) -> tuple[ValueColumn | None, ValueColumn | None]:
        lo, hi, everywhere = ranges.lo, ranges.hi, _all_true(len(ranges))
        if self.lo is not None:
            lo = _best_end([(lo, everywhere), (self.lo(len(ranges)), everywhere)], _greater, skips_missing=True)
        if self.hi is not None:
            hi = _best_end([(hi, everywhere), (self.hi(len(ranges)), everywhere)], is_less, skips_missing=True)
        return lo, hi

    def _has_values(self, ranges: RangeColumn, lo: ValueColumn | None, hi: ValueColumn | None) -> Bools:
        has_values = (ranges.null_codes() != ALWAYS_NULL) & self.values.has_values
        if lo is None or hi is None:
            return has_values
        return has_values & ~(lo.is_valid() & hi.is_valid() & is_less(hi.data, lo.data))

    def _is_nullable(self, ranges: RangeColumn) -> Bools:
        return (ranges.null_codes() != NEVER_NULL) & self.values.nullable


class _Branches:
    """For each branch, and for the ELSE branch, the rows that may take it and the rows that take it at present.
    `can_hold`: where columns can have the values that a branch needs; None: everywhere."""

    def __init__(self, conditions: Sequence[MaskColumn], can_hold: Sequence[Bools | None], count: int) -> None:
        is_undecided, is_now_undecided = _all_true(count), _all_true(count)
        self.possible: list[Bools] = []
        self.current: list[Bools] = []
        for condition, holds in zip(conditions, can_hold, strict=False):
            can_be_taken = is_undecided & (condition.possible & np.uint8(TRUE) != 0)
            can_be_taken = can_be_taken if holds is None else can_be_taken & holds
            is_taken_now = can_be_taken & (condition.now == TRUE) & is_now_undecided
            self.possible.append(can_be_taken)
            self.current.append(is_taken_now)
            is_now_undecided = is_now_undecided & ~is_taken_now
            is_undecided = is_undecided & (condition.possible != TRUE)
        self.possible.append(is_undecided if can_hold[-1] is None else is_undecided & can_hold[-1])
        self.current.append(is_now_undecided)


def case(conditions: Sequence[Operand], results: Sequence[Operand], can_hold: Sequence[Bools | None]) -> RangeColumn:
    """`results` and `can_hold` have one element more than `conditions`: that of ELSE."""
    branches = _Branches([as_mask(c) for c in conditions], can_hold, len(results[0]))
    args = [as_range(r) for r in results]
    lo, hi, nulls = hull(args, branches.possible)
    now = args[-1].now
    for arg, is_taken_now in zip(args[:-1], branches.current, strict=False):
        now = v.where(is_taken_now, arg.now, now)
    if nulls is not None and (is_always_null := nulls == ALWAYS_NULL).any():
        now = null_where(now, is_always_null)
    return canonical_ranges(now, lo, hi, nulls)


def boolean_case(
    conditions: Sequence[Operand], results: Sequence[Operand], can_hold: Sequence[Bools | None]
) -> MaskColumn:
    branches = _Branches([as_mask(c) for c in conditions], can_hold, len(results[0]))
    masks = [as_mask(r) for r in results]
    possible = np.zeros(len(masks[0]), np.uint8)
    now = masks[-1].now
    for result, can_be_taken, is_taken_now in zip(masks, branches.possible, branches.current, strict=True):
        possible = np.where(can_be_taken, possible | result.possible, possible)
        now = np.where(is_taken_now, result.now, now)
    return canonical_mask(possible, now)
