"""Exact sums per group: what was added minus what was removed, independent of the order.

Integers, and decimals as unscaled integers, are int64 as long as no sum can overflow, then Python integers. Floats are
summed in a superaccumulator and rounded once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from smile.algebra.types import INTERVAL, DataType, decimal_type
from smile.columns import superaccumulator as s, values as v
from smile.columns.exact import zero_out_of_bounds
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.delta import RowGroups
from smile.kernels.expressions.arithmetic_kernels import bounds_of
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import Operand as Limits
from smile.limits import decimal_digits_max, relation_rows_max
from smile.state.run import TableRows

_INT64_SAFE = 2**62
_EXACT_FLOAT = 2**53


class ExactSum(ABC):
    """One sum per group, stored in `columns` of the accumulator's row."""

    columns: Mapping[str, pa.DataType]

    @abstractmethod
    def update(
        self, rows: TableRows, groups: RowGroups, minus: ValueColumn | None, plus: ValueColumn
    ) -> dict[str, ValueColumn]:
        """The new columns of the groups: adds the valid values of `plus`, subtracts the valid values of `minus`."""

    @abstractmethod
    def value(self, rows: TableRows) -> ValueColumn:
        """The sum of each group; NULL where it is not a value of its type."""

    @abstractmethod
    def mean(self, rows: TableRows, counts: Array) -> ValueColumn:
        """The sum divided by the count, rounded once: a float, or for intervals a whole number of ticks. NULL where the
        count is zero."""


def exact_sum(column: str, data: DataType, limits: Limits) -> ExactSum:
    """`data` and `limits` are those of the values."""
    return FloatSum(column) if data.name == "float" else IntegerSum(column, data, limits)


# ── integers and decimals ───────────────────────────────────────────────────────────────────────────────────────────


class IntegerSum(ExactSum):
    """The sum is exact even where it has more digits than its type, since later members may reduce it."""

    def __init__(self, column: str, data: DataType, limits: Limits) -> None:
        self.column = column
        scale = data.scale or 0
        assert isinstance(limits, Range)
        self.bounds = bounds_of(data if data == INTERVAL else decimal_type(decimal_digits_max, scale))
        self.sum_max = max(abs(Fraction(end)) for end in (limits.lo, limits.hi)) * 10**scale * relation_rows_max
        self.columns = {column: pa.decimal128(decimal_digits_max, scale)}
        self.divisor = 10**scale if data.name == "decimal" else 1
        self.in_ticks = data == INTERVAL

    def update(
        self, rows: TableRows, groups: RowGroups, minus: ValueColumn | None, plus: ValueColumn
    ) -> dict[str, ValueColumn]:
        old_sums = rows[self.column].data
        change = zero_filled(plus)
        if minus is not None:
            change = add_exactly(change, zero_filled(minus), -1)
        return {self.column: ValueColumn(add_exactly(old_sums, group_sums(groups, change), 1))}

    def value(self, rows: TableRows) -> ValueColumn:
        data = rows[self.column].data
        if self.sum_max <= self.bounds[1]:
            return ValueColumn(data)
        data, overflows = zero_out_of_bounds(data, *self.bounds)
        return ValueColumn(data, None if overflows is None else ~overflows)

    def mean(self, rows: TableRows, counts: Array) -> ValueColumn:
        total = rows[self.column].data
        if self.in_ticks:
            return _rounded_quotients(total, counts)
        denominators = counts * self.divisor if _fits(counts, self.divisor) else None
        if denominators is None or not is_within(total, _EXACT_FLOAT) or not is_within(denominators, _EXACT_FLOAT):
            return _exact_quotients(total.tolist(), [n * self.divisor for n in counts.tolist()])
        is_counted = counts > 0
        quotients = total / np.where(is_counted, denominators, 1)
        return ValueColumn(quotients, None if is_counted.all() else is_counted)


def _rounded_quotients(total: Array, counts: Array) -> ValueColumn:
    """The nearest whole numbers, ties to even; NULL where the count is zero."""
    is_counted = counts > 0
    denominators = np.where(is_counted, counts, 1)
    whole = total // denominators
    remainders = total - whole * denominators
    rounds_up = (2 * remainders > denominators) | ((2 * remainders == denominators) & (whole % 2 == 1))
    return ValueColumn((whole + rounds_up).astype(np.int64), None if is_counted.all() else is_counted)


def _fits(counts: Array, factor: int) -> bool:
    return not len(counts) or int(counts.max()) * factor < _INT64_SAFE


def _exact_quotients(numerators: list[int], denominators: list[int]) -> ValueColumn:
    """Quotients as floats: Python rounds the quotient of two integers only once."""
    quotients = [_quotient(a, b) if b else None for a, b in zip(numerators, denominators, strict=True)]
    return v.from_python(quotients, DataType("float"))


def _quotient(numerator: int, denominator: int) -> float | None:
    try:
        return numerator / denominator
    except OverflowError:
        return None


def zero_filled(values: ValueColumn) -> Array:
    """The values, with 0 for NULL."""
    if values.valid is None or values.valid.all():
        return values.data
    return np.where(values.valid, values.data, 0)


def is_within(data: Array, limit: int) -> bool:
    """Whether all numbers are int64 and their absolute values are less than `limit`."""
    if data.dtype == object:
        return False
    return not len(data) or (-limit < int(data.min()) and int(data.max()) < limit)


def add_exactly(a: Array, b: Array, sign: int) -> Array:
    """a + b or a - b (`sign` is 1 or -1), without overflow."""
    if is_within(a, _INT64_SAFE) and is_within(b, _INT64_SAFE):
        return a + b if sign > 0 else a - b
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return v.ints([x + sign * y for x, y in pairs])


def group_sums(groups: RowGroups, data: Array) -> Array:
    """The sum of each group, without overflow."""
    if data.dtype != object and is_within(data, _INT64_SAFE // max(len(data), 1)):
        return groups.sums(data)
    totals = [0] * groups.count
    for group, value in zip(groups.group_numbers.tolist(), data.tolist(), strict=True):
        totals[group] += value
    return v.ints(totals)


# ── floats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class FloatSum(ExactSum):
    """Three columns: the limbs of the superaccumulator, the sums that do not fit into them, and the rounded sums, so
    that reading a sum does not round it again."""

    def __init__(self, column: str) -> None:
        self.limbs_column, self.wide_column, self.rounded_column = column, f"{column}.wide", f"{column}.rounded"
        self.columns = {column: s.ARROW_TYPE, self.wide_column: pa.binary(), self.rounded_column: pa.float64()}

    def _read_sums(self, rows: TableRows) -> s.ExactSums:
        return s.ExactSums.from_columns(rows[self.limbs_column], rows[self.wide_column])

    def update(
        self, rows: TableRows, groups: RowGroups, minus: ValueColumn | None, plus: ValueColumn
    ) -> dict[str, ValueColumn]:
        data, group_numbers = zero_filled(plus), groups.group_numbers
        if minus is not None:
            data, group_numbers = (
                np.concatenate([data, -zero_filled(minus)]),
                np.concatenate([group_numbers, group_numbers]),
            )
        sums = self._read_sums(rows).add(s.sum_groups(data, group_numbers, groups.count))
        limbs, wide = sums.to_columns()
        return {self.limbs_column: limbs, self.wide_column: wide, self.rounded_column: sums.to_floats()}

    def value(self, rows: TableRows) -> ValueColumn:
        rounded = rows[self.rounded_column]
        limbs = rows[self.limbs_column]
        # A group without a stored row has no members, so its sum is 0.
        if limbs.valid is None or limbs.valid.all():
            return rounded
        return ValueColumn(np.where(limbs.valid, rounded.data, 0.0), rounded.is_valid() | ~limbs.valid)

    def mean(self, rows: TableRows, counts: Array) -> ValueColumn:
        return self._read_sums(rows).means(counts)


def at_most_zero(values: ValueColumn, certain: Bools) -> ValueColumn:
    """The least that a member adds to a sum: its value if it is certain, else the lesser of its value and 0."""
    return ValueColumn(np.where(certain, values.data, np.minimum(values.data, _zero(values))), values.valid)


def at_least_zero(values: ValueColumn, certain: Bools) -> ValueColumn:
    """The most that a member adds to a sum: its value if it is certain, else the greater of its value and 0."""
    return ValueColumn(np.where(certain, values.data, np.maximum(values.data, _zero(values))), values.valid)


def _zero(values: ValueColumn) -> float | int:
    return 0.0 if values.data.dtype == np.float64 else 0


def sign_of(end: object) -> int:
    """The sign of an end of a domain: -1, 0 or 1."""
    assert isinstance(end, int | float | Decimal)
    return (end > 0) - (end < 0)
