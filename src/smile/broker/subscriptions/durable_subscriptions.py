"""The durable subscriptions of a broker: each has a name, under which the broker stores what was acknowledged.

A stream, an imported stream or a selection of one delivers events. Any other view delivers rows; its name stores the
resume token. The log keeps what a subscription to events has not acknowledged, unless it has been away for too long.
One subscriber at a time uses a name: a later one takes over.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal, Protocol

from smile import limits
from smile.algebra import mmpl
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.network.host import ExportedRelation
from smile.broker.subscriptions.event_subscription import EventSubscription, Ticks, event_identity, gone_error
from smile.broker.subscriptions.log_ranges import LogRanges
from smile.broker.subscriptions.position_store import PositionStore, SubscriptionKey, SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.broker.views.condition import parse_condition
from smile.broker.views.resume_token import parse_resume_token, resume_token
from smile.broker.views.view import View
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, with_origins
from smile.log.storage.durable import DurableLog

Start = Literal["all", "kept", "new"]
"""Where a new subscription to events begins: with the first event, with the oldest that the log has, or with events
that are logged from now on."""
STARTS: Final[tuple[Start, ...]] = ("all", "kept", "new")

_log = logging.getLogger("smile.broker.subscriptions")


class SubscriptionHost(Protocol):
    """What durable subscriptions need of their broker."""

    @property
    def log(self) -> DurableLog: ...

    @property
    def program(self) -> mmpl.Program: ...

    def find_export(self, relation: str) -> ExportedRelation: ...

    def view(self, name: str) -> View: ...


@dataclass(frozen=True)
class DurableRequest:
    """What a subscriber asks for. `where` are its conditions, as it has sent them."""

    key: SubscriptionKey
    relation: str
    where: Mapping[str, Any]
    resume: str | None = None
    start: Start = "all"
    window: int = limits.durable_window_events

    @property
    def conditions(self) -> str:
        return json.dumps(dict(self.where), sort_keys=True, ensure_ascii=False)


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
        self._store = PositionStore(path, flush)
        self._lock = RLock()
        self._records = self._store.read()
        self._stored = dict(self._records)
        """As they are on the disk."""
        self._claims: dict[SubscriptionKey, SubscriptionClaim] = {}
        self._ranges = LogRanges(host.log)
        self._selections: tuple[mmpl.Program | None, dict[str, StreamSelection | None]] = None, {}

    def close(self) -> None:
        """Returns when everything is stored."""
        for claim in list(self._claims.values()):
            claim.release()
        self._store.close()

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
        exported = self._host.find_export(selection.base)
        identity = event_identity(exported.history, selection, condition)
        with self._lock:
            known = self._check_record(request, selection.stream)
            position, is_known = self._find_position(request, selection, exported, identity, known)
            self._check_not_gone(request.relation, selection.stream, position)
            record = SubscriptionRecord(
                request.key,
                request.relation,
                request.conditions,
                selection.stream,
                exported.history,
                position,
                seen_us=self._clock(),
            )
            claim = self._claim(request.key, on_end)
            claim.events = EventSubscription(
                selection, condition, identity, self._ranges, position, request.window, waker
            )
            stored = self._write(record)
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
            known = self._check_record(request, "")
            acknowledged = "" if known is None else known.resume
            record = SubscriptionRecord(
                request.key, request.relation, request.conditions, "", resume=acknowledged, seen_us=self._clock()
            )
            claim = self._claim(request.key, on_end)
            self._write(record)
        return claim, request.resume or acknowledged or None

    def _check_record(self, request: DurableRequest, stream: str) -> SubscriptionRecord | None:
        """The record under the name, if there is one. Raises an error if it is one of another subscription."""
        known = self._records.get(request.key)
        if known is None:
            count = sum(key.principal == request.key.principal for key in self._records)
            if count >= limits.durable_subscriptions_max:
                hint = "Drop some: smile subscriptions --drop NAME."
                raise error("E092", f"{request.key.principal} has {count:,} durable subscriptions already", hint=hint)
            return None
        wanted = request.relation, request.conditions, stream
        if (known.relation, known.conditions, known.stream) != wanted:
            what = known.relation + (f" with {known.conditions}" if known.conditions != "{}" else "")
            what += " (events)" if known.stream else " (rows)"
            hint = f"Use another name, or drop it: smile subscriptions --drop {request.key.name}."
            raise error("E141", f"the name {request.key.name} belongs to a subscription to {what}", hint=hint)
        return known

    def _find_position(
        self,
        request: DurableRequest,
        selection: StreamSelection,
        exported: ExportedRelation,
        identity: str,
        known: SubscriptionRecord | None,
    ) -> tuple[Ticks, bool]:
        """Where a subscription begins or continues, and whether it continues. What was acknowledged is never lost: of a
        token and a stored position, the later one counts, for each origin."""
        stored = None if known is None else known.ticks
        if known is not None and known.history != exported.history:
            message = f"{request.relation} has another history than when {request.key.name} was here last"
            hint = f"A log was replaced. To begin anew, drop it: smile subscriptions --drop {request.key.name}."
            raise error("E141", message, hint=hint)
        token = None
        if request.resume is not None:
            token_identity, token = parse_resume_token(request.resume)
            if token_identity != identity:
                message = f"this is not a token of events of {request.relation}"
                hint = "It is of another relation, another condition, or another history. Subscribe without it."
                raise error("E094", message, hint=hint)
        horizons = self._host.log.stream_horizons(selection.stream)
        self._check_not_ahead(request.relation, exported, {**(stored or {}), **(token or {})}, horizons)
        if stored is not None or token is not None:
            position = dict(stored or {})
            for origin, tick in (token or {}).items():
                position[origin] = max(tick, position.get(origin, HORIZON_MIN))
            if request.start == "all" or not self._gone_origins(selection.stream, position):
                return position, True
        if request.start == "new":
            return dict(horizons), False
        return self._host.log.truncated_ticks(selection.stream) if request.start == "kept" else {}, False

    def _check_not_ahead(
        self, relation: str, exported: ExportedRelation, position: Ticks, horizons: Mapping[str, int]
    ) -> None:
        """What comes from elsewhere may still be on its way here. What was logged here first cannot."""
        home = exported.home_origin
        if home is not None and position.get(home, HORIZON_MIN) > horizons.get(home, HORIZON_MIN):
            message = f"{relation} was acknowledged up to tick {position[home]}, but the log ends before it"
            raise error("E089", message, hint="The log has lost its end: restore a backup of it.")

    def _gone_origins(self, stream: str, position: Ticks) -> dict[str, int]:
        """For each origin of which events after the position were removed, up to which tick."""
        truncated = self._host.log.truncated_ticks(stream)
        return {o: tick for o, tick in truncated.items() if position.get(o, HORIZON_MIN) < tick}

    def _check_not_gone(self, relation: str, stream: str, position: Ticks) -> None:
        for origin, truncated_to in self._gone_origins(stream, position).items():
            raise gone_error(relation, position.get(origin, HORIZON_MIN), truncated_to)

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
            record = self._records.get(claim.key)
            if record is not None:
                ticks = record.ticks if claim.events is None else claim.events.position
                self._write(replace(record, ticks=ticks, seen_us=self._clock()))

    # ── acknowledgements ────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledge(self, key: SubscriptionKey, token: str) -> "Future[str]":
        """Acknowledges what a token stands for, whether the subscriber is connected or not."""
        record = self._find_record(key)
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
        self._check_not_ahead(record.relation, exported, ticks, self._host.log.stream_horizons(record.stream))
        with self._lock:
            claim = self._claims.get(key)
            if claim is not None and claim.events is not None:
                ticks = dict(claim.events.acknowledge(ticks))
            ticks = {o: max(t, record.ticks.get(o, HORIZON_MIN)) for o, t in {**record.ticks, **ticks}.items()}
            return _with_result(
                self._write(replace(record, ticks=ticks, seen_us=self._clock())), resume_token(identity, ticks)
            )

    def _store_ticks(self, claim: SubscriptionClaim, ticks: Ticks) -> "Future[str]":
        assert claim.events is not None
        with self._lock:
            record = self._find_record(claim.key)
            if self._claims.get(claim.key) is not claim:
                raise error("E140", f"another subscriber has taken over the name {claim.key.name}")
            stored = self._write(replace(record, ticks=ticks, seen_us=self._clock()))
        return _with_result(stored, resume_token(claim.events.identity, ticks))

    def _store_token(self, key: SubscriptionKey, token: str) -> "Future[str]":
        parse_resume_token(token)
        with self._lock:
            stored = self._write(replace(self._find_record(key), resume=token, seen_us=self._clock()))
        return _with_result(stored, token)

    def _find_record(self, key: SubscriptionKey) -> SubscriptionRecord:
        record = self._records.get(key)
        if record is None:
            raise error("E143", f"{key.principal} has no durable subscription {key.name[:100]}")
        return record

    def _write(self, record: SubscriptionRecord) -> "Future[None]":
        """Call it with the lock."""
        self._records[record.key] = record
        future = self._store.write(record)
        future.add_done_callback(lambda done: self._note_stored(record, done))
        return future

    def _note_stored(self, record: SubscriptionRecord, done: "Future[None]") -> None:
        if done.exception() is None:
            with self._lock:
                if record.key in self._records:
                    self._stored[record.key] = record

    def drop(self, key: SubscriptionKey) -> None:
        """Forgets a subscription. Returns when that is stored. A subscriber that is connected is told."""
        with self._lock:
            self._find_record(key)
            claim = self._claims.pop(key, None)
            del self._records[key]
            self._stored.pop(key, None)
            deleted = self._store.delete(key)
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
            try:
                selection = self.find_selection(record.relation)
            except SmileError:
                selection = None
            old = claim.events.selection
            if selection is None or (selection.stream, selection.text) != (old.stream, old.text):
                reason = "is no longer in the program" if selection is None else "was changed"
                claim.on_end(error("E095", f"{record.relation} {reason}"))

    def needed_horizons(self, away_us_max: int) -> Mapping[str, int]:
        """Up to which tick each stream and origin of the log is not needed by any subscription, by stream and by
        `origin_name`. Nothing is held for a subscription that has been away for too long. Raises an error if the
        positions cannot be stored: then nothing may be removed."""
        with self._lock:
            now_us = self._clock()
            stored = []
            for key, claim in self._claims.items():
                record = self._records.get(key)
                if record is not None:
                    ticks = record.ticks if claim.events is None else claim.events.position
                    stored.append(self._write(replace(record, ticks=ticks, seen_us=now_us)))
        for future in stored:
            future.result()
        with self._lock:
            records = list(self._stored.values())
        needed: dict[str, int] = {}
        for record in records:
            if record.stream in self._host.log.schemas and now_us - record.seen_us <= away_us_max:
                origins = self._ranges.horizons(record.stream)
                ticks = with_origins(record.stream, {o: record.ticks.get(o, HORIZON_MIN) for o in origins})
                needed |= {name: min(tick, needed.get(name, tick)) for name, tick in ticks.items()}
        return needed

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self, principal: str | None = None) -> dict[str, dict[str, Any]]:
        """All subscriptions, or those of a principal, by principal and name."""
        with self._lock:
            records, claimed = list(self._records.values()), set(self._claims)
        chosen = [record for record in records if principal is None or record.key.principal == principal]
        return {str(record.key): self._record_status(record, record.key in claimed) for record in chosen}

    def _record_status(self, record: SubscriptionRecord, is_connected: bool) -> dict[str, Any]:
        now_us = self._clock()
        fields: dict[str, Any] = {
            "principal": record.key.principal,
            "name": record.key.name,
            "relation": record.relation,
            "where": json.loads(record.conditions),
            "delivers": "events" if record.stream else "rows",
            "connected": is_connected,
            "seen_s": 0.0 if is_connected else round((now_us - record.seen_us) / 1e6, 3),
            "resume": record.resume or None,
        }
        if not record.stream:
            return fields
        try:
            selection = self.find_selection(record.relation)
        except SmileError:
            selection = None
        if selection is None or selection.stream != record.stream:
            return {**fields, "position": dict(record.ticks), "gone": False}
        condition = parse_condition(selection.source, json.loads(record.conditions))
        log, horizons = self._host.log, self._ranges.horizons(record.stream)
        behind = [h - record.ticks.get(o, HORIZON_MIN) for o, h in horizons.items() if h < END]
        is_behind = selection.follows_clock and all(o in record.ticks for o in horizons)
        return {
            **fields,
            "resume": resume_token(event_identity(record.history, selection, condition), record.ticks),
            "position": dict(record.ticks),
            "lag_s": round(max(0, *behind, 0) / TICKS_PER_MICROSECOND / 1e6, 3) if is_behind else None,
            "waiting_events": sum(log.count_rows(record.stream, o, record.ticks.get(o, HORIZON_MIN)) for o in horizons),
            "gone": bool(self._gone_origins(record.stream, record.ticks)),
        }


def check_start(text: str) -> Start:
    for start in STARTS:
        if text == start:
            return start
    raise error("E093", f"there is no start {text[:100]!r}", hint=f"There are {', '.join(STARTS)}.")


def check_name(name: str) -> None:
    if not re.fullmatch(r"[\w.@+-]+", name) or len(name) > limits.principal_chars_max:
        hint = "A name consists of letters, digits and . @ + - _"
        raise error("E093", f"{name[: limits.principal_chars_max]!r} is not a name of a subscription", hint=hint)


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
