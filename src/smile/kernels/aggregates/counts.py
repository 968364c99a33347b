"""COUNT: the lower bound counts the members that are permanently shown.

The upper bound counts all possible members once the group is sealed; an open group has none.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, MemberDelta
from smile.state.run import TableRows


class AppendOnlyCount(Accumulator):
    """COUNT of members that never leave, with values that never change."""

    def __init__(self, prefix: str, argument: AggregateArgument | None) -> None:
        self.count_column, self.argument = f"{prefix}n", argument
        self.columns: Mapping[str, pa.DataType] = {self.count_column: pa.int64()}

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        is_new = member_delta.is_new_member(
            None if self.argument is None else self.argument.evaluate_fixed(member_delta.delta)
        )
        return AccumulatorUpdate(
            {
                self.count_column: ValueColumn(
                    rows[self.count_column].data + member_delta.groups.sums(is_new.astype(np.int64))
                )
            }
        )

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now = ValueColumn(rows[self.count_column].data)
        return RangeColumn(now, now, None if sealed is None else now if sealed.all() else ValueColumn(now.data, sealed))


class RetractableCount(Accumulator):
    """COUNT of members that may leave or change."""

    def __init__(self, prefix: str, argument: AggregateArgument | None) -> None:
        self.certain_column, self.possible_column, self.now_column = (
            f"{prefix}{part}" for part in ("sure", "most", "now")
        )
        self.argument = argument
        self.columns = dict.fromkeys((self.certain_column, self.possible_column, self.now_column), pa.int64())

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        old, new = member_delta.old_and_new_contributions(self.argument)
        changes = {
            self.certain_column: member_delta.count_changes(None if old is None else old.certain, new.certain),
            self.possible_column: member_delta.count_changes(None if old is None else old.possible, new.possible),
            self.now_column: member_delta.count_changes(
                None if old is None else old.now.is_valid(), new.now.is_valid()
            ),
        }
        return AccumulatorUpdate({name: ValueColumn(rows[name].data + change) for name, change in changes.items()})

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        certain, possible, now = (
            ValueColumn(rows[part].data) for part in (self.certain_column, self.possible_column, self.now_column)
        )
        return RangeColumn(now, certain, None if sealed is None else ValueColumn(possible.data, sealed))
