"""Reads recorded events (lines of JSON) into input batches.

The events of a batch lie above the horizons of the previous batch, and no two events of a stream share a tick. A
repeated event is dropped; an event that contradicts an earlier one is refused. To distinguish the two, the reader
stores the tick and a hash of every event, sixteen bytes in all.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import msgspec
import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.algebra.types import Value
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN
from smile.log.decoding.checks import EventRow
from smile.log.decoding.diagnosing_reader import DiagnosingReader
from smile.log.decoding.event_errors import BadEvent, EventError
from smile.log.decoding.fast_reader import FastReader
from smile.log.decoding.lines import LineReader
from smile.log.decoding.stream_schema import TICK_MAX, StreamSchema
from smile.log.input_batch import InputBatch

# Python's hash of bytes is salted, so that nobody can construct events with equal hashes. Its hash of numbers is not.
_encode_row = msgspec.msgpack.Encoder().encode


class _StreamEvents:
    """The events read from one stream.

    `cells` has the rows of the current batch in one flat list, since many tuples would slow down garbage collection.
    `_ticks` and `_hashes` cover all earlier batches and the first `_indexed_cells` cells."""

    def __init__(self, schema: StreamSchema) -> None:
        self.schema = schema
        self.horizon = HORIZON_MIN
        self.cells: list[Value] = []
        self._ticks = array("q")
        self._hashes = array("q")
        self._indexed_cells = 0

    def add(self, row: EventRow, tick: int) -> bool:
        """Adds an event; returns False if it is already known."""
        if tick <= self.horizon:
            self._check_repeated(row, tick)
            return False
        for evaluate in self.schema.checks:
            if evaluate(row) is False:
                raise error("E080", self.schema.describe_violation(row))
        self.horizon = tick
        self.cells.extend(row)
        return True

    def take_batch(self) -> pa.RecordBatch:
        """The rows of the current batch. Later rows belong to the next batch."""
        self._index_cells()
        batch = self.schema.record_batch(self.cells)
        self.cells, self._indexed_cells = [], 0
        return batch

    def _index_cells(self) -> None:
        new = self.cells[self._indexed_cells :]
        width = self.schema.width
        self._ticks.extend(new[::width])  # type: ignore[arg-type]  # a row begins with its tick
        self._hashes.extend([hash(_encode_row(row)) for row in zip(*[iter(new)] * width, strict=True)])
        self._indexed_cells = len(self.cells)

    def _check_repeated(self, row: EventRow, tick: int) -> None:
        self._index_cells()
        name = self.schema.name
        index = bisect_left(self._ticks, tick)
        if index == len(self._ticks) or self._ticks[index] != tick:
            horizon = "its end" if self.horizon == END else f"tick {self.horizon}"
            message = f"{name} has no event at tick {tick}, and is complete up to {horizon}"
            hint = "An event declares its stream silent since the previous event, so the ticks of a stream must ascend."
            raise error("E081", message, hint=hint)
        if self._hashes[index] != hash(_encode_row(row)):
            raise error("E082", f"{name} has another event at tick {tick}, with different content")


class EventReader:
    """Reads the lines of `file`; errors refer to it by `name`. The first refused line raises EventError. If `on_bad` is
    given, it is called for each refused line instead, and reading continues as if the line did not exist.

    `events` counts accepted events, `duplicates` repeated events, and `bad` refused lines.
    """

    def __init__(
        self,
        streams: Iterable[mmpl.StreamDef],
        file: BinaryIO,
        name: str,
        on_bad: Callable[[BadEvent], None] | None = None,
    ) -> None:
        schemas = {stream.name: StreamSchema(stream) for stream in streams}
        self.name = name
        self.events = self.duplicates = self.bad = self.lines = 0
        self._on_bad = on_bad
        self._streams = {name: _StreamEvents(schema) for name, schema in schemas.items()}
        self._read_fast = FastReader(schemas).read
        self._read_diagnosing = DiagnosingReader(schemas).read
        self._lines = LineReader(file, name)
        self._last = HORIZON_MIN

    @property
    def bytes_read(self) -> int:
        return self._lines.bytes_read

    @property
    def bytes_total(self) -> int | None:
        return self._lines.bytes_total

    @property
    def horizons(self) -> dict[str, int]:
        return {name: stream.horizon for name, stream in self._streams.items()}

    def batches(self, lines_max: int) -> Iterator[InputBatch]:
        """The content of the lines, in batches of up to `lines_max` lines, or fewer if they are long. Lines without new
        information form no batch."""
        before, room, size = self.horizons, lines_max, 0
        for lines, is_complete in self._lines.blocks():
            begin = 0
            while begin < len(lines):
                chunk = lines[begin : begin + room]
                begin += len(chunk)
                room -= len(chunk)
                for raw in chunk:
                    size += len(raw)
                    self.lines += 1
                    self._read_line(raw, is_complete)
                if room == 0 or size > limits.input_batch_bytes_max:
                    yield from self._next_batch(before)
                    before, room, size = self.horizons, lines_max, 0
        yield from self._next_batch(before)

    def _next_batch(self, before: dict[str, int]) -> Iterator[InputBatch]:
        """The batch of everything read since the horizons were `before`, unless they have not changed."""
        horizons = self.horizons
        if horizons == before:
            return
        events = {}
        for name, stream in self._streams.items():
            if stream.cells:
                events[name] = stream.take_batch()
        yield InputBatch(events, horizons)

    def _read_line(self, raw: bytes, is_complete: bool) -> None:
        try:
            parsed = self._read_fast(raw) or self._read_diagnosing(raw, is_complete)
            if parsed is None:
                return
            schema, tick, values = parsed
            if values is None or schema is None:
                self._take_silence(schema, tick)
                return
            stream = self._streams[schema.name]
            if tick is None:
                tick = self._next_tick(stream)
            if not stream.add((tick, *values), tick):
                self.duplicates += 1
                return
            self.events += 1
            if tick > self._last:
                self._last = tick
        except SmileError as problem:
            self.bad += 1
            bad = BadEvent.from_diagnostic(self.name, self.lines, raw, problem.diagnostics[0])
            if self._on_bad is None:
                raise EventError(bad) from None
            self._on_bad(bad)

    def _take_silence(self, schema: StreamSchema | None, tick: int | None) -> None:
        assert tick is not None
        for stream in self._streams.values() if schema is None else [self._streams[schema.name]]:
            stream.horizon = max(stream.horizon, tick)

    def _next_tick(self, stream: _StreamEvents) -> int:
        """The tick of an event without one: above all ticks so far, and above the declared silence of its stream."""
        tick = max(self._last, stream.horizon) + 1
        if tick > TICK_MAX:
            raise error(
                "E079", f"no tick is left for another event of {stream.schema.name}: its horizon is at the maximum"
            )
        return tick
