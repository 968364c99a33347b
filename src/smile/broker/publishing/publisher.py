"""The publisher: writes publications to the log. What it has answered is on the disk, once, with the ticks of the
answer.

It has its own thread. Publications that arrive during a commit make up the next one, so that many publications share
one flush. Broker-timed streams without events advance with the clock: their silence is logged like events, before any
subscriber sees it. Publisher-timed streams advance only with what their publishers send.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Condition, Thread
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.publishing.commit_group import CommitGroup
from smile.broker.publishing.publication import AtomicPublication, Publication, PublishResult, SilencePublication
from smile.broker.publishing.published_events import PublishedEvents
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error, memory_error, message_of
from smile.horizons import END
from smile.log.clock import TickGenerator
from smile.log.storage.durable import DurableLog

_log = logging.getLogger("smile.broker.publisher")

_VALUE_BYTES = 64
"""The approximate size of a value as a Python object and in the log."""

AnyPublication = Publication | AtomicPublication | SilencePublication
PendingPublication = tuple[AnyPublication | CacheAppend, "Future[PublishResult]", int, int]
"""A publication, or something that was imported; its future, its number of events, and its approximate size in
bytes."""


class Publisher:
    """`streams` are those that can be published to. `on_commit` is called after every commit that advances a stream.
    `clock` returns monotonic seconds. The name of the broker, and `log_id`, which identifies its log, say which origin
    it is in streams that have many.

    Either `start` starts the thread, or the caller itself calls `step` whenever it is due."""

    def __init__(
        self,
        log: DurableLog,
        ticks: TickGenerator,
        silence_ms: int,
        idle_ms: int,
        streams: Sequence[mmpl.StreamDef],
        on_commit: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        broker: str = "",
        log_id: str = "",
        batch_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._log, self._clock = log, clock
        self._published = PublishedEvents(log, ticks, broker, log_id)
        self._silence_s, self._idle_s = silence_ms / 1000, idle_ms / 1000
        self._on_commit, self._batch_s = on_commit, batch_s
        self._wakeup = Condition()
        self._queue: deque[PendingPublication] = deque()
        self._queued_publications = self._queued_events = self._queued_bytes = 0
        """`_queued_publications` does not count what was imported."""
        self._stopping = False
        self._thread = Thread(target=self._run, name="publisher", daemon=True)
        self._all_advanced_at = self._committed_at = clock()
        self._had_events = False
        self._counts = dict.fromkeys(("publications", "events", "repeated", "imported", "refused", "commits"), 0)
        self._commit_s = 0.0
        self._commit_started_at: float | None = None
        self._warning: str | None = None
        self._published.load()
        self._needs_reload = False
        self.set_streams(streams)

    def start(self) -> None:
        for schema in self._log.schemas.values():
            # Compiling the CHECKs takes time, and Arrow loads libraries at its first use.
            schema.checks.violations(schema.record_batch([]))
        self._thread.start()

    def stop(self) -> None:
        """Returns when everything submitted is answered; later publications are refused."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()

    def set_streams(
        self, streams: Sequence[mmpl.StreamDef], imported_from: Mapping[str, tuple[str, str]] = MappingProxyType({})
    ) -> None:
        """From now on these streams can be published to. The log must have them. `imported_from` has where each
        imported stream comes from, and a hint where to publish."""
        self._needs_reload = True
        self.decoder = EventDecoder(streams, imported_from)

    def set_producers(self, producers: Mapping[str, Sequence[mmpl.Expr]], held_back: Mapping[str, str]) -> None:
        """The conditions of the producers of each global stream that is published here, and why others may not publish
        now."""
        self._published.set_producers(producers, held_back)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def problem(self) -> str | None:
        """Why events cannot be logged; None if they can."""
        if not self.is_alive:
            return "the thread that writes the log has ended"
        started_at = self._commit_started_at
        if started_at is not None and (elapsed_s := self._clock() - started_at) > limits.commit_s_max:
            return f"a commit has not ended for {elapsed_s:.0f} s: the disk does not answer"
        return self._warning

    @property
    def horizons(self) -> Mapping[str, int]:
        """The horizons of all streams of the log, as they are on the disk."""
        return self._published.horizons

    def status(self) -> dict[str, Any]:
        return {
            **self._counts,
            "waiting_events": self._queued_events,
            "waiting_bytes": self._queued_bytes,
            "commit_ms": round(self._commit_s * 1000, 3),
            "trouble": self._warning,
        }

    # ── submitting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, publication: AnyPublication) -> "Future[PublishResult]":
        """Thread-safe. An error of this publication is raised here or by the future, and does not affect other
        publications. Cancelling the future in time withdraws the publication."""
        events, size = self._count_events_and_bytes(publication)
        return self._enqueue(publication, events, size, has_limit=True)

    def submit_imported(self, append: CacheAppend) -> "Future[PublishResult]":
        """Thread-safe. There is no limit: a link receives only as much as is appended."""
        return self._enqueue(append, append.rows, append.bytes, has_limit=False)

    def submit_end(self, stream: str) -> "Future[PublishResult]":
        """Thread-safe. This broker publishes nothing more to a stream with many origins."""
        return self._enqueue(SilencePublication(stream, END), 0, 0, has_limit=False)

    def own_horizon(self, stream: str) -> int:
        """The horizon of this broker's origin of a stream. Only for the thread that writes the log."""
        return self._published.horizon(stream)

    def _enqueue(
        self, publication: AnyPublication | CacheAppend, events: int, size: int, has_limit: bool
    ) -> "Future[PublishResult]":
        future: Future[PublishResult] = Future()
        with self._wakeup:
            if self._stopping:
                raise error("E098", "the broker is stopping", hint="Publish again when it has restarted.")
            if (
                has_limit
                and self._queue
                and (
                    self._queued_events + events > limits.publisher_events_max
                    or self._queued_bytes + size > limits.publisher_bytes_max
                )
            ):
                hint = "Publish again in a moment."
                raise error("E092", f"{self._queued_events:,} events are waiting to be logged already", hint=hint)
            self._queue.append((publication, future, events, size))
            is_publication = not isinstance(publication, CacheAppend)
            self._queued_publications += is_publication
            self._queued_events += events
            self._queued_bytes += size
            if len(self._queue) == 1 or (is_publication and self._queued_publications == 1):
                self._wakeup.notify()
        return future

    def _count_events_and_bytes(self, publication: AnyPublication) -> tuple[int, int]:
        if isinstance(publication, AtomicPublication):
            counts = [self._count_events_and_bytes(part) for part in publication.parts]
            events = sum(count for count, _ in counts)
            _check_event_count(events)
            return events, sum(size for _, size in counts)
        schema = self.decoder.schema(publication.stream)
        is_publisher_timed = schema.stream.publisher_timed
        if isinstance(publication, SilencePublication):
            if not is_publisher_timed:
                hint = "Silence is published only for publisher-timed streams."
                raise error("E079", f"the broker itself declares the silence of {publication.stream}", hint=hint)
            if not 0 <= publication.to <= END:
                raise error("E079", f"{publication.to} is not a tick")
            return 0, 0
        count = len(publication.rows)
        _check_event_count(count)
        self._check_sequence(publication, count)
        if isinstance(publication.rows, pa.RecordBatch):
            _check_schema(schema, publication.rows)
            return count, publication.rows.nbytes
        size = _VALUE_BYTES * count * schema.width
        for row in publication.rows:
            for value in row:
                if value.__class__ is str or value.__class__ is bytes:
                    size += len(value)
        return count, size

    def _check_sequence(self, publication: Publication, count: int) -> None:
        if publication.sequence is None:
            return
        producer, first = publication.sequence.producer, publication.sequence.seq
        if not 0 < len(producer) <= limits.producer_chars_max or not producer.isprintable():
            chars_max = limits.producer_chars_max
            raise error("E096", f"a producer's name must have 1 to {chars_max} printable characters")
        if not 0 <= first <= limits.sequence_max - count:
            raise error("E096", f"sequence numbers must lie between 0 and {limits.sequence_max}")

    # ── the publisher's thread ──────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while self._wait():
            self.step()

    def _wait(self) -> bool:
        """Waits until a step is due. Returns False at the end."""
        with self._wakeup:
            while not self._stopping and (wait_s := self._next_commit_at - self._clock()) > 0:
                self._wakeup.wait(wait_s)
            return bool(self._queue) or not self._stopping

    @property
    def _next_commit_at(self) -> float:
        """A publication is committed at once. What was imported waits while the last commit and the last batch would
        take: a broker that lacks processor time commits more at once. After a commit with events, the other streams
        follow soon."""
        if self._queued_publications:
            return self._committed_at
        if self._queue:
            return self._committed_at + min(max(self._commit_s, self._batch_s()), limits.import_wait_s_max)
        return self._committed_at + (self._silence_s if self._had_events else self._idle_s)

    @property
    def due_at(self) -> float:
        """When the next step is due: at once if a publication waits."""
        with self._wakeup:
            return max(self._clock(), self._next_commit_at) if self._queue else self._next_commit_at

    def step(self) -> None:
        """Logs the publications that wait, as many as fit into a commit; silence if there are none."""
        pending = list[PendingPublication]()
        try:
            self._take_publications(pending)
            self._log_publications(pending)
        except Exception as problem:  # noqa: BLE001  # even its own bookkeeping may lack memory: it must go on
            self._needs_reload = True
            self._committed_at = self._clock()
            self._warn(problem)
            for publication, future, _, _ in pending:
                if not future.done():
                    if isinstance(publication, CacheAppend):
                        publication.cache.discard_taken()
                    self._refuse(future, problem)

    def _log_publications(self, pending: Sequence[PendingPublication]) -> None:
        problem = self._reload() if self._needs_reload else None
        group = CommitGroup(self._published)
        for publication, future, _, _ in pending:
            if not future.set_running_or_notify_cancel():
                continue
            if problem is not None:
                self._refuse(future, problem)
            else:
                group = self._add(group, publication, future)
        if problem is None:
            self._commit(self._without_violations(group))
        else:
            self._committed_at = self._clock()

    def _take_publications(self, publications: list[PendingPublication]) -> None:
        """Takes the publications of the next commit."""
        with self._wakeup:
            events = size = 0
            events_max = limits.commit_group_events_max
            while self._queue and events < events_max and size < limits.commit_group_bytes_max:
                pending = self._queue[0]
                if isinstance(pending[0], AtomicPublication):
                    events_max = limits.batch_rows_max  # no batch divides the commit
                publications.append(pending)
                self._queue.popleft()
                self._queued_publications -= not isinstance(pending[0], CacheAppend)
                events, size = events + pending[2], size + pending[3]
                self._queued_events -= pending[2]
                self._queued_bytes -= pending[3]

    def _reload(self) -> SmileError | None:
        """Reads the log again, because its streams have changed or a commit may have failed."""
        self._needs_reload = False
        try:
            self._published.load()
        except SmileError as problem:
            self._needs_reload = True
            self._warn(problem)
            return problem
        return None

    def _add(
        self,
        group: CommitGroup,
        publication: AnyPublication | CacheAppend,
        future: "Future[PublishResult]",
    ) -> CommitGroup:
        """Adds a publication, after a commit of the group if needed. Returns the group for the next publication."""
        try:
            if isinstance(publication, CacheAppend):
                group.add_imported(publication, future)
            elif not group.add(publication, future):
                self._commit(self._without_violations(group))
                group = CommitGroup(self._published)
                group.add(publication, future)
        except Exception as problem:  # noqa: BLE001  # any error: it concerns one publication only
            self._refuse(future, problem)
        return group

    def _without_violations(self, group: CommitGroup) -> CommitGroup:
        """Refuses the publications that violate a CHECK. Returns a group of the others, which get new ticks."""
        while violations := _find_violations(group):
            all_publications = zip(group.publications, group.answers, strict=True)
            cache_appends, group = group.cache_appends, CommitGroup(self._published)
            group.cache_appends = cache_appends
            for index, (publication, (future, _)) in enumerate(all_publications):
                if index in violations:
                    self._refuse(future, violations[index])
                else:
                    group = self._add(group, publication, future)
        return group

    def _commit(self, group: CommitGroup) -> None:
        start_s = self._clock()
        # Imported silence is no reason to advance: two brokers that import from each other would wake each other.
        has_events = bool(group.events) or any(append.rows for append, _, _ in group.cache_appends)
        advance_s = self._silence_s if has_events or self._had_events else self._idle_s
        advance_all = start_s - self._all_advanced_at >= advance_s
        try:
            pieces = group.log_pieces(self._published.ticks.silence_tick(), advance_all)
            memberships = group.memberships
            if pieces or group.records or memberships:
                self._commit_started_at = start_s
                time_us = self._published.ticks.clock()
                self._log.append(pieces, group.records, time_us, group.must_be_whole, memberships, group.notes)
        except Exception as problem:  # noqa: BLE001  # any error: the waiting publishers receive it
            self._needs_reload = True
            self._warn(problem)
            for append, _, _ in group.cache_appends:
                append.cache.discard_taken()
            for future in (*(f for f, _ in group.answers), *(f for _, _, f in group.cache_appends)):
                self._refuse(future, problem)
            pieces = []
        else:
            self._record_commit(group)
            self._counts["publications"] += len(group.answers)
            self._counts["events"] += group.events
            self._counts["repeated"] += group.repeated
            self._counts["imported"] += sum(append.rows for append, appended, _ in group.cache_appends if appended)
            for future, result in group.answers:
                future.set_result(result)
            for _, _, future in group.cache_appends:
                future.set_result(PublishResult(()))
        self._committed_at, self._commit_started_at = self._clock(), None
        self._had_events = has_events or (self._had_events and not advance_all)
        if advance_all:
            self._all_advanced_at = start_s
        if pieces or group.memberships:
            self._warning = None
            self._counts["commits"] += 1
            self._commit_s = self._committed_at - start_s
            self._on_commit()

    def _record_commit(self, group: CommitGroup) -> None:
        """The commit is on the disk, so it is acknowledged in any case."""
        try:
            imported_horizons: dict[str, int] = {}
            for append, _, _ in group.cache_appends:
                append.cache.record_commit()
                imported_horizons.update(append.cache.log_horizons)
            self._published.record_commit(group.horizons, group.last_numbers, imported_horizons)
            if group.memberships:
                self._reload()
        except MemoryError:
            self._needs_reload = True

    def _refuse(self, future: "Future[PublishResult]", problem: Exception) -> None:
        self._counts["refused"] += 1
        if isinstance(problem, MemoryError):
            problem = memory_error()
        elif not isinstance(problem, SmileError):
            problem = error("E084", f"the log cannot be written: {problem!r}")
        future.set_exception(problem)

    def _warn(self, problem: Exception) -> None:
        """Logs an error once, as long as it stays the same."""
        if self._warning != message_of(problem):
            self._warning = message_of(problem)
            _log.warning("publications were not logged", extra={"what": self._warning})


def _find_violations(group: CommitGroup) -> Mapping[int, Exception]:
    try:
        return group.find_violations()
    except Exception as problem:  # noqa: BLE001  # any error: the waiting publishers receive it
        return dict.fromkeys(range(len(group.publications)), problem)


def _check_event_count(count: int) -> None:
    if count > limits.publication_events_max:
        events_max = limits.publication_events_max
        raise error("E092", f"the publication has {count:,} events; at most {events_max:,} are allowed")


def _check_schema(schema: StreamSchema, rows: pa.RecordBatch) -> None:
    if not rows.schema.equals(schema.published_schema):
        hint = "Decode it with `EventDecoder.decode_batch`."
        raise error("E088", f"the batch does not have the columns of {schema.name}", hint=hint)
