"""Row blocks: rows of an exported view with their whole knowledge, as bytes. They travel between brokers, and the log
of the importing broker has them as they came.

A block is an Arrow record batch with the columns of `row_encoding.table_columns`, in the order of their names. It has
no schema: both brokers derive it from the layout of the view. Decoding returns exactly what was encoded.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.values import ValueColumn
from smile.kernels.layout import Layout
from smile.kernels.point_codec import decode_point
from smile.kernels.row_encoding import MASK, STEPS, table_columns

_NARROW, _WIDE = b"\0", b"\1"
"""The first byte of a block. In a wide block, integers and decimals have 256 bits."""

_WIDE_TYPE: Final = pa.decimal256(76, 0)
_WIDE_BYTES: Final = 32

_COMPRESSED_BYTES_MIN: Final = 4096
"""Smaller batches are not compressed: most of their bytes describe their columns."""

EncodedRows = Mapping[str, ValueColumn]
"""Rows as `row_encoding.encode_rows` encodes them."""


@cache
def _schema(columns: tuple[tuple[str, pa.DataType], ...], is_wide: bool) -> pa.Schema:
    return pa.schema([(name, _WIDE_TYPE if is_wide and _can_be_wide(kind) else kind) for name, kind in columns])


def _can_be_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_decimal128(kind))


def _block_schema(layout: Layout, is_wide: bool) -> pa.Schema:
    return _schema(tuple(sorted(table_columns(layout).items())), is_wide)


# ── encoding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_block(layout: Layout, rows: EncodedRows, count: int) -> bytes:
    """A block of `count` rows. A column that `rows` lacks is NULL."""
    columns = {name: rows[name] for name in table_columns(layout) if name in rows}
    is_wide = any(isinstance(c.data, np.ndarray) and c.data.dtype == object for c in columns.values())
    schema = _block_schema(layout, is_wide)
    arrays = [
        _encode_column(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return (_WIDE if is_wide else _NARROW) + _serialize(batch)


def _encode_column(column: ValueColumn, kind: pa.DataType) -> pa.Array:
    if kind != _WIDE_TYPE:
        return v.to_arrow(column, kind)
    bits = None if column.valid is None else pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    numbers = b"".join(int(number).to_bytes(_WIDE_BYTES, "little", signed=True) for number in column.data.tolist())
    return pa.Array.from_buffers(kind, len(column), [bits, pa.py_buffer(numbers)])


def _serialize(batch: pa.RecordBatch) -> bytes:
    if batch.nbytes < _COMPRESSED_BYTES_MIN:
        return bytes(batch.serialize())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()  # the schema
    return bytes(messages.read_next_message().serialize())


# ── decoding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_batch(layout: Layout, block: bytes) -> pa.RecordBatch:
    """The record batch of a block. Raises pyarrow's errors if the bytes are no block of this layout."""
    if block[:1] not in (_NARROW, _WIDE):
        raise pa.ArrowInvalid("the bytes begin like no block")
    return pa.ipc.read_record_batch(pa.py_buffer(block)[1:], _block_schema(layout, block[:1] == _WIDE))


def check_block(layout: Layout, block: bytes) -> int:
    """The number of rows in a block that another broker has sent. Raises ValueError if it is not valid."""
    try:
        batch = decode_batch(layout, block)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as problem:
        raise ValueError(f"its rows are not those of the view: {problem}") from None
    if any(batch.column(name).null_count for name in (MASK, STEPS)):
        raise ValueError("a row has no mask or no steps")
    for name, evolving in layout.evolving.items():
        if evolving.kind == "object":
            for point in filter(None, batch.column(f".{name}").to_pylist()):
                decode_point(point)
    return int(batch.num_rows)


def decode_blocks(layout: Layout, blocks: Sequence[bytes]) -> tuple[EncodedRows, list[int]]:
    """The rows of all blocks, and the number of rows in each. Bounds that no row has are omitted."""
    batches = [decode_batch(layout, block) for block in blocks]
    optional = {
        f".{name}.{part}" for name, e in layout.evolving.items() if e.kind == "range" for part in ("lo", "hi", "nulls")
    }
    rows: dict[str, ValueColumn] = {}
    for name in table_columns(layout):
        arrays = [batch.column(name) for batch in batches]
        if name in optional and all(array.null_count == len(array) for array in arrays):
            continue
        columns = [_decode_column(array) for array in arrays]
        rows[name] = v.concat(columns)
    return rows, [batch.num_rows for batch in batches]


def _decode_column(array: pa.Array) -> ValueColumn:
    if array.type != _WIDE_TYPE:
        return v.from_arrow(array)
    data = bytes(array.buffers()[1] or b"")
    starts = range(array.offset * _WIDE_BYTES, (array.offset + len(array)) * _WIDE_BYTES, _WIDE_BYTES)
    numbers = [int.from_bytes(data[start : start + _WIDE_BYTES], "little", signed=True) for start in starts]
    return ValueColumn(v.ints(numbers), v.validity(array))
