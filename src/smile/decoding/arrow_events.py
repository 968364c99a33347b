"""Reads published events in Arrow format. Each value is converted exactly to its column's type, or refused.

The input is not trusted: all buffers are validated before use, and small inputs that would expand to large ones (by
compression or shared values) are refused.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from smile import limits
from smile.algebra import mmpl
from smile.algebra.types import TICK_MAX
from smile.decoding.arrow_columns import check_columns, is_text, stream_column
from smile.decoding.arrow_messages import MALFORMED, is_compressed
from smile.decoding.stream_schema import BROKER_TICK_HINT, AbsentColumns, StreamSchema
from smile.errors import SmileError, error

_EVENTS_NAME: Final = "the events"
_ARROW_HINT: Final = "Send one Arrow IPC stream, without compression."
ARROW_PROBLEMS: Final = (pa.ArrowException, OSError, *MALFORMED)
"""What malformed input raises."""


def read_arrow_stream(schema: StreamSchema, body: bytes, absent: AbsentColumns | None = None) -> pa.RecordBatch:
    """Reads an IPC stream."""
    try:
        if any(is_compressed(bytes(message.metadata)) for message in pa.ipc.MessageReader.open_stream(body)):
            raise error("E074", "the events are compressed", hint=_ARROW_HINT)
        with pa.ipc.open_stream(body) as stream:
            batches, rows = list[pa.RecordBatch](), 0
            for batch in stream:
                rows += batch.num_rows
                check_limit("events", rows, limits.publication_events_max)
                batches.append(batch)
            table = pa.Table.from_batches(batches, stream.schema)
    except MemoryError:
        raise
    except ARROW_PROBLEMS as problem:
        raise not_arrow_error(problem) from None
    return read_arrow_table(schema, table, absent)


def read_arrow_table(schema: StreamSchema, table: pa.Table, absent: AbsentColumns | None = None) -> pa.RecordBatch:
    """Events with the stream's published columns. The table's columns may be in any order; missing columns are NULL."""
    tick, is_publisher_timed = schema.stream.tick, schema.stream.publisher_timed
    check_limit("events", table.num_rows, limits.publication_events_max)
    try:
        table.validate(full=True)
        names = table.schema.names  # raises an error if a name is not valid text
    except MemoryError:
        raise
    except ARROW_PROBLEMS as problem:
        raise not_arrow_error(problem) from None
    if not is_publisher_timed and tick in names:
        raise error("E077", f"{tick} is the tick of {schema.name}", hint=BROKER_TICK_HINT)
    with_tick = table.schema if is_publisher_timed else table.schema.append(pa.field(tick, pa.int64()))
    check_columns(_EVENTS_NAME, schema, with_tick)
    size = sum(_expanded_bytes(chunk) for column in table.columns for chunk in column.chunks)
    check_limit("bytes", size, limits.publication_bytes_max)
    columns = [_read_column(schema, name, table) for name in schema.published_types]
    if is_publisher_timed:
        _check_ticks(schema, columns[0])
    if absent is not None:
        missing = [name for name in schema.published_types if name not in names and name in schema.warned_columns]
        events = table.num_rows - (_count_deletions(schema, table) if missing else 0)
        absent |= dict.fromkeys(missing, events) if events else {}
    return pa.RecordBatch.from_arrays(columns, schema=schema.published_schema)


def _read_column(schema: StreamSchema, name: str, table: pa.Table) -> pa.Array:
    try:
        return stream_column(_EVENTS_NAME, schema, name, table)
    except SmileError as problem:
        raise _locate_error(schema, name, table, problem) from None


def _locate_error(schema: StreamSchema, name: str, table: pa.Table, problem: SmileError) -> SmileError:
    """The error of the first event whose value does not fit, found by binary search."""
    first, end = 0, table.num_rows
    while end - first > 1:
        middle = (first + end) // 2
        try:
            stream_column(_EVENTS_NAME, schema, name, table.slice(first, middle - first))
        except SmileError as earlier:
            problem, end = earlier, middle
        else:
            first = middle
    diagnostic = problem.diagnostics[0]
    return error(
        diagnostic.code, diagnostic.message.replace(_EVENTS_NAME, f"event {first + 1}", 1), hint=diagnostic.hint
    )


def _count_deletions(schema: StreamSchema, table: pa.Table) -> int:
    """The number of rows that are deleted from a table with a primary key: these need no columns but the key."""
    if not schema.has_deletions or mmpl.CHANGE_COLUMN not in table.schema.names:
        return 0
    changes = stream_column(_EVENTS_NAME, schema, mmpl.CHANGE_COLUMN, table)
    return int(pc.sum(pc.equal(changes, "delete")).as_py() or 0)


def _check_ticks(schema: StreamSchema, ticks: pa.Array) -> None:
    is_valid = pc.fill_null(pc.and_(pc.greater_equal(ticks, 0), pc.less_equal(ticks, TICK_MAX)), False)
    for number in np.flatnonzero(~is_valid.to_numpy(zero_copy_only=False)).tolist()[:1]:
        tick_text = ticks[number] if ticks[number].is_valid else "null"
        message = f"event {number + 1}: {schema.name}.{schema.stream.tick} is {tick_text}, which is not a tick"
        raise error("E079", message, hint=f"A tick is a whole number from 0 to {TICK_MAX}.")


def not_arrow_error(problem: Exception) -> SmileError:
    first_line = next(iter(str(problem).splitlines()), "")
    return error("E074", f"the events are not Arrow: {first_line}", hint=_ARROW_HINT)


def check_limit(unit: str, count: int, limit: int) -> None:
    if count > limit:
        message = f"{count:,} {unit} are published at once, but the limit is {limit:,}"
        raise error("E092", message, hint="Publish them in smaller parts.")


def _expanded_bytes(column: pa.Array) -> int:
    """The size of a column if no values are shared between events."""
    if types.is_dictionary(column.type):
        lengths = _value_bytes(column.dictionary)
        return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
    return int(pc.sum(_value_bytes(column)).as_py() or 0)


def _value_bytes(column: pa.Array) -> pa.Array:
    if types.is_string_view(column.type) or types.is_binary_view(column.type):
        views = np.frombuffer(column.buffers()[1], np.int32)[4 * column.offset :: 4]
        return pa.array(views[: len(column)].astype(np.int64))
    if is_text(column.type) or is_bytes(column.type):
        return pc.cast(pc.binary_length(column), pa.int64())
    return pa.repeat(pa.scalar(16, pa.int64()), len(column))


def is_bytes(data: pa.DataType) -> bool:
    return bool(types.is_binary(data) or types.is_large_binary(data) or types.is_fixed_size_binary(data))
