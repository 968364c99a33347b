"""Access paths: how a group finds, for each event, the parameters whose filters may match it.

A slot is a tuple of parameters of the group. The work is proportional to the events and to the pairs that are found.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from smile.algebra import mmpl
from smile.algebra.types import DataType
from smile.broker.subscriptions.matching.event_rows import EventRows
from smile.broker.subscriptions.matching.filter_template import Parameter, TableTest
from smile.broker.subscriptions.matching.row_expressions import RowExpressions
from smile.broker.subscriptions.matching.table_history import Periods, TableHistory
from smile.broker.subscriptions.matching.table_index import Key, TableIndex
from smile.columns.values import Array, Indices

ParameterTuple = tuple[Parameter, ...]
Pairs = tuple[Indices, Indices]
"""The number of the event and the slot of each pair."""


class AccessPath(ABC):
    """`examined` counts the entries that were looked at."""

    examined = 0

    @abstractmethod
    def add(self, slot: int, parameters: ParameterTuple) -> None: ...

    @abstractmethod
    def remove(self, slot: int, parameters: ParameterTuple) -> None: ...

    @abstractmethod
    def find(self, rows: EventRows, events: Indices) -> Pairs:
        """The pairs of these events, in their order."""

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """It is not used any more."""


class MembershipPath(AccessPath):
    """Looks up the values of expressions in a hash table of the parameters."""

    def __init__(self, memberships: Sequence[tuple[mmpl.Expr, int]], types: Mapping[str, DataType]) -> None:
        self._numbers = [number for _, number in memberships]
        self._expressions = RowExpressions([expr for expr, _ in memberships], types)
        self._slots: dict[Key, dict[int, None]] = {}

    def add(self, slot: int, parameters: ParameterTuple) -> None:
        for key in self._keys(parameters):
            self._slots.setdefault(key, {})[slot] = None

    def remove(self, slot: int, parameters: ParameterTuple) -> None:
        for key in self._keys(parameters):
            del self._slots[key][slot]
            if not self._slots[key]:
                del self._slots[key]

    def _keys(self, parameters: ParameterTuple) -> Any:
        return product(*(parameters[number] for number in self._numbers))

    def find(self, rows: EventRows, events: Indices) -> Pairs:
        values, found_events, found_slots = rows.values(self._expressions), list[int](), list[int]()
        for event in events.tolist():
            slots = self._slots.get(values[event])
            if slots is not None:
                found_events += [event] * len(slots)
                found_slots += slots
        self.examined += len(found_events)
        return np.array(found_events, np.int64), np.array(found_slots, np.int64)


class RangePath(AccessPath):
    """Finds the parameters that a value is compared with in their order."""

    def __init__(self, expr: mmpl.Expr, operator: str, number: int, types: Mapping[str, DataType]) -> None:
        self._operator, self._number = operator, number
        self._expressions = RowExpressions([expr], types)
        self._order: list[tuple[Any, int]] = []
        self._arrays: tuple[list[Any], Array] | None = None

    def add(self, slot: int, parameters: ParameterTuple) -> None:
        insort(self._order, (parameters[self._number], slot))
        self._arrays = None

    def remove(self, slot: int, parameters: ParameterTuple) -> None:
        del self._order[bisect_left(self._order, (parameters[self._number], slot))]
        self._arrays = None

    def find(self, rows: EventRows, events: Indices) -> Pairs:
        if self._arrays is None:
            values = [value for value, _ in self._order]
            self._arrays = values, np.array([slot for _, slot in self._order], np.int64)
        values, slots = self._arrays
        asked = rows.values(self._expressions)
        bisect = bisect_left if self._operator in (">", "<=") else bisect_right
        is_prefix = self._operator in (">", ">=")
        found_events, found_slots = list[int](), list[Array]()
        counts = list[int]()
        for event in events.tolist():
            (value,) = asked[event]
            if value is None:
                continue
            middle = bisect(values, value)
            part = slots[:middle] if is_prefix else slots[middle:]
            if len(part):
                found_events.append(event)
                found_slots.append(part)
                counts.append(len(part))
        self.examined += sum(counts)
        if not counts:
            return _NO_PAIRS
        return np.repeat(np.array(found_events, np.int64), counts), np.concatenate(found_slots)


class EveryPath(AccessPath):
    """All slots, for every event: of filters that have no better access path."""

    def __init__(self) -> None:
        self._slots: dict[int, None] = {}

    def add(self, slot: int, parameters: ParameterTuple) -> None:
        self._slots[slot] = None

    def remove(self, slot: int, parameters: ParameterTuple) -> None:
        del self._slots[slot]

    def find(self, rows: EventRows, events: Indices) -> Pairs:
        slots = np.array(list(self._slots), np.int64)
        self.examined += len(slots) * len(events)
        return np.repeat(events, len(slots)), np.tile(slots, len(events))


class TablePath(AccessPath):
    """A view with parameters: for the keys of an event, the slots of which the table has a row with these keys."""

    def __init__(self, test: TableTest, history: TableHistory, types: Mapping[str, DataType]) -> None:
        self._test, self.history = test, history
        self._asked = RowExpressions(test.event_keys, types)
        self._slots: dict[Key, dict[int, None]] = {}
        """By the values of the parameters."""
        self._view: dict[Key, _ViewEntry] = {}
        self._index = TableIndex(
            history, test.row_predicate, test.parameter_keys, test.row_keys, self._update, self._reset
        )

    def close(self) -> None:
        self.history.stop_observing(self._index)

    def add(self, slot: int, parameters: ParameterTuple) -> None:
        for key in self._keys(parameters):
            self._slots.setdefault(key, {})[slot] = None
            for asked, periods in self._index.find(key).items():
                if None not in asked:
                    self._view.setdefault(asked, _ViewEntry()).set(slot, key, periods)

    def remove(self, slot: int, parameters: ParameterTuple) -> None:
        for key in self._keys(parameters):
            del self._slots[key][slot]
            if not self._slots[key]:
                del self._slots[key]
            for asked in self._index.find(key):
                if None not in asked:
                    self._discard(asked, slot, key)

    def _keys(self, parameters: ParameterTuple) -> Any:
        return product(*(parameters[number] for number in self._test.parameters))

    def _update(self, key: Key, asked: Key, periods: Periods) -> None:
        if None in asked:
            return
        for slot in self._slots.get(key, ()):
            if periods.starts:
                self._view.setdefault(asked, _ViewEntry()).set(slot, key, periods)
            else:
                self._discard(asked, slot, key)

    def _discard(self, asked: Key, slot: int, key: Key) -> None:
        entry = self._view[asked]
        entry.discard(slot, key)
        if not entry.periods:
            del self._view[asked]

    def _reset(self) -> None:
        self._view = {}

    def find(self, rows: EventRows, events: Indices) -> Pairs:
        asked, by_key = rows.values(self._asked), dict[Key, list[int]]()
        for event in events.tolist():
            if asked[event] in self._view:
                by_key.setdefault(asked[event], []).append(event)
        self.examined += sum(len(self._view[key].periods) * len(chosen) for key, chosen in by_key.items())
        parts = [self._view[key].find(np.array(chosen), rows.ticks) for key, chosen in by_key.items()]
        if not parts:
            return _NO_PAIRS
        found_events = np.concatenate([part[0] for part in parts])
        found_slots = np.concatenate([part[1] for part in parts])
        order = np.argsort(found_events, kind="stable")
        return found_events[order], found_slots[order]


class _ViewEntry:
    """The periods of each slot, and of each of its parameter values that a row has."""

    __slots__ = ("_arrays", "periods")

    def __init__(self) -> None:
        self.periods: dict[tuple[int, Key], Periods] = {}
        self._arrays: tuple[Array, Array, Array, bool] | None = None

    def set(self, slot: int, key: Key, periods: Periods) -> None:
        self.periods[slot, key] = periods
        self._arrays = None

    def discard(self, slot: int, key: Key) -> None:
        del self.periods[slot, key]
        self._arrays = None

    def find(self, events: Indices, ticks: Array) -> Pairs:
        if self._arrays is None:
            found = [
                (slot, start, end)
                for (slot, _), periods in self.periods.items()
                for start, end in zip(periods.starts, periods.ends, strict=True)
            ]
            slots, starts, ends = (np.array(part, np.int64) for part in zip(*found, strict=True))
            self._arrays = slots, starts, ends, len(self.periods) > len({slot for slot, _ in self.periods})
        slots, starts, ends, has_repeats = self._arrays
        asked = ticks[events][:, None]
        event_numbers, entry_numbers = ((starts <= asked) & (asked < ends)).nonzero()
        found_events, found_slots = events[event_numbers], slots[entry_numbers]
        if has_repeats and len(found_events):
            pairs = np.unique(np.stack([found_events, found_slots], axis=1), axis=0)
            found_events, found_slots = pairs[:, 0], pairs[:, 1]
        return found_events, found_slots


_NO_PAIRS: Pairs = np.zeros(0, np.int64), np.zeros(0, np.int64)
