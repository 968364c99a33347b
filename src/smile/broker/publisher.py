"""The publisher: whatever it has answered is on the disk, once, with the ticks that it was answered with.

It has a thread of its own. What has come while the last commit was flushed makes the next one, so that many
publications share one flush. Streams that nothing happens on advance with the clock: their silence is logged like
events are, before anybody is told of it. A stream whose publishers give the ticks advances only by what they say.
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
from smile.broker.group import Group
from smile.broker.publication import Publication, Published, Silence
from smile.broker.repeats import Known
from smile.errors import SmileError, error
from smile.log.clock import Ticks
from smile.log.durable import DurableLog
from smile.log.frame import END
from smile.log.published_batches import schema_without_tick
from smile.log.shape import Shape

_log = logging.getLogger("smile.broker.publisher")

_VALUE_BYTES = 64
"""What a value takes as an object of Python's, about, and in the log."""

Order = tuple[Publication | Silence, "Future[Published]", int, int]
"""With its number of events, and of bytes as far as that can be told quickly."""


class Publisher:
    """`streams` are those that may be published to. `committed` is called after every commit, in the publisher's
    thread."""

    def __init__(
        self,
        log: DurableLog,
        ticks: Ticks,
        silence_ms: int,
        idle_ms: int,
        streams: Sequence[mmpl.StreamDef],
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self.shapes: Mapping[str, Shape] = {}
        self._log = log
        self._known = Known(log, ticks)
        self._silence_s, self._idle_s = silence_ms / 1000, idle_ms / 1000
        self._committed = committed
        self._arrived = Condition()
        self._orders: deque[Order] = deque()
        self._events = self._bytes = 0
        self._stopping = False
        self._thread = Thread(target=self._run, name="publisher", daemon=True)
        self._levelled = self._advanced = time.monotonic()
        self._busy = False
        self._counts = dict.fromkeys(("publications", "events", "repeated", "refused", "commits"), 0)
        self._seconds = 0.0
        self._trouble: str | None = None
        self._known.load()
        self._stale = False
        self.become(streams)

    def start(self) -> None:
        for shape in self.shapes.values():
            shape.batch([])  # what Arrow loads when it is first used, nobody has to wait for later
        self._thread.start()

    def stop(self) -> None:
        """After all that was submitted; what is submitted later is refused."""
        with self._arrived:
            self._stopping = True
            self._arrived.notify()
        if self._thread.is_alive():
            self._thread.join()

    def become(self, streams: Sequence[mmpl.StreamDef]) -> None:
        """These streams may be published to from now on; the log has them."""
        self._stale = True
        self.shapes = {stream.name: self._log.shapes[stream.name] for stream in streams}

    @property
    def horizons(self) -> Mapping[str, int]:
        """Of all streams of the log: what is on the disk."""
        return self._known.streams

    def status(self) -> dict[str, Any]:
        return {
            **self._counts,
            "waiting_events": self._events,
            "waiting_bytes": self._bytes,
            "commit_ms": round(self._seconds * 1000, 3),
            "trouble": self._trouble,
        }

    # ── submitting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, order: Publication | Silence) -> "Future[Published]":
        """From any thread. What is wrong with it alone is raised here, or told by the future, and is nobody else's
        trouble. A future that is cancelled in time takes its publication with it."""
        events, size = self._measured(order)
        future: Future[Published] = Future()
        with self._arrived:
            if self._stopping:
                raise error("E098", "the broker is stopping", hint="Publish again when it is back.")
            if self._orders and (
                self._events + events > limits.publisher_events_max or self._bytes + size > limits.publisher_bytes_max
            ):
                hint = "Publish again in a moment."
                raise error("E092", f"{self._events:,} events are waiting to be logged, and no more may", hint=hint)
            self._orders.append((order, future, events, size))
            self._events += events
            self._bytes += size
            if len(self._orders) == 1:
                self._arrived.notify()
        return future

    def _measured(self, order: Publication | Silence) -> tuple[int, int]:
        shape = self.shapes.get(order.stream)
        if shape is None:
            raise error("E076", f"there is no stream {order.stream}")
        timed = shape.stream.publisher_timed
        if isinstance(order, Silence):
            if not timed:
                hint = "Only streams whose publishers give the ticks are told of silence."
                raise error("E079", f"{order.stream} is silent up to where the broker says", hint=hint)
            if not 0 <= order.to <= END:
                raise error("E079", f"{order.to} is not a tick")
            return 0, 0
        count = len(order.rows)
        if count > limits.publication_events_max:
            most = limits.publication_events_max
            raise error("E092", f"{count:,} events are published at once, and at most {most:,} may be")
        self._check_numbers(order, count)
        if isinstance(order.rows, pa.RecordBatch):
            _check_schema(shape, order.rows, timed)
            return count, order.rows.nbytes
        size = _VALUE_BYTES * count * shape.width
        for row in order.rows:
            for value in row:
                if value.__class__ is str or value.__class__ is bytes:
                    size += len(value)
        return count, size

    def _check_numbers(self, order: Publication, count: int) -> None:
        if order.numbered is None:
            return
        producer, first = order.numbered.producer, order.numbered.seq
        if not 0 < len(producer) <= limits.producer_chars_max or not producer.isprintable():
            most = limits.producer_chars_max
            raise error("E096", f"a producer's name has 1 to {most} characters that can be printed")
        if not 0 <= first <= limits.sequence_max - count:
            raise error("E096", f"a producer's numbers lie between 0 and {limits.sequence_max}")

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while (orders := self._next()) is not None:
            problem = self._reloaded() if self._stale else None
            group = Group(self._known)
            for order, future, _, _ in orders:
                if not future.set_running_or_notify_cancel():
                    continue
                if problem is not None:
                    self._refuse(future, problem)
                else:
                    group = self._add(group, order, future)
            if problem is None:
                self._commit(group)
            else:
                self._advanced = time.monotonic()

    def _next(self) -> list[Order] | None:
        """What the next commit has, or nothing if it is time for silence; None at the end."""
        with self._arrived:
            # Soon after something happened on one stream, the others are known as far.
            due = self._advanced + (self._silence_s if self._busy else self._idle_s)
            while not self._orders and not self._stopping and (wait := due - time.monotonic()) > 0:
                self._arrived.wait(wait)
            if not self._orders and self._stopping:
                return None
            found, events, size = list[Order](), 0, 0
            while self._orders and events < limits.commit_group_events_max and size < limits.commit_group_bytes_max:
                order = self._orders.popleft()
                found.append(order)
                events, size = events + order[2], size + order[3]
            self._events -= events
            self._bytes -= size
            return found

    def _reloaded(self) -> SmileError | None:
        """What is known of the log is known anew, since its streams are others now or a commit may have failed."""
        self._stale = False
        try:
            self._known.load()
        except SmileError as problem:
            self._stale = True
            self._told(problem)
            return problem
        return None

    def _add(self, group: Group, order: Publication | Silence, future: "Future[Published]") -> Group:
        """Gives the group that goes on."""
        try:
            if not group.add(order, future):
                self._commit(group)
                group = Group(self._known)
                group.add(order, future)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is one publisher's, and the thread goes on
            self._refuse(future, problem)
        return group

    def _commit(self, group: Group) -> None:
        begin = time.monotonic()
        levelled = begin - self._levelled >= self._silence_s
        try:
            pieces = group.pieces(self._known.ticks.now(), levelled)
            if pieces or group.records:
                self._log.append(pieces, group.records, self._known.ticks.clock())
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is theirs who wait, and the thread goes on
            self._stale = True
            self._told(problem)
            for future, _ in group.answers:
                self._refuse(future, problem)
            pieces = []
        else:
            self._known.committed(group.horizons, group.numbers)
            self._counts["publications"] += len(group.answers)
            self._counts["events"] += group.events
            self._counts["repeated"] += group.repeated
            for future, published in group.answers:
                future.set_result(published)
        self._advanced = time.monotonic()
        self._busy = bool(group.events)
        if levelled:
            self._levelled = begin
        if pieces:
            self._trouble = None
            self._counts["commits"] += 1
            self._seconds = self._advanced - begin
            self._committed()

    def _refuse(self, future: "Future[Published]", problem: Exception) -> None:
        self._counts["refused"] += 1
        known = problem if isinstance(problem, SmileError) else error("E084", f"the log cannot be written: {problem!r}")
        future.set_exception(known)

    def _told(self, problem: Exception) -> None:
        """Once, as long as it is the same."""
        if self._trouble != str(problem):
            self._trouble = str(problem)
            _log.warning("not logged", extra={"what": self._trouble})


def _check_schema(shape: Shape, rows: pa.RecordBatch, timed: bool) -> None:
    if not rows.schema.equals(shape.schema if timed else schema_without_tick(shape)):
        raise error("E088", f"the batch does not have the columns of {shape.name}", hint="Read it by `rows_of_batch`.")
