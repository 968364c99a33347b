"""Matches counted beside each row that asks: each pair of rows matches under a mask of its own.

This is for what is more than equated: another condition, NULL that leaves the answer unknown, columns that evolve. A
row that asks anew is tried with every row it may match. Where what it asks for evolves, so is any that a change
touches, and where an equated column evolves there is no index to find it by: these paths are slow, and so are rows with
NULL where NULL matches everything.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from smile.algebra import trees
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.delta import Delta
from smile.kernels.joins import kleene
from smile.kernels.joins.join_seals import JoinSeals, empty_lookup
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.joins.match_counter import (
    MatchCounter,
    MatchCounts,
    MatchUpdate,
    decode_counts,
    keep_sealed,
    row_ids,
    union_lookups,
)
from smile.kernels.row_encoding import encode_rows, stored_column, table_columns
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import State
from smile.knowledge.join_types import match_constraints
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

HAS_NULL = "asks for NULL"
"""A column of both tables where NULL matches everything: whether a row has one."""


def get_column(rows: JoinRows, name: str) -> KnowledgeColumn:
    return rows.knowledge.columns[name] if name in rows.knowledge.columns else rows.fixed[name]


def has_conflicting_keys(rows: JoinRows, column_pairs: Sequence[tuple[str, str]]) -> Bools:
    """Rows that ask one column for two values, which no row has; `twice` are the columns that ask for the same."""
    has_conflict = np.zeros(len(rows), bool)
    for names in column_pairs:
        a, b = (get_column(rows, name) for name in names)
        has_conflict |= k.is_final(a) & k.is_final(b) & ~k.current_values(a).same(k.current_values(b))
    return has_conflict


class PairMatchCounter(MatchCounter):
    is_per_row = True

    def __init__(self, sides: JoinSides, probe: JoinSide, build: JoinSide, total: bool) -> None:
        self.sides, self.probe, self.build, self.total = sides, probe, build, total
        self.is_null_aware = sides.rel.null_aware
        self.has_double_equalities = bool(sides.columns_equated_twice(probe) or sides.columns_equated_twice(build))
        self.width = kleene.COUNTERS_NULL_AWARE if self.is_null_aware else kleene.COUNTERS_PLAIN
        pairs = list(zip(probe.on, build.on, strict=True))
        self.lookup_columns = {b: a for a, b in pairs}
        indexed = [(self.lookup_columns[b], b) for b in build.key] if build.covers_key else pairs
        self.indexed_pairs = [] if sides.has_evolving_keys else indexed
        """What rows are found by. A row of the other side whose whole key is asked for is found by that alone, since
        having heard of it is worth knowing though the rest should differ."""
        self.compared_pairs = pairs if self.is_null_aware else [p for p in pairs if p not in self.indexed_pairs]
        self.types = probe.source.layout.types
        named = trees.columns_in(sides.rel.when) if sides.rel.when is not None else frozenset()
        self.must_recount = sides.has_evolving_keys or total or any(c in probe.layout.evolving for c in named)
        """Whether the matches of a row are counted anew whenever the row changes, or one of them does."""
        self.probe_indexes = self._indexes([a for a, _ in self.indexed_pairs])
        self.build_table = f"{build.name} rows that match"
        # That the one row which can match has been heard of counts for rows too that it does not match otherwise.
        rel = replace(sides.rel, when=None) if build.covers_key else sides.rel
        ties = match_constraints(rel, sides.left.source.type, sides.right.source.type)
        seals = {s: ties.express_seal(seal, build.fixed) for s, seal in probe.source.type.seals.items()}
        self.probe_seals = JoinSeals(Seals(seals, build.source.type.heading.columns), "asked by")
        orders = self.probe_seals.tick_columns.values()
        columns = {**table_columns(build.layout), **{order: pa.int64() for order in orders}, **self.flag_columns()}
        indexes = self._indexes([b for _, b in self.indexed_pairs])
        self.table_schemas = {self.build_table: TableSchema(build.table_schema.key, columns, indexes, tuple(orders))}
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
        """Remembered rows of `side` that may match rows of the other side: numbers of the latter, each with one."""
        count = len(rows)
        asking_side = self.sides.other(side)
        at_left = side is self.probe
        pairs = [(a, b) if at_left else (b, a) for a, b in self.indexed_pairs]
        if not pairs:
            return cross_rows(np.arange(count), table.scan())
        key = [rows.fixed[b] for _, b in pairs]
        row_numbers, lookup = table.match(tuple(stored_column(a) for a, _ in pairs), key)
        if not self.is_null_aware:
            return row_numbers, lookup
        null = self._has_null([rows.fixed[c] for c in asking_side.on], count)
        plain = np.flatnonzero((lookup[HAS_NULL].data == 0) & ~null[row_numbers])
        parts = [(row_numbers[plain], lookup.take(plain))]
        if not null.all():
            unknown = table.match((HAS_NULL,), [ValueColumn(np.ones(1, np.int64))])[1]
            parts.append(cross_rows(np.flatnonzero(~null), unknown))
        if null.any():
            parts.append(cross_rows(np.flatnonzero(null), table.scan()))
        return np.concatenate([w for w, _ in parts]), RowLookup(
            table, np.concatenate([g.run_numbers for _, g in parts]), np.concatenate([g.row_numbers for _, g in parts])
        )

    def _count_pairs(self, probe: JoinRows, build: JoinRows) -> MatchCounts:
        """What each pair adds to the counters of its row of this side."""
        left, right = (probe, build) if self.probe is self.sides.left else (build, probe)
        build_mask = build.knowledge.mask
        present = masks.is_present(build_mask)
        if self.total:
            build_mask = np.where(present, np.uint8(masks.T), build_mask)
        when = self.sides.evaluate_condition(left, right)
        equal = None
        for a, b in self.compared_pairs:
            equality = kleene.compare_columns("=", get_column(probe, a), get_column(build, b), self.types[a])
            equal = equality if equal is None else kleene.conjunction(equal, equality)
        if not self.is_null_aware:
            match = masks.full(masks.T, len(probe)) if equal is None else kleene.as_filter(equal)
            if self.has_double_equalities:
                has_conflict = has_conflicting_keys(
                    probe, self.sides.columns_equated_twice(self.probe)
                ) | has_conflicting_keys(build, self.sides.columns_equated_twice(self.build))
                match = np.where(has_conflict, np.uint8(masks.F), match)
            if when is not None:
                match = masks.all_of(match, when)
            pair_codes = np.where(present, masks.all_of(build_mask, match), np.uint8(masks.ABSENT))
            return MatchCounts(
                kleene.counter_increments(pair_codes),
                np.where(present & masks.can_be_shown(match), build.knowledge.steps, 0),
            )
        test = equal if equal is not None else kleene.masks_from_codes(masks.full(masks.T, len(probe)))
        if when is not None:
            test = kleene.conjunction(test, kleene.masks_from_codes(when))
        steps = np.where(present & (test.possible != kleene.FALSE), build.knowledge.steps, 0)
        return MatchCounts(
            kleene.null_aware_increments(kleene.conjunction(kleene.masks_from_codes(build_mask), test), present), steps
        )

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def absorb(self, state: State, probe_rows: StateTable, build_delta: Delta | None) -> MatchUpdate:
        rows = state[self.build_table]
        if build_delta is None:
            return MatchUpdate(state, empty_lookup(probe_rows))
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
        ticks = self.probe_seals.ticks(delta.fixed, len(delta))
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
        affected_ids = row_ids(update.affected_rows.run_numbers, update.affected_rows.row_numbers)
        stored_ids = row_ids(stored.run_numbers, stored.row_numbers)
        order = np.argsort(stored_ids)
        positions = np.minimum(np.searchsorted(stored_ids[order], affected_ids), len(stored_ids) - 1)
        rows = order[positions]
        stored_here = np.flatnonzero(stored_ids[rows] == affected_ids)
        by, steps = counts.counters.copy(), counts.steps.copy()
        np.add.at(by, rows[stored_here], update.counter_changes.counters[stored_here])
        np.add.at(steps, rows[stored_here], update.counter_changes.steps[stored_here])
        return MatchCounts(by, steps)

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

    # ── keys that are asked for as a whole ──────────────────────────────────────────────────────────────────────────

    def _lookup_keys(self, rows: JoinRows) -> list[ValueColumn]:
        """The key of the other side that each row asks for at present."""
        return [k.current_values(get_column(rows, self.lookup_columns[c])) for c in self.build.key]

    def is_match_present(self, update: MatchUpdate, rows: JoinRows) -> Bools:
        count = len(rows)
        final = np.ones(count, bool)
        for name in self.probe.on:
            final &= k.is_final(get_column(rows, name))
        lookup_keys = self._lookup_keys(rows)
        is_stored = update.tables[self.build_table].find(lookup_keys)[0]
        is_stored = is_stored if lookup_keys else np.repeat(is_stored, count)
        if self.total:
            is_stored |= ~self._has_null(lookup_keys, count)
        return final & is_stored

    def _default_rows(self, update: MatchUpdate, rows: JoinRows, horizons: Horizons) -> tuple[Indices, JoinRows]:
        """The default rows of keys that are asked for and that nobody has heard of."""
        lookup_keys, source = self._lookup_keys(rows), self.build.source
        assert source.transform is not None, "a stream is never total"
        is_stored = update.tables[self.build_table].find(lookup_keys)[0]
        is_stored = is_stored if lookup_keys else np.repeat(is_stored, len(rows))
        absent_rows = np.flatnonzero(~is_stored & ~self._has_null(lookup_keys, len(rows)))
        key = {c: column.take(absent_rows) for c, column in zip(self.build.key, lookup_keys, strict=True)}
        defaults = source.transform.default_rows(key, len(absent_rows), horizons)
        return absent_rows, JoinRows(defaults.fixed, defaults.new)

    # ── forgetting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def expire(
        self, update: MatchUpdate, probe_rows: StateTable, removed_rows: RowLookup, advance: HorizonAdvance
    ) -> State:
        """Rows that no row can ask for any more; those counted anew are needed until all who asked are gone."""
        rows = update.tables[self.build_table]
        parts = [self.probe_seals.find_sealed_rows(rows, advance)]
        if update.changed_keys and self.probe_seals.tick_columns:
            # What comes late may have been over before.
            is_stored, stored = rows.find(update.changed_keys)
            parts.append(stored.take(np.flatnonzero(is_stored)))
        if self.must_recount and len(removed_rows):
            parts.append(self._candidates(rows, self.build, self.probe.decode_rows(removed_rows))[1])
        candidates = keep_sealed(self.probe_seals, union_lookups(rows, parts), advance.after)
        if self.must_recount and len(candidates):
            needed, _ = self._candidates(probe_rows, self.probe, self.build.decode_rows(candidates))
            is_unused = np.ones(len(candidates), bool)
            is_unused[needed] = False
            candidates = candidates.take(np.flatnonzero(is_unused))
        return {self.build_table: rows.without_rows(candidates)} if len(candidates) else update.tables


def cross_rows(numbers: Array, lookup: RowLookup) -> tuple[Indices, RowLookup]:
    """Each of the numbers with each of the rows."""
    repeated_numbers = np.repeat(numbers, len(lookup))
    return repeated_numbers, lookup.take(np.tile(np.arange(len(lookup)), len(numbers)))
