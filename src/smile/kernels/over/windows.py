"""Aggregates over the windows of rows. Each window is a separate group, and a row is a member of every window that
contains it, its own included.

The knowledge of an aggregate over a window is the result of its accumulator if all members arrive at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.ranges import to_range_column
from smile.columns.values import Array, Bools, Indices
from smile.kernels.aggregates.accumulator import Accumulator, GroupContext, MemberRows
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, RowSelection
from smile.kernels.group_index import find_column
from smile.kernels.ordering import range_ranks
from smile.kernels.over.slices import WindowSlices
from smile.kernels.seals import shift_ticks
from smile.state.row_lookup import RowLookup
from smile.state.run import TableRows, TableSchema
from smile.state.table import StateTable

MEMBERS_MAX = 1 << 20
"""How many window members are expanded at once. Bounds memory."""


class ContiguousGroups(RowGroups):
    """Groups of adjacent rows. No group is empty."""

    def __init__(self, counts: Array) -> None:
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        self.order = np.arange(total)
        self.starts = ends - counts
        self.count = len(counts)
        self.group_numbers = np.repeat(np.arange(self.count), counts)
        self.first, self.last = self.starts, ends - 1


@dataclass(frozen=True)
class RowWindows:
    """Windows as slices of the rows sorted by group and tick. The window of row `target_rows[i]` has the rows
    `order[lo[i]:hi[i]]`."""

    target_rows: Indices
    order: Indices
    lo: Indices
    hi: Indices

    @staticmethod
    def for_rows(group_numbers: Array, row_ticks: Array, target_rows: Indices, span: int | None) -> "RowWindows":
        """The windows of the target rows, among rows with these groups and ticks. Without a span, a window includes all
        earlier rows of the group."""
        ticks, rank = np.unique(row_ticks, return_inverse=True)
        sort_keys = group_numbers * len(ticks) + rank.reshape(-1)
        order = np.argsort(sort_keys, kind="stable")
        ranked, base = sort_keys[order], group_numbers[target_rows] * len(ticks)
        if span is not None:
            base += np.searchsorted(ticks, shift_ticks(row_ticks[target_rows], -span))
        return RowWindows(
            target_rows,
            order,
            np.searchsorted(ranked, base),
            np.searchsorted(ranked, sort_keys[target_rows], side="right"),
        )

    def chunks(self) -> Iterator["RowWindows"]:
        """The windows in chunks of at most MEMBERS_MAX members; a chunk has at least one window."""
        ends = np.cumsum(self.hi - self.lo)
        start = 0
        while start < len(ends):
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + MEMBERS_MAX, side="right")))
            yield RowWindows(self.target_rows[start:stop], self.order, self.lo[start:stop], self.hi[start:stop])
            start = stop

    def members(self) -> tuple[Indices, Indices]:
        """All pairs of a window number and a row in that window."""
        counts = self.hi - self.lo
        window_numbers = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(counts) - counts
        return window_numbers, self.order[np.arange(len(window_numbers)) - np.repeat(starts - self.lo, counts)]


@dataclass(frozen=True)
class WindowAggregates:
    """Accumulators by their output columns. `evolving_key`: the group columns, if any of them evolves. `certain`: all
    rows are permanently shown, and none of their columns evolves."""

    accumulators: Mapping[str, Accumulator]
    evolving_key: tuple[str, ...]
    certain: bool

    def compute(
        self, windows: RowWindows, rows: Delta, totals: TableRows, is_sealed: Bools
    ) -> tuple[dict[str, KnowledgeColumn], Array]:
        """The knowledge of each aggregate, and the steps of each window. `totals` has the accumulators of rows that the
        windows include but that are no longer stored."""
        columns: dict[str, KnowledgeColumn] = {}
        if self.certain:
            slices = WindowSlices(rows, windows.order, windows.lo, windows.hi)
            context = GroupContext({}, np.arange(len(is_sealed)).astype(np.uint64), {}, reject_member_lookup)
            for name, accumulator in self.accumulators.items():
                absorbed = slices.absorb(accumulator, totals)
                if absorbed is not None:
                    columns[name] = accumulator.render(absorbed, is_sealed, context)
            if len(columns) == len(self.accumulators):
                return columns, slices.sums(rows.new.steps)
        rest = {name: a for name, a in self.accumulators.items() if name not in columns}
        parts = []
        start = 0
        for chunk in windows.chunks():
            stop = start + len(chunk.target_rows)
            indices = np.arange(start, stop)
            chunk_totals = {name: column.take(indices) for name, column in totals.items()}
            parts.append(self._compute_from_members(rest, chunk, rows, chunk_totals, is_sealed[start:stop]))
            start = stop
        columns |= {name: k.concat([p[0][name] for p in parts]) for name in rest}  # type: ignore[type-var]
        return columns, np.concatenate([p[1] for p in parts])

    def _compute_from_members(
        self,
        accumulators: Mapping[str, Accumulator],
        windows: RowWindows,
        rows: Delta,
        totals: TableRows,
        is_sealed: Bools,
    ) -> tuple[dict[str, KnowledgeColumn], Array]:
        """Expands windows into groups of members. A row occurs once for each window that contains it."""
        window_numbers, row_indices = windows.members()
        mask = np.where(rows.new.mask[row_indices] == masks.ABSENT, np.uint8(masks.F), rows.new.mask[row_indices])
        if self.evolving_key:
            group_masks = self._same_group_masks(rows, windows.target_rows[window_numbers], row_indices)
            possible = np.flatnonzero(group_masks != masks.F)
            window_numbers, row_indices = window_numbers[possible], row_indices[possible]
            mask = masks.all_of(mask, group_masks)[possible]
        count = len(windows.target_rows)
        groups = ContiguousGroups(np.bincount(window_numbers, minlength=count))
        knowledge = RowKnowledge(RowSelection(rows.new.columns, row_indices), mask, rows.new.steps[row_indices])
        members = Delta(RowSelection(rows.fixed, row_indices), None, knowledge)
        tables = {name: StateTable(schema) for a in accumulators.values() for name, schema in a.table_schemas.items()}
        window_hashes = np.arange(count).astype(np.uint64)

        def find_members(_: GroupContext, numbers: Indices) -> MemberRows:
            assert len(numbers) == count, "all members of a window are new, so none has been removed"
            return window_numbers, members.fixed, members.new

        columns = {}
        for name, accumulator in accumulators.items():
            absorbed = accumulator.absorb(
                totals, MemberDelta(members, groups), GroupContext({}, window_hashes, tables, find_members)
            )
            context = GroupContext({}, window_hashes, {**tables, **absorbed.tables}, find_members)
            columns[name] = accumulator.render(absorbed.rows, is_sealed, context)
        return columns, groups.sums(members.new.steps)

    def _same_group_masks(self, rows: Delta, target_rows: Indices, member_rows: Indices) -> Array:
        """For pairs of rows, the mask of being in one group. A row is always in its own group."""
        now, may, sure = (np.ones(len(member_rows), bool) for _ in range(3))
        for name in self.evolving_key:
            ranks = range_ranks(to_range_column(find_column(name, rows.fixed, rows.new.columns)))
            now &= ranks.now[target_rows] == ranks.now[member_rows]
            may &= ranks.can_be_equal(target_rows, member_rows)
            sure &= ranks.is_surely_equal(target_rows, member_rows)
        is_self = target_rows == member_rows
        return masks.pack_codes(may | is_self, ~(sure | is_self), now | is_self)


def zero_rows(accumulators: Sequence[Accumulator], count: int) -> RowLookup:
    """The accumulator rows of groups without members."""
    columns = {name: kind for a in accumulators for name, kind in a.columns.items()}
    return RowLookup(StateTable(TableSchema((), columns)), np.full(count, -1), np.zeros(count, np.int64))


def reject_member_lookup(_: GroupContext, numbers: Indices) -> MemberRows:
    raise AssertionError(f"certain rows are never removed, but groups {numbers} have lost members")
