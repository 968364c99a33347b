"""SESSION: the start of each row's session. Rows of a group are in one session if each comes at most `gap` after the
one before it.

The start of a row is final when the least horizon of the source's streams reaches its tick: no row arrives at or below
it. If rows come in tick order, that is at once. Otherwise a row that arrives can join two sessions, and the rows of the
later one move to the earlier one.

Stored are the rows above the horizon, and for each group the last one below it, as long as a row can follow it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import TIME
from smile.columns import masks, values as v
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Indices, ValueColumn, true_indices
from smile.kernels.delta import ColumnOverlay, Delta, RowGroups, RowKnowledge, RowSelection, concat_deltas
from smile.kernels.group_index import GROUP_HASH, compute_group_hashes, find_group_rows
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import STEPS, decode_fixed, encode_rows, stored_column, table_columns
from smile.kernels.seals import LEAST, HorizonAdvance, SealIndex, shift_ticks
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.operators.session import WINDOW_START
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

ROWS = "rows"


class SessionTransform(Transform):
    def __init__(self, rel: mmpl.Session, source: InputRelation, output: OutputRelation) -> None:
        self.tick, self.per, self.gap = rel.tick, rel.per, rel.gap
        self.streams = tuple(source.type.seals)
        self.comes_in_order = source.type.is_sealed_on_arrival
        key, fixed = output.type.heading.key, {**source.layout.fixed, WINDOW_START: TIME}
        self.layout = Layout(
            key, fixed, certain=self.comes_in_order, includes_permanently_hidden=output.includes_permanently_hidden
        )
        needed = fixed.keys() if not self.comes_in_order else {rel.tick, *rel.per, WINDOW_START}
        self.stored_layout = Layout(key, {c: t for c, t in fixed.items() if c in needed}, certain=True)
        ticks = {rel.tick: TIME}
        self.end_index = SealIndex({LEAST: Seal.from_column(rel.tick, rel.gap)}, ticks, "until")
        """When no row can follow any more in the session."""
        self.start_index = SealIndex({LEAST: Seal.from_column(rel.tick)}, ticks, "at")
        """When the start is final."""
        self.indexes = (self.end_index,) if self.comes_in_order else (self.end_index, self.start_index)
        tick_columns = {name: kind for i in self.indexes for name, kind in i.column_types.items()}
        columns = {**table_columns(self.stored_layout), GROUP_HASH: pa.int64(), **tick_columns}
        schema = TableSchema(
            (stored_column(rel.tick),), columns, indexes=((GROUP_HASH,),), tick_indexes=tuple(tick_columns)
        )
        self.table_schemas = {ROWS: schema}

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.end_index.can_seal_rows(advance.least(self.streams))

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        table, least = state[ROWS], advance.least(self.streams)
        parts, touched = [], table.no_rows()
        new_rows = _appearing_rows(inputs[0])
        if new_rows is not None:
            hashes = compute_group_hashes([new_rows.fixed[c] for c in self.per], len(new_rows))
            touched = find_group_rows(table, hashes.data)
            groups = _Rows(self, touched, new_rows, hashes, least)
            parts += groups.changes()
            table = groups.store(table)
        if not self.comes_in_order:
            settled = self.start_index.find_sealed_rows(state[ROWS], least)
            settled = settled.without(touched) if touched.row_count and settled.row_count else settled
            if settled.row_count:
                count = settled.row_count
                steps = settled[STEPS].data
                old, new = (RowKnowledge({}, masks.full(code, count), steps) for code in (masks.SHOWN, masks.T))
                parts.append(Delta(decode_fixed(self.stored_layout, settled), old, new))
        table = table.without_rows(self.end_index.find_sealed_rows(table, least))
        parts = [p for p in parts if len(p)]
        return {ROWS: table}, concat_deltas(self.layout, parts) if parts else None

    def masks(self, ticks: Array, horizon: int) -> MaskCodes:
        """A row may leave its session, for an earlier one, until the horizon reaches it."""
        if self.comes_in_order:
            return masks.full(masks.T, len(ticks))
        return np.where(ticks <= horizon, np.uint8(masks.T), np.uint8(masks.SHOWN))


def _appearing_rows(delta: Delta | None) -> Delta | None:
    """The rows that become permanently shown; None if there are none."""
    if delta is None:
        return None
    appears = masks.is_permanently_shown(delta.new.mask) & ~masks.is_permanently_shown(delta.old_mask())
    if not appears.any():
        return None
    return Delta(delta.fixed, None, delta.new) if appears.all() else delta.take(true_indices(appears))


class _Rows:
    """The stored rows of some groups, followed by new ones, with their sessions before and after."""

    def __init__(
        self, transform: SessionTransform, stored: RowLookup, new: Delta, hashes: ValueColumn, least: HorizonAdvance
    ) -> None:
        self.transform, self.stored, self.new = transform, stored, new
        self.before, self.after = least.before[LEAST], least.after[LEAST]
        self.stored_count, self.count = stored.row_count, stored.row_count + len(new)
        tick = stored_column(transform.tick)
        self.ticks = np.concatenate([stored[tick].data, new.fixed[transform.tick].data])
        self.hashes = np.concatenate([stored[GROUP_HASH].data, hashes.data])
        per = [v.concat([stored[stored_column(c)], new.fixed[c]]) for c in transform.per]
        self.group_numbers = RowGroups(per, self.count, self.hashes.view(np.uint64)).group_numbers
        self.order = np.lexsort((self.ticks, self.group_numbers))
        self.old_starts = stored[stored_column(WINDOW_START)].data
        self.starts = self._session_starts()
        self.is_moved = self.starts[: self.stored_count] != self.old_starts

    def _session_starts(self) -> Array:
        """The starts of rows at or below the horizon are known. Each other row follows the one before it, or begins a
        session."""
        ranked, groups = self.ticks[self.order], self.group_numbers[self.order]
        begins = np.ones(self.count, bool)
        begins[1:] = (groups[1:] != groups[:-1]) | (ranked[1:] > shift_ticks(ranked[:-1], self.transform.gap))
        is_known = np.zeros(self.count, bool)
        is_known[: self.stored_count] = self.ticks[: self.stored_count] <= self.before
        own = self.ticks.copy()
        own[: self.stored_count] = np.where(is_known[: self.stored_count], self.old_starts, own[: self.stored_count])
        origin = np.maximum.accumulate(np.where(begins | is_known[self.order], np.arange(self.count), 0))
        starts = np.empty(self.count, np.int64)
        starts[self.order] = own[self.order][origin]
        return starts

    # ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def changes(self) -> list[Delta]:
        """The new rows, the stored rows whose start is now known, and those that have moved, under both keys."""
        arrived = np.arange(self.stored_count, self.count)
        new_part = Delta(
            ColumnOverlay(self.new.fixed, {WINDOW_START: ValueColumn(self.starts[self.stored_count :])}),
            None,
            RowKnowledge({}, self._masks(arrived, self.after), self.new.new.steps),
        )
        if self.transform.comes_in_order:
            assert not self.is_moved.any(), "rows that come in order never move"
            return [new_part]
        stored_ticks = self.ticks[: self.stored_count]
        settles = (stored_ticks > self.before) & (stored_ticks <= self.after)
        moved, stays = true_indices(self.is_moved), true_indices(settles & ~self.is_moved)
        return [
            new_part,
            self._stored_part(stays, self.old_starts, self._masks(stays, self.before), self._masks(stays, self.after)),
            self._stored_part(moved, self.old_starts, self._masks(moved, self.before), None),
            self._stored_part(moved, self.starts, None, self._masks(moved, self.after)),
        ]

    def _masks(self, indices: Indices, horizon: int) -> MaskCodes:
        return self.transform.masks(self.ticks[indices], horizon)

    def _stored_part(self, indices: Indices, starts: Array, old: MaskCodes | None, new: MaskCodes | None) -> Delta:
        """Stored rows with these starts. A mask that is None stands for absent rows."""
        steps = self.stored[STEPS].data[indices]
        fixed = ColumnOverlay(
            RowSelection(decode_fixed(self.transform.stored_layout, self.stored), indices),
            {WINDOW_START: ValueColumn(starts[indices])},
        )
        absent = RowKnowledge({}, masks.full(masks.ABSENT, len(indices)), np.zeros(len(indices), np.int64))
        old_knowledge, new_knowledge = (absent if m is None else RowKnowledge({}, m, steps) for m in (old, new))
        return Delta(fixed, old_knowledge, new_knowledge)

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def store(self, table: StateTable) -> StateTable:
        """Keeps the rows above the horizon, and the last one of each group at or below it."""
        is_kept = self.ticks > self.after
        groups, known = self.group_numbers[self.order], ~is_kept[self.order]
        # Within a group, the rows above the horizon come last.
        is_last_known = known & np.append((groups[1:] != groups[:-1]) | ~known[1:], True)
        is_kept[self.order[is_last_known]] = True
        table = table.without_rows(self.stored.take(true_indices(~is_kept[: self.stored_count])))
        moved = true_indices(self.is_moved & is_kept[: self.stored_count])
        arrived = true_indices(is_kept[self.stored_count :])
        stored_fixed = decode_fixed(self.transform.stored_layout, self.stored)
        parts = [
            (RowSelection(stored_fixed, moved), self.stored[STEPS].data[moved], moved),
            (RowSelection(self.new.fixed, arrived), self.new.new.steps[arrived], arrived + self.stored_count),
        ]
        for fixed, steps, indices in parts:
            if len(indices):
                table = table.with_rows(self._stored_rows(fixed, steps, indices))
        return table

    def _stored_rows(self, fixed: Mapping[str, ValueColumn], steps: Array, indices: Indices) -> dict[str, ValueColumn]:
        transform = self.transform
        fixed = ColumnOverlay(fixed, {WINDOW_START: ValueColumn(self.starts[indices])})
        rows = encode_rows(transform.stored_layout, fixed, RowKnowledge({}, masks.full(masks.T, len(indices)), steps))
        rows[GROUP_HASH] = ValueColumn(self.hashes[indices])
        for index in transform.indexes:
            rows |= index.tick_values(fixed, len(indices))
        return rows
