"""A group of filters that differ only in their constants. They are evaluated together."""

from collections.abc import Callable, Mapping

import numpy as np

from smile.algebra import mmpl, trees
from smile.algebra.types import BOOL, DataType
from smile.broker.subscriptions.matching.access_paths import (
    AccessPath,
    EveryPath,
    MembershipPath,
    Pairs,
    ParameterTuple,
    RangePath,
    TablePath,
)
from smile.broker.subscriptions.matching.event_rows import EventRows
from smile.broker.subscriptions.matching.filter_template import (
    FilterTemplate,
    TableTest,
    parameter_column,
    parameters_in,
)
from smile.broker.subscriptions.matching.row_expressions import RowPredicate, value_column
from smile.broker.subscriptions.matching.table_history import TableHistory
from smile.broker.subscriptions.matching.table_lookup import TableLookup
from smile.columns.values import Bools, Indices, true_indices

FindHistory = Callable[[str], TableHistory]


class FilterGroup:
    """Each tuple of parameters has a slot."""

    def __init__(self, template: FilterTemplate, types: Mapping[str, DataType], find_history: FindHistory) -> None:
        self._template = template
        self._slots: dict[ParameterTuple, int] = {}
        self._parameters: list[ParameterTuple] = []
        self._free: list[int] = []
        self._events_examined = 0
        self._predicate = None if template.predicate is None else RowPredicate(template.predicate, types)
        self._path, remaining_tests, remaining = _choose_path(template, types, find_history)
        lookups = [TableLookup(t, find_history(t.table), types, template.parameter_types) for t in remaining_tests]
        is_free = [not lookup.test.uses_parameters and lookup.test.kind != "match" for lookup in lookups]
        self._event_lookups = [lookup for lookup, free in zip(lookups, is_free, strict=True) if free]
        self._pair_lookups = [lookup for lookup, free in zip(lookups, is_free, strict=True) if not free]
        residual = trees.conjunction(remaining) if remaining else None
        results = {t.result: BOOL for t in template.tests if t.result is not None}
        self._residual: RowPredicate | None = None
        self._event_columns: frozenset[str] = frozenset()
        self._residual_parameters: list[int] = []
        if residual is not None:
            self._residual_parameters = parameters_in(residual)
            self._event_columns = trees.columns_in(residual) & frozenset(types)
            parameters = {parameter_column(n): template.parameter_types[n] for n in self._residual_parameters}
            events = {name: types[name] for name in self._event_columns}
            self._residual = RowPredicate(residual, {**events, **parameters, **results})

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def examined(self) -> int:
        """The events and the entries of the access path that were looked at."""
        return self._events_examined + self._path.examined

    def close(self) -> None:
        self._path.close()
        for lookup in (*self._event_lookups, *self._pair_lookups):
            lookup.close()

    def find(self, parameters: ParameterTuple) -> int | None:
        return self._slots.get(parameters)

    def add(self, parameters: ParameterTuple) -> int:
        """The slot of new parameters."""
        slot = self._free.pop() if self._free else len(self._parameters)
        self._parameters[slot : slot + 1] = [parameters]
        self._slots[parameters] = slot
        self._path.add(slot, parameters)
        return slot

    def remove(self, parameters: ParameterTuple) -> None:
        slot = self._slots.pop(parameters)
        self._free.append(slot)
        self._path.remove(slot, parameters)

    def match(self, rows: EventRows) -> Pairs:
        """The events and the slots of the filters that match them."""
        events: Indices = np.arange(len(rows))
        self._events_examined += len(events)
        if self._predicate is not None:
            events = true_indices(self._predicate.holds(rows.columns, len(rows)))
        for lookup in self._event_lookups:
            found = lookup.evaluate(rows, events, [()] * len(events))
            events = events[_passes(lookup.test, found.data, found.is_valid())]
        events, slots = self._path.find(rows, events)
        return self._check(rows, events, slots)

    def _check(self, rows: EventRows, events: Indices, slots: Indices) -> Pairs:
        """The pairs for which everything else holds, too."""
        results = {}
        for lookup in self._pair_lookups:
            parameters = [self._parameters[slot] for slot in slots.tolist()]
            found = lookup.evaluate(rows, events, parameters)
            if lookup.test.kind == "match":
                assert lookup.test.result is not None
                results[lookup.test.result] = found
                continue
            kept = true_indices(_passes(lookup.test, found.data, found.is_valid()))
            events, slots = events[kept], slots[kept]
            results = {name: column.take(kept) for name, column in results.items()}
        if self._residual is None or not len(events):
            return events, slots
        columns = {**rows.take(events, self._event_columns), **results}
        for number in self._residual_parameters:
            values = [self._parameters[slot][number] for slot in slots.tolist()]
            columns[parameter_column(number)] = value_column(values, self._template.parameter_types[number])
        kept = true_indices(self._residual.holds(columns, len(events)))
        return events[kept], slots[kept]


def _passes(test: TableTest, found: Bools, is_known: Bools) -> Bools:
    return found & is_known if test.kind == "semi" else ~found & is_known


def _choose_path(
    template: FilterTemplate, types: Mapping[str, DataType], find_history: FindHistory
) -> tuple[AccessPath, list[TableTest], list[mmpl.Expr]]:
    """The access path, and what it leaves to be checked: tests and predicates."""
    tests = list(template.tests)
    residual = [] if template.residual is None else trees.conjuncts(template.residual)
    ranges = [
        mmpl.Call(operator, (expr, mmpl.ColumnRef(parameter_column(number))))
        for expr, operator, number in template.ranges
    ]
    if template.memberships:
        return MembershipPath(template.memberships, types), tests, [*ranges, *residual]
    for test in tests:
        if test.kind == "semi" and test.parameters:
            checked = [other for other in tests if other is not test or test.when is not None]
            return TablePath(test, find_history(test.table), types), checked, [*ranges, *residual]
    if template.ranges:
        return RangePath(*template.ranges[0], types), tests, [*ranges[1:], *residual]
    return EveryPath(), tests, residual
