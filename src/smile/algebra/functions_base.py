"""What an entry of the catalogue is: types in, type out, a value for values, and how it grows in each argument."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from smile.algebra.coercions import common_type
from smile.algebra.types import NULL, STRING, DataType, Value


class Monotonicity(Enum):
    """How a function answers to one argument while the others stand still (false is below true)."""

    INCREASING = "non-decreasing"
    DECREASING = "non-increasing"
    MONOTONE = "one or the other, as the other arguments decide"
    NOT_MONOTONE = "neither"


INCREASING, DECREASING, MONOTONE, NOT_MONOTONE = Monotonicity


@dataclass(frozen=True)
class Signature:
    """The type each argument must be cast to, and the type of the result."""

    args: tuple[DataType, ...]
    result: DataType


SignatureResolver = Callable[[tuple[DataType, ...]], Signature | None]
ValueFunction = Callable[[tuple[Value, ...], Signature], Value]
LimitFunction = Callable[[tuple[Value, ...]], Value]


@dataclass(frozen=True)
class ScalarFunction:
    """One operator or function.

    `strict`: NULL for any argument gives NULL, and `apply` never sees one. `partial`: NULL may also come of arguments
    none of which is NULL. `growth` is of each argument, the last one of all that follow. `pivot` is, of an argument,
    a value at which growth changes or the function is undefined: to either side of it `growth` holds. `limit` is the
    value where arguments (as infinite floats) leave all bounds; an infinite result is no bound, None is NULL, perhaps.
    """

    name: str
    arity: tuple[int, int | None]
    resolve: SignatureResolver
    apply: ValueFunction
    monotonicity: tuple[Monotonicity, ...]
    strict: bool = True
    partial: bool = False
    turning_points: dict[int, int] = field(default_factory=dict)
    limit_at_infinity: LimitFunction | None = None

    def monotonicity_in(self, argument: int) -> Monotonicity:
        return self.monotonicity[min(argument, len(self.monotonicity) - 1)]


INFINITY: Final = math.inf


def common_type_of_all(types: tuple[DataType, ...]) -> DataType | None:
    """What all are coerced to, or None."""
    common: DataType | None = NULL
    for t in types:
        common = common_type(common, t) if common is not None else None
    return common


def fixed_signature(args: tuple[DataType, ...], result: DataType, optional: int = 0) -> SignatureResolver:
    """Exactly these types (or NULL); the last `optional` may be left out."""

    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        expected = args[: len(types)]
        fits = len(args) - optional <= len(types) <= len(args) and all(
            t in (w, NULL) for t, w in zip(types, expected, strict=True)
        )
        return Signature(expected, result) if fits else None

    return resolve


def is_text_type(type: DataType) -> bool:
    return type in (STRING, NULL)
