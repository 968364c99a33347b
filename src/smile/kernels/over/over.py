"""OVER: aggregates over a window of preceding rows for each row. A row that is added, changed or removed affects only
itself and the rows whose windows contain it.

A row is stored until no row that it can affect can change any more. Without a range, certain rows are then folded into
the running totals of their group: no row can arrive at or below them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Array, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import GroupContext
from smile.kernels.aggregates.compile_accumulator import aggregate_column, compile_accumulator
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.aggregates.members import member_columns
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.group_index import GROUP_HASH, compute_group_hashes, find_group_rows, unchanging_values
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.over.windows import RowWindows, WindowAggregates, reject_member_lookup, zero_rows
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex, shift_ticks
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableRows, TableSchema
from smile.state.table import StateTable

ROWS, TOTALS = "rows", "totals"


class OverTransform(Transform):
    """Stores only the source rows. The previous output is computed again from them."""

    def __init__(self, rel: mmpl.Over, source: InputRelation, output: OutputRelation) -> None:
        source_layout, type_ = source.layout, source.type
        self.by, self.per, self.span, self.source_layout = rel.by, rel.per, rel.range, source_layout
        self.stored_layout = source_layout
        types = type_.heading.columns
        self.has_evolving_groups = any(c in source_layout.evolving for c in rel.per)
        accumulator_source = (
            replace(source, layout=replace(source_layout, certain=False)) if self.has_evolving_groups else source
        )
        accumulators = {
            n: compile_accumulator(i, a, {}, accumulator_source, output.type.columns[n])
            for i, (n, a) in enumerate(rel.aggregates)
        }
        evolving_key = rel.per if self.has_evolving_groups else ()
        self.aggregates = WindowAggregates(accumulators, evolving_key, source_layout.is_history)
        self.is_final_on_arrival = source_layout.is_history and type_.is_sealed_on_arrival
        aggregate_columns = {n: aggregate_column(a, output.type.heading.columns[n]) for n, a in rel.aggregates}
        self.layout = _output_layout(
            source_layout, aggregate_columns, self.is_final_on_arrival, output.includes_permanently_hidden
        )
        have_row_state_only = all(not a.table_schemas and not a.reads_members for a in accumulators.values())
        self.has_running_totals = rel.range is None and source_layout.is_history and have_row_state_only
        # If all preceding rows arrive before a row does, its aggregates are final: no horizon changes them.
        self.seal_index = SealIndex({} if self.is_final_on_arrival else output.type.seals, types, "until ")
        release_seals = {s: type_.constraints.express_seal_in_order(seal, rel.by) for s, seal in type_.seals.items()}
        if rel.range is None and not self.has_running_totals:
            release_seals = dict.fromkeys(release_seals, Seal.NEVER)
        self.release_index = SealIndex(
            {s: seal.delay(rel.range or 0) for s, seal in release_seals.items()}, types, "release "
        )
        tick_columns = {**self.seal_index.column_types, **self.release_index.column_types}
        if self.is_final_on_arrival:
            needed = {
                *source_layout.key,
                *rel.per,
                rel.by,
                *member_columns([a for _, a in rel.aggregates], type_.heading.tick),
            }
            self.stored_layout = Layout(
                source_layout.key, {c: t for c, t in source_layout.fixed.items() if c in needed}, certain=True
            )
        columns = {**table_columns(self.stored_layout), GROUP_HASH: pa.int64(), **tick_columns}
        key = tuple(map(stored_column, source_layout.key))
        self.table_schemas = {
            ROWS: TableSchema(key, columns, indexes=((GROUP_HASH,),), tick_indexes=tuple(tick_columns))
        }
        if self.has_running_totals:
            totals = {stored_column(c): arrow_type(types[c]) for c in rel.per}
            accumulator_columns = {name: kind for a in accumulators.values() for name, kind in a.columns.items()}
            self.table_schemas[TOTALS] = TableSchema(tuple(totals), {**totals, **accumulator_columns})

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return self.seal_index.can_seal_rows(advance) or self.release_index.can_seal_rows(advance)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        tables = dict(state)
        delta = inputs[0]
        output_delta = None
        group_hashes = None if delta is None else self._group_hashes(delta.fixed, len(delta)).data
        if delta is not None or self.seal_index.can_seal_rows(advance):
            output_delta = self._compute_delta(tables, delta, group_hashes, advance)
        if delta is not None:
            self._store_rows(tables, delta, group_hashes, advance)
        if self.release_index.can_seal_rows(advance):
            released = self.release_index.find_sealed_rows(tables[ROWS], advance)
            if released.row_count:
                tables[ROWS] = tables[ROWS].without_rows(released)
                knowledge = decode_knowledge(self.stored_layout, released)
                self._fold_into_totals(tables, Delta(decode_fixed(self.stored_layout, released), None, knowledge))
        return tables, output_delta

    # ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _compute_delta(
        self, tables: State, delta: Delta | None, delta_hashes: Array | None, advance: HorizonAdvance
    ) -> Delta | None:
        rows = tables[ROWS]
        hash_parts = [] if delta_hashes is None else [delta_hashes]
        sealed_rows = (
            self.seal_index.find_sealed_rows(rows, advance)
            if self.seal_index.can_seal_rows(advance) and rows.runs
            else None
        )
        if sealed_rows is not None:
            hash_parts.append(sealed_rows[GROUP_HASH].data)
        affected_hashes = np.concatenate(hash_parts) if hash_parts else np.zeros(0, np.int64)
        if not len(affected_hashes):
            return None
        stored_rows = find_group_rows(rows, affected_hashes)
        stored_delta = Delta(
            decode_fixed(self.stored_layout, stored_rows), None, decode_knowledge(self.stored_layout, stored_rows)
        )
        row_match = _StoredRowMatch.find(rows, stored_rows, delta, self.source_layout)
        rows_after = self._rows_after(stored_delta, row_match, delta, stored_rows[GROUP_HASH].data, delta_hashes)
        is_sealed = (
            np.zeros(stored_rows.row_count, bool) if sealed_rows is None else stored_rows.positions_in(sealed_rows) >= 0
        )
        affected = self._affected_rows(rows_after, len(row_match.unchanged), is_sealed[row_match.unchanged])
        parts = []
        # For stored rows, the previous output is computed from the stored rows. Other rows had no aggregates before.
        previously_stored = affected[row_match.stored_indices[affected] >= 0]
        if len(previously_stored):
            rows_before = _GroupedRows(stored_delta, self._group_numbers(stored_delta, stored_rows[GROUP_HASH].data))
            old_knowledge = self._with_aggregates(
                tables, rows_before, row_match.stored_indices[previously_stored], advance.before
            )
            new_knowledge = self._with_aggregates(tables, rows_after, previously_stored, advance.after)
            parts.append(Delta(rows_after.rows.take(previously_stored).fixed, old_knowledge, new_knowledge))
        not_stored = affected[row_match.stored_indices[affected] < 0]
        if len(not_stored):
            assert delta is not None
            new_knowledge = self._with_aggregates(tables, rows_after, not_stored, advance.after)
            new_delta = delta.take(not_stored - len(row_match.unchanged))
            old_mask = new_delta.old_mask()
            old = (
                RowKnowledge(new_knowledge.columns, old_mask, np.zeros(len(not_stored), np.int64))
                if masks.is_present(old_mask).any()
                else None
            )
            parts.append(self._with_fixed_aggregates(Delta(new_delta.fixed, old, new_knowledge)))
        return (
            drop_unchanged_rows(concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden)
            if parts
            else None
        )

    def _rows_after(
        self,
        stored_delta: Delta,
        row_match: "_StoredRowMatch",
        delta: Delta | None,
        stored_hashes: Array,
        delta_hashes: Array | None,
    ) -> "_GroupedRows":
        if delta is None or delta_hashes is None:
            return _GroupedRows(stored_delta, self._group_numbers(stored_delta, stored_hashes))
        rows = Delta(delta.fixed, None, delta.new)
        if len(row_match.unchanged):
            rows = concat_deltas(self.stored_layout, [stored_delta.take(row_match.unchanged), rows])
        return _GroupedRows(
            rows, self._group_numbers(rows, np.concatenate([stored_hashes[row_match.unchanged], delta_hashes]))
        )

    def _affected_rows(self, rows_after: "_GroupedRows", unchanged_count: int, is_sealed: Array) -> Indices:
        """Rows that have changed or been sealed, and rows whose windows contain a changed row. The first
        `unchanged_count` rows are those that the delta does not change."""
        count = len(rows_after.rows)
        if self.is_final_on_arrival:
            return np.arange(unchanged_count, count)
        is_affected = np.ones(count, bool)
        is_affected[:unchanged_count] = is_sealed
        if 0 < unchanged_count < count:
            group_numbers, row_ticks = rows_after.group_numbers, rows_after.rows.fixed[self.by].data
            distinct_ticks, rank = np.unique(row_ticks, return_inverse=True)
            rank = rank.reshape(-1)
            changed_points = np.sort(group_numbers[unchanged_count:] * len(distinct_ticks) + rank[unchanged_count:])
            base = group_numbers[:unchanged_count] * len(distinct_ticks)
            window_start: Array | int = 0
            if self.span is not None:
                start_ticks = shift_ticks(row_ticks[:unchanged_count], -self.span)
                window_start = np.searchsorted(distinct_ticks, start_ticks)
            changes_before_end = np.searchsorted(changed_points, base + rank[:unchanged_count], side="right")
            changes_before_start = np.searchsorted(changed_points, base + window_start)
            is_affected[:unchanged_count] |= changes_before_end > changes_before_start
        return np.flatnonzero(is_affected)

    def _with_aggregates(
        self, tables: State, grouped_rows: "_GroupedRows", target_rows: Indices, horizons: Horizons
    ) -> RowKnowledge:
        """The knowledge of the target rows, with their aggregates over the windows in `grouped_rows`."""
        rows = grouped_rows.rows
        windows = RowWindows.for_rows(grouped_rows.group_numbers, rows.fixed[self.by].data, target_rows, self.span)
        target_delta = rows.take(target_rows)
        totals: TableRows = zero_rows(list(self.aggregates.accumulators.values()), len(target_rows))
        if self.has_running_totals and tables[TOTALS].runs:
            key = [target_delta.fixed[c] for c in self.per]
            totals = tables[TOTALS].find(key)[1]
            if not key:
                totals = totals.take(np.zeros(len(target_rows), np.int64))
        seal_columns = {
            c: unchanging_values(c, target_delta.fixed, target_delta.new.columns) for c in self.seal_index.seal_columns
        }
        is_sealed = self.seal_index.is_sealed(horizons, seal_columns, len(target_rows))
        aggregates, steps = self.aggregates.compute(windows, rows, totals, is_sealed)
        columns: dict[str, KnowledgeColumn] = {c: target_delta.new.columns[c] for c in self.source_layout.evolving}
        return RowKnowledge({**columns, **aggregates}, target_delta.new.mask, steps)

    def _with_fixed_aggregates(self, delta: Delta) -> Delta:
        """Turns aggregates that are final on arrival into fixed columns."""
        fixed_columns = [c for c in delta.new.columns if c in self.layout.fixed]
        if not fixed_columns:
            return delta
        fixed = {**delta.fixed, **{c: k.current_values(delta.new.columns[c]) for c in fixed_columns}}
        evolving_columns = {c: delta.new.columns[c] for c in self.layout.evolving}
        return Delta(fixed, None, RowKnowledge(evolving_columns, delta.new.mask, delta.new.steps))

    def _group_numbers(self, rows: Delta, group_hashes: Array) -> Array:
        if self.has_evolving_groups or not self.per:
            return np.zeros(len(rows), np.int64)
        return RowGroups([rows.fixed[c] for c in self.per], len(rows), group_hashes.view(np.uint64)).group_numbers

    def _group_hashes(self, fixed: Mapping[str, ValueColumn], count: int) -> ValueColumn:
        return compute_group_hashes([] if self.has_evolving_groups else [fixed[c] for c in self.per], count)

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _store_rows(
        self, tables: dict[str, StateTable], delta: Delta, group_hashes: Array | None, advance: HorizonAdvance
    ) -> None:
        assert group_hashes is not None
        is_live = masks.can_be_shown(delta.new.mask)
        seal_columns = {
            c: unchanging_values(c, delta.fixed, delta.new.columns)
            for c in self.release_index.seal_columns | self.seal_index.seal_columns
        }
        is_released = is_live & self.release_index.is_sealed(advance.after, seal_columns, len(delta))
        if is_released.any():
            self._fold_into_totals(tables, delta.take(np.flatnonzero(is_released)))
        is_stored = is_live & ~is_released
        to_store = np.flatnonzero(is_stored | masks.can_be_shown(delta.old_mask()))
        if not len(to_store):
            return
        stored_delta = delta.take(to_store)
        seal_columns = {c: column.take(to_store) for c, column in seal_columns.items()}
        rows = {
            **encode_rows(self.stored_layout, stored_delta.fixed, stored_delta.new),
            GROUP_HASH: ValueColumn(group_hashes[to_store]),
        }
        rows |= {
            **self.seal_index.tick_values(seal_columns, len(to_store)),
            **self.release_index.tick_values(seal_columns, len(to_store)),
        }
        tables[ROWS] = tables[ROWS].with_rows(rows, ~is_stored[to_store])

    def _fold_into_totals(self, tables: dict[str, StateTable], rows: Delta) -> None:
        """Adds released rows to the running totals of their groups, if there are totals. All later rows have them in
        their windows."""
        if not self.has_running_totals:
            return
        groups = RowGroups([rows.fixed[c] for c in self.per], len(rows))
        key = {c: rows.fixed[c].take(groups.first) for c in self.per}
        columns = [key[c] for c in self.per]
        old_totals = tables[TOTALS].find(columns)[1]
        context = GroupContext(key, hashes(columns, groups.count), tables, reject_member_lookup)
        totals: dict[str, ValueColumn] = {stored_column(c): column for c, column in key.items()}
        for accumulator in self.aggregates.accumulators.values():
            totals.update(
                accumulator.absorb(old_totals, MemberDelta(Delta(rows.fixed, None, rows.new), groups), context).rows
            )
        tables[TOTALS] = tables[TOTALS].with_rows(totals)


def _output_layout(
    source_layout: Layout,
    aggregate_columns: Mapping[str, EvolvingColumnLayout],
    is_final: bool,
    includes_permanently_hidden: bool,
) -> Layout:
    """If rows are final on arrival, their aggregates are fixed columns, except object columns."""
    exact = {n: e.data for n, e in aggregate_columns.items() if is_final and e.kind != "object"}
    rest = {n: e for n, e in aggregate_columns.items() if n not in exact}
    return Layout(
        source_layout.key,
        {**source_layout.fixed, **exact},
        {**source_layout.evolving, **rest},
        source_layout.certain,
        includes_permanently_hidden,
    )


@dataclass(frozen=True)
class _GroupedRows:
    """Rows with the numbers of their groups."""

    rows: Delta
    group_numbers: Array


@dataclass(frozen=True)
class _StoredRowMatch:
    """`unchanged`: the indices of the stored rows that the delta does not change. `stored_indices`: for each of these,
    and then for each row of the delta, its index among the stored rows, or -1."""

    unchanged: Indices
    stored_indices: Indices

    @staticmethod
    def find(
        table: StateTable, stored_rows: RowLookup, delta: Delta | None, source_layout: Layout
    ) -> "_StoredRowMatch":
        all_indices = np.arange(stored_rows.row_count)
        if delta is None:
            return _StoredRowMatch(all_indices, all_indices)
        stored_indices = np.full(len(delta), -1)
        if delta.old is None:
            return _StoredRowMatch(all_indices, np.concatenate([all_indices, stored_indices]))
        if stored_rows.row_count and masks.is_present(delta.old_mask()).any():
            _, matches = table.find([delta.fixed[c] for c in source_layout.key])
            stored_indices = matches.positions_in(stored_rows)
        unchanged = np.setdiff1d(all_indices, stored_indices)
        return _StoredRowMatch(unchanged, np.concatenate([unchanged, stored_indices]))
