"""Delivers events to the subscriptions of the database: each event's functions are called once, with their effects.

A reader follows each stream that has subscriptions, under a durable name. What it reads is matched with the filters,
and the database calls the functions. It records with each effect how far the subscription is, and skips what it has
had. The broker's position is acknowledged after that is on the disk: so a call that was interrupted is repeated.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

import psycopg
import pyarrow as pa

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest, Scope, Start
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions, SubscriptionClaim
from smile.broker.subscriptions.event_subscription import EventFrame
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import Diagnostic, SmileError, error
from smile.horizons import END, HORIZON_MIN
from smile.log.storage.durable import DurableLog
from smile.postgres.capture.event_publisher import PRINCIPAL
from smile.postgres.catalogue import Catalogue, DatabaseSubscription
from smile.postgres.database import Connection
from smile.postgres.database_worker import DatabaseWorker
from smile.postgres.delivery.matcher import FilterTable, SubscriptionMatcher
from smile.postgres.delivery.pending_deliveries import PendingDeliveries

WAIT_S: Final = 1.0
TABLE_WAIT_S: Final = 0.02
"""How often it is looked whether tables are known up to the events that wait for them."""

HELD_FAILURES: Final = 3
"""Failures of one delivery, for lack of resources or because it was cancelled, after which it may be at fault."""
CALL_S_MAX: Final = 60.0
"""Functions that run for longer than this may never end."""

_log = logging.getLogger("smile.postgres")


@dataclass(frozen=True)
class HeldDelivery:
    """A delivery that is repeated until it succeeds: the event is not to blame for the error. All others wait."""

    subscription: int
    tick: int
    state: str
    message: str
    failures: int = 1


@dataclass
class StreamDelivery:
    """The delivery of one stream's events. `waiting` are deliveries of the frame that are not made yet; None if the
    frame is not matched yet."""

    stream: str
    is_global: bool = False
    """Whether its events are those of all brokers."""
    subscriptions: tuple[DatabaseSubscription, ...] = ()
    matcher: SubscriptionMatcher | None = None
    """Of these subscriptions; None if it is to be made."""
    other_columns: tuple[str, ...] = ()
    claim: SubscriptionClaim | None = None
    frame: EventFrame | None = None
    waiting: PendingDeliveries | None = None
    evaluation: dict[int, str] = field(default_factory=dict)
    """Where the filter of each subscription is evaluated, as the database has it."""
    problem: Diagnostic | None = None
    ended: bool = False
    held: HeldDelivery | None = None
    delivered: int = 0


class Delivery:
    """Thread-safe. `wake` is called when there may be something to deliver."""

    def __init__(self, subscriptions: DurableSubscriptions, log: DurableLog, program: Callable[[], object]) -> None:
        """`program` returns the present program: filters are translated again when it changes."""
        self._durable, self._log, self._program = subscriptions, log, program
        self._tables: Mapping[str, FilterTable] = {}
        self._lock = Lock()
        self._streams: dict[tuple[str, bool], StreamDelivery] = {}
        """By stream, and whether the events are those of all brokers."""
        self._waits_for_tables = False
        self._call: tuple[str, float] | None = None
        """The stream whose functions are called now, and since when."""
        self.worker: DatabaseWorker | None = None

    # ── readers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find_position(self, stream: str, is_global: bool) -> Mapping[str, int]:
        """Where a new subscription begins: after everything that is in the log now. What follows is kept for it."""
        with self._lock:
            delivery = self._streams.setdefault((stream, is_global), StreamDelivery(stream, is_global))
            if delivery.claim is None:
                self._open(delivery, "new")
            assert delivery.claim is not None and delivery.claim.events is not None
            return delivery.claim.events.horizons or {"": HORIZON_MIN}

    def find_last_tick(self, streams: Collection[str]) -> int:
        """A tick that no event of these streams is above, and all later ones are."""
        ticks = (tick for stream in streams for tick in self._log.stream_horizons(stream).values())
        return max((tick for tick in ticks if tick < END), default=HORIZON_MIN)

    def emptying_changes(self, stream: str) -> pa.RecordBatch:
        """The changes that remove all rows that the stream of a table has left there."""
        return self._durable.matching.emptying_changes(stream)

    def add_subscription(self, stream: str, subscription: DatabaseSubscription) -> None:
        """The subscription has a position now. Call it before anything that it is to receive is published."""
        with self._lock:
            delivery = self._streams[stream, subscription.is_global]
            others = tuple(s for s in delivery.subscriptions if s.id != subscription.id)
            self._set_subscriptions(delivery, (*others, replace(subscription, has_position=True)))

    def _set_subscriptions(self, delivery: StreamDelivery, subscriptions: tuple[DatabaseSubscription, ...]) -> None:
        if subscriptions != delivery.subscriptions:
            delivery.subscriptions = subscriptions
            self._forget_matcher(delivery)

    def _forget_matcher(self, delivery: StreamDelivery) -> None:
        if delivery.matcher is not None:
            delivery.matcher.close()
            delivery.matcher = None

    def set_catalogue(self, catalogue: Catalogue, streams: Mapping[int, str | SmileError]) -> None:
        """Delivers to the subscriptions that have a position."""
        by_stream: dict[tuple[str, bool], list[DatabaseSubscription]] = {}
        for subscription in catalogue.subscriptions:
            stream = streams.get(subscription.type_id)
            if isinstance(stream, str):
                by_stream.setdefault((stream, subscription.is_global), []).append(subscription)
        types = catalogue.types.values()
        tables = {
            t.table_name: FilterTable(s, t.begin_tick)
            for t in types
            if t.table_name and t.begin_tick is not None and isinstance(s := streams.get(t.id), str)
        }
        in_tables = tuple(column for t in types if t.is_table for column in t.other_columns)
        other_columns = {s: (*t.other_columns, *in_tables) for t in types if isinstance(s := streams.get(t.id), str)}
        with self._lock:
            are_new_tables, self._tables = tables != self._tables, tables
            for key, subscriptions in by_stream.items():
                delivery = self._streams.setdefault(key, StreamDelivery(*key))
                delivery.other_columns = other_columns[delivery.stream]
                if are_new_tables:
                    self._forget_matcher(delivery)
                self._set_subscriptions(delivery, tuple(s for s in subscriptions if s.has_position))
            for key in [k for k in self._streams if k not in by_stream]:
                self._drop(self._streams.pop(key))
        self.wake()

    def wake(self) -> None:
        if self.worker is not None:
            self.worker.wake()

    def close(self) -> None:
        with self._lock:
            for delivery in self._streams.values():
                if delivery.claim is not None:
                    delivery.claim.release()

    def _open(self, delivery: StreamDelivery, start: Start) -> None:
        def end(problem: SmileError) -> None:
            delivery.problem, delivery.ended = problem.diagnostics[0], True
            self.wake()

        delivery.ended = False
        key = SubscriptionKey(PRINCIPAL, _reader_name(delivery))
        scope: Scope = "global" if delivery.is_global else "local"
        request = DurableRequest(key, delivery.stream, {}, start=start, scope=scope)
        delivery.claim = self._durable.open_events(request, self.wake, end)
        delivery.frame = delivery.waiting = None

    def _drop(self, delivery: StreamDelivery) -> None:
        """Nobody subscribes to the stream any more: nothing is kept for it."""
        key = SubscriptionKey(PRINCIPAL, _reader_name(delivery))
        delivery.claim = None
        try:
            self._durable.drop(key)
        except SmileError as problem:
            if problem.diagnostics[0].code != "E143":
                raise

    # ── delivery ────────────────────────────────────────────────────────────────────────────────────────────────────

    def work(self, worker: DatabaseWorker, connection: Connection) -> None:
        """Delivers until the worker stops."""
        while not worker.stopping.is_set():
            with self._lock:
                deliveries = list(self._streams.values())
            has_delivered = self._waits_for_tables = False
            for delivery in deliveries:
                has_delivered |= self._deliver_next(worker, connection, delivery)
            worker.report_success()
            if not has_delivered:
                worker.wait(TABLE_WAIT_S if self._waits_for_tables else WAIT_S)

    def _deliver_next(self, worker: DatabaseWorker, connection: Connection, delivery: StreamDelivery) -> bool:
        """Delivers the next events of a stream. Returns whether there were any."""
        try:
            frame = self._next_frame(delivery)
        except SmileError as problem:
            diagnostic = problem.diagnostics[0]
            if diagnostic != delivery.problem:
                _log.error("events cannot be delivered", extra={"stream": delivery.stream, "what": diagnostic.message})
            delivery.problem, delivery.ended = diagnostic, True
            return False
        if frame is None:
            return False
        if delivery.waiting is None:
            delivery.waiting = self._match(connection, delivery, frame)
        if delivery.waiting is None:
            self._waits_for_tables = True
            return False
        while delivery.waiting:
            delivery.delivered += self._call_functions(connection, delivery, delivery.waiting)
            worker.report_success()
            if worker.stopping.is_set():
                return False
        assert delivery.claim is not None
        delivery.claim.acknowledge_frame(frame.number).result()
        delivery.frame = None
        return True

    def _call_functions(self, connection: Connection, delivery: StreamDelivery, waiting: PendingDeliveries) -> int:
        self._call = delivery.stream, time.monotonic()
        try:
            count = waiting.deliver(connection)
        except psycopg.Error as problem:
            delivery.held = _held_delivery(problem, delivery.held)
            raise
        finally:
            self._call = None
        delivery.held = None
        return count

    def _next_frame(self, delivery: StreamDelivery) -> EventFrame | None:
        with self._lock:
            if delivery.claim is None or delivery.ended:
                if not delivery.subscriptions:
                    return None
                # Their positions are in the database, so everything that there is comes again, if need be.
                self._open(delivery, "kept")
                delivery.problem = None
            if delivery.frame is not None:
                return delivery.frame
            subscription = delivery.claim.events if delivery.claim else None
        assert subscription is not None
        frame = subscription.next_frame(limits.frame_rows_max)
        if frame is None:
            return None
        delivery.frame, delivery.waiting = frame, None
        return frame

    def _match(self, connection: Connection, delivery: StreamDelivery, frame: EventFrame) -> PendingDeliveries | None:
        """The deliveries of a frame; None if a table that a filter consults is not known up to its events yet."""
        with self._lock:
            # After the events were read: whoever is to receive them was added before they were published.
            matcher = delivery.matcher
            if matcher is not None and matcher.program is not self._program():
                self._forget_matcher(delivery)
                matcher = None
            if matcher is None:
                subscriptions, others = delivery.subscriptions, delivery.other_columns
                matcher = delivery.matcher = SubscriptionMatcher(
                    self._durable.matching, delivery.stream, subscriptions, self._tables, others
                )
            subscriptions = delivery.subscriptions
            try:
                matches = matcher.match(frame.rows)
            except SmileError as problem:
                if problem.diagnostics[0].code != "E146":
                    raise
                # What the tables had is not known any more: the database has what they have now.
                self._forget_matcher(delivery)
                matcher = SubscriptionMatcher(
                    self._durable.matching, delivery.stream, subscriptions, {}, delivery.other_columns
                )
                matches = matcher.match(frame.rows)
        if matches is None:
            return None
        self._record_evaluation(connection, delivery, subscriptions, matcher)
        return PendingDeliveries(frame, [event for event, _ in matches], [s.id for _, s in matches])

    def _record_evaluation(
        self,
        connection: Connection,
        delivery: StreamDelivery,
        subscriptions: Sequence[DatabaseSubscription],
        matcher: SubscriptionMatcher,
    ) -> None:
        """The database evaluates the filters that were not evaluated here. It is told before any of these deliveries is
        made, and after all earlier ones were."""
        wanted = {s.id: "database" if s.id in matcher.in_database else "broker" for s in subscriptions}
        changed = {id_: place for id_, place in wanted.items() if delivery.evaluation.get(id_) != place}
        for id_, place in changed.items():
            connection.execute("UPDATE smile.subscription SET filter_evaluation = %s WHERE id = %s", (place, id_))
        delivery.evaluation = wanted

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self) -> Sequence[tuple[str, Diagnostic]]:
        """What cannot be delivered now."""
        with self._lock:
            deliveries = list(self._streams.values())
        found = [(f"delivery of {d.stream}", d.problem) for d in deliveries if d.problem is not None]
        for delivery in deliveries:
            held = delivery.held
            name = next((s.name for s in delivery.subscriptions if held and s.id == held.subscription), None)
            if held is not None and name is not None and held.failures >= HELD_FAILURES:
                found.append((f"subscription {name}", _held_problem(name, held)))
        if (call := self._call) is not None and (call_s := time.monotonic() - call[1]) > CALL_S_MAX:
            found.append((f"delivery of {call[0]}", _slow_problem(call[0], call_s)))
        return found

    def status(self) -> dict[str, Any]:
        with self._lock:
            deliveries = list(self._streams.values())
        return {
            subscription.name: {
                "stream": delivery.stream,
                "evaluated_in": delivery.evaluation.get(subscription.id),
                "delivered": delivery.delivered,
                "position": {}
                if (claim := delivery.claim) is None or claim.events is None
                else dict(claim.events.position),
                "problem": None if delivery.problem is None else delivery.problem.message,
            }
            for delivery in deliveries
            for subscription in delivery.subscriptions
        }


def _held_delivery(problem: psycopg.Error, before: HeldDelivery | None) -> HeldDelivery | None:
    """The delivery that has failed, as smile.deliver says, with its failures. A lost connection says nothing."""
    diagnostic = problem.diag
    if diagnostic.constraint_name is None or diagnostic.column_name is None:
        return before
    state, message = problem.sqlstate or "", diagnostic.message_primary or ""
    held = HeldDelivery(int(diagnostic.constraint_name), int(diagnostic.column_name), state, message)
    if before is not None and (held.subscription, held.tick, held.state) == (
        before.subscription,
        before.tick,
        before.state,
    ):
        return replace(held, failures=before.failures + 1)
    return held


def _held_problem(name: str, held: HeldDelivery) -> Diagnostic:
    message = (
        f"the event with the tick {held.tick} has failed {held.failures} times with {held.state} {held.message}; all "
        f"deliveries wait. SELECT smile.skip_delivery('{name}', {held.tick}) moves it to the exception queue"
    )
    return error("E148", message).diagnostics[0]


def _slow_problem(stream: str, call_s: float) -> Diagnostic:
    message = (
        f"functions of subscriptions to {stream} have been running for {call_s:.0f} s, and all deliveries wait. The "
        f"one that runs is the first row of smile.{stream.lower()}_out"
    )
    return error("E149", message).diagnostics[0]


def _reader_name(delivery: StreamDelivery) -> str:
    """The durable name of a stream's reader. The names of event types are identifiers."""
    return f"{'global' if delivery.is_global else 'stream'}.{delivery.stream}"
