"""Accumulators: what is remembered of a group so that members can be taken out and put in without reading the others.

An accumulator is a few columns of its group's row, all zero or NULL while there are no members. What is shown of the
group follows from them and from whether the group is sealed, so that the row before a change need not be stored.
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
"""Members of some groups: the position of each one's group among those asked for, in order, and the members."""


@dataclass(frozen=True)
class GroupContext:
    """Groups, by their keys and the hashes of these, and the tables that remember more of them than a row."""

    key: Mapping[str, ValueColumn]
    key_hashes: Array
    tables: State
    find_members: Callable[["GroupContext", Indices], MemberRows]
    """Members of the groups with these numbers, as `tables` has them."""

    def __len__(self) -> int:
        return len(self.key_hashes)


@dataclass(frozen=True)
class AccumulatorUpdate:
    """The accumulators after a batch, and the tables that it changed."""

    rows: Mapping[str, ValueColumn]
    tables: State = field(default_factory=dict)


class Accumulator(ABC):
    """Of one aggregate. Its columns have names of its own."""

    columns: Mapping[str, pa.DataType]
    table_schemas: Mapping[str, TableSchema] = {}
    """Of tables that remember more, by names of its own; each has the column GROUP, by which it is indexed."""
    reads_members = False
    """Whether it may ask for a group's members."""

    @abstractmethod
    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        """`rows` are the groups' as they were, in the order of the batch's groups. Members are as they are now."""

    @abstractmethod
    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        """What is known of the aggregate; `sealed` None: no group is."""


GROUP_KEY_HASH = "#"
"""In tables beside that of the groups: the hash of the group's key, by which its rows are found, NULLs or not."""
