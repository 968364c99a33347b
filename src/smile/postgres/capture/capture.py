"""Captures what is published in the database: batch by batch, each event once, in the order of the transactions.

A batch is what has become visible between two snapshots. They are committed before anything of the batch is published,
and its events are numbered, so that it is the same batch when it is published again after a crash, and the log knows
which events it has. A subscription gets its position when the events of the transactions up to its own are in the log,
and before any later one is.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from smile.algebra import mmpl
from smile.broker.publishing.publication import AtomicPublication, Publication
from smile.broker.publishing.submission import PublishingBroker, StoppedPublishing
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError, error
from smile.postgres.capture.event_publisher import EventPublisher, Refusal, chunk_transactions
from smile.postgres.capture.logical_messages import MessageSlot
from smile.postgres.capture.program_types import StreamProgram, add_missing_streams
from smile.postgres.capture.queued_events import (
    CaptureBatch,
    QueuedEvent,
    begin_batch,
    finish_batch,
    group_transactions,
    read_batch,
    take_unlogged,
)
from smile.postgres.capture.table_lives import (
    XID_MAX,
    StartingLife,
    TableContents,
    begin_life,
    find_ended_lives,
    find_starting_lives,
    remove_rows,
)
from smile.postgres.catalogue import Catalogue, DatabaseSubscription, EventType, read_catalogue
from smile.postgres.database import Connection
from smile.postgres.database_worker import DatabaseWorker

LOCK_CLASS: Final = 1936550252
WAITING_LOCK: Final = 1
"""Held while the service waits for a notification: publishers then send one."""
SERVICE_LOCK: Final = 3
"""Held by the one service that captures the database."""
CHUNK_EVENTS: Final = 2_000
"""Events of small transactions that are published in one commit."""
ACTIVE_S: Final = 5.0
ACTIVE_POLL_S: Final = 0.05
IDLE_POLL_S: Final = 1.0
SLOT_POLL_S: Final = 0.25
"""A notification can be missed: so the queues are read at these intervals, which are shorter while there is traffic.
Logical messages notify nobody."""
STATUS_S: Final = 1.0
CATALOGUE_S: Final = 2.0
"""How often the catalogue is read while nothing has changed in it: the broker's program may have."""
CAPTURE_ID: Final = 0
"""Stands for the capture where the exception queue has the id of a subscription."""

_PENDING: Final = """
SELECT EXISTS (SELECT FROM smile.in_queue AS q
        WHERE q.xid >= pg_snapshot_xmin(s.captured) AND NOT pg_visible_in_snapshot(q.xid, s.captured)),
    EXISTS (SELECT FROM smile.in_queue_unlogged AS u WHERE NOT u.is_taken),
    EXISTS (SELECT FROM smile.capture_batch AS b WHERE b.events IS NULL)
    OR EXISTS (SELECT FROM smile.subscription AS i
        WHERE NOT pg_visible_in_snapshot(i.created_xid, s.captured) OR i.dropped_xid IS NOT NULL)
    OR EXISTS (SELECT FROM smile.event_type AS t
        WHERE NOT pg_visible_in_snapshot(t.created_xid, s.captured) OR t.dropped_xid IS NOT NULL)
    OR EXISTS (SELECT FROM smile.view_table AS v
        WHERE NOT pg_visible_in_snapshot(v.created_xid, s.captured) OR v.dropped_xid IS NOT NULL)
    OR EXISTS (SELECT FROM smile.advertisement AS a
        WHERE NOT pg_visible_in_snapshot(a.created_xid, s.captured) OR a.dropped_xid IS NOT NULL)
    OR EXISTS (SELECT FROM smile.link AS l
        WHERE NOT pg_visible_in_snapshot(l.created_xid, s.captured) OR l.dropped_xid IS NOT NULL)
FROM (SELECT smile.captured_snapshot() AS captured OFFSET 0) AS s
"""
_LAG: Final = """
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(q.enqueue_time)), 0)::float8,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(a.xact_start)) FROM pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL), 0)::float8,
    (SELECT count(*) FROM smile.exception_queue AS x WHERE x.resolution IS NULL)
FROM smile.in_queue AS q, (SELECT smile.captured_snapshot() AS captured OFFSET 0) AS s
WHERE q.xid >= pg_snapshot_xmin(s.captured) AND NOT pg_visible_in_snapshot(q.xid, s.captured)
"""
_ADD_EXCEPTION: Final = """
INSERT INTO smile.exception_queue (subscription_id, subscription, type_id, origin, tick, sequence, event, sqlstate,
    message, detail, context, attempts) VALUES (%s, '', %s, '', 0, %s, %s::json, %s, %s, %s, '', 1)
"""


class CaptureBroker(PublishingBroker, StreamProgram, Protocol):
    """What the capture needs of the broker."""

    @property
    def program(self) -> mmpl.Program: ...

    @property
    def decoder(self) -> EventDecoder: ...

    def publish(self, publication: Publication | AtomicPublication, /) -> Any: ...


Position = Mapping[str, int]
"""The tick of each origin after which a subscription receives events."""


class Subscribers(TableContents, Protocol):
    """Where the events of new subscriptions are delivered from."""

    def find_position(self, stream: str, is_global: bool, /) -> Position:
        """Where a new subscription to events of this broker, or of all brokers, begins. The events before are in the
        log, and what follows is kept for it."""

    def add_subscription(self, stream: str, subscription: DatabaseSubscription, /) -> None:
        """The subscription has a position now. It is called before anything that it is to receive is published."""


class Capture:
    """`on_catalogue` is called with each new catalogue."""

    def __init__(
        self,
        broker: CaptureBroker,
        subscribers: Subscribers,
        on_catalogue: Callable[[Catalogue, Mapping[int, str | SmileError]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker, self._subscribers, self._on_catalogue, self._clock = broker, subscribers, on_catalogue, clock
        self._catalogue, self._streams = Catalogue(), dict[int, str | SmileError]()
        self._refused_types: dict[EventType, SmileError] = {}
        self._program: mmpl.Program | None = None
        """The program that these types were refused by."""
        self._catalogue_read_at = self._status_read_at = self._active_at = -1e9
        self._delay: SmileError | None = None
        self._counts = dict.fromkeys(("events", "repeated", "unlogged", "messages", "refused", "batches"), 0)
        self._lag: dict[str, Any] = {"waiting_events": 0, "lag_s": 0.0, "oldest_transaction_s": 0.0, "exceptions": 0}

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> dict[str, Any]:
        delay = self._delay
        return {**self._counts, **self._lag, "held_up_by": None if delay is None else str(delay)}

    @property
    def delay(self) -> SmileError | None:
        """Why the broker does not take events now."""
        return self._delay

    # ── the worker ──────────────────────────────────────────────────────────────────────────────────────────────────

    def work(self, worker: DatabaseWorker, connection: Connection) -> None:
        """Captures until the worker stops."""
        _claim_database(connection)
        _check_server(connection)
        connection.execute("LISTEN smile")
        producer, message_producer = _producers(connection)
        publisher = self._create_publisher(worker, connection, producer)
        slot = MessageSlot(connection)
        message_publisher = self._create_publisher(worker, connection, message_producer)
        self._catalogue_read_at = -1e9
        try:
            while not worker.stopping.is_set():
                if self.step(connection, publisher, slot, message_publisher):
                    self._active_at = self._clock()
                else:
                    self._wait(worker, connection, SLOT_POLL_S if slot.exists else IDLE_POLL_S)
                worker.report_success()
                self._read_lag(connection)
        except StoppedPublishing:
            return

    def _create_publisher(self, worker: DatabaseWorker, connection: Connection, producer: str) -> EventPublisher:
        def refuse(refusals: Sequence[Refusal]) -> None:
            with connection.transaction():
                for event, problem in refusals:
                    diagnostic = problem.diagnostics[0]
                    state, hint = f"SM{diagnostic.code[1:]}", diagnostic.hint or ""
                    row = (CAPTURE_ID, event.type_id, event.seq, event.event, state, diagnostic.message, hint)
                    connection.execute(_ADD_EXCEPTION, row)
            self._counts["refused"] += len(refusals)

        def report_delay(problem: SmileError | None) -> None:
            self._delay = problem

        return EventPublisher(self._broker, producer, refuse, worker.stopping, report_delay)

    def step(
        self, connection: Connection, publisher: EventPublisher, slot: MessageSlot, message_publisher: EventPublisher
    ) -> bool:
        """Captures what there is now. Returns whether there was anything."""
        has_events, has_unlogged, has_changes = connection.execute(_PENDING).fetchone() or (False, False, False)
        if has_changes or self._clock() - self._catalogue_read_at >= CATALOGUE_S:
            self._refresh_catalogue(connection)
        publisher.streams = self._streams
        if has_events or has_changes:
            self._capture_batch(connection, publisher)
        if has_unlogged:
            self._capture_unlogged(connection, publisher)
        messages = slot.read(self._clock())
        if messages:
            self._publish_known(connection, message_publisher, messages)
            slot.advance()
            self._counts["messages"] += len(messages)
        return bool(has_events or has_changes or has_unlogged or messages)

    # ── batches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _capture_batch(self, connection: Connection, publisher: EventPublisher) -> None:
        batch = begin_batch(connection)
        # After the batch is begun, so that it has everything that is visible in the batch.
        self._refresh_catalogue(connection)
        publisher.streams = self._streams
        new = [s for s in self._catalogue.subscriptions if not s.has_position]
        new = [s for s in new if _is_visible(connection, s.xid, batch.snapshot_to)]
        refused = self._refused_before(connection, batch)
        lives = find_starting_lives(connection, batch, self._catalogue.types.values(), self._streams)
        events = _Counter(read_batch(connection, batch))
        unpublished = (event for event in events if event.seq not in refused)
        boundaries = {subscription.xid for subscription in new}
        boundaries |= {xid for life in lives for xid in (life.first_xid - 1, life.last_xid)}
        for chunk, last_xid in chunk_transactions(group_transactions(unpublished), CHUNK_EVENTS, sorted(boundaries)):
            new = self._add_positions(connection, new, chunk[0].xid - 1)
            lives = self._advance_lives(connection, publisher, lives, chunk[0].xid - 1, chunk[0].xid)
            ended = find_ended_lives(self._catalogue.types.values(), self._streams)
            current = [event for event in chunk if event.type_id not in ended]
            count = publisher.publish(current)
            self._counts["events"] += count
            self._counts["repeated"] += len(current) - count
            new = self._add_positions(connection, new, last_xid)
            lives = self._advance_lives(connection, publisher, lives, last_xid, last_xid)
        self._add_positions(connection, new, XID_MAX)
        self._advance_lives(connection, publisher, lives, XID_MAX, XID_MAX)
        finish_batch(connection, batch, events.count)
        self._counts["batches"] += 1
        if boundaries:
            self._refresh_catalogue(connection)

    def _advance_lives(
        self,
        connection: Connection,
        publisher: EventPublisher,
        lives: Sequence[StartingLife],
        published_xid: int,
        next_xid: int,
    ) -> list[StartingLife]:
        """Everything up to `published_xid` is in the log, and `next_xid` follows. Returns the lives that have not begun
        yet."""
        waiting, has_changed = list[StartingLife](), False
        streams = [stream for stream in self._streams.values() if isinstance(stream, str)]
        for life in lives:
            must_be_empty = life.first_xid <= next_xid
            if must_be_empty and not life.is_empty:
                remove_rows(connection, publisher, self._subscribers, life)
                has_changed = True
            if life.last_xid <= published_xid:
                begin_life(connection, self._subscribers, life, streams)
                has_changed = True
            else:
                waiting.append(replace(life, is_empty=life.is_empty or must_be_empty))
        if has_changed:
            # Before anything else is published: filters see the table from here on.
            self._refresh_catalogue(connection)
            publisher.streams = self._streams
        return waiting

    def _refused_before(self, connection: Connection, batch: CaptureBatch) -> set[int]:
        """The events of the batch that are in the exception queue: it was begun before a crash."""
        rows = connection.execute(
            "SELECT x.sequence FROM smile.exception_queue AS x, smile.capture_batch AS b "
            "WHERE x.subscription_id = %s AND b.batch = %s AND x.enqueue_time >= b.begin_time",
            (CAPTURE_ID, batch.number),
        )
        return {sequence for (sequence,) in rows}

    def _add_positions(
        self, connection: Connection, subscriptions: Sequence[DatabaseSubscription], xid_max: int
    ) -> list[DatabaseSubscription]:
        """From now on the subscriptions of transactions up to this one receive events. Returns the others."""
        for subscription in subscriptions:
            if subscription.xid > xid_max:
                continue
            stream = self._streams.get(subscription.type_id)
            if not isinstance(stream, str):
                continue
            with connection.transaction():
                for origin, tick in self._subscribers.find_position(stream, subscription.is_global).items():
                    connection.execute(
                        "INSERT INTO smile.delivery_position (subscription_id, origin, tick) "
                        "SELECT s.id, %s, %s FROM smile.subscription AS s WHERE s.id = %s AND s.dropped_xid IS NULL "
                        "ON CONFLICT DO NOTHING",
                        (origin, tick, subscription.id),
                    )
            self._subscribers.add_subscription(stream, subscription)
        return [s for s in subscriptions if s.xid > xid_max]

    def _capture_unlogged(self, connection: Connection, publisher: EventPublisher) -> None:
        events = take_unlogged(connection)
        self._publish_known(connection, publisher, events)
        self._counts["unlogged"] += len(events)

    def _publish_known(self, connection: Connection, publisher: EventPublisher, events: Sequence[QueuedEvent]) -> None:
        """Publishes events that may have a type which is newer than the catalogue that was read."""
        if any(event.type_id not in self._streams for event in events):
            self._refresh_catalogue(connection)
        publisher.streams = self._streams
        for chunk, _ in chunk_transactions(group_transactions(events), CHUNK_EVENTS, ()):
            publisher.publish(chunk)

    def _refresh_catalogue(self, connection: Connection) -> None:
        catalogue = read_catalogue(connection)
        if self._broker.program is not self._program:
            self._refused_types = {}
        types = catalogue.types.values()
        streams = dict(add_missing_streams(self._broker, types, self._refused_types))
        self._refused_types = {t: s for t in types if isinstance(s := streams.get(t.id), SmileError)}
        self._program = self._broker.program
        self._catalogue_read_at = self._clock()
        if (catalogue, streams) != (self._catalogue, self._streams):
            self._catalogue, self._streams = catalogue, streams
            self._on_catalogue(catalogue, streams)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self, worker: DatabaseWorker, connection: Connection, idle_poll_s: float) -> None:
        """Waits for a notification, or for the next poll. Publishers notify only while the lock is held."""
        lock = (LOCK_CLASS, WAITING_LOCK)
        connection.execute("SELECT pg_advisory_lock(%s, %s)", lock)
        try:
            has_work = any(connection.execute(_PENDING).fetchone() or ())
            is_active = self._clock() - self._active_at < ACTIVE_S
            poll_s = ACTIVE_POLL_S if is_active else idle_poll_s
            if not has_work and not worker.stopping.is_set():
                for _ in connection.notifies(timeout=poll_s, stop_after=1):
                    pass
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s, %s)", lock)

    def _read_lag(self, connection: Connection) -> None:
        if self._clock() - self._status_read_at < STATUS_S:
            return
        self._status_read_at = self._clock()
        row = connection.execute(_LAG).fetchone()
        assert row is not None
        events, lag_s, transaction_s, exceptions = row
        self._lag = {
            "waiting_events": events,
            "lag_s": round(lag_s, 3),
            "oldest_transaction_s": round(transaction_s, 3),
            "exceptions": exceptions,
        }


class _Counter:
    """Counts what it passes on."""

    def __init__(self, events: Iterator[QueuedEvent]) -> None:
        self._events, self.count = events, 0

    def __iter__(self) -> Iterator[QueuedEvent]:
        for event in self._events:
            self.count += 1
            yield event


def _claim_database(connection: Connection) -> None:
    """One service at a time captures a database."""
    row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (LOCK_CLASS, SERVICE_LOCK)).fetchone()
    if row != (True,):
        hint = "Stop the other one. After a crash, the server needs up to half a minute to notice it."
        raise error("E162", "another service captures this database", hint=hint)


def _check_server(connection: Connection) -> None:
    """Transactions of another server have other numbers: what is published could be taken for what was captured."""
    if connection.execute("SELECT smile.is_copied()").fetchone() == (True,):
        hint = "Run SELECT smile.restart_capture() once, as the role that has installed the schema."
        raise error("E164", "the database was copied to another server with what waits in its queues", hint=hint)


def _producers(connection: Connection) -> tuple[str, str]:
    """They identify the installation of the schema: the producer of batches, and that of logical messages, whose
    numbers begin anew on another server."""
    settings: dict[str, str] = dict(connection.execute("SELECT name, value FROM smile.setting").fetchall())
    producer = f"database {hashlib.sha256(settings['message_key'].encode()).hexdigest()[:16]}"
    epoch = settings.get("message_epoch")
    return producer, f"{producer} messages" + (f" {epoch}" if epoch else "")


def _is_visible(connection: Connection, xid: int, snapshot: str) -> bool:
    query = "SELECT pg_visible_in_snapshot(%s::text::xid8, %s::pg_snapshot)"
    return connection.execute(query, (str(xid), snapshot)).fetchone() == (True,)
