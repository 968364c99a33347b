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
from typing import Any

import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.broker.publishing.commit_group import CommitGroup
from smile.broker.publishing.publication import Publication, PublishResult, SilencePublication
from smile.broker.publishing.published_events import PublishedEvents
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error
from smile.horizons import END
from smile.log.clock import TickGenerator
from smile.log.storage.durable import DurableLog

_log = logging.getLogger("smile.broker.publisher")

_VALUE_BYTES = 64
"""The approximate size of a value as a Python object and in the log."""

PendingPublication = tuple[Publication | SilencePublication, "Future[PublishResult]", int, int]
"""A publication, its future, its number of events, and its approximate size in bytes."""


class Publisher:
    """`streams` are those that can be published to. `on_commit` is called in the publisher's thread after every commit
    that advances a stream."""

    def __init__(
        self,
        log: DurableLog,
        ticks: TickGenerator,
        silence_ms: int,
        idle_ms: int,
        streams: Sequence[mmpl.StreamDef],
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._published = PublishedEvents(log, ticks)
        self._silence_s, self._idle_s = silence_ms / 1000, idle_ms / 1000
        self._on_commit = on_commit
        self._wakeup = Condition()
        self._queue: deque[PendingPublication] = deque()
        self._queued_events = self._queued_bytes = 0
        self._stopping = False
        self._thread = Thread(target=self._run, name="publisher", daemon=True)
        self._all_advanced_at = self._committed_at = time.monotonic()
        self._had_events = False
        self._counts = dict.fromkeys(("publications", "events", "repeated", "refused", "commits"), 0)
        self._commit_s = 0.0
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

    def set_streams(self, streams: Sequence[mmpl.StreamDef]) -> None:
        """From now on these streams can be published to. The log must have them."""
        self._needs_reload = True
        self.decoder = EventDecoder(streams)

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

    def submit(self, publication: Publication | SilencePublication) -> "Future[PublishResult]":
        """Thread-safe. An error of this publication is raised here or by the future, and does not affect other
        publications. Cancelling the future in time withdraws the publication."""
        events, size = self._count_events_and_bytes(publication)
        future: Future[PublishResult] = Future()
        with self._wakeup:
            if self._stopping:
                raise error("E098", "the broker is stopping", hint="Publish again when it has restarted.")
            if self._queue and (
                self._queued_events + events > limits.publisher_events_max
                or self._queued_bytes + size > limits.publisher_bytes_max
            ):
                hint = "Publish again in a moment."
                raise error("E092", f"{self._queued_events:,} events are waiting to be logged already", hint=hint)
            self._queue.append((publication, future, events, size))
            self._queued_events += events
            self._queued_bytes += size
            if len(self._queue) == 1:
                self._wakeup.notify()
        return future

    def _count_events_and_bytes(self, publication: Publication | SilencePublication) -> tuple[int, int]:
        schema = self.decoder.schemas.get(publication.stream)
        if schema is None:
            raise error("E076", f"there is no stream {publication.stream}")
        is_publisher_timed = schema.stream.publisher_timed
        if isinstance(publication, SilencePublication):
            if not is_publisher_timed:
                hint = "Silence is published only for publisher-timed streams."
                raise error("E079", f"the broker itself declares the silence of {publication.stream}", hint=hint)
            if not 0 <= publication.to <= END:
                raise error("E079", f"{publication.to} is not a tick")
            return 0, 0
        count = len(publication.rows)
        if count > limits.publication_events_max:
            events_max = limits.publication_events_max
            raise error("E092", f"the publication has {count:,} events; at most {events_max:,} are allowed")
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
        while (pending := self._next_publications()) is not None:
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
                self._committed_at = time.monotonic()

    def _next_publications(self) -> list[PendingPublication] | None:
        """The publications of the next commit, none if it is time to log silence; None at the end."""
        with self._wakeup:
            # After a commit with events, the other streams follow soon.
            due_at = self._committed_at + (self._silence_s if self._had_events else self._idle_s)
            while not self._queue and not self._stopping and (wait_s := due_at - time.monotonic()) > 0:
                self._wakeup.wait(wait_s)
            if not self._queue and self._stopping:
                return None
            publications, events, size = list[PendingPublication](), 0, 0
            while self._queue and events < limits.commit_group_events_max and size < limits.commit_group_bytes_max:
                pending = self._queue.popleft()
                publications.append(pending)
                events, size = events + pending[2], size + pending[3]
            self._queued_events -= events
            self._queued_bytes -= size
            return publications

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
        self, group: CommitGroup, publication: Publication | SilencePublication, future: "Future[PublishResult]"
    ) -> CommitGroup:
        """Adds a publication, after a commit of the group if needed. Returns the group for the next publication."""
        try:
            if not group.add(publication, future):
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
            group = CommitGroup(self._published)
            for index, (publication, (future, _)) in enumerate(all_publications):
                if index in violations:
                    self._refuse(future, violations[index])
                else:
                    group = self._add(group, publication, future)
        return group

    def _commit(self, group: CommitGroup) -> None:
        start_s = time.monotonic()
        advance_all = start_s - self._all_advanced_at >= self._silence_s
        try:
            pieces = group.log_pieces(self._published.ticks.silence_tick(), advance_all)
            if pieces or group.records:
                self._log.append(pieces, group.records, self._published.ticks.clock())
        except Exception as problem:  # noqa: BLE001  # any error: the waiting publishers receive it
            self._needs_reload = True
            self._warn(problem)
            for future, _ in group.answers:
                self._refuse(future, problem)
            pieces = []
        else:
            self._published.record_commit(group.horizons, group.last_numbers)
            self._counts["publications"] += len(group.answers)
            self._counts["events"] += group.events
            self._counts["repeated"] += group.repeated
            for future, result in group.answers:
                future.set_result(result)
        self._committed_at = time.monotonic()
        self._had_events = bool(group.events)
        if advance_all:
            self._all_advanced_at = start_s
        if pieces:
            self._warning = None
            self._counts["commits"] += 1
            self._commit_s = self._committed_at - start_s
            self._on_commit()

    def _refuse(self, future: "Future[PublishResult]", problem: Exception) -> None:
        self._counts["refused"] += 1
        reported = (
            problem if isinstance(problem, SmileError) else error("E084", f"the log cannot be written: {problem!r}")
        )
        future.set_exception(reported)

    def _warn(self, problem: Exception) -> None:
        """Logs an error once, as long as it stays the same."""
        if self._warning != str(problem):
            self._warning = str(problem)
            _log.warning("publications were not logged", extra={"what": self._warning})


def _find_violations(group: CommitGroup) -> Mapping[int, Exception]:
    try:
        return group.find_violations()
    except Exception as problem:  # noqa: BLE001  # any error: the waiting publishers receive it
        return dict.fromkeys(range(len(group.publications)), problem)


def _check_schema(schema: StreamSchema, rows: pa.RecordBatch) -> None:
    if not rows.schema.equals(schema.published_schema):
        hint = "Decode it with `EventDecoder.decode_batch`."
        raise error("E088", f"the batch does not have the columns of {schema.name}", hint=hint)
