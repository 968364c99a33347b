"""What is already in the log: the horizon of each stream, and events that are published again.

A repeated event is compared with the log, as long as it is still there. So a producer's sequence number, or a
publisher's tick, never stands for two different events.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.algebra.coercions import describe_tick
from smile.algebra.types import TICKS_PER_MICROSECOND, Value
from smile.broker.publishing.producer_views import ProducerViews
from smile.broker.publishing.publication import EventRows, Publication
from smile.columns.values import arrow_ints
from smile.decoding.stream_schema import SAME_TICK_HINT, StreamSchema, with_added_columns
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, split_name, with_origins
from smile.log.clock import TickGenerator
from smile.log.storage.durable import DurableLog
from smile.log.storage.piece_log import ticks_of
from smile.log.storage.producers import ProducerRecord


def publisher_ticks(rows: EventRows) -> list[int]:
    """The ticks of events that have them in front."""
    if isinstance(rows, pa.RecordBatch):
        return list(rows.column(0).to_pylist())
    return [row[0] for row in rows]  # type: ignore[misc]  # a tick is an int


def check_tick_order(stream: str, ticks: Sequence[int]) -> None:
    for number, (tick, next_tick) in enumerate(pairwise(ticks), 2):
        if next_tick <= tick:
            hint = "Sort the events by time before they are published, and merge files first (docs/notebooks.md)."
            message = f"event {number}: {stream} has tick {describe_tick(next_tick)} after tick {describe_tick(tick)}"
            raise error("E079", message, hint=SAME_TICK_HINT if next_tick == tick else hint)


def finished_error(stream: str) -> SmileError:
    return error("E081", f"{stream} is finished: it takes no more events")


def is_hosted(stream: mmpl.StreamDef) -> bool:
    """Whether it is one of many origins that this broker is in the stream. An imported stream is publisher-timed."""
    return stream.many_origins and not stream.publisher_timed


class PublishedEvents:
    """What the log contains, for the publisher of one broker. Not thread-safe. Nobody else writes to the log as its
    origins."""

    def __init__(self, log: DurableLog, ticks: TickGenerator, broker: str = "", log_id: str = "") -> None:
        self.log = log
        self.ticks = ticks
        self._broker, self._log_id = broker, log_id
        self.origins: dict[str, str] = {}
        """What this broker is in each stream: the origin of the settings, or the one that a stream's home has assigned.
        Streams with many origins are missing while this broker is none of them."""
        self.horizons: dict[str, int] = {}
        """The horizon of each stream, and of each origin of streams with many origins."""
        self._origins_of_many: dict[str, dict[str, int]] = {}
        """The horizons of the origins of streams with many origins."""
        self._own_horizons: dict[str, int] = {}
        self._other_horizons: dict[str, int] = {}
        self._last_numbers: dict[str, int] = {}
        self.producer_views: Mapping[str, ProducerViews] = {}
        """What the producers of global streams may publish."""
        self.publisher_timed: frozenset[str] = frozenset()
        """Streams whose ticks come from their publishers."""

    def load(self) -> None:
        """Reads the present horizons and definitions from the log."""
        newest, schemas = self.log.newest(), self.log.schemas
        self.origins = {name: o for name in schemas if (o := self._find_origin(name)) is not None}
        self.publisher_timed = frozenset(name for name, schema in schemas.items() if schema.stream.publisher_timed)
        self.horizons = newest.named_horizons()
        self._origins_of_many = {stream: dict(newest.horizons[stream]) for stream in newest.many_origins}
        for stream, horizons in newest.horizons.items():
            origin = self.origins.get(stream, "")
            # An origin that is new to a stream starts at the stream's horizon.
            self._own_horizons[stream] = horizons.get(origin, self.horizons[stream])
            # The placeholder for a stream that nobody has logged yet holds nothing back.
            others = (tick for o, tick in horizons.items() if o != origin and tick > HORIZON_MIN)
            self._other_horizons[stream] = min(others, default=END)
        self._last_numbers.clear()
        own_ticks = [
            tick
            for stream, tick in self._own_horizons.items()
            if stream in self.origins and stream not in self.publisher_timed and tick != END
        ]
        self.ticks.advance_past(max(own_ticks, default=HORIZON_MIN))

    def _find_origin(self, stream: str) -> str | None:
        definition = self.log.schemas[stream].stream
        if not is_hosted(definition):
            return self.ticks.origin
        membership = self.log.membership(stream)
        return None if membership is None else membership.find(self._broker, self._log_id)

    def set_producers(self, producers: Mapping[str, Sequence[mmpl.Expr]], held_back: Mapping[str, str]) -> None:
        """The conditions of the producers of each global stream. Events that satisfy none are refused; `held_back` says
        why other producers of a stream may not publish now."""
        schemas = self.log.schemas
        self.producer_views = {
            s: ProducerViews(schemas[s], conditions, held_back.get(s, "")) for s, conditions in producers.items()
        }

    def check_origin(self, stream: str) -> None:
        """Raises E135 if this broker is not an origin of the stream, or has left."""
        if stream in self.origins and (self.horizon(stream) < END or stream in self.publisher_timed):
            return
        if not is_hosted(self.log.schemas[stream].stream):
            return
        membership = self.log.membership(stream)
        members = [] if membership is None else membership.members.values()
        own = [m for m in members if (m.broker, m.log) == (self._broker, self._log_id)]
        if own and own[-1].is_fenced:
            message = f"this broker was fenced as an origin of {stream} at tick {own[-1].end}"
        elif own:
            message = f"this broker has left {stream}"
        else:
            home = self.log.schemas[stream].stream.home
            hint = f"It asks {home} by itself. `smile status` says why it has not joined yet."
            raise error("E135", f"this broker has not joined {stream} yet", hint=hint)
        raise error("E135", message, hint=f"Join again as another origin: smile origin join {stream}.")

    def horizon(self, stream: str) -> int:
        """The horizon that this origin has given to the stream."""
        return self._own_horizons[stream]

    def record_commit(
        self, horizons: Mapping[str, int], numbers: Mapping[str, int], imported_horizons: Mapping[str, int]
    ) -> None:
        self._own_horizons.update(horizons)
        own_horizons = {s: min(tick, self._other_horizons[s]) for s, tick in horizons.items()}
        self.horizons = {**self.horizons, **own_horizons, **imported_horizons}
        for stream, origins in self._origins_of_many.items():
            if stream in horizons:
                origins[self.origins[stream]] = horizons[stream]
            for name, tick in imported_horizons.items():
                of_stream, origin = split_name(name, self.log.schemas)
                if of_stream == stream and origin is not None:
                    origins[origin] = tick
            self.horizons |= with_origins(stream, origins)
        for producer, last in numbers.items():
            self._cache_last_number(producer, last)

    # ── repeats ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find_repeats(self, publication: Publication) -> list[int]:
        """The ticks of those events that were published before; these are the first ones."""
        if publication.sequence is None:
            return []
        producer, first = publication.sequence.producer_key, publication.sequence.seq
        last = self._find_last_number(producer)
        if last is None or first > last:
            return []
        end = min(last, first + len(publication.rows) - 1)
        ticks = list[int]()
        for records in _adjacent_records(self.log.records(producer, first, end)):
            if records[0].first > first + len(ticks):
                break
            ticks += self._matching_ticks(publication, records, len(ticks), min(end, records[-1].last) - first + 1)
        if len(ticks) < end - first + 1:
            unknown_number = first + len(ticks)
            hint = "Numbers must increase. A skipped number cannot be used later, and old numbers are forgotten."
            message = (
                f"{publication.sequence.producer} has used number {last}, and the log has no number {unknown_number}"
            )
            raise error("E096", message, hint=hint)
        return ticks

    def check_repeats(self, stream: str, rows: EventRows) -> list[int]:
        """Checks that events at or below the horizon of a publisher-timed stream equal those in the log. Returns the
        indices at which runs begin: the log has no other events between those of a run."""
        ticks = publisher_ticks(rows)
        tick_array = np.array(ticks, np.int64)
        logged, run_starts = self.log.read_ranges(stream, self.origins[stream], tick_array - 1, tick_array)
        if logged.num_rows < len(ticks):
            tick, horizon = np.setdiff1d(tick_array, ticks_of(logged))[0], self.horizon(stream)
            if horizon == END:
                raise finished_error(stream)
            hint = "Publish events in the order of their ticks: merge files, and sort them by time (docs/notebooks.md)."
            times = describe_tick(int(tick)), describe_tick(horizon)
            message = f"{stream} has no event at tick {times[0]}, and is complete up to tick {times[1]}"
            raise error("E081", message, hint=hint)
        difference = _first_difference(logged, self._to_batch(stream, rows, ticks))
        if difference is not None:
            raise error(
                "E082", f"{stream} has another event at tick {describe_tick(ticks[difference])}", hint=SAME_TICK_HINT
            )
        return run_starts

    def _matching_ticks(
        self, publication: Publication, records: Sequence[ProducerRecord], begin: int, end: int
    ) -> list[int]:
        """The ticks of the events from `begin` to `end`, if they equal the events of these records."""
        assert publication.sequence is not None
        rows, offset = publication.rows[begin:end], publication.sequence.seq + begin - records[0].first
        if records[0].stream != publication.stream:
            raise self._conflict_error(publication, begin)
        lows, highs = (np.array(ticks, np.int64) for ticks in zip(*((r.lo - 1, r.hi) for r in records), strict=True))
        try:
            logged, _ = self.log.read_ranges(publication.stream, records[0].origin, lows, highs)
        except SmileError as problem:
            if problem.diagnostics[0].code != "E097":
                raise
            if len(records) == 1:
                return self._ticks_of_truncated(publication, records[0], begin, rows)
            half = len(records) // 2
            middle = records[half].first - publication.sequence.seq
            return self._matching_ticks(publication, records[:half], begin, middle) + self._matching_ticks(
                publication, records[half:], middle, end
            )
        logged = logged.slice(offset, len(rows))
        if logged.num_rows != len(rows):
            raise self._conflict_error(publication, begin)
        ticks: list[int] = logged.column(0).to_pylist()
        difference = _first_difference(logged, self._to_batch(publication.stream, rows, ticks))
        if difference is not None:
            raise self._conflict_error(publication, begin + difference)
        return ticks

    def _ticks_of_truncated(
        self, publication: Publication, record: ProducerRecord, begin: int, rows: EventRows
    ) -> list[int]:
        """The ticks of events that were truncated from the log."""
        assert publication.sequence is not None
        if publication.stream not in self.publisher_timed:
            first = record.lo + (publication.sequence.seq + begin - record.first) * TICKS_PER_MICROSECOND
            return [first + n * TICKS_PER_MICROSECOND for n in range(len(rows))]
        ticks = publisher_ticks(rows)
        if ticks[0] < record.lo or ticks[-1] > record.hi:
            raise self._conflict_error(publication, begin)
        return ticks

    def _conflict_error(self, publication: Publication, index: int) -> SmileError:
        assert publication.sequence is not None
        producer, number = publication.sequence.producer, publication.sequence.seq + index
        hint = "Give each event its own number, and each producer its own name."
        return error("E096", f"{producer} has published something else as number {number}", hint=hint)

    def _to_batch(self, stream: str, rows: EventRows, ticks: Sequence[int]) -> pa.RecordBatch:
        schema, is_publisher_timed = self.log.schemas[stream], stream in self.publisher_timed
        rows = complete_rows(schema, rows)
        if isinstance(rows, pa.RecordBatch):
            return rows if is_publisher_timed else with_ticks(schema, rows, ticks)
        cells: list[Value] = []
        for tick, row in zip(ticks, rows, strict=True):
            cells.extend(row if is_publisher_timed else (tick, *row))
        return schema.record_batch(cells)

    def _find_last_number(self, producer: str) -> int | None:
        last = self._last_numbers.get(producer)
        if last is None:
            last = self.log.last_number(producer)
            if last is not None:
                self._cache_last_number(producer, last)
        return last

    def _cache_last_number(self, producer: str, last: int) -> None:
        self._last_numbers.pop(producer, None)
        self._last_numbers[producer] = last
        if len(self._last_numbers) > limits.producers_known_max:
            del self._last_numbers[next(iter(self._last_numbers))]


def _adjacent_records(records: Sequence[ProducerRecord]) -> list[list[ProducerRecord]]:
    """Groups records that can be read together: of one stream and origin, with consecutive numbers and rising ticks."""
    groups = list[list[ProducerRecord]]()
    for record in records:
        previous = groups[-1][-1] if groups else None
        if (
            previous is not None
            and (previous.stream, previous.origin, previous.last + 1) == (record.stream, record.origin, record.first)
            and previous.hi < record.lo
        ):
            groups[-1].append(record)
        else:
            groups.append([record])
    return groups


def _first_difference(a: pa.RecordBatch, b: pa.RecordBatch) -> int | None:
    """The first index at which two batches of the same length differ."""
    if a.equals(b):
        return None
    begin, end = 0, int(a.num_rows)
    while end - begin > 1:
        middle = (begin + end) // 2
        if a.slice(begin, middle - begin).equals(b.slice(begin, middle - begin)):
            begin = middle
        else:
            end = middle
    return begin


def complete_rows(schema: StreamSchema, rows: EventRows) -> EventRows:
    """The rows of one publication, with NULL in the columns that the stream has got since they were decoded."""
    if isinstance(rows, pa.RecordBatch):
        return with_added_columns(rows, schema.published_schema)
    missing = len(schema.published_types) - len(rows[0]) if rows else 0
    return [(*row, *[None] * missing) for row in rows] if missing else rows


def with_ticks(schema: StreamSchema, rows: pa.RecordBatch, ticks: Sequence[int]) -> pa.RecordBatch:
    tick_array = (
        np.arange(ticks.start, ticks.stop, ticks.step) if isinstance(ticks, range) else np.array(ticks, np.int64)
    )
    return pa.RecordBatch.from_arrays([arrow_ints(tick_array), *rows.columns], schema=schema.arrow_schema)
