"""Runs: immutable sets of rows, sorted by the hashes of their keys, with at most one row per key. A row can be a
tombstone, which says that its key was deleted.

A run also has indexes. An index is a sorted column of hashes or ticks with the row numbers that they belong to, so that
a few rows are found without reading the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.hashing import hashes, is_injective
from smile.columns.packed import LazyMapping
from smile.columns.row_limit import check_row_count
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.horizons import END

TableRows = Mapping[str, ValueColumn]

_COLLISION_FREE = "_collision_free"
"""The attribute in which an index caches whether it is free of collisions."""


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table and how its rows are found.

    A run may omit a column that is NULL in all of its rows. `indexes`: sets of columns, besides the key, that have a
    hash index. `tick_indexes`: tick columns that have a sorted index, which omits rows at END.
    """

    key: tuple[str, ...]
    columns: Mapping[str, pa.DataType]
    indexes: tuple[tuple[str, ...], ...] = ()
    tick_indexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunIndex:
    """Sorted hashes or ticks, and the number of the row that each belongs to."""

    sorted_keys: Array
    row_numbers: Indices

    @cached_property
    def distinct_keys(self) -> tuple[Array, Indices]:
        """The distinct keys, and where in `sorted_keys` each of them starts, followed by the end of the last one."""
        starts = np.ones(len(self.sorted_keys), bool)
        np.not_equal(self.sorted_keys[1:], self.sorted_keys[:-1], out=starts[1:])
        firsts = true_indices(starts)
        return self.sorted_keys[firsts], np.append(firsts, len(self.sorted_keys))

    def is_collision_free(self, columns: Sequence[ValueColumn]) -> bool:
        """Whether rows with equal hashes have equal values in the indexed columns. Collisions are rare."""
        is_free: bool | None = self.__dict__.get(_COLLISION_FREE)
        if is_free is None:
            equal_neighbours = true_indices(self.sorted_keys[1:] == self.sorted_keys[:-1])
            a, b = self.row_numbers[equal_neighbours], self.row_numbers[equal_neighbours + 1]
            is_free = self.__dict__[_COLLISION_FREE] = all(bool(c.take(a).same(c.take(b)).all()) for c in columns)
        return is_free


@dataclass(frozen=True)
class Run:
    """`tombstones` says which rows are tombstones; it is None if no row is."""

    rows: TableRows
    hashes: Array
    tombstones: Bools | None
    indexes: Mapping[tuple[str, ...], RunIndex]
    tick_indexes: Mapping[str, RunIndex]

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def nbytes(self) -> int:
        """Its size in bytes. Does not read columns that have not been read yet."""
        indexes = sum(_bytes_of(i, _index_bytes) for i in (self.indexes, self.tick_indexes))
        return int(self.hashes.nbytes + indexes + _bytes_of(self.rows, lambda column: column.nbytes))


def _bytes_of(parts: Mapping[Any, Any], bytes_of: Callable[[Any], int]) -> int:
    return parts.nbytes if isinstance(parts, LazyMapping) else sum(map(bytes_of, parts.values()))


def _index_bytes(index: RunIndex) -> int:
    return int(index.sorted_keys.nbytes + index.row_numbers.nbytes)


_EMPTY_HASH_INDEX = RunIndex(np.zeros(0, np.uint64), np.zeros(0, np.int64))
_EMPTY_TICK_INDEX = RunIndex(np.zeros(0, np.int64), np.zeros(0, np.int64))

HashesByColumns = Mapping[tuple[str, ...], Array]
"""Hashes of rows that are already known, by the columns that were hashed."""


def make_run(
    schema: TableSchema,
    rows: TableRows,
    tombstones: Bools | None,
    given_hashes: Array | None = None,
    known_hashes: HashesByColumns | None = None,
) -> Run:
    """A run of rows in any order, one per key. `given_hashes` are the hashes of the keys, if they are known;
    `known_hashes` are hashes for the indexes."""
    key = [rows[c] for c in schema.key]
    # A relation with a single row has an empty key, so the tombstone of that row has no columns.
    size = len(next(iter(rows.values()))) if tombstones is None else len(tombstones)
    key_hashes = hashes(key, size) if given_hashes is None else given_hashes
    known_hashes = known_hashes or {}
    if size > 1 and not bool((key_hashes[:-1] <= key_hashes[1:]).all()):
        order = key_hashes.argsort(kind="stable")
        key_hashes = key_hashes[order]
        known_hashes = {on: column_hashes[order] for on, column_hashes in known_hashes.items()}
        rows = map_distinct_columns(rows, lambda column: column.take(order))
        tombstones = None if tombstones is None else tombstones[order]
    if tombstones is not None and not tombstones.any():
        tombstones = None
    present_rows = None if tombstones is None else true_indices(~tombstones)
    if present_rows is not None and not len(present_rows):
        # Tombstones may lack all columns except the key, so there is nothing to index.
        return Run(
            rows,
            key_hashes,
            tombstones,
            dict.fromkeys(schema.indexes, _EMPTY_HASH_INDEX),
            dict.fromkeys(schema.tick_indexes, _EMPTY_TICK_INDEX),
        )
    indexes = {}
    for on in schema.indexes:
        column_hashes = known_hashes[on] if on in known_hashes else hashes([rows[c] for c in on], len(key_hashes))
        indexes[on] = build_hash_index(column_hashes, present_rows)
    tick_indexes = {name: _build_tick_index(rows[name].data, present_rows) for name in schema.tick_indexes}
    return Run(rows, key_hashes, tombstones, indexes, tick_indexes)


def _build_tick_index(ticks: Array, present_rows: Indices | None) -> RunIndex:
    """Omits rows at END: they are reached only at the end of time, when all rows are."""
    row_numbers = true_indices(ticks < END) if present_rows is None else present_rows[ticks[present_rows] < END]
    order = row_numbers[ticks[row_numbers].argsort(kind="stable")]
    return RunIndex(ticks[order], order)


def merge_runs(schema: TableSchema, runs: Sequence[Run], visible: Sequence[Bools | None], is_oldest: bool) -> Run:
    """Merges runs into one. `visible`: for each run the rows that no newer run hides, None for all. If the runs are the
    oldest of the table, tombstones are dropped: they have nothing to hide."""
    row_parts = [_rows_to_merge(run, is_visible, is_oldest) for run, is_visible in zip(runs, visible, strict=True)]
    nonempty = [
        (run, row_numbers)
        for run, row_numbers in zip(runs, row_parts, strict=True)
        if row_numbers is None or len(row_numbers)
    ] or [(runs[0], row_parts[0])]
    key_hashes = np.concatenate(
        [run.hashes if row_numbers is None else run.hashes[row_numbers] for run, row_numbers in nonempty]
    )
    order = key_hashes.argsort(kind="stable")
    rows = _merge_columns(schema, nonempty, order)
    if not len(key_hashes):
        return Run(
            rows,
            key_hashes,
            None,
            dict.fromkeys(schema.indexes, _EMPTY_HASH_INDEX),
            dict.fromkeys(schema.tick_indexes, _EMPTY_TICK_INDEX),
        )
    tombstones = None
    if not is_oldest and any(run.tombstones is not None for run in runs):
        tombstones = np.concatenate([_tombstones(run, row_numbers) for run, row_numbers in nonempty])[order]
    return make_run(schema, rows, tombstones, key_hashes[order])


def map_distinct_columns(rows: TableRows, convert: Callable[[ValueColumn], ValueColumn]) -> dict[str, ValueColumn]:
    """Converts each column. A column with several names is converted once and keeps its names."""
    converted: dict[int, ValueColumn] = {}
    result = {}
    for name, column in rows.items():
        if id(column) not in converted:
            converted[id(column)] = convert(column)
        result[name] = converted[id(column)]
    return result


def _merge_columns(
    schema: TableSchema, runs_with_rows: Sequence[tuple[Run, Indices | None]], order: Indices
) -> dict[str, ValueColumn]:
    """Concatenates the columns of several runs, then puts the rows in this order."""
    merged: dict[tuple[int, ...], ValueColumn] = {}
    rows = {}
    for name in schema.columns:
        columns = [run.rows.get(name) for run, _ in runs_with_rows]
        sample = next((c for c in columns if c is not None), None)
        if sample is None:
            continue
        source_ids = tuple(map(id, columns))
        if source_ids not in merged:
            parts = [
                v.nulls_like(sample, len(run) if row_numbers is None else len(row_numbers))
                if column is None
                else _take_rows(column, row_numbers)
                for column, (run, row_numbers) in zip(columns, runs_with_rows, strict=True)
            ]
            merged[source_ids] = v.concat(parts).take(order)
        rows[name] = merged[source_ids]
    return rows


def _rows_to_merge(run: Run, visible: Bools | None, is_oldest: bool) -> Indices | None:
    if is_oldest and run.tombstones is not None:
        visible = ~run.tombstones if visible is None else visible & ~run.tombstones
    return None if visible is None or visible.all() else true_indices(visible)


def _take_rows(column: ValueColumn, row_numbers: Indices | None) -> ValueColumn:
    return column if row_numbers is None else column.take(row_numbers)


def _tombstones(run: Run, row_numbers: Indices | None) -> Bools:
    tombstones = np.zeros(len(run), bool) if run.tombstones is None else run.tombstones
    return tombstones if row_numbers is None else tombstones[row_numbers]


def find_keys(run: Run, key_hashes: Array, key: Sequence[ValueColumn], schema: TableSchema) -> tuple[Bools, Indices]:
    """For each key, whether the run has a row with it, and its row number. Sorted hashes are faster."""
    row_numbers: Indices = run.hashes.searchsorted(key_hashes)
    row_numbers[row_numbers == len(run)] = 0
    has_equal_hash = run.hashes[row_numbers] == key_hashes
    stored_key = [run.rows[c] for c in schema.key]
    if (is_injective(key) and is_injective(stored_key)) or not has_equal_hash.any():
        return has_equal_hash, row_numbers
    is_found = has_equal_hash & _is_equal(stored_key, row_numbers, key)
    for asked_index in true_indices(has_equal_hash & ~is_found):
        # Another key has the same hash: check the rows after it.
        single_index = np.array([asked_index])
        candidate = row_numbers[asked_index] + 1
        while candidate < len(run) and run.hashes[candidate] == key_hashes[asked_index]:
            if _is_equal(stored_key, np.array([candidate]), [c.take(single_index) for c in key])[0]:
                is_found[asked_index], row_numbers[asked_index] = True, candidate
                break
            candidate += 1
    return is_found, row_numbers


def _is_equal(stored_columns: Sequence[ValueColumn], row_numbers: Indices, key: Sequence[ValueColumn]) -> Bools:
    is_equal = np.ones(len(row_numbers), bool)
    for stored, column in zip(stored_columns, key, strict=True):
        is_equal &= stored.take(row_numbers).same(column)
    return is_equal


def build_hash_index(row_hashes: Array, present_rows: Indices | None = None) -> RunIndex:
    """An index of all rows, or of `present_rows` only."""
    if present_rows is not None:
        row_hashes = row_hashes[present_rows]
    order = row_hashes.argsort(kind="stable")
    return RunIndex(row_hashes[order], order if present_rows is None else present_rows[order])


def find_matches(
    index: RunIndex, stored_columns: Sequence[ValueColumn], asked_hashes: Array, asked: Sequence[ValueColumn]
) -> tuple[Indices, Indices]:
    """All pairs of an index into `asked` and the number of a row with equal values, sorted by the former.

    `stored_columns` are the columns of the index, `asked_hashes` the hashes of `asked`, which must not have NULLs.
    Sorted hashes are faster.
    """
    no_rows = np.zeros(0, np.int64)
    if len(asked_hashes) == 1:
        row_numbers = _find_one_match(index, stored_columns, asked_hashes[0], asked)
        return (no_rows, no_rows) if row_numbers is None else (np.zeros(len(row_numbers), np.int64), row_numbers)
    distinct, starts = index.distinct_keys
    if not len(distinct) or not len(asked_hashes):
        return no_rows, no_rows
    group_numbers: Indices = distinct.searchsorted(asked_hashes)
    group_numbers[group_numbers == len(distinct)] = 0
    hits = true_indices(distinct[group_numbers] == asked_hashes)
    if not len(hits):
        return no_rows, no_rows
    group_numbers = group_numbers[hits]
    first = starts[group_numbers]
    counts = starts[group_numbers + 1] - first
    is_exact = is_injective(asked) and is_injective(stored_columns)
    # A check for collisions compares all rows of the index, so it pays off only if that many rows match.
    is_collision_free = is_exact or (
        (int(counts.sum()) > len(index.sorted_keys) or _COLLISION_FREE in index.__dict__)
        and index.is_collision_free(stored_columns)
    )
    if is_collision_free and not is_exact:
        # All rows with one hash are equal: compare only the first.
        equal = _is_equal(stored_columns, index.row_numbers[first], [column.take(hits) for column in asked])
        if not equal.all():
            hits, first, counts = hits[equal], first[equal], counts[equal]
    check_row_count(int(counts.sum()), "pairs of rows that match")
    asked_indices = hits.repeat(counts)
    begins = counts.cumsum() - counts
    row_numbers = index.row_numbers[np.arange(len(asked_indices)) - np.repeat(begins - first, counts)]
    if is_collision_free:
        return asked_indices, row_numbers
    equal = _is_equal(stored_columns, row_numbers, [column.take(asked_indices) for column in asked])
    return asked_indices[equal], row_numbers[equal]


def _find_one_match(
    index: RunIndex, stored_columns: Sequence[ValueColumn], asked_hash: Any, asked: Sequence[ValueColumn]
) -> Indices | None:
    """The numbers of the rows that equal a single asked row; None if its hash is not in the index."""
    first = int(index.sorted_keys.searchsorted(asked_hash))
    if first == len(index.sorted_keys) or index.sorted_keys[first] != asked_hash:
        return None
    row_numbers = index.row_numbers[first : index.sorted_keys.searchsorted(asked_hash, "right")]
    equal = [is_row_equal(stored_columns, int(row_number), asked) for row_number in row_numbers]
    return row_numbers if all(equal) else row_numbers[equal]


def is_row_equal(stored_columns: Sequence[ValueColumn], row_number: int, asked: Sequence[ValueColumn]) -> bool:
    """Whether a stored row equals the first asked row; NULL equals NULL."""
    for stored, column in zip(stored_columns, asked, strict=True):
        is_present = stored.valid is None or stored.valid[row_number]
        if is_present != (column.valid is None or column.valid[0]) or (
            is_present and stored.data[row_number] != column.data[0]
        ):
            return False
    return True
