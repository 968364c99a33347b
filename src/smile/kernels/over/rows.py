"""OVER … ROWS: aggregates over a frame of positions around each row.

The positions of a group's rows are known up to the least horizon of the source's streams. The frame of a row is final
once its last row, or the row itself if that is later, is at or below that horizon. Until then its aggregates have
their current values, and no bounds.

Stored are the rows whose frames are not final, and those before them that such a frame or a later one can contain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import TIME, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import KnowledgeColumn, MaskColumn, RangeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.horizons import END
from smile.kernels.aggregates.accumulator import GroupContext, MemberRows
from smile.kernels.aggregates.compile_accumulator import compile_accumulator
from smile.kernels.delta import ColumnOverlay, Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.group_index import GROUP_HASH, compute_group_hashes, find_group_rows
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.over.windows import RowWindows, WindowAggregates, zero_rows
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.seals import LEAST, HorizonAdvance, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

ROWS = "rows"


class OverRowsTransform(Transform):
    def __init__(self, rel: mmpl.OverRows, source: InputRelation, output: OutputRelation) -> None:
        self.by, self.per, self.first, self.last = rel.by, rel.per, rel.first, rel.last
        self.streams = tuple(source.type.seals)
        self.comes_in_order = source.type.is_sealed_on_arrival
        self.is_final_on_arrival = self.comes_in_order and rel.last <= 0
        types = output.type.heading.columns
        accumulators = {
            n: compile_accumulator(i, a, {}, source, output.type.columns[n]) for i, (n, a) in enumerate(rel.aggregates)
        }
        self.aggregates = WindowAggregates(accumulators, (), source.layout.is_history)
        self.types = {n: types[n] for n in accumulators}
        self.bottoms = {n: output.bottoms[n] for n in accumulators}
        self.stored_layout = source.layout
        evolving = {n: EvolvingColumnLayout(k.column_kind(t, "range"), t) for n, t in self.types.items()}
        fixed, evolving = ({**self.types}, {}) if self.is_final_on_arrival else ({}, evolving)
        self.layout = Layout(
            source.layout.key, {**source.layout.fixed, **fixed}, {**source.layout.evolving, **evolving},
            source.layout.certain, output.includes_permanently_hidden,
        )  # fmt: skip
        self.tick_index = SealIndex({LEAST: Seal.from_column(rel.by)}, {rel.by: TIME}, "at")
        """When the positions of rows are known."""
        tick_columns = {} if self.comes_in_order else self.tick_index.column_types
        columns = {**table_columns(self.stored_layout), GROUP_HASH: pa.int64(), **tick_columns}
        key = tuple(map(stored_column, source.layout.key))
        schema = TableSchema(key, columns, indexes=((GROUP_HASH,),), tick_indexes=tuple(tick_columns))
        self.table_schemas = {ROWS: schema}

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        least = advance.least(self.streams)
        return self.tick_index.can_seal_rows(least) and (not self.comes_in_order or least.after[LEAST] >= END)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        table, least = state[ROWS], advance.least(self.streams)
        new_rows = _appearing_rows(inputs[0])
        hashes = [self._changing_groups(table, least)]
        if new_rows is not None:
            new_hashes = compute_group_hashes([new_rows.fixed[c] for c in self.per], len(new_rows))
            hashes.append(new_hashes.data)
        touched = np.concatenate(hashes)
        if not len(touched):
            return state, None
        stored = find_group_rows(table, touched)
        frames = _GroupRows(self, stored, new_rows, least)
        parts = [p for p in frames.changes() if len(p)]
        table = frames.store(table)
        if not parts:
            return {ROWS: table}, None
        delta = drop_unchanged_rows(concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden)
        return {ROWS: table}, delta if len(delta) else None

    def _changing_groups(self, table: StateTable, least: HorizonAdvance) -> Array:
        """The hashes of the stored groups whose frames the horizon advance makes final."""
        before, after = least.before[LEAST], least.after[LEAST]
        if after >= END > before:
            return table.scan()[GROUP_HASH].data if table.runs else np.zeros(0, np.int64)
        if self.comes_in_order or after <= before:
            return np.zeros(0, np.int64)
        return self.tick_index.find_sealed_rows(table, least)[GROUP_HASH].data

    def knowledge_of(self, name: str, values: ValueColumn, is_known: Bools) -> KnowledgeColumn:
        """The knowledge of an aggregate with these current values."""
        data = self.types[name]
        if self.is_final_on_arrival:
            return values
        kind = k.column_kind(data, "range")
        exact = k.exact_column(values, kind, data)
        if is_known.all():
            return exact
        return k.where(is_known, exact, _with_values(self.bottoms[name], values, data))  # type: ignore[type-var]


def _with_values(bottom: CellKnowledge, values: ValueColumn, data: DataType) -> RangeColumn | MaskColumn:
    """Cells of which only the current values are known."""
    kind = k.column_kind(data, "range")
    column = k.from_points([bottom], kind, data).take(np.zeros(len(values), np.int64))
    if isinstance(column, MaskColumn):
        now = np.where(values.is_valid(), np.where(values.data, 1, 2), 4).astype(np.uint8)
        return MaskColumn(column.possible, now)
    assert isinstance(column, RangeColumn)
    return RangeColumn(values, column.lo, column.hi, column.nulls)


def _appearing_rows(delta: Delta | None) -> Delta | None:
    """The rows that become permanently shown; None if there are none."""
    if delta is None:
        return None
    appears = masks.is_permanently_shown(delta.new.mask) & ~masks.is_permanently_shown(delta.old_mask())
    if not appears.any():
        return None
    return Delta(delta.fixed, None, delta.new) if appears.all() else delta.take(true_indices(appears))


@dataclass(frozen=True)
class _Positions:
    """Rows sorted by group and tick. `rank` is where each row is in `order`; `starts` and `ends` bound its group
    there."""

    order: Indices
    rank: Indices
    starts: Indices
    ends: Indices

    @staticmethod
    def of(group_numbers: Array, ticks: Array) -> "_Positions":
        order = np.lexsort((ticks, group_numbers))
        ranked = group_numbers[order]
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        starts, ends = (np.searchsorted(ranked, group_numbers, side=side) for side in ("left", "right"))
        return _Positions(order, rank, starts, ends)

    def frames(self, first: int, last: int) -> tuple[Indices, Indices]:
        """The frame of each row, as a slice of `order`."""
        lo = np.clip(self.rank + first, self.starts, self.ends)
        return lo, np.maximum(np.clip(self.rank + last + 1, self.starts, self.ends), lo)


class _GroupRows:
    """The stored rows of some groups, followed by new ones."""

    def __init__(
        self, transform: OverRowsTransform, stored: RowLookup, new: Delta | None, least: HorizonAdvance
    ) -> None:
        self.transform, self.stored, self.new = transform, stored, new
        self.before, self.after = least.before[LEAST], least.after[LEAST]
        self.stored_count = stored.row_count
        layout = transform.stored_layout
        self.stored_rows = Delta(decode_fixed(layout, stored), None, decode_knowledge(layout, stored))
        self.rows = self.stored_rows if new is None else concat_deltas(layout, [self.stored_rows, new])
        self.count = len(self.rows)
        per = [self.rows.fixed[c] for c in transform.per]
        self.hashes = compute_group_hashes(per, self.count).data
        groups = RowGroups(per, self.count, self.hashes.view(np.uint64)).group_numbers
        self.ticks = self.rows.fixed[transform.by].data
        old_indices = np.arange(self.stored_count)
        self.groups = groups
        self.old = _Positions.of(groups[old_indices], self.ticks[old_indices])
        self.positions = _Positions.of(groups, self.ticks)
        self.was_final = self._final_frames(self.old, self.before)
        self.is_final = self._final_frames(self.positions, self.after)

    def _final_frames(self, positions: _Positions, horizon: int) -> Bools:
        """Which rows have a frame that is final at this horizon."""
        count = len(positions.order)
        if horizon >= END or self.transform.is_final_on_arrival:
            return np.ones(count, bool)
        deciding = positions.rank + max(self.transform.last, 0)
        exists = deciding < positions.ends
        ticks = self.ticks[positions.order[np.where(exists, deciding, positions.rank)]]
        return exists & (ticks <= horizon)

    # ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def changes(self) -> list[Delta]:
        """The new rows, and the stored rows whose frames have changed or are final now."""
        transform, count = self.transform, self.stored_count
        arrived = np.arange(count, self.count)
        fixed, knowledge = self._knowledge(self.rows, self.positions, arrived, self.is_final)
        parts = [Delta(ColumnOverlay(self.rows.take(arrived).fixed, fixed), None, knowledge)]
        if transform.is_final_on_arrival:
            return parts
        lo, hi = self.positions.frames(transform.first, transform.last)
        old_lo, old_hi = self.old.frames(transform.first, transform.last)
        lo, hi = lo[:count], hi[:count]
        new_before = np.append(0, np.cumsum(self.positions.order >= count))
        differs = (new_before[hi] > new_before[lo]) | (hi - lo != old_hi - old_lo)
        has_rows = true_indices((hi > lo) & ~differs)
        differs[has_rows] = self.positions.order[lo[has_rows]] != self.old.order[old_lo[has_rows]]
        changed = true_indices(~self.was_final & (differs | self.is_final[:count]))
        old = self._knowledge(self.stored_rows, self.old, changed, self.was_final)[1]
        new = self._knowledge(self.rows, self.positions, changed, self.is_final)[1]
        return [*parts, Delta(self.rows.take(changed).fixed, old, new)]

    def _knowledge(
        self, rows: Delta, positions: _Positions, targets: Indices, is_final: Bools
    ) -> tuple[dict[str, ValueColumn], RowKnowledge]:
        """The aggregates of the target rows that are final on arrival, and the knowledge of these rows. `positions` are
        those of `rows`."""
        transform = self.transform
        lo, hi = (ends[targets] for ends in positions.frames(transform.first, transform.last))
        filled = true_indices(hi > lo)
        accumulators = transform.aggregates.accumulators
        totals = zero_rows(list(accumulators.values()), len(targets))
        everywhere = np.ones(len(targets), bool)
        no_rows = rows.take(np.zeros(0, np.int64))

        def find_no_members(_context: GroupContext, _numbers: Indices) -> MemberRows:
            return np.zeros(0, np.int64), no_rows.fixed, no_rows.new

        context = GroupContext({}, np.arange(len(targets)).astype(np.uint64), {}, find_no_members)
        values = {n: k.current_values(a.render(totals, everywhere, context)) for n, a in accumulators.items()}
        steps = rows.new.steps[targets]
        if len(filled):
            windows = RowWindows(targets[filled], positions.order, lo[filled], hi[filled])
            columns, frame_steps = transform.aggregates.compute(windows, rows, totals.take(filled), everywhere[filled])
            position_of = np.full(len(targets), -1)
            position_of[filled] = np.arange(len(filled))
            for name, column in columns.items():
                values[name] = _replace(values[name], k.current_values(column), position_of)
            own = 0 if transform.first <= 0 <= transform.last else steps[filled]
            steps = steps.copy()
            steps[filled] = frame_steps + own
        knowledge = {n: transform.knowledge_of(n, column, is_final[targets]) for n, column in values.items()}
        evolving: dict[str, KnowledgeColumn] = {} if transform.is_final_on_arrival else dict(knowledge)
        fixed = values if transform.is_final_on_arrival else {}
        return fixed, RowKnowledge(evolving, rows.new.mask[targets], steps)

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def store(self, table: StateTable) -> StateTable:
        transform, positions = self.transform, self.positions
        order = positions.order
        is_known = self.ticks[order] <= self.after
        # The positions of known rows do not change, and known rows come first.
        known_before = np.append(0, np.cumsum(is_known))
        known_count = known_before[positions.ends] - known_before[positions.starts]
        open_from = np.maximum(known_count - max(transform.last, 0), 0)
        is_kept = positions.rank - positions.starts >= open_from + min(transform.first, 0)
        count = self.stored_count
        table = table.without_rows(self.stored.take(true_indices(~is_kept[:count])))
        arrived = true_indices(is_kept[count:]) + count
        if not len(arrived):
            return table
        stored = self.rows.take(arrived)
        rows = encode_rows(transform.stored_layout, stored.fixed, stored.new)
        rows[GROUP_HASH] = ValueColumn(self.hashes[arrived])
        if not transform.comes_in_order:
            rows |= transform.tick_index.tick_values(stored.fixed, len(arrived))
        return table.with_rows(rows)


def _replace(values: ValueColumn, others: ValueColumn, positions: Indices) -> ValueColumn:
    """The values, with those of `others` at these positions where they are not negative."""
    count = len(values)
    return v.concat([values, others]).take(np.where(positions < 0, np.arange(count), count + positions))
