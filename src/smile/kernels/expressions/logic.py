"""Booleans of knowledge: which truths are possible, each operand being anything that is possible of it.

Three bits hold what is possible of a Boolean, so that a function of two of them is a table of 64 entries. What is
now is a single bit, for which the same tables serve.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from smile.algebra.functions_base import Signature
from smile.algebra.scalars import evaluate
from smile.algebra.types import BOOL, Value
from smile.columns.knowledge import Masks, Ranges
from smile.columns.values import Array, Bools, Values
from smile.kernels.expressions.operands import (
    FALSE,
    NEVER,
    NULL,
    ONLY,
    TRUE,
    Operand,
    as_mask,
    as_range,
    mask,
    truths,
)
from smile.kernels.expressions.plain import COMPARE, at_least, equal, less

BITS: dict[Value, int] = {True: TRUE, False: FALSE, None: NULL}


# ── functions of Booleans ───────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=64)
def _table(name: str, arity: int) -> Array:
    """What is possible of a function, by what is possible of its operands, three bits each."""
    signature = Signature((BOOL,) * arity, BOOL)
    found = np.zeros(8**arity, np.uint8)
    for operands in product(range(8), repeat=arity):
        at = 0
        for possible in operands:
            at = at * 8 + possible
        sets = [[t for t, bit in BITS.items() if possible & bit] for possible in operands]
        for values in product(*sets):
            found[at] |= BITS[evaluate(name, values, signature)]
    return found


def of_one(name: str) -> Callable[[Sequence[Operand]], Masks]:
    table = _table(name, 1)

    def run(operands: Sequence[Operand]) -> Masks:
        (a,) = map(as_mask, operands)
        return mask(table.take(a.possible, mode="clip"), table.take(a.now, mode="clip"))

    return run


def folded(name: str) -> Callable[[Sequence[Operand]], Masks]:
    """Of two, or of more by an associative function."""
    table = _table(name, 2)

    def both(a: Array, b: Array) -> Array:
        return table.take(a << np.uint8(3) | b, mode="clip")

    def run(operands: Sequence[Operand]) -> Masks:
        first, *rest = map(as_mask, operands)
        possible, now = first.possible, first.now
        for other in rest:
            possible, now = both(possible, other.possible), both(now, other.now)
        return mask(possible, now)

    return run


# ── comparisons of ranges ───────────────────────────────────────────────────────────────────────────────────────────


def comparison(name: str) -> Callable[[Sequence[Operand]], Masks]:
    compare = COMPARE[name]

    def run(operands: Sequence[Operand]) -> Masks:
        a, b = map(as_range, operands)
        now = compare(a.now.data, b.now.data).view(np.uint8)
        codes = np.uint8(FALSE) - now
        for value in (a.now, b.now):
            if value.valid is not None:
                codes = np.where(value.valid, codes, np.uint8(NULL))
        return mask(compared(name, a, b), codes)

    return run


def compared(name: str, a: Ranges, b: Ranges) -> Array:
    """The truths that are possible."""
    if name in ("=", "<>"):
        holds = _both(_related(at_least, a.hi, b.lo), _related(at_least, b.hi, a.lo))
        fails = _apart(a, b)
    elif name in ("<", ">="):
        holds, fails = _related(less, a.lo, b.hi), _related(at_least, a.hi, b.lo)
    else:
        holds, fails = _related(less, b.lo, a.hi), _related(at_least, b.hi, a.lo)
    if name in (">=", "<=", "<>"):
        holds, fails = fails, holds
    found = _bits(holds, fails, len(a))
    for nulls in (a.nulls, b.nulls):
        if nulls is not None:
            found = np.where(nulls != NEVER, found | np.uint8(NULL), found)
    for nulls in (a.nulls, b.nulls):
        if nulls is not None:
            found = np.where(nulls == ONLY, np.uint8(NULL), found)
    return found


def _bits(holds: Bools | None, fails: Bools | None, count: int) -> Array:
    if holds is None:
        if fails is None:
            return np.full(count, TRUE | FALSE, np.uint8)
        return np.uint8(TRUE) + (fails.view(np.uint8) << np.uint8(1))
    if fails is None:
        return np.uint8(FALSE) + holds.view(np.uint8)
    return holds.view(np.uint8) + (fails.view(np.uint8) << np.uint8(1))


def _related(relation: Callable[[Array, Array], Bools], a: Values | None, b: Values | None) -> Bools | None:
    """Where the two ends may be so related; where one is missing they may. None: everywhere."""
    if a is None or b is None:
        return None
    found = relation(a.data, b.data)
    if a.valid is not None:
        found = found | ~a.valid
    if b.valid is not None and b.valid is not a.valid:
        found = found | ~b.valid
    return found


def _both(a: Bools | None, b: Bools | None) -> Bools | None:
    return b if a is None else a if b is None else a & b


def _apart(a: Ranges, b: Ranges) -> Bools | None:
    """Where the two are not surely one and the same value. None: everywhere."""
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        return None
    same = equal(a.lo.data, b.lo.data)
    for x, y in ((a.lo, a.hi), (b.lo, b.hi)):
        if x is not y:
            same = same & equal(x.data, y.data)
    for end in (a.lo, a.hi, b.lo, b.hi):
        if end.valid is not None:
            same = same & end.valid
    return ~same


# ── tests for NULL ──────────────────────────────────────────────────────────────────────────────────────────────────


def null_test(name: str, now: Callable[[Sequence[Values]], Values]) -> Callable[[Sequence[Operand]], Masks]:
    """`now` is the test on plain values."""
    negated = name in ("is null", "is not distinct from")
    possible = _not_null if name in ("is null", "is not null") else _distinct

    def run(operands: Sequence[Operand]) -> Masks:
        args = [as_range(o) for o in operands]
        holds, fails = possible(args)
        if negated:
            holds, fails = fails, holds
        return mask(_bits(holds, fails, len(args[0])), truths(now([a.now for a in args])))

    return run


def _not_null(args: list[Ranges]) -> tuple[Bools, Bools]:
    codes = args[0].null_codes()
    return codes != ONLY, codes != NEVER


def _distinct(args: list[Ranges]) -> tuple[Bools, Bools]:
    a, b = args
    equality = compared("=", a, b)
    x, y = a.null_codes(), b.null_codes()
    one = ((x != NEVER) & (y != ONLY)) | ((x != ONLY) & (y != NEVER))
    both = (x != NEVER) & (y != NEVER)
    return (equality & FALSE != 0) | one, (equality & TRUE != 0) | both
