"""Recorded events, read into frames. A frame's events lie above the horizons of the frame before it, and no two events
of a stream share a tick: what was read before is dropped, what contradicts it is refused.

To tell one from the other, the tick and a hash of every event are kept, sixteen bytes in all.
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
from smile.log.careful import CarefulReader
from smile.log.checks import Row
from smile.log.frame import END, NOTHING, Frame
from smile.log.lines import Lines
from smile.log.places import BadEvent, EventError
from smile.log.quick import QuickReader
from smile.log.shape import TICK_MAX, Shape

# Bytes have a hash of 64 bits that no writer of events can foresee; Python's hash of numbers is theirs to choose.
_content = msgspec.msgpack.Encoder().encode


class _Stream:
    """What was read of one stream. `cells` are the rows of the frame in the making, one after the other, since many
    tuples would keep the collector of garbage busy. Of the first `_noted` cells, and of all before, ticks and hashes
    are noted."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.horizon = NOTHING
        self.cells: list[Value] = []
        self._ticks = array("q")
        self._hashes = array("q")
        self._noted = 0

    def add(self, row: Row, tick: int) -> bool:
        """False if the event is known already."""
        if tick <= self.horizon:
            self._compare(row, tick)
            return False
        for holds in self.shape.checks:
            if holds(row) is False:
                raise error("E080", self.shape.broken_check(row))
        self.horizon = tick
        self.cells.extend(row)
        return True

    def taken(self) -> pa.RecordBatch:
        """The rows of the frame; the next ones are another's."""
        self._note()
        batch = self.shape.batch(self.cells)
        self.cells, self._noted = [], 0
        return batch

    def _note(self) -> None:
        new = self.cells[self._noted :]
        width = self.shape.width
        self._ticks.extend(new[::width])  # type: ignore[arg-type]  # a row begins with its tick
        self._hashes.extend([hash(_content(row)) for row in zip(*[iter(new)] * width, strict=True)])
        self._noted = len(self.cells)

    def _compare(self, row: Row, tick: int) -> None:
        self._note()
        name = self.shape.name
        at = bisect_left(self._ticks, tick)
        if at == len(self._ticks) or self._ticks[at] != tick:
            horizon = "the end" if self.horizon == END else str(self.horizon)
            message = f"nothing happened on {name} at tick {tick}: all is known up to {horizon}"
            hint = "An event says that its stream was silent since its last tick, so each must be above the one before."
            raise error("E081", message, hint=hint)
        if self._hashes[at] != hash(_content(row)):
            raise error("E082", f"{name} has another event at tick {tick}, with other content")


class EventReader:
    """Reads the lines of `file`, which errors call `name`. The first line that is refused raises EventError; with
    `on_bad` it is told of each, and reading goes on as though they were not there.

    `events` counts those accepted, `duplicates` those known already, `bad` the lines refused.
    """

    def __init__(
        self,
        streams: Iterable[mmpl.StreamDef],
        file: BinaryIO,
        name: str,
        on_bad: Callable[[BadEvent], None] | None = None,
    ) -> None:
        shapes = {stream.name: Shape(stream) for stream in streams}
        self.name = name
        self.events = self.duplicates = self.bad = self.lines = 0
        self._on_bad = on_bad
        self._streams = {name: _Stream(shape) for name, shape in shapes.items()}
        self._quick = QuickReader(shapes).read
        self._careful = CarefulReader(shapes).read
        self._lines = Lines(file, name)
        self._last = NOTHING

    @property
    def bytes_read(self) -> int:
        return self._lines.bytes_read

    @property
    def bytes_total(self) -> int | None:
        return self._lines.bytes_total

    @property
    def horizons(self) -> dict[str, int]:
        return {name: stream.horizon for name, stream in self._streams.items()}

    def frames(self, batch: int) -> Iterator[Frame]:
        """What the lines tell, `batch` of them to a frame, or fewer where they are long. Lines that tell nothing new
        make no frame."""
        before, room, size = self.horizons, batch, 0
        for lines, whole in self._lines.blocks():
            begin = 0
            while begin < len(lines):
                part = lines[begin : begin + room]
                begin += len(part)
                room -= len(part)
                for raw in part:
                    size += len(raw)
                    self.lines += 1
                    self._take(raw, whole)
                if room == 0 or size > limits.frame_bytes_max:
                    yield from self._frame(before)
                    before, room, size = self.horizons, batch, 0
        yield from self._frame(before)

    def _frame(self, before: dict[str, int]) -> Iterator[Frame]:
        """What was told since the horizons were as `before`, if anything was."""
        horizons = self.horizons
        if horizons == before:
            return
        events = {}
        for name, stream in self._streams.items():
            if stream.cells:
                events[name] = stream.taken()
        yield Frame(events, horizons)

    def _take(self, raw: bytes, whole: bool) -> None:
        """One line, and all that follows from it."""
        try:
            said = self._quick(raw) or self._careful(raw, whole)
            if said is None:
                return
            shape, tick, values = said
            if values is None or shape is None:
                self._silence(shape, tick)
                return
            stream = self._streams[shape.name]
            if tick is None:
                tick = self._next(stream)
            if not stream.add((tick, *values), tick):
                self.duplicates += 1
                return
            self.events += 1
            if tick > self._last:
                self._last = tick
        except SmileError as problem:
            self.bad += 1
            bad = BadEvent.of(self.name, self.lines, raw, problem.diagnostics[0])
            if self._on_bad is None:
                raise EventError(bad) from None
            self._on_bad(bad)

    def _silence(self, shape: Shape | None, tick: int | None) -> None:
        assert tick is not None
        for stream in self._streams.values() if shape is None else [self._streams[shape.name]]:
            stream.horizon = max(stream.horizon, tick)

    def _next(self, stream: _Stream) -> int:
        """One more than the greatest so far; a silence of the stream is passed over, since nothing can happen in it."""
        tick = max(self._last, stream.horizon) + 1
        if tick > TICK_MAX:
            raise error("E079", f"no tick is left for another event on {stream.shape.name}: its horizon is at the end")
        return tick
