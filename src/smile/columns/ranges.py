"""Knowledge of any kind as ranges: every value that is possible of a cell is in its range."""

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import Column, Latests, Masks, Objects, Ranges
from smile.columns.values import Array, Bools, Values
from smile.knowledge.cells import range_of

_MAYBE, _ONLY = 1, 2


def ranges_of(column: Column, data: DataType) -> Ranges:
    """What is known of cells as they stand: of a latest value that may be replaced, nothing."""
    if isinstance(column, Ranges):
        return column
    if isinstance(column, Masks):
        possible, now = column.possible, column.now
        true, false, null = (possible & 1) != 0, (possible & 2) != 0, (possible & 4) != 0
        there = true | false
        nulls = np.where(null, np.where(there, _MAYBE, _ONLY), 0).astype(np.uint8)
        return Ranges(Values(now == 1, now != 4), Values(~false, there), Values(true, there), nulls)
    if isinstance(column, Latests):
        ends = Values(column.value.data, column.value.there() & column.sealed)
        return Ranges(column.now, ends, ends, _null_codes(column.sealed, column.value))
    if isinstance(column, Objects):
        found = k.of_points([range_of(p) for p in column.points], "range", data)
        assert isinstance(found, Ranges)
        return found
    return Ranges(column, column, column, _null_codes(np.ones(len(column), bool), column))


def _null_codes(settled: Bools, values: Values) -> Array:
    return np.where(settled, np.where(values.there(), 0, _ONLY), _MAYBE).astype(np.uint8)
