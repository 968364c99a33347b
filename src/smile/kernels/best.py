"""The k best rows of each group. A row is permanently excluded, and expires, when k permanently shown rows surely
precede it.

Such a row cannot affect other rows: those k rows also precede every row that it precedes. If rows are certain and their
order never changes, the state is therefore the k best rows of each group.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_range_column
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.aggregates.contributions import AggregateArgument
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.group_index import (
    GROUP_HASH,
    compute_group_hashes,
    find_column,
    find_group_rows,
    unchanging_values,
)
from smile.kernels.layout import Layout
from smile.kernels.ordering import RowRanks, count_preceding, range_ranks, rank_rows
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, stored_column, table_columns
from smile.kernels.seals import HorizonAdvance, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.operators.best import group_closing_seals
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

ROWS, OUTPUT_MASK = "rows", "out"
"""The table of source rows, and its column with the masks of the output."""

PAIRS_MAX = 1 << 20
"""How many pairs of rows are compared at once if the group columns evolve. Bounds memory."""


@dataclass(frozen=True)
class _RankedPart:
    """Rows to rank together with others. `output_mask`: their masks in the previous output."""

    fixed: Mapping[str, ValueColumn]
    knowledge: RowKnowledge
    output_mask: MaskCodes
    group_hashes: Array

    def __len__(self) -> int:
        return len(self.output_mask)

    def take(self, indices: Array) -> "_RankedPart":
        delta = Delta(self.fixed, None, self.knowledge).take(indices)
        return _RankedPart(delta.fixed, delta.new, self.output_mask[indices], self.group_hashes[indices])


class BestTransform(Transform):
    """Stores, by group, the rows that can be among the best. A group that changes is ranked again as a whole. If the
    group columns evolve, all rows are one stored group and are compared in pairs."""

    def __init__(self, rel: mmpl.Best, source: InputRelation, output: OutputRelation) -> None:
        source_layout = source.layout
        self.k, self.per = rel.k, rel.per
        self.by = [(AggregateArgument(e, source), descending) for e, descending in rel.by]
        self.layout = Layout(
            source_layout.key, source_layout.fixed, source_layout.evolving, False, output.includes_permanently_hidden
        )
        self.types = source.type.heading.columns
        self.has_evolving_groups = any(c in source_layout.evolving for c in rel.per)
        self.has_final_order = (
            source_layout.certain and not self.has_evolving_groups and all(e.is_fixed for e, _ in self.by)
        )
        self.seal_index = SealIndex(output.type.seals, self.types, "until ")
        closing_seals = group_closing_seals(rel, source.type)
        has_early_seals = closing_seals != output.type.seals
        # A rank may be final before the group is: then other rows of the group still need the row.
        self.closing_index = SealIndex(closing_seals, self.types, "open ") if has_early_seals else self.seal_index
        self.indexes = [self.seal_index, self.closing_index] if has_early_seals else [self.seal_index]
        tick_columns = {name: kind for index in self.indexes for name, kind in index.column_types.items()}
        columns = {**table_columns(self.layout), OUTPUT_MASK: pa.uint8(), GROUP_HASH: pa.int64(), **tick_columns}
        key = tuple(map(stored_column, source_layout.key))
        self.table_schemas = {
            ROWS: TableSchema(key, columns, indexes=((GROUP_HASH,),), tick_indexes=tuple(tick_columns))
        }

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return any(index.can_seal_rows(advance) for index in self.indexes)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        table, delta = state[ROWS], inputs[0]
        delta_hashes = None if delta is None else self._group_hashes(delta.fixed, len(delta)).data
        hash_parts = [] if delta_hashes is None else [delta_hashes]
        for index in self.indexes:
            if index.can_seal_rows(advance):
                hash_parts.append(index.find_sealed_rows(table, advance)[GROUP_HASH].data)
        affected_hashes = np.concatenate(hash_parts) if hash_parts else np.zeros(0, np.int64)
        if not len(affected_hashes):
            return state, None
        stored_rows = find_group_rows(table, affected_hashes)
        delta_part = None
        if delta is not None:
            stored_rows, old_mask = self._split_unchanged(table, stored_rows, delta)
            delta_part = _RankedPart(delta.fixed, delta.new, old_mask, delta_hashes)
        knowledge = decode_knowledge(self.layout, stored_rows)
        stored_part = _RankedPart(
            decode_fixed(self.layout, stored_rows),
            knowledge,
            stored_rows[OUTPUT_MASK].data,
            stored_rows[GROUP_HASH].data,
        )
        return self._rank_groups(table, stored_rows, stored_part, delta_part, delta, advance)

    def _group_hashes(self, fixed: Mapping[str, ValueColumn], count: int) -> ValueColumn:
        return compute_group_hashes([] if self.has_evolving_groups else [fixed[c] for c in self.per], count)

    def _split_unchanged(self, table: StateTable, stored_rows: RowLookup, delta: Delta) -> tuple[RowLookup, MaskCodes]:
        """The stored rows that the delta does not change, and the previous output masks of the delta's rows. A row that
        was present but is not stored has been excluded."""
        source_mask = delta.old_mask()
        if not masks.is_present(source_mask).any():
            return stored_rows, source_mask
        is_stored, matches = table.find([delta.fixed[c] for c in self.layout.key])
        output_mask = np.where(
            is_stored, matches[OUTPUT_MASK].data, np.where(masks.is_present(source_mask), masks.F, masks.ABSENT)
        ).astype(np.uint8)
        return stored_rows.without(matches), output_mask

    def _rank_groups(
        self,
        table: StateTable,
        stored_rows: RowLookup,
        stored_part: _RankedPart,
        delta_part: _RankedPart | None,
        delta: Delta | None,
        advance: HorizonAdvance,
    ) -> tuple[State, Delta | None]:
        live_rows = (
            np.zeros(0, np.int64)
            if delta_part is None
            else np.flatnonzero(masks.can_be_shown(delta_part.knowledge.mask))
        )
        parts = [stored_part] if delta_part is None else [stored_part, delta_part.take(live_rows)]
        rank_masks, is_expired = self._rank_masks([p for p in parts if len(p)], advance)
        stored_count = len(stored_part)
        stored_mask = masks.all_of(stored_part.knowledge.mask, rank_masks[:stored_count])
        deltas = []
        altered = np.flatnonzero((stored_mask != stored_part.output_mask) | is_expired[:stored_count])
        if len(altered):
            stored_rows = stored_rows.take(altered)
            stored_knowledge = decode_knowledge(self.layout, stored_rows)
            knowledge_before, knowledge_after = (
                RowKnowledge(stored_knowledge.columns, output_mask, stored_knowledge.steps)
                for output_mask in (stored_part.output_mask[altered], stored_mask[altered])
            )
            deltas.append(Delta(decode_fixed(self.layout, stored_rows), knowledge_before, knowledge_after))
            table = table.with_rows(
                {**stored_rows, OUTPUT_MASK: ValueColumn(stored_mask[altered])}, is_expired[:stored_count][altered]
            )
        if delta_part is not None and delta is not None:
            mask = delta_part.knowledge.mask.copy()
            mask[live_rows] = masks.all_of(mask[live_rows], rank_masks[stored_count:])
            new_output = RowKnowledge(delta.new.columns, mask, delta.new.steps)
            old_output = (
                None if delta.old is None else RowKnowledge(delta.old.columns, delta_part.output_mask, delta.old.steps)
            )
            deltas.append(Delta(delta.fixed, old_output, new_output))
            is_deleted = np.ones(len(delta), bool)
            is_deleted[live_rows] = is_expired[stored_count:]
            to_store = np.flatnonzero(~is_deleted | masks.can_be_shown(delta_part.output_mask))
            if len(to_store):
                encoded = self._encode_rows(delta.take(to_store), mask[to_store], delta_part.group_hashes[to_store])
                table = table.with_rows(encoded, is_deleted[to_store])
        return {ROWS: table}, drop_unchanged_rows(
            concat_deltas(self.layout, deltas), self.layout.includes_permanently_hidden
        ) if deltas else None

    def _encode_rows(self, delta: Delta, output_mask: MaskCodes, group_hashes: Array) -> dict[str, ValueColumn]:
        fixed, count = delta.fixed, len(delta)
        rows = {
            **encode_rows(self.layout, fixed, delta.new),
            OUTPUT_MASK: ValueColumn(output_mask),
            GROUP_HASH: ValueColumn(group_hashes),
        }
        for index in self.indexes:
            rows |= index.tick_values(self._seal_columns(index, fixed, delta.new.columns), count)
        return rows

    def _seal_columns(
        self, index: SealIndex, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]
    ) -> dict[str, ValueColumn]:
        return {c: unchanging_values(c, fixed, columns) for c in index.seal_columns}

    def _sealed_rows(self, index: SealIndex, parts: Sequence[_RankedPart], advance: HorizonAdvance) -> Bools:
        return np.concatenate(
            [
                index.is_sealed(advance.after, self._seal_columns(index, p.fixed, p.knowledge.columns), len(p))
                for p in parts
            ]
        )

    # ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rank_masks(self, parts: Sequence[_RankedPart], advance: HorizonAdvance) -> tuple[MaskCodes, Bools]:
        """For each row the mask of being among the best of its group, and whether it expires."""
        if not parts:
            return masks.full(masks.F, 0), np.zeros(0, bool)
        count = sum(map(len, parts))
        mask = np.concatenate([p.knowledge.mask for p in parts])
        order_columns = [
            (k.concat([e.evaluate(p.fixed, p.knowledge.columns, len(p)) for p in parts]), descending)  # type: ignore[type-var]
            for e, descending in self.by
        ]
        key = [k.concat([p.fixed[c] for p in parts]) for c in self.layout.key]
        ranks = rank_rows(order_columns, key, count)
        group_numbers = np.zeros(count, np.int64)
        if not self.has_evolving_groups:
            group_hashes = np.concatenate([p.group_hashes for p in parts]).view(np.uint64)
            group_numbers = RowGroups(
                [k.concat([p.fixed[c] for p in parts]) for c in self.per], count, group_hashes
            ).group_numbers
        if self.has_final_order:
            ahead = count_preceding(ranks.now, np.ones(count, np.int64), ranks.now, group_numbers, ranks.size)
            surely_ahead, maybe_ahead = ahead, ahead
        elif self.has_evolving_groups:
            ahead, surely_ahead, maybe_ahead = self._count_in_pairs(parts, mask, ranks)
        else:
            ahead = count_preceding(
                ranks.now, masks.is_shown(mask).astype(np.int64), ranks.now, group_numbers, ranks.size
            )
            surely_ahead = count_preceding(
                ranks.last, masks.is_permanently_shown(mask).astype(np.int64), ranks.first, group_numbers, ranks.size
            )
            maybe_ahead = count_preceding(
                ranks.first, masks.can_be_shown(mask).astype(np.int64), ranks.last, group_numbers, ranks.size
            )
        is_sealed = self._sealed_rows(self.seal_index, parts, advance)
        is_excluded, is_included = surely_ahead >= self.k, (maybe_ahead < self.k) & is_sealed
        codes = np.where(ahead < self.k, masks.SHOWN, masks.HIDDEN)
        codes = np.where(is_excluded, masks.F, np.where(is_included, masks.T, codes))
        # A group expires when no row can be added and all of its rows are decided.
        is_closed = is_sealed
        if self.closing_index is not self.seal_index:
            is_closed = self._sealed_rows(self.closing_index, parts, advance)
        is_open = ~(is_closed & (is_excluded | is_included))
        is_group_open = np.bincount(group_numbers, is_open, int(group_numbers.max()) + 1)[group_numbers] > 0
        return codes.astype(np.uint8), is_excluded | ~is_group_open

    def _count_in_pairs(
        self, parts: Sequence[_RankedPart], mask: MaskCodes, ranks: RowRanks
    ) -> tuple[Array, Array, Array]:
        """For each row, how many rows of its group precede it now, surely, and possibly. Whether two rows are in one
        group can itself be uncertain."""
        key_ranks = []
        for c in self.per:
            ranges = [to_range_column(find_column(c, p.fixed, p.knowledge.columns)) for p in parts]
            key_ranks.append(range_ranks(k.concat(ranges)))
        count = len(mask)
        is_shown, is_live = masks.is_shown(mask), masks.can_be_shown(mask)
        is_permanent = masks.is_permanently_shown(mask)
        totals = [np.empty(count, np.int64) for _ in range(3)]
        for chunk in _row_chunks(count):
            now, sure, may = (np.ones((len(chunk), count), bool) for _ in range(3))
            all_rows, chunk_rows = slice(None), chunk[:, None]
            for column_ranks in key_ranks:
                now &= column_ranks.now[chunk_rows] == column_ranks.now
                sure &= column_ranks.is_surely_equal(all_rows, chunk_rows)
                may &= column_ranks.can_be_equal(all_rows, chunk_rows)
            now &= is_shown & (ranks.now < ranks.now[chunk_rows])
            sure &= is_permanent & (ranks.last < ranks.first[chunk_rows])
            may &= is_live & (ranks.first < ranks.last[chunk_rows])
            may[np.arange(len(chunk)), chunk] = False
            for counts, pairs in zip(totals, (now, sure, may), strict=True):
                counts[chunk] = pairs.sum(axis=1)
        return totals[0], totals[1], totals[2]


def _row_chunks(count: int) -> Iterator[Array]:
    size = max(1, PAIRS_MAX // max(count, 1))
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))
