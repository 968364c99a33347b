"""State tables: immutable sets of rows by key, stored in runs. A row of a newer run hides rows of older runs with the
same key.

An update creates a new table that shares the runs of the old one, so any number of versions can exist at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from smile.columns.hashing import hashes
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.horizons import END
from smile.state.row_lookup import RowLookup, RunRows
from smile.state.run import (
    HashesByColumns,
    Run,
    TableRows,
    TableSchema,
    find_keys,
    find_matches,
    is_row_equal,
    make_run,
    merge_runs,
)
from smile.state.visibility import RowVisibility

_NO_ROWS = np.zeros(0, np.int64)

RUNS_MAX = 4
"""Runs of similar size before they are merged: more make lookups slower, fewer make updates slower."""

RUNS_LIMIT = 3 * RUNS_MAX
"""With this many runs, even a large merge runs immediately, because no background merge has done it."""

SMALL_MERGE_ROWS_MAX = 20_000
"""A merge of up to this many rows runs immediately: it takes a few milliseconds."""

MERGE_SIZE_RATIO = 4
"""Newer runs are merged with the next older one if its size is at most this many times theirs."""


@dataclass(frozen=True)
class StateTable:
    """`runs` are ordered newest first. `known_visibility` has the visibility of the rows of each run. It follows from
    the runs; if it is None, `visibility` computes it when it is first needed."""

    schema: TableSchema
    runs: tuple[Run, ...] = ()
    known_visibility: tuple[RowVisibility, ...] | None = field(default=None, compare=False, repr=False)
    version: int = field(default=0, compare=False)

    # ── lookups ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, key: Sequence[ValueColumn]) -> tuple[Bools, RowLookup]:
        """For each key, whether the table has its row, and the row. The columns of a missing row are NULL."""
        count = len(key[0]) if key else 1
        key_hashes = hashes(key, count)
        if count == 1 or bool((key_hashes[:-1] <= key_hashes[1:]).all()):
            run_numbers, row_numbers = self._find_hashed(key_hashes, key)
        else:
            order = key_hashes.argsort(kind="stable")
            run_numbers, row_numbers = np.empty(count, np.int64), np.empty(count, np.int64)
            run_numbers[order], row_numbers[order] = self._find_hashed(key_hashes[order], [c.take(order) for c in key])
        return run_numbers >= 0, RowLookup(self, run_numbers, row_numbers)

    def _find_hashed(self, key_hashes: Array, key: Sequence[ValueColumn]) -> tuple[Array, Indices]:
        """The run number and row number of each key. The run number is -1 if no run has the key, and -2 if it was
        deleted."""
        count = len(key_hashes)
        run_numbers, row_numbers = np.full(count, -1), np.zeros(count, np.int64)
        if count == 1:
            run_numbers[0], row_numbers[0] = self._find_one(key_hashes[0], key)
            return run_numbers, row_numbers
        remaining: Indices | None = None
        for number, run in enumerate(self.runs):
            if not _can_have(run, key_hashes):
                continue
            if remaining is None:
                is_found, candidates = find_keys(run, key_hashes, key, self.schema)
                hits = true_indices(is_found)
            else:
                is_found, candidates = find_keys(
                    run, key_hashes[remaining], [c.take(remaining) for c in key], self.schema
                )
                hits = remaining[is_found]
            if not len(hits):
                continue
            hit_rows = candidates[is_found]
            run_numbers[hits], row_numbers[hits] = number, hit_rows
            if run.tombstones is not None:
                run_numbers[hits[run.tombstones[hit_rows]]] = -2
            remaining = true_indices(~is_found) if remaining is None else remaining[~is_found]
            if not len(remaining):
                break
        return run_numbers, row_numbers

    def _find_one(self, key_hash: Any, key: Sequence[ValueColumn]) -> tuple[int, int]:
        for number, run in enumerate(self.runs):
            row_number = int(run.hashes.searchsorted(key_hash))
            while row_number < len(run) and run.hashes[row_number] == key_hash:
                if is_row_equal([run.rows[c] for c in self.schema.key], row_number, key):
                    return (
                        (number, row_number)
                        if run.tombstones is None or not run.tombstones[row_number]
                        else (-2, row_number)
                    )
                row_number += 1
        return -1, 0

    def match(
        self, on: tuple[str, ...], asked: Sequence[ValueColumn], ordered: bool = True, asked_hashes: Array | None = None
    ) -> tuple[Indices, RowLookup]:
        """All pairs of an index into `asked` and a row whose columns `on` equal the asked values. NULL equals nothing.

        If `ordered`, pairs are sorted by the index. `asked_hashes` are the hashes of the values, if they are known.
        """
        usable: Indices | None = None
        if any(c.valid is not None for c in asked):
            usable = true_indices(np.logical_and.reduce([c.is_valid() for c in asked]))
            asked, asked_hashes = [c.take(usable) for c in asked], None
        if asked_hashes is None:
            asked_hashes = hashes(asked, len(asked[0]) if asked else 1)
        # Sorted hashes access memory in order, which is faster.
        order = asked_hashes.argsort(kind="stable") if len(asked_hashes) > 16 else None
        if order is not None:
            asked_hashes, asked = asked_hashes[order], [c.take(order) for c in asked]
            usable = order if usable is None else usable[order]
        index_parts, parts = [], []
        for number, run in enumerate(self.runs):
            index = run.indexes[on]
            if not len(index.sorted_keys):
                continue
            asked_indices, row_numbers = find_matches(index, [run.rows[name] for name in on], asked_hashes, asked)
            if len(asked_indices):
                is_hidden = self.visibility[number].is_hidden(self.version, row_numbers)
                if is_hidden is not None:
                    is_visible = ~is_hidden
                    asked_indices, row_numbers = asked_indices[is_visible], row_numbers[is_visible]
            if len(asked_indices):
                index_parts.append(asked_indices)
                parts.append((number, row_numbers))
        lookup = RowLookup.from_parts(self, parts)
        asked_indices = index_parts[0] if len(index_parts) == 1 else np.concatenate([_NO_ROWS, *index_parts])
        if usable is not None:
            asked_indices = usable[asked_indices]
        if ordered and (len(parts) > 1 or order is not None):
            asked_order = asked_indices.argsort(kind="stable")
            asked_indices, lookup = asked_indices[asked_order], lookup.take(asked_order)
        return asked_indices, lookup

    def rows_between(self, tick_column: str, after: int, upto: int) -> RowLookup:
        """All rows whose tick in a column is greater than `after` and not greater than `upto`."""
        if upto >= END:
            lookup = self.scan()
            return lookup.take(true_indices(lookup[tick_column].data > after))
        parts = []
        for number, run in enumerate(self.runs):
            index = run.tick_indexes[tick_column]
            first, last = index.sorted_keys.searchsorted([after, upto], side="right")
            if first < last:
                parts.append((number, index.row_numbers[first:last]))
        return self._visible_rows(parts)

    def find_ticks(self, tick_column: str, ticks: Array) -> tuple[Bools, RowLookup]:
        """For each of these ascending ticks, whether the table has a row with it in a column, and the row. No two rows
        share a tick."""
        run_numbers, row_numbers = np.full(len(ticks), -1), np.zeros(len(ticks), np.int64)
        remaining = len(ticks)
        for number, run in enumerate(self.runs):
            index = run.tick_indexes[tick_column]
            keys = index.sorted_keys
            if not remaining or not len(keys) or keys[-1] < ticks[0] or ticks[-1] < keys[0]:
                continue
            places = keys.searchsorted(ticks)
            hits = true_indices(keys.take(places, mode="clip") == ticks)
            hit_rows = index.row_numbers[places[hits]]
            is_hidden = self.visibility[number].is_hidden(self.version, hit_rows)
            if is_hidden is not None and is_hidden.any():
                hits, hit_rows = hits[~is_hidden], hit_rows[~is_hidden]
            remaining -= len(hits)
            if len(hits) == len(ticks):
                return np.ones(len(ticks), bool), RowLookup.from_parts(self, [(number, hit_rows)])
            run_numbers[hits], row_numbers[hits] = number, hit_rows
        return run_numbers >= 0, RowLookup(self, run_numbers, row_numbers)

    def scan(self) -> RowLookup:
        """All rows."""
        return self._visible_rows([(number, np.arange(len(run))) for number, run in enumerate(self.runs)])

    def _visible_rows(self, parts: Sequence[RunRows]) -> RowLookup:
        """Those of the given rows that are neither hidden nor tombstones."""
        visible_parts = []
        for number, row_numbers in parts:
            is_visible = self._is_visible(number, row_numbers)
            visible_parts.append((number, row_numbers if is_visible is None else row_numbers[is_visible]))
        return RowLookup.from_parts(
            self, [(number, row_numbers) for number, row_numbers in visible_parts if len(row_numbers)]
        )

    def _is_visible(self, number: int, row_numbers: Indices) -> Bools | None:
        """Which of these rows of a run are neither hidden nor tombstones; None if all are."""
        is_hidden = self.visibility[number].is_hidden(self.version, row_numbers)
        tombstones = self.runs[number].tombstones
        if tombstones is not None:
            is_hidden = tombstones[row_numbers] if is_hidden is None else is_hidden | tombstones[row_numbers]
        return None if is_hidden is None else ~is_hidden

    @property
    def visibility(self) -> tuple[RowVisibility, ...]:
        if self.known_visibility is None:
            # The runs were read from files. Add them again from old to new: each hides its keys in older runs.
            table = StateTable(self.schema, (), (), 0).with_runs(self.runs)
            object.__setattr__(self, "known_visibility", table.known_visibility)
            object.__setattr__(self, "version", table.version)
        assert self.known_visibility is not None
        return self.known_visibility

    def with_runs(self, runs: tuple[Run, ...]) -> "StateTable":
        """A table with these runs. For the oldest runs that both tables share, the known visibility is reused; only the
        newer runs are looked up in them."""
        same_count = 0
        while same_count < min(len(runs), len(self.runs)) and runs[-1 - same_count] is self.runs[-1 - same_count]:
            same_count += 1
        if same_count == len(runs) == len(self.runs):
            return self
        table = StateTable(
            self.schema,
            self.runs[len(self.runs) - same_count :],
            self.visibility[len(self.runs) - same_count :],
            self.version,
        )
        for run in reversed(runs[: len(runs) - same_count]):
            table = table._with_run(run, *table._find_hashed(run.hashes, [run.rows[c] for c in self.schema.key]))
        return table

    def with_indexes(self, indexes: tuple[tuple[str, ...], ...]) -> "StateTable":
        """The same rows, with hash indexes on these sets of columns."""
        missing = tuple(on for on in indexes if on not in self.schema.indexes)
        missing_schema = replace(self.schema, indexes=missing, tick_indexes=())
        runs = []
        for run in self.runs:
            added = make_run(missing_schema, run.rows, run.tombstones, run.hashes).indexes
            runs.append(replace(run, indexes={on: added[on] if on in added else run.indexes[on] for on in indexes}))
        return StateTable(replace(self.schema, indexes=indexes), tuple(runs), self.visibility, self.version)

    def no_rows(self) -> RowLookup:
        """An empty lookup."""
        return RowLookup(self, _NO_ROWS, _NO_ROWS)

    # ── updates ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def with_rows(
        self, rows: TableRows, deleted: Bools | None = None, old_rows: RowLookup | None = None
    ) -> "StateTable":
        """The table after an update: these rows replace the rows with their keys, and `deleted` ones are removed.
        `old_rows` are all rows that the table has with these keys, if the caller knows them."""
        return self.split_and_update(rows, deleted, None, old_rows)[1]

    def split_and_update(
        self,
        rows: TableRows,
        deleted: Bools | None = None,
        known_hashes: HashesByColumns | None = None,
        old_rows: RowLookup | None = None,
    ) -> tuple["StateTable", "StateTable"]:
        """The table without the rows that the update replaces or deletes, and the updated table. `known_hashes` are
        hashes for the indexes."""
        if not len(next(iter(rows.values()))):
            return self, self
        run = make_run(self.schema, {n: rows[n] for n in self.schema.columns if n in rows}, deleted, None, known_hashes)
        if old_rows is not None:
            run_numbers, row_numbers = old_rows.run_numbers, old_rows.row_numbers
        elif self.runs:
            run_numbers, row_numbers = self._find_hashed(run.hashes, [run.rows[c] for c in self.schema.key])
        else:
            run_numbers, row_numbers = _NO_ROWS, _NO_ROWS
        table = self._with_run(run, run_numbers, row_numbers)
        assert table.known_visibility is not None
        return StateTable(self.schema, table.runs[1:], table.known_visibility[1:], table.version), table.compact()

    def without_rows(self, lookup: RowLookup) -> "StateTable":
        """The table after these of its rows are deleted."""
        if not lookup.row_count:
            return self
        rows = {name: lookup[name] for name in self.schema.key}
        run = make_run(self.schema, rows, np.ones(lookup.row_count, bool))
        return self._with_run(run, lookup.run_numbers, lookup.row_numbers).compact()

    def _with_run(self, run: Run, run_numbers: Array, row_numbers: Indices) -> "StateTable":
        """The table with a new run, which hides the rows at these run and row numbers."""
        old_visibility = self.visibility
        visibility = [RowVisibility.all_visible(len(run), self.version + 1)]
        hides_any = bool((run_numbers >= 0).any())
        for number, run_visibility in enumerate(old_visibility):
            visibility.append(
                run_visibility.at_next_version(self.version, row_numbers[run_numbers == number] if hides_any else None)
            )
        return StateTable(self.schema, (run, *self.runs), tuple(visibility), self.version + 1)

    def compact(self) -> "StateTable":
        """The same rows in fewer runs, if many runs have similar sizes. A large merge is left to the caller of
        `pending_merge`, unless there are RUNS_LIMIT runs."""
        count, size = self._due_runs()
        if not count or (size > SMALL_MERGE_ROWS_MAX and len(self.runs) < RUNS_LIMIT):
            return self
        run_merge = self._make_merge(count)
        return self.with_merged_run(run_merge, run_merge.execute())

    def pending_merge(self) -> "RunMerge | None":
        """The large merge that is due, or None."""
        count, size = self._due_runs()
        return self._make_merge(count) if count and size > SMALL_MERGE_ROWS_MAX else None

    def _due_runs(self) -> tuple[int, int]:
        """How many of the newest runs should be merged, and how many rows they have."""
        runs = self.runs
        if len(runs) <= RUNS_MAX:
            return 0, 0
        count, size = 1, len(runs[0])
        while count < len(runs) and len(runs[count]) <= size * MERGE_SIZE_RATIO:
            size += len(runs[count])
            count += 1
        return (count, size) if count > RUNS_MAX else (0, 0)

    def _make_merge(self, count: int) -> "RunMerge":
        visible = tuple(run_visibility.is_visible(self.version) for run_visibility in self.visibility[:count])
        return RunMerge(self.schema, self.runs[:count], visible, count == len(self.runs))

    def with_merged_run(self, run_merge: "RunMerge", merged_run: Run) -> "StateTable":
        """The table with a merged run in place of its source runs; the same table if it no longer has them."""
        old_runs, count = self.runs, len(run_merge.runs)
        first = next((n for n, run in enumerate(old_runs) if run is run_merge.runs[0]), len(old_runs))
        if first + count > len(old_runs) or any(
            a is not b for a, b in zip(old_runs[first:], run_merge.runs, strict=False)
        ):
            return self
        newer, older = old_runs[:first], old_runs[first + count :]
        if not len(merged_run):
            return StateTable(
                self.schema, newer + older, self.visibility[:first] + self.visibility[first + count :], self.version
            )
        merged_visibility = RowVisibility.all_visible(len(merged_run), self.version)
        for run in newer:
            is_found, row_numbers = find_keys(
                merged_run, run.hashes, [run.rows[c] for c in self.schema.key], self.schema
            )
            merged_visibility.hide(row_numbers[is_found], self.version)
        visibility = (*self.visibility[:first], merged_visibility, *self.visibility[first + count :])
        return StateTable(self.schema, (*newer, merged_run, *older), visibility, self.version)

    @property
    def nbytes(self) -> int:
        """The size of its runs in bytes, indexes included."""
        return sum(run.nbytes for run in self.runs)

    @cached_property
    def row_count(self) -> int:
        return self.scan().row_count


def _can_have(run: Run, key_hashes: Array) -> bool:
    """Whether the range of the sorted key hashes overlaps that of the run. Ticks hash in order, so runs of older ticks
    are skipped."""
    return bool(len(run) and len(key_hashes) and run.hashes[0] <= key_hashes[-1] and key_hashes[0] <= run.hashes[-1])


@dataclass(frozen=True)
class RunMerge:
    """A merge of adjacent runs of a table. `runs` are ordered newest first; `visible` says which of their rows newer
    runs did not hide. `is_oldest`: they include the oldest run of the table."""

    schema: TableSchema
    runs: tuple[Run, ...]
    visible: tuple[Bools | None, ...]
    is_oldest: bool

    def execute(self) -> Run:
        """Merges the runs into one. It can be slow, and is safe to run in another thread."""
        return merge_runs(self.schema, self.runs, self.visible, self.is_oldest)
