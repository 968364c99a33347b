"""What an entry of the catalogue is: types in, type out, a value for values, and how it grows in each argument."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from smile.algebra.coercions import common_type
from smile.algebra.types import NULL, STRING, DataType, Value


class Growth(Enum):
    """How a function answers to one argument while the others stand still (false is below true)."""

    UP = "non-decreasing"
    DOWN = "non-increasing"
    EITHER = "one or the other, as the other arguments decide"
    NEITHER = "neither"


UP, DOWN, EITHER, NEITHER = Growth


@dataclass(frozen=True)
class Signature:
    """The type each argument must be cast to, and the type of the result."""

    args: tuple[DataType, ...]
    result: DataType


Fit = Callable[[tuple[DataType, ...]], Signature | None]
Apply = Callable[[tuple[Value, ...], Signature], Value]
Limit = Callable[[tuple[Value, ...]], Value]


@dataclass(frozen=True)
class Scalar:
    """One operator or function.

    `strict`: NULL for any argument gives NULL, and `apply` never sees one. `partial`: NULL may also come of arguments
    none of which is NULL. `growth` is of each argument, the last one of all that follow. `pivot` is, of an argument,
    a value at which growth changes or the function is undefined: to either side of it `growth` holds. `limit` is the
    value where arguments (as infinite floats) leave all bounds; an infinite result is no bound, None is NULL, perhaps.
    """

    name: str
    arity: tuple[int, int | None]
    fit: Fit
    apply: Apply
    growth: tuple[Growth, ...]
    strict: bool = True
    partial: bool = False
    pivot: dict[int, int] = field(default_factory=dict)
    limit: Limit | None = None

    def growth_in(self, argument: int) -> Growth:
        return self.growth[min(argument, len(self.growth) - 1)]


INFINITE: Final = math.inf


def same_type(types: tuple[DataType, ...]) -> DataType | None:
    """What all are coerced to, or None."""
    common: DataType | None = NULL
    for t in types:
        common = common_type(common, t) if common is not None else None
    return common


def fixed(args: tuple[DataType, ...], result: DataType, optional: int = 0) -> Fit:
    """Exactly these types (or NULL); the last `optional` may be left out."""

    def fit(types: tuple[DataType, ...]) -> Signature | None:
        wanted = args[: len(types)]
        fitting = len(args) - optional <= len(types) <= len(args) and all(
            t in (w, NULL) for t, w in zip(types, wanted, strict=True)
        )
        return Signature(wanted, result) if fitting else None

    return fit


def is_text(type: DataType) -> bool:
    return type in (STRING, NULL)
