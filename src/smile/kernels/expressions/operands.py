"""Operands of expressions: exact Values, or Ranges, or Masks of Booleans, each row canonical as points are.

Canonical: where a value is known for good, `now` is that value; where only NULL is possible, a range has neither ends
nor a value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import Column, Kind, Latests, Masks, Objects, Ranges
from smile.columns.values import Array, Bools, Values
from smile.kernels.expressions.plain import constant, equal
from smile.knowledge.cells import as_operand, range_of
from smile.knowledge.known import Known
from smile.knowledge.nested import Nested
from smile.knowledge.range import MAYBE, Range
from smile.knowledge.transfer import unknown

Operand = Values | Ranges | Masks

TRUE, FALSE, NULL = 1, 2, 4
"""The truths of a mask."""
ANY = TRUE | FALSE | NULL
NEVER, PERHAPS, ONLY = range(3)
"""Whether a range may be NULL, as columns say it: that of a strict function is the greatest of its operands'."""


def as_range(operand: Operand) -> Ranges:
    """Of anything but a Boolean."""
    if isinstance(operand, Ranges):
        return operand
    assert isinstance(operand, Values)
    valid = operand.valid
    nulls = None if valid is None else np.where(valid, np.uint8(NEVER), np.uint8(ONLY))
    return Ranges(operand, operand, operand, nulls)


def as_mask(operand: Operand) -> Masks:
    """Of a Boolean."""
    if isinstance(operand, Masks):
        return operand
    assert isinstance(operand, Values)
    codes = truths(operand)
    return Masks(codes, codes)


def truths(values: Values) -> Array:
    """Of Booleans, the bit that each is in a mask."""
    found = np.uint8(FALSE) - values.data.view(np.uint8)
    return found if values.valid is None else np.where(values.valid, found, np.uint8(NULL))


def mask(possible: Array, now: Array) -> Masks:
    """What can be but one thing is that now."""
    return Masks(possible, np.where(possible & (possible - np.uint8(1)), now, possible))


def ranges(now: Values, lo: Values | None, hi: Values | None, nulls: Array | None) -> Ranges:
    """Canonical, if only that `now` is not yet what is known for good is missing to that."""
    if nulls is not None and not nulls.any():
        nulls = None
    if lo is not None and hi is not None:
        final = equal(lo.data, hi.data)
        for valid in (lo.valid, hi.valid, None if nulls is None else nulls == NEVER):
            final = final if valid is None else final & valid
        stale = (
            final & ~equal(now.data, lo.data) if now.valid is None else final & ~(equal(now.data, lo.data) & now.valid)
        )
        if stale.any():
            now = v.where(stale, lo, now)
    return Ranges(now, lo, hi, nulls)


def points(operand: Ranges) -> Bools:
    """Where there is but one value possible, beside NULL perhaps."""
    lo, hi = operand.lo, operand.hi
    if lo is None or hi is None:
        return np.zeros(len(operand), bool)
    if lo is hi:
        return lo.there()
    return equal(lo.data, hi.data) & lo.there() & hi.there()


def strict_nulls(operands: Sequence[Ranges]) -> Array | None:
    """Whether a function may be NULL for want of an operand."""
    found = None
    for operand in operands:
        if operand.nulls is not None:
            found = operand.nulls if found is None else np.maximum(found, operand.nulls)
    return found


def without(values: Values, where: Bools) -> Values:
    """The same values, none where it says so."""
    return Values(values.data, values.there() & ~where)


def end_without(end: Values | None, where: Bools) -> Values | None:
    return None if end is None else without(end, where)


def either(chosen: Bools, a: Values | None, b: Values | None) -> Values | None:
    """Row by row one of two ends."""
    if a is None or b is None:
        return end_without(b, chosen) if a is None else without(a, ~chosen)
    return v.where(chosen, a, b)


# ── from columns ────────────────────────────────────────────────────────────────────────────────────────────────────


def operand_of(column: Column, bottom: Known, data: DataType) -> Operand:
    """The column as expressions use it."""
    if isinstance(column, Latests) and data != BOOL:
        return _latest(column, bottom, data)
    if isinstance(column, Latests | Objects):
        kind: Kind = "mask" if data == BOOL else "range"
        found = [_point(column, i, bottom, data) for i in range(len(column))]
        made = k.of_points(found, kind, data)
        assert isinstance(made, Ranges | Masks)
        return made
    return column


def _point(column: Latests | Objects, index: int, bottom: Known, data: DataType) -> Known:
    if isinstance(column, Objects) and column.points[index] is None:
        return unknown(data, nullable=True, now=None)  # in rows nobody has heard of there need not be a point at all
    return as_operand(column.known(index, data), bottom, data)


def domain_of(bottom: Known) -> tuple[Any, Any]:
    around = Range() if isinstance(bottom, Nested) else range_of(bottom)
    return around.lo, around.hi


def _latest(column: Latests, bottom: Known, data: DataType) -> Ranges:
    """Of a value that may be replaced only the column's domain is known."""
    lo, hi = domain_of(bottom)
    sealed, count = column.sealed, len(column)
    open_ = np.uint8(k.NULLS.index(MAYBE))
    if not sealed.any():
        ends = [None if end is None else constant(end, data)(count) for end in (lo, hi)]
        return Ranges(column.now, ends[0], ends[1], np.full(count, open_, np.uint8))
    value = column.value
    closed = np.where(value.there(), np.uint8(NEVER), np.uint8(ONLY))
    if sealed.all():
        return Ranges(value, value, value, closed if closed.any() else None)
    ends = [v.where(sealed, value, constant(end, data)(count)) for end in (lo, hi)]
    return Ranges(v.where(sealed, value, column.now), ends[0], ends[1], np.where(sealed, closed, open_))
