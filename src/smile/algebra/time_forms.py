"""Times and intervals as sums of columns and a number of ticks, and the inequalities between times that a predicate
implies. However an inequality is written, it has one form: `u - t < d`, `t > u - d` and `u < t + d` are the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from smile.algebra import mmpl, trees
from smile.algebra.coercions import MICROSECONDS_PER_DAY
from smile.algebra.functions.catalogue import type_of
from smile.algebra.functions.time import constant_period
from smile.algebra.types import DATE, INT, INTERVAL, TICKS_PER_MICROSECOND, TIME, TIMESTAMP, DataType

START: Final = ""
"""Stands for tick 0 in the place of a column: a distance from it is a constant bound."""

TICKS_PER_UNIT: Final[Mapping[DataType, int]] = {
    TIME: 1,
    TIMESTAMP: TICKS_PER_MICROSECOND,
    DATE: MICROSECONDS_PER_DAY * TICKS_PER_MICROSECOND,
}
"""The ticks of one unit, for each type of moments."""

MOMENT_TYPES: Final = tuple(TICKS_PER_UNIT)
"""The types whose values are points in time."""

TimeConstraint = tuple[str, str, int]
"""(a, b, d): column a is at most d ticks above column b, where neither is NULL."""

_NEGATED_COMPARISONS: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class TimeForm:
    """The sum of some columns, each with a factor, and of a number of ticks between `lo` and `hi`, which rounding
    leaves open."""

    factors: Mapping[str, int]
    lo: int = 0
    hi: int = 0

    def __add__(self, other: "TimeForm") -> "TimeForm":
        names = {*self.factors, *other.factors}
        sums = {name: self.factors.get(name, 0) + other.factors.get(name, 0) for name in names}
        factors = {name: factor for name, factor in sums.items() if factor}
        return TimeForm(factors, self.lo + other.lo, self.hi + other.hi)

    def __neg__(self) -> "TimeForm":
        return TimeForm({name: -factor for name, factor in self.factors.items()}, -self.hi, -self.lo)

    def __sub__(self, other: "TimeForm") -> "TimeForm":
        return self + -other


def time_form(expr: mmpl.Expr, types: Mapping[str, DataType]) -> TimeForm | None:
    """A moment or an interval as a sum, in ticks; None if it is something else."""
    match expr:
        case mmpl.ColumnRef(name) if types[name] in TICKS_PER_UNIT:
            return TimeForm({name: 1})
        case mmpl.Constant(int() as value, type) if type in TICKS_PER_UNIT or type == INTERVAL:
            ticks = value * TICKS_PER_UNIT.get(type, 1)
            return TimeForm({}, ticks, ticks)
        case mmpl.Cast(arg, type) if type in TICKS_PER_UNIT and type_of(arg, types) in TICKS_PER_UNIT:
            if TICKS_PER_UNIT[type] <= TICKS_PER_UNIT[type_of(arg, types)]:
                return time_form(arg, types)
            return _rounded_form(arg, TICKS_PER_UNIT[type], types)
        case mmpl.Call("neg", (arg,)):
            form = time_form(arg, types)
            return None if form is None else -form
        case mmpl.Call("date_trunc" | "period_end" as function, (_, arg, *_)) if period := constant_period(expr):
            length = period.microseconds_max * TICKS_PER_MICROSECOND
            form = _rounded_form(arg, length, types)
            if form is None or function == "date_trunc":
                return form
            # The end is at least one microsecond after the time, which may be rounded down to one.
            return TimeForm(form.factors, form.lo + length, form.hi + length)
        case mmpl.Call("+" | "-", (a, b)):
            return _sum_form(expr, a, b, types)
    return None


def _rounded_form(expr: mmpl.Expr, ticks: int, types: Mapping[str, DataType]) -> TimeForm | None:
    """A moment, rounded down to the beginning of a period of at most this number of ticks. Periods begin at whole
    microseconds: it does not matter if the moment was rounded to one before."""
    while isinstance(expr, mmpl.Cast) and expr.type == TIMESTAMP and type_of(expr.arg, types) in TICKS_PER_UNIT:
        expr = expr.arg
    form = time_form(expr, types)
    return None if form is None else TimeForm(form.factors, form.lo - ticks + 1, form.hi)


def _sum_form(expr: mmpl.Call, a: mmpl.Expr, b: mmpl.Expr, types: Mapping[str, DataType]) -> TimeForm | None:
    result = type_of(expr, types)
    x, y = (_operand_form(operand, result, types) for operand in (a, b))
    if x is None or y is None or (result not in TICKS_PER_UNIT and result != INTERVAL):
        return None
    return x + y if expr.function == "+" else x - y


def _operand_form(expr: mmpl.Expr, result: DataType, types: Mapping[str, DataType]) -> TimeForm | None:
    """An operand of a sum of this type. An interval that is added to a timestamp is rounded down to a whole
    microsecond, and a number that is added to a date counts days."""
    if result == DATE and isinstance(expr, mmpl.Constant) and expr.type == INT and isinstance(expr.value, int):
        ticks = expr.value * TICKS_PER_UNIT[DATE]
        return TimeForm({}, ticks, ticks)
    form = time_form(expr, types)
    if form is None or result != TIMESTAMP or type_of(expr, types) != INTERVAL:
        return form
    is_exact = not form.factors and form.lo == form.hi and form.lo % TICKS_PER_MICROSECOND == 0
    return form if is_exact else _rounded_form(expr, TICKS_PER_MICROSECOND, types)


def truncated_time(expr: mmpl.Expr, types: Mapping[str, DataType]) -> mmpl.Expr:
    """The time whose day or other period an expression gives; the expression itself if it is something else."""
    match expr:
        case mmpl.Cast(arg, type) if type in (DATE, TIMESTAMP) and type_of(arg, types) in TICKS_PER_UNIT:
            return arg
        case mmpl.Call("date_trunc", (_, arg, *_)) if constant_period(expr):
            return truncated_time(arg, types) if isinstance(arg, mmpl.Cast) else arg
    return expr


def time_constraints(predicate: mmpl.Expr, types: Mapping[str, DataType]) -> Iterator[TimeConstraint]:
    """Constraints that hold in every row for which the predicate is true."""
    for conjunct in trees.conjuncts(predicate):
        for left, right, gap in _inequalities(conjunct):
            a, b = time_form(left, types), time_form(right, types)
            constraint = None if a is None or b is None else _constraint(a - b, gap)
            if constraint is not None:
                yield constraint


def _inequalities(conjunct: mmpl.Expr) -> Iterator[tuple[mmpl.Expr, mmpl.Expr, int]]:
    """The inequalities a + gap ≤ b that a predicate consists of."""
    match conjunct:
        case mmpl.Call("not", (mmpl.Call(function, args),)) if function in _NEGATED_COMPARISONS:
            yield from _inequalities(mmpl.Call(_NEGATED_COMPARISONS[function], args))
        case mmpl.Call("<" | "<=" as function, (a, b)):
            gap = int(function == "<")
            yield a, b, gap
            if isinstance(a, mmpl.Call) and a.function == "abs":
                yield a.args[0], b, gap
                yield mmpl.Call("neg", a.args), b, gap
        case mmpl.Call(">" | ">=" as function, (a, b)):
            yield from _inequalities(mmpl.Call("<" if function == ">" else "<=", (b, a)))
        case mmpl.Call("=", (a, b)):
            yield a, b, 0
            yield b, a, 0


def _constraint(difference: TimeForm, gap: int) -> TimeConstraint | None:
    """The constraint that says difference + gap ≤ 0, if it is one between two columns or on one."""
    upper = [name for name, factor in difference.factors.items() if factor == 1]
    lower = [name for name, factor in difference.factors.items() if factor == -1]
    if not difference.factors or len(upper) + len(lower) < len(difference.factors) or max(len(upper), len(lower)) > 1:
        return None
    return (upper or [START])[0], (lower or [START])[0], -difference.lo - gap
