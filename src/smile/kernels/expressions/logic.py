"""Boolean functions of knowledge: the truth values that are possible, given those of the operands.

Three bits say which of true, false and NULL are possible, so a function of two Booleans is a table of 64 entries. The
current truth value is a single bit, so the same tables compute it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from smile.algebra.functions.base import Signature
from smile.algebra.functions.catalogue import evaluate
from smile.algebra.types import BOOL, Value
from smile.columns.knowledge import MaskColumn, RangeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.expressions.column_functions import COMPARISON_FUNCTIONS, is_at_least, is_equal, is_less
from smile.kernels.expressions.operands import (
    ALWAYS_NULL,
    FALSE,
    NEVER_NULL,
    NULL,
    TRUE,
    Operand,
    as_mask,
    as_range,
    canonical_mask,
    truth_bits,
)

TRUTH_BITS: dict[Value, int] = {True: TRUE, False: FALSE, None: NULL}


# ── functions of Booleans ───────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=64)
def _truth_table(name: str, arity: int) -> Array:
    """The possible truth values of a function, by those of its operands: three bits for each operand."""
    signature = Signature((BOOL,) * arity, BOOL)
    table = np.zeros(8**arity, np.uint8)
    for operands in product(range(8), repeat=arity):
        index = 0
        for possible in operands:
            index = index * 8 + possible
        sets = [[t for t, bit in TRUTH_BITS.items() if possible & bit] for possible in operands]
        for values in product(*sets):
            table[index] |= TRUTH_BITS[evaluate(name, values, signature)]
    return table


def unary_function(name: str) -> Callable[[Sequence[Operand]], MaskColumn]:
    table = _truth_table(name, 1)

    def run(operands: Sequence[Operand]) -> MaskColumn:
        (a,) = map(as_mask, operands)
        return canonical_mask(table.take(a.possible, mode="clip"), table.take(a.now, mode="clip"))

    return run


def associative_function(name: str) -> Callable[[Sequence[Operand]], MaskColumn]:
    """An associative function of two or more operands."""
    table = _truth_table(name, 2)

    def combine(a: Array, b: Array) -> Array:
        return table.take(a << np.uint8(3) | b, mode="clip")

    def run(operands: Sequence[Operand]) -> MaskColumn:
        first, *rest = map(as_mask, operands)
        possible, now = first.possible, first.now
        for other in rest:
            possible, now = combine(possible, other.possible), combine(now, other.now)
        return canonical_mask(possible, now)

    return run


# ── comparisons of ranges ───────────────────────────────────────────────────────────────────────────────────────────


def comparison_function(name: str) -> Callable[[Sequence[Operand]], MaskColumn]:
    compare = COMPARISON_FUNCTIONS[name]

    def run(operands: Sequence[Operand]) -> MaskColumn:
        a, b = map(as_range, operands)
        now = compare(a.now.data, b.now.data).view(np.uint8)
        codes = np.uint8(FALSE) - now
        for value in (a.now, b.now):
            if value.valid is not None:
                codes = np.where(value.valid, codes, np.uint8(NULL))
        return canonical_mask(possible_truths(name, a, b), codes)

    return run


def possible_truths(name: str, a: RangeColumn, b: RangeColumn) -> Array:
    """The possible truth values of a comparison, as bits."""
    if name in ("=", "<>"):
        holds = _and(_can_hold(is_at_least, a.hi, b.lo), _can_hold(is_at_least, b.hi, a.lo))
        fails = _can_differ(a, b)
    elif name in ("<", ">="):
        holds, fails = _can_hold(is_less, a.lo, b.hi), _can_hold(is_at_least, a.hi, b.lo)
    else:
        holds, fails = _can_hold(is_less, b.lo, a.hi), _can_hold(is_at_least, b.hi, a.lo)
    if name in (">=", "<=", "<>"):
        holds, fails = fails, holds
    truths = _bits(holds, fails, len(a))
    for nulls in (a.nulls, b.nulls):
        if nulls is not None:
            truths = np.where(nulls != NEVER_NULL, truths | np.uint8(NULL), truths)
    for nulls in (a.nulls, b.nulls):
        if nulls is not None:
            truths = np.where(nulls == ALWAYS_NULL, np.uint8(NULL), truths)
    return truths


def _bits(holds: Bools | None, fails: Bools | None, count: int) -> Array:
    if holds is None:
        if fails is None:
            return np.full(count, TRUE | FALSE, np.uint8)
        return np.uint8(TRUE) + (fails.view(np.uint8) << np.uint8(1))
    if fails is None:
        return np.uint8(FALSE) + holds.view(np.uint8)
    return holds.view(np.uint8) + (fails.view(np.uint8) << np.uint8(1))


def _can_hold(relation: Callable[[Array, Array], Bools], a: ValueColumn | None, b: ValueColumn | None) -> Bools | None:
    """The rows in which the relation of the two ends can hold; it can where an end is missing. None: all rows."""
    if a is None or b is None:
        return None
    can_hold = relation(a.data, b.data)
    if a.valid is not None:
        can_hold = can_hold | ~a.valid
    if b.valid is not None and b.valid is not a.valid:
        can_hold = can_hold | ~b.valid
    return can_hold


def _and(a: Bools | None, b: Bools | None) -> Bools | None:
    return b if a is None else a if b is None else a & b


def _can_differ(a: RangeColumn, b: RangeColumn) -> Bools | None:
    """The rows in which the two are not certainly the same single value. None: all rows."""
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        return None
    is_same = is_equal(a.lo.data, b.lo.data)
    for x, y in ((a.lo, a.hi), (b.lo, b.hi)):
        if x is not y:
            is_same = is_same & is_equal(x.data, y.data)
    for end in (a.lo, a.hi, b.lo, b.hi):
        if end.valid is not None:
            is_same = is_same & end.valid
    return ~is_same


# ── tests for NULL ──────────────────────────────────────────────────────────────────────────────────────────────────


def null_test_function(
    name: str, now_function: Callable[[Sequence[ValueColumn]], ValueColumn]
) -> Callable[[Sequence[Operand]], MaskColumn]:
    """`now_function` is the test on exact values."""
    negated = name in ("is null", "is not distinct from")
    possible = _possible_not_null if name in ("is null", "is not null") else _possible_distinct

    def run(operands: Sequence[Operand]) -> MaskColumn:
        args = [as_range(o) for o in operands]
        holds, fails = possible(args)
        if negated:
            holds, fails = fails, holds
        return canonical_mask(_bits(holds, fails, len(args[0])), truth_bits(now_function([a.now for a in args])))

    return run


def _possible_not_null(args: list[RangeColumn]) -> tuple[Bools, Bools]:
    null_codes = args[0].null_codes()
    return null_codes != ALWAYS_NULL, null_codes != NEVER_NULL


def _possible_distinct(args: list[RangeColumn]) -> tuple[Bools, Bools]:
    a, b = args
    equality = possible_truths("=", a, b)
    x, y = a.null_codes(), b.null_codes()
    can_one_be_null = ((x != NEVER_NULL) & (y != ALWAYS_NULL)) | ((x != ALWAYS_NULL) & (y != NEVER_NULL))
    can_both_be_null = (x != NEVER_NULL) & (y != NEVER_NULL)
    return (equality & FALSE != 0) | can_one_be_null, (equality & TRUE != 0) | can_both_be_null
