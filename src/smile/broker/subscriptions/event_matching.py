"""Matches ranges of the log with the filters of all durable subscriptions that are connected.

Subscriptions that follow a stream closely read the same ranges: each range is matched once, for all of them.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.broker.subscriptions.event_filter import EventFilter, parse_filter
from smile.broker.subscriptions.event_matcher import EventMatcher, EventMatches
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.subscriptions.table_readers import TableReader, TableReaders, unknown_contents_error
from smile.broker.views.condition import ViewCondition
from smile.columns.values import Array, Indices, true_indices
from smile.horizons import END, HORIZON_MIN
from smile.kernels.delta import Delta
from smile.log.storage.piece_log import slice_events
from smile.log.storage.pieces import StreamPiece

S = TypeVar("S", bound=Hashable)

SCAN_ROWS: Final = 2_000
"""Events of an origin that are matched at once."""
RANGES_MAX: Final = 8
"""Matched ranges of a relation that are kept, for other subscriptions."""


class StreamRanges(Protocol):
    """Ranges of a stream: of the log, or of all producers of a global stream."""

    @property
    def version(self) -> int: ...

    def horizons(self, stream: str) -> Mapping[str, int]: ...

    def read(self, stream: str, origin: str, after: int) -> StreamPiece | None: ...


@dataclass(eq=False)
class MatchedSubscription:
    """A subscription that is connected. `read_to` is how far it has read, by origin."""

    relation: "_Relation"
    selection: StreamSelection
    event_filter: EventFilter
    read_to: dict[str, int] = field(default_factory=dict)
    own_matcher: "EventMatcher[MatchedSubscription] | None" = None
    """Matches ranges that no other subscription will read."""


@dataclass(frozen=True, eq=False)
class _MatchedRange:
    """`rows` are the rows of the relation in (lo, hi] of an origin, and `found` the numbers of those that each
    subscription receives. `subscribed` are the subscriptions that it was matched with."""

    origin: str
    lo: int
    hi: int
    rows: Delta | None
    ticks: Array
    found: Mapping[MatchedSubscription, Indices]
    subscribed: frozenset[MatchedSubscription]


@dataclass(eq=False)
class _Relation:
    """Subscriptions to one relation whose filters consult the same tables, the matcher that they share, and the ranges
    that were matched last."""

    key: tuple[object, ...]
    program: mmpl.Program
    readers: Mapping[str, TableReader]
    source: StreamRanges
    matcher: EventMatcher[MatchedSubscription] = field(init=False)
    subscribed: frozenset[MatchedSubscription] = frozenset()
    ranges: deque[_MatchedRange] = field(default_factory=lambda: deque(maxlen=RANGES_MAX))

    def new_matcher(self, selection: StreamSelection) -> EventMatcher[MatchedSubscription]:
        return EventMatcher(self.program, selection.source.name, lambda table: self.readers[table].history, selection)


class EventMatching:
    """Thread-safe."""

    def __init__(self, program: mmpl.Program, tables: TableReaders) -> None:
        self._program, self._tables = program, tables
        self._tables.set_program(program)
        self._lock = Lock()
        self._relations: dict[tuple[object, ...], _Relation] = {}
        self.matched_events = 0
        """The events that were matched so far, whatever the number of subscriptions."""

    def set_program(self, program: mmpl.Program) -> None:
        with self._lock:
            self._program = program
            self._tables.set_program(program)

    def known_from(self, event_filter: EventFilter) -> int:
        """The tick from which on the contents of all tables that the filter consults are known."""
        with self._lock:
            readers = [self._tables.find(table) for table in event_filter.tables]
            for reader in readers:
                reader.advance()
            return max((reader.history.floor for reader in readers), default=HORIZON_MIN)

    def checkpoint_tables(self, limits: Mapping[str, int], default: int) -> Mapping[str, int]:
        """Stores the contents of all tables as of these ticks. Returns up to which their changes are not needed."""
        with self._lock:
            return self._tables.checkpoint(lambda table: limits.get(table, default))

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self, selection: StreamSelection, event_filter: EventFilter, source: StreamRanges, producers: str = ""
    ) -> MatchedSubscription:
        """Subscriptions to the same global stream have equal `producers`, and equal sources."""
        with self._lock:
            readers = {table: self._tables.find(table) for table in sorted(event_filter.tables)}
            key = selection.source.name, selection.stream, selection.text, producers, tuple(readers.values())
            relation = self._relations.get(key)
            if relation is None:
                relation = self._relations[key] = _Relation(key, self._program, readers, source)
                relation.matcher = relation.new_matcher(selection)
            for reader in readers.values():
                reader.advance()
            subscription = MatchedSubscription(relation, selection, event_filter)
            relation.matcher.add(subscription, event_filter)
            relation.subscribed |= {subscription}
        return subscription

    def remove(self, subscription: MatchedSubscription) -> None:
        relation = subscription.relation
        with self._lock:
            if subscription.own_matcher is not None:
                subscription.own_matcher.close()
                subscription.own_matcher = None
            if subscription in relation.subscribed:
                relation.matcher.remove(subscription)
                relation.subscribed -= {subscription}
            if not relation.subscribed and self._relations.get(relation.key) is relation:
                del self._relations[relation.key]

    # ── rows that were read otherwise ───────────────────────────────────────────────────────────────────────────────

    def create_matcher(self, relation: str) -> EventMatcher[S]:
        """A matcher of a relation's rows. Use it only with the following methods."""
        with self._lock:
            return EventMatcher(self._program, relation, lambda table: self._tables.find(table).history)

    def add_filter(
        self, matcher: EventMatcher[S], subscription: S, text: str | None, table_names: Mapping[str, str]
    ) -> None:
        """Adds a subscription with the text of its filter; None for every event. The filter may consult the tables with
        these names, and no others. Raises the error of a text that cannot be used."""
        with self._lock:
            event_filter = None if text is None else parse_filter(matcher.program, matcher.selection, text, table_names)
            matcher.add(subscription, event_filter)

    def match_rows(self, matcher: EventMatcher[S], rows: Delta, begins: Mapping[str, int]) -> EventMatches[S] | None:
        """The pairs of these rows, which are ordered by their ticks; None if a table is not known up to them yet. The
        stream of a table has its contents after the tick that `begins` has. Raises E146 if they are needed earlier."""
        with self._lock:
            first = int(np.asarray(matcher.selection.ticks(rows).data).min()) if len(rows) else END
            for table in matcher.tables:
                reader = self._tables.find(table)
                reader.advance()
                floor = max(reader.history.floor, begins.get(table, HORIZON_MIN) + 1)
                if first < floor:
                    raise unknown_contents_error(table, floor)
            if len(rows) and matcher.horizon < int(np.asarray(matcher.selection.ticks(rows).data).max()):
                return None
            return matcher.match_rows(rows)

    def emptying_changes(self, table: str) -> pa.RecordBatch:
        """The changes that remove all rows that a table has at the end of the log. Raises E146 if they are not
        known."""
        with self._lock:
            reader = self._tables.find(table)
            reader.advance()
            return reader.history.emptying_changes()

    def close_matcher(self, matcher: EventMatcher[S]) -> None:
        with self._lock:
            matcher.close()

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, subscription: MatchedSubscription, origin: str, after: int) -> tuple[int, Delta | None] | None:
        """The end of a range of an origin that begins after this tick, and the rows in it that the subscription
        receives; None if nothing is known there. Raises E097 if it was removed from the log."""
        with self._lock:
            if subscription not in subscription.relation.subscribed:
                return None  # it was removed meanwhile
            subscription.read_to[origin] = after
            matched = self._find(subscription, origin, after) or self._match(subscription, origin, after)
            if matched is None:
                return None
            subscription.read_to[origin] = matched.hi
            found = matched.found.get(subscription)
            if found is None or matched.rows is None:
                return matched.hi, None
            chosen = found if after <= matched.lo else found[true_indices(matched.ticks[found] > after)]
            return matched.hi, matched.rows.take(chosen) if len(chosen) else None

    def _find(self, subscription: MatchedSubscription, origin: str, after: int) -> _MatchedRange | None:
        for matched in reversed(subscription.relation.ranges):
            if matched.origin == origin and matched.lo <= after < matched.hi and subscription in matched.subscribed:
                return matched
        return None

    def _match(self, subscription: MatchedSubscription, origin: str, after: int) -> _MatchedRange | None:
        relation, selection = subscription.relation, subscription.selection
        limit = END
        for table, reader in relation.readers.items():
            reader.advance()
            if after < reader.history.floor:
                raise unknown_contents_error(table, reader.history.floor)
            limit = min(limit, reader.history.horizon)
        piece = None if limit <= after else relation.source.read(selection.stream, origin, after)
        if piece is None:
            return None
        hi, events = min(piece.hi, limit), piece.events
        if events is not None:
            events = slice_events(events, after, hi)
            if events.num_rows > SCAN_ROWS:
                events = events.slice(0, SCAN_ROWS)
                hi = int(events.column(0)[SCAN_ROWS - 1].as_py())
        waiting = [s for s in relation.subscribed if s.read_to.get(origin, HORIZON_MIN) < hi]
        is_shared = len(waiting) > 1
        subscribed = relation.subscribed if is_shared else frozenset({subscription})
        if events is None or not events.num_rows:
            matched = _MatchedRange(origin, after, hi, None, np.zeros(0, np.int64), {}, subscribed)
        else:
            self.matched_events += events.num_rows
            rows = selection.select(events, ViewCondition())
            matches = (relation.matcher if is_shared else self._own_matcher(subscription)).match_rows(rows)
            ticks = np.asarray(selection.ticks(rows).data)
            matched = _MatchedRange(origin, after, hi, rows, ticks, matches.by_subscription(), subscribed)
        if is_shared:
            relation.ranges.append(matched)
        return matched

    def _own_matcher(self, subscription: MatchedSubscription) -> EventMatcher[MatchedSubscription]:
        relation = subscription.relation
        if relation.subscribed == {subscription}:
            return relation.matcher
        if subscription.own_matcher is None:
            subscription.own_matcher = relation.new_matcher(subscription.selection)
            subscription.own_matcher.add(subscription, subscription.event_filter)
        return subscription.own_matcher
