"""Casts of columns, as `smile.algebra.coercions.cast` does them value by value. To and from text they still go so."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from smile.algebra.coercions import MICROSECONDS_PER_DAY, cast
from smile.algebra.types import FLOAT, TICKS_PER_MICROSECOND, DataType
from smile.columns import exact
from smile.columns.values import Array, Bools
from smile.kernels.expressions.by_value import by_value
from smile.kernels.expressions.numbers import Data, Kernel, Result, bounds_of, scale_of

_WHOLE: Final = ("int", "decimal")
_EXACT_FLOAT: Final = 2**53
_EXACT_POWER: Final = 22
"""Up to this power of ten, and up to that integer, floats are exact: their quotient is rounded once."""


def cast_kernel(source: DataType, target: DataType) -> Kernel:
    found = _by_columns(source, target)
    return found or by_value(lambda values: cast(values[0], source, target), (source,), target)


def is_injective(source: DataType, target: DataType) -> bool:
    """Whether different values always stay different."""
    kept = source.name in _WHOLE and target.name in _WHOLE and scale_of(target) >= scale_of(source)
    return kept or {source.name, target.name} == {"int", "time"}


def _by_columns(source: DataType, target: DataType) -> Kernel | None:
    pair = source.name, target.name
    if source.name in _WHOLE and target.name in _WHOLE:
        return _rescaled(source, target)
    if target == FLOAT and source.name in _WHOLE:
        return _to_float(source)
    if pair == ("float", "int"):
        return _float_to_int
    if pair == ("int", "bool"):
        return lambda operands, _: (np.asarray(operands[0] != 0, bool), None)
    if pair == ("bool", "int"):
        return lambda operands, _: (operands[0].astype(np.int64), None)
    if pair in (("int", "time"), ("time", "int")):
        least, greatest = bounds_of(target)
        return lambda operands, _: exact.fitted(operands[0], least, greatest)
    if pair in _MOMENTS:
        return _moved(_MOMENTS[pair], target)
    return None


def _rescaled(source: DataType, target: DataType) -> Kernel:
    places = scale_of(target) - scale_of(source)
    least, greatest = bounds_of(target)
    if places >= 0:
        return lambda operands, _: exact.fitted(exact.scaled(operands[0], places), least, greatest)
    return lambda operands, _: exact.fitted(exact.rounded(operands[0], -places), least, greatest)


def _to_float(source: DataType) -> Kernel:
    scale = scale_of(source)
    slowly = by_value(lambda values: cast(values[0], source, FLOAT), (source,), FLOAT)

    def run(operands: Sequence[Data], valid: Bools | None) -> Result:
        (data,) = operands
        if data.dtype != object:
            if not scale:
                return data.astype(np.float64), None
            if scale <= _EXACT_POWER and not ((data > _EXACT_FLOAT) | (data < -_EXACT_FLOAT)).any():
                return data / float(10**scale), None
        return slowly(operands, valid)

    return run


def _float_to_int(operands: Sequence[Data], _valid: Bools | None) -> Result:
    """Ties to the even number."""
    whole = np.rint(operands[0])
    out = ~((whole >= -(2.0**63)) & (whole < 2.0**63))
    if not out.any():
        return whole.astype(np.int64), None
    return np.where(out, 0.0, whole).astype(np.int64), out


def _days(microseconds: Array) -> Array:
    return microseconds // MICROSECONDS_PER_DAY


_MICROSECOND: Final = np.array([TICKS_PER_MICROSECOND])
_DAY: Final = np.array([MICROSECONDS_PER_DAY])
_MOMENTS: Final[dict[tuple[str, str], Callable[[Array], Array]]] = {
    ("time", "timestamp"): lambda a: a >> 10,
    ("time", "date"): lambda a: _days(a >> 10),
    ("timestamp", "date"): _days,
    ("timestamp", "time"): lambda a: exact.multiplied(a, _MICROSECOND),
    ("date", "timestamp"): lambda a: exact.multiplied(a, _DAY),
    ("date", "time"): lambda a: exact.multiplied(exact.multiplied(a, _DAY), _MICROSECOND),
}


def _moved(compute: Callable[[Any], Array], target: DataType) -> Kernel:
    least, greatest = bounds_of(target)
    return lambda operands, _: exact.fitted(compute(operands[0]), least, greatest)
