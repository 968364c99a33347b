"""A group of publications on its way into the log as one commit: every event has its tick, each number of a producer
stands for one event, and nothing of it is acknowledged before all of it is on the disk.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from smile.algebra.types import Value
from smile.broker.publication import Publication, Published, Rows, Silence
from smile.broker.repeats import Known, finished, in_order, ticks_given, with_ticks
from smile.errors import error
from smile.log.frame import END
from smile.log.pieces import StreamPiece
from smile.log.producers import Record
from smile.log.shape import Shape


@dataclass
class _Part:
    """Of one stream, in order of ticks: batches, and after them rows, one after the other."""

    shape: Shape
    batches: list[pa.RecordBatch] = field(default_factory=list)
    cells: list[Value] = field(default_factory=list)

    def add(self, rows: Rows, ticks: Sequence[int], timed: bool) -> None:
        if isinstance(rows, pa.RecordBatch):
            self._close()
            self.batches.append(rows if timed else with_ticks(self.shape, rows, ticks))
        elif timed:
            for row in rows:
                self.cells.extend(row)
        else:
            for tick, row in zip(ticks, rows, strict=True):
                self.cells.append(tick)
                self.cells.extend(row)

    def events(self) -> pa.RecordBatch:
        self._close()
        return self.batches[0] if len(self.batches) == 1 else pa.concat_batches(self.batches)

    def _close(self) -> None:
        if self.cells:
            self.batches.append(self.shape.batch(self.cells))
            self.cells = []


class Group:
    def __init__(self, known: Known) -> None:
        self.known = known
        self.records: list[Record] = []
        self.answers: list[tuple[Future[Published], Published]] = []
        self.events = self.repeated = 0
        self.numbers: dict[str, int] = {}
        """The last of each producer that has any in the group."""
        self.horizons: dict[str, int] = {}
        """Of each stream that the group tells of, the last tick."""
        self._parts: dict[str, _Part] = {}

    def add(self, order: Publication | Silence, future: Future[Published]) -> bool:
        """False if it can be answered only after the group was committed: it may repeat what is in it."""
        if isinstance(order, Silence):
            if order.to > self._horizon(order.stream):
                self.horizons[order.stream] = order.to
            self.answers.append((future, Published(())))
            return True
        who = order.numbered
        if who is not None and self.numbers.get(who.producer, -1) >= who.seq:
            return False
        found = self._timed(order) if order.stream in self.known.timed else self._given(order)
        if found is None:
            return False
        self.answers.append((future, found))
        self.repeated += found.repeated
        return True

    def pieces(self, now: int, levelled: bool) -> list[StreamPiece]:
        """What the log is told. Broker-timed streams are known up to `now`: those that something happened on, or if
        the streams are levelled, all of them."""
        known, origin = self.known, self.known.ticks.origin
        told = dict(self.horizons)
        for stream in known.log.streams if levelled else self.horizons:
            if stream not in known.timed and known.horizon(stream) < now:
                told[stream] = now
        self.horizons = told
        parts = self._parts
        return [
            StreamPiece(s, origin, known.horizon(s), hi, parts[s].events() if s in parts else None)
            for s, hi in told.items()
        ]

    def _horizon(self, stream: str) -> int:
        return self.horizons.get(stream, self.known.horizon(stream))

    def _given(self, order: Publication) -> Published:
        """The broker gives the ticks."""
        known, rows = self.known, order.rows
        repeated = () if order.numbered is None else known.repeated(order)
        if repeated:
            rows = rows[len(repeated) :]
        if not len(rows):
            return Published(repeated, len(repeated))
        if known.horizon(order.stream) == END:
            raise finished(order.stream)
        ticks = known.ticks.take(len(rows))
        if known.checks[order.stream]:
            self._check(order.stream, rows, ticks)
        self._take(order, rows, ticks, len(repeated))
        return Published([*repeated, *ticks], len(repeated)) if repeated else Published(ticks)

    def _timed(self, order: Publication) -> Published | None:
        """The publisher gives them. What lies at or below the horizon is known, or it is refused."""
        ticks = ticks_given(order.rows)
        in_order(order.stream, ticks)
        repeated = len(self.known.repeated(order))
        again = sum(tick <= self._horizon(order.stream) for tick in ticks[repeated:])
        if again and order.stream in self.horizons:
            return None
        new = repeated + again
        if again:
            runs = self.known.compare(order.stream, order.rows[repeated:new])
            for begin, end in pairwise([*runs, again]):
                self._record(order, ticks[repeated + begin : repeated + end], repeated + begin)
        if new < len(ticks):
            self._take(order, order.rows[new:], ticks[new:], new)
        return Published(ticks, new)

    def _check(self, stream: str, rows: Rows, ticks: Sequence[int]) -> None:
        """What could not be checked before the events had ticks."""
        shape, checks = self.known.log.shapes[stream], self.known.checks[stream]
        plain = zip(*(c.to_pylist() for c in rows.columns), strict=True) if isinstance(rows, pa.RecordBatch) else rows
        for number, (tick, row) in enumerate(zip(ticks, plain, strict=True), 1):
            if any(holds((tick, *row)) is False for holds in checks):
                raise error("E080", f"event {number}: {shape.broken_check((tick, *row))}")

    def _take(self, order: Publication, rows: Rows, ticks: Sequence[int], before: int) -> None:
        """New events, of which there were so many before in the publication."""
        stream = order.stream
        part = self._parts.get(stream)
        if part is None:
            part = self._parts[stream] = _Part(self.known.log.shapes[stream])
        part.add(rows, ticks, stream in self.known.timed)
        self.horizons[stream] = ticks[-1]
        self.events += len(rows)
        self._record(order, ticks, before)

    def _record(self, order: Publication, ticks: Sequence[int], before: int) -> None:
        if order.numbered is not None:
            producer, first = order.numbered.producer, order.numbered.seq + before
            last = first + len(ticks) - 1
            origin = self.known.ticks.origin
            self.records.append(Record(producer, first, last, order.stream, origin, ticks[0], ticks[-1]))
            self.numbers[producer] = last
