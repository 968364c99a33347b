"""Tracks whether each row of one side of a join, the probe side, has a match on the other side, the build side.

A probe row is stored, with its last output, until that output is final. Later changes of rows that are no longer stored
do not affect the output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import MaskColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.horizons import END
from smile.kernels.delta import Delta, RowKnowledge
from smile.kernels.joins import kleene
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.joins.match_counter import (
    MatchCounter,
    MatchCounts,
    MatchUpdate,
    ValueMatchCounter,
    can_count_by_value,
    counter_columns,
    encode_counts,
)
from smile.kernels.joins.pair_match_counter import PairMatchCounter
from smile.kernels.seals import HorizonAdvance, Horizons
from smile.kernels.transform import State
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

OUTPUT_POSSIBLE, OUTPUT_NOW, OUTPUT_STEPS = "told possible", "told now", "told steps"
"""Columns of a stored probe row: the last output of whether it has a match, and the steps of its matches. The names are
part of the stored format."""

MatchTest = Literal["semi", "anti", "match"]
"""The output for a row: shown if it has a match, shown if it has none, or shown with the result in a Boolean column."""


@dataclass(frozen=True)
class MatchDelta:
    """Probe rows that changed or whose matches changed, with whether they have a match and the steps of the matches,
    before and after the batch."""

    delta: Delta
    had_match: MaskColumn
    has_match: MaskColumn
    steps_before: Array
    steps: Array

    def take(self, indices: Indices) -> "MatchDelta":
        had_match, has_match = self.had_match.take(indices), self.has_match.take(indices)
        return MatchDelta(
            self.delta.take(indices), had_match, has_match, self.steps_before[indices], self.steps[indices]
        )


class MatchTracker:
    def __init__(self, sides: JoinSides, probe: JoinSide, test: MatchTest, total: bool) -> None:
        self.probe, self.build, self.test = probe, sides.other(probe), test
        self.total, self.is_null_aware = total, sides.rel.null_aware
        counts_by_value = can_count_by_value(sides.rel, sides, self.build) and not total
        self.match_counter: MatchCounter = (
            ValueMatchCounter(sides, probe, self.build)
            if counts_by_value
            else PairMatchCounter(sides, probe, self.build, total)
        )
        self.probe_table = f"{probe.name} rows"
        output_columns = {OUTPUT_POSSIBLE: pa.uint8(), OUTPUT_NOW: pa.uint8(), OUTPUT_STEPS: pa.int64()}
        count_columns = counter_columns(self.match_counter.width) if self.match_counter.is_per_row else {}
        flag_columns = self.match_counter.flag_columns()
        columns = {**probe.table_schema.columns, **output_columns, **count_columns, **flag_columns}
        schema = TableSchema(
            probe.table_schema.key, columns, self.match_counter.probe_indexes, probe.table_schema.tick_indexes
        )
        self.table_schemas = {self.probe_table: schema, **self.match_counter.table_schemas}
        self.table_sources = {self.probe_table: probe.table_source, **self.match_counter.table_sources}

    def can_seal_rows(self, advance: HorizonAdvance) -> bool:
        return self.probe.match_seals.can_seal_rows(advance) or self.match_counter.probe_seals.can_seal_rows(advance)

    def step(
        self, state: State, probe_delta: Delta | None, build_delta: Delta | None, advance: HorizonAdvance
    ) -> tuple[State, Sequence[MatchDelta]]:
        table = state[self.probe_table]
        update = self.match_counter.absorb(state, table, build_delta)
        other_rows = RowLookup.union(
            table,
            [
                update.affected_rows,
                *([self.probe.rows_with_final_matches(table, advance)] if advance.has_moved else []),
            ],
        )
        parts, removed_parts, probe_rows = [], [], table
        if probe_delta is not None:
            probe_delta, stored = self.probe.find_stored(table, probe_delta)
            other_rows = other_rows if stored is None else other_rows.without(stored)
            if len(probe_delta):
                match_delta, counts = self._test_matches(probe_delta, stored, update, advance)
                parts.append(match_delta)
                probe_rows, removed = self._store_rows(probe_rows, match_delta, counts, stored)
                removed_parts.append(removed)
        if other_rows.row_count:
            rows = self.probe.decode_rows(other_rows)
            match_delta, counts = self._test_matches(
                Delta(rows.fixed, rows.knowledge, rows.knowledge), other_rows, update, advance
            )
            parts.append(match_delta)
            probe_rows, removed = self._store_rows(probe_rows, match_delta, counts, other_rows)
            removed_parts.append(removed)
        if all(h >= END for h in advance.after.values()):
            return {name: StateTable(schema) for name, schema in self.table_schemas.items()}, parts
        removed_rows = RowLookup.union(table, [d for d in removed_parts if d is not None])
        return {
            **self.match_counter.expire(update, probe_rows, removed_rows, advance),
            self.probe_table: probe_rows,
        }, parts

    def _test_matches(
        self, delta: Delta, stored: RowLookup | None, update: MatchUpdate, advance: HorizonAdvance
    ) -> tuple[MatchDelta, MatchCounts]:
        rows = JoinRows(delta.fixed, delta.new)
        counts = self.match_counter.count_matches(update, rows, stored, advance.after)
        has_match = kleene.has_match(counts.counters, self._can_gain_match(rows, update, advance.after))
        if stored is None:
            return MatchDelta(delta, has_match, has_match, counts.steps, counts.steps), counts
        had_match = MaskColumn(stored[OUTPUT_POSSIBLE].data, stored[OUTPUT_NOW].data)
        return MatchDelta(delta, had_match, has_match, stored[OUTPUT_STEPS].data, counts.steps), counts

    def _can_gain_match(self, rows: JoinRows, update: MatchUpdate, horizons: Horizons) -> Bools:
        """Whether an absent build row may still come and match."""
        can_gain: Bools = ~self.probe.has_final_matches(rows.fixed, len(rows), horizons)
        if not self.is_null_aware:
            can_gain &= self.probe.can_match(rows)
        if self.build.covers_key and can_gain.any() and (self.total or not self.build.source.type.can_become_absent):
            can_gain &= ~self.match_counter.is_match_present(update, rows)
        return can_gain

    # ── storing rows ────────────────────────────────────────────────────────────────────────────────────────────────

    def shown_codes(self, has_match: MaskColumn) -> MaskCodes:
        """The mask that the match test gives to a row."""
        if self.test == "match":
            return masks.full(masks.T, len(has_match))
        return kleene.as_filter(has_match if self.test == "semi" else kleene.negation(has_match))

    def _store_rows(
        self, table: StateTable, match_delta: MatchDelta, counts: MatchCounts, stored: RowLookup | None
    ) -> tuple[StateTable, RowLookup | None]:
        """The table with these rows as they are now, but without final ones; and the stored rows that were removed."""
        delta, new = match_delta.delta, match_delta.delta.new
        shown = self.shown_codes(match_delta.has_match)
        is_test_final = match_delta.has_match.is_final() if self.test == "match" else shown == masks.T
        keep = masks.can_be_shown(masks.all_of(new.mask, shown)) & ~(is_test_final & self._is_final(new))
        is_stored = np.zeros(len(new), bool) if stored is None else stored.run_numbers >= 0
        changed_rows = np.flatnonzero(keep | is_stored)
        removed = None if stored is None else stored.take(np.flatnonzero(is_stored & ~keep))
        if not len(changed_rows):
            return table, removed
        rows = JoinRows(delta.fixed, new)
        if len(changed_rows) < len(new):
            rows, match_delta, counts, keep = (
                rows.take(changed_rows),
                match_delta.take(changed_rows),
                counts.take(changed_rows),
                keep[changed_rows],
            )
        output_columns = {
            OUTPUT_POSSIBLE: ValueColumn(match_delta.has_match.possible),
            OUTPUT_NOW: ValueColumn(match_delta.has_match.now),
            OUTPUT_STEPS: ValueColumn(match_delta.steps),
        }
        count_columns = encode_counts(counts) if self.match_counter.is_per_row else {}
        encoded = {
            **self.probe.encode_rows(rows.fixed, rows.knowledge),
            **output_columns,
            **count_columns,
            **self.match_counter.flags(self.probe, rows),
        }
        return table.with_rows(encoded, None if keep.all() else ~keep), removed

    def _is_final(self, knowledge: RowKnowledge) -> Bools:
        is_final = knowledge.mask == masks.T
        for name in self.probe.layout.evolving:
            is_final = is_final & k.is_final(knowledge.columns[name])
        return is_final
