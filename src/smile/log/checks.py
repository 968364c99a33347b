"""A stream's CHECKs as functions of a row: they give what `evaluate_expr` gives, with names and types settled before.

The meaning of every operator stays in the catalogue of scalars. Only the commonest checks, a column against a constant
or another column, go without it, since publishing evaluates them on every event.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from smile.algebra import mmpl
from smile.algebra.coercions import cast
from smile.algebra.scalars import evaluate, signature_of, type_of
from smile.algebra.types import DataType, Value

Row = tuple[Value, ...]
"""The tick, then the columns in their order."""

Evaluator = Callable[[Row], Value]

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compiled(expr: mmpl.Expr, types: Mapping[str, DataType]) -> Evaluator:
    """`types` names the row's values in their order."""
    match expr:
        case mmpl.Column(name):
            return itemgetter(list(types).index(name))
        case mmpl.Constant(value):
            return lambda _: value
        case mmpl.Call():
            return _common(expr, types) or _call(expr, types)
        case mmpl.Cast(arg, target):
            inner, source = compiled(arg, types), type_of(arg, types)
            return lambda row: cast(inner(row), source, target)
        case mmpl.Case(branches, otherwise):
            return _case([(compiled(c, types), compiled(v, types)) for c, v in branches], compiled(otherwise, types))
    raise AssertionError(expr)


def _call(call: mmpl.Call, types: Mapping[str, DataType]) -> Evaluator:
    name, signature = call.function, signature_of(call, types)
    args = [compiled(a, types) for a in call.args]
    return lambda row: evaluate(name, tuple([arg(row) for arg in args]), signature)


def _case(branches: Sequence[tuple[Evaluator, Evaluator]], otherwise: Evaluator) -> Evaluator:
    def chosen(row: Row) -> Value:
        return next((value for condition, value in branches if condition(row) is True), otherwise)(row)

    return chosen


def _common(call: mmpl.Call, types: Mapping[str, DataType]) -> Evaluator | None:
    places = list(types)
    match call:
        case mmpl.Call("is not null", (mmpl.Column(name),)):
            at = places.index(name)
            return lambda row: row[at] is not None
        case mmpl.Call(function, (mmpl.Column(name), mmpl.Constant(value))) if function in _COMPARE:
            compare, at = _COMPARE[function], places.index(name)
            if value is None:
                return None
            return lambda row: None if row[at] is None else compare(row[at], value)
        case mmpl.Call(function, (mmpl.Column(name), mmpl.Column(other))) if function in _COMPARE:
            compare, a, b = _COMPARE[function], places.index(name), places.index(other)
            return lambda row: None if row[a] is None or row[b] is None else compare(row[a], row[b])
    return None
