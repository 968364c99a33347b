"""Comparisons, Boolean logic and the treatment of NULL: exactly SQL's three values, whatever the operands."""

from collections.abc import Callable
from typing import Any, Final

from smile.algebra.functions_base import DOWN, NEITHER, UP, Scalar, Signature, same_type
from smile.algebra.types import BOOL, NULL, DataType, Value

COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")


def _fit_comparison(types: tuple[DataType, ...]) -> Signature | None:
    common = same_type(types)
    return None if common is None or common.name == "relation" else Signature((common,) * len(types), BOOL)


def _fit_logic(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((BOOL,) * len(types), BOOL) if all(t in (BOOL, NULL) for t in types) else None


def _fit_null_test(types: tuple[DataType, ...]) -> Signature | None:
    return Signature(types, BOOL)


def _fit_choice(types: tuple[DataType, ...]) -> Signature | None:
    common = same_type(types)
    return None if common is None or common.name == "relation" else Signature((common,) * len(types), common)


def _compare(operator: Callable[[Any, Any], bool]) -> Callable[[tuple[Value, ...], Signature], Value]:
    return lambda values, signature: operator(*values)


def _and(values: tuple[Value, ...], signature: Signature) -> Value:
    return False if any(v is False for v in values) else None if None in values else True


def _or(values: tuple[Value, ...], signature: Signature) -> Value:
    return True if any(v is True for v in values) else None if None in values else False


def _not(values: tuple[Value, ...], signature: Signature) -> Value:
    return not values[0]


def _is_null(values: tuple[Value, ...], signature: Signature) -> Value:
    return values[0] is None


def _is_not_null(values: tuple[Value, ...], signature: Signature) -> Value:
    return values[0] is not None


def _is_distinct(values: tuple[Value, ...], signature: Signature) -> Value:
    a, b = values
    return (a is None) != (b is None) or a != b


def _is_not_distinct(values: tuple[Value, ...], signature: Signature) -> Value:
    return not _is_distinct(values, signature)


def _coalesce(values: tuple[Value, ...], signature: Signature) -> Value:
    return next((v for v in values if v is not None), None)


def _nullif(values: tuple[Value, ...], signature: Signature) -> Value:
    a, b = values
    return None if a is not None and b is not None and a == b else a


def _extreme(choose: Any) -> Callable[[tuple[Value, ...], Signature], Value]:
    """NULLs are ignored, as in PostgreSQL; NULL if all are."""
    return lambda values, signature: choose((v for v in values if v is not None), default=None)


FUNCTIONS: Final = (
    Scalar("=", (2, 2), _fit_comparison, _compare(lambda a, b: a == b), (NEITHER, NEITHER)),
    Scalar("<>", (2, 2), _fit_comparison, _compare(lambda a, b: a != b), (NEITHER, NEITHER)),
    Scalar("<", (2, 2), _fit_comparison, _compare(lambda a, b: a < b), (DOWN, UP)),
    Scalar("<=", (2, 2), _fit_comparison, _compare(lambda a, b: a <= b), (DOWN, UP)),
    Scalar(">", (2, 2), _fit_comparison, _compare(lambda a, b: a > b), (UP, DOWN)),
    Scalar(">=", (2, 2), _fit_comparison, _compare(lambda a, b: a >= b), (UP, DOWN)),
    Scalar("and", (2, None), _fit_logic, _and, (UP,), strict=False),
    Scalar("or", (2, None), _fit_logic, _or, (UP,), strict=False),
    Scalar("not", (1, 1), _fit_logic, _not, (DOWN,)),
    Scalar("is null", (1, 1), _fit_null_test, _is_null, (NEITHER,), strict=False),
    Scalar("is not null", (1, 1), _fit_null_test, _is_not_null, (NEITHER,), strict=False),
    Scalar("is distinct from", (2, 2), _fit_comparison, _is_distinct, (NEITHER, NEITHER), strict=False),
    Scalar("is not distinct from", (2, 2), _fit_comparison, _is_not_distinct, (NEITHER, NEITHER), strict=False),
    Scalar("coalesce", (1, None), _fit_choice, _coalesce, (UP,), strict=False),
    Scalar("nullif", (2, 2), _fit_choice, _nullif, (NEITHER, NEITHER), strict=False),
    Scalar("greatest", (1, None), _fit_choice, _extreme(max), (UP,), strict=False),
    Scalar("least", (1, None), _fit_choice, _extreme(min), (UP,), strict=False),
)
