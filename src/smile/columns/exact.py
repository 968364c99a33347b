"""Whole numbers, exactly: every result is the true one, as int64 where all of a column fit, else as Python's integers.

What lies where no value is valid is computed too, and means nothing: it may cost time, never correctness.
"""

from typing import Final

import numpy as np

from smile.algebra.types import INT_MAX, INT_MIN
from smile.columns.values import Array, Bools, narrow

_INT64_DIGITS: Final = 18
"""10 to this power, and twice that, is within 64 bits."""
_SAFE: Final = 9.2e18
"""A product of floats that is smaller than this is within 64 bits, however it was rounded."""


def added(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return narrow(a + b)
    found = a + b
    if (((a ^ found) & (b ^ found)) < 0).any():
        return a.astype(object) + b.astype(object)
    return found


def subtracted(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return narrow(a - b)
    found = a - b
    if (((a ^ b) & (a ^ found)) < 0).any():
        return a.astype(object) - b.astype(object)
    return found


def multiplied(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return narrow(a * b)
    if (np.abs(a.astype(np.float64) * b.astype(np.float64)) >= _SAFE).any():
        return narrow(a.astype(object) * b.astype(object))
    return a * b


def negated(a: Array) -> Array:
    if a.dtype == object:
        return narrow(-a)
    return -a.astype(object) if (a == INT_MIN).any() else -a


def absolute(a: Array) -> Array:
    if a.dtype == object:
        return narrow(abs(a))
    return abs(a.astype(object)) if (a == INT_MIN).any() else np.abs(a)


def scaled(a: Array, places: int) -> Array:
    """Times ten to the power of `places`, which is not negative."""
    if not places:
        return a
    if a.dtype != object and places <= _INT64_DIGITS:
        most = INT_MAX // 10**places
        if not ((a > most) | (a < -most)).any():
            return a * 10**places
    return narrow(a.astype(object) * 10**places)


def rounded(a: Array, places: int) -> Array:
    """Divided by ten to the power of `places`, ties away from zero."""
    if not places:
        return a
    whole, twice, unit = _parts(a, places)
    return narrow(whole + ((twice > unit) | ((twice == unit) & (a >= 0))))


def floored(a: Array, places: int) -> Array:
    return narrow(_parts(a, places)[0]) if places else a


def raised(a: Array, places: int) -> Array:
    """To the next whole number that is not smaller."""
    if not places:
        return a
    whole, twice, _ = _parts(a, places)
    return narrow(whole + (twice > 0))


def cut(a: Array, places: int) -> Array:
    """Toward zero."""
    if not places:
        return a
    whole, twice, _ = _parts(a, places)
    return narrow(whole + ((twice > 0) & (a < 0)))


def _parts(a: Array, places: int) -> tuple[Array, Array, int]:
    """The quotient rounded down, twice the rest, and the divisor."""
    if places > _INT64_DIGITS:
        a = a.astype(object)
    unit = 10**places
    whole = a // unit
    return whole, 2 * (a - whole * unit), unit


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


def fitted(data: Array, least: int, greatest: int) -> tuple[Array, Bools | None]:
    """The same numbers, and where they are out of bounds (None: nowhere). Those that are out of bounds become zero."""
    if data.dtype != object and least <= INT_MIN and greatest >= INT_MAX:
        return data, None
    out = np.asarray((data < least) | (data > greatest), bool)
    if not out.any():
        return data, None
    return narrow(np.where(out, 0, data)), out
