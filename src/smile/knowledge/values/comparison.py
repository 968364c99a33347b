"""Comparisons of ranges: which truth values are possible if each operand can be any value of its range."""

from typing import Final

from smile.knowledge.values.mask import Truth
from smile.knowledge.values.range import NEVER, ONLY, Range

NULL_TESTS: Final = ("is null", "is not null", "is distinct from", "is not distinct from")


def comparison_truths(name: str, a: Range, b: Range) -> frozenset[Truth]:
    """The truth values that `a name b` can still have."""
    if ONLY in (a.nulls, b.nulls):
        return frozenset((None,))
    match name:
        case "<" | ">=":
            holds, fails = _may_be_less(a, b), _may_be_at_least(a, b)
        case ">" | "<=":
            holds, fails = _may_be_less(b, a), _may_be_at_least(b, a)
        case _:
            holds, fails = _may_be_at_least(a, b) and _may_be_at_least(b, a), not _is_same_point(a, b)
    if name in (">=", "<=", "<>"):
        holds, fails = fails, holds
    truths: set[Truth] = {True} if holds else set()
    truths |= {False} if fails else set()
    truths |= set() if a.nulls is b.nulls is NEVER else {None}
    return frozenset(truths)


def _may_be_less(a: Range, b: Range) -> bool:
    return a.lo is None or b.hi is None or bool(a.lo < b.hi)


def _may_be_at_least(a: Range, b: Range) -> bool:
    """Whether some value of `a` is at or above some value of `b`."""
    return a.hi is None or b.lo is None or bool(a.hi >= b.lo)


def _is_same_point(a: Range, b: Range) -> bool:
    return a.lo is not None and bool(a.lo == a.hi == b.lo == b.hi)


def null_test_truths(name: str, ranges: list[Range]) -> frozenset[Truth]:
    """The possible truth values of a test that is never NULL itself."""
    if name in ("is null", "is not null"):
        nulls = ranges[0].nulls
        distinct = {True: nulls is not ONLY, False: nulls is not NEVER}
    else:
        a, b = ranges
        equal = comparison_truths("=", a, b)
        one_null = (a.nulls is not NEVER and b.nulls is not ONLY) or (a.nulls is not ONLY and b.nulls is not NEVER)
        both_null = a.nulls is not NEVER and b.nulls is not NEVER
        distinct = {True: False in equal or one_null, False: True in equal or both_null}
    negated = name in ("is null", "is not distinct from")
    return frozenset(truth is not negated for truth, may_be in distinct.items() if may_be)
