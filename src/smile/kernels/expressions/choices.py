"""Choices between ranges: the hull of what may be chosen. `now` is what is chosen at present."""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from smile.columns import values as v
from smile.columns.knowledge import Masks, Ranges
from smile.columns.values import Array, Bools, Values
from smile.kernels.expressions.logic import compared
from smile.kernels.expressions.operands import (
    NEVER,
    ONLY,
    PERHAPS,
    TRUE,
    Operand,
    as_mask,
    as_range,
    either,
    end_without,
    mask,
    points,
    ranges,
    without,
)
from smile.kernels.expressions.plain import Plain, less

Choice = Callable[[Sequence[Operand]], Ranges]
Better = Callable[[Array, Array], Bools]


def _greater(a: Array, b: Array) -> Bools:
    return less(b, a)


def _extreme(ends: Sequence[tuple[Values | None, Bools]], better: Better, lenient: bool = False) -> Values | None:
    """Of those ends that take part the best. One that is missing is beyond all others, or `lenient` passed over."""
    found: Values | None = None
    count = len(ends[0][1])
    seen, missing = np.zeros(count, bool), np.zeros(count, bool)
    for end, takes_part in ends:
        if end is None:
            missing |= takes_part
            continue
        there = takes_part if end.valid is None else takes_part & end.valid
        missing |= takes_part & ~there
        if found is None:
            found = end
        else:
            found = v.where(there & (~seen | better(end.data, found.data)), Values(end.data), Values(found.data))
        seen = seen | there
    if found is None:
        return None
    return Values(found.data, seen if lenient else seen & ~missing)


def hull(args: Sequence[Ranges], reached: Sequence[Bools]) -> tuple[Values | None, Values | None, Array | None]:
    """Both ends, and whether it may be NULL, of those reached: in every row one at least."""
    valued = [r if a.nulls is None else r & (a.nulls != ONLY) for a, r in zip(args, reached, strict=True)]
    lo = _extreme([(a.lo, t) for a, t in zip(args, valued, strict=True)], less)
    hi = _extreme([(a.hi, t) for a, t in zip(args, valued, strict=True)], _greater)
    nullable = [r & (a.nulls != NEVER) for a, r in zip(args, reached, strict=True) if a.nulls is not None]
    if not nullable:
        return lo, hi, None
    empty = ~reduce(np.logical_or, valued)
    perhaps = np.where(reduce(np.logical_or, nullable), np.uint8(PERHAPS), np.uint8(NEVER))
    return lo, hi, np.where(empty, np.uint8(ONLY), perhaps)


def _everywhere(count: int) -> Bools:
    return np.ones(count, bool)


def coalesce(now: Plain) -> Choice:
    def run(operands: Sequence[Operand]) -> Ranges:
        args = [as_range(o) for o in operands]
        if args[0].nulls is None and args[0].now.valid is None:
            return args[0]
        open_ = _everywhere(len(args[0]))
        reached = []
        for arg in args:
            reached.append(open_)
            open_ = open_ & (arg.null_codes() != NEVER)
        lo, hi, nulls = hull(args, reached)
        nulls = None if nulls is None else np.where((nulls != ONLY) & ~open_, np.uint8(NEVER), nulls)
        return ranges(now([a.now for a in args]), lo, hi, nulls)

    return run


def nullif(now: Plain) -> Choice:
    def run(operands: Sequence[Operand]) -> Ranges:
        value, other = (as_range(o) for o in operands)
        codes = value.null_codes()
        same = compared("=", value, other) & np.uint8(TRUE) != 0
        sure = same & points(value) & points(other) & (other.null_codes() == NEVER)
        only = (codes == ONLY) | sure
        nulls = np.where(only, np.uint8(ONLY), np.where(same, np.uint8(PERHAPS), codes))
        found = now([value.now, other.now])
        if not only.any():
            return ranges(found, value.lo, value.hi, nulls)
        return ranges(without(found, only), end_without(value.lo, only), end_without(value.hi, only), nulls)

    return run


def extreme(now: Plain, greatest: bool) -> Choice:
    """NULLs are passed over: only those that cannot be NULL are sure to take part."""
    better = _greater if greatest else less

    def run(operands: Sequence[Operand]) -> Ranges:
        args = [as_range(o) for o in operands]
        lo, hi, nulls = hull(args, [_everywhere(len(args[0]))] * len(args))
        sure = [a.null_codes() == NEVER for a in args]
        any_sure = reduce(np.logical_or, sure)
        near = [(a.lo if greatest else a.hi, s) for a, s in zip(args, sure, strict=True)]
        inner = _extreme(near, better, lenient=True)
        outer = lo if greatest else hi
        chosen = either(any_sure, inner, outer)
        lo, hi = (chosen, hi) if greatest else (lo, chosen)
        nulls = None if nulls is None else np.where(any_sure, np.uint8(NEVER), nulls)
        return ranges(now([a.now for a in args]), lo, hi, nulls)

    return run


# ── CASE ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Branches:
    """Which branches may be taken, and which is at present."""

    def __init__(self, conditions: Sequence[Masks], count: int) -> None:
        open_, undecided = _everywhere(count), _everywhere(count)
        self.reached: list[Bools] = []
        self.current: list[Bools] = []
        for condition in conditions:
            reached = open_ & (condition.possible & np.uint8(TRUE) != 0)
            taken = reached & (condition.now == TRUE) & undecided
            self.reached.append(reached)
            self.current.append(taken)
            undecided = undecided & ~taken
            open_ = open_ & (condition.possible != TRUE)
        self.reached.append(open_)
        self.current.append(undecided)


def case(conditions: Sequence[Operand], results: Sequence[Operand]) -> Ranges:
    """`results` has one more: what is taken if no condition is true."""
    branches = _Branches([as_mask(c) for c in conditions], len(results[0]))
    args = [as_range(r) for r in results]
    lo, hi, nulls = hull(args, branches.reached)
    now = args[-1].now
    for arg, taken in zip(args[:-1], branches.current, strict=False):
        now = v.where(taken, arg.now, now)
    if nulls is not None and (only := nulls == ONLY).any():
        now = without(now, only)
    return ranges(now, lo, hi, nulls)


def case_of_booleans(conditions: Sequence[Operand], results: Sequence[Operand]) -> Masks:
    branches = _Branches([as_mask(c) for c in conditions], len(results[0]))
    masks = [as_mask(r) for r in results]
    possible = np.zeros(len(masks[0]), np.uint8)
    now = masks[-1].now
    for result, reached, taken in zip(masks, branches.reached, branches.current, strict=True):
        possible = np.where(reached, possible | result.possible, possible)
        now = np.where(taken, result.now, now)
    return mask(possible, now)
