"""Arithmetic on columns, with the results of `smile.algebra.functions.arithmetic`: exact, and NULL where it overflows.

A decimal is its unscaled integer. A kernel gets the data of its operands, and the rows in which all operands are valid
(None: all rows). It returns the result's data, and the rows that have no result although all operands are valid (None:
none). In rows with an invalid operand its data is arbitrary: these kernels compute there too, and `python_kernels` does
not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, digits_and_scale
from smile.algebra.functions.base import Signature
from smile.algebra.types import FLOAT, INT_MAX, INT_MIN, INTERVAL, TICKS_PER_MICROSECOND, TIMESTAMP, DataType
from smile.columns import exact
from smile.columns.values import Array, Bools

ColumnData = Any  # an array of NumPy or of Arrow
KernelResult = tuple[ColumnData, Bools | None]
Kernel = Callable[[Sequence[ColumnData], Bools | None], KernelResult]

_TIME_BOUNDS: Final = {"timestamp": (TIMESTAMP_MIN, TIMESTAMP_MAX), "date": (DATE_MIN, DATE_MAX)}


def bounds_of(data: DataType) -> tuple[int, int]:
    """The least and the greatest integer that represents a value of the type."""
    if data.name == "decimal":
        greatest = 10 ** digits_and_scale(data)[0] - 1
        return -greatest, greatest
    return _TIME_BOUNDS.get(data.name, (INT_MIN, INT_MAX))


def scale_of(data: DataType) -> int:
    return digits_and_scale(data)[1] if data.name == "decimal" else 0


def arithmetic_kernel(name: str, signature: Signature) -> Kernel | None:
    """The kernel of the function; None if the function is not computed on whole columns."""
    makers = _FLOAT_KERNELS if signature.args[0] == FLOAT else _INTEGER_KERNELS
    if name not in makers or (FLOAT in signature.args) != all(t == FLOAT for t in signature.args):
        return None
    return makers[name](signature)


# ── integers and decimals ───────────────────────────────────────────────────────────────────────────────────────────


def _additive_kernel(combine: Callable[[Array, Array], Array]) -> Callable[[Signature], Kernel]:
    """Addition or subtraction. Brings both operands to one unit: the finer scale, or the result's unit of time."""

    def make(signature: Signature) -> Kernel:
        least, greatest = bounds_of(signature.result)
        if signature.result == INTERVAL and signature.args[0] == TIMESTAMP:
            return lambda operands, _: exact.zero_out_of_bounds(
                exact.multiply(combine(*operands), np.full(1, TICKS_PER_MICROSECOND)), least, greatest
            )
        if signature.result == TIMESTAMP:
            is_interval = [t == INTERVAL for t in signature.args]

            def shift_time(operands: Sequence[ColumnData], _valid: Bools | None) -> KernelResult:
                a, b = (d // TICKS_PER_MICROSECOND if i else d for d, i in zip(operands, is_interval, strict=True))
                return exact.zero_out_of_bounds(combine(a, b), least, greatest)

            return shift_time
        scale = scale_of(signature.result)
        x, y = (scale - scale_of(t) for t in signature.args)
        if x or y:
            return lambda operands, _: exact.zero_out_of_bounds(
                combine(exact.scale_up(operands[0], x), exact.scale_up(operands[1], y)), least, greatest
            )
        return lambda operands, _: exact.zero_out_of_bounds(combine(operands[0], operands[1]), least, greatest)

    return make


def _multiply_kernel(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    digits = sum(map(scale_of, signature.args)) - scale_of(signature.result)
    return lambda operands, _: exact.zero_out_of_bounds(
        exact.scale_down_half_away(exact.multiply(*operands), digits), least, greatest
    )


def _undefined_at_zero(result: KernelResult, divisor: Array) -> KernelResult:
    """The result, undefined where the divisor is zero."""
    is_zero = divisor == 0
    if not is_zero.any():
        return result
    data, undefined = result
    return data, is_zero if undefined is None else is_zero | undefined


def _divide_kernel(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    if signature.result.name != "decimal":
        return lambda operands, _: _undefined_at_zero(
            exact.zero_out_of_bounds(exact.quotient(*operands), least, greatest), operands[1]
        )
    a, b = map(scale_of, signature.args)
    digits = scale_of(signature.result) + b - a
    return lambda operands, _: _undefined_at_zero(
        exact.zero_out_of_bounds(exact.ratio(operands[0], operands[1], digits), least, greatest), operands[1]
    )


def _modulo_kernel(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    scale = scale_of(signature.result)
    x, y = (scale - scale_of(t) for t in signature.args)
    return lambda operands, _: _undefined_at_zero(
        exact.zero_out_of_bounds(
            exact.remainder(exact.scale_up(operands[0], x), exact.scale_up(operands[1], y)), least, greatest
        ),
        operands[1],
    )


def _unary_kernel(compute: Callable[[Array], Array]) -> Callable[[Signature], Kernel]:
    def make(signature: Signature) -> Kernel:
        least, greatest = bounds_of(signature.result)
        return lambda operands, _: exact.zero_out_of_bounds(compute(operands[0]), least, greatest)

    return make


def _sign_kernel(signature: Signature) -> Kernel:
    least, greatest = bounds_of(signature.result)
    scale = scale_of(signature.result)

    def sign(operands: Sequence[ColumnData], _valid: Bools | None) -> KernelResult:
        (a,) = operands
        signs = (a > 0).astype(np.int64) - (a < 0).astype(np.int64)
        return exact.zero_out_of_bounds(exact.scale_up(signs, scale), least, greatest)

    return sign


def _rounding_kernel(compute: Callable[[Array, int], Array]) -> Callable[[Signature], Kernel | None]:
    """Rounding to a whole number. With a second argument, the number of places, there is no column kernel."""

    def make(signature: Signature) -> Kernel | None:
        if len(signature.args) > 1:
            return None
        digits = scale_of(signature.args[0])
        least, greatest = bounds_of(signature.result)
        return lambda operands, _: exact.zero_out_of_bounds(compute(operands[0], digits), least, greatest)

    return make


_INTEGER_KERNELS: Final[dict[str, Callable[[Signature], Kernel | None]]] = {
    "+": _additive_kernel(exact.add),
    "-": _additive_kernel(exact.subtract),
    "*": _multiply_kernel,
    "/": _divide_kernel,
    "%": _modulo_kernel,
    "neg": _unary_kernel(exact.negate),
    "abs": _unary_kernel(exact.absolute),
    "sign": _sign_kernel,
    "round": _rounding_kernel(exact.scale_down_half_away),
    "floor": _rounding_kernel(exact.scale_down_floor),
    "ceil": _rounding_kernel(exact.scale_down_ceil),
    "trunc": _rounding_kernel(exact.scale_down_truncate),
}


# ── floats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def finite_result(data: Array) -> KernelResult:
    """The result, undefined where it is infinite or NaN."""
    is_finite = np.isfinite(data)
    return (data, None) if is_finite.all() else (data, ~is_finite)


def _float_kernel(compute: Callable[..., Array]) -> Callable[[Signature], Kernel]:
    def run(operands: Sequence[ColumnData], _valid: Bools | None) -> KernelResult:
        with np.errstate(all="ignore"):
            return finite_result(compute(*operands))

    return lambda _: run


def _sign_preserving_kernel(compute: Callable[[Array], Array]) -> Callable[[Signature], Kernel]:
    return _float_kernel(lambda a: np.copysign(compute(a), a))


_FLOAT_KERNELS: Final[dict[str, Callable[[Signature], Kernel | None]]] = {
    "+": _float_kernel(np.add),
    "-": _float_kernel(np.subtract),
    "*": _float_kernel(np.multiply),
    "/": _float_kernel(np.divide),
    "neg": _float_kernel(np.negative),
    "abs": _float_kernel(np.abs),
    "sign": _float_kernel(lambda a: np.sign(a) + 0.0),
    "round": _sign_preserving_kernel(np.rint),
    "floor": _sign_preserving_kernel(np.floor),
    "ceil": _sign_preserving_kernel(np.ceil),
    "trunc": _sign_preserving_kernel(np.trunc),
    "sqrt": _float_kernel(np.sqrt),
}
