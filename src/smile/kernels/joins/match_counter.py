"""Counts the matches of probe rows, by what is known of each: per join key, or per probe row.

When a build row changes, its old contribution is subtracted and its new one is added, so the cost does not depend on
the number of matches. The probe rows themselves are in a table of the `MatchTracker`, with the indexes `probe_indexes`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.columns import masks
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.delta import Delta, RowGroups
from smile.kernels.joins import kleene
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex, all_or_never
from smile.kernels.transform import State, TableSource
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

MATCH_STEPS = "steps of matches"


@dataclass(frozen=True)
class MatchCounts:
    """The counters of each probe row (see `kleene`), and the sum of the steps of its matches."""

    counters: Array
    steps: Array

    def take(self, indices: Indices) -> "MatchCounts":
        return MatchCounts(self.counters[indices], self.steps[indices])

    @staticmethod
    def zeros(count: int, width: int) -> "MatchCounts":
        return MatchCounts(np.zeros((count, width), np.int64), np.zeros(count, np.int64))


def counter_columns(width: int) -> dict[str, pa.DataType]:
    """The columns that store `width` counters and the steps."""
    return {**{f"count {n}": pa.int64() for n in range(width)}, MATCH_STEPS: pa.int64()}


def encode_counts(counts: MatchCounts) -> dict[str, ValueColumn]:
    columns = {
        f"count {n}": ValueColumn(np.ascontiguousarray(counts.counters[:, n])) for n in range(counts.counters.shape[1])
    }
    return {**columns, MATCH_STEPS: ValueColumn(counts.steps)}


def decode_counts(rows: Mapping[str, ValueColumn], width: int) -> MatchCounts:
    """The counters of stored rows; zero where there is no stored row."""
    return MatchCounts(np.stack([rows[f"count {n}"].data for n in range(width)], axis=1), rows[MATCH_STEPS].data)


@dataclass(frozen=True)
class MatchUpdate:
    """The effect of a batch. `affected_rows` are stored probe rows whose matches changed; a row may occur several
    times. `counter_changes` is what each occurrence adds to the counters, if these are per probe row."""

    tables: State
    affected_rows: RowLookup
    counter_changes: MatchCounts | None = None
    changed_keys: Sequence[ValueColumn] = ()
    """The keys of the changed rows of the counter's table."""


class MatchCounter(ABC):
    """Counts, for rows of the probe side, the matching rows of the build side."""

    table_schemas: Mapping[str, TableSchema]
    table_sources: Mapping[str, TableSource]
    probe_indexes: tuple[tuple[str, ...], ...]
    """The indexes that the table of probe rows must have."""
    width: int
    """The number of counters."""
    probe_seals: SealIndex
    """When no more probe rows can come that match a row of the counter's table."""
    is_per_row: bool
    """Whether the counters are stored in the probe rows."""

    def flag_columns(self) -> dict[str, pa.DataType]:
        """Additional columns of the table of probe rows."""
        return {}

    def flags(self, side: JoinSide, rows: JoinRows) -> dict[str, ValueColumn]:
        """The values of these columns for rows of `side`."""
        return {}

    @abstractmethod
    def absorb(self, state: State, probe_rows: StateTable, build_delta: Delta | None) -> MatchUpdate:
        """Applies the changes of build rows. `probe_rows` is the table of probe rows before the batch."""

    @abstractmethod
    def count_matches(
        self, update: MatchUpdate, rows: JoinRows, stored: RowLookup | None, horizons: Horizons
    ) -> MatchCounts:
        """The counters of these probe rows after the batch. `stored` are the same rows as stored before; None if none
        of them was."""

    @abstractmethod
    def is_match_present(self, update: MatchUpdate, rows: JoinRows) -> Bools:
        """Whether the one build row that can match is present; only if the join covers the build key."""

    @abstractmethod
    def expire(
        self, update: MatchUpdate, probe_rows: StateTable, removed_rows: RowLookup, advance: HorizonAdvance
    ) -> State:
        """The tables without rows that no probe row can match any more. `probe_rows` is the table of probe rows after
        the batch, and `removed_rows` are those that the batch removed from it."""


# ── counting per join key ───────────────────────────────────────────────────────────────────────────────────────────

VALUES = "values"


class ValueMatchCounter(MatchCounter):
    """Counts per join key, for joins on fixed columns without other conditions: all probe rows with the same key have
    the same matches and share one set of counters, and no build row is stored."""

    is_per_row = False
    width = kleene.COUNTERS_PLAIN

    def __init__(self, sides: JoinSides, probe: JoinSide, build: JoinSide) -> None:
        self.probe, self.build = probe, build
        self.probe_indexes = (probe.index,) if probe.on else ()
        self.key_columns = tuple(f"on {n}" for n in range(len(probe.on)))
        types = build.source.layout.fixed
        seals = {s: sides.ties.express_seal(seal, build.on) for s, seal in probe.source.type.seals.items()}
        self.probe_seals = SealIndex(all_or_never(seals), build.source.type.heading.columns, "asked by ")
        columns = {name: arrow_type(types[c]) for name, c in zip(self.key_columns, build.on, strict=True)}
        columns |= {**counter_columns(self.width), **self.probe_seals.column_types}
        tick_columns = tuple(self.probe_seals.column_types)
        self.table_schemas = {VALUES: TableSchema(self.key_columns, columns, (), tick_columns)}
        self.table_sources = {
            VALUES: TableSource(build.table_source.input_number, dict(zip(build.on, self.key_columns, strict=True)))
        }
        self.keeps_hidden = build.covers_key and build.layout.includes_permanently_hidden

    def absorb(self, state: State, probe_rows: StateTable, build_delta: Delta | None) -> MatchUpdate:
        values = state[VALUES]
        if build_delta is not None:
            build_delta = self._without_null_keys(build_delta)
        if build_delta is None or not len(build_delta):
            return MatchUpdate(state, probe_rows.no_rows())
        counter_changes, steps = kleene.counter_increments(build_delta.new.mask), build_delta.new.steps
        if build_delta.old is not None:
            counter_changes, steps = (
                counter_changes - kleene.counter_increments(build_delta.old.mask),
                steps - build_delta.old.steps,
            )
        groups = RowGroups([build_delta.fixed[c] for c in self.build.on], len(build_delta))
        key = [build_delta.fixed[c].take(groups.first) for c in self.build.on]
        was_stored, rows = self._find_values(values, key)
        old = decode_counts(rows, self.width)
        sums = np.add.reduceat(counter_changes[groups.order], groups.starts, axis=0)
        new = MatchCounts(old.counters + sums, old.steps + groups.sums(steps))
        is_removed = new.counters[:, kleene.CAN] == 0
        if self.keeps_hidden:
            # The join key is the whole key of the build row, so only that row has it.
            is_removed = build_delta.new.mask[groups.first] == masks.ABSENT
        ticks = self.probe_seals.tick_values(dict(zip(self.build.on, key, strict=True)), groups.count)
        values = values.with_rows(
            {**dict(zip(self.key_columns, key, strict=True)), **encode_counts(new), **ticks}, is_removed
        )
        has_changed = ((old.counters > 0) != (new.counters > 0)).any(axis=1)
        if self.build.covers_key:
            has_changed |= was_stored == is_removed
        changed_groups = np.flatnonzero(has_changed)
        _, affected = (
            self.probe.match_lookup(probe_rows, [c.take(changed_groups) for c in key], len(changed_groups))
            if len(changed_groups)
            else (changed_groups, probe_rows.no_rows())
        )
        return MatchUpdate({VALUES: values}, affected, changed_keys=key)

    def _without_null_keys(self, delta: Delta) -> Delta:
        """The delta without rows whose join key contains NULL: they match nothing."""
        if all(delta.fixed[c].valid is None for c in self.build.on):
            return delta
        return delta.take(np.flatnonzero(np.logical_and.reduce([delta.fixed[c].is_valid() for c in self.build.on])))

    def _find_values(self, values: StateTable, key: Sequence[ValueColumn]) -> tuple[Bools, RowLookup]:
        return values.find(key)

    def count_matches(
        self, update: MatchUpdate, rows: JoinRows, stored: RowLookup | None, horizons: Horizons
    ) -> MatchCounts:
        counts = decode_counts(self._find_probe_keys(update, rows)[1], self.width)
        return counts if self.key_columns else counts.take(np.zeros(len(rows), np.int64))

    def is_match_present(self, update: MatchUpdate, rows: JoinRows) -> Bools:
        is_present = self._find_probe_keys(update, rows)[0]
        return is_present if self.key_columns else np.repeat(is_present, len(rows))

    def _find_probe_keys(self, update: MatchUpdate, rows: JoinRows) -> tuple[Bools, RowLookup]:
        return self._find_values(update.tables[VALUES], self.probe.join_key(rows.fixed))

    def expire(
        self, update: MatchUpdate, probe_rows: StateTable, removed_rows: RowLookup, advance: HorizonAdvance
    ) -> State:
        """Removes join keys that no more probe rows can have, once no stored probe row has them."""
        values = update.tables[VALUES]
        if not self.probe_seals.tick_columns:
            return update.tables
        parts = [self.probe_seals.find_sealed_rows(values, advance)]
        for key in (
            update.changed_keys,
            [removed_rows[stored_column(c)] for c in self.probe.on] if removed_rows.row_count else (),
        ):
            if key:
                is_stored, rows = values.find(key)
                parts.append(rows.take(np.flatnonzero(is_stored)))
        candidates = self.probe_seals.keep_sealed(RowLookup.union(values, parts), advance.after)
        if not candidates.row_count:
            return update.tables
        candidate_numbers, _ = self.probe.match_lookup(
            probe_rows, [candidates[c] for c in self.key_columns], candidates.row_count
        )
        is_unused = np.ones(candidates.row_count, bool)
        is_unused[candidate_numbers] = False
        return {VALUES: values.without_rows(candidates.take(np.flatnonzero(is_unused)))}


def can_count_by_value(rel: mmpl.Join, sides: JoinSides, build: JoinSide) -> bool:
    """Whether the matches depend only on fixed join key columns."""
    is_key_only = not build.covers_key or set(build.on) == set(build.key)
    return rel.when is None and not rel.null_aware and not sides.has_evolving_keys and is_key_only
