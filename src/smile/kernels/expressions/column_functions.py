"""Functions on columns of exact values: in every row the result of `smile.algebra.functions.catalogue.evaluate`."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra.functions.base import Signature
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS, evaluate
from smile.algebra.types import DataType, Value
from smile.columns import values as v
from smile.columns.values import Bools, ValueColumn
from smile.kernels.expressions import arithmetic_kernels
from smile.kernels.expressions.arithmetic_kernels import ColumnData, Kernel
from smile.kernels.expressions.python_kernels import python_kernel, to_python
from smile.kernels.expressions.time_kernels import period_kernel

ColumnFunction = Callable[[Sequence[ValueColumn]], ValueColumn]


def column_function(name: str, signature: Signature) -> ColumnFunction:
    """The function for columns of the signature's types."""
    if name in _NON_STRICT_FUNCTIONS:
        return _NON_STRICT_FUNCTIONS[name]
    if not SCALAR_FUNCTIONS[name].strict:
        return _non_strict_function(name, signature)
    return strict_function(strict_kernel(name, signature))


def strict_kernel(name: str, signature: Signature) -> Kernel:
    """The kernel of a strict function."""
    if name in COMPARISON_FUNCTIONS:
        compare = COMPARISON_FUNCTIONS[name]
        return lambda operands, _: (compare(*operands), None)
    if name == "not":
        return lambda operands, _: (~operands[0], None)
    if name == "||":
        return lambda operands, _: (pc.binary_join_element_wise(*operands, _empty_separator(operands[0])), None)
    arithmetic = arithmetic_kernels.arithmetic_kernel(name, signature)
    if arithmetic is not None:
        return arithmetic
    row_by_row = python_kernel(
        lambda values: evaluate(name, tuple(values), signature), signature.args, signature.result
    )
    return period_kernel(name, row_by_row) if name in ("date_trunc", "period_end") else row_by_row


def strict_function(compute: Kernel) -> ColumnFunction:
    """The function on columns: NULL where an operand is NULL or the kernel's result is undefined."""

    def run(columns: Sequence[ValueColumn]) -> ValueColumn:
        valid = all_valid(columns)
        data, undefined = compute([c.data for c in columns], valid)
        if undefined is not None:
            valid = ~undefined if valid is None else valid & ~undefined
        return ValueColumn(data, valid)

    return run


def all_valid(columns: Sequence[ValueColumn]) -> Bools | None:
    """The rows in which all columns are valid; None: all rows."""
    valid = None
    for column in columns:
        if column.valid is not None and column.valid is not valid:
            valid = column.valid if valid is None else valid & column.valid
    return valid


def _empty_separator(data: pa.Array) -> pa.Scalar:
    return pa.scalar("" if data.type == pa.string() else b"", data.type)


# ── comparisons ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _comparison(
    compare_arrays: Callable[[Any, Any], Any], compare_text: Callable[[Any, Any], Any]
) -> Callable[[ColumnData, ColumnData], Bools]:
    """A comparison of columns. Arrow compares the bytes of UTF-8, whose order is that of the code points."""

    def compare(a: ColumnData, b: ColumnData) -> Bools:
        if isinstance(a, pa.Array):
            return v.arrow_to_bools(compare_text(a, b))
        holds = compare_arrays(a, b)
        return holds if holds.dtype == bool else holds.astype(bool)

    return compare


is_less = _comparison(np.less, pc.less)
is_at_least = _comparison(np.greater_equal, pc.greater_equal)
is_equal = _comparison(np.equal, pc.equal)

COMPARISON_FUNCTIONS: Final[dict[str, Callable[[ColumnData, ColumnData], Bools]]] = {
    "=": is_equal,
    "<>": _comparison(np.not_equal, pc.not_equal),
    "<": is_less,
    "<=": _comparison(np.less_equal, pc.less_equal),
    ">": _comparison(np.greater, pc.greater),
    ">=": is_at_least,
}


def comparison_with_text(name: str, text: pa.Scalar) -> ColumnFunction:
    """The comparison of a text column with one text."""
    compare = COMPARISON_FUNCTIONS[name]
    return lambda columns: ValueColumn(compare(columns[0].data, text), columns[0].valid)


# ── non-strict functions ────────────────────────────────────────────────────────────────────────────────────────────


def _and(columns: Sequence[ValueColumn]) -> ValueColumn:
    if all(c.valid is None for c in columns):
        return ValueColumn(np.logical_and.reduce([c.data for c in columns]))
    holds = np.logical_and.reduce([c.data & c.is_valid() for c in columns])
    fails = np.logical_or.reduce([~c.data & c.is_valid() for c in columns])
    return ValueColumn(holds, holds | fails)


def _or(columns: Sequence[ValueColumn]) -> ValueColumn:
    none_holds = _and([ValueColumn(~c.data, c.valid) for c in columns])
    return ValueColumn(~none_holds.data, none_holds.valid)


def _is_distinct(columns: Sequence[ValueColumn]) -> ValueColumn:
    a, b = columns
    return ValueColumn(~a.same(b))


def _coalesce(columns: Sequence[ValueColumn]) -> ValueColumn:
    result = columns[0]
    for column in columns[1:]:
        if result.valid is None:
            break
        result = v.where(result.valid, result, column)
    return result


def _nullif(columns: Sequence[ValueColumn]) -> ValueColumn:
    a, b = columns
    same = is_equal(a.data, b.data)
    same = same if b.valid is None else same & b.valid
    return ValueColumn(a.data, a.is_valid() & ~same)


def _extreme(better: Callable[[ColumnData, ColumnData], Bools]) -> ColumnFunction:
    """GREATEST or LEAST: skips NULLs; the first of equal values wins."""

    def choose(a: ValueColumn, b: ValueColumn) -> ValueColumn:
        wins = better(b.data, a.data)
        if a.valid is not None:
            wins = wins | ~a.valid
        if b.valid is not None:
            wins = wins & b.valid
        return v.where(wins, b, a)

    return lambda columns: reduce(choose, columns)


def _non_strict_function(name: str, signature: Signature) -> ColumnFunction:
    def run(columns: Sequence[ValueColumn]) -> ValueColumn:
        lists = []
        for column, data in zip(columns, signature.args, strict=True):
            values = to_python(column.data, data)
            is_valid = column.is_valid().tolist()
            lists.append([x if ok else None for x, ok in zip(values, is_valid, strict=True)])
        return v.from_python([evaluate(name, row, signature) for row in zip(*lists, strict=True)], signature.result)

    return run


_NON_STRICT_FUNCTIONS: Final[dict[str, ColumnFunction]] = {
    "and": _and,
    "or": _or,
    "is null": lambda columns: ValueColumn(columns[0].is_null()),
    "is not null": lambda columns: ValueColumn(columns[0].is_valid()),
    "is distinct from": _is_distinct,
    "is not distinct from": lambda columns: ValueColumn(columns[0].same(columns[1])),
    "coalesce": _coalesce,
    "nullif": _nullif,
    "greatest": _extreme(_comparison(np.greater, pc.greater)),
    "least": _extreme(is_less),
}


def select_case(conditions: Sequence[ValueColumn], results: Sequence[ValueColumn]) -> ValueColumn:
    """CASE: the result of the first condition that is true, else the last result."""
    selected = results[-1]
    for condition, result in zip(reversed(conditions), reversed(results[:-1]), strict=True):
        holds = condition.data if condition.valid is None else condition.data & condition.valid
        selected = v.where(holds, result, selected)
    return selected


def repeat_row(row: ValueColumn) -> Callable[[int], ValueColumn]:
    """A function that repeats the only row of a column `count` times."""
    if row.valid is None and not row.is_text and row.data.dtype != object:
        value, dtype = row.data[0], row.data.dtype
        return lambda count: ValueColumn(np.full(count, value, dtype))
    return lambda count: row.take(np.zeros(count, np.int64))


def constant_column(value: Value, data: DataType) -> Callable[[int], ValueColumn]:
    return repeat_row(v.from_python([value], data))
