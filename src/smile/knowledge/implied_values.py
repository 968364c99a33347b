"""What a predicate implies: for each column, the values that it can have in rows for which the predicate holds.

Constants are folded first. Comparisons are solved for a column below functions that are exact and monotone: casts that
keep the order, sums with a constant, products of ints, negation and ABS. What is not understood implies nothing.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Final, NamedTuple

from smile.algebra import mmpl, trees
from smile.algebra.coercions import EXACT_CONTEXT, MICROSECONDS_PER_DAY, type_ends
from smile.algebra.folding import fold_expression
from smile.algebra.functions.catalogue import COMPARISONS, evaluate_expr, type_of
from smile.algebra.types import BOOL, TICKS_PER_MICROSECOND, DataType, Value
from smile.knowledge.value_set import ONLY_NULL, ValueSet
from smile.knowledge.values.range import RangeEnd

ValueSets = Mapping[str, ValueSet]
"""The values that columns can have. A column that is not listed can have any."""

_FLIPPED_COMPARISONS: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_NEGATED_COMPARISONS: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_INTEGER_TYPES: Final = ("int", "time", "interval", "timestamp", "date")
_TICKS: Final = {"time": 1, "timestamp": TICKS_PER_MICROSECOND, "date": TICKS_PER_MICROSECOND * MICROSECONDS_PER_DAY}

End = Any  # of an interval: a Fraction, a value of an ordered type that is not a number, or None for no bound


class CaseBranch(NamedTuple):
    """A result of a CASE. `sets`: the values that columns of numbers or times have if it is chosen, that is, if its
    condition is true and no condition before it. None: it is never chosen."""

    result: mmpl.Expr
    sets: ValueSets | None


def narrow_sets(
    sets: ValueSets, predicate: mmpl.Expr, types: Mapping[str, DataType], holds: bool = True, or_null: bool = False
) -> dict[str, ValueSet] | None:
    """The values that columns can have in rows for which the predicate is true (false, if not `holds`; or NULL, if
    `or_null`); None if there are no such rows. `sets` are the values in all rows."""
    known, folded = dict(sets), fold_expression(predicate)
    for _ in range(2):  # a bound that one conjunct implies may bound a column that another compares with it
        implied = _Implication(types, known, or_null).implied(folded, holds)
        if implied is None:
            return None
        narrowed = {name: known.get(name, ValueSet()).intersection(values) for name, values in implied.items()}
        if any(values.is_empty for values in narrowed.values()):
            return None
        known |= narrowed
    return known


def implied_sets(
    predicate: mmpl.Expr,
    types: Mapping[str, DataType],
    known: ValueSets | None = None,
    holds: bool = True,
    or_null: bool = False,
) -> dict[str, ValueSet] | None:
    """As `narrow_sets`, but only what the predicate itself implies. `known`: the values of columns that it compares
    with others."""
    return _Implication(types, known or {}, or_null).implied(fold_expression(predicate), holds)


def case_branches(case: mmpl.Case, types: Mapping[str, DataType]) -> tuple[CaseBranch, ...]:
    """The results of a CASE, that of ELSE last."""
    return _case_branches(case, tuple((name, types[name]) for name in sorted(trees.columns_in(case))))


@lru_cache(maxsize=1024)
def _case_branches(case: mmpl.Case, column_types: tuple[tuple[str, DataType], ...]) -> tuple[CaseBranch, ...]:
    types = dict(column_types)
    branches: list[CaseBranch] = []
    remaining: ValueSets | None = {}
    for condition, result in case.branches:
        branches.append(CaseBranch(result, _numeric_sets(_all_of([remaining, implied_sets(condition, types)]), types)))
        remaining = _all_of([remaining, implied_sets(condition, types, holds=False, or_null=True)])
    return (*branches, CaseBranch(case.otherwise, _numeric_sets(remaining, types)))


def _numeric_sets(sets: ValueSets | None, types: Mapping[str, DataType]) -> ValueSets | None:
    return None if sets is None else {n: s for n, s in sets.items() if _is_numeric(types[n])}


def _is_numeric(data: DataType) -> bool:
    return data.is_number or data.name in _INTEGER_TYPES


class _Implication:
    """For a truth value of an expression (or NULL, if `or_null`), the values of its columns. None: it is never so."""

    def __init__(self, types: Mapping[str, DataType], known: ValueSets, or_null: bool) -> None:
        self.types, self.known, self.or_null = types, known, or_null

    def implied(self, expr: mmpl.Expr, holds: bool) -> dict[str, ValueSet] | None:
        match expr:
            case mmpl.Constant(value, _):
                return {} if value is holds or (value is None and self.or_null) else None
            case mmpl.ColumnRef(name):
                return {name: ValueSet.of((holds,), self.or_null)}
            case mmpl.Call("not", (arg,)):
                return self.implied(arg, not holds)
            case mmpl.Call("and" | "or" as function, args):
                parts = [self.implied(arg, holds) for arg in args]
                return _all_of(parts) if (function == "and") is holds else self._any_of(parts)
            case mmpl.Call("is null" | "is not null" as function, (mmpl.ColumnRef(name),)):
                is_null = (function == "is null") is holds
                return {name: ONLY_NULL if is_null else ValueSet(nullable=False)}
            case mmpl.Call("is distinct from" | "is not distinct from" as function, (left, right)):
                return self._same(left, right, (function == "is not distinct from") is holds)
            case mmpl.Call(function, (left, right)) if function in COMPARISONS:
                name = function if holds else _NEGATED_COMPARISONS[function]
                return _all_of(
                    [self._compared(name, left, right), self._compared(_FLIPPED_COMPARISONS[name], right, left)]
                )
        return {}

    def _any_of(self, parts: Iterable[ValueSets | None]) -> dict[str, ValueSet] | None:
        possible = [p for p in parts if p is not None and not self._contradicts_known(p)]
        if not possible:
            return None
        names = reduce(frozenset.intersection, (frozenset(p) for p in possible))
        return {name: reduce(ValueSet.union, (p[name] for p in possible)) for name in names}

    def _contradicts_known(self, sets: ValueSets) -> bool:
        return any(s.intersection(self.known.get(n, ValueSet())).is_empty for n, s in sets.items())

    def _same(self, left: mmpl.Expr, right: mmpl.Expr, holds: bool) -> dict[str, ValueSet]:
        """IS NOT DISTINCT FROM, which is never NULL."""
        for column, constant in ((left, right), (right, left)):
            if isinstance(column, mmpl.ColumnRef) and isinstance(constant, mmpl.Constant):
                if constant.value is None:
                    return {column.name: ONLY_NULL if holds else ValueSet(nullable=False)}
                if holds:
                    return {column.name: ValueSet.of((constant.value,), nullable=False)}
                return {column.name: self._all_but(constant.value, column.name, nullable=True)}
        return {}

    def _compared(self, function: str, expr: mmpl.Expr, other: mmpl.Expr) -> dict[str, ValueSet] | None:
        """What `expr function other` implies for the column of `expr`."""
        if isinstance(other, mmpl.Constant) and other.value is None:
            return {} if self.or_null else None
        bounds = self._bounds(other)
        if bounds is None:
            return {}
        lo, hi = bounds
        if function == "<>":
            is_one_value = isinstance(expr, mmpl.ColumnRef) and lo is not None and lo == hi
            return {expr.name: self._all_but(lo, expr.name, self.or_null)} if is_one_value else {}  # type: ignore[attr-defined]
        lo, hi = (
            _as_fraction(lo) if function in (">", ">=", "=") else None,
            _as_fraction(hi) if function in ("<", "<=", "=") else None,
        )
        step = _step(type_of(expr, self.types))
        if function in ("<", ">") and step is not None:
            lo, hi = _shift((lo, hi), step if function == ">" else -step)
        solution = _solve(expr, (lo, hi), self.types)
        return {} if solution is None else self._column_values(expr, *solution)

    def _bounds(self, expr: mmpl.Expr) -> tuple[End, End] | None:
        match expr:
            case mmpl.Constant(value, _):
                return value, value
            case mmpl.ColumnRef(name) if name in self.known and not (self.or_null and self.known[name].nullable):
                return self.known[name].lo, self.known[name].hi
        return None

    def _all_but(self, value: Value, name: str, nullable: bool) -> ValueSet:
        values = frozenset((True, False)) if self.types[name] == BOOL else self.known.get(name, ValueSet()).values
        return ValueSet(nullable=nullable) if values is None else ValueSet.of(values - {value}, nullable)

    def _column_values(self, expr: mmpl.Expr, name: str, ends: tuple[End, End]) -> dict[str, ValueSet] | None:
        """The values of a column between these ends, which are those for which a comparison of `expr` is true."""
        data = self.types[name]
        lo, hi = _to_least_value(ends[0], data), _to_greatest_value(ends[1], data)
        type_range = type_ends(data) if _is_numeric(data) else None
        if type_range is not None:
            least, greatest = type_range
            if (lo is not None and lo > greatest) or (hi is not None and hi < least):
                is_column = isinstance(expr, mmpl.ColumnRef)
                return None if not self.or_null else {name: ONLY_NULL} if is_column else {}
            lo, hi = None if lo is None or lo <= least else lo, None if hi is None or hi >= greatest else hi
            # Where `expr` overflows, the comparison is NULL. If that is enough, a bound may exclude no such value.
            known = self.known.get(name, ValueSet())
            if lo is not None and self._can_overflow(expr, name, least if known.lo is None else known.lo, (lo, -1)):
                lo = None
            if hi is not None and self._can_overflow(expr, name, greatest if known.hi is None else known.hi, (hi, 1)):
                hi = None
        if lo is not None and lo == hi:
            return {name: ValueSet.of((lo,), self.or_null)}
        values = ValueSet(lo, hi, None, self.or_null)
        return None if values.is_empty else {name: values}

    def _can_overflow(self, expr: mmpl.Expr, name: str, extreme: Value, bound: tuple[RangeEnd, int]) -> bool:
        """Whether `expr` can be NULL, and the comparison too, for values from beyond a bound to an extreme. Those for
        which `expr` is not NULL form an interval."""
        if not self.or_null or isinstance(expr, mmpl.ColumnRef):
            return False
        end, direction = bound
        data = self.types[name]
        step = _step(data)
        beyond = end if step is None else _to_least_value(_as_fraction(end) + direction * step, data)
        return any(evaluate_expr(expr, {name: v}, self.types) is None for v in (extreme, beyond))


def _all_of(parts: Iterable[ValueSets | None]) -> dict[str, ValueSet] | None:
    result: dict[str, ValueSet] = {}
    for part in parts:
        if part is None:
            return None
        result |= {n: result[n].intersection(s) if n in result else s for n, s in part.items()}
    return None if any(s.is_empty for s in result.values()) else result


# ── solving for a column ────────────────────────────────────────────────────────────────────────────────────────────


def _solve(expr: mmpl.Expr, ends: tuple[End, End], types: Mapping[str, DataType]) -> tuple[str, tuple[End, End]] | None:
    """The column of `expr`, and the ends between which it has to lie so that `expr` lies between `ends`. None if that
    is not understood."""
    _, hi = ends
    match expr:
        case mmpl.ColumnRef(name):
            return name, ends
        case mmpl.Cast(arg, target):
            ends_before = _ends_before_cast(ends, type_of(arg, types), target)
            return None if ends_before is None else _solve(arg, ends_before, types)
        case mmpl.Call("neg", (arg,)):
            return _solve(arg, _scale(ends, Fraction(-1)), types)
        case mmpl.Call("abs", (arg,)) if hi is not None:
            return _solve(arg, (-hi, hi), types)
        case mmpl.Call("+" | "-" | "*" as function, args) if _is_exact(expr, types):
            return _solve_arithmetic(function, args, ends, types)
    return None


def _solve_arithmetic(
    function: str, args: tuple[mmpl.Expr, ...], ends: tuple[End, End], types: Mapping[str, DataType]
) -> tuple[str, tuple[End, End]] | None:
    a, b = args
    is_flipped = isinstance(a, mmpl.Constant)
    arg, constant = (b, a) if is_flipped else (a, b)
    if not isinstance(constant, mmpl.Constant) or constant.value is None:
        return None
    value = _as_fraction(constant.value)
    if function == "*":
        return _solve(arg, _scale(ends, 1 / value), types) if value else None
    if function == "-" and is_flipped:
        return _solve(arg, _shift(_scale(ends, Fraction(-1)), value), types)
    return _solve(arg, _shift(ends, value if function == "-" else -value), types)


def _is_exact(call: mmpl.Call, types: Mapping[str, DataType]) -> bool:
    """Whether the result is that of exact arithmetic, or NULL if it overflows."""
    names = {type_of(e, types).name for e in (call, *call.args)}
    return names <= {"int", "interval"} or (call.function != "*" and names <= {"int", "decimal", "time", "interval"})


def _ends_before_cast(ends: tuple[End, End], source: DataType, target: DataType) -> tuple[End, End] | None:
    names = source.name, target.name
    if source == target or names in (("int", "time"), ("time", "int")):
        return ends
    if source.name in ("int", "decimal") and target.name == "decimal":
        return ends if (source.scale or 0) <= (target.scale or 0) else None
    if source.name in ("int", "decimal") and target.name == "float":
        # A value between two floats may be rounded to either.
        lo, hi = ends
        return None if lo is None else _next_float(lo, -math.inf), None if hi is None else _next_float(hi, math.inf)
    if source.name in _TICKS and target.name in _TICKS and _TICKS[source.name] >= _TICKS[target.name]:
        return _scale(ends, Fraction(_TICKS[target.name], _TICKS[source.name]))
    return None


def _next_float(end: Fraction, towards: float) -> Fraction | None:
    neighbour = math.nextafter(float(end), towards)
    return Fraction(neighbour) if math.isfinite(neighbour) else None


def _shift(ends: tuple[End, End], distance: Fraction) -> tuple[End, End]:
    lo, hi = ends
    return None if lo is None else lo + distance, None if hi is None else hi + distance


def _scale(ends: tuple[End, End], factor: Fraction) -> tuple[End, End]:
    lo, hi = (None if e is None else e * factor for e in ends)
    return (lo, hi) if factor > 0 else (hi, lo)


def _as_fraction(value: Value) -> End:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return Fraction(value) if is_number else value  # type: ignore[arg-type]


def _step(data: DataType) -> Fraction | None:
    """The distance of neighbouring values."""
    if data.name == "decimal":
        return Fraction(1, 10 ** (data.scale or 0))
    return Fraction(1) if data.name in _INTEGER_TYPES else None


def _to_least_value(end: End, data: DataType) -> RangeEnd:
    """The least value of the type that is not below the end."""
    step = _step(data)
    if not isinstance(end, Fraction):
        return end
    return float(end) if step is None else _multiple_of_step(math.ceil(end / step), data)


def _to_greatest_value(end: End, data: DataType) -> RangeEnd:
    step = _step(data)
    if not isinstance(end, Fraction):
        return end
    return float(end) if step is None else _multiple_of_step(math.floor(end / step), data)


def _multiple_of_step(count: int, data: DataType) -> int | Decimal:
    return Decimal(count).scaleb(-(data.scale or 0), EXACT_CONTEXT) if data.name == "decimal" else count
