"""The values that columns can have, by their types, and the types of columns where a predicate holds."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, inf, nextafter
from typing import Any

from smile.algebra import mmpl, trees
from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.types import BOOL, DataType, Value
from smile.knowledge.implied_values import narrow_sets
from smile.knowledge.symbolic import Bound, Extreme, Interval
from smile.knowledge.types import ColumnType
from smile.knowledge.value_set import ValueSet
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import Operand, type_limits


def column_values(column: ColumnType, shown: bool) -> ValueSet:
    """The values of a column in every row, or only in rows that are shown. A symbol is no bound."""
    if shown and column.values is not None:
        return ValueSet.of(column.values, column.nullable)
    if column.data == BOOL:
        return ValueSet.of((False, True), column.nullable)
    range_ = column.shown_range if shown else column.range
    if range_ is None:
        return ValueSet(nullable=column.nullable)
    lo, hi = _to_value(range_.lo, column.data, floor), _to_value(range_.hi, column.data, ceil)
    return ValueSet(lo, hi, None, column.nullable)


def _to_value(bound: Bound, data: DataType, rounded: Callable[[Fraction], int]) -> Value:
    number = bound.number
    if number is None:
        return None
    exact = Fraction(number)
    if data.name == "decimal":
        scale = data.scale or 0
        return Decimal(rounded(exact * 10**scale)).scaleb(-scale, EXACT_CONTEXT)
    if data.name == "float":
        return float(exact) if abs(exact) <= sys.float_info.max else None
    return rounded(exact)


def column_limits(columns: Mapping[str, ColumnType]) -> dict[str, Operand]:
    """The limits of columns: all values that are not NULL are in them."""
    return {name: value_limits(column) for name, column in columns.items()}


def value_limits(column: ColumnType) -> Operand:
    """The limits of a column: those of its type, or those of its range if they are narrower."""
    limits = type_limits(column.data)
    if column.range is None or isinstance(limits, Mask) or limits.lo is None:
        return limits
    lo, hi = column.range.lo.extreme, column.range.hi.extreme
    return Range(
        max(limits.lo, _round_outward(lo, column.data, floor)) if lo > Fraction(limits.lo) else limits.lo,
        min(limits.hi, _round_outward(hi, column.data, ceil)) if hi < Fraction(limits.hi) else limits.hi,
    )


def _round_outward(number: Extreme, data: DataType, rounded: Callable[[Fraction], int]) -> Any:
    """The number as a value of the type: not above it if `rounded` is `floor`, not below it if it is `ceil`."""
    exact = Fraction(number)
    if data.name == "decimal":
        scale = data.scale or 0
        return Decimal(rounded(exact * 10**scale)).scaleb(-scale, EXACT_CONTEXT)
    if data.name != "float":
        return rounded(exact)
    value = float(exact)
    is_inside = value > exact if rounded is floor else value < exact
    return nextafter(value, -inf if rounded is floor else inf) if is_inside else value


def narrow_columns(
    columns: Mapping[str, ColumnType],
    predicate: mmpl.Expr,
    holds: bool = True,
    or_null: bool = False,
    in_every_row: bool = False,
) -> dict[str, ColumnType]:
    """The types of columns in rows for which the predicate is true (false, if not `holds`; or NULL, if `or_null`).

    A row is shown while the predicate holds. A row for which it does not hold may be shown later, if columns evolve.
    For these columns, only the ranges of shown rows are narrower. `in_every_row`: there are no such rows.
    """
    compared = {name: columns[name] for name in trees.columns_in(predicate)}
    types = {n: c.data for n, c in compared.items()}
    # The types of columns that evolve are narrower than what is known of them, so they decide no predicate.
    decided = {n: column_values(c, shown=False) for n, c in compared.items() if in_every_row or not c.evolves}
    every_set = narrow_sets(decided, predicate, types, holds, or_null)
    shown_columns = {n: column_values(c, shown=True) for n, c in compared.items()}
    shown_set = narrow_sets(shown_columns, predicate, types, holds, or_null)
    result = dict(columns)
    if every_set is None or shown_set is None:
        return result  # there are no such rows
    for name, column in compared.items():
        narrow_range = _narrow_interval(column.shown_range, shown_set[name])
        if narrow_range is not None and narrow_range.is_empty:
            return dict(columns)  # there are no such rows: a count of MAXTIME events is not above its extreme
        if in_every_row or not column.evolves:
            column = replace(
                column,
                range=_narrow_interval(column.range, every_set[name]),
                nullable=every_set[name].nullable,
                null_evolves=column.null_evolves and every_set[name].nullable,
            )
        result[name] = replace(
            column,
            narrow_range=None if narrow_range == column.range else narrow_range,
            values=shown_set[name].values,
        )
    return result


def _narrow_interval(range_: Interval | None, values: ValueSet) -> Interval | None:
    """The range with the ends of `values`, where these are tighter. The extremes of the range still hold."""
    if range_ is None or not values.has_values:
        return range_
    lo, hi = (None if e is None else Bound.from_number(e) for e in (values.lo, values.hi))
    return Interval(
        range_.lo if lo is None or not _is_less(range_.lo, lo) else lo,
        range_.hi if hi is None or not _is_less(hi, range_.hi) else hi,
    ).with_extremes(range_.lo.extreme, range_.hi.extreme)


def _is_less(a: Bound, b: Bound) -> bool:
    """Whether a is less than b, or may be: a number is a better bound than symbols that leave the order open."""
    difference = (b - a).limit
    return difference is None or difference > 0
