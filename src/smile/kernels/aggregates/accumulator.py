"""Accumulators: what is remembered of a group so that members can be taken out and put in without reading the others.

An accumulator is a few columns of its group's row, all zero or NULL while there are no members. What is shown of the
group follows from them and from whether the group is sealed, so that the row before a change need not be stored.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from smile.columns.knowledge import Column
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.aggregates.parts import Batch
from smile.kernels.changes import Version
from smile.kernels.transform import State
from smile.state.run import Rows, Shape

Found = tuple[Indices, Mapping[str, Values], Version]
"""Members of some groups: the position of each one's group among those asked for, in order, and the members."""


@dataclass(frozen=True)
class Place:
    """Groups, by their keys and the hashes of these, and the tables that remember more of them than a row."""

    key: Mapping[str, Values]
    marks: Array
    tables: State
    members: Callable[["Place", Indices], Found]
    """Members of the groups with these numbers, as `tables` has them."""

    def __len__(self) -> int:
        return len(self.marks)


@dataclass(frozen=True)
class Absorbed:
    """The accumulators after a batch, and the tables that it changed."""

    rows: Mapping[str, Values]
    tables: State = field(default_factory=dict)


class Accumulator(ABC):
    """Of one aggregate. Its columns have names of its own."""

    columns: Mapping[str, pa.DataType]
    shapes: Mapping[str, Shape] = {}
    """Of tables that remember more, by names of its own; each has the column GROUP, by which it is indexed."""
    reads_members = False
    """Whether it may ask for a group's members."""

    @abstractmethod
    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        """`rows` are the groups' as they were, in the order of the batch's groups. Members are as they are now."""

    @abstractmethod
    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        """What is known of the aggregate; `sealed` None: no group is."""


GROUP = "#"
"""In tables beside that of the groups: the hash of the group's key, by which its rows are found, NULLs or not."""
