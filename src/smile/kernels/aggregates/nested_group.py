"""GROUP: the members of a group as a nested relation in its row.

When a group changes, all its members are read, row by row. The output is proportional to the group, and so is the work.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.types import DataType
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn, ObjectColumn
from smile.columns.values import Bools
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.layout import Layout
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import Key, NestedRelation, NestedRow
from smile.state.run import TableRows


class NestedGroupAccumulator(Accumulator):
    """Has no columns: the output is computed from the stored members."""

    reads_members = True
    columns: Mapping[str, pa.DataType] = {}

    def __init__(self, collected_columns: tuple[str, ...], layout: Layout) -> None:
        self.collected_columns, self.layout = collected_columns, layout
        self.types: dict[str, DataType] = layout.types

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        return AccumulatorUpdate({})

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        count = len(context)
        collections: list[dict[Key, MaskedValue]] = [{} for _ in range(count)]
        group_numbers, fixed, knowledge = context.find_members(context, np.arange(count))
        for i, group in enumerate(group_numbers.tolist()):
            key = tuple(orderable_part(fixed[c].value_at(i, self.types[c])) for c in self.layout.key)
            cells = {
                c: k.knowledge_at(fixed[c] if c in self.layout.fixed else knowledge.columns[c], i, self.types[c])
                for c in self.collected_columns
            }
            collections[group][key] = MaskedValue(masks.decode_mask(int(knowledge.mask[i])), NestedRow(cells))
        nested = np.empty(count, object)
        for group, members in enumerate(collections):
            nested[group] = NestedRelation(members, sealed is not None and bool(sealed[group]))
        return ObjectColumn(nested)


def orderable_part(part: object) -> tuple[bool, object]:
    """A part of a key in a form that can be ordered with NULL; NULL comes last."""
    return part is None, False if part is None else part
