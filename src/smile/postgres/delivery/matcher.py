"""Which subscriptions receive which events. The broker evaluates the filters that it can translate, all of them at
once. The others are evaluated in the database, when the event is delivered.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from smile.broker.subscriptions.event_matcher import EventMatcher
from smile.broker.subscriptions.event_matching import EventMatching
from smile.errors import SmileError
from smile.kernels.delta import Delta
from smile.postgres.catalogue import DatabaseSubscription

Match = tuple[int, DatabaseSubscription]
"""The index of an event, and a subscription that receives it, or whose filter the database evaluates."""


@dataclass(frozen=True)
class FilterTable:
    """A table that filters may consult: the stream of its changes has its contents after the tick `begin`."""

    stream: str
    begin: int


class SubscriptionMatcher:
    """The filters of all subscriptions to one stream. `tables` are the tables that they may consult, by name. A filter
    that mentions one of `other_columns` is evaluated in the database: these have values that compare otherwise there.
    """

    def __init__(
        self,
        matching: EventMatching,
        stream: str,
        subscriptions: Sequence[DatabaseSubscription],
        tables: Mapping[str, FilterTable],
        other_columns: Collection[str],
    ) -> None:
        self._matching = matching
        self._table_names = {name: table.stream for name, table in tables.items()}
        self._begins = {table.stream: table.begin for table in tables.values()}
        self._matcher: EventMatcher[DatabaseSubscription] = matching.create_matcher(stream)
        self.in_database: dict[int, str] = {}
        """Subscriptions whose filters the database evaluates, and why."""
        for subscription in subscriptions:
            self._add(subscription, other_columns)

    @property
    def program(self) -> object:
        """The program that the filters were translated for."""
        return self._matcher.program

    def match(self, rows: Delta) -> Sequence[Match] | None:
        """The matches in the order in which they are delivered: by event, then by priority, the smallest first, then in
        the order of creation. None if a table that a filter consults is not known up to these events yet. Raises
        E146 if one is not known as of these events."""
        matches = self._matching.match_rows(self._matcher, rows, self._begins)
        if matches is None:
            return None
        pairs = zip(matches.events.tolist(), matches.subscriptions.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: (pair[0], pair[1].priority, pair[1].id))

    def close(self) -> None:
        self._matching.close_matcher(self._matcher)

    def _add(self, subscription: DatabaseSubscription, other_columns: Collection[str]) -> None:
        text = subscription.filter
        words = {word.casefold() for word in re.findall(r"\w+", text or "")}
        other = next((column for column in other_columns if column.casefold() in words), None)
        if other is None:
            try:
                self._matching.add_filter(self._matcher, subscription, text, self._table_names)
                return
            except SmileError as problem:
                reason = problem.message
        else:
            reason = f"{other} has a type whose values compare otherwise in the database"
        self.in_database[subscription.id] = reason
        self._matching.add_filter(self._matcher, subscription, None, {})
