"""Events that are published as Arrow: each value as its stream's column has it, exactly, or an error that says which.

What arrives is from anybody, so that nothing is believed of it: buffers are looked through before they are used, and no
few bytes may become many.
"""

import struct
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from smile import limits
from smile.algebra.trees import columns_in
from smile.errors import SmileError, error
from smile.log.batch_checks import breaking
from smile.log.parquet_columns import check_columns, column_of
from smile.log.shape import TICK_MAX, Shape

_HERE: Final = "the events"
_UNREADABLE: Final = "Send one Arrow IPC stream, without compression."
_BROKEN: Final = (pa.ArrowException, OSError, ValueError, struct.error)
"""What is raised by bytes that are not what they should be."""


def rows_of_arrow(shape: Shape, body: bytes, timed: bool) -> pa.RecordBatch:
    """An IPC stream."""
    try:
        if any(_is_compressed(bytes(message.metadata)) for message in pa.ipc.MessageReader.open_stream(body)):
            raise error("E074", "the events are compressed", hint=_UNREADABLE)
        with pa.ipc.open_stream(body) as stream:
            batches, rows = list[pa.RecordBatch](), 0
            for batch in stream:
                rows += batch.num_rows
                _bound("events", rows, limits.publication_events_max)
                batches.append(batch)
            found = pa.Table.from_batches(batches, stream.schema)
    except _BROKEN as problem:
        raise _not_arrow(problem) from None
    return rows_of_batch(shape, found, timed)


def rows_of_batch(shape: Shape, given: pa.RecordBatch | pa.Table, timed: bool) -> pa.RecordBatch:
    """Columns in any order; those that are missing are NULL. The rows have a tick in front just if they are timed."""
    found = pa.Table.from_batches([given]) if isinstance(given, pa.RecordBatch) else given
    tick = shape.stream.tick
    _bound("events", found.num_rows, limits.publication_events_max)
    try:
        found.validate(full=True)
        names = found.schema.names  # which may not be text
    except _BROKEN as problem:
        raise _not_arrow(problem) from None
    if not timed and tick in names:
        raise error("E077", f"{tick} is the tick of {shape.name}", hint="The broker gives it; leave it out.")
    check_columns(_HERE, shape, found.schema if timed else found.schema.append(pa.field(tick, pa.int64())))
    size = sum(_written_out(chunk) for column in found.columns for chunk in column.chunks)
    _bound("bytes", size, limits.publication_bytes_max)
    columns = [_column(shape, name, found) for name in (shape.schema if timed else schema_without_tick(shape)).names]
    if timed:
        _check_ticks(shape, columns[0])
    else:
        columns.insert(0, pa.repeat(pa.scalar(0, pa.int64()), found.num_rows))
    events = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
    _check(shape if timed else _without_tick(shape), events)
    return events if timed else pa.RecordBatch.from_arrays(columns[1:], schema=schema_without_tick(shape))


@lru_cache(maxsize=1024)
def schema_without_tick(shape: Shape) -> pa.Schema:
    return pa.schema(list(shape.schema)[1:])


def _column(shape: Shape, name: str, found: pa.Table) -> pa.Array:
    try:
        return column_of(_HERE, shape, name, found)
    except SmileError as problem:
        raise _where(shape, name, found, problem) from None


def _where(shape: Shape, name: str, found: pa.Table, problem: SmileError) -> SmileError:
    """The first event whose value does not fit, found by halves."""
    first, end = 0, found.num_rows
    while end - first > 1:
        middle = (first + end) // 2
        try:
            column_of(_HERE, shape, name, found.slice(first, middle - first))
        except SmileError as nearer:
            problem, end = nearer, middle
        else:
            first = middle
    what = problem.diagnostics[0]
    return error(what.code, what.message.replace(_HERE, f"event {first + 1}", 1), hint=what.hint)


def _check_ticks(shape: Shape, ticks: pa.Array) -> None:
    good = pc.fill_null(pc.and_(pc.greater_equal(ticks, 0), pc.less_equal(ticks, TICK_MAX)), False)
    for number in np.flatnonzero(~good.to_numpy(zero_copy_only=False)).tolist()[:1]:
        given = ticks[number] if ticks[number].is_valid else "null"
        what = f"event {number + 1}: {shape.name}.{shape.stream.tick} is {given}, which is not a tick"
        raise error("E079", what, hint=f"A tick is a whole number from 0 to {TICK_MAX}.")


@lru_cache(maxsize=1024)
def _without_tick(shape: Shape) -> Shape:
    """With the checks that can be made before an event has its tick."""
    stream = shape.stream
    return Shape(replace(stream, checks=tuple(c for c in stream.checks if stream.tick not in columns_in(c))))


def _check(shape: Shape, events: pa.RecordBatch) -> None:
    if breaking(shape, events) is None:
        return
    for number, row in enumerate(zip(*(column.to_pylist() for column in events.columns), strict=True), 1):
        if any(holds(row) is False for holds in shape.checks):
            raise error("E080", f"event {number}: {shape.broken_check(row)}")


def _not_arrow(problem: Exception) -> SmileError:
    first = next(iter(str(problem).splitlines()), "")
    return error("E074", f"the events are not Arrow: {first}", hint=_UNREADABLE)


def _bound(what: str, count: int, most: int) -> None:
    if count > most:
        message = f"{count:,} {what} are published at once, and at most {most:,} may be"
        raise error("E092", message, hint="Publish them in smaller parts.")


def _written_out(column: pa.Array) -> int:
    """The bytes that a column takes with nothing in it shared between events."""
    if types.is_dictionary(column.type):
        lengths = _lengths(column.dictionary)
        return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
    return int(pc.sum(_lengths(column)).as_py() or 0)


def _lengths(column: pa.Array) -> pa.Array:
    if types.is_string_view(column.type) or types.is_binary_view(column.type):
        views = np.frombuffer(column.buffers()[1], np.int32)[4 * column.offset :: 4]
        return pa.array(views[: len(column)].astype(np.int64))
    if types.is_string(column.type) or types.is_large_string(column.type) or _is_bytes(column.type):
        return pc.cast(pc.binary_length(column), pa.int64())
    return pa.repeat(pa.scalar(16, pa.int64()), len(column))


def _is_bytes(data: pa.DataType) -> bool:
    return bool(types.is_binary(data) or types.is_large_binary(data) or types.is_fixed_size_binary(data))


def _is_compressed(metadata: bytes) -> bool:
    """Of a message of an IPC stream, as Arrow's Message.fbs lays it out. The bytes it would become are not bounded."""
    message = _Flat(metadata, struct.unpack_from("<I", metadata)[0])
    kind = message.byte(1)
    header = message.table(2)
    if header is None or kind not in (_DICTIONARY, _RECORDS):
        return False
    records = header.table(1) if kind == _DICTIONARY else header
    return records is not None and records.place(3) is not None


_DICTIONARY: Final = 2
_RECORDS: Final = 3


class _Flat:
    """A table of a flatbuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]

    def place(self, field: int) -> int | None:
        """Where a field is; None if it is left out."""
        size = struct.unpack_from("<H", self.data, self._fields)[0]
        if 4 + 2 * field >= size:
            return None
        offset = struct.unpack_from("<H", self.data, self._fields + 4 + 2 * field)[0]
        return self.at + offset if offset else None

    def byte(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else int(self.data[place])

    def table(self, field: int) -> "_Flat | None":
        place = self.place(field)
        return None if place is None else _Flat(self.data, place + struct.unpack_from("<I", self.data, place)[0])
