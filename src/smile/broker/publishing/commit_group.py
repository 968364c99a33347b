"""A group of publications that is written to the log as one commit.

Every event has its tick, each sequence number of a producer belongs to one event, and no publication is acknowledged
before the whole group is on the disk.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from smile.algebra.types import Value
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.publishing.producer_views import ProducerViews
from smile.broker.publishing.publication import (
    AtomicPublication,
    AtomicRefusal,
    EventRows,
    Publication,
    PublishResult,
    SilencePublication,
)
from smile.broker.publishing.published_events import (
    PublishedEvents,
    check_tick_order,
    complete_rows,
    finished_error,
    publisher_ticks,
    with_ticks,
)
from smile.decoding.checks import StreamChecks
from smile.decoding.stream_schema import StreamSchema
from smile.decoding.unique_keys import unique_keys
from smile.errors import SmileError, error, event_error
from smile.horizons import END
from smile.log.membership import StreamMembership
from smile.log.storage.piece_log import ticks_of
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.producers import ProducerRecord
from smile.log.storage.unique_values import used_error


@dataclass
class _StreamEvents:
    """New events of one stream in the order of ticks: batches, then the cells of single rows."""

    schema: StreamSchema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    cells: list[Value] = field(default_factory=list)
    count: int = 0
    parts: list[tuple[int, int, int, int]] = field(default_factory=list)
    """For each publication, and each part of an atomic one: its first row here, its index in the group, the index of
    the part, and the number of its earlier events."""

    def add(self, rows: EventRows, ticks: Sequence[int], is_publisher_timed: bool) -> None:
        self.count += len(rows)
        rows = complete_rows(self.schema, rows)
        if isinstance(rows, pa.RecordBatch):
            self._flush_cells()
            self.batches.append(rows if is_publisher_timed else with_ticks(self.schema, rows, ticks))
        elif is_publisher_timed:
            for row in rows:
                self.cells.extend(row)
        else:
            for tick, row in zip(ticks, rows, strict=True):
                self.cells.append(tick)
                self.cells.extend(row)

    def events(self) -> pa.RecordBatch:
        self._flush_cells()
        if len(self.batches) > 1:
            self.batches = [pa.concat_batches(self.batches)]
        return self.batches[0]

    def _flush_cells(self) -> None:
        if self.cells:
            self.batches.append(self.schema.record_batch(self.cells))
            self.cells = []


class CommitGroup:
    def __init__(self, published: PublishedEvents) -> None:
        self.published = published
        self.records: list[ProducerRecord] = []
        self.publications: list[Publication | AtomicPublication | SilencePublication] = []
        self.answers: list[tuple[Future[PublishResult], PublishResult]] = []
        """The future and the result of each publication."""
        self.events = self.repeated = 0
        self.last_numbers: dict[str, int] = {}
        """The last sequence number of each producer in the group."""
        self.notes: dict[str, str] = {}
        """What the producers in the group note."""
        self.horizons: dict[str, int] = {}
        """The last tick of each stream in the group."""
        self.cache_appends: list[
            tuple[CacheAppend, Sequence[StreamPiece | StreamMembership], Future[PublishResult]]
        ] = []
        """What has arrived from other brokers, with its pieces and memberships."""
        self._events_by_stream: dict[str, _StreamEvents] = {}

    def add_imported(self, append: CacheAppend, future: Future[PublishResult]) -> None:
        self.cache_appends.append((append, append.take_entries(), future))

    def add(
        self, publication: Publication | AtomicPublication | SilencePublication, future: Future[PublishResult]
    ) -> bool:
        """Returns False if the publication may repeat events of this group: then commit the group first."""
        if isinstance(publication, AtomicPublication):
            return self._add_atomic(publication, future)
        self.published.check_origin(publication.stream)
        if isinstance(publication, SilencePublication):
            if publication.to > self._horizon(publication.stream):
                self.horizons[publication.stream] = publication.to
            self.publications.append(publication)
            self.answers.append((future, PublishResult(())))
            return True
        if self._may_repeat(publication):
            return False
        result = (
            self._add_publisher_timed(publication)
            if publication.stream in self.published.publisher_timed
            else self._add_broker_timed(publication)
        )
        if result is None:
            return False
        self.publications.append(publication)
        self.answers.append((future, replace(result, absent=publication.absent) if publication.absent else result))
        self.repeated += result.repeated
        return True

    def _add_atomic(self, publication: AtomicPublication, future: Future[PublishResult]) -> bool:
        """Everything is checked before anything is added."""
        if any(self._may_repeat(part) for part in publication.parts):
            return False
        new_parts = list[tuple[Publication, EventRows, list[int]]]()
        for part in publication.parts:
            self.published.check_origin(part.stream)
            if part.stream in self.published.publisher_timed:
                hint = "Publish its events by themselves, with their ticks."
                raise error("E079", f"the ticks of {part.stream} come from its publishers", hint=hint)
            repeated_ticks = self.published.find_repeats(part)
            rows = part.rows[len(repeated_ticks) :]
            if len(rows) and self._horizon(part.stream) == END:
                raise finished_error(part.stream)
            new_parts.append((part, rows, repeated_ticks))
        ticks = list[int]()
        for number, (part, rows, repeated_ticks) in enumerate(new_parts):
            ticks.extend(repeated_ticks)
            if len(rows):
                new_ticks = self.published.ticks.take(len(rows), int(self.published.origins[part.stream]))
                self._add_events(part, rows, new_ticks, len(repeated_ticks), number)
                ticks.extend(new_ticks)
        self.publications.append(publication)
        repeated = sum(len(repeated_ticks) for _, _, repeated_ticks in new_parts)
        self.answers.append((future, PublishResult(ticks, repeated)))
        self.repeated += repeated
        return True

    def _may_repeat(self, publication: Publication) -> bool:
        """Whether its events may be in this group already."""
        sequence = publication.sequence
        return sequence is not None and self.last_numbers.get(sequence.producer_key, -1) >= sequence.seq

    def find_violations(self) -> Mapping[int, SmileError]:
        """The publications that violate a CHECK or UNIQUE, by their index in the group, with the error of their first
        event that does."""
        errors = dict[tuple[int, int], SmileError]()
        for stream_events in self._events_by_stream.values():
            self._add_violations(stream_events, "E080", stream_events.schema.checks, errors)
            views = self.published.producer_views.get(stream_events.schema.name)
            if views is not None:
                self._add_violations(stream_events, "E182", views, errors)
        for stream_events in self._events_by_stream.values():
            if stream_events.schema.stream.unique:
                self._add_used_values(stream_events, errors)
        return self._by_publication(errors)

    def _add_violations(
        self,
        stream_events: _StreamEvents,
        code: str,
        checks: StreamChecks | ProducerViews,
        errors: dict[tuple[int, int], SmileError],
    ) -> None:
        """Adds an error for each publication with an event that the checks refuse."""
        events = stream_events.events()
        rows = checks.violations(events)
        if not len(rows):
            return
        first_rows, indices, numbers, offsets = zip(*stream_events.parts, strict=True)
        parts, firsts = np.unique(np.searchsorted(first_rows, rows, side="right") - 1, return_index=True)
        for part, row in zip(parts.tolist(), rows[firsts].tolist(), strict=True):
            number = offsets[part] + row - first_rows[part] + 1
            column = checks.violated_column(events, row) if isinstance(checks, StreamChecks) else None
            problem = event_error(code, f"event {number}: {checks.describe(events, row)}", number, column)
            errors.setdefault((indices[part], numbers[part]), problem)

    def _by_publication(self, errors: Mapping[tuple[int, int], SmileError]) -> Mapping[int, SmileError]:
        """The error of each publication. `errors` are those of their parts."""
        parts: dict[int, dict[int, SmileError]] = {}
        for (index, number), problem in errors.items():
            parts.setdefault(index, {})[number] = problem
        return {
            index: AtomicRefusal(problems)
            if isinstance(self.publications[index], AtomicPublication)
            else next(iter(problems.values()))
            for index, problems in parts.items()
        }

    def _add_used_values(self, stream_events: _StreamEvents, errors: dict[tuple[int, int], SmileError]) -> None:
        """Adds an error for each publication with a value of UNIQUE columns that is in the log, or in an earlier event
        of the group. Events of refused publications do not count."""
        stream, events = stream_events.schema.stream, stream_events.events()
        first_rows, indices, numbers, offsets = zip(*stream_events.parts, strict=True)
        refused = {index for index, _ in errors}
        parts = np.searchsorted(first_rows, np.arange(events.num_rows), side="right") - 1
        keys_by_columns = unique_keys(stream, events)
        used = {
            columns: dict(self.published.log.used_keys(stream.name, columns, [key for key in keys if key is not None]))
            for columns, keys in keys_by_columns.items()
        }
        ticks = ticks_of(events).tolist()
        for row, part in enumerate(parts.tolist()):
            row_keys = {columns: keys[row] for columns, keys in keys_by_columns.items()}
            if indices[part] in refused:
                continue
            number = offsets[part] + row - first_rows[part] + 1
            for columns, key in row_keys.items():
                if key is not None and key in used[columns]:
                    tick = used[columns][key]
                    problem = used_error(stream.name, columns, tick, f"event {number}: ")
                    errors[indices[part], numbers[part]] = problem
                    refused.add(indices[part])
                    break
            else:
                for columns, key in row_keys.items():
                    if key is not None:
                        used[columns][key] = ticks[row]

    def log_pieces(self, now: int, advance_all: bool) -> list[StreamPiece]:
        """The pieces that the commit writes. Broker-timed streams advance to `now`: those in the group, or all of them
        if `advance_all`."""
        published, origins = self.published, self.published.origins
        horizons = dict(self.horizons)
        for stream in origins if advance_all else self.horizons:
            if stream not in published.publisher_timed and published.horizon(stream) < now:
                horizons[stream] = max(now, horizons.get(stream, now))
        self.horizons = horizons
        events = self._events_by_stream
        own_pieces = [
            StreamPiece(s, origins[s], published.horizon(s), hi, events[s].events() if s in events else None)
            for s, hi in horizons.items()
        ]
        entries = (entry for _, entries, _ in self.cache_appends for entry in entries)
        return [*own_pieces, *(entry for entry in entries if isinstance(entry, StreamPiece))]

    @property
    def memberships(self) -> list[StreamMembership]:
        """Those of streams with many origins that the commit writes."""
        entries = (entry for _, entries, _ in self.cache_appends for entry in entries)
        return [entry for entry in entries if isinstance(entry, StreamMembership)]

    @property
    def must_be_whole(self) -> bool:
        """Whether its pieces must be processed in one batch."""
        return any(append.cache.has_whole_commits for append, _, _ in self.cache_appends) or any(
            isinstance(publication, AtomicPublication) for publication in self.publications
        )

    def _horizon(self, stream: str) -> int:
        return self.horizons.get(stream, self.published.horizon(stream))

    def _add_broker_timed(self, publication: Publication) -> PublishResult:
        """Adds events to which the broker assigns ticks."""
        published, rows = self.published, publication.rows
        repeated_ticks = () if publication.sequence is None else published.find_repeats(publication)
        if repeated_ticks:
            rows = rows[len(repeated_ticks) :]
        if not len(rows):
            return PublishResult(repeated_ticks, len(repeated_ticks))
        if self._horizon(publication.stream) == END:
            raise finished_error(publication.stream)
        ticks = published.ticks.take(len(rows), int(published.origins[publication.stream]))
        self._add_events(publication, rows, ticks, len(repeated_ticks))
        return PublishResult([*repeated_ticks, *ticks], len(repeated_ticks)) if repeated_ticks else PublishResult(ticks)

    def _add_publisher_timed(self, publication: Publication) -> PublishResult | None:
        """Adds events with ticks of their publisher. Events at or below the horizon must be repeats, or they are
        refused. Returns None if the group must be committed first."""
        ticks = publisher_ticks(publication.rows)
        check_tick_order(publication.stream, ticks)
        repeated_count = len(self.published.find_repeats(publication))
        known_count = sum(tick <= self._horizon(publication.stream) for tick in ticks[repeated_count:])
        if known_count and publication.stream in self.horizons:
            return None
        first_new = repeated_count + known_count
        if known_count:
            run_starts = self.published.check_repeats(publication.stream, publication.rows[repeated_count:first_new])
            for begin, end in pairwise([*run_starts, known_count]):
                self._add_record(
                    publication, ticks[repeated_count + begin : repeated_count + end], repeated_count + begin
                )
        if first_new < len(ticks):
            self._add_events(publication, publication.rows[first_new:], ticks[first_new:], first_new)
        return PublishResult(ticks, first_new)

    def _add_events(
        self, publication: Publication, rows: EventRows, ticks: Sequence[int], offset: int, part: int = 0
    ) -> None:
        """Adds new events. `offset` is the number of earlier events in the publication, `part` its index in an atomic
        one."""
        stream = publication.stream
        stream_events = self._events_by_stream.get(stream)
        if stream_events is None:
            stream_events = self._events_by_stream[stream] = _StreamEvents(self.published.log.schemas[stream])
        stream_events.parts.append((stream_events.count, len(self.publications), part, offset))
        stream_events.add(rows, ticks, stream in self.published.publisher_timed)
        self.horizons[stream] = ticks[-1]
        self.events += len(rows)
        self._add_record(publication, ticks, offset)

    def _add_record(self, publication: Publication, ticks: Sequence[int], offset: int) -> None:
        if publication.sequence is not None:
            producer, first = publication.sequence.producer_key, publication.sequence.seq + offset
            last = first + len(ticks) - 1
            origin = self.published.origins[publication.stream]
            self.records.append(ProducerRecord(producer, first, last, publication.stream, origin, ticks[0], ticks[-1]))
            self.last_numbers[producer] = last
            if publication.sequence.note is not None:
                self.notes[producer] = publication.sequence.note
