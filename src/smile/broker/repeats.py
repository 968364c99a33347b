"""What is in the log already: how far each stream is known, and which events are there when they are published again.

A repeat is compared with what the log has, as long as it has it. So a producer's number, or a tick that its publisher
gave, never stands for two different events.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from smile import limits
from smile.algebra.types import TICKS_PER_MICROSECOND, Value
from smile.broker.publication import Publication, Rows
from smile.columns.values import arrow_ints
from smile.errors import SmileError, error
from smile.log.checks import Evaluator
from smile.log.clock import Ticks
from smile.log.durable import DurableLog
from smile.log.frame import END, NOTHING
from smile.log.producers import Record
from smile.log.publishing import tick_checks
from smile.log.ranges import ticks_of
from smile.log.shape import Shape


def ticks_given(rows: Rows) -> list[int]:
    """Of events that have their ticks in front."""
    if isinstance(rows, pa.RecordBatch):
        return list(rows.column(0).to_pylist())
    return [row[0] for row in rows]  # type: ignore[misc]  # a tick is an int


def in_order(stream: str, ticks: Sequence[int]) -> None:
    for number, (tick, after) in enumerate(pairwise(ticks), 2):
        if after <= tick:
            hint = "Publish events in order of ticks, no two at the same."
            raise error("E079", f"event {number}: {stream} has tick {after} after tick {tick}", hint=hint)


def finished(stream: str) -> SmileError:
    return error("E081", f"{stream} is finished: nothing happens on it any more")


class Known:
    """What the log has, as far as one origin's publishing goes. For one thread; no other writes to the log as this
    origin."""

    def __init__(self, log: DurableLog, ticks: Ticks) -> None:
        self.log = log
        self.ticks = ticks
        self.streams: dict[str, int] = {}
        """Their horizons: what all origins know."""
        self._own: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self.timed: frozenset[str] = frozenset()
        """Streams whose ticks come from their publishers."""
        self.checks: dict[str, list[Evaluator]] = {}
        """Of the others, those that need the tick."""

    def load(self) -> None:
        """From the log, as it is now."""
        newest, origin = self.log.newest(), self.ticks.origin
        shapes = self.log.shapes
        self.timed = frozenset(name for name, shape in shapes.items() if shape.stream.publisher_timed)
        self.checks = {name: tick_checks(shape) for name, shape in shapes.items() if name not in self.timed}
        self.streams = newest.streams()
        for stream, horizons in newest.horizons.items():
            # An origin that joins a stream begins where the stream is.
            self._own[stream] = horizons.get(origin, self.streams[stream])
            self._others[stream] = min((tick for o, tick in horizons.items() if o != origin), default=END)
        self._numbers.clear()
        given = [tick for stream, tick in self._own.items() if stream not in self.timed and tick != END]
        self.ticks.pass_by(max(given, default=NOTHING))

    def horizon(self, stream: str) -> int:
        """What this origin has told of it."""
        return self._own[stream]

    def committed(self, horizons: dict[str, int], numbers: dict[str, int]) -> None:
        self._own.update(horizons)
        self.streams = {**self.streams, **{s: min(tick, self._others[s]) for s, tick in horizons.items()}}
        for producer, last in numbers.items():
            self._know(producer, last)

    # ── repeats ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def repeated(self, order: Publication) -> list[int]:
        """The ticks of the events that were published before, which are the first ones."""
        if order.numbered is None:
            return []
        producer, first = order.numbered.producer, order.numbered.seq
        last = self._last_number(producer)
        if last is None or first > last:
            return []
        end = min(last, first + len(order.rows) - 1)
        ticks = list[int]()
        for records in _in_rows(self.log.records(producer, first, end)):
            if records[0].first > first + len(ticks):
                break
            ticks += self._same(order, records, len(ticks), min(end, records[-1].last) - first + 1)
        if len(ticks) < end - first + 1:
            unknown = first + len(ticks)
            hint = "Numbers go up. One that was left out cannot be used later, and one of long ago is forgotten."
            raise error("E096", f"{producer} has used number {last}, and nothing is known of {unknown}", hint=hint)
        return ticks

    def compare(self, stream: str, rows: Rows) -> list[int]:
        """Events at or below the horizon of a stream whose publishers give the ticks: they are there, or refused. Gives
        the places at which a run of them begins: between events of a run nothing happened."""
        ticks = ticks_given(rows)
        at = np.array(ticks, np.int64)
        there, runs = self.log.told(stream, self.ticks.origin, at - 1, at)
        if there.num_rows < len(ticks):
            tick, horizon = np.setdiff1d(at, ticks_of(there))[0], self.horizon(stream)
            if horizon == END:
                raise finished(stream)
            message = f"nothing happened on {stream} at tick {tick}: all is known up to {horizon}"
            raise error("E081", message, hint="Events are published in order of ticks.")
        other = _first_other(there, self._batch(stream, rows, ticks))
        if other is not None:
            raise error("E082", f"{stream} has another event at tick {ticks[other]}")
        return runs

    def _same(self, order: Publication, records: Sequence[Record], begin: int, end: int) -> list[int]:
        """The ticks of those events of a publication that records have, if they are the same."""
        assert order.numbered is not None
        rows, first = order.rows[begin:end], order.numbered.seq + begin - records[0].first
        if records[0].stream != order.stream:
            raise self._other(order, begin)
        lows, highs = (np.array(ticks, np.int64) for ticks in zip(*((r.lo - 1, r.hi) for r in records), strict=True))
        try:
            there, _ = self.log.told(order.stream, records[0].origin, lows, highs)
        except SmileError as problem:
            if problem.diagnostics[0].code != "E097":
                raise
            if len(records) == 1:
                return self._ticks_of_cut(order, records[0], begin, rows)
            half = len(records) // 2
            middle = records[half].first - order.numbered.seq
            return self._same(order, records[:half], begin, middle) + self._same(order, records[half:], middle, end)
        there = there.slice(first, len(rows))
        if there.num_rows != len(rows):
            raise self._other(order, begin)
        ticks: list[int] = there.column(0).to_pylist()
        other = _first_other(there, self._batch(order.stream, rows, ticks))
        if other is not None:
            raise self._other(order, begin + other)
        return ticks

    def _ticks_of_cut(self, order: Publication, record: Record, begin: int, rows: Rows) -> list[int]:
        """Of events that are gone from the log."""
        assert order.numbered is not None
        if order.stream not in self.timed:
            first = record.lo + (order.numbered.seq + begin - record.first) * TICKS_PER_MICROSECOND
            return [first + n * TICKS_PER_MICROSECOND for n in range(len(rows))]
        ticks = ticks_given(rows)
        if ticks[0] < record.lo or ticks[-1] > record.hi:
            raise self._other(order, begin)
        return ticks

    def _other(self, order: Publication, place: int) -> SmileError:
        assert order.numbered is not None
        message = f"{order.numbered.producer} has published something else as number {order.numbered.seq + place}"
        return error("E096", message, hint="Every event has a number of its own, and another producer another name.")

    def _batch(self, stream: str, rows: Rows, ticks: Sequence[int]) -> pa.RecordBatch:
        shape, timed = self.log.shapes[stream], stream in self.timed
        if isinstance(rows, pa.RecordBatch):
            return rows if timed else with_ticks(shape, rows, ticks)
        cells: list[Value] = []
        for tick, row in zip(ticks, rows, strict=True):
            cells.extend(row if timed else (tick, *row))
        return shape.batch(cells)

    def _last_number(self, producer: str) -> int | None:
        found = self._numbers.get(producer)
        if found is None:
            found = self.log.last_number(producer)
            if found is not None:
                self._know(producer, found)
        return found

    def _know(self, producer: str, last: int) -> None:
        self._numbers.pop(producer, None)
        self._numbers[producer] = last
        if len(self._numbers) > limits.producers_known_max:
            del self._numbers[next(iter(self._numbers))]


def _in_rows(records: Sequence[Record]) -> list[list[Record]]:
    """Those that can be read together: of one origin of a stream, no numbers left out, and no ticks that go back."""
    found = list[list[Record]]()
    for record in records:
        before = found[-1][-1] if found else None
        if (
            before is not None
            and (before.stream, before.origin, before.last + 1) == (record.stream, record.origin, record.first)
            and before.hi < record.lo
        ):
            found[-1].append(record)
        else:
            found.append([record])
    return found


def _first_other(one: pa.RecordBatch, two: pa.RecordBatch) -> int | None:
    """The first place at which two batches of one length differ."""
    if one.equals(two):
        return None
    same, end = 0, int(one.num_rows)
    while end - same > 1:
        middle = (same + end) // 2
        if one.slice(same, middle - same).equals(two.slice(same, middle - same)):
            same = middle
        else:
            end = middle
    return same


def with_ticks(shape: Shape, rows: pa.RecordBatch, ticks: Sequence[int]) -> pa.RecordBatch:
    given = np.arange(ticks.start, ticks.stop, ticks.step) if isinstance(ticks, range) else np.array(ticks, np.int64)
    return pa.RecordBatch.from_arrays([arrow_ints(given), *rows.columns], schema=shape.schema)
