"""EventMatches events with the filters of all subscriptions to one relation.

Filters that differ only in constants form one group, and equal filters share one slot of it. The work is proportional
to the events of each group and to the pairs that are found, whatever the number of subscriptions.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.broker.subscriptions.event_filter import EVERY_EVENT, EventFilter, parse_filter
from smile.broker.subscriptions.matching.event_rows import EventRows
from smile.broker.subscriptions.matching.filter_group import FilterGroup
from smile.broker.subscriptions.matching.filter_template import FilterTemplate
from smile.broker.subscriptions.matching.table_history import TableHistory
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.broker.views.condition import ViewCondition
from smile.columns.values import Array, Indices, true_indices
from smile.errors import error
from smile.horizons import END
from smile.kernels.delta import Delta

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, eq=False)
class EventMatches(Generic[S]):
    """Pairs of an event and a subscription whose filter matches it, ordered by event. `events` are numbers of events in
    the batch, `subscriptions` is an array of Python objects."""

    events: Indices
    subscriptions: Array

    def __len__(self) -> int:
        return len(self.events)

    def by_subscription(self) -> dict[S, Indices]:
        """The events of each subscription that has any, in their order."""
        if not len(self):
            return {}
        identities = np.fromiter(map(id, self.subscriptions), np.int64, len(self))
        order = np.argsort(identities, kind="stable")
        starts = true_indices(np.diff(identities[order], prepend=identities[order[0]] - 1) != 0)
        parts = np.split(self.events[order], starts[1:])
        return dict(zip(self.subscriptions[order[starts]], parts, strict=True))


def check_filter(program: mmpl.Program, relation: str, text: str) -> EventFilter:
    """The filter of a subscription to a relation. Raises an error that says why the text is wrong, or why it cannot be
    translated."""
    return parse_filter(program, _require_selection(program, relation), text)


class EventMatcher(Generic[S]):
    """Not thread-safe. `find_history` returns the history of a table by the name of its stream in the log; the matcher
    observes it. Before `match`, histories must have been advanced up to the ticks of the events. `selection` is that of
    the relation, if it is known already."""

    def __init__(
        self,
        program: mmpl.Program,
        relation: str,
        find_history: Callable[[str], TableHistory],
        selection: StreamSelection | None = None,
    ) -> None:
        self.program = program
        self.selection = selection or _require_selection(program, relation)
        self._find_history = find_history
        self._types = dict(self.selection.source.layout.fixed)
        self._filters: dict[S, EventFilter] = {}
        self._groups: dict[FilterTemplate, _Group[S]] = {}

    def __contains__(self, subscription: S) -> bool:
        return subscription in self._filters

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, subscription: S, event_filter: EventFilter | str | None) -> None:
        """Adds a subscription with a filter, its text, or None for every event. Raises the error of a wrong text."""
        assert subscription not in self._filters
        if event_filter is None:
            event_filter = EVERY_EVENT
        elif isinstance(event_filter, str):
            event_filter = parse_filter(self.program, self.selection, event_filter)
        template = event_filter.template
        group = self._groups.get(template)
        if group is None:
            group = self._groups[template] = _Group(FilterGroup(template, self._types, self._find_history))
        self._filters[subscription] = event_filter
        group.add(subscription, event_filter)

    def remove(self, subscription: S) -> None:
        event_filter = self._filters.pop(subscription)
        group = self._groups[event_filter.template]
        group.remove(subscription, event_filter)
        if not len(group.filters):
            group.filters.close()
            del self._groups[event_filter.template]

    def close(self) -> None:
        """It observes nothing any more."""
        for subscription in list(self._filters):
            self.remove(subscription)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the filters consult, by the names of their streams in the log."""
        return tuple(dict.fromkeys(table for template in self._groups for table in _tables(template)))

    @property
    def horizon(self) -> int:
        """Events up to this tick can be matched: all tables are known up to it."""
        return min((self._find_history(table).horizon for table in self.tables), default=END)

    @property
    def examined(self) -> int:
        """Events and pairs that were looked at so far, summed over the groups."""
        return sum(group.filters.examined for group in self._groups.values())

    def match(self, events: pa.RecordBatch) -> EventMatches[S]:
        """The pairs of these events of the stream, which are ordered by their ticks and not above `horizon`."""
        rows = self.selection.select(events, ViewCondition())
        matches = self.match_rows(rows)
        if len(rows) == events.num_rows:
            return matches
        ticks = np.asarray(events.column(0))
        numbers = np.searchsorted(ticks, np.asarray(self.selection.ticks(rows).data))
        return EventMatches(numbers[matches.events], matches.subscriptions)

    def match_rows(self, rows: Delta) -> EventMatches[S]:
        """The pairs of rows of the selection."""
        event_rows = EventRows(rows.fixed, np.asarray(self.selection.ticks(rows).data))
        parts = [group.match(event_rows) for group in self._groups.values()] if len(rows) else []
        if not parts:
            return EventMatches(np.zeros(0, np.int64), np.zeros(0, object))
        numbers = np.concatenate([events for events, _ in parts])
        order = np.argsort(numbers, kind="stable")
        return EventMatches(numbers[order], np.concatenate([subscriptions for _, subscriptions in parts])[order])


class _Group(Generic[S]):
    """The subscriptions of a group, by the slots of its filters."""

    def __init__(self, filters: FilterGroup) -> None:
        self.filters = filters
        self._members: dict[int, dict[S, None]] = {}
        self._arrays: tuple[Array, Array, Array] | None = None

    def add(self, subscription: S, event_filter: EventFilter) -> None:
        slot = self.filters.find(event_filter.parameters)
        if slot is None:
            slot = self.filters.add(event_filter.parameters)
            self._members[slot] = {}
        self._members[slot][subscription] = None
        self._arrays = None

    def remove(self, subscription: S, event_filter: EventFilter) -> None:
        slot = self.filters.find(event_filter.parameters)
        assert slot is not None
        del self._members[slot][subscription]
        if not self._members[slot]:
            del self._members[slot]
            self.filters.remove(event_filter.parameters)
        self._arrays = None

    def match(self, rows: EventRows) -> tuple[Indices, Array]:
        events, slots = self.filters.match(rows)
        starts, counts, members = self._arrays or self._member_arrays()
        repeats = counts[slots]
        if len(repeats) and repeats.max() == 1:
            return events, members[starts[slots]]
        ends = repeats.cumsum()
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - repeats, repeats)
        return np.repeat(events, repeats), members[np.repeat(starts[slots], repeats) + within]

    def _member_arrays(self) -> tuple[Array, Array, Array]:
        size = max(self._members, default=-1) + 1
        counts = np.zeros(size, np.int64)
        for slot, members in self._members.items():
            counts[slot] = len(members)
        starts = counts.cumsum() - counts
        ordered = [subscription for slot in sorted(self._members) for subscription in self._members[slot]]
        flat = np.empty(len(ordered), object)
        flat[:] = ordered
        self._arrays = starts, counts, flat
        return self._arrays


def _tables(template: FilterTemplate) -> Mapping[str, None]:
    return dict.fromkeys(test.table for test in template.tests)


def _require_selection(program: mmpl.Program, relation: str) -> StreamSelection:
    selection = find_selection(program, relation)
    if selection is None:
        hint = "Its rows can be delivered: their changes, with the resume position under the name."
        raise error("E142", f"{relation} is no selection of a stream, so it has no events", hint=hint)
    return selection
