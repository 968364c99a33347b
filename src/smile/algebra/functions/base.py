"""An entry of the function catalogue: its signatures, its values, and its monotonicity in each argument."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from smile.algebra.coercions import common_type
from smile.algebra.types import NULL, STRING, DataType, Value


class Monotonicity(Enum):
    """How the result changes when one argument rises and the others stay the same (false is below true)."""

    INCREASING = "non-decreasing"
    DECREASING = "non-increasing"
    MONOTONE = "one of the two, depending on the other arguments"
    NOT_MONOTONE = "neither"


INCREASING, DECREASING, MONOTONE, NOT_MONOTONE = Monotonicity


@dataclass(frozen=True)
class Signature:
    """The types that the arguments must be cast to, and the type of the result."""

    args: tuple[DataType, ...]
    result: DataType


SignatureResolver = Callable[[tuple[DataType, ...]], Signature | None]
ValueFunction = Callable[[tuple[Value, ...], Signature], Value]
LimitFunction = Callable[[tuple[Value, ...]], Value]


@dataclass(frozen=True)
class ScalarFunction:
    """One operator or function.

    `strict`: the result is NULL if any argument is NULL, and `apply` is never called with NULL. `partial`: the result
    may be NULL although no argument is, and the ends of the arguments' ranges do not show where. (`/`, `sqrt` and `ln`
    are not partial: where a range contains arguments without a result, one of its ends or a turning point has none. A
    function without a result for some values of a NOT_MONOTONE argument is.)
    `monotonicity` has an entry for each argument; the last one applies to all further arguments. `turning_points` has,
    by argument, the value at which the monotonicity changes or the function is undefined: on either side of it,
    `monotonicity` holds. `limit_at_infinity` is the limit of the result where arguments (given as infinite floats) are
    unbounded: an infinite limit means no bound, as does no function. `casts_arguments`: a call casts its arguments to
    the types of the signature, also where values lose something, as a tick does that becomes a timestamp.
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
    casts_arguments: bool = False

    def monotonicity_in(self, argument: int) -> Monotonicity:
        return self.monotonicity[min(argument, len(self.monotonicity) - 1)]


INFINITY: Final = math.inf


def common_type_of_all(types: tuple[DataType, ...]) -> DataType | None:
    """The type that all of them are coerced to, or None if there is none."""
    common: DataType | None = NULL
    for t in types:
        common = common_type(common, t) if common is not None else None
    return common


def fixed_signature(args: tuple[DataType, ...], result: DataType, optional: int = 0) -> SignatureResolver:
    """Accepts exactly these types, or NULL. The last `optional` arguments may be omitted."""

    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        expected = args[: len(types)]
        fits = len(args) - optional <= len(types) <= len(args) and all(
            t in (e, NULL) for t, e in zip(types, expected, strict=True)
        )
        return Signature(expected, result) if fits else None

    return resolve


def is_text_type(type: DataType) -> bool:
    return type in (STRING, NULL)
