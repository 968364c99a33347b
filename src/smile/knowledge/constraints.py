"""Constraints that the checks of a stream and the predicates of a query imply: ranges of single columns, and distances
between time columns."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from smile.algebra import mmpl, trees
from smile.algebra.types import INT, TICKS_PER_MICROSECOND, TIME, TIMESTAMP, DataType
from smile.knowledge.expression_types import RANGED_TYPES
from smile.knowledge.seals import START
from smile.knowledge.symbolic import MAXTIME, ZERO, Bound, Interval, end_symbol, greatest, least

FLIPPED_COMPARISONS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
TimeConstraint = tuple[str, str, int]


def column_range(column: str, data: DataType, checks: Iterable[mmpl.Expr]) -> Interval | None:
    """The range of a stream's column: the bounds that checks give, and symbols for the ends that they leave open."""
    if data.name not in RANGED_TYPES:
        return None
    lo: Bound | None = None
    hi: Bound | None = None
    for check in checks:
        for function, bound in _constant_bounds(check, column, data):
            if function in (">", ">=", "="):
                edge = bound + Bound.from_number(1) if function == ">" and data.name in ("int", "time") else bound
                lo = edge if lo is None else greatest(lo, edge)
            if function in ("<", "<=", "="):
                edge = bound - Bound.from_number(1) if function == "<" and data.name in ("int", "time") else bound
                hi = edge if hi is None else least(hi, edge)
    if data == TIME:
        return Interval(ZERO if lo is None else lo, Bound.symbol(MAXTIME) if hi is None else hi)
    return Interval(
        end_symbol("MIN", column) if lo is None else lo,
        end_symbol("MAX", column) if hi is None else hi,
    )


def _constant_bounds(check: mmpl.Expr, column: str, data: DataType) -> Iterator[tuple[str, Bound]]:
    for conjunct in trees.conjuncts(check):
        if not (isinstance(conjunct, mmpl.Call) and conjunct.function in FLIPPED_COMPARISONS):
            continue
        left, right = conjunct.args
        for function, a, b in ((conjunct.function, left, right), (FLIPPED_COMPARISONS[conjunct.function], right, left)):
            # Of the casts, only one from int to decimal is known to keep every value.
            widened = isinstance(a, mmpl.Cast) and data == INT and a.type.name == "decimal"
            compared = a.arg if isinstance(a, mmpl.Cast) and widened else a
            constant = b.value if isinstance(b, mmpl.Constant) else None
            if compared == mmpl.ColumnRef(column) and isinstance(constant, int | float | Decimal):
                yield function, Bound.from_number(constant)


def time_constraints(predicate: mmpl.Expr, types: Mapping[str, DataType]) -> Iterator[TimeConstraint]:
    """Constraints a ≤ b + d, in ticks, that hold in every row for which the predicate is true."""
    for conjunct in trees.conjuncts(predicate):
        if not (isinstance(conjunct, mmpl.Call) and conjunct.function in FLIPPED_COMPARISONS):
            continue
        a, b = (_time_and_offset(e, types) for e in conjunct.args)
        if a is None or b is None:
            continue
        (left, x), (right, y) = a, b
        if left == right:
            continue
        if conjunct.function in ("<", "<=", "="):
            yield left, right, y - x - (conjunct.function == "<")
        if conjunct.function in (">", ">=", "="):
            yield right, left, x - y - (conjunct.function == ">")


def non_null_columns(predicate: mmpl.Expr) -> Iterator[str]:
    """Columns that are not NULL in any row for which the predicate is true."""
    for conjunct in trees.conjuncts(predicate):
        if isinstance(conjunct, mmpl.Call) and (
            conjunct.function in FLIPPED_COMPARISONS or conjunct.function == "is not null"
        ):
            for arg in conjunct.args:
                if isinstance(arg, mmpl.Call) and arg.function in ("+", "-"):
                    yield from trees.columns_in(arg)
                elif isinstance(arg, mmpl.ColumnRef):
                    yield arg.name


def _time_and_offset(expr: mmpl.Expr, types: Mapping[str, DataType]) -> tuple[str, int] | None:
    """An expression as a time column and an offset from it in ticks. A constant is an offset from START."""
    match expr:
        case mmpl.ColumnRef(name) if types[name] in (TIME, TIMESTAMP):
            return name, 0
        case mmpl.Constant(int() as value, type) if type == TIME:
            return START, value
        case mmpl.Constant(int() as value, type) if type == TIMESTAMP:
            return START, value * TICKS_PER_MICROSECOND
        case mmpl.Cast(mmpl.ColumnRef(name), type) if type == TIME and types[name] == TIMESTAMP:
            return name, 0
        case mmpl.Call("+", (moment, mmpl.Constant(int() as ticks, interval))) if interval.name == "interval":
            return _shift(_time_and_offset(moment, types), ticks)
        case mmpl.Call("+", (mmpl.Constant(int() as ticks, interval), moment)) if interval.name == "interval":
            return _shift(_time_and_offset(moment, types), ticks)
        case mmpl.Call("-", (moment, mmpl.Constant(int() as ticks, interval))) if interval.name == "interval":
            return _shift(_time_and_offset(moment, types), -ticks)
    return None


def _shift(moment: tuple[str, int] | None, ticks: int) -> tuple[str, int] | None:
    return None if moment is None else (moment[0], moment[1] + ticks)
