"""Exact arithmetic on columns of integers. Every result is exact: int64 if the whole column fits, else Python integers.

Entries that are not valid are computed too, and their results have no meaning: they may cost time, never correctness.
"""

from typing import Final

import numpy as np

from smile.algebra.types import INT_MAX, INT_MIN
from smile.columns.values import Array, Bools, narrow

_INT64_DIGITS: Final = 18
"""Ten to this power, and twice that, fits into 64 bits."""
_PRODUCT_LIMIT: Final = 9.2e18
"""If the product of two integers as floats is below this, the exact product fits into 64 bits, despite rounding."""


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
    """Multiplies by ten to the power of `places`, which is not negative."""
    if not places:
        return a
    if a.dtype != object and places <= _INT64_DIGITS:
        limit = INT_MAX // 10**places
        if not ((a > limit) | (a < -limit)).any():
            return a * 10**places
    return narrow(a.astype(object) * 10**places)


def scale_down_half_away(a: Array, places: int) -> Array:
    """Divides by ten to the power of `places`. Rounds to the nearest integer, ties away from zero."""
    if not places:
        return a
    quotients, twice_remainder, unit = _divide_by_power(a, places)
    return narrow(quotients + ((twice_remainder > unit) | ((twice_remainder == unit) & (a >= 0))))


def scale_down_floor(a: Array, places: int) -> Array:
    """Rounds down."""
    return narrow(_divide_by_power(a, places)[0]) if places else a


def scale_down_ceil(a: Array, places: int) -> Array:
    """Rounds up."""
    if not places:
        return a
    quotients, twice_remainder, _ = _divide_by_power(a, places)
    return narrow(quotients + (twice_remainder > 0))


def scale_down_truncate(a: Array, places: int) -> Array:
    """Rounds toward zero."""
    if not places:
        return a
    quotients, twice_remainder, _ = _divide_by_power(a, places)
    return narrow(quotients + ((twice_remainder > 0) & (a < 0)))


def _divide_by_power(a: Array, places: int) -> tuple[Array, Array, int]:
    """The quotient rounded down, twice the remainder, and the divisor."""
    if places > _INT64_DIGITS:
        a = a.astype(object)
    unit = 10**places
    quotients = a // unit
    return quotients, 2 * (a - quotients * unit), unit


def remainder(a: Array, b: Array) -> Array:
    """The remainder with the sign of `a`. Where `b` is zero the result has no meaning."""
    if a.dtype == object or b.dtype == object:
        a, b = a.astype(object), b.astype(object)
        magnitude = abs(a) % np.where(b == 0, 1, abs(b))
        return narrow(np.where(a < 0, -magnitude, magnitude))
    # INT_MIN divided by -1 would overflow. The remainder of a division by 1 is 0 as well.
    return np.fmod(a, np.where((b == 0) | (b == -1), 1, b))


def quotient(a: Array, b: Array) -> Array:
    """The quotient rounded toward zero. Where `b` is zero the result has no meaning."""
    if a.dtype != object and b.dtype != object:
        if ((a == INT_MIN) & (b == -1)).any():
            a = a.astype(object)
        else:
            b = np.where(b == 0, 1, b)
            return (a - remainder(a, b)) // b
    b = np.where(b == 0, 1, b.astype(object))
    return narrow((a.astype(object) - remainder(a, b)) // b)


def ratio(a: Array, b: Array, places: int) -> Array:
    """The quotient times ten to the power of `places`, rounded to the nearest integer, ties away from zero. Where `b`
    is zero the result has no meaning."""
    a, b = a.astype(object) * 10**places, b.astype(object)
    divisors = np.where(b == 0, 1, abs(b))
    magnitudes = (2 * abs(a) + divisors) // (2 * divisors)
    return narrow(np.where((a < 0) != (b < 0), -magnitudes, magnitudes))


def zero_out_of_bounds(data: Array, least: int, greatest: int) -> tuple[Array, Bools | None]:
    """The numbers with those that are out of bounds replaced by zero, and where these are (None: nowhere)."""
    if data.dtype != object and least <= INT_MIN and greatest >= INT_MAX:
        return data, None
    out_of_bounds = np.asarray((data < least) | (data > greatest), bool)
    if not out_of_bounds.any():
        return data, None
    return narrow(np.where(out_of_bounds, 0, data)), out_of_bounds
