"""Whole numbers, exactly: every result is the true one, as int64 where all of a column fit, else as Python's integers.

What lies where no value is valid is computed too, and means nothing: it may cost time, never correctness.
"""

from typing import Final

import numpy as np

from smile.algebra.types import INT_MAX, INT_MIN
from smile.columns.values import Array, Bools, narrow

_INT64_DIGITS: Final = 18
"""10 to this power, and twice that, is within 64 bits."""
_PRODUCT_LIMIT: Final = 9.2e18
"""A product of floats that is smaller than this is within 64 bits, however it was rounded."""


def add(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return narrow(a + b)
    total = a + b
    if (((a ^ total) & (b ^ total)) < 0).any():
        return a.astype(object) + b.astype(object)
    return total


def subtract(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return narrow(a - b)
    difference = a - b
    if (((a ^ b) & (a ^ difference)) < 0).any():
        return a.astype(object) - b.astype(object)
    return difference


def multiply(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return narrow(a * b)
    if (np.abs(a.astype(np.float64) * b.astype(np.float64)) >= _PRODUCT_LIMIT).any():
        return narrow(a.astype(object) * b.astype(object))
    return a * b


def negate(a: Array) -> Array:
    if a.dtype == object:
        return narrow(-a)
    return -a.astype(object) if (a == INT_MIN).any() else -a


def absolute(a: Array) -> Array:
    if a.dtype == object:
        return narrow(abs(a))
    return abs(a.astype(object)) if (a == INT_MIN).any() else np.abs(a)


def scale_up(a: Array, places: int) -> Array:
    """Times ten to the power of `places`, which is not negative."""
    if not places:
        return a
    if a.dtype != object and places <= _INT64_DIGITS:
        limit = INT_MAX // 10**places
        if not ((a > limit) | (a < -limit)).any():
            return a * 10**places
    return narrow(a.astype(object) * 10**places)


def scale_down_half_away(a: Array, places: int) -> Array:
    """Divided by ten to the power of `places`, ties away from zero."""
    if not places:
        return a
    quotients, twice_remainder, unit = _divide_by_power(a, places)
    return narrow(quotients + ((twice_remainder > unit) | ((twice_remainder == unit) & (a >= 0))))


def scale_down_floor(a: Array, places: int) -> Array:
    return narrow(_divide_by_power(a, places)[0]) if places else a


def scale_down_ceil(a: Array, places: int) -> Array:
    """To the next whole number that is not smaller."""
    if not places:
        return a
    quotients, twice_remainder, _ = _divide_by_power(a, places)
    return narrow(quotients + (twice_remainder > 0))


def scale_down_truncate(a: Array, places: int) -> Array:
    """Toward zero."""
    if not places:
        return a
    quotients, twice_remainder, _ = _divide_by_power(a, places)
    return narrow(quotients + ((twice_remainder > 0) & (a < 0)))


def _divide_by_power(a: Array, places: int) -> tuple[Array, Array, int]:
    """The quotient rounded down, twice the rest, and the divisor."""
    if places > _INT64_DIGITS:
        a = a.astype(object)
    unit = 10**places
    quotients = a // unit
    return quotients, 2 * (a - quotients * unit), unit


def remainder(a: Array, b: Array) -> Array:
    """With the sign of `a`; where `b` is zero, anything."""
    if a.dtype == object or b.dtype == object:
        a, b = a.astype(object), b.astype(object)
        rest = abs(a) % np.where(b == 0, 1, abs(b))
        return narrow(np.where(a < 0, -rest, rest))
    # What is left of a division by one is nothing, and the least integer divided by minus one would overflow.
    return np.fmod(a, np.where((b == 0) | (b == -1), 1, b))


def quotient(a: Array, b: Array) -> Array:
    """Rounded toward zero; where `b` is zero, anything."""
    if a.dtype != object and b.dtype != object:
        if ((a == INT_MIN) & (b == -1)).any():
            a = a.astype(object)
        else:
            b = np.where(b == 0, 1, b)
            return (a - remainder(a, b)) // b
    b = np.where(b == 0, 1, b.astype(object))
    return narrow((a.astype(object) - remainder(a, b)) // b)


def ratio(a: Array, b: Array, places: int) -> Array:
    """The quotient times ten to the power of `places`, ties away from zero; where `b` is zero, anything."""
    a, b = a.astype(object) * 10**places, b.astype(object)
    size = np.where(b == 0, 1, abs(b))
    units = (2 * abs(a) + size) // (2 * size)
    return narrow(np.where((a < 0) != (b < 0), -units, units))


def zero_out_of_bounds(data: Array, least: int, greatest: int) -> tuple[Array, Bools | None]:
    """The same numbers, and where they are out of bounds (None: nowhere). Those that are out of bounds become zero."""
    if data.dtype != object and least <= INT_MIN and greatest >= INT_MAX:
        return data, None
    out_of_bounds = np.asarray((data < least) | (data > greatest), bool)
    if not out_of_bounds.any():
        return data, None
    return narrow(np.where(out_of_bounds, 0, data)), out_of_bounds
