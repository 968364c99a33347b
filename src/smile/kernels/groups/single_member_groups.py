"""Groups whose key determines their only member, so that the row of a group depends only on that member.

There is no state. A group is sealed as soon as its member is present.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, drop_unchanged_rows
from smile.kernels.groups.summarize import AggregateGrouping
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import State, Transform


class SingleMemberGroups(Transform):
    def __init__(self, grouping: AggregateGrouping) -> None:
        self.grouping, self.layout = grouping, grouping.layout
        type_ = grouping.output.type
        self.seals = Seals(type_.seals, type_.heading.columns)

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        is_sealed = self.seals.is_sealed(horizons, key, count)
        return Delta(key, None, self.grouping.default_knowledge(key, count, is_sealed if is_sealed.any() else None))

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return False

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        (delta,) = inputs
        if delta is None or not len(delta):
            return state, None
        per = self.grouping.per
        groups = RowGroups([delta.fixed[c] for c in per], len(delta))
        key = {c: delta.fixed[c].take(groups.first) for c in per}
        old = None if delta.old is None else self._compute_groups(delta, delta.old, groups, key)
        group_delta = Delta(key, old, self._compute_groups(delta, delta.new, groups, key))
        return state, drop_unchanged_rows(group_delta, self.layout.includes_permanently_hidden)

    def _compute_groups(
        self, delta: Delta, knowledge: RowKnowledge, groups: RowGroups, key: Mapping[str, ValueColumn]
    ) -> RowKnowledge:
        """The knowledge of the groups if their members have this knowledge and were absent before."""
        grouping, count = self.grouping, groups.count
        is_present: Bools | None = masks.is_present(knowledge.mask)[groups.first]
        context = grouping.make_context(key, hashes([key[c] for c in grouping.per], count), grouping.empty_tables())
        member_delta = MemberDelta(Delta(delta.fixed, None, knowledge), groups)
        rows, tables = grouping.absorb(grouping.zero_rows(count), member_delta, context)
        is_sealed = np.ones(count, bool)
        return grouping.group_knowledge(
            rows, is_sealed, grouping.make_context(key, context.key_hashes, tables), is_present, None
        )
