"""Stores the members of groups, for aggregates that must read them again; they are found by their group.

All members that can still be shown are stored. A permanently hidden member is stored only for GROUP, whose nested
relation distinguishes it from an absent one.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl, trees
from smile.columns import masks
from smile.columns.values import Array, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import GROUP_KEY_HASH, GroupContext, MemberRows
from smile.kernels.delta import Delta
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

MEMBERS = "members"


class MemberStore:
    """The table of members. `layout` has only the columns that are read again; `includes_hidden`: permanently hidden
    members are stored too."""

    def __init__(self, layout: Layout, per: tuple[str, ...], needed: Iterable[str], includes_hidden: bool) -> None:
        stored_columns = {*layout.key, *per, *needed}
        self.layout = Layout(
            layout.key,
            {c: t for c, t in layout.fixed.items() if c in stored_columns},
            {c: e for c, e in layout.evolving.items() if c in stored_columns},
        )
        self.per, self.includes_hidden = per, includes_hidden
        columns = {GROUP_KEY_HASH: pa.int64(), **table_columns(self.layout)}
        self.table_schema = TableSchema(tuple(map(stored_column, layout.key)), columns, indexes=((GROUP_KEY_HASH,),))

    def update(self, table: StateTable, delta: Delta, key_hashes: Array) -> StateTable:
        """The table after a batch; `key_hashes` has the hash of each member's group key."""
        keep = masks.is_present(delta.new.mask) if self.includes_hidden else masks.can_be_shown(delta.new.mask)
        if delta.old is None and not keep.all():
            rows_to_store = np.flatnonzero(keep)
            delta, key_hashes, keep = delta.take(rows_to_store), key_hashes[rows_to_store], keep[rows_to_store]
        if not len(delta):
            return table
        rows = {
            GROUP_KEY_HASH: ValueColumn(key_hashes.view(np.int64)),
            **encode_rows(self.layout, delta.fixed, delta.new),
        }
        return table.with_rows(rows, None if keep.all() else ~keep)

    def find_members(self, context: GroupContext, numbers: Indices) -> MemberRows:
        key = {c: context.key[c].take(numbers) for c in self.per}
        group_numbers, rows = match_group_rows(context.tables[MEMBERS], context.key_hashes[numbers], key)
        return group_numbers, decode_fixed(self.layout, rows), decode_knowledge(self.layout, rows)


def match_group_rows(table: StateTable, key_hashes: Array, key: Mapping[str, ValueColumn]) -> tuple[Indices, RowLookup]:
    """The rows of some groups in a table with the column GROUP_KEY_HASH and the grouping columns: for each row the
    position of its group, and the row."""
    group_numbers, rows = table.match((GROUP_KEY_HASH,), [ValueColumn(key_hashes.view(np.int64))])
    if not len(group_numbers):
        return group_numbers, rows
    equal = np.ones(len(group_numbers), bool)
    for name, column in key.items():
        equal &= rows[stored_column(name)].same(column.take(group_numbers))
    if not equal.all():
        equal_rows = np.flatnonzero(equal)
        group_numbers, rows = group_numbers[equal_rows], rows.take(equal_rows)
    return group_numbers, rows


def remove_groups(table: StateTable, key_hashes: Array, key: Mapping[str, ValueColumn]) -> StateTable:
    """The table without the rows of these groups."""
    group_numbers, rows = match_group_rows(table, key_hashes, key)
    return table.with_rows(rows, np.ones(len(group_numbers), bool)) if len(group_numbers) else table


def member_columns(aggregates: Iterable[mmpl.Aggregate], tick: tuple[str, ...]) -> set[str]:
    """The columns of members that these aggregates read."""
    columns: set[str] = set()
    for aggregate in aggregates:
        columns |= {*aggregate.columns, *(tick if aggregate.function in ("latest", "earliest") else ())}
        columns |= set(trees.columns_in(aggregate.arg)) if aggregate.arg is not None else set()
    return columns
