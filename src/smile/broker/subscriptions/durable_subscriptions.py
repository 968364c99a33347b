"""The durable subscriptions of a broker: each has a name, under which the broker stores what was acknowledged.

A stream, an imported stream or a selection of one delivers events. Any other view delivers rows; its name stores the
resume token. The log keeps what a subscription to events has not acknowledged, unless it has been away for too long.
One subscriber at a time uses a name: a later one takes over.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from smile.algebra import mmpl
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.network.host import ExportedRelation
from smile.broker.subscriptions.durable_request import DurableRequest, check_name, refuse_filter
from smile.broker.subscriptions.event_matching import EventMatching
from smile.broker.subscriptions.event_positions import (
    check_contents_known,
    check_not_ahead,
    check_not_gone,
    find_global_position,
    find_position,
)
from smile.broker.subscriptions.event_subscription import EventSubscription, Ticks
from smile.broker.subscriptions.filtered_selection import FilteredSelection, FilteredSelections
from smile.broker.subscriptions.global_stream import (
    HISTORY,
    GlobalRanges,
    GlobalStream,
    ProducerStream,
    stored_filter,
    stored_name,
)
from smile.broker.subscriptions.log_ranges import LogRanges
from smile.broker.subscriptions.position_store import SubscriptionKey, SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.subscriptions.subscription_records import SubscriptionRecords
from smile.broker.subscriptions.subscription_status import describe_global, describe_position, describe_subscription
from smile.broker.subscriptions.table_checkpoints import TableCheckpoints
from smile.broker.subscriptions.table_readers import TableReaders
from smile.broker.views.resume_token import parse_resume_token, resume_token
from smile.broker.views.view import View
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN, with_origins
from smile.log.storage.durable import DurableLog

_log = logging.getLogger("smile.broker.subscriptions")


class SubscriptionHost(Protocol):
    """What durable subscriptions need of their broker."""

    @property
    def log(self) -> DurableLog: ...

    @property
    def program(self) -> mmpl.Program: ...

    def find_export(self, relation: str) -> ExportedRelation: ...

    def readers_changed(self) -> None:
        """A stream that nobody has read may be read now."""

    def view(self, name: str) -> View: ...

    def find_global(self, stream: str, where: Mapping[str, Any], host_where: str | None = None) -> GlobalStream: ...

    def find_producers(self, stream: str, where: str) -> Sequence[ProducerStream]:
        """All streams of the log with events of a global stream."""

    def subscriptions_changed(self) -> None:
        """Called when the global subscriptions have changed."""


class SubscriptionClaim:
    """A name that a subscriber uses now. `on_end` is called when another one takes over, or the name is dropped."""

    def __init__(
        self, owner: "DurableSubscriptions", key: SubscriptionKey, on_end: Callable[[SmileError], None]
    ) -> None:
        self.key, self.on_end, self._owner = key, on_end, owner
        self.events: EventSubscription | None = None
        self.selected: FilteredSelection | None = None
        """What it receives, if these are events."""

    @property
    def tables(self) -> Iterable[str]:
        """The tables that its filter reads, by their names in the program."""
        return () if self.selected is None else self.selected.tables

    def acknowledge_events(self, ticks: Ticks) -> "Future[str]":
        """Acknowledges all events up to these ticks. The future has the token of the position, which is then stored."""
        assert self.events is not None
        return self._owner._store_ticks(self, self.events.acknowledge(ticks))

    def acknowledge_frame(self, number: int) -> "Future[str]":
        assert self.events is not None
        return self._owner._store_ticks(self, self.events.acknowledge_frame(number))

    def acknowledge_rows(self, token: str) -> "Future[str]":
        """Acknowledges the progress that a resume token stands for."""
        return self._owner._store_token(self.key, token)

    def release(self) -> None:
        """The subscriber has gone."""
        self._owner._release(self)


class DurableSubscriptions:
    """Thread-safe. `clock` returns microseconds since 1970. Without a thread, positions are stored at once."""

    def __init__(
        self,
        path: Path,
        tables_path: Path,
        host: SubscriptionHost,
        clock: Callable[[], int],
        flush: bool,
        has_thread: bool = True,
    ) -> None:
        """`path` is that of the positions, and `tables_path` that of the folder with the checkpoints of tables."""
        self._host, self._clock = host, clock
        self._records = SubscriptionRecords(path, clock, flush, has_thread)
        self._lock = self._records.lock
        self._claims: dict[SubscriptionKey, SubscriptionClaim] = {}
        self._ranges = LogRanges(host.log)
        self._selections = FilteredSelections(lambda: host.program)
        checkpoints = TableCheckpoints(tables_path)
        self.tables = TableReaders(checkpoints, host.log, self._ranges, lambda name: host.find_export(name).history)
        self.matching = EventMatching(host.program, self.tables)

    def close(self) -> None:
        """Returns when everything is stored."""
        for claim in list(self._claims.values()):
            claim.release()
        self._records.close()

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def find_selection(self, relation: str) -> StreamSelection | None:
        """The selection that a relation is, None if it is another view. Raises E021 if there is no such relation."""
        program = self._host.program
        streams = {s.name for s in program.streams} | {i.name for i in program.imports if i.stream is not None}
        if relation not in streams:
            self._host.view(relation)
        return self._selections.find_selection(relation)

    def tables_of(self, request: DurableRequest) -> Iterable[str]:
        """The tables that a filter reads, by their names in the program. Raises the error of a wrong filter."""
        if request.scope == "global":
            found = self._host.find_global(request.relation, request.where)
            return self._selections.complete(found.selection, found.condition, request.filter).tables
        self.find_selection(request.relation)
        return self._selections.find(request.relation, request.where, request.filter).tables

    def open_events(
        self, request: DurableRequest, waker: Callable[[], None], on_end: Callable[[SmileError], None]
    ) -> SubscriptionClaim:
        """Begins to deliver events, or continues. Returns when the position is stored. Slow: it reads the log."""
        check_name(request.key.name)
        if request.scope == "global":
            return self._open_global(request, waker, on_end)
        self.find_selection(request.relation)
        selected = self._selections.find(request.relation, request.where, request.filter)
        selection = selected.selection
        exported, log = self._host.find_export(selection.base), self._host.log
        if not exported.history and any(stream.name == selection.base for stream in self._host.program.streams):
            hint = "`smile status` says why. Subscribe again when it has joined."
            raise error("E135", f"this broker has not joined {selection.base} yet", hint=hint)
        identity = selected.identity(exported.history, self._host.find_export)
        known_from = self.matching.known_from(selected.event_filter)
        with self._lock:
            known = self._records.find_requested(request, selection.stream)
            position, is_known = find_position(log, request, selection, exported, identity, known, known_from)
            check_not_gone(log, request.relation, selection.stream, position)
            check_contents_known(selected.event_filter, known_from, position, log.stream_horizons(selection.stream))
            record = SubscriptionRecord(
                request.key,
                request.relation,
                request.conditions,
                selection.stream,
                exported.history,
                position,
                filter=request.filter,
            )
            matched = self.matching.add(selection, selected.event_filter, self._ranges)
            claim = self._claim(request.key, on_end)
            claim.selected = selected
            claim.events = EventSubscription(
                self.matching, matched, identity, self._ranges, position, request.window, waker
            )
            stored = self._records.write(record)
        return self._opened(claim, request, stored, is_known)

    def _opened(
        self, claim: SubscriptionClaim, request: DurableRequest, stored: "Future[None]", is_known: bool
    ) -> SubscriptionClaim:
        try:
            stored.result()
        except BaseException:
            claim.release()
            raise
        if not is_known:
            self._host.readers_changed()
            fields = {"subscription": str(request.key), "relation": request.relation}
            _log.info("a durable subscription begins", extra=fields)
        return claim

    def _open_global(
        self, request: DurableRequest, waker: Callable[[], None], on_end: Callable[[SmileError], None]
    ) -> SubscriptionClaim:
        host_where = self._covering_condition(request)
        found, log = self._host.find_global(request.relation, request.where, host_where), self._host.log
        selected = self._selections.complete(found.selection, found.condition, request.filter)
        identity = selected.identity(HISTORY, self._host.find_export)
        ranges = GlobalRanges(self._ranges, found.find_producers)
        stored_stream = stored_name(*found.filter)
        with self._lock:
            known = self._records.find_requested(request, stored_stream)
            position, is_known = find_global_position(log, request, found, identity, known)
            record = SubscriptionRecord(
                request.key,
                request.relation,
                request.conditions,
                stored_stream,
                HISTORY,
                position,
                filter=request.filter,
            )
            matched = self.matching.add(found.selection, selected.event_filter, ranges, stored_stream)
            claim = self._claim(request.key, on_end)
            claim.selected = selected
            claim.events = EventSubscription(self.matching, matched, identity, ranges, position, request.window, waker)
            stored = self._records.write(record)
        claim = self._opened(claim, request, stored, is_known)
        self._host.subscriptions_changed()
        return claim

    def _covering_condition(self, request: DurableRequest) -> str | None:
        """The condition that hosts evaluate for a subscription: the one with which it began; or none, if another
        subscription receives all events anyway. None if it follows from the request."""
        known = self._records.get(request.key)
        stored = None if known is None else stored_filter(known.stream)
        if stored is not None:
            return stored[1] if stored[0] == request.relation else None
        return "" if (request.relation, "") in self.global_filters() else None

    def global_filters(self) -> frozenset[tuple[str, str]]:
        """The streams and conditions of all global subscriptions."""
        found = (stored_filter(record.stream) for record in self._records.all())
        return frozenset(filter_ for filter_ in found if filter_ is not None)

    def open_rows(
        self, request: DurableRequest, on_end: Callable[[SmileError], None]
    ) -> tuple[SubscriptionClaim, str | None]:
        """Claims the name for a subscriber of a view's rows. Also returns the token with which it continues; None if
        it begins."""
        check_name(request.key.name)
        refuse_filter(request.filter)
        self._host.view(request.relation)
        with self._lock:
            known = self._records.find_requested(request, "")
            acknowledged = "" if known is None else known.resume
            record = SubscriptionRecord(request.key, request.relation, request.conditions, "", resume=acknowledged)
            claim = self._claim(request.key, on_end)
            self._records.write(record)
        return claim, request.resume or acknowledged or None

    def _claim(self, key: SubscriptionKey, on_end: Callable[[SmileError], None]) -> SubscriptionClaim:
        previous = self._claims.get(key)
        claim = self._claims[key] = SubscriptionClaim(self, key, on_end)
        if previous is not None:
            hint = "What it has not acknowledged is delivered to the other one. Use a name for each subscriber."
            previous.on_end(error("E140", f"another subscriber has taken over the name {key.name}", hint=hint))
        return claim

    def _release(self, claim: SubscriptionClaim) -> None:
        if claim.events is not None:
            self.matching.remove(claim.events.matched)
        with self._lock:
            if self._claims.get(claim.key) is not claim:
                return
            del self._claims[claim.key]
            self._store_position(claim)

    def _store_position(self, claim: SubscriptionClaim) -> "Future[None] | None":
        """Stores what was acknowledged, and that the subscriber is here. None if the name was dropped."""
        record = self._records.get(claim.key)
        if record is None:
            return None
        ticks = record.ticks if claim.events is None else claim.events.position
        return self._records.write(replace(record, ticks=ticks))

    # ── acknowledgements ────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledge(self, key: SubscriptionKey, token: str) -> "Future[str]":
        """Acknowledges what a token stands for, whether the subscriber is connected or not."""
        record = self._records.find(key)
        identity, ticks = parse_resume_token(token)
        if not record.stream:
            return self._store_token(key, token)
        if identity != self._check_token(record, ticks):
            raise error("E094", f"this is not a token of events of {record.relation}")
        with self._lock:
            claim = self._claims.get(key)
            if claim is not None and claim.events is not None:
                ticks = dict(claim.events.acknowledge(ticks))
            ticks = {o: max(t, record.ticks.get(o, HORIZON_MIN)) for o, t in {**record.ticks, **ticks}.items()}
            return _with_result(self._records.write(replace(record, ticks=ticks)), resume_token(identity, ticks))

    def _check_token(self, record: SubscriptionRecord, ticks: Ticks) -> str:
        """The identity that a token of a subscription to events must have."""
        if stored_filter(record.stream) is not None:
            found = self._host.find_global(record.relation, json.loads(record.conditions))
            selected = self._selections.complete(found.selection, found.condition, record.filter)
            return selected.identity(HISTORY, self._host.find_export)
        recorded = self._selections.find_recorded(record)
        if recorded is None:
            raise error("E095", f"{record.relation} was changed: it does not have these events any more")
        exported = self._host.find_export(recorded.selection.base)
        check_not_ahead(record.relation, exported, ticks, self._host.log.stream_horizons(record.stream))
        return recorded.identity(exported.history, self._host.find_export)

    def _store_ticks(self, claim: SubscriptionClaim, ticks: Ticks) -> "Future[str]":
        assert claim.events is not None
        with self._lock:
            record = self._records.find(claim.key)
            if self._claims.get(claim.key) is not claim:
                raise error("E140", f"another subscriber has taken over the name {claim.key.name}")
            stored = self._records.write(replace(record, ticks=ticks))
        return _with_result(stored, resume_token(claim.events.identity, ticks))

    def _store_token(self, key: SubscriptionKey, token: str) -> "Future[str]":
        parse_resume_token(token)
        with self._lock:
            stored = self._records.write(replace(self._records.find(key), resume=token))
        return _with_result(stored, token)

    def drop(self, key: SubscriptionKey) -> None:
        """Forgets a subscription. Returns when that is stored. A subscriber that is connected is told."""
        with self._lock:
            is_global = stored_filter(self._records.find(key).stream) is not None
            claim = self._claims.pop(key, None)
            deleted = self._records.delete(key)
        if claim is not None:
            claim.on_end(error("E143", f"the durable subscription {key.name} was dropped"))
        deleted.result()
        if is_global:
            self._host.subscriptions_changed()

    # ── the log and the program ─────────────────────────────────────────────────────────────────────────────────────

    def log_advanced(self) -> None:
        """Called after every commit. Fast: it is called in the thread that writes the log."""
        self._ranges.advance()
        for claim in list(self._claims.values()):
            if claim.events is not None:
                claim.events.log_advanced()

    def program_changed(self) -> None:
        """Ends subscriptions to events if their relation or the tables of their filters were changed. Their positions
        stay."""
        self.matching.set_program(self._host.program)
        for claim in list(self._claims.values()):
            record = self._records.get(claim.key)
            if claim.events is None or record is None:
                continue
            if stored_filter(record.stream) is not None:
                claim.events.log_advanced()  # there may be another producer
                continue
            selected = self._selections.find_recorded(record)
            assert claim.selected is not None
            if selected is None or not selected.is_same(claim.selected):
                is_there = any(d.name == record.relation for d in self._host.program.definitions)
                reason = "or a table that its filter reads was changed" if is_there else "is no longer in the program"
                claim.on_end(error("E095", f"{record.relation} {reason}"))

    def needed_horizons(self, away_us_max: int, keep_us: int | None) -> Mapping[str, int]:
        """Up to which tick each stream and origin of the log is not needed by any subscription, by stream and by
        `origin_name`. Nothing is held for a subscription that has been away for too long. Older contents of tables are
        forgotten, but not those of the last `keep_us`, which is None if the log keeps everything. Raises an error if
        the positions or the contents of tables cannot be stored: then nothing may be removed."""
        now_us = self._clock()
        with self._lock:
            stored = [self._store_position(claim) for claim in self._claims.values()]
        for future in stored:
            if future is not None:
                future.result()
        needed: dict[str, int] = {}
        present = [r for r in self._records.all_stored() if r.stream and now_us - r.seen_us <= away_us_max]
        for record in present:
            for name, tick in self._acknowledged_ticks(record).items():
                needed[name] = min(tick, needed.get(name, tick))
        return needed if keep_us is None else needed | self._needed_tables(present, now_us - keep_us)

    def _needed_tables(self, records: Iterable[SubscriptionRecord], keep_from_us: int) -> dict[str, int]:
        """The same for streams of tables. The contents of a table are kept from the position of each subscription on
        whose filter reads it, and of each whose ticks are times: it may be read by whoever uses this subscription."""
        everything = keep_from_us * TICKS_PER_MICROSECOND
        limits: dict[str, int] = {}
        for record in records:
            selected = self._selections.find_recorded(record)
            if selected is None:
                continue
            tick = min((record.ticks.get(o, HORIZON_MIN) for o in self._ranges.horizons(record.stream)), default=-1)
            if selected.selection.follows_clock:
                everything = min(everything, tick)
            for table in selected.event_filter.tables:
                limits[table] = min(tick, limits.get(table, tick))
        limits = {table: min(tick, everything) for table, tick in limits.items()}
        needed: dict[str, int] = {}
        for table, tick in self.matching.checkpoint_tables(limits, everything).items():
            needed |= with_origins(table, dict.fromkeys(self._ranges.horizons(table), tick))
        return needed

    def has_readers(self, stream: str) -> bool:
        """Whether a subscription reads events of a stream of the log."""
        return any(record.stream == stream for record in self._records.all())

    def _acknowledged_ticks(self, record: SubscriptionRecord) -> Mapping[str, int]:
        """By stream and origin of the log."""
        filter_ = stored_filter(record.stream)
        if filter_ is None:
            if record.stream not in self._host.log.schemas:
                return {}
            origins = self._ranges.horizons(record.stream)
            return with_origins(record.stream, {o: record.ticks.get(o, HORIZON_MIN) for o in origins})
        ticks: dict[str, int] = {}
        for producer in self._host.find_producers(*filter_):
            origins = self._ranges.horizons(producer.logged)
            known = {o: record.ticks.get(producer.position_key(o), HORIZON_MIN) for o in origins}
            ticks |= with_origins(producer.logged, known)
        return ticks

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self, principal: str | None = None) -> dict[str, dict[str, Any]]:
        """All subscriptions, or those of a principal, by principal and name."""
        with self._lock:
            records, claimed = self._records.all(), set(self._claims)
        chosen = [record for record in records if principal is None or record.key.principal == principal]
        return {str(record.key): self._record_status(record, record.key in claimed) for record in chosen}

    def _record_status(self, record: SubscriptionRecord, is_connected: bool) -> dict[str, Any]:
        fields = describe_subscription(record, is_connected, self._clock())
        if not record.stream:
            return fields
        filter_ = stored_filter(record.stream)
        if filter_ is not None:
            return {**fields, **describe_global(record, self._host.find_producers(*filter_), self._host.log)}
        selected = self._selections.find_recorded(record)
        if selected is None:
            return {**fields, "position": dict(record.ticks), "gone": False}
        horizons, follows_clock = self._ranges.horizons(record.stream), selected.selection.follows_clock
        identity = selected.identity(record.history, self._host.find_export)
        return {**fields, **describe_position(record, identity, follows_clock, self._host.log, horizons)}


def _with_result(stored: "Future[None]", token: str) -> "Future[str]":
    """A future that has the token when the other one is done."""
    future: Future[str] = Future()

    def finish(done: "Future[None]") -> None:
        problem = done.exception()
        if problem is None:
            future.set_result(token)
        else:
            future.set_exception(problem)

    stored.add_done_callback(finish)
    return future
