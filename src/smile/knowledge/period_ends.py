"""Ends of periods that columns name: by the beginning of the period, by a text such as `2026-11`, or by numbers such as
a year and a month. No time is later than its period. Where periods have one length, `time_forms` says the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Final

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.functions.time import constant_period
from smile.algebra.functions.time_parsing import finest_unit, unit_of_format
from smile.algebra.time_forms import TICKS_PER_UNIT, time_form, truncated_time
from smile.algebra.types import DATE, INT, STRING, TICKS_PER_MICROSECOND, TIMESTAMP, DataType
from smile.knowledge.seals import PeriodEnd

_NUMBERS: Final = {
    "extract_year": "YYYY", "extract_quarter": "Q", "extract_month": "MM", "extract_day": "DD", "extract_hour": "HH24",
    "extract_minute": "MI",
}  # fmt: skip
"""The numbers that EXTRACT gives, as fields of a format."""

Assignments = Iterable[tuple[str, mmpl.Expr]]


def period_constraints(assignments: Assignments, types: Mapping[str, DataType]) -> Iterator[tuple[str, PeriodEnd, int]]:
    """(a, e, d): column a is at most d ticks above the end e of the period that columns with these values name."""
    numbers: dict[mmpl.Expr, dict[str, str]] = {}
    for name, expr in assignments:
        time, end = _named_period(name, expr, types)
        if time is not None and end is not None:
            yield from _times_before(time, end, types)
        match expr:
            case mmpl.Call(function, (arg,)) if function in _NUMBERS:
                numbers.setdefault(arg, {}).setdefault(_NUMBERS[function], name)
    for time, columns in numbers.items():
        end = _end_of_numbers(columns)
        if end is not None:
            yield from _times_before(time, end, types)


def named_time(expr: mmpl.Expr, types: Mapping[str, DataType]) -> mmpl.Expr:
    """The time whose period an expression names, and with which it is NULL; the expression itself if it is something
    else."""
    match expr:
        case mmpl.Call("to_char", (time, mmpl.Constant(str() as format))) if unit_of_format(format):
            return truncated_time(time, types)
        case mmpl.Call(function, (time,)) if function in _NUMBERS:
            return truncated_time(time, types)
    return truncated_time(expr, types)


def _named_period(
    name: str, expr: mmpl.Expr, types: Mapping[str, DataType]
) -> tuple[mmpl.Expr | None, mmpl.Expr | None]:
    """The time that an expression is of, and the end of its period in terms of the column with the value."""
    column: mmpl.Expr = mmpl.ColumnRef(name)
    match expr:
        case mmpl.Call("to_char", (time, mmpl.Constant(str() as format))):
            unit = unit_of_format(format)
            start = mmpl.Call("to_timestamp", (column, _text(format)))
            return (None, None) if unit is None else (time, _period_end(unit, start))
        case mmpl.Cast(mmpl.Call("date_trunc") as arg, type) if type in TICKS_PER_UNIT:
            period = constant_period(arg)
            starts_at_midnight = period is not None and period.zone is None and period.has_whole_days
            return _named_period(name, arg, types) if type != DATE or starts_at_midnight else (None, None)
        case mmpl.Call("date_trunc", (unit_text, time, *zone)) if period := constant_period(expr):
            if period.has_one_length:
                return None, None
            column = column if types[name] == TIMESTAMP else mmpl.Cast(column, TIMESTAMP)
            return time, mmpl.Call("period_end", (unit_text, column, *zone))
    return None, None


def _end_of_numbers(columns: Mapping[str, str]) -> mmpl.Expr | None:
    """The end of the period that a year, a month and so on name. `columns` are by the field of a format."""
    unit = finest_unit(list(columns))
    if unit is None:
        return None
    fields = sorted(columns, key=list(_NUMBERS.values()).index)
    texts = [_digits(columns[field], 4 if field == "YYYY" else 1 if field == "Q" else 2) for field in fields]
    text = reduce(lambda a, b: mmpl.Call("||", (mmpl.Call("||", (a, _text(" "))), b)), texts)
    return _period_end(unit, mmpl.Call("to_timestamp", (text, _text(" ".join(fields)))))


def _digits(column: str, count: int) -> mmpl.Expr:
    """A number with leading zeros."""
    digits = mmpl.Cast(mmpl.ColumnRef(column), STRING)
    return digits if count == 1 else mmpl.Call("lpad", (digits, mmpl.Constant(count, INT), _text("0")))


def _text(value: str) -> mmpl.Expr:
    return mmpl.Constant(value, STRING)


def _period_end(unit: str, start: mmpl.Expr) -> mmpl.Expr:
    return mmpl.Call("period_end", (_text(unit), start))


def _times_before(
    time: mmpl.Expr, end: mmpl.Expr, types: Mapping[str, DataType]
) -> Iterator[tuple[str, PeriodEnd, int]]:
    """The time is a sum of a column and a distance, rounded down to a microsecond. It is before the end."""
    form = time_form(time, types)
    assert type_of(time, types) == TIMESTAMP
    if form is not None and list(form.factors.values()) == [1]:
        (column,) = form.factors
        yield column, PeriodEnd(end), -form.lo - TICKS_PER_MICROSECOND
