"""Functions of plain columns: of every row what `smile.algebra.scalars.evaluate` says of its values."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra.functions_base import Signature
from smile.algebra.scalars import SCALARS, evaluate
from smile.algebra.types import DataType, Value
from smile.columns import values as v
from smile.columns.values import Bools, Values
from smile.kernels.expressions import numbers
from smile.kernels.expressions.by_value import by_value, python_of
from smile.kernels.expressions.numbers import Data, Kernel

Plain = Callable[[Sequence[Values]], Values]


def plain(name: str, signature: Signature) -> Plain:
    """The function on columns of the signature's types."""
    if name in _NULL_TOO:
        return _NULL_TOO[name]
    if not SCALARS[name].strict:
        return _by_row(name, signature)
    return strict(kernel(name, signature))


def kernel(name: str, signature: Signature) -> Kernel:
    """Of a strict function."""
    if name in COMPARE:
        compare = COMPARE[name]
        return lambda operands, _: (compare(*operands), None)
    if name == "not":
        return lambda operands, _: (~operands[0], None)
    if name == "||":
        return lambda operands, _: (pc.binary_join_element_wise(*operands, _blank(operands[0])), None)
    found = numbers.kernel(name, signature)
    return found or by_value(lambda values: evaluate(name, tuple(values), signature), signature.args, signature.result)


def strict(compute: Kernel) -> Plain:
    """A function on columns, NULL where any of them is."""

    def run(columns: Sequence[Values]) -> Values:
        valid = all_valid(columns)
        data, bad = compute([c.data for c in columns], valid)
        if bad is not None:
            valid = ~bad if valid is None else valid & ~bad
        return Values(data, valid)

    return run


def all_valid(columns: Sequence[Values]) -> Bools | None:
    found = None
    for column in columns:
        if column.valid is not None and column.valid is not found:
            found = column.valid if found is None else found & column.valid
    return found


def _blank(data: pa.Array) -> pa.Scalar:
    return pa.scalar("" if data.type == pa.string() else b"", data.type)


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _ordered(numbers_: Callable[[Any, Any], Any], text: Callable[[Any, Any], Any]) -> Callable[[Data, Data], Bools]:
    """Arrow compares the bytes of UTF-8, whose order is that of code points."""

    def compare(a: Data, b: Data) -> Bools:
        if isinstance(a, pa.Array):
            return v.bools_of(text(a, b))
        found = numbers_(a, b)
        return found if found.dtype == bool else found.astype(bool)

    return compare


less = _ordered(np.less, pc.less)
at_least = _ordered(np.greater_equal, pc.greater_equal)
equal = _ordered(np.equal, pc.equal)

COMPARE: Final[dict[str, Callable[[Data, Data], Bools]]] = {
    "=": equal,
    "<>": _ordered(np.not_equal, pc.not_equal),
    "<": less,
    "<=": _ordered(np.less_equal, pc.less_equal),
    ">": _ordered(np.greater, pc.greater),
    ">=": at_least,
}


def against(name: str, word: pa.Scalar) -> Plain:
    """The comparison of a column of texts with one text."""
    compare = COMPARE[name]
    return lambda columns: Values(compare(columns[0].data, word), columns[0].valid)


# ── functions that NULL does not make NULL ──────────────────────────────────────────────────────────────────────────


def _and(columns: Sequence[Values]) -> Values:
    if all(c.valid is None for c in columns):
        return Values(np.logical_and.reduce([c.data for c in columns]))
    holds = np.logical_and.reduce([c.data & c.there() for c in columns])
    fails = np.logical_or.reduce([~c.data & c.there() for c in columns])
    return Values(holds, holds | fails)


def _or(columns: Sequence[Values]) -> Values:
    neither = _and([Values(~c.data, c.valid) for c in columns])
    return Values(~neither.data, neither.valid)


def _is_distinct(columns: Sequence[Values]) -> Values:
    a, b = columns
    return Values(~a.same(b))


def _coalesce(columns: Sequence[Values]) -> Values:
    found = columns[0]
    for column in columns[1:]:
        if found.valid is None:
            break
        found = v.where(found.valid, found, column)
    return found


def _nullif(columns: Sequence[Values]) -> Values:
    a, b = columns
    same = equal(a.data, b.data)
    same = same if b.valid is None else same & b.valid
    return Values(a.data, a.there() & ~same)


def _extreme(better: Callable[[Data, Data], Bools]) -> Plain:
    """NULLs are passed over. Of two that are equal the first is taken."""

    def choose(a: Values, b: Values) -> Values:
        wins = better(b.data, a.data)
        if a.valid is not None:
            wins = wins | ~a.valid
        if b.valid is not None:
            wins = wins & b.valid
        return v.where(wins, b, a)

    return lambda columns: reduce(choose, columns)


def _by_row(name: str, signature: Signature) -> Plain:
    def run(columns: Sequence[Values]) -> Values:
        lists = []
        for column, data in zip(columns, signature.args, strict=True):
            values = python_of(column.data, data)
            there = column.there().tolist()
            lists.append([x if ok else None for x, ok in zip(values, there, strict=True)])
        return v.of_python([evaluate(name, row, signature) for row in zip(*lists, strict=True)], signature.result)

    return run


_NULL_TOO: Final[dict[str, Plain]] = {
    "and": _and,
    "or": _or,
    "is null": lambda columns: Values(columns[0].nulls()),
    "is not null": lambda columns: Values(columns[0].there()),
    "is distinct from": _is_distinct,
    "is not distinct from": lambda columns: Values(columns[0].same(columns[1])),
    "coalesce": _coalesce,
    "nullif": _nullif,
    "greatest": _extreme(_ordered(np.greater, pc.greater)),
    "least": _extreme(less),
}


def chosen(conditions: Sequence[Values], results: Sequence[Values]) -> Values:
    """CASE: the result of the first condition that is true, else the last."""
    found = results[-1]
    for condition, result in zip(reversed(conditions), reversed(results[:-1]), strict=True):
        holds = condition.data if condition.valid is None else condition.data & condition.valid
        found = v.where(holds, result, found)
    return found


def repeated(one: Values) -> Callable[[int], Values]:
    """The only row of a column as many times as is asked for."""
    if one.valid is None and not one.is_text and one.data.dtype != object:
        value, dtype = one.data[0], one.data.dtype
        return lambda count: Values(np.full(count, value, dtype))
    return lambda count: one.take(np.zeros(count, np.int64))


def constant(value: Value, data: DataType) -> Callable[[int], Values]:
    return repeated(v.of_python([value], data))
