"""Columns of plain values: one value of the column's type for each row, or NULL where it is not `valid`.

Numbers are NumPy arrays of bool, float64 or int64. If an integer is beyond 64 bits, the whole array has Python
integers. A decimal is its integer without the decimal point. Text, bytes and arrays are Arrow arrays. Entries that are
not valid have no meaning.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.types import DataType, Value

Array = Any  # np.ndarray: its element type is known only at run time
Bools = Any  # np.ndarray of bool
Indices = Any  # np.ndarray of int64


class ValueColumn:
    """`valid` is None if all values are valid. `hashed` caches the hashes of text, once they are computed."""

    __slots__ = ("data", "hashed", "valid")

    def __init__(self, data: Array | pa.Array, valid: Bools | None = None, hashed: Array | None = None) -> None:
        self.data = data
        self.valid = valid
        self.hashed = hashed

    def __len__(self) -> int:
        return len(self.data)

    @property
    def is_text(self) -> bool:
        return isinstance(self.data, pa.Array)

    def take(self, indices: Indices) -> "ValueColumn":
        if isinstance(self.data, pa.Array):
            hashed = None if self.hashed is None else self.hashed[indices]
            return ValueColumn(
                self.data.take(arrow_ints(indices)), None if self.valid is None else self.valid[indices], hashed
            )
        return ValueColumn(self.data[indices], None if self.valid is None else self.valid[indices])

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes) + (0 if self.valid is None else int(self.valid.nbytes))

    def is_null(self) -> Bools:
        """Where the value is NULL."""
        return np.zeros(len(self.data), bool) if self.valid is None else ~self.valid

    def is_valid(self) -> Bools:
        """Where the value is not NULL."""
        return np.ones(len(self.data), bool) if self.valid is None else self.valid

    def same(self, other: "ValueColumn") -> Bools:
        """IS NOT DISTINCT FROM, row by row."""
        equal = equal_data(self.data, other.data)
        if self.valid is None and other.valid is None:
            return equal
        a, b = self.is_valid(), other.is_valid()
        return (a == b) & (equal | ~a)

    def value_at(self, index: int, data: DataType) -> Value:
        """The value of a row as a Python value."""
        if self.valid is not None and not self.valid[index]:
            return None
        item = self.data[index]
        if isinstance(self.data, pa.Array):
            return item.as_py()  # type: ignore[no-any-return]
        if data.name == "decimal":
            return EXACT_CONTEXT.scaleb(Decimal(int(item)), -(data.scale or 0))
        if data.name == "bool":
            return bool(item)
        return float(item) if data.name == "float" else int(item)


def true_indices(condition: Bools) -> Indices:
    """The indices where the condition holds. For few rows, `np.flatnonzero` takes three times as long."""
    return condition.nonzero()[0]


# ── construction ────────────────────────────────────────────────────────────────────────────────────────────────────


def from_python(values: Sequence[Value], data: DataType) -> ValueColumn:
    """From Python values of a type."""
    valid = np.fromiter((v is not None for v in values), bool, len(values))
    validity_mask = None if valid.all() else valid
    if data.is_text or data.name in ("bytes", "array"):
        return from_arrow_text(pa.array(values, pa.string() if data.is_text else pa.binary()))
    if data.name == "float":
        return ValueColumn(np.array([0.0 if v is None else v for v in values], float), validity_mask)
    if data.name == "bool":
        return ValueColumn(np.array([bool(v) for v in values], bool), validity_mask)
    return ValueColumn(ints([0 if v is None else _unscaled(v, data) for v in values]), validity_mask)


def _unscaled(value: Any, data: DataType) -> int:
    return int(EXACT_CONTEXT.scaleb(value, data.scale or 0)) if data.name == "decimal" else int(value)


def ints(values: Sequence[int]) -> Array:
    """An array of int64 if all integers fit, else of Python integers."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array(values, object)


def narrow(data: Array) -> Array:
    """Converts Python integers to int64 if all of them fit."""
    return ints(data.tolist()) if data.dtype == object else data


def from_arrow_text(array: pa.Array) -> ValueColumn:
    """From an Arrow array. Its nulls are filled, so that only `valid` says what is NULL."""
    valid = validity(array)
    if valid is None:
        return ValueColumn(array)
    return ValueColumn(pc.fill_null(array, "" if array.type == pa.string() else b""), valid)


def constant(value: Value, data: DataType, count: int) -> ValueColumn:
    return from_python([value], data).take(np.zeros(count, np.int64))


def nulls(data: DataType, count: int) -> ValueColumn:
    return constant(None, data, count)


def nulls_like(values: ValueColumn, count: int) -> ValueColumn:
    """`count` NULLs of the same kind."""
    if isinstance(values.data, pa.Array):
        blank = pa.array([""] if values.data.type == pa.string() else [b""], values.data.type)
        return ValueColumn(blank.take(arrow_ints(np.zeros(count, np.int64))), np.zeros(count, bool))
    return ValueColumn(np.zeros(count, values.data.dtype), np.zeros(count, bool))


def concat(parts: Sequence[ValueColumn]) -> ValueColumn:
    """Concatenates columns, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    valid = None if all(p.valid is None for p in parts) else np.concatenate([p.is_valid() for p in parts])
    if isinstance(parts[0].data, pa.Array):
        all_hashed = all(p.hashed is not None for p in parts)
        hashed = np.concatenate([p.hashed for p in parts]) if all_hashed else None
        return ValueColumn(pa.concat_arrays([p.data for p in parts]), valid, hashed)
    return ValueColumn(np.concatenate([p.data for p in parts]), valid)


def where(condition: Bools, a: ValueColumn, b: ValueColumn) -> ValueColumn:
    """Selects each row from `a` where the condition holds, else from `b`."""
    valid = None if a.valid is None and b.valid is None else np.where(condition, a.is_valid(), b.is_valid())
    if isinstance(a.data, pa.Array):
        return ValueColumn(pc.if_else(arrow_bools(condition), a.data, b.data), valid)
    return ValueColumn(np.where(condition, a.data, b.data), valid)


def equal_data(a: Array | pa.Array, b: Array | pa.Array) -> Bools:
    if isinstance(a, pa.Array):
        return arrow_to_bools(pc.equal(a, b))
    return np.asarray(a == b, bool)


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ranks(values: ValueColumn) -> Array:
    """int64 ranks in the order of the values. Equal values have equal ranks; NULLs come last."""
    data = values.data
    if isinstance(data, pa.Array):
        encoded = data.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        order = np.empty(len(words), np.int64)
        order[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        value_ranks = (
            order[arrow_to_numbers(encoded.indices.cast(pa.int64()))] if len(words) else np.zeros(len(data), np.int64)
        )
    elif data.dtype == np.int64:
        value_ranks = data
    else:
        value_ranks = np.unique(data, return_inverse=True)[1].reshape(-1)
    if values.valid is None:
        return value_ranks
    distinct = np.unique(value_ranks[values.valid], return_inverse=True)[1].reshape(-1)
    result = np.full(len(value_ranks), len(value_ranks), np.int64)
    result[values.valid] = distinct
    return result


# ── Arrow ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def arrow_ints(data: Array) -> pa.Array:
    """An Arrow array over the same buffer. `pa.array` would first try to import pandas."""
    data = np.ascontiguousarray(data, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(data), [None, pa.py_buffer(data)])


def arrow_bools(data: Bools) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(data), [None, pa.py_buffer(np.packbits(data, bitorder="little"))])


def arrow_to_bools(array: pa.Array) -> Bools:
    """An Arrow array of Booleans as a NumPy array; null becomes false."""
    if array.null_count:
        array = pc.fill_null(array, False)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].astype(bool)


def arrow_to_numbers(array: pa.Array) -> Array:
    """The buffer of an Arrow array of numbers, including the entries that are null."""
    kind = array.type.to_pandas_dtype()
    if not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def validity(array: pa.Array) -> Bools | None:
    if not array.null_count:
        return None
    return arrow_to_bools(array.is_valid())


def from_arrow(array: pa.Array | pa.ChunkedArray) -> ValueColumn:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return from_arrow_text(array)
    if pa.types.is_boolean(kind):
        return ValueColumn(arrow_to_bools(array), validity(array))
    if pa.types.is_decimal128(kind):
        return ValueColumn(_unscaled_decimals(array), validity(array))
    if pa.types.is_fixed_size_binary(kind):
        return ValueColumn(_fixed_size_bytes(array, kind.byte_width), validity(array))
    return ValueColumn(arrow_to_numbers(array), validity(array))


def _fixed_size_bytes(array: pa.Array, width: int) -> Array:
    """Values of a fixed number of bytes. Only accumulators have them."""
    items = np.frombuffer(array.buffers()[1] or b"", np.dtype(f"V{width}"))
    return items[array.offset : array.offset + len(array)]


def _unscaled_decimals(array: pa.Array) -> Array:
    if not len(array):
        return np.zeros(0, np.int64)
    halves = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    low, high = halves[:, 0], halves[:, 1]
    if bool(((low >> 63) == high)[array.is_valid().to_numpy(zero_copy_only=False)].all()):
        return np.ascontiguousarray(low)
    return np.array([(int(h) << 64) | (int(x) & (2**64 - 1)) for x, h in zip(low, high, strict=True)], object)


def to_arrow(values: ValueColumn, kind: pa.DataType) -> pa.Array:
    """As an Arrow array of this type, which must be what `arrow_type` gives for the column's type."""
    data = values.data
    bits = None if values.valid is None else pa.py_buffer(np.packbits(values.valid, bitorder="little"))
    if isinstance(data, pa.Array):
        if bits is None:
            return data
        return pc.if_else(arrow_bools(values.valid), data, pa.scalar(None, kind))
    if pa.types.is_boolean(kind):
        buffer = pa.py_buffer(np.packbits(data, bitorder="little"))
    elif pa.types.is_decimal128(kind):
        buffer = pa.py_buffer(_halves(data))
    else:
        buffer = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(kind, len(data), [bits, buffer])


def _halves(data: Array) -> Array:
    """Integers in the layout of decimal128: two halves of 64 bits, the lower first."""
    if data.dtype != object:
        return np.stack([data, data >> 63], axis=1)
    low = np.array([v & (2**64 - 1) for v in data], np.uint64).view(np.int64)
    return np.stack([low, np.array([v >> 64 for v in data], np.int64)], axis=1)
