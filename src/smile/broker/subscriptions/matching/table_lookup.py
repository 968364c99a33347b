"""Evaluates a test of a table for pairs of an event and a tuple of parameters."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from smile.algebra import mmpl, trees
from smile.algebra.types import DataType
from smile.broker.subscriptions.matching.event_rows import EventRows
from smile.broker.subscriptions.matching.filter_template import (
    Parameter,
    TableTest,
    parameter_column,
    parameters_in,
    row_column,
)
from smile.broker.subscriptions.matching.row_expressions import RowExpressions, RowPredicate, RowValue, value_column
from smile.broker.subscriptions.matching.table_history import TableHistory
from smile.broker.subscriptions.matching.table_index import Entries, TableIndex
from smile.columns.values import Bools, Indices, ValueColumn

ParameterTuple = tuple[Parameter, ...]


class TableLookup:
    """Rows are found by their keys. The entries of a key are the compared value, if there is one, and the columns that
    `when` uses."""

    def __init__(
        self,
        test: TableTest,
        history: TableHistory,
        event_types: Mapping[str, DataType],
        parameter_types: Sequence[DataType],
    ) -> None:
        self.test, self._parameter_types = test, parameter_types
        self._event_types = event_types
        row_types = {row_column(name): data for name, data in history.types.items()}
        when_columns = () if test.when is None else trees.columns_in(test.when)
        self._when_rows = sorted(name for name in when_columns if name in row_types)
        self._when_parameters = [] if test.when is None else parameters_in(test.when)
        self._when_events = frozenset(name for name in when_columns if name in event_types)
        self._row_types = row_types
        parameters = {parameter_column(n): parameter_types[n] for n in self._when_parameters}
        events = {name: event_types[name] for name in self._when_events}
        rows = {name: row_types[name] for name in self._when_rows}
        self._when = None if test.when is None else RowPredicate(test.when, {**events, **rows, **parameters})
        compared = () if test.compared is None else (test.compared[1],)
        key = (*test.row_keys, *test.parameter_keys)
        entry = (*compared, *(mmpl.ColumnRef(name) for name in self._when_rows))
        self._index = TableIndex(history, test.row_predicate, key, entry)
        asked = (*test.event_keys, *(() if test.compared is None else (test.compared[0],)))
        self._asked = RowExpressions(asked, event_types)
        self.history = history

    def close(self) -> None:
        self.history.stop_observing(self._index)

    def evaluate(self, rows: EventRows, events: Indices, parameters: Sequence[ParameterTuple]) -> ValueColumn:
        """For each pair of an event (its number) and parameters, whether the table has a row, as of the event's tick.
        NULL if it is unknown, as for IN."""
        asked, ticks, count = rows.values(self._asked), rows.ticks.tolist(), len(events)
        found, unknown = np.zeros(count, bool), np.zeros(count, bool)
        candidates = _Candidates()
        key_length = len(self.test.event_keys)
        for pair, event in enumerate(events.tolist()):
            key, value = asked[event][:key_length], asked[event][key_length:]
            if None in key:
                continue
            tick = ticks[event]
            for entries in self._entries(key, parameters[pair]):
                self._examine(entries, value, tick, pair, found, unknown, candidates)
        if self._when is not None and candidates.pairs:
            self._check_candidates(rows, events, parameters, candidates, found, unknown)
        return ValueColumn(found, ~unknown | found)

    def _entries(self, key: tuple[RowValue, ...], parameters: ParameterTuple) -> Iterator[Entries]:
        sets: list[Any] = [parameters[number] for number in self.test.parameters]
        return (self._index.find((*key, *values)) for values in product(*sets))

    def _examine(
        self,
        entries: Entries,
        value: tuple[RowValue, ...],
        tick: int,
        pair: int,
        found: Bools,
        unknown: Bools,
        candidates: "_Candidates",
    ) -> None:
        if self._when is None and self.test.compared is not None and value != (None,):
            periods, nulls = entries.get(value), entries.get((None,))
            if periods is not None and periods.contain(tick):
                found[pair] = True
            elif nulls is not None and nulls.contain(tick):
                unknown[pair] = True
            return
        for entry, periods in entries.items():
            if not periods.contain(tick):
                continue
            is_unknown = self.test.compared is not None and (value == (None,) or entry[0] is None)
            if self.test.compared is not None and not is_unknown and entry[:1] != value:
                continue
            if self._when is not None:
                candidates.add(pair, entry[len(value) if self.test.compared is not None else 0 :], is_unknown)
            elif is_unknown:
                unknown[pair] = True
                return
            else:
                found[pair] = True
                return

    def _check_candidates(
        self,
        rows: EventRows,
        events: Indices,
        parameters: Sequence[ParameterTuple],
        candidates: "_Candidates",
        found: Bools,
        unknown: Bools,
    ) -> None:
        assert self._when is not None
        pairs = np.array(candidates.pairs)
        columns = rows.take(events[pairs], self._when_events)
        for n, name in enumerate(self._when_rows):
            columns[name] = value_column([entry[n] for entry in candidates.entries], self._row_types[name])
        for number in self._when_parameters:
            values = [parameters[pair][number] for pair in candidates.pairs]
            columns[parameter_column(number)] = value_column(values, self._parameter_types[number])
        holds = self._when.holds(columns, len(pairs))
        is_unknown = np.array(candidates.is_unknown)
        found[pairs[holds & ~is_unknown]] = True
        unknown[pairs[holds & is_unknown]] = True


class _Candidates:
    """Rows for which `when` is to be evaluated: for which pair, and whether the result is then unknown."""

    def __init__(self) -> None:
        self.pairs: list[int] = []
        self.entries: list[tuple[RowValue, ...]] = []
        self.is_unknown: list[bool] = []

    def add(self, pair: int, entry: tuple[RowValue, ...], is_unknown: bool) -> None:
        self.pairs.append(pair)
        self.entries.append(entry)
        self.is_unknown.append(is_unknown)
