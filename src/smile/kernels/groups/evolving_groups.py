"""Groups by columns that evolve. The membership of a row in a group is a mask, so a row can be in several groups.

The state has all members, and each batch reads all of them. The present values of the members determine which groups
exist. Each group that a changed member belongs or can belong to is computed again from all members that can belong to
it. The cost of a batch is proportional to the number of members, for each group that the batch affects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.columns import knowledge as k, masks, values as v
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_range_column
from smile.columns.values import Bools, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import GroupContext, MemberRows
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.aggregates.ordered_values import is_as_good
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, drop_unchanged_rows
from smile.kernels.groups.summarize import AggregateGrouping
from smile.kernels.ordering import NEVER_NULL, ONLY_NULL
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import State, Transform
from smile.state.run import TableSchema

ALL_MEMBERS = "all"


@dataclass(frozen=True)
class EvolvingMembers:
    """Rows of the input, with the present values of their group columns."""

    fixed: Mapping[str, ValueColumn]
    knowledge: RowKnowledge
    present_key: Sequence[ValueColumn]

    def __len__(self) -> int:
        return len(self.knowledge)


class EvolvingGroups(Transform):
    """`is_single_member`: a group can have only one member, and is sealed as soon as it has one."""

    def __init__(self, grouping: AggregateGrouping, is_single_member: bool) -> None:
        self.grouping, self.layout, self.is_single_member = grouping, grouping.layout, is_single_member
        self.per = grouping.per
        self.source_layout = grouping.source.layout
        type_ = grouping.output.type
        self.seals = Seals(type_.seals, type_.heading.columns)
        self.table_schemas = {
            ALL_MEMBERS: TableSchema(
                tuple(map(stored_column, self.source_layout.key)), table_columns(self.source_layout)
            )
        }

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        return Delta(key, None, self.grouping.default_knowledge(key, count, self.seals.is_sealed(horizons, key, count)))

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.seals.can_seal_rows(advance) or bool(self.grouping.value_seals)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        (delta,) = inputs
        table = state[ALL_MEMBERS]
        if delta is not None and len(delta):
            rows = encode_rows(self.source_layout, delta.fixed, delta.new)
            table = table.with_rows(rows, ~masks.is_present(delta.new.mask))
        before, after = self._read_members(state), self._read_members({ALL_MEMBERS: table})
        key = self._all_keys(before, after)
        count = len(key[0])
        affected = self._affected_groups(key, count, delta, advance)
        if not len(affected):
            return {ALL_MEMBERS: table}, None
        key = [column.take(affected) for column in key]
        key_columns = dict(zip(self.per, key, strict=True))
        old = self._compute_groups(before, key_columns, len(affected), advance.before)
        new = self._compute_groups(after, key_columns, len(affected), advance.after)
        group_delta = drop_unchanged_rows(Delta(key_columns, old, new), self.layout.includes_permanently_hidden)
        return {ALL_MEMBERS: table}, group_delta if len(group_delta) else None

    def _read_members(self, state: State) -> EvolvingMembers:
        rows = state[ALL_MEMBERS].scan()
        return self._make_members(decode_fixed(self.source_layout, rows), decode_knowledge(self.source_layout, rows))

    def _make_members(self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> EvolvingMembers:
        present_key = [
            fixed[c] if c in self.source_layout.fixed else k.current_values(knowledge.columns[c]) for c in self.per
        ]
        return EvolvingMembers(fixed, knowledge, present_key)

    def _all_keys(self, before: EvolvingMembers, after: EvolvingMembers) -> list[ValueColumn]:
        """The keys of all groups before or after the batch, each once."""
        keys = [v.concat([a, b]) for a, b in zip(before.present_key, after.present_key, strict=True)]
        groups = RowGroups(keys, len(before) + len(after))
        return [column.take(groups.first) for column in keys]

    def _affected_groups(
        self, key: list[ValueColumn], count: int, delta: Delta | None, advance: HorizonAdvance
    ) -> Indices:
        """Groups that a changed row belongs or can belong to, before or after, and groups that the horizons seal. All
        groups, if the horizons may pass the value of an aggregate."""
        key_columns = dict(zip(self.per, key, strict=True))
        sealed_before, sealed_after = (
            self.seals.is_sealed(h, key_columns, count) for h in (advance.before, advance.after)
        )
        is_affected = sealed_before != sealed_after
        if self.grouping.value_seals and advance.has_moved:
            is_affected[:] = True
        if delta is not None:
            knowledge_parts = [delta.new] if delta.old is None else [delta.old, delta.new]
            for knowledge in knowledge_parts:
                members = self._make_members(delta.fixed, knowledge)
                is_present = masks.is_present(knowledge.mask)
                for group in range(count):
                    if not is_affected[group]:
                        is_affected[group] = bool(
                            (is_present & masks.can_be_shown(self._membership_masks(members, key, group))).any()
                        )
        return np.flatnonzero(is_affected)

    # ── aggregation ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _compute_groups(
        self, all_members: EvolvingMembers, key: Mapping[str, ValueColumn], count: int, horizons: Horizons
    ) -> RowKnowledge:
        """Computes groups from all rows that can belong to them. Rows that can no longer belong to a group are
        permanently hidden members without steps; only nested relations include them."""
        columns = [key[c] for c in self.per]
        includes_all = self.grouping.members is not None and self.grouping.members.includes_hidden
        index_parts, mask_parts = [], []
        is_present = np.zeros(count, bool)
        for group in range(count):
            belongs = self._membership_masks(all_members, columns, group)
            is_present[group] = bool(masks.is_shown(belongs).any())
            candidates = np.arange(len(all_members)) if includes_all else np.flatnonzero(masks.can_be_shown(belongs))
            index_parts.append(candidates)
            mask_parts.append(belongs[candidates])
        indices = np.concatenate(index_parts)
        belongs = np.concatenate(mask_parts)
        knowledge = all_members.knowledge.take(indices)
        steps = np.where(masks.can_be_shown(belongs), knowledge.steps, 0)
        group_members = RowKnowledge(
            knowledge.columns,
            np.where(masks.can_be_shown(belongs), masks.all_of(knowledge.mask, belongs), belongs),
            steps,
        )
        fixed = {c: all_members.fixed[c].take(indices) for c in self.source_layout.fixed}
        group_numbers = np.repeat(np.arange(count), [len(a) for a in index_parts])
        is_sealed = self.seals.is_sealed(horizons, key, count)
        if self.is_single_member:
            is_sealed[group_numbers[masks.can_be_shown(belongs)]] = True
        return self._aggregate_members(group_numbers, fixed, group_members, key, is_sealed, is_present, horizons)

    def _aggregate_members(
        self,
        group_numbers: Indices,
        fixed: Mapping[str, ValueColumn],
        members: RowKnowledge,
        key: Mapping[str, ValueColumn],
        is_sealed: Bools,
        is_present: Bools,
        horizons: Horizons,
    ) -> RowKnowledge:
        def find_members(_context: GroupContext, _numbers: Indices) -> MemberRows:
            return group_numbers, fixed, members

        grouping, count = self.grouping, len(is_sealed)
        # Only groups that have members are accumulated; the others get the zero row, which is appended below.
        groups = RowGroups([ValueColumn(group_numbers)], len(group_numbers))
        key_hashes = hashes([key[c] for c in self.per], count)
        nonempty_groups = group_numbers[groups.first]
        nonempty_key = {c: column.take(nonempty_groups) for c, column in key.items()}
        context = GroupContext(nonempty_key, key_hashes[nonempty_groups], grouping.empty_tables(), find_members)
        member_delta = MemberDelta(Delta(fixed, None, members), groups)
        accumulated, tables = grouping.absorb(grouping.zero_rows(groups.count), member_delta, context)
        row_of_group = np.full(count, groups.count)
        row_of_group[nonempty_groups] = np.arange(groups.count)
        zero = grouping.zero_rows(1)
        rows = {name: v.concat([column, zero[name]]).take(row_of_group) for name, column in accumulated.items()}
        return grouping.group_knowledge(
            rows, is_sealed, GroupContext(key, key_hashes, tables, find_members), is_present, horizons
        )

    def _membership_masks(self, members: EvolvingMembers, key: Sequence[ValueColumn], group: int) -> MaskCodes:
        mask = masks.full(masks.T, len(members))
        for name, column in zip(self.per, key, strict=True):
            wanted = column.take(np.full(len(members), group))
            member_column: KnowledgeColumn = (
                members.fixed[name] if name in self.source_layout.fixed else members.knowledge.columns[name]
            )
            mask = masks.all_of(mask, not_distinct_masks(member_column, wanted))
        return mask


def not_distinct_masks(column: KnowledgeColumn, wanted: ValueColumn) -> MaskCodes:
    """For each row the mask of the cell IS NOT DISTINCT FROM the wanted value."""
    if isinstance(column, ValueColumn):
        equal = column.same(wanted)
        return masks.pack_codes(equal, ~equal, equal)
    ranges = to_range_column(column)
    null_codes = ranges.null_codes()
    is_value, can_have_value = wanted.is_valid(), null_codes != ONLY_NULL
    above = _is_inside_bound(wanted, ranges.lo, is_lower=True)
    below = _is_inside_bound(wanted, ranges.hi, is_lower=False)
    is_point = np.zeros(len(wanted), bool)
    if ranges.lo is not None and ranges.hi is not None:
        is_point = ranges.lo.is_valid() & ranges.hi.is_valid() & ranges.lo.same(wanted) & ranges.hi.same(wanted)
    can_equal = np.where(is_value, can_have_value & above & below, null_codes != NEVER_NULL)
    can_differ = np.where(is_value, ~is_point | (null_codes != NEVER_NULL), can_have_value)
    return masks.pack_codes(can_equal, can_differ, ranges.now.same(wanted))


def _is_inside_bound(wanted: ValueColumn, bound: ValueColumn | None, is_lower: bool) -> Bools:
    if bound is None:
        return np.ones(len(wanted), bool)
    return bound.is_null() | is_as_good(ValueColumn(wanted.data), ValueColumn(bound.data), is_lower)
