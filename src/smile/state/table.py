"""Tables: immutable relations of rows by key, as runs of which a newer one hides what older ones say of its keys.

A table with changes is a new table that shares the old one's runs, so any number of versions stand side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from smile.columns.hashing import hashes
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.log.input_batch import END
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
"""Runs of about one size before they are merged: more make finding slower, fewer make changing so."""

RUNS_LIMIT = 3 * RUNS_MAX
"""So many runs are merged on the spot, if nobody else has come to do it."""

SMALL_MERGE_ROWS_MAX = 20_000
"""Rows that are merged on the spot, in a few milliseconds."""

MERGE_SIZE_RATIO = 4
"""A run is merged with the next older one unless that is so many times its size."""


@dataclass(frozen=True)
class StateTable:
    """`runs` are newest first. `hiding` says of each what newer ones hide of it; it follows from the runs."""

    schema: TableSchema
    runs: tuple[Run, ...] = ()
    hiding: tuple[RowVisibility, ...] | None = field(default=None, compare=False, repr=False)
    version: int = field(default=0, compare=False)

    # ── finding ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, key: Sequence[ValueColumn]) -> tuple[Bools, RowLookup]:
        """For each of these keys, whether there is a row, and the row; where there is none its columns are NULL."""
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
        """All rows whose columns `on` equal these values (NULL equals nothing): pairs of the number of the values and
        the row; if `ordered`, in the order of the numbers. `marks` are the hashes of the values, if they are known."""
        usable: Indices | None = None
        if any(c.valid is not None for c in asked):
            usable = true_indices(np.logical_and.reduce([c.is_valid() for c in asked]))
            asked, asked_hashes = [c.take(usable) for c in asked], None
        if asked_hashes is None:
            asked_hashes = hashes(asked, len(asked[0]) if asked else 1)
        # Hashes in order are looked for side by side, which memory likes better.
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
        """All rows whose tick in the column `order` is above `after` and not above `upto`."""
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

    def scan(self) -> RowLookup:
        """All rows."""
        return self._visible_rows([(number, np.arange(len(run))) for number, run in enumerate(self.runs)])

    def _visible_rows(self, parts: Sequence[RunRows]) -> RowLookup:
        """Of places in runs those that are not hidden and not gone."""
        visible_parts = []
        for number, row_numbers in parts:
            is_visible = self._is_visible(number, row_numbers)
            visible_parts.append((number, row_numbers if is_visible is None else row_numbers[is_visible]))
        return RowLookup.from_parts(
            self, [(number, row_numbers) for number, row_numbers in visible_parts if len(row_numbers)]
        )

    def _is_visible(self, number: int, row_numbers: Indices) -> Bools | None:
        """None if all are."""
        is_hidden = self.visibility[number].is_hidden(self.version, row_numbers)
        tombstones = self.runs[number].tombstones
        if tombstones is not None:
            is_hidden = tombstones[row_numbers] if is_hidden is None else is_hidden | tombstones[row_numbers]
        return None if is_hidden is None else ~is_hidden

    @property
    def visibility(self) -> tuple[RowVisibility, ...]:
        if self.hiding is None:
            # Its runs were read from somewhere: each hides its keys in those that are older.
            table = StateTable(self.schema, (), (), 0).with_runs(self.runs)
            object.__setattr__(self, "hiding", table.hiding)
            object.__setattr__(self, "version", table.version)
        assert self.hiding is not None
        return self.hiding

    def with_runs(self, runs: tuple[Run, ...]) -> "StateTable":
        """The table that has these runs, of which the older ones may be the same as here: what is hidden in those is
        known but for what newer runs hide."""
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

    def no_rows(self) -> RowLookup:
        """No rows."""
        return RowLookup(self, _NO_ROWS, _NO_ROWS)

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def with_rows(
        self, rows: TableRows, deleted: Bools | None = None, old_rows: RowLookup | None = None
    ) -> "StateTable":
        """With these rows in the place of those that have their keys; those that are `gone` are no more. `had` are all
        that the table has of these keys, where that is known."""
        return self.split_and_update(rows, deleted, None, old_rows)[1]

    def split_and_update(
        self,
        rows: TableRows,
        deleted: Bools | None = None,
        known_hashes: HashesByColumns | None = None,
        old_rows: RowLookup | None = None,
    ) -> tuple["StateTable", "StateTable"]:
        """The rows that stay as they are, and all rows when it is updated. `marks` are hashes that are known."""
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
        assert table.hiding is not None
        return StateTable(self.schema, table.runs[1:], table.hiding[1:], table.version), table.compact()

    def without_rows(self, lookup: RowLookup) -> "StateTable":
        """Without these of its rows."""
        if not len(lookup):
            return self
        rows = {name: lookup[name] for name in self.schema.key}
        run = make_run(self.schema, rows, np.ones(len(lookup), bool))
        return self._with_run(run, lookup.run_numbers, lookup.row_numbers).compact()

    def _with_run(self, run: Run, run_numbers: Array, row_numbers: Indices) -> "StateTable":
        """With a newer run, which hides these places."""
        old_visibility = self.visibility
        visibility = [RowVisibility.all_visible(len(run), self.version + 1)]
        hides_any = bool((run_numbers >= 0).any())
        for number, run_visibility in enumerate(old_visibility):
            visibility.append(
                run_visibility.at_next_version(self.version, row_numbers[run_numbers == number] if hides_any else None)
            )
        return StateTable(self.schema, (run, *self.runs), tuple(visibility), self.version + 1)

    def compact(self) -> "StateTable":
        """The same rows in fewer runs, once there are many of about one size. A large merge is left to whoever asks for
        `merging`, unless nobody does."""
        count, size = self._due_runs()
        if not count or (size > SMALL_MERGE_ROWS_MAX and len(self.runs) < RUNS_LIMIT):
            return self
        run_merge = self._make_merge(count)
        return self.with_merged_run(run_merge, run_merge.execute())

    def pending_merge(self) -> "RunMerge | None":
        """The large merge that is due, if one is."""
        count, size = self._due_runs()
        return self._make_merge(count) if count and size > SMALL_MERGE_ROWS_MAX else None

    def _due_runs(self) -> tuple[int, int]:
        """How many of the newest runs are to be one, and how many rows that takes."""
        runs = self.runs
        if len(runs) <= RUNS_MAX:
            return 0, 0
        count, size = 1, len(runs[0])
        while count < len(runs) and len(runs[count]) <= size * MERGE_SIZE_RATIO:
            size += len(runs[count])
            count += 1
        return (count, size) if count > RUNS_MAX else (0, 0)

    def _make_merge(self, count: int) -> "RunMerge":
        visible = tuple(h.is_visible(self.version) for h in self.visibility[:count])
        return RunMerge(self.schema, self.runs[:count], visible, count == len(self.runs))

    def with_merged_run(self, run_merge: "RunMerge", merged_run: Run) -> "StateTable":
        """With one run in the place of those it was merged from; the same table if they are no longer there."""
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
        """What its runs take, indexes and all."""
        return sum(run.nbytes for run in self.runs)

    @cached_property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self.scan())


def _can_have(run: Run, key_hashes: Array) -> bool:
    """Ticks that only grow are beyond all that came before."""
    return bool(len(run) and len(key_hashes) and run.hashes[0] <= key_hashes[-1] and key_hashes[0] <= run.hashes[-1])


@dataclass(frozen=True)
class RunMerge:
    """Runs of a table that follow one another, newest first, and which of their rows newer ones did not hide."""

    schema: TableSchema
    runs: tuple[Run, ...]
    visible: tuple[Bools | None, ...]
    is_oldest: bool

    def execute(self) -> Run:
        """All of them in one. It takes its time, and may do so beside everything else."""
        return merge_runs(self.schema, self.runs, self.visible, self.is_oldest)
