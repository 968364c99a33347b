"""Compiles a stream's CHECKs to functions of a row. They return what `evaluate_expr` returns.

Names and types are resolved once. The catalogue of scalars defines every operator; only the most common checks, which
compare a column with a constant or another column, bypass it, since publishing evaluates them on every event.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from smile.algebra import mmpl
from smile.algebra.coercions import cast
from smile.algebra.functions.catalogue import evaluate, signature_of, type_of
from smile.algebra.types import DataType, Value

EventRow = tuple[Value, ...]
"""The tick, then the columns in their order."""

Evaluator = Callable[[EventRow], Value]

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compile_evaluator(expr: mmpl.Expr, types: Mapping[str, DataType]) -> Evaluator:
    """`types` has the names and types of the row's values, in order."""
    match expr:
        case mmpl.ColumnRef(name):
            return itemgetter(list(types).index(name))
        case mmpl.Constant(value):
            return lambda _: value
        case mmpl.Call():
            return _compile_comparison(expr, types) or _compile_call(expr, types)
        case mmpl.Cast(arg, target):
            inner, source = compile_evaluator(arg, types), type_of(arg, types)
            return lambda row: cast(inner(row), source, target)
        case mmpl.Case(branches, otherwise):
            return _compile_case(
                [(compile_evaluator(c, types), compile_evaluator(v, types)) for c, v in branches],
                compile_evaluator(otherwise, types),
            )
    raise AssertionError(expr)


def _compile_call(call: mmpl.Call, types: Mapping[str, DataType]) -> Evaluator:
    name, signature = call.function, signature_of(call, types)
    args = [compile_evaluator(a, types) for a in call.args]
    return lambda row: evaluate(name, tuple([arg(row) for arg in args]), signature)


def _compile_case(branches: Sequence[tuple[Evaluator, Evaluator]], otherwise: Evaluator) -> Evaluator:
    def evaluate_case(row: EventRow) -> Value:
        return next((value for condition, value in branches if condition(row) is True), otherwise)(row)

    return evaluate_case


def _compile_comparison(call: mmpl.Call, types: Mapping[str, DataType]) -> Evaluator | None:
    names = list(types)
    match call:
        case mmpl.Call("is not null", (mmpl.ColumnRef(name),)):
            index = names.index(name)
            return lambda row: row[index] is not None
        case mmpl.Call(function, (mmpl.ColumnRef(name), mmpl.Constant(value))) if function in _COMPARE:
            compare, index = _COMPARE[function], names.index(name)
            if value is None:
                return None
            return lambda row: None if row[index] is None else compare(row[index], value)
        case mmpl.Call(function, (mmpl.ColumnRef(name), mmpl.ColumnRef(other))) if function in _COMPARE:
            compare, a, b = _COMPARE[function], names.index(name), names.index(other)
            return lambda row: None if row[a] is None or row[b] is None else compare(row[a], row[b])
    return None
