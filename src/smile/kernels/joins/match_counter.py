"""Matches, counted: of each value that is asked for, or of each row that asks, how many rows match it and how surely.

What one row adds to the counters it takes back when it changes, so a change of a match costs the same however many
there are. The rows that ask are remembered elsewhere, in a table that is indexed by `asking`.
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
from smile.kernels.joins.join_seals import JoinSeals, empty_lookup
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import State, TableSource
from smile.log.input_batch import END
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

MATCH_STEPS = "steps of matches"


@dataclass(frozen=True)
class MatchCounts:
    """`by` has a row of counters for each row that asks; `steps` are those of its matches."""

    counters: Array
    steps: Array

    def take(self, indices: Indices) -> "MatchCounts":
        return MatchCounts(self.counters[indices], self.steps[indices])

    @staticmethod
    def zeros(count: int, width: int) -> "MatchCounts":
        return MatchCounts(np.zeros((count, width), np.int64), np.zeros(count, np.int64))


def counter_columns(width: int) -> dict[str, pa.DataType]:
    """The columns of counters in a table."""
    return {**{f"count {n}": pa.int64() for n in range(width)}, MATCH_STEPS: pa.int64()}


def encode_counts(counts: MatchCounts) -> dict[str, ValueColumn]:
    columns = {
        f"count {n}": ValueColumn(np.ascontiguousarray(counts.counters[:, n])) for n in range(counts.counters.shape[1])
    }
    return {**columns, MATCH_STEPS: ValueColumn(counts.steps)}


def decode_counts(rows: Mapping[str, ValueColumn], width: int) -> MatchCounts:
    """Of rows read from a table; zero where there was none."""
    return MatchCounts(np.stack([rows[f"count {n}"].data for n in range(width)], axis=1), rows[MATCH_STEPS].data)


@dataclass(frozen=True)
class MatchUpdate:
    """What a frame has changed. `touched` are remembered rows whose matches changed, each perhaps several times, and
    `delta` what that adds to their counters, where those stand beside the rows."""

    tables: State
    affected_rows: RowLookup
    counter_changes: MatchCounts | None = None
    changed_keys: Sequence[ValueColumn] = ()
    """The keys of what changed in the tables."""


class MatchCounter(ABC):
    """Rows of the side `other` as those of `own` meet them."""

    table_schemas: Mapping[str, TableSchema]
    table_sources: Mapping[str, TableSource]
    probe_indexes: tuple[tuple[str, ...], ...]
    """Indexes of the table of rows that ask."""
    width: int
    probe_seals: JoinSeals
    """When nobody can come any more who asks for what is remembered."""
    is_per_row: bool
    """Whether counters stand beside each row that asks."""

    def flag_columns(self) -> dict[str, pa.DataType]:
        """What else is remembered of a row that asks,"""
        return {}

    def flags(self, side: JoinSide, rows: JoinRows) -> dict[str, ValueColumn]:
        """and what that is of these rows."""
        return {}

    @abstractmethod
    def absorb(self, state: State, probe_rows: StateTable, build_delta: Delta | None) -> MatchUpdate: ...

    @abstractmethod
    def count_matches(
        self, update: MatchUpdate, rows: JoinRows, stored: RowLookup | None, horizons: Horizons
    ) -> MatchCounts:
        """Of rows as they are now. `found` are these rows as they were remembered; None if none of them was."""

    @abstractmethod
    def is_match_present(self, update: MatchUpdate, rows: JoinRows) -> Bools:
        """Whether the one row that can match has been heard of."""

    @abstractmethod
    def expire(
        self, update: MatchUpdate, probe_rows: StateTable, removed_rows: RowLookup, advance: HorizonAdvance
    ) -> State:
        """Without what no row that asks can meet any more; `table` has those that are left."""


def union_lookups(table: StateTable, parts: Sequence[RowLookup]) -> RowLookup:
    """Each row once, of those found in one table."""
    parts = [p for p in parts if len(p)]
    if not parts:
        return empty_lookup(table)
    run_of, place = np.concatenate([p.run_numbers for p in parts]), np.concatenate([p.row_numbers for p in parts])
    _, first_rows = np.unique(row_ids(run_of, place), return_index=True)
    return RowLookup(table, run_of[first_rows], place[first_rows])


def row_ids(run_of: Array, place: Indices) -> Indices:
    """A number for each row of a table; negative where there is none."""
    return (run_of << 40) | place


def keep_sealed(seals: JoinSeals, lookup: RowLookup, horizons: Horizons) -> RowLookup:
    """Those that no stream can affect any more."""
    if not seals.tick_columns and not seals.is_finished(horizons):
        return lookup.take(np.zeros(0, np.int64))
    is_sealed = np.ones(len(lookup), bool)
    for stream, order in seals.tick_columns.items():
        if horizons[stream] < END:
            is_sealed &= lookup[order].data <= horizons[stream]
    return lookup.take(np.flatnonzero(is_sealed))


# ── by value ────────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES = "values"


class ValueMatchCounter(MatchCounter):
    """Where nothing but fixed values is equated: whoever asks for the same has the same matches, so one set of counters
    serves them all, and no row of the other side is remembered."""

    is_per_row = False
    width = kleene.COUNTERS_PLAIN

    def __init__(self, sides: JoinSides, probe: JoinSide, build: JoinSide) -> None:
        self.probe, self.build = probe, build
        self.probe_indexes = (probe.index,) if probe.on else ()
        self.key_columns = tuple(f"on {n}" for n in range(len(probe.on)))
        types = build.source.layout.fixed
        seals = {s: sides.ties.express_seal(seal, build.on) for s, seal in probe.source.type.seals.items()}
        self.probe_seals = JoinSeals(Seals(seals, build.source.type.heading.columns), "asked by")
        columns = {name: arrow_type(types[c]) for name, c in zip(self.key_columns, build.on, strict=True)}
        orders = self.probe_seals.tick_columns.values()
        ticks = {order: pa.int64() for order in orders}
        self.table_schemas = {
            VALUES: TableSchema(
                self.key_columns, {**columns, **counter_columns(self.width), **ticks}, (), tuple(orders)
            )
        }
        self.table_sources = {
            VALUES: TableSource(build.table_source.input_number, dict(zip(build.on, self.key_columns, strict=True)))
        }
        self.keeps_hidden = build.covers_key and build.layout.includes_permanently_hidden

    def absorb(self, state: State, probe_rows: StateTable, build_delta: Delta | None) -> MatchUpdate:
        values = state[VALUES]
        if build_delta is not None:
            build_delta = self._without_null_keys(build_delta)
        if build_delta is None or not len(build_delta):
            return MatchUpdate(state, empty_lookup(probe_rows))
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
            # The values are the row's whole key, so it is the only one that has them.
            is_removed = build_delta.new.mask[groups.first] == masks.ABSENT
        ticks = self.probe_seals.ticks(dict(zip(self.build.on, key, strict=True)), groups.count)
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
            else (changed_groups, empty_lookup(probe_rows))
        )
        return MatchUpdate({VALUES: values}, affected, changed_keys=key)

    def _without_null_keys(self, delta: Delta) -> Delta:
        """Without rows that have a NULL where it is equated: they match nothing."""
        if all(delta.fixed[c].valid is None for c in self.build.on):
            return delta
        return delta.take(np.flatnonzero(np.logical_and.reduce([delta.fixed[c].is_valid() for c in self.build.on])))

    def _find_values(self, values: StateTable, key: Sequence[ValueColumn]) -> tuple[Bools, RowLookup]:
        if key:
            return values.find(key)
        is_found, rows = values.find([])
        return is_found, rows

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
        """Values that nobody can ask for any more, once none of those who did is left."""
        values = update.tables[VALUES]
        if not self.probe_seals.tick_columns:
            return update.tables
        parts = [self.probe_seals.find_sealed_rows(values, advance)]
        for key in (
            update.changed_keys,
            [removed_rows[stored_column(c)] for c in self.probe.on] if len(removed_rows) else (),
        ):
            if key:
                is_stored, rows = values.find(key)
                parts.append(rows.take(np.flatnonzero(is_stored)))
        candidates = keep_sealed(self.probe_seals, union_lookups(values, parts), advance.after)
        if not len(candidates):
            return update.tables
        candidate_numbers, _ = self.probe.match_lookup(
            probe_rows, [candidates[c] for c in self.key_columns], len(candidates)
        )
        is_unused = np.ones(len(candidates), bool)
        is_unused[candidate_numbers] = False
        return {VALUES: values.without_rows(candidates.take(np.flatnonzero(is_unused)))}


def can_count_by_value(rel: mmpl.Join, sides: JoinSides, build: JoinSide) -> bool:
    """Whether matches depend on fixed values that are equated and on nothing else."""
    whole_only = not build.covers_key or set(build.on) == set(build.key)
    return rel.when is None and not rel.null_aware and not sides.has_evolving_keys and whole_only
