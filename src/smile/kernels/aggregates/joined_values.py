"""STRING_AGG and ARRAY_CONCAT_AGG: the texts of a group in one string, or the elements of its arrays in one array, in
the order of columns and of the key.

When a group changes, all its members are read. The output is proportional to the group, and so is the work. The result
is exact once the group is sealed and its members can neither leave nor change; nothing is known of it before.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import STRING
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Bools, Indices, ValueColumn, ranks, true_indices
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, MemberDelta
from smile.kernels.layout import Layout
from smile.state.run import TableRows

_NEVER_NULL, _MAYBE_NULL, _ALWAYS_NULL = 0, 1, 2


class JoiningAccumulator(Accumulator):
    """Has no columns: the output is computed from the stored members."""

    reads_members = True
    columns: Mapping[str, pa.DataType] = {}

    def __init__(self, aggregate: mmpl.Aggregate, argument: AggregateArgument, layout: Layout) -> None:
        self.aggregate, self.argument, self.layout = aggregate, argument, layout

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        return AccumulatorUpdate({})

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        count = len(context)
        group_numbers, fixed, knowledge = context.find_members(context, np.arange(count))
        contributions = self.argument.contributions(fixed, knowledge)
        order = [fixed[c] if c in self.layout.fixed else knowledge.columns[c] for c in self.aggregate.columns]
        is_settled = contributions.certain & contributions.is_final
        for column in order:
            is_settled = is_settled & k.is_final(column)
        has_certain, has_possible, has_unsettled = (
            np.bincount(group_numbers[members], minlength=count) > 0
            for members in (contributions.certain, contributions.possible, contributions.possible & ~is_settled)
        )
        key = [fixed[c] for c in self.layout.key]
        now = self._join(group_numbers, contributions.now, order, key, count)
        is_sealed = np.zeros(count, bool) if sealed is None else sealed
        is_final = is_sealed & ~has_unsettled
        bounds = v.nulls(self.argument.data, count)
        if is_final.any() and contributions.lo is not None:
            settled = ValueColumn(contributions.lo.data, contributions.possible & is_settled)
            bounds = v.where(is_final, self._join(group_numbers, settled, order, key, count), bounds)
            now = v.where(is_final, bounds, now)
        null_codes = np.where(has_certain, _NEVER_NULL, _MAYBE_NULL)
        null_codes[is_sealed & ~has_possible] = _ALWAYS_NULL
        return RangeColumn(now, bounds, bounds, null_codes.astype(np.uint8))

    def _join(
        self,
        group_numbers: Indices,
        texts: ValueColumn,
        order: list[KnowledgeColumn],
        key: list[ValueColumn],
        count: int,
    ) -> ValueColumn:
        """The valid texts of each group in one string, or arrays in one array; NULL if there is none."""
        members = true_indices(texts.is_valid())
        texts = texts.take(members)
        if self.aggregate.distinct:
            by = [_sort_ranks(ValueColumn(texts.data), self.aggregate.descending)]
        else:
            columns = zip(order, self.aggregate.directions, strict=True)
            by = [_sort_ranks(k.current_values(c).take(members), descending) for c, descending in columns]
            by += [_sort_ranks(c.take(members), False) for c in key]
        group_numbers = group_numbers[members]
        positions = np.lexsort((*reversed(by), group_numbers))
        parts: list[list[Any]] = [[] for _ in range(count)]
        words = texts.take(positions).data.to_pylist()
        for group, word in zip(group_numbers[positions].tolist(), words, strict=True):
            part = parts[group]
            if not (self.aggregate.distinct and part and part[-1] == word):
                part.append(word)
        separator: Any = self.aggregate.separator if self.argument.data == STRING else b""
        return v.from_python([separator.join(part) if part else None for part in parts], self.argument.data)


def _sort_ranks(values: ValueColumn, descending: bool) -> Indices:
    """NULLs come last, and first in descending order, as in PostgreSQL."""
    by = ranks(values)
    return ~by if descending else by
