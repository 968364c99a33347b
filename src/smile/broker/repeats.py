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
        for record in self.log.records(producer, first, end):
            if record.first > first + len(ticks):
                break
            ticks += self._same(order, record, len(ticks), min(end, record.last) - first + 1)
        if len(ticks) < end - first + 1:
            unknown = first + len(ticks)
            hint = "Numbers go up. One that was left out cannot be used later, and one of long ago is forgotten."
            raise error("E096", f"{producer} has used number {last}, and nothing is known of {unknown}", hint=hint)
        return ticks

    def compare(self, stream: str, rows: Rows) -> None:
        """Events at or below the horizon of a stream whose publishers give the ticks: they are there, or refused."""
        ticks = ticks_given(rows)
        there = self.log.told(stream, self.ticks.origin, ticks[0] - 1, ticks[-1])
        if not there.equals(self._batch(stream, rows, ticks)):
            known = set(there.column(0).to_pylist())
            for tick in ticks:
                if tick not in known:
                    message = f"nothing happened on {stream} at tick {tick}: all is known up to {self.horizon(stream)}"
                    raise error("E081", message, hint="Events are published in order of ticks.")
            raise error("E082", f"{stream} has other events at ticks {ticks[0]} to {ticks[-1]}")

    def _same(self, order: Publication, record: Record, begin: int, end: int) -> list[int]:
        """The ticks of those events of a publication that a record has, if they are the same."""
        assert order.numbered is not None
        first = order.numbered.seq + begin - record.first
        count = end - begin
        rows = order.rows[begin:end]
        if record.stream == order.stream:
            try:
                there = self.log.told(record.stream, record.origin, record.lo - 1, record.hi)
            except SmileError as problem:
                if problem.diagnostics[0].code != "E097":
                    raise
                return self._ticks_of_cut(order, record, first, rows)
            there = there.slice(first, count)
            ticks: list[int] = there.column(0).to_pylist()
            if there.num_rows == count and there.equals(self._batch(order.stream, rows, ticks)):
                return ticks
        raise self._other(order, record)

    def _ticks_of_cut(self, order: Publication, record: Record, first: int, rows: Rows) -> list[int]:
        """Of events that are gone from the log."""
        if order.stream not in self.timed:
            begin = record.lo + first * TICKS_PER_MICROSECOND
            return [begin + n * TICKS_PER_MICROSECOND for n in range(len(rows))]
        ticks = ticks_given(rows)
        if ticks[0] < record.lo or ticks[-1] > record.hi:
            raise self._other(order, record)
        return ticks

    def _other(self, order: Publication, record: Record) -> SmileError:
        numbers = f"{record.first} to {record.last}" if record.first < record.last else f"{record.first}"
        message = f"{record.producer} has published something else as number {numbers}"
        assert order.numbered is not None
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


def with_ticks(shape: Shape, rows: pa.RecordBatch, ticks: Sequence[int]) -> pa.RecordBatch:
    given = np.arange(ticks.start, ticks.stop, ticks.step) if isinstance(ticks, range) else np.array(ticks, np.int64)
    return pa.RecordBatch.from_arrays([arrow_ints(given), *rows.columns], schema=shape.schema)
