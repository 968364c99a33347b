"""Kernels that call a Python function for each value: slow, for functions that have no column kernel.

They compute only rows in which all operands are valid, and of equal rows usually only one.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.types import DataType, Value
from smile.columns import values as v
from smile.columns.values import Array, Bools, Indices
from smile.kernels.expressions.arithmetic_kernels import ColumnData, Kernel, KernelResult

PythonFunction = Callable[[Sequence[Any]], Value]
_DEDUPLICATED_ROWS_MIN: Final = 16
"""With fewer rows, looking for equal rows costs more than it saves."""


def python_kernel(compute: PythonFunction, args: Sequence[DataType], result: DataType) -> Kernel:
    """The kernel of a strict function: NULL for any NULL."""

    def run(operands: Sequence[ColumnData], valid: Bools | None) -> KernelResult:
        count = len(operands[0])
        if count < _DEDUPLICATED_ROWS_MIN:
            is_valid = valid.tolist() if valid is not None else [True] * count
            lists = [to_python(data, arg) for data, arg in zip(operands, args, strict=True)]
            rows = zip(is_valid, *lists, strict=True)
            return _kernel_result(
                [_compute_or_null(compute, row) if has_value else None for has_value, *row in rows], result
            )
        valid_rows = np.arange(count) if valid is None else np.flatnonzero(valid)
        first_rows, distinct_index = _distinct_rows([_take(data, valid_rows) for data in operands], len(valid_rows))
        lists = [to_python(_take(data, valid_rows[first_rows]), arg) for data, arg in zip(operands, args, strict=True)]
        computed: list[Value] = [_compute_or_null(compute, row) for row in zip(*lists, strict=True)]
        if valid is not None:
            scattered_index = np.full(count, len(computed))
            scattered_index[valid_rows] = distinct_index
            distinct_index = scattered_index
            computed.append(None)
        data, undefined = _kernel_result(computed, result)
        return _take(data, distinct_index), None if undefined is None else undefined[distinct_index]

    return run


def _kernel_result(values: list[Value], data: DataType) -> KernelResult:
    column = v.from_python(values, data)
    return column.data, None if column.valid is None else ~column.valid


def _take(data: ColumnData, rows: Indices) -> ColumnData:
    return data.take(v.arrow_ints(rows)) if isinstance(data, pa.Array) else data[rows]


def _distinct_rows(operands: Sequence[ColumnData], count: int) -> tuple[Indices, Indices]:
    """The first row of each set of equal rows, and for each row the number of its set."""
    if any(not isinstance(data, pa.Array) and data.dtype == object for data in operands):
        return np.arange(count), np.arange(count)
    row_codes, code_count = np.zeros(count, np.int64), 1
    for data in operands:
        codes, value_count = _value_codes(data)
        if code_count * value_count >= 2**63:
            return np.arange(count), np.arange(count)
        row_codes, code_count = codes if code_count == 1 else row_codes * value_count + codes, code_count * value_count
    return np.unique(row_codes, return_index=True, return_inverse=True)[1:]


def _value_codes(data: ColumnData) -> tuple[Array, int]:
    """A code for each value, the same for equal values, and the number of codes. Minus zero differs from zero."""
    if isinstance(data, pa.Array):
        encoded = data.dictionary_encode()
        return v.arrow_to_numbers(encoded.indices).astype(np.int64), len(encoded.dictionary)
    bits = data.view(np.int64) if data.dtype == np.float64 else data
    values, codes = np.unique(bits, return_inverse=True)
    return codes, len(values)


def _compute_or_null(compute: PythonFunction, values: Sequence[Any]) -> Value:
    try:
        return compute(values)
    except (ArithmeticError, ValueError, AssertionError, IndexError, msgspec.MsgspecError):
        # No function raises on a value of its type, but the data of an absent row need not be one.
        return None


def to_python(data: ColumnData, type_: DataType) -> list[Any]:
    """The values of a column as Python objects."""
    if isinstance(data, pa.Array):
        return data.to_pylist()  # type: ignore[no-any-return]
    values: list[Any] = data.tolist()
    if type_.name != "decimal":
        return values
    scale = -(type_.scale or 0)
    return [EXACT_CONTEXT.scaleb(Decimal(n), scale) for n in values]
