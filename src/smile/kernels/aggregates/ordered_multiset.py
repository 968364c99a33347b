"""The values of each group in their order, so that the value at a rank is found without reading the others.

A value has a code of 64 bits with the same order, written as 16 hexadecimal digits. The codes of a group are in
buckets. A bucket has all codes that begin with the same digits; if it gets too many, it is split by the next digit. A
node is a bucket, or one that was split. So a change touches at most 16 nodes of a group, and finding a rank reads at
most 16 rows below each of them. Buckets are never joined; what has no values is removed.

Each value has several counters, such as how many members have it now. A node has their sums.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.values import Array, Indices, ValueColumn, true_indices
from smile.kernels.aggregates.accumulator import GROUP_KEY_HASH, GroupContext
from smile.kernels.delta import RowGroups
from smile.kernels.row_encoding import stored_column
from smile.kernels.transform import State
from smile.state.row_lookup import RowLookup
from smile.state.run import TableRows, TableSchema
from smile.state.table import StateTable

BUCKET_VALUES_MAX = 16
"""A bucket with more values is split. With 15 digits in common, there are no more."""

_DIGITS, _BITS = 16, 4
_CODE, _DEPTH, _PREFIX, _PARENT, _DIGIT, _VALUES, _IS_SPLIT = (
    "code", "depth", "prefix", "parent", "digit", "values", "split",
)  # fmt: skip
_SIGN = np.uint64(1 << 63)

Tables = dict[str, StateTable]
"""The tables of a state, of which some are replaced."""


def order_codes(values: ValueColumn) -> Array:
    """Codes of valid values, which are integers of 64 bits or floats."""
    if values.data.dtype != np.float64:
        return np.asarray(values.data, np.int64).view(np.uint64) ^ _SIGN
    bits = (values.data + 0.0).view(np.uint64)  # zero has one sign
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def decode_order(codes: Array, is_float: bool) -> Array:
    if not is_float:
        return (codes ^ _SIGN).view(np.int64)
    return np.where(codes & _SIGN, codes ^ _SIGN, ~codes).view(np.float64)


class OrderedMultiset:
    """The tables of the values of all groups; `per` are the grouping columns."""

    def __init__(self, prefix: str, per: Mapping[str, pa.DataType], counters: tuple[str, ...]) -> None:
        self.per, self.counters = tuple(per), counters
        self.nodes, self.values = f"{prefix}nodes", f"{prefix}values"
        group = {GROUP_KEY_HASH: pa.int64(), **{stored_column(c): kind for c, kind in per.items()}}
        counts = dict.fromkeys(counters, pa.int64())
        node_key = {**group, **dict.fromkeys((_DEPTH, _PARENT, _DIGIT), pa.int64())}
        value_key = {**group, _CODE: pa.int64()}
        self.table_schemas = {
            self.nodes: TableSchema(
                tuple(node_key),
                {**node_key, _VALUES: pa.int64(), _IS_SPLIT: pa.bool_(), **counts},
                indexes=((GROUP_KEY_HASH,), (GROUP_KEY_HASH, _DEPTH, _PARENT)),
            ),
            self.values: TableSchema(
                tuple(value_key),
                {**value_key, **dict.fromkeys((_DEPTH, _PREFIX), pa.int64()), **counts},
                indexes=((GROUP_KEY_HASH,), (GROUP_KEY_HASH, _DEPTH, _PREFIX)),
            ),
        }

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, context: GroupContext, group_numbers: Indices, codes: Array, changes: Mapping[str, Array]) -> State:
        """The tables after these changes of the counters of values."""
        tables = {name: context.tables[name] for name in self.table_schemas}
        same = RowGroups([ValueColumn(group_numbers), ValueColumn(codes.view(np.int64))], len(codes))
        net = {name: same.sums(change) for name, change in changes.items()}
        changed = true_indices(np.logical_or.reduce([change != 0 for change in net.values()]))
        if not len(changed):
            return tables
        members = _Members(group_numbers, codes).take(same.first[changed])
        net = {name: change[changed] for name, change in net.items()}
        key = self._value_key(context, members)
        was_present, stored = tables[self.values].find(list(key.values()))
        after = {name: ValueColumn(stored[name].data + change) for name, change in net.items()}
        is_unused = ~np.logical_or.reduce([count.data > 0 for count in after.values()])
        net[_VALUES] = (~is_unused).astype(np.int64) - was_present
        depths, full = self._change_nodes(tables, context, members, net)
        rows = {**key, **_bucket(members, depths), **after}
        tables[self.values] = tables[self.values].with_rows(rows, is_unused)
        while full is not None:
            full = self._split(tables, context, *full)
        return tables

    def _change_nodes(
        self, tables: Tables, context: GroupContext, members: "_Members", net: Mapping[str, Array]
    ) -> tuple[Array, "_FullBuckets | None"]:
        """Adds changes of values to their buckets and to the nodes above. Returns the depth of each value's bucket, and
        the buckets that now have too many."""
        depths = np.zeros(len(members), np.int64)
        parts, full_parts = [], []
        rest, depth = np.arange(len(members)), 0
        while len(rest):
            part = members.take(rest)
            rows, groups, is_full = self._changed_nodes(
                tables, context, part, depth, {name: change[rest] for name, change in net.items()}
            )
            parts.append(rows)
            if is_full.any():
                full = groups.first[is_full]
                full_parts.append((part.take(full), np.full(len(full), depth)))
            depths[rest] = depth
            rest = rest[(_is_true(rows[_IS_SPLIT]) & ~is_full)[groups.group_numbers]]
            depth += 1
        self._store_nodes(tables, parts)
        return depths, _FullBuckets.concatenate(full_parts)

    def _changed_nodes(
        self, tables: Tables, context: GroupContext, members: "_Members", depth: int, net: Mapping[str, Array]
    ) -> tuple[dict[str, ValueColumn], RowGroups, Array]:
        """The nodes of one depth above these values, with their changes; the values by node; and which nodes are
        buckets that now have too many values."""
        groups = members.by_node(depth)
        key = self._node_key(context, members.take(groups.first), depth)
        _, stored = tables[self.nodes].find(list(key.values()))
        after = {name: ValueColumn(stored[name].data + groups.sums(change)) for name, change in net.items()}
        is_split = _is_true(stored[_IS_SPLIT])
        is_full = (after[_VALUES].data > BUCKET_VALUES_MAX) & ~is_split
        return {**key, **after, _IS_SPLIT: ValueColumn(is_split | is_full)}, groups, is_full

    def _store_nodes(self, tables: Tables, parts: "list[dict[str, ValueColumn]]") -> None:
        rows = {name: v.concat([part[name] for part in parts]) for name in parts[0]}
        tables[self.nodes] = tables[self.nodes].with_rows(rows, rows[_VALUES].data == 0)

    def _split(
        self, tables: Tables, context: GroupContext, buckets: "_Members", bucket_depths: Array
    ) -> "_FullBuckets | None":
        """Moves the values of these buckets into buckets of one more digit. Returns those that still have too many."""
        parts, full_parts = [], []
        for depth in np.unique(bucket_depths).tolist():
            at_depth = buckets.take(true_indices(bucket_depths == depth))
            asked, rows = self._match(tables[self.values], _PREFIX, context, at_depth, depth)
            members = _Members(at_depth.group_numbers[asked], rows[_CODE].data.view(np.uint64))
            counts = {name: rows[name] for name in self.counters}
            depths = np.full(len(members), depth + 1)
            moved = {**self._value_key(context, members), **_bucket(members, depths), **counts}
            tables[self.values] = tables[self.values].with_rows(moved)
            net = {_VALUES: np.ones(len(members), np.int64), **{name: c.data for name, c in counts.items()}}
            nodes, groups, is_full = self._changed_nodes(tables, context, members, depth + 1, net)
            parts.append(nodes)
            if is_full.any():
                full = groups.first[is_full]
                full_parts.append((members.take(full), np.full(len(full), depth + 1)))
        self._store_nodes(tables, parts)
        return _FullBuckets.concatenate(full_parts)

    # ── lookups ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def select(self, tables: State, context: GroupContext, group_numbers: Indices, ranks: Array, counter: str) -> Array:
        """The code at a rank, from 0, of the values of each group by a counter. The group must have that many."""
        codes, ranks = np.zeros(len(ranks), np.uint64), ranks.copy()
        wanted = _Members(group_numbers, codes)
        key = self._node_key(context, wanted, 0)
        is_split = _is_true(tables[self.nodes].find(list(key.values()))[1][_IS_SPLIT])
        rest, depth = np.arange(len(ranks)), 0
        while len(rest):
            bucket, rest = rest[~is_split], rest[is_split]
            if len(bucket):
                rows, at, _ = self._rows_at(
                    tables[self.values], context, wanted.take(bucket), depth, ranks[bucket], counter
                )
                codes[bucket] = rows[_CODE].data.view(np.uint64)[at]
            if len(rest):
                depth += 1
                above = wanted.take(rest)
                rows, at, ranks[rest] = self._rows_at(tables[self.nodes], context, above, depth, ranks[rest], counter)
                shift = np.uint64(_BITS * (_DIGITS - depth))
                codes[rest] |= rows[_DIGIT].data.view(np.uint64)[at] << shift
                is_split = _is_true(rows[_IS_SPLIT])[at]
        return codes

    def _rows_at(
        self, table: StateTable, context: GroupContext, wanted: "_Members", depth: int, ranks: Array, counter: str
    ) -> tuple[TableRows, Indices, Array]:
        """Some rows, the index of the row that has each rank below its node, and the rank within that row. In the table
        of nodes these are the nodes of this depth, in the table of values the values of its buckets."""
        is_nodes = _DIGIT in table.schema.columns
        above, order = (_PARENT, _DIGIT) if is_nodes else (_PREFIX, _CODE)
        by_node = wanted.by_node(depth - is_nodes)
        asked, rows = self._match(table, above, context, wanted.take(by_node.first), depth)
        row_order = np.lexsort((rows[order].data.view(np.uint64), asked))
        counts = rows[counter].data[row_order]
        ends = np.cumsum(counts)
        starts = ends - counts
        first = starts[np.searchsorted(asked[row_order], np.arange(by_node.count))][by_node.group_numbers]
        places = np.searchsorted(ends, first + ranks, side="right")
        return rows, row_order[places], first + ranks - starts[places]

    def _match(
        self, table: StateTable, above: str, context: GroupContext, nodes: "_Members", depth: int
    ) -> tuple[Indices, RowLookup]:
        """The rows below some nodes, in any order, and the index of the node of each: the nodes of this depth, or the
        values of buckets of this depth."""
        prefixes = nodes.prefixes(depth - (above == _PARENT)).view(np.int64)
        key_hashes = context.key_hashes.view(np.int64)[nodes.group_numbers]
        wanted = [ValueColumn(key_hashes), ValueColumn(np.full(len(nodes), depth)), ValueColumn(prefixes)]
        asked, rows = table.match((GROUP_KEY_HASH, _DEPTH, above), wanted, ordered=False)
        is_equal = np.ones(len(asked), bool)
        for name in self.per:
            is_equal &= rows[stored_column(name)].same(context.key[name].take(nodes.group_numbers[asked]))
        if is_equal.all():
            return asked, rows
        equal_rows = true_indices(is_equal)
        return asked[equal_rows], rows.take(equal_rows)

    # ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _value_key(self, context: GroupContext, members: "_Members") -> dict[str, ValueColumn]:
        return {**self._group_key(context, members), _CODE: ValueColumn(members.codes.view(np.int64))}

    def _node_key(self, context: GroupContext, members: "_Members", depth: int) -> dict[str, ValueColumn]:
        """The keys of the nodes of this depth above some codes."""
        prefixes = members.prefixes(depth).view(np.int64)
        return {
            **self._group_key(context, members),
            _DEPTH: ValueColumn(np.full(len(members), depth)),
            _PARENT: ValueColumn(prefixes >> _BITS),
            _DIGIT: ValueColumn(prefixes & (2**_BITS - 1)),
        }

    def _group_key(self, context: GroupContext, members: "_Members") -> dict[str, ValueColumn]:
        key = {stored_column(c): context.key[c].take(members.group_numbers) for c in self.per}
        return {GROUP_KEY_HASH: ValueColumn(context.key_hashes.view(np.int64)[members.group_numbers]), **key}


class _Members:
    """Codes, each of a group."""

    def __init__(self, group_numbers: Indices, codes: Array) -> None:
        self.group_numbers, self.codes = group_numbers, codes

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, indices: Indices) -> "_Members":
        return _Members(self.group_numbers[indices], self.codes[indices])

    def prefixes(self, depth: int) -> Array:
        """The first digits of each code, as a number. They are fewer than all."""
        return self.codes >> np.uint64(_BITS * (_DIGITS - depth)) if depth else np.zeros(len(self), np.uint64)

    def by_node(self, depth: int) -> RowGroups:
        """The codes by their node of this depth."""
        return RowGroups([ValueColumn(self.group_numbers), ValueColumn(self.prefixes(depth).view(np.int64))], len(self))


class _FullBuckets(NamedTuple):
    """Buckets with too many values, each as one of its codes and its depth."""

    members: _Members
    depths: Array

    @staticmethod
    def concatenate(parts: list[tuple[_Members, Array]]) -> "_FullBuckets | None":
        if not parts:
            return None
        group_numbers, codes = ([getattr(m, name) for m, _ in parts] for name in ("group_numbers", "codes"))
        members = _Members(np.concatenate(group_numbers), np.concatenate(codes))
        return _FullBuckets(members, np.concatenate([depths for _, depths in parts]))


def _bucket(members: _Members, depths: Array) -> dict[str, ValueColumn]:
    prefixes = np.zeros(len(members), np.uint64)
    for depth in np.unique(depths).tolist():
        at_depth = true_indices(depths == depth)
        prefixes[at_depth] = members.take(at_depth).prefixes(depth)
    return {_DEPTH: ValueColumn(depths), _PREFIX: ValueColumn(prefixes.view(np.int64))}


def _is_true(flags: ValueColumn) -> Array:
    return flags.data & flags.is_valid()
