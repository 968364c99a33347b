"""Comparisons, Boolean operators and functions of NULL, with the three-valued logic of SQL."""

from collections.abc import Callable
from typing import Any, Final

from smile.algebra.functions.base import (
    DECREASING,
    INCREASING,
    NOT_MONOTONE,
    ScalarFunction,
    Signature,
    common_type_of_all,
)
from smile.algebra.types import BOOL, JSON, NULL, DataType, Value

COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")


def _comparison_signature(types: tuple[DataType, ...]) -> Signature | None:
    common = common_type_of_all(types)
    return None if common is None or common.name == "relation" else Signature((common,) * len(types), BOOL)


def _order_signature(types: tuple[DataType, ...]) -> Signature | None:
    """As of a comparison, of types whose values have an order."""
    return None if JSON in types else _comparison_signature(types)


def _logic_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((BOOL,) * len(types), BOOL) if all(t in (BOOL, NULL) for t in types) else None


def _null_test_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature(types, BOOL)


def _choice_signature(types: tuple[DataType, ...]) -> Signature | None:
    common = common_type_of_all(types)
    return None if common is None or common.name == "relation" else Signature((common,) * len(types), common)


def _extreme_signature(types: tuple[DataType, ...]) -> Signature | None:
    return None if JSON in types else _choice_signature(types)


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
    """NULLs are ignored, as in PostgreSQL. The result is NULL if all values are NULL."""
    return lambda values, signature: choose((v for v in values if v is not None), default=None)


FUNCTIONS: Final = (
    ScalarFunction("=", (2, 2), _comparison_signature, _compare(lambda a, b: a == b), (NOT_MONOTONE, NOT_MONOTONE)),
    ScalarFunction("<>", (2, 2), _comparison_signature, _compare(lambda a, b: a != b), (NOT_MONOTONE, NOT_MONOTONE)),
    ScalarFunction("<", (2, 2), _order_signature, _compare(lambda a, b: a < b), (DECREASING, INCREASING)),
    ScalarFunction("<=", (2, 2), _order_signature, _compare(lambda a, b: a <= b), (DECREASING, INCREASING)),
    ScalarFunction(">", (2, 2), _order_signature, _compare(lambda a, b: a > b), (INCREASING, DECREASING)),
    ScalarFunction(">=", (2, 2), _order_signature, _compare(lambda a, b: a >= b), (INCREASING, DECREASING)),
    ScalarFunction("and", (2, None), _logic_signature, _and, (INCREASING,), strict=False),
    ScalarFunction("or", (2, None), _logic_signature, _or, (INCREASING,), strict=False),
    ScalarFunction("not", (1, 1), _logic_signature, _not, (DECREASING,)),
    ScalarFunction("is null", (1, 1), _null_test_signature, _is_null, (NOT_MONOTONE,), strict=False),
    ScalarFunction("is not null", (1, 1), _null_test_signature, _is_not_null, (NOT_MONOTONE,), strict=False),
    ScalarFunction(
        "is distinct from", (2, 2), _comparison_signature, _is_distinct, (NOT_MONOTONE, NOT_MONOTONE), strict=False
    ),
    ScalarFunction(
        "is not distinct from",
        (2, 2),
        _comparison_signature,
        _is_not_distinct,
        (NOT_MONOTONE, NOT_MONOTONE),
        strict=False,
    ),
    ScalarFunction("coalesce", (1, None), _choice_signature, _coalesce, (INCREASING,), strict=False),
    ScalarFunction("nullif", (2, 2), _choice_signature, _nullif, (NOT_MONOTONE, NOT_MONOTONE), strict=False),
    ScalarFunction("greatest", (1, None), _extreme_signature, _extreme(max), (INCREASING,), strict=False),
    ScalarFunction("least", (1, None), _extreme_signature, _extreme(min), (INCREASING,), strict=False),
)
