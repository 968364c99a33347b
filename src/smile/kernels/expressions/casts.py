"""Casts of columns, with the results of `smile.algebra.coercions.cast`. Casts to and from text go value by value."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from smile.algebra.coercions import MICROSECONDS_PER_DAY, cast
from smile.algebra.types import FLOAT, TICKS_PER_MICROSECOND, DataType
from smile.columns import exact
from smile.columns.values import Array, Bools
from smile.kernels.expressions.arithmetic_kernels import ColumnData, Kernel, KernelResult, bounds_of, scale_of
from smile.kernels.expressions.python_kernels import python_kernel

_INTEGER_TYPES: Final = ("int", "decimal")
_EXACT_FLOAT: Final = 2**53
_EXACT_POWER: Final = 22
"""Up to this power of ten, and up to `_EXACT_FLOAT`, integers are exact as floats: their quotient is rounded once."""


def cast_kernel(source: DataType, target: DataType) -> Kernel:
    column_kernel = _column_cast_kernel(source, target)
    return column_kernel or python_kernel(lambda values: cast(values[0], source, target), (source,), target)


def is_injective(source: DataType, target: DataType) -> bool:
    """Whether the cast maps different values to different values."""
    keeps_digits = (
        source.name in _INTEGER_TYPES and target.name in _INTEGER_TYPES and scale_of(target) >= scale_of(source)
    )
    return keeps_digits or {source.name, target.name} == {"int", "time"}


def _column_cast_kernel(source: DataType, target: DataType) -> Kernel | None:
    pair = source.name, target.name
    if source.name in _INTEGER_TYPES and target.name in _INTEGER_TYPES:
        return _rescale_kernel(source, target)
    if target == FLOAT and source.name in _INTEGER_TYPES:
        return _to_float_kernel(source)
    if pair == ("float", "int"):
        return _float_to_int_kernel
    if pair == ("int", "bool"):
        return lambda operands, _: (np.asarray(operands[0] != 0, bool), None)
    if pair == ("bool", "int"):
        return lambda operands, _: (operands[0].astype(np.int64), None)
    if pair in (("int", "time"), ("time", "int")):
        least, greatest = bounds_of(target)
        return lambda operands, _: exact.zero_out_of_bounds(operands[0], least, greatest)
    if pair in _TIME_CASTS:
        return _time_cast_kernel(_TIME_CASTS[pair], target)
    return None


def _rescale_kernel(source: DataType, target: DataType) -> Kernel:
    digits = scale_of(target) - scale_of(source)
    least, greatest = bounds_of(target)
    if digits >= 0:
        return lambda operands, _: exact.zero_out_of_bounds(exact.scale_up(operands[0], digits), least, greatest)
    return lambda operands, _: exact.zero_out_of_bounds(
        exact.scale_down_half_away(operands[0], -digits), least, greatest
    )


def _to_float_kernel(source: DataType) -> Kernel:
    scale = scale_of(source)
    python_cast = python_kernel(lambda values: cast(values[0], source, FLOAT), (source,), FLOAT)

    def run(operands: Sequence[ColumnData], valid: Bools | None) -> KernelResult:
        (data,) = operands
        if data.dtype != object:
            if not scale:
                return data.astype(np.float64), None
            if scale <= _EXACT_POWER and not ((data > _EXACT_FLOAT) | (data < -_EXACT_FLOAT)).any():
                return data / float(10**scale), None
        return python_cast(operands, valid)

    return run


def _float_to_int_kernel(operands: Sequence[ColumnData], _valid: Bools | None) -> KernelResult:
    """Rounds to the nearest integer, ties to even."""
    whole = np.rint(operands[0])
    is_out_of_range = ~((whole >= -(2.0**63)) & (whole < 2.0**63))
    if not is_out_of_range.any():
        return whole.astype(np.int64), None
    return np.where(is_out_of_range, 0.0, whole).astype(np.int64), is_out_of_range


def _days(microseconds: Array) -> Array:
    return microseconds // MICROSECONDS_PER_DAY


_MICROSECOND: Final = np.array([TICKS_PER_MICROSECOND])
_DAY: Final = np.array([MICROSECONDS_PER_DAY])
_TIME_CASTS: Final[dict[tuple[str, str], Callable[[Array], Array]]] = {
    ("time", "timestamp"): lambda a: a >> 10,
    ("time", "date"): lambda a: _days(a >> 10),
    ("timestamp", "date"): _days,
    ("timestamp", "time"): lambda a: exact.multiply(a, _MICROSECOND),
    ("date", "timestamp"): lambda a: exact.multiply(a, _DAY),
    ("date", "time"): lambda a: exact.multiply(exact.multiply(a, _DAY), _MICROSECOND),
}


def _time_cast_kernel(compute: Callable[[Any], Array], target: DataType) -> Kernel:
    least, greatest = bounds_of(target)
    return lambda operands, _: exact.zero_out_of_bounds(compute(operands[0]), least, greatest)
