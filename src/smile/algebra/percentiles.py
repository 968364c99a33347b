"""Percentiles, as PostgreSQL computes them: the position of the wanted value in the order, and the value between two
others.

A position is computed with floats, as there. A value between two others never lies outside of them.
"""

from fractions import Fraction
from math import ceil, floor, isinf
from typing import NamedTuple

from smile.algebra.types import INTERVAL, DataType


class PercentilePosition(NamedTuple):
    """`first` and `second` are indices in ascending order, and `proportion` says how far the percentile is from the
    first to the second."""

    first: int
    second: int
    proportion: float


def percentile_position(fraction: float, is_continuous: bool, descending: bool, count: int) -> PercentilePosition:
    """The position in `count` values, of which there is at least one."""
    if is_continuous:
        position = fraction * (count - 1)
        first, second, proportion = floor(position), ceil(position), position - floor(position)
    else:
        first = second = max(ceil(fraction * count), 1) - 1
        proportion = 0.0
    return PercentilePosition(*((count - 1 - first, count - 1 - second) if descending else (first, second)), proportion)


def value_between(first: float, second: float, proportion: float, data: DataType) -> float:
    """The value at this proportion of the way. An interval is rounded to a whole number of ticks, halves to even."""
    if data == INTERVAL:
        return round(first + Fraction(proportion) * (int(second) - int(first)))
    distance = second - first
    value = first * (1 - proportion) + second * proportion if isinf(distance) else first + proportion * distance
    return min(max(value, min(first, second)), max(first, second)) + 0.0
