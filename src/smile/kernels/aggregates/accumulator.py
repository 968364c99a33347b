"""Accumulators: the state of one aggregate in one group. Members can be added to it and removed from it.

An accumulator is a few columns of its group's row. All of them are zero or NULL while the group has no members. The
output of the aggregate follows from these columns and from whether the group is sealed, so the previous output is never
stored. Some accumulators need more: tables of their own, or the members of the group.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.delta import RowKnowledge
from smile.kernels.transform import State
from smile.state.run import TableRows, TableSchema

MemberRows = tuple[Indices, Mapping[str, ValueColumn], RowKnowledge]
"""Members of the requested groups: for each member the position of its group in the request (ascending), then the fixed
columns and the knowledge of the members."""


@dataclass(frozen=True)
class GroupContext:
    """Some groups: their keys, the hashes of the keys, and the state tables of the operator."""

    key: Mapping[str, ValueColumn]
    key_hashes: Array
    tables: State
    find_members: Callable[["GroupContext", Indices], MemberRows]
    """Reads the members of the groups with these numbers from `tables`."""

    def __len__(self) -> int:
        return len(self.key_hashes)


@dataclass(frozen=True)
class AccumulatorUpdate:
    """The columns of an accumulator after a batch, and the tables that changed."""

    rows: Mapping[str, ValueColumn]
    tables: State = field(default_factory=dict)


class Accumulator(ABC):
    """The accumulator of one aggregate. No other accumulator of the operator uses its column names."""

    columns: Mapping[str, pa.DataType]
    table_schemas: Mapping[str, TableSchema] = {}
    """Tables of its own, by unique names. Each has the column GROUP_KEY_HASH and an index on it."""
    reads_members = False
    """Whether it may call `GroupContext.find_members`."""
    passed_column: str | None = None
    """The column with a value of a member. Once no new member can have a lower value, new members cannot affect the
    aggregate."""

    @abstractmethod
    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        """Applies a batch. `rows` are the stored rows of its groups before the batch, in the order of the batch's
        groups; `context` finds the members as they are after the batch."""

    @abstractmethod
    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        """The knowledge of the aggregate in each group. `sealed` is None if no group is sealed."""


GROUP_KEY_HASH = "#"
"""Column of the tables beside the table of groups: the hash of the group's key. Unlike the key itself, it also finds
rows whose key contains NULL."""
