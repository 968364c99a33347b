"""Bugs that the simulator must find. Each one is planted into the product for a run."""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.imports.stream_cache import StreamCache
from smile.broker.network.imported_relation import ImportedRelation
from smile.broker.network.network import Network
from smile.broker.network.range_relay import RangeRelay
from smile.broker.network.stream_source import LoggedStreamSource
from smile.broker.network.view_cursor import ExportCursor, to_link_horizons
from smile.broker.publishing.published_events import PublishedEvents
from smile.broker.publishing.publisher import Publisher
from smile.broker.subscriptions import event_positions
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions
from smile.broker.subscriptions.event_subscription import EventSubscription
from smile.broker.subscriptions.position_store import PositionStore
from smile.broker.views.view import View
from smile.horizons import HORIZON_MIN
from smile.links.curiosity import Curiosity
from smile.links.exports import EventsRange, StreamExport, ViewExport
from smile.links.imports import StreamImport, ViewImport
from smile.links.link import Link
from smile.links.send_window import SendWindow
from smile.log.membership import START_MIN, StreamMembership
from tests.engine.test_imports import horizons_of_two_imports_are_mixed

Patch = pytest.MonkeyPatch


def gap_is_forgotten(patch: Patch) -> None:
    """What has waited behind a gap counts as known, but is not handed on."""

    def forget(_import: StreamImport, inbox: Any, _origin: str) -> None:
        inbox.horizon = max([inbox.horizon, *(hi for hi, _ in inbox.waiting.values())])
        inbox.waiting.clear()

    patch.setattr(StreamImport, "_hand_on_waiting", forget)


def gap_between_frames_is_ignored(patch: Patch) -> None:
    patch.setattr(ViewImport, "_can_accept", lambda imported, message: message.epoch >= imported._epoch)


def acknowledgement_is_too_early(patch: Patch) -> None:
    """What is in the cache counts as safe."""

    def cached(relation: ImportedRelation, _checkpoint: Any, _downstream: Any) -> Any:
        if isinstance(relation.cache, StreamCache):
            return {relation.import_.relation: dict(relation.cache.horizons)}
        return to_link_horizons(relation.cache.horizons)

    patch.setattr(ImportedRelation, "safe_horizons", cached)


def repeated_publication_is_logged_twice(patch: Patch) -> None:
    patch.setattr(PublishedEvents, "find_repeats", lambda *_: [])


def publication_is_answered_before_it_is_logged(patch: Patch) -> None:
    commit = Publisher._commit

    def answer_first(publisher: Publisher, group: Any) -> None:
        for future, result in group.answers:
            future.set_result(result)
        group.answers.clear()
        commit(publisher, group)

    patch.setattr(Publisher, "_commit", answer_first)


def curiosity_is_not_answered(patch: Patch) -> None:
    patch.setattr(StreamExport, "answer", lambda *_: None)
    patch.setattr(ViewExport, "answer", lambda *_: None)


def what_was_asked_for_is_skipped(patch: Patch) -> None:
    def skip(export: StreamExport, question: Any) -> None:
        for origin, _, hi in question.ranges:
            export._sent[origin] = max(export._sent.get(origin, -1), min(hi, 2**62))

    patch.setattr(StreamExport, "answer", skip)


def nobody_is_curious(patch: Patch) -> None:
    def never(curiosity: Curiosity, now: float) -> None:
        curiosity.deadline = now + 1e9

    patch.setattr(Curiosity, "noticed_gap", never)
    patch.setattr(Curiosity, "advanced", never)


def reconnecting_import_asks_for_everything(patch: Patch) -> None:
    patch.setattr(StreamImport, "request", lambda imported: imported._request)


def what_a_neighbour_has_is_sent_again(patch: Patch) -> None:
    """After a new connection, all of it."""
    create = StreamExport.__init__

    def forget(export: StreamExport, import_id: int, source: Any, _known: Any, start: int, members: int = 0) -> None:
        create(export, import_id, source, {}, start, members)

    patch.setattr(StreamExport, "__init__", forget)


def silence_hides_events(patch: Patch) -> None:
    """The last event of a range is taken for silence."""
    read = LoggedStreamSource.read

    def shorten(source: LoggedStreamSource, origin: str, lo: int, hi: int) -> EventsRange | None:
        events = read(source, origin, lo, hi)
        return EventsRange(events.hi) if events is not None and events.rows == 1 and events.hi % 2 else events

    patch.setattr(LoggedStreamSource, "read", shorten)


def range_is_sent_too_far(patch: Patch) -> None:
    """A range says that it is complete beyond its end."""
    read = LoggedStreamSource.read

    def extend(source: LoggedStreamSource, origin: str, lo: int, hi: int) -> EventsRange | None:
        events = read(source, origin, lo, hi)
        return None if events is None else EventsRange(events.hi + 1, events.body, events.rows)

    patch.setattr(LoggedStreamSource, "read", extend)


def revocation_is_not_noticed(patch: Patch) -> None:
    for owner in (LoggedStreamSource, ExportCursor):
        create: Any = owner.__init__

        def without_check(self: Any, *arguments: Any, create: Any = create) -> None:
            create(self, *arguments)
            self._check_access = lambda: None

        patch.setattr(owner, "__init__", without_check)


def hard_checkpoint_is_not_flushed(patch: Patch) -> None:
    patch.setattr("smile.state.store.flush_to_disk", lambda *_: None)


def log_is_cut_below_a_neighbour(patch: Patch) -> None:
    patch.setattr(Network, "needed_horizons", lambda *_: {})


def export_continues_from_an_earlier_progress(patch: Patch) -> None:
    """Rows that have come and gone since are not reported."""

    def subscribe_after(view: View, horizons: Mapping[str, int], waker: Callable[[], None]) -> Any:
        from smile.broker.views.condition import ViewCondition  # noqa: PLC0415  # only this bug needs it

        progress, change = max(view._changes_by_progress.items(), key=lambda entry: entry[1])
        return view._open_subscription(ViewCondition(), waker, change, {}), dict(progress)

    patch.setattr(View, "subscribe_after", subscribe_after)


def window_never_opens_again(patch: Patch) -> None:
    patch.setattr(SendWindow, "stored", lambda *_: None)


def greeting_is_never_repeated(patch: Patch) -> None:
    greet = Link._greet

    def greet_once(link: Link, now: float) -> None:
        greet(link, now)
        link._greet_at = now + 1e9

    patch.setattr(Link, "_greet", greet_once)


# ── streams with many origins ───────────────────────────────────────────────────────────────────────────────────────


def join_is_forgotten_by_an_intermediate_broker(patch: Patch) -> None:
    """A broker that passes a stream on sends only the first membership that it has heard of."""
    read, first = LoggedStreamSource.horizons, WeakKeyDictionary[Any, tuple[int, bytes]]()

    def read_with_first_members(source: LoggedStreamSource) -> Mapping[str, int]:
        horizons = read(source)
        if source._relay is not None and source._members[0]:
            source._members = first.setdefault(source._relay, source._members)
        return horizons

    patch.setattr(LoggedStreamSource, "horizons", read_with_first_members)


def origin_starts_below_an_announced_horizon(patch: Patch) -> None:
    joined = StreamMembership.joined

    def join_early(membership: StreamMembership, broker: str, log: str, start: int) -> StreamMembership:
        return joined(membership, broker, log, max(START_MIN, start - 2_000_000 * TICKS_PER_MICROSECOND))

    patch.setattr(StreamMembership, "joined", join_early)


def fence_does_not_end_an_origin(patch: Patch) -> None:
    """Importing brokers wait for an origin that was fenced."""
    patch.setattr(StreamMembership, "completed", lambda _membership, piece: piece)


def rows_wait_for_the_least_origin(patch: Patch) -> None:
    """Nothing is sent of an origin that is ahead of another one."""
    read = LoggedStreamSource.horizons

    def least(source: LoggedStreamSource) -> Mapping[str, int]:
        horizons = read(source)
        return dict.fromkeys(horizons, min(horizons.values(), default=HORIZON_MIN))

    patch.setattr(LoggedStreamSource, "horizons", least)


# ── durable subscriptions ───────────────────────────────────────────────────────────────────────────────────────────


def acknowledgement_is_stored_too_early(patch: Patch) -> None:
    """What was delivered counts as acknowledged."""
    patch.setattr(EventSubscription, "position", property(lambda subscription: dict(subscription._read)))


def acknowledgement_is_answered_before_it_is_stored(patch: Patch) -> None:
    """Only every other change of positions is stored at once."""
    submit, counts = PositionStore._submit, Counter[int]()

    def answer_first(store: PositionStore, change: Any) -> Any:
        counts[id(store)] += 1
        if counts[id(store)] % 2:
            return submit(store, change)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    patch.setattr(PositionStore, "_submit", answer_first)


def position_does_not_hold_the_log(patch: Patch) -> None:
    patch.setattr(DurableSubscriptions, "needed_horizons", lambda *_: {})


def token_of_another_broker_is_ignored(patch: Patch) -> None:
    """Only what the broker has stored itself counts."""
    find = event_positions.find_position

    def without_token(log: Any, request: Any, *arguments: Any) -> Any:
        return find(log, replace(request, resume=None), *arguments)

    patch.setattr("smile.broker.subscriptions.durable_subscriptions.find_position", without_token)


def events_that_do_not_fit_into_a_frame_are_lost(patch: Patch) -> None:
    """The position after a frame includes events that were left out."""
    scan = EventSubscription._scan

    def skip(subscription: EventSubscription, start: Any, rows_max: int) -> Any:
        step = scan(subscription, start, 10**9)
        if step is None or step[0] is None:
            return step
        rows, ticks, origins, end = step
        assert rows is not None
        return rows.take(np.arange(min(rows_max, len(ticks)))), ticks[:rows_max], origins[:rows_max], end

    patch.setattr(EventSubscription, "_scan", skip)


# ── several imports, several links ──────────────────────────────────────────────────────────────────────────────────


def one_of_two_imports_acknowledges_for_both(patch: Patch) -> None:
    """A stream is imported under two names, and what one of them has is removed from the log."""

    def own_only(network: Network, import_id: int) -> Any:
        relation = network._relations.get(import_id)
        return {} if relation is None else network._safe_horizons(relation)

    patch.setattr(Network, "_acknowledged", own_only)


def question_is_dropped_by_an_intermediate_broker(patch: Patch) -> None:
    """What was removed from its log is not asked for upstream."""
    patch.setattr(RangeRelay, "questions", lambda *_: [])


BUGS: list[Callable[[Patch], None]] = [
    gap_is_forgotten,
    gap_between_frames_is_ignored,
    acknowledgement_is_too_early,
    horizons_of_two_imports_are_mixed,
    repeated_publication_is_logged_twice,
    publication_is_answered_before_it_is_logged,
    curiosity_is_not_answered,
    what_was_asked_for_is_skipped,
    nobody_is_curious,
    reconnecting_import_asks_for_everything,
    what_a_neighbour_has_is_sent_again,
    silence_hides_events,
    range_is_sent_too_far,
    revocation_is_not_noticed,
    hard_checkpoint_is_not_flushed,
    log_is_cut_below_a_neighbour,
    export_continues_from_an_earlier_progress,
    window_never_opens_again,
    greeting_is_never_repeated,
    join_is_forgotten_by_an_intermediate_broker,
    origin_starts_below_an_announced_horizon,
    fence_does_not_end_an_origin,
    rows_wait_for_the_least_origin,
    acknowledgement_is_stored_too_early,
    acknowledgement_is_answered_before_it_is_stored,
    position_does_not_hold_the_log,
    token_of_another_broker_is_ignored,
    events_that_do_not_fit_into_a_frame_are_lost,
    one_of_two_imports_acknowledges_for_both,
    question_is_dropped_by_an_intermediate_broker,
]
