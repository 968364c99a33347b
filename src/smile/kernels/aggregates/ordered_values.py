"""Compares columns of values row by row: which of two values is the better one, that is the greater or the lesser."""

import numpy as np

from smile.columns import values as v
from smile.columns.values import Array, Bools, ValueColumn, ranks


def _comparable(a: ValueColumn, b: ValueColumn) -> tuple[Array, Array]:
    if isinstance(a.data, np.ndarray) and isinstance(b.data, np.ndarray):
        return a.data, b.data
    codes = ranks(ValueColumn(v.concat([ValueColumn(a.data), ValueColumn(b.data)]).data))
    return codes[: len(a)], codes[len(a) :]


def is_as_good(a: ValueColumn, b: ValueColumn, is_max: bool) -> Bools:
    """Where `a` is valid, and is at least as good as `b` or `b` is NULL."""
    x, y = _comparable(a, b)
    is_good = np.asarray(x >= y if is_max else x <= y, bool)
    return a.is_valid() & (is_good | b.is_null())


def better_of(a: ValueColumn, b: ValueColumn, is_max: bool) -> ValueColumn:
    """The better of the two; a value is better than NULL."""
    if a.valid is None and b.valid is None and isinstance(a.data, np.ndarray) and a.data.dtype != bool:
        return ValueColumn(np.maximum(a.data, b.data) if is_max else np.minimum(a.data, b.data))
    better_values = v.where(is_as_good(b, a, is_max), b, a)
    return (
        better_values
        if better_values.valid is None or not better_values.valid.all()
        else ValueColumn(better_values.data)
    )
