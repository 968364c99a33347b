"""Counts matches per probe row: each pair of rows matches with its own mask.

This is for joins that depend on more than fixed join key columns: other conditions, null-aware equality (NOT IN),
columns that evolve. A new probe row is compared with all build rows that it may match. If the condition uses evolving
probe columns, or the build side is total, a probe row that a change affects is compared with all of them again. If a
join key column evolves, there is no index, so all rows are compared. These cases are slow, and so are rows with NULL in
a null-aware join, because NULL may match every row.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from smile.algebra import trees
from smile.columns import knowledge as k, masks
from smile.columns.row_limit import check_row_count
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.delta import Delta
from smile.kernels.joins import kleene
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.joins.match_counter import MatchCounter, MatchCounts, MatchUpdate, decode_counts
from smile.kernels.row_encoding import encode_rows, stored_column, table_columns
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex, all_or_never
from smile.kernels.transform import State
from smile.knowledge.join_types import match_constraints
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

HAS_NULL = "asks for NULL"
"""Column of both tables in a null-aware join: whether the join key of the row contains NULL. The name is part of the
stored format."""


class PairMatchCounter(MatchCounter):
    is_per_row = True

    def __init__(self, sides: JoinSides, probe: JoinSide, build: JoinSide, total: bool) -> None:
        self.sides, self.probe, self.build, self.total = sides, probe, build, total
        self.is_null_aware = sides.rel.null_aware
        self.width = kleene.COUNTERS_NULL_AWARE if self.is_null_aware else kleene.COUNTERS_PLAIN
        pairs = list(zip(probe.on, build.on, strict=True))
        self.lookup_columns = {b: a for a, b in pairs}
        indexed = [(self.lookup_columns[b], b) for b in build.key] if build.covers_key else pairs
        self.indexed_pairs = [] if sides.has_evolving_keys else indexed
        """The pairs of columns by which rows are looked up. If the join covers the build key, these are only the key
        columns: whether the build row is present matters even if other columns differ."""
        self.compared_pairs = pairs if self.is_null_aware else [p for p in pairs if p not in self.indexed_pairs]
        self.types = probe.source.layout.types
        named = trees.columns_in(sides.rel.when) if sides.rel.when is not None else frozenset()
        self.must_recount = sides.has_evolving_keys or total or any(c in probe.layout.evolving for c in named)
        """Whether the matches of a probe row are counted again whenever the row or one of its matches changes."""
        self.probe_indexes = self._indexes([a for a, _ in self.indexed_pairs])
        self.build_table = f"{build.name} rows that match"
        # A build row that is found by its key alone is needed also by probe rows for which the condition is false.
        rel = replace(sides.rel, when=None) if build.covers_key else sides.rel
        ties = match_constraints(rel, sides.left.source.type, sides.right.source.type)
        seals = {s: ties.express_seal(seal, build.fixed) for s, seal in probe.source.type.seals.items()}
        self.probe_seals = SealIndex(all_or_never(seals), build.source.type.heading.columns, "asked by ")
        ticks = self.probe_seals.column_types
        columns = {**table_columns(build.layout), **ticks, **self.flag_columns()}
        indexes = self._indexes([b for _, b in self.indexed_pairs])
        self.table_schemas = {self.build_table: TableSchema(build.table_schema.key, columns, indexes, tuple(ticks))}
        self.table_sources = {self.build_table: build.table_source}

    def _indexes(self, on: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        by_value = (tuple(stored_column(c) for c in on),) if on else ()
        return (*by_value, (HAS_NULL,)) if self.is_null_aware and not self.sides.has_evolving_keys else by_value

    # ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def flag_columns(self) -> dict[str, pa.DataType]:
        return {HAS_NULL: pa.int64()} if self.is_null_aware else {}

    def flags(self, side: JoinSide, rows: JoinRows) -> dict[str, ValueColumn]:
        if not self.is_null_aware:
            return {}
        if self.sides.has_evolving_keys:
            return {HAS_NULL: ValueColumn(np.zeros(len(rows), np.int64))}
        return {HAS_NULL: ValueColumn(self._has_null([rows.fixed[c] for c in side.on], len(rows)).astype(np.int64))}

    @staticmethod
    def _has_null(columns: Sequence[ValueColumn], count: int) -> Bools:
        has_null = np.zeros(count, bool)
        for column in columns:
            has_null |= column.is_null()
        return has_null

    def _candidates(self, table: StateTable, side: JoinSide, rows: JoinRows) -> tuple[Indices, RowLookup]:
        """The stored rows of `side` that may match `rows` of the other side: numbers of the latter, each with a row."""
        count = len(rows)
        other_side = self.sides.other(side)
        pairs = [(a, b) if side is self.probe else (b, a) for a, b in self.indexed_pairs]
        if not pairs:
            return cross_rows(np.arange(count), table.scan())
        key = [rows.fixed[b] for _, b in pairs]
        row_numbers, lookup = table.match(tuple(stored_column(a) for a, _ in pairs), key)
        if not self.is_null_aware:
            return row_numbers, lookup
        has_null = self._has_null([rows.fixed[c] for c in other_side.on], count)
        without_null = np.flatnonzero((lookup[HAS_NULL].data == 0) & ~has_null[row_numbers])
        parts = [(row_numbers[without_null], lookup.take(without_null))]
        if not has_null.all():
            stored_with_null = table.match((HAS_NULL,), [ValueColumn(np.ones(1, np.int64))])[1]
            parts.append(cross_rows(np.flatnonzero(~has_null), stored_with_null))
        if has_null.any():
            parts.append(cross_rows(np.flatnonzero(has_null), table.scan()))
        return np.concatenate([numbers for numbers, _ in parts]), RowLookup(
            table, np.concatenate([p.run_numbers for _, p in parts]), np.concatenate([p.row_numbers for _, p in parts])
        )

    def _count_pairs(self, probe: JoinRows, build: JoinRows) -> MatchCounts:
        """What each pair adds to the counters of its probe row."""
        left, right = (probe, build) if self.probe is self.sides.left else (build, probe)
        build_mask = build.knowledge.mask
        present = masks.is_present(build_mask)
        if self.total:
            build_mask = np.where(present, np.uint8(masks.T), build_mask)
        if not self.is_null_aware:
            is_left = self.probe is self.sides.left
            match = self.sides.match_codes(left, right, [(a, b) if is_left else (b, a) for a, b in self.compared_pairs])
            pair_codes = np.where(present, masks.all_of(build_mask, match), np.uint8(masks.ABSENT))
            return MatchCounts(
                kleene.counter_increments(pair_codes),
                np.where(present & masks.can_be_shown(match), build.knowledge.steps, 0),
            )
        test = kleene.masks_from_codes(masks.full(masks.T, len(probe)))
        for a, b in self.compared_pairs:
            equal = kleene.compare_columns("=", probe.column(a), build.column(b))
            test = kleene.conjunction(test, equal)
        when = self.sides.evaluate_condition(left, right)
        if when is not None:
            test = kleene.conjunction(test, kleene.masks_from_codes(when))
        steps = np.where(present & (test.possible != kleene.FALSE), build.knowledge.steps, 0)
        return MatchCounts(
            kleene.null_aware_increments(kleene.conjunction(kleene.masks_from_codes(build_mask), test), present), steps
        )

    # ── processing a batch ──────────────────────────────────────────────────────────────────────────────────────────

    def absorb(self, state: State, probe_rows: StateTable, build_delta: Delta | None) -> MatchUpdate:
        rows = state[self.build_table]
        if build_delta is None:
            return MatchUpdate(state, probe_rows.no_rows())
        new = JoinRows(build_delta.fixed, build_delta.new)
        build_numbers, affected = self._candidates(probe_rows, self.probe, new)
        counter_changes = None
        if not self.must_recount and len(build_numbers):
            affected_probe = self.probe.decode_rows(affected)
            counter_changes = self._count_pairs(affected_probe, new.take(build_numbers))
            if build_delta.old is not None:
                old_counts = self._count_pairs(
                    affected_probe, JoinRows(build_delta.fixed, build_delta.old).take(build_numbers)
                )
                counter_changes = MatchCounts(
                    counter_changes.counters - old_counts.counters, counter_changes.steps - old_counts.steps
                )
        key = [build_delta.fixed[c] for c in self.build.key]
        return MatchUpdate(
            {self.build_table: self._update_build_rows(rows, build_delta)}, affected, counter_changes, key
        )

    def _update_build_rows(self, table: StateTable, delta: Delta) -> StateTable:
        rows = JoinRows(delta.fixed, delta.new)
        mask = delta.new.mask
        keep = masks.is_present(mask) if self.build.layout.includes_permanently_hidden else masks.can_be_shown(mask)
        ticks = self.probe_seals.tick_values(delta.fixed, len(delta))
        encoded = {**encode_rows(self.build.layout, delta.fixed, delta.new), **ticks, **self.flags(self.build, rows)}
        return table.with_rows(encoded, None if keep.all() else ~keep)

    def count_matches(
        self, update: MatchUpdate, rows: JoinRows, stored: RowLookup | None, horizons: Horizons
    ) -> MatchCounts:
        if stored is None or self.must_recount:
            return self._recount(update, rows, horizons)
        counts = decode_counts(stored, self.width)
        if update.counter_changes is not None:
            counts = self._add_changes(counts, update, stored)
        new = np.flatnonzero(stored.run_numbers < 0)
        if len(new):
            recounted = self._recount(update, rows.take(new), horizons)
            counts.counters[new], counts.steps[new] = recounted.counters, recounted.steps
        return counts

    def _add_changes(self, counts: MatchCounts, update: MatchUpdate, stored: RowLookup) -> MatchCounts:
        assert update.counter_changes is not None
        rows = update.affected_rows.positions_in(stored)
        changes = np.flatnonzero(rows >= 0)
        counters, steps = counts.counters.copy(), counts.steps.copy()
        np.add.at(counters, rows[changes], update.counter_changes.counters[changes])
        np.add.at(steps, rows[changes], update.counter_changes.steps[changes])
        return MatchCounts(counters, steps)

    def _recount(self, update: MatchUpdate, rows: JoinRows, horizons: Horizons) -> MatchCounts:
        counts = MatchCounts.zeros(len(rows), self.width)
        probe_numbers, candidates = self._candidates(update.tables[self.build_table], self.build, rows)
        parts = [(probe_numbers, self.build.decode_rows(candidates))]
        if self.total:
            parts.append(self._default_rows(update, rows, horizons))
        for numbers, build_rows in parts:
            if len(numbers):
                pair_counts = self._count_pairs(rows.take(numbers), build_rows)
                np.add.at(counts.counters, numbers, pair_counts.counters)
                np.add.at(counts.steps, numbers, pair_counts.steps)
        return counts

    # ── lookup by the whole build key ───────────────────────────────────────────────────────────────────────────────

    def _lookup_keys(self, rows: JoinRows) -> list[ValueColumn]:
        """The build key that each probe row looks up at present."""
        return [k.current_values(rows.column(self.lookup_columns[c])) for c in self.build.key]

    def is_match_present(self, update: MatchUpdate, rows: JoinRows) -> Bools:
        count = len(rows)
        final = np.ones(count, bool)
        for name in self.probe.on:
            final &= k.is_final(rows.column(name))
        lookup_keys = self._lookup_keys(rows)
        is_stored = update.tables[self.build_table].find(lookup_keys)[0]
        is_stored = is_stored if lookup_keys else np.repeat(is_stored, count)
        if self.total:
            is_stored |= ~self._has_null(lookup_keys, count)
        return final & is_stored

    def _default_rows(self, update: MatchUpdate, rows: JoinRows, horizons: Horizons) -> tuple[Indices, JoinRows]:
        """The default rows of lookup keys whose build row is absent: numbers of the probe rows, and the default
        rows."""
        lookup_keys, source = self._lookup_keys(rows), self.build.source
        assert source.transform is not None, "a stream is never total"
        is_stored = update.tables[self.build_table].find(lookup_keys)[0]
        is_stored = is_stored if lookup_keys else np.repeat(is_stored, len(rows))
        absent_rows = np.flatnonzero(~is_stored & ~self._has_null(lookup_keys, len(rows)))
        key = {c: column.take(absent_rows) for c, column in zip(self.build.key, lookup_keys, strict=True)}
        defaults = source.transform.default_rows(key, len(absent_rows), horizons)
        return absent_rows, JoinRows(defaults.fixed, defaults.new)

    # ── expiry ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def expire(
        self, update: MatchUpdate, probe_rows: StateTable, removed_rows: RowLookup, advance: HorizonAdvance
    ) -> State:
        """Removes build rows that no more probe rows can match. If matches are counted again, a build row is needed
        until no stored probe row may match it."""
        rows = update.tables[self.build_table]
        parts = [self.probe_seals.find_sealed_rows(rows, advance)]
        if update.changed_keys and self.probe_seals.tick_columns:
            # A build row that comes late may be sealed already.
            is_stored, stored = rows.find(update.changed_keys)
            parts.append(stored.take(np.flatnonzero(is_stored)))
        if self.must_recount and removed_rows.row_count:
            parts.append(self._candidates(rows, self.build, self.probe.decode_rows(removed_rows))[1])
        candidates = self.probe_seals.keep_sealed(RowLookup.union(rows, parts), advance.after)
        if self.must_recount and candidates.row_count:
            needed, _ = self._candidates(probe_rows, self.probe, self.build.decode_rows(candidates))
            is_unused = np.ones(candidates.row_count, bool)
            is_unused[needed] = False
            candidates = candidates.take(np.flatnonzero(is_unused))
        return {self.build_table: rows.without_rows(candidates)} if candidates.row_count else update.tables


def cross_rows(numbers: Array, lookup: RowLookup) -> tuple[Indices, RowLookup]:
    """All combinations of a number and a row."""
    check_row_count(len(numbers) * lookup.row_count, "pairs of rows")
    repeated_numbers = np.repeat(numbers, lookup.row_count)
    return repeated_numbers, lookup.take(np.tile(np.arange(lookup.row_count), len(numbers)))
