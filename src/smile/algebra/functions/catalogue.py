"""The catalogue of scalar operators and functions. Each name has one entry, which does what it does in PostgreSQL.

Overflow (of 64 bits, of 38 digits, of a float) and division by zero give NULL. No value raises an exception.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from smile.algebra.coercions import can_cast, cast
from smile.algebra.functions import (
    arithmetic,
    arrays,
    json,
    logic,
    regular_expressions,
    text,
    time,
    time_formats,
    time_parsing,
)
from smile.algebra.functions.base import (
    DECREASING,
    INCREASING,
    MONOTONE,
    NOT_MONOTONE,
    Monotonicity,
    ScalarFunction,
    Signature,
)
from smile.algebra.functions.logic import COMPARISONS
from smile.algebra.mmpl import Call, Case, Cast, ColumnRef, Constant, Expr
from smile.algebra.types import BOOL, DataType, Value
from smile.errors import did_you_mean, error

__all__ = [
    "COMPARISONS",
    "DECREASING",
    "INCREASING",
    "MONOTONE",
    "NOT_MONOTONE",
    "SCALAR_FUNCTIONS",
    "Monotonicity",
    "ScalarFunction",
    "Signature",
    "arity_of",
    "evaluate",
    "evaluate_expr",
    "expect_type",
    "resolve_signature",
    "type_of",
]

SCALAR_FUNCTIONS: Final[dict[str, ScalarFunction]] = {
    f.name: f
    for module in (arithmetic, logic, text, arrays, regular_expressions, time, time_formats, time_parsing, json)
    for f in module.FUNCTIONS
}


def arity_of(name: str) -> tuple[int, int | None]:
    """The minimum and maximum number of arguments. None means no maximum."""
    return SCALAR_FUNCTIONS[name].arity


@lru_cache(maxsize=4096)
def resolve_signature(name: str, arg_types: tuple[DataType, ...]) -> Signature | None:
    """The signature of `name` for arguments of these types, or None if it cannot be applied to them."""
    scalar = SCALAR_FUNCTIONS[name]
    least, greatest = scalar.arity
    if len(arg_types) < least or (greatest is not None and len(arg_types) > greatest):
        return None
    return scalar.resolve(arg_types)


def evaluate(name: str, values: tuple[Value, ...], signature: Signature) -> Value:
    """The result for values that already have the argument types of the signature."""
    scalar = SCALAR_FUNCTIONS[name]
    return None if scalar.strict and None in values else scalar.apply(values, signature)


def type_of(expr: Expr, types: Mapping[str, DataType]) -> DataType:
    """The type of an expression in which all coercions are explicit. Raises an error if it is not valid."""
    match expr:
        case ColumnRef(name):
            if name not in types:
                raise error("E022", f"there is no column {name}", expr.span, did_you_mean(name, types))
            return types[name]
        case Constant():
            return expr.type
        case Call():
            return signature_of(expr, types).result
        case Cast():
            source = type_of(expr.arg, types)
            if not can_cast(source, expr.type):
                raise error("E031", f"{source} cannot be cast to {expr.type}", expr.span)
            return expr.type
        case Case(branches, otherwise):
            result = type_of(otherwise, types)
            for condition, value in branches:
                expect_type(condition, BOOL, types)
                expect_type(value, result, types)
            return result
    raise AssertionError(expr)


def expect_type(expr: Expr, expected: DataType, types: Mapping[str, DataType]) -> None:
    actual = type_of(expr, types)
    if actual != expected:
        raise error("E031", f"expected {expected}, found {actual}", expr.span)


def signature_of(call: Call, types: Mapping[str, DataType]) -> Signature:
    if call.function not in SCALAR_FUNCTIONS:
        raise error(
            "E026", f"there is no function {call.function}", call.span, did_you_mean(call.function, SCALAR_FUNCTIONS)
        )
    arg_types = tuple(type_of(a, types) for a in call.args)
    signature = resolve_signature(call.function, arg_types)
    if signature is None or signature.args != arg_types:
        arg_list = ", ".join(map(str, arg_types))
        raise error("E031", f"{call.function} cannot be applied to ({arg_list})", call.span)
    return signature


def evaluate_expr(expr: Expr, row: Mapping[str, Value], types: Mapping[str, DataType]) -> Value:
    """The value of an expression for a row of plain values."""
    match expr:
        case ColumnRef():
            return row[expr.name]
        case Constant():
            return expr.value
        case Call():
            values = tuple(evaluate_expr(a, row, types) for a in expr.args)
            return evaluate(expr.function, values, signature_of(expr, types))
        case Cast():
            return cast(evaluate_expr(expr.arg, row, types), type_of(expr.arg, types), expr.type)
        case Case():
            for condition, result in expr.branches:
                if evaluate_expr(condition, row, types) is True:
                    return evaluate_expr(result, row, types)
            return evaluate_expr(expr.otherwise, row, types)
    raise AssertionError(expr)
