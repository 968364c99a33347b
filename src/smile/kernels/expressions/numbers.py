"""Arithmetic on columns, as `smile.algebra.functions_arithmetic` has it row by row: exact, and NULL where it overflows.

A decimal is its integer without the point. A kernel is handed what is valid in all of its operands, but computes
everywhere; it gives the data, and where there is no value although all operands have one (None: nowhere).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, decimal_shape
from smile.algebra.functions_base import Signature
from smile.algebra.types import FLOAT, INT_MAX, INT_MIN, INTERVAL, TICKS_PER_MICROSECOND, TIMESTAMP, DataType
from smile.columns import exact
from smile.columns.values import Array, Bools

Data = Any  # an array of NumPy or of Arrow
Result = tuple[Data, Bools | None]
Kernel = Callable[[Sequence[Data], Bools | None], Result]

_MOMENTS: Final = {"timestamp": (TIMESTAMP_MIN, TIMESTAMP_MAX), "date": (DATE_MIN, DATE_MAX)}


def bounds_of(data: DataType) -> tuple[int, int]:
    """Of the integers that stand for a type's values."""
    if data.name == "decimal":
        most = 10 ** decimal_shape(data)[0] - 1
        return -most, most
    return _MOMENTS.get(data.name, (INT_MIN, INT_MAX))


def scale_of(data: DataType) -> int:
    return decimal_shape(data)[1] if data.name == "decimal" else 0


def kernel(name: str, signature: Signature) -> Kernel | None:
    """None if this one is not computed by columns."""
    makers = _OF_FLOATS if signature.args[0] == FLOAT else _OF_INTEGERS
    if name not in makers or (FLOAT in signature.args) != all(t == FLOAT for t in signature.args):
        return None
    return makers[name](signature)


# ── integers and decimals ───────────────────────────────────────────────────────────────────────────────────────────


def _sum(combine: Callable[[Array, Array], Array]) -> Callable[[Signature], Kernel]:
    """Of operands in one unit: the finer scale, or the unit of the result's line."""

    def make(signature: Signature) -> Kernel:
        least, greatest = bounds_of(signature.result)
        if signature.result == INTERVAL and signature.args[0] == TIMESTAMP:
            return lambda operands, _: exact.fitted(
                exact.multiplied(combine(*operands), np.full(1, TICKS_PER_MICROSECOND)), least, greatest
            )
        if signature.result == TIMESTAMP:
            lengths = [t == INTERVAL for t in signature.args]

            def moved(operands: Sequence[Data], _valid: Bools | None) -> Result:
                a, b = (d // TICKS_PER_MICROSECOND if long else d for d, long in zip(operands, lengths, strict=True))
                return exact.fitted(combine(a, b), least, greatest)

            return moved
        scale = scale_of(signature.result)
        x, y = (scale - scale_of(t) for t in signature.args)
        if x or y:
            return lambda operands, _: exact.fitted(
                combine(exact.scaled(operands[0], x), exact.scaled(operands[1], y)), least, greatest
            )
        return lambda operands, _: exact.fitted(combine(operands[0], operands[1]), least, greatest)

    return make


def _times(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    places = sum(map(scale_of, signature.args)) - scale_of(signature.result)
    return lambda operands, _: exact.fitted(exact.rounded(exact.multiplied(*operands), places), least, greatest)


def _by_zero(found: Result, divisor: Array) -> Result:
    """The same, without a value where the divisor is zero."""
    zero = divisor == 0
    if not zero.any():
        return found
    data, bad = found
    return data, zero if bad is None else zero | bad


def _divided(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    if signature.result.name != "decimal":
        return lambda operands, _: _by_zero(exact.fitted(exact.quotient(*operands), least, greatest), operands[1])
    a, b = map(scale_of, signature.args)
    places = scale_of(signature.result) + b - a
    return lambda operands, _: _by_zero(
        exact.fitted(exact.ratio(operands[0], operands[1], places), least, greatest), operands[1]
    )


def _modulo(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    scale = scale_of(signature.result)
    x, y = (scale - scale_of(t) for t in signature.args)
    return lambda operands, _: _by_zero(
        exact.fitted(exact.remainder(exact.scaled(operands[0], x), exact.scaled(operands[1], y)), least, greatest),
        operands[1],
    )


def _of_one(compute: Callable[[Array], Array]) -> Callable[[Signature], Kernel]:
    def make(signature: Signature) -> Kernel:
        least, greatest = bounds_of(signature.result)
        return lambda operands, _: exact.fitted(compute(operands[0]), least, greatest)

    return make


def _sign(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    scale = scale_of(signature.result)

    def sign(operands: Sequence[Data], _valid: Bools | None) -> Result:
        (a,) = operands
        found = (a > 0).astype(np.int64) - (a < 0).astype(np.int64)
        return exact.fitted(exact.scaled(found, scale), least, greatest)

    return sign


def _whole(compute: Callable[[Array, int], Array]) -> Callable[[Signature], Kernel | None]:
    """To a whole number. How many places are kept must be the same for all rows."""

    def make(signature: Signature) -> Kernel | None:
        if len(signature.args) > 1:
            return None
        places = scale_of(signature.args[0])
        least, greatest = bounds_of(signature.result)
        return lambda operands, _: exact.fitted(compute(operands[0], places), least, greatest)

    return make


_OF_INTEGERS: Final[dict[str, Callable[[Signature], Kernel | None]]] = {
    "+": _sum(exact.added),
    "-": _sum(exact.subtracted),
    "*": _times,
    "/": _divided,
    "%": _modulo,
    "neg": _of_one(exact.negated),
    "abs": _of_one(exact.absolute),
    "sign": _sign,
    "round": _whole(exact.rounded),
    "floor": _whole(exact.floored),
    "ceil": _whole(exact.raised),
    "trunc": _whole(exact.cut),
}


# ── floats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def finite(data: Array) -> Result:
    """Infinities and what is no number are no values."""
    there = np.isfinite(data)
    return (data, None) if there.all() else (data, ~there)


def _ieee(compute: Callable[..., Array]) -> Callable[[Signature], Kernel]:
    def run(operands: Sequence[Data], _valid: Bools | None) -> Result:
        with np.errstate(all="ignore"):
            return finite(compute(*operands))

    return lambda _: run


def _keeping_sign(compute: Callable[[Array], Array]) -> Callable[[Signature], Kernel]:
    return _ieee(lambda a: np.copysign(compute(a), a))


_OF_FLOATS: Final[dict[str, Callable[[Signature], Kernel | None]]] = {
    "+": _ieee(np.add),
    "-": _ieee(np.subtract),
    "*": _ieee(np.multiply),
    "/": _ieee(np.divide),
    "neg": _ieee(np.negative),
    "abs": _ieee(np.abs),
    "sign": _ieee(lambda a: np.sign(a) + 0.0),
    "round": _keeping_sign(np.rint),
    "floor": _keeping_sign(np.floor),
    "ceil": _keeping_sign(np.ceil),
    "trunc": _keeping_sign(np.trunc),
    "sqrt": _ieee(np.sqrt),
}
