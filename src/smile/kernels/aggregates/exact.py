"""Exact totals: the sum of what was added less what was taken away, to the last digit, whatever the order.

Integers and decimals without their point are int64 until a sum might not fit, then Python's. Floats are in a
superaccumulator; a float is rounded once, when it is shown.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa

from smile.algebra.types import INTERVAL, DataType
from smile.columns import superaccumulator as s, values as v
from smile.columns.values import Array, Bools, Values
from smile.kernels.changes import Groups
from smile.state.run import Rows

_SAFE = 2**62
_EXACT_FLOAT = 2**53


class Total(ABC):
    """One total a group. `part` is the name it has among the columns of its accumulator."""

    columns: Mapping[str, pa.DataType]

    @abstractmethod
    def changed(self, rows: Rows, groups: Groups, minus: Values | None, plus: Values) -> dict[str, Values]:
        """With what is valid in `plus` added and what is valid in `minus` taken away."""

    @abstractmethod
    def value(self, rows: Rows) -> Values:
        """NULL where it is beyond all floats."""

    @abstractmethod
    def mean(self, rows: Rows, counts: Array) -> Values:
        """As a float, or of intervals as a whole number of ticks, rounded once; NULL where nothing is counted."""


def total_of(part: str, data: DataType) -> Total:
    return FloatTotal(part) if data.name == "float" else WholeTotal(part, data)


# ── integers and decimals ───────────────────────────────────────────────────────────────────────────────────────────


class WholeTotal(Total):
    def __init__(self, part: str, data: DataType) -> None:
        self.part = part
        self.columns = {part: pa.decimal128(38, data.scale or 0)}
        self.divisor = 10 ** (data.scale or 0) if data.name == "decimal" else 1
        self.in_ticks = data == INTERVAL

    def changed(self, rows: Rows, groups: Groups, minus: Values | None, plus: Values) -> dict[str, Values]:
        had = rows[self.part].data
        change = filled(plus)
        if minus is not None:
            change = summed(change, filled(minus), -1)
        return {self.part: Values(summed(had, group_sums(groups, change), 1))}

    def value(self, rows: Rows) -> Values:
        return Values(rows[self.part].data)

    def mean(self, rows: Rows, counts: Array) -> Values:
        total = rows[self.part].data
        if self.in_ticks:
            return _nearest(total, counts)
        below = counts * self.divisor if _fits(counts, self.divisor) else None
        if below is None or not is_within(total, _EXACT_FLOAT) or not is_within(below, _EXACT_FLOAT):
            return _divided(total.tolist(), [n * self.divisor for n in counts.tolist()])
        there = counts > 0
        found = total / np.where(there, below, 1)
        return Values(found, None if there.all() else there)


def _nearest(total: Array, counts: Array) -> Values:
    """Whole numbers; of two that are as near, the even one."""
    there = counts > 0
    below = np.where(there, counts, 1)
    whole = total // below
    rest = total - whole * below
    up = (2 * rest > below) | ((2 * rest == below) & (whole % 2 == 1))
    return Values((whole + up).astype(np.int64), None if there.all() else there)


def _fits(counts: Array, factor: int) -> bool:
    return not len(counts) or int(counts.max()) * factor < _SAFE


def _divided(above: list[int], below: list[int]) -> Values:
    """Python divides integers exactly and rounds once."""
    found = [_quotient(a, b) if b else None for a, b in zip(above, below, strict=True)]
    return v.of_python(found, DataType("float"))


def _quotient(above: int, below: int) -> float | None:
    try:
        return above / below
    except OverflowError:
        return None


def filled(values: Values) -> Array:
    """0 where there is no value."""
    if values.valid is None or values.valid.all():
        return values.data
    return np.where(values.valid, values.data, 0)


def is_within(data: Array, limit: int) -> bool:
    """Whether all are integers of 64 bits, and less than `limit` whatever their sign."""
    if data.dtype == object:
        return False
    return not len(data) or (-limit < int(data.min()) and int(data.max()) < limit)


def summed(a: Array, b: Array, sign: int) -> Array:
    """a + b or a - b, exact."""
    if is_within(a, _SAFE) and is_within(b, _SAFE):
        return a + b if sign > 0 else a - b
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return v.ints([x + sign * y for x, y in pairs])


def group_sums(groups: Groups, data: Array) -> Array:
    """Of each group, exact."""
    if data.dtype != object and is_within(data, _SAFE // max(len(data), 1)):
        return groups.sums(data)
    totals = [0] * groups.count
    for group, value in zip(groups.of.tolist(), data.tolist(), strict=True):
        totals[group] += value
    return v.ints(totals)


# ── floats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class FloatTotal(Total):
    """`part` is the limbs, beside it what does not fit into them, and the total rounded, so that it is rounded once."""

    def __init__(self, part: str) -> None:
        self.part, self.wide, self.rounded = part, f"{part}.wide", f"{part}.rounded"
        self.columns = {part: s.ARROW, self.wide: pa.binary(), self.rounded: pa.float64()}

    def _sums(self, rows: Rows) -> s.Sums:
        return s.Sums.read(rows[self.part], rows[self.wide])

    def changed(self, rows: Rows, groups: Groups, minus: Values | None, plus: Values) -> dict[str, Values]:
        data, of = filled(plus), groups.of
        if minus is not None:
            data, of = np.concatenate([data, -filled(minus)]), np.concatenate([of, of])
        found = self._sums(rows).plus(s.summed(data, of, groups.count))
        limbs, wide = found.stored()
        return {self.part: limbs, self.wide: wide, self.rounded: found.rounded()}

    def value(self, rows: Rows) -> Values:
        found = rows[self.rounded]
        limbs = rows[self.part]
        # A group without members has no row, and its total is 0.
        if limbs.valid is None or limbs.valid.all():
            return found
        return Values(np.where(limbs.valid, found.data, 0.0), found.there() | ~limbs.valid)

    def mean(self, rows: Rows, counts: Array) -> Values:
        return self._sums(rows).means(counts)


def at_most_zero(values: Values, sure: Bools) -> Values:
    """What a member adds at least, if it may yet leave: nothing, or what is below zero."""
    return Values(np.where(sure, values.data, np.minimum(values.data, _zero(values))), values.valid)


def at_least_zero(values: Values, sure: Bools) -> Values:
    return Values(np.where(sure, values.data, np.maximum(values.data, _zero(values))), values.valid)


def _zero(values: Values) -> float | int:
    return 0.0 if values.data.dtype == np.float64 else 0


def sign_of(end: object) -> int:
    """Of an end of a domain: -1, 0 or 1."""
    assert isinstance(end, int | float | Decimal)
    return (end > 0) - (end < 0)
