"""PERCENTILE_CONT and PERCENTILE_DISC, by the ordered values of each group.

A percentile lies among the values of its members. So its bounds are those of AVG: the least and the greatest value that
members may have, and those of the column's domain while the group is open.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.percentiles import value_between
from smile.algebra.types import INTERVAL
from smile.columns import values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.averages import within_domain
from smile.kernels.aggregates.contributions import AggregateArgument, Contributions, MemberDelta
from smile.kernels.aggregates.min_max import MemberBounds
from smile.kernels.aggregates.ordered_multiset import OrderedMultiset, decode_order, order_codes
from smile.kernels.transform import State
from smile.state.run import TableRows

_ALWAYS_NULL = 2


class PercentileLookup:
    """Finds the percentile of groups in a multiset of their values."""

    def __init__(self, aggregate: mmpl.Aggregate, argument: AggregateArgument, multiset: OrderedMultiset) -> None:
        self.is_continuous = aggregate.function == "percentile_cont"
        self.fraction, self.descending = aggregate.fraction, aggregate.descending
        self.data, self.multiset = argument.data, multiset

    def find(self, tables: State, context: GroupContext, counts: Array, counter: str) -> ValueColumn:
        """The percentile of each group, which has this count of values by a counter; NULL if it has none."""
        groups = true_indices(counts > 0)
        if not len(groups):
            return v.nulls(self.data, len(counts))
        first, second, proportions = self._positions(counts[groups])
        codes = self.multiset.select(
            tables, context, np.concatenate([groups, groups]), np.concatenate([first, second]), counter
        )
        values = decode_order(codes, self.data.name == "float")
        found = self._between(values[: len(groups)], values[len(groups) :], proportions)
        data = np.zeros(len(counts), values.dtype)
        data[groups] = found
        return ValueColumn(data, None if len(groups) == len(counts) else counts > 0)

    def _positions(self, counts: Array) -> tuple[Indices, Indices, Array]:
        """What `percentile_position` says of each count."""
        if self.is_continuous:
            positions = self.fraction * (counts - 1)
            first, second = np.floor(positions), np.ceil(positions)
            proportions = positions - first
        else:
            first = second = np.maximum(np.ceil(self.fraction * counts), 1) - 1
            proportions = np.zeros(len(counts))
        first, second = first.astype(np.int64), second.astype(np.int64)
        if self.descending:
            first, second = counts - 1 - first, counts - 1 - second
        return first, second, proportions

    def _between(self, first: Array, second: Array, proportions: Array) -> Array:
        if not self.is_continuous:
            return first
        if self.data == INTERVAL:
            parts = zip(first.tolist(), second.tolist(), proportions.tolist(), strict=True)
            return np.array([value_between(*part, INTERVAL) for part in parts], np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            distances = second - first
            inner = first + proportions * distances
        far = first * (1 - proportions) + second * proportions
        values = np.where(np.isinf(distances), far, inner)
        return np.clip(values, np.minimum(first, second), np.maximum(first, second)) + 0.0


class AppendOnlyPercentile(Accumulator):
    """A percentile of members that never leave, with values that never change."""

    def __init__(
        self, prefix: str, argument: AggregateArgument, aggregate: mmpl.Aggregate, per: Mapping[str, pa.DataType]
    ) -> None:
        self.argument = argument
        self.multiset = OrderedMultiset(prefix, per, ("n",))
        self.table_schemas = self.multiset.table_schemas
        self.lookup = PercentileLookup(aggregate, argument, self.multiset)
        self.count_column, self.now_column = f"{prefix}n", f"{prefix}now"
        self.columns: Mapping[str, pa.DataType] = {
            self.count_column: pa.int64(),
            self.now_column: arrow_type(argument.data),
        }

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        values = member_delta.new_member_values(self.argument)
        new_members = true_indices(values.is_valid())
        tables: State = {name: context.tables[name] for name in self.table_schemas}
        if len(new_members):
            group_numbers = member_delta.groups.group_numbers[new_members]
            ones = np.ones(len(new_members), np.int64)
            tables = self.multiset.add(context, group_numbers, order_codes(values.take(new_members)), {"n": ones})
        counts = rows[self.count_column].data + member_delta.groups.sums(values.is_valid().astype(np.int64))
        now = self.lookup.find(tables, context, counts, "n")
        return AccumulatorUpdate({self.count_column: ValueColumn(counts), self.now_column: now}, tables)

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        domain, data = self.argument.domain, self.argument.data
        count = len(rows[self.count_column])
        lo, hi = (None if end is None else v.constant(end, data, count) for end in (domain.lo, domain.hi))
        return within_domain(rows[self.now_column], rows[self.count_column].data > 0, sealed, lo, hi)


class RetractablePercentile(Accumulator):
    """A percentile of members that may leave or change: the bounds of all possible values, and the values that members
    have now. A member is settled if it is permanently shown and its value is final; the percentile is final if all
    are."""

    reads_members = True

    def __init__(
        self, prefix: str, argument: AggregateArgument, aggregate: mmpl.Aggregate, per: Mapping[str, pa.DataType]
    ) -> None:
        self.argument = argument
        self.bounds = MemberBounds(prefix, argument)
        self.multiset = OrderedMultiset(prefix, per, ("now", "settled"))
        self.table_schemas = self.multiset.table_schemas
        self.lookup = PercentileLookup(aggregate, argument, self.multiset)
        self.count_column, self.unsettled_column, self.now_column = (f"{prefix}{p}" for p in ("n", "unsettled", "now"))
        counts = dict.fromkeys((self.count_column, self.unsettled_column), pa.int64())
        self.columns = {**self.bounds.columns, **counts, self.now_column: arrow_type(argument.data)}

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        old, new = member_delta.old_and_new_contributions(self.argument)
        columns = self.bounds.absorb(rows, member_delta, old, new, context)
        unsettled = member_delta.count_changes(None if old is None else old.is_unsettled, new.is_unsettled)
        shown = member_delta.count_changes(None if old is None else old.now.is_valid(), new.now.is_valid())
        columns[self.unsettled_column] = ValueColumn(rows[self.unsettled_column].data + unsettled)
        counts = rows[self.count_column].data + shown
        columns[self.count_column] = ValueColumn(counts)
        tables = self._change_values(member_delta.groups.group_numbers, old, new, context)
        columns[self.now_column] = self.lookup.find(tables, context, counts, "now")
        return AccumulatorUpdate(columns, tables)

    def _change_values(
        self, group_numbers: Indices, old: Contributions | None, new: Contributions, context: GroupContext
    ) -> State:
        groups, codes, changes = [], [], []
        for contributions, sign in ((new, 1), (old, -1)):
            if contributions is None:
                continue
            for number, values in enumerate((contributions.now, contributions.settled_values)):
                valid = true_indices(values.is_valid())
                groups.append(group_numbers[valid])
                codes.append(order_codes(values.take(valid)))
                changes.append([np.full(len(valid), sign * (number == counter)) for counter in range(2)])
        now, settled = (np.concatenate(c) for c in zip(*changes, strict=True))
        return self.multiset.add(
            context, np.concatenate(groups), np.concatenate(codes), {"now": now, "settled": settled}
        )

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now = rows[self.now_column]
        lo, hi = self.bounds.ends(rows, sealed)
        null_codes = self.bounds.null_codes(rows, sealed).data
        is_final = (rows[self.unsettled_column].data == 0) & (False if sealed is None else sealed)
        if is_final.any():
            counts = np.where(is_final, rows[self.bounds.possible_column].data, 0)
            final = self.lookup.find(context.tables, context, counts, "settled")
            lo, hi, now = (v.where(is_final, final, values) for values in (lo, hi, now))
            null_codes = np.where(is_final, np.where(final.is_valid(), 0, _ALWAYS_NULL), null_codes).astype(np.uint8)
        return RangeColumn(now, lo, hi, null_codes)
