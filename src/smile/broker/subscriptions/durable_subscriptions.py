"""The durable subscriptions of a broker: each has a name, under which the broker stores what was acknowledged.

A stream, an imported stream or a selection of one delivers events. Any other view delivers rows; its name stores the
resume token. The log keeps what a subscription to events has not acknowledged, unless it has been away for too long.
One subscriber at a time uses a name: a later one takes over.
"""

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from smile.algebra import mmpl
from smile.broker.network.host import ExportedRelation
from smile.broker.subscriptions.durable_request import DurableRequest, check_name
from smile.broker.subscriptions.event_positions import check_not_ahead, check_not_gone, find_position
from smile.broker.subscriptions.event_subscription import EventSubscription, Ticks, event_identity
from smile.broker.subscriptions.log_ranges import LogRanges
from smile.broker.subscriptions.position_store import SubscriptionKey, SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.broker.subscriptions.subscription_records import SubscriptionRecords
from smile.broker.subscriptions.subscription_status import describe_position, describe_subscription
from smile.broker.views.condition import parse_condition
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

    def view(self, name: str) -> View: ...


class SubscriptionClaim:
    """A name that a subscriber uses now. `on_end` is called when another one takes over, or the name is dropped."""

    def __init__(
        self, owner: "DurableSubscriptions", key: SubscriptionKey, on_end: Callable[[SmileError], None]
    ) -> None:
        self.key, self.on_end, self._owner = key, on_end, owner
        self.events: EventSubscription | None = None

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
    """Thread-safe. `clock` returns microseconds since 1970."""

    def __init__(self, path: Path, host: SubscriptionHost, clock: Callable[[], int], flush: bool) -> None:
        self._host, self._clock = host, clock
        self._records = SubscriptionRecords(path, clock, flush)
        self._lock = self._records.lock
        self._claims: dict[SubscriptionKey, SubscriptionClaim] = {}
        self._ranges = LogRanges(host.log)
        self._selections: tuple[mmpl.Program | None, dict[str, StreamSelection | None]] = None, {}

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
        with self._lock:
            if self._selections[0] is not program:
                self._selections = program, {}
            known = self._selections[1]
            if relation not in known:
                known[relation] = find_selection(program, relation)
            return known[relation]

    def _present_selection(self, relation: str) -> StreamSelection | None:
        """None also if the program does not have the relation any more."""
        try:
            return self.find_selection(relation)
        except SmileError:
            return None

    def open_events(
        self, request: DurableRequest, waker: Callable[[], None], on_end: Callable[[SmileError], None]
    ) -> SubscriptionClaim:
        """Begins to deliver events, or continues. Returns when the position is stored. Slow: it reads the log."""
        check_name(request.key.name)
        selection = self.find_selection(request.relation)
        if selection is None:
            hint = "Its rows can be delivered: their changes, with the resume position under the name."
            raise error("E142", f"{request.relation} is no selection of a stream, so it has no events", hint=hint)
        condition = parse_condition(selection.source, request.where)
        exported, log = self._host.find_export(selection.base), self._host.log
        identity = event_identity(exported.history, selection, condition)
        with self._lock:
            known = self._records.find_requested(request, selection.stream)
            position, is_known = find_position(log, request, selection, exported, identity, known)
            check_not_gone(log, request.relation, selection.stream, position)
            record = SubscriptionRecord(
                request.key, request.relation, request.conditions, selection.stream, exported.history, position
            )
            claim = self._claim(request.key, on_end)
            claim.events = EventSubscription(
                selection, condition, identity, self._ranges, position, request.window, waker
            )
            stored = self._records.write(record)
        try:
            stored.result()
        except BaseException:
            claim.release()
            raise
        if not is_known:
            fields = {"subscription": str(request.key), "relation": request.relation}
            _log.info("a durable subscription begins", extra=fields)
        return claim

    def open_rows(
        self, request: DurableRequest, on_end: Callable[[SmileError], None]
    ) -> tuple[SubscriptionClaim, str | None]:
        """Claims the name for a subscriber of a view's rows. Also returns the token with which it continues; None if
        it begins."""
        check_name(request.key.name)
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
        selection = self.find_selection(record.relation)
        if selection is None or selection.stream != record.stream:
            raise error("E095", f"{record.relation} was changed: it has no events any more")
        condition = parse_condition(selection.source, json.loads(record.conditions))
        exported = self._host.find_export(selection.base)
        if identity != event_identity(exported.history, selection, condition):
            raise error("E094", f"this is not a token of events of {record.relation}")
        check_not_ahead(record.relation, exported, ticks, self._host.log.stream_horizons(record.stream))
        with self._lock:
            claim = self._claims.get(key)
            if claim is not None and claim.events is not None:
                ticks = dict(claim.events.acknowledge(ticks))
            ticks = {o: max(t, record.ticks.get(o, HORIZON_MIN)) for o, t in {**record.ticks, **ticks}.items()}
            return _with_result(self._records.write(replace(record, ticks=ticks)), resume_token(identity, ticks))

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
            self._records.find(key)
            claim = self._claims.pop(key, None)
            deleted = self._records.delete(key)
        if claim is not None:
            claim.on_end(error("E143", f"the durable subscription {key.name} was dropped"))
        deleted.result()

    # ── the log and the program ─────────────────────────────────────────────────────────────────────────────────────

    def log_advanced(self) -> None:
        """Called after every commit. Fast: it is called in the thread that writes the log."""
        self._ranges.advance()
        for claim in list(self._claims.values()):
            if claim.events is not None:
                claim.events.log_advanced()

    def program_changed(self) -> None:
        """Ends subscriptions to events of a relation that was changed. Their positions stay."""
        for claim in list(self._claims.values()):
            record = self._records.get(claim.key)
            if claim.events is None or record is None:
                continue
            selection = self._present_selection(record.relation)
            old = claim.events.selection
            if selection is None or (selection.stream, selection.text) != (old.stream, old.text):
                reason = "is no longer in the program" if selection is None else "was changed"
                claim.on_end(error("E095", f"{record.relation} {reason}"))

    def needed_horizons(self, away_us_max: int) -> Mapping[str, int]:
        """Up to which tick each stream and origin of the log is not needed by any subscription, by stream and by
        `origin_name`. Nothing is held for a subscription that has been away for too long. Raises an error if the
        positions cannot be stored: then nothing may be removed."""
        now_us = self._clock()
        with self._lock:
            stored = [self._store_position(claim) for claim in self._claims.values()]
        for future in stored:
            if future is not None:
                future.result()
        needed: dict[str, int] = {}
        for record in self._records.all_stored():
            if record.stream in self._host.log.schemas and now_us - record.seen_us <= away_us_max:
                origins = self._ranges.horizons(record.stream)
                ticks = with_origins(record.stream, {o: record.ticks.get(o, HORIZON_MIN) for o in origins})
                needed |= {name: min(tick, needed.get(name, tick)) for name, tick in ticks.items()}
        return needed

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
        selection = self._present_selection(record.relation)
        if selection is None or selection.stream != record.stream:
            return {**fields, "position": dict(record.ticks), "gone": False}
        horizons = self._ranges.horizons(record.stream)
        return {**fields, **describe_position(record, selection, self._host.log, horizons)}


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
