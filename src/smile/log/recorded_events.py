"""Reads recorded events (lines of JSON) into input batches.

The events of a batch lie above the horizons of the previous batch, and no two events of a stream share a tick. A
repeated event is dropped; an event that contradicts an earlier one is refused. To distinguish the two, the reader
stores the tick and a hash of every event, sixteen bytes in all.

The CHECKs are evaluated on all events of a block of lines at once, and then the events are added line by line. Only if
a CHECK needs a tick that follows from the lines before, it is evaluated on this event alone.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import BinaryIO

import msgspec
import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.algebra.coercions import describe_tick
from smile.algebra.types import TICK_MAX, Value
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import SAME_TICK_HINT, EventRow, StreamSchema
from smile.errors import Diagnostic, SmileError, error, render
from smile.horizons import END, HORIZON_MIN, origin_name, with_origins
from smile.log.input_batch import InputBatch
from smile.log.lines import LineReader
from smile.log.position import DEFAULT_ORIGIN
from smile.log.storage.unique_values import UsedValues
from smile.source import Source, Span

# Python's hash of bytes is salted, so that nobody can construct events with equal hashes. Its hash of numbers is not.
_encode_row = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class EventLine(Source):
    """A line of a file. Spans are offsets into the line."""

    number: int

    def line_col(self, offset: int) -> tuple[int, int]:
        return self.number, offset + 1

    def line(self, number: int) -> str:
        return self.text.rstrip("\r\n")


@dataclass(frozen=True)
class BadEvent:
    """A refused line. If the line is too long, `raw` is only its beginning."""

    name: str
    number: int
    raw: bytes
    diagnostic: Diagnostic

    @staticmethod
    def from_diagnostic(name: str, number: int, raw: bytes, diagnostic: Diagnostic) -> "BadEvent":
        """A diagnostic without a span gets the whole line as its span."""
        return BadEvent(name, number, raw, replace(diagnostic, span=diagnostic.span or Span(0, len(raw))))

    @cached_property
    def source(self) -> EventLine:
        return EventLine(self.name, self.raw.decode("utf-8", "replace"), self.number)

    def render(self) -> str:
        """`file:line:col`, the message, the line, and the hint."""
        return render([self.diagnostic], self.source)


class EventError(SmileError):
    """A line was refused. The diagnostic's span refers to `source`."""

    def __init__(self, bad: BadEvent) -> None:
        super().__init__(bad.diagnostic)
        self.bad = bad
        self.source = bad.source

    def __str__(self) -> str:
        return f"{self.bad.name}:{self.bad.number}: {self.bad.diagnostic.message}"


def refuse_imported_views(program: mmpl.Program) -> None:
    """Recorded events have the events of imported streams, but no rows of imported views."""
    for import_ in program.imports:
        if import_.stream is None:
            hint = "Replay the log of a broker that has imported it, or replay the program that defines it."
            raise error("E048", f"recorded events have no rows of the imported view {import_.name}", hint=hint)


class _StreamEvents:
    """The events read from one stream, or from one origin of a stream with many origins. `name` is that of its horizon.

    `cells` has the rows of the current batch in one flat list, since many tuples would slow down garbage collection.
    `_ticks` and `_hashes` cover all earlier batches and the first `_indexed_cells` cells."""

    def __init__(self, schema: StreamSchema, name: str, many: "_ManyOrigins | None" = None) -> None:
        self.schema, self.name, self.many = schema, name, many
        self.horizon = HORIZON_MIN
        self.cells: list[Value] = []
        self._ticks = array("q")
        self._hashes = array("q")
        self._indexed_cells = 0

    def violations(self, ticks: Sequence[int | None], rows: Sequence[EventRow]) -> dict[int, SmileError]:
        """Those of the rows that violate a CHECK."""
        checks = self.schema.checks
        events = checks.record_batch([ticks, *zip(*rows, strict=True)])
        return {i: error("E080", checks.describe(events, i)) for i in checks.violations(events).tolist()}

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

    def check_repeated(self, row: EventRow, tick: int) -> None:
        self._index_cells()
        name = self.name
        index = bisect_left(self._ticks, tick)
        if index == len(self._ticks) or self._ticks[index] != tick:
            horizon = "its end" if self.horizon == END else f"tick {describe_tick(self.horizon)}"
            message = f"{name} has no event at tick {describe_tick(tick)}, and is complete up to {horizon}"
            hint = "An event declares its stream silent since the previous event, so the ticks of a stream must ascend."
            raise error("E081", message, hint=hint)
        if self._hashes[index] != hash(_encode_row(row)):
            raise error(
                "E082",
                f"{name} has another event at tick {describe_tick(tick)}, with different content",
                hint=SAME_TICK_HINT,
            )


class _ManyOrigins:
    """The origins of a stream with many origins. One is a member as soon as something is known of it."""

    def __init__(self, schema: StreamSchema) -> None:
        self._schema = schema
        self._events: dict[str, _StreamEvents] = {}
        self._ticks: set[int] = set()

    @property
    def members(self) -> dict[str, _StreamEvents]:
        return {origin: events for origin, events in self._events.items() if events.horizon > HORIZON_MIN}

    @property
    def horizon(self) -> int:
        return min((events.horizon for events in self.members.values()), default=HORIZON_MIN)

    def events(self, origin: str) -> _StreamEvents:
        if origin not in self._events:
            self._events[origin] = _StreamEvents(self._schema, origin_name(self._schema.name, origin), self)
        return self._events[origin]

    def silent_origins(self) -> Sequence[_StreamEvents]:
        """The origins that a silence of the whole stream concerns: all so far."""
        return list(self.members.values()) or [self.events(DEFAULT_ORIGIN)]

    def check_joining(self, events: _StreamEvents, first_tick: int) -> None:
        """An origin that joins begins above everything that its stream is known to have."""
        if events.horizon == HORIZON_MIN and first_tick <= self.horizon:
            hint = "Name all origins first, each with a silence: the horizon of a stream is the least of its origins'."
            ticks = describe_tick(first_tick), describe_tick(self.horizon)
            message = f"{events.name} cannot join at tick {ticks[0]}: its stream is known up to {ticks[1]}"
            raise error("E081", message, hint=hint)

    def add_tick(self, tick: int) -> None:
        if tick in self._ticks:
            raise error("E083", f"two origins of {self._schema.name} have an event at tick {tick}")
        self._ticks.add(tick)


class EventReader:
    """Reads the lines of `file`; errors refer to it by `name`. The first refused line raises EventError. If `on_bad` is
    given, it is called for each refused line instead, and reading continues as if the line did not exist.

    `events` counts accepted events, `duplicates` repeated events, and `bad` refused lines.
    """

    def __init__(
        self, decoder: EventDecoder, file: BinaryIO, name: str, on_bad: Callable[[BadEvent], None] | None = None
    ) -> None:
        self.name = name
        self.events = self.duplicates = self.bad = self.lines = 0
        self._on_bad = on_bad
        schemas = decoder.schemas.items()
        self._streams = {name: _StreamEvents(s, name) for name, s in schemas if not s.stream.many_origins}
        self._many_origins = {name: _ManyOrigins(schema) for name, schema in schemas if schema.stream.many_origins}
        self._decode_line = decoder.decode_line
        self._lines = LineReader(file, name)
        self._last = HORIZON_MIN
        self._used_values = UsedValues()

    @property
    def bytes_read(self) -> int:
        return self._lines.bytes_read

    @property
    def bytes_total(self) -> int | None:
        return self._lines.bytes_total

    @property
    def horizons(self) -> dict[str, int]:
        horizons = {name: stream.horizon for name, stream in self._streams.items()}
        for name, stream in self._many_origins.items():
            horizons |= with_origins(name, {origin: events.horizon for origin, events in stream.members.items()})
        return horizons

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
                size += sum(map(len, chunk))
                self._read_chunk(chunk, is_complete)
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
        for stream in [*self._streams.values(), *(e for s in self._many_origins.values() for e in s.members.values())]:
            if stream.cells:
                events[stream.name] = stream.take_batch()
        yield InputBatch(events, horizons)

    def _read_chunk(self, lines: Sequence[bytes], is_complete: bool) -> None:
        # Separate lists, since many tuples would slow down garbage collection.
        streams, ticks, rows = list[_StreamEvents | None](), list[int | None](), list[EventRow | None]()
        refused: dict[int, SmileError] = {}
        silences: dict[int, Sequence[_StreamEvents]] = {}
        decode_line, streams_by_name = self._decode_line, self._streams
        for raw in lines:
            stream = None
            try:
                schema, tick, row, origin = decode_line(raw, is_complete) or (None, None, None, None)
                if schema is not None:
                    stream = streams_by_name.get(schema.name)
                    if stream is None and (row is not None or origin is not None):
                        stream = self._many_origins[schema.name].events(origin or DEFAULT_ORIGIN)
                    elif stream is None:
                        silences[len(rows)] = self._many_origins[schema.name].silent_origins()
            except SmileError as problem:
                refused[len(rows)] = problem
                tick = row = None
            streams.append(stream)
            ticks.append(tick)
            rows.append(row)
        violations = _find_violations(streams, ticks, rows)
        for index, (stream, tick, row) in enumerate(zip(streams, ticks, rows, strict=True)):
            try:
                if row is not None and stream is not None:
                    self._add(stream, tick, row, violations.get(index))
                elif tick is not None:
                    for silent in [stream] if stream is not None else silences.get(index) or self._all_streams():
                        if silent.many is not None:
                            silent.many.check_joining(silent, tick + 1)
                        silent.horizon = max(silent.horizon, tick)
                elif index in refused:
                    raise refused[index]
            except SmileError as problem:
                self._refuse(self.lines + index + 1, lines[index], problem)
        self.lines += len(lines)

    def _add(self, stream: _StreamEvents, tick: int | None, row: EventRow, violation: SmileError | None) -> None:
        if tick is None:
            tick = self._next_tick(stream)
            if stream.schema.checks.need_tick:
                violation = stream.violations([tick], [row]).get(0)
        if stream.many is not None:
            stream.many.check_joining(stream, tick)
        if tick <= stream.horizon:
            stream.check_repeated((tick, *row), tick)
            self.duplicates += 1
            return
        if violation is not None:
            raise violation
        if stream.schema.stream.unique:
            self._used_values.add(stream.schema.stream, stream.schema.record_batch([tick, *row]))
        if stream.many is not None:
            stream.many.add_tick(tick)
        stream.horizon = tick
        stream.cells.append(tick)
        stream.cells.extend(row)
        self.events += 1
        if tick > self._last:
            self._last = tick

    def _all_streams(self) -> list[_StreamEvents]:
        origins = (events for stream in self._many_origins.values() for events in stream.silent_origins())
        return [*self._streams.values(), *origins]

    def _refuse(self, number: int, raw: bytes, problem: SmileError) -> None:
        self.bad += 1
        bad = BadEvent.from_diagnostic(self.name, number, raw, problem.diagnostics[0])
        if self._on_bad is None:
            raise EventError(bad) from None
        self._on_bad(bad)

    def _next_tick(self, stream: _StreamEvents) -> int:
        """The tick of an event without one: above all ticks so far, and above the declared silence of its stream."""
        tick = max(self._last, stream.horizon) + 1
        if tick > TICK_MAX:
            raise error(
                "E079", f"no tick is left for another event of {stream.schema.name}: its horizon is at the maximum"
            )
        return tick


def _find_violations(
    streams: Sequence[_StreamEvents | None], ticks: Sequence[int | None], rows: Sequence[EventRow | None]
) -> dict[int, SmileError]:
    """The lines whose events violate a CHECK, by their index."""
    indices_by_stream = defaultdict[_StreamEvents, list[int]](list)
    for index, stream in enumerate(streams):
        if stream is not None and rows[index] is not None:
            indices_by_stream[stream].append(index)
    violations = {}
    for stream, indices in indices_by_stream.items():
        violations_by_row = stream.violations(
            [ticks[i] for i in indices], [row for i in indices if (row := rows[i]) is not None]
        )
        violations.update({indices[i]: problem for i, problem in violations_by_row.items()})
    return violations
