"""Functions that only Python has, value by value: slow, and right because nothing is written here twice.

What is the same for several rows is computed once.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from smile.algebra.coercions import EXACT
from smile.algebra.types import DataType, Value
from smile.columns import values as v
from smile.columns.values import Array, Bools, Indices
from smile.kernels.expressions.numbers import Data, Kernel, Result

Compute = Callable[[Sequence[Any]], Value]
_FEW: Final = 16
"""Among so few rows it does not pay to look for those that are the same."""


def by_value(compute: Compute, args: Sequence[DataType], result: DataType) -> Kernel:
    """A kernel of a function that gives NULL for any NULL."""

    def run(operands: Sequence[Data], valid: Bools | None) -> Result:
        count = len(operands[0])
        if count < _FEW:
            asked = valid.tolist() if valid is not None else [True] * count
            lists = [python_of(data, arg) for data, arg in zip(operands, args, strict=True)]
            rows = zip(asked, *lists, strict=True)
            return _column([_computed(compute, row) if there else None for there, *row in rows], result)
        at = np.arange(count) if valid is None else np.flatnonzero(valid)
        first, of = _distinct([_taken(data, at) for data in operands], len(at))
        lists = [python_of(_taken(data, at[first]), arg) for data, arg in zip(operands, args, strict=True)]
        found: list[Value] = [_computed(compute, row) for row in zip(*lists, strict=True)]
        if valid is not None:
            spread = np.full(count, len(found))
            spread[at] = of
            of = spread
            found.append(None)
        data, bad = _column(found, result)
        return _taken(data, of), None if bad is None else bad[of]

    return run


def _column(found: list[Value], data: DataType) -> Result:
    column = v.of_python(found, data)
    return column.data, None if column.valid is None else ~column.valid


def _taken(data: Data, rows: Indices) -> Data:
    return data.take(v.arrow_ints(rows)) if isinstance(data, pa.Array) else data[rows]


def _distinct(operands: Sequence[Data], count: int) -> tuple[Indices, Indices]:
    """Of rows that are the same one row, and of each row which of these it is like."""
    if any(not isinstance(data, pa.Array) and data.dtype == object for data in operands):
        return np.arange(count), np.arange(count)
    of, total = np.zeros(count, np.int64), 1
    for data in operands:
        codes, size = _codes(data)
        if total * size >= 2**63:
            return np.arange(count), np.arange(count)
        of, total = codes if total == 1 else of * size + codes, total * size
    return np.unique(of, return_index=True, return_inverse=True)[1:]


def _codes(data: Data) -> tuple[Array, int]:
    """Small numbers for equal values, and how many there are. Minus zero is not zero."""
    if isinstance(data, pa.Array):
        encoded = data.dictionary_encode()
        return v.ints_of(encoded.indices).astype(np.int64), len(encoded.dictionary)
    bits = data.view(np.int64) if data.dtype == np.float64 else data
    values, codes = np.unique(bits, return_inverse=True)
    return codes, len(values)


def _computed(compute: Compute, values: Sequence[Any]) -> Value:
    try:
        return compute(values)
    except (ArithmeticError, ValueError):
        # No function raises on a value of its type. In rows nobody has heard of stands what is none.
        return None


def python_of(data: Data, type_: DataType) -> list[Any]:
    """The values of a column as Python has them."""
    if isinstance(data, pa.Array):
        return data.to_pylist()  # type: ignore[no-any-return]
    found: list[Any] = data.tolist()
    if type_.name != "decimal":
        return found
    scale = -(type_.scale or 0)
    return [EXACT.scaleb(Decimal(n), scale) for n in found]
