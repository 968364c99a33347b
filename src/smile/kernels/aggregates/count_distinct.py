"""COUNT(DISTINCT), by a table of the values of each group.

Values that are not final may all turn out to equal a value that is counted already, or all to differ. A table beside
the table of groups holds the values of each group, with the number of members that have each value. A change reads only
the values that it concerns.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.columns import values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import GROUP_KEY_HASH, Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, Contributions, MemberDelta
from smile.kernels.delta import RowGroups
from smile.kernels.row_encoding import stored_column
from smile.state.run import TableRows, TableSchema

_VALUE_COLUMN = "value"


def _key_columns(per: Mapping[str, pa.DataType], argument: AggregateArgument) -> dict[str, pa.DataType]:
    """The key of the table of values: the group and the value."""
    return {
        GROUP_KEY_HASH: pa.int64(),
        **{stored_column(c): kind for c, kind in per.items()},
        _VALUE_COLUMN: arrow_type(argument.data),
    }


class AppendOnlyCountDistinct(Accumulator):
    """COUNT(DISTINCT) of members that never leave, with values that never change: a value, once counted, stays."""

    def __init__(self, prefix: str, argument: AggregateArgument, per: Mapping[str, pa.DataType]) -> None:
        self.argument, self.per = argument, tuple(per)
        self.count_column, self.table = f"{prefix}n", f"{prefix}values"
        self.columns: Mapping[str, pa.DataType] = {self.count_column: pa.int64()}
        key = _key_columns(per, argument)
        self.table_schemas = {self.table: TableSchema(tuple(key), key, indexes=((GROUP_KEY_HASH,),))}

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        values, table = self.argument.evaluate_fixed(member_delta.delta), context.tables[self.table]
        new_members = np.flatnonzero(member_delta.is_new_member(values))
        if not len(new_members):
            return AccumulatorUpdate({self.count_column: ValueColumn(rows[self.count_column].data)})
        member_values, group_numbers = (
            ValueColumn(values.take(new_members).data),
            member_delta.groups.group_numbers[new_members],
        )
        group_values = RowGroups([ValueColumn(group_numbers), member_values], len(new_members))
        member_values, group_numbers = member_values.take(group_values.first), group_numbers[group_values.first]
        hashes = context.key_hashes.view(np.int64)
        key = [
            ValueColumn(hashes[group_numbers]),
            *(context.key[c].take(group_numbers) for c in self.per),
            member_values,
        ]
        new_values = np.flatnonzero(~table.find(key)[0])
        named = zip(self.table_schemas[self.table].key, key, strict=True)
        table = table.with_rows({name: column.take(new_values) for name, column in named})
        counts = rows[self.count_column].data + np.bincount(group_numbers[new_values], minlength=len(context))
        return AccumulatorUpdate({self.count_column: ValueColumn(counts)}, {self.table: table})

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now = ValueColumn(rows[self.count_column].data)
        return RangeColumn(now, now, _upper_bounds(now.data, sealed, self.argument.values_max))


class RetractableCountDistinct(Accumulator):
    """COUNT(DISTINCT) of members that may leave or change. Three counters for each value: the members that certainly
    have it, that possibly have it (with a final value), and that have it now."""

    def __init__(self, prefix: str, argument: AggregateArgument, per: Mapping[str, pa.DataType]) -> None:
        self.argument, self.per = argument, tuple(per)
        self.certain_column, self.exact_column, self.now_column = (
            f"{prefix}{part}" for part in ("sure", "exact", "now")
        )
        self.certain_members_column, self.inexact_members_column = f"{prefix}any", f"{prefix}others"
        names = (
            self.certain_column,
            self.exact_column,
            self.now_column,
            self.certain_members_column,
            self.inexact_members_column,
        )
        self.columns: Mapping[str, pa.DataType] = dict.fromkeys(names, pa.int64())
        self.table = f"{prefix}values"
        key = _key_columns(per, argument)
        self.value_counters = ("sure", "exact", "now")
        self.table_schemas = {
            self.table: TableSchema(
                tuple(key), {**key, **dict.fromkeys(self.value_counters, pa.int64())}, indexes=((GROUP_KEY_HASH,),)
            )
        }

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        old, new = member_delta.old_and_new_contributions(self.argument)
        value_changes = _ValueCountChanges(member_delta.groups.group_numbers)
        value_changes.add(new, 1)
        if old is not None:
            value_changes.add(old, -1)
        member_changes = {
            self.certain_members_column: member_delta.count_changes(None if old is None else old.certain, new.certain),
            self.inexact_members_column: member_delta.count_changes(
                None if old is None else _is_inexact(old), _is_inexact(new)
            ),
        }
        result = {name: ValueColumn(rows[name].data + change) for name, change in member_changes.items()}
        table = context.tables[self.table]
        net_changes = value_changes.net()
        totals: dict[str, Array] = {name: np.zeros(len(context), np.int64) for name in self.value_counters}
        if net_changes is not None:
            group_numbers, value, counter_changes = net_changes
            key = [
                ValueColumn(context.key_hashes.view(np.int64)[group_numbers]),
                *(context.key[c].take(group_numbers) for c in self.per),
                value,
            ]
            _, stored = table.find(key)
            after = {}
            for name, change in zip(self.value_counters, counter_changes, strict=True):
                before = stored[name].data
                after[name] = before + change
                presence_changes = (after[name] > 0).astype(np.int64) - (before > 0)
                np.add.at(totals[name], group_numbers, presence_changes)
            is_unused = ~np.logical_or.reduce([c > 0 for c in after.values()])
            names = self.table_schemas[self.table].key
            stored_rows = {**dict(zip(names, key, strict=True)), **{n: ValueColumn(c) for n, c in after.items()}}
            table = table.with_rows(stored_rows, is_unused)
        for name, column in zip(
            self.value_counters, (self.certain_column, self.exact_column, self.now_column), strict=True
        ):
            result[column] = ValueColumn(rows[column].data + totals[name])
        return AccumulatorUpdate(result, {self.table: table})

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        least = np.maximum(rows[self.certain_column].data, rows[self.certain_members_column].data > 0)
        most = _upper_bounds(
            rows[self.exact_column].data + rows[self.inexact_members_column].data, sealed, self.argument.values_max
        )
        return RangeColumn(ValueColumn(rows[self.now_column].data), ValueColumn(least), most)


def _upper_bounds(possible: Array, sealed: Bools | None, values_max: int | None) -> ValueColumn | None:
    """The number of possible values in sealed groups; in open groups, that of the whole domain, if it has few."""
    if values_max is None:
        return None if sealed is None else ValueColumn(possible, sealed)
    bounds = np.minimum(possible, values_max)
    return ValueColumn(np.full(len(possible), values_max) if sealed is None else np.where(sealed, bounds, values_max))


def _is_inexact(contributions: Contributions) -> Bools:
    return contributions.possible & ~contributions.is_final


class _ValueCountChanges:
    """Collects changes of the counters of values; `net` adds them up for each group and value."""

    def __init__(self, group_numbers: Indices) -> None:
        self.group_numbers = group_numbers
        self.groups: list[Indices] = []
        self.values: list[ValueColumn] = []
        self.changes: list[tuple[Array, Array, Array]] = []

    def add(self, contributions: Contributions, sign: int) -> None:
        exact = np.flatnonzero(contributions.possible & contributions.is_final)
        if contributions.lo is not None and len(exact):
            certain = contributions.certain[exact].astype(np.int64) * sign
            self._add(exact, contributions.lo, (certain, np.full(len(exact), sign), np.zeros(len(exact), np.int64)))
        now = np.flatnonzero(contributions.now.is_valid())
        if len(now):
            zeros = np.zeros(len(now), np.int64)
            self._add(now, contributions.now, (zeros, zeros, np.full(len(now), sign)))

    def _add(self, indices: Indices, values: ValueColumn, changes: tuple[Array, Array, Array]) -> None:
        self.groups.append(self.group_numbers[indices])
        self.values.append(ValueColumn(values.take(indices).data))
        self.changes.append(changes)

    def net(self) -> tuple[Indices, ValueColumn, list[Array]] | None:
        if not self.groups:
            return None
        group_numbers, value = np.concatenate(self.groups), v.concat(self.values)
        groups = RowGroups([ValueColumn(group_numbers), value], len(group_numbers))
        changes = [groups.sums(np.concatenate(c)) for c in zip(*self.changes, strict=True)]
        return group_numbers[groups.first], value.take(groups.first), changes
