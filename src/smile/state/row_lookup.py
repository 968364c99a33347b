"""Rows selected from the runs of a table. The location of each row is known; columns are fetched on first access."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.columns import values as v
from smile.columns.values import Array, Indices, ValueColumn, true_indices
from smile.state.run import Run, TableSchema

_NO_ROWS = np.zeros(0, np.int64)

_ROW_NUMBER_BITS = 40
"""The bits of a row id that have the row number; the others have the run number."""

RunRows = tuple[int, Indices]
"""The number of a run, and row numbers in it."""


class RunSource(Protocol):
    """A state table, as far as its rows are read."""

    @property
    def schema(self) -> TableSchema: ...

    @property
    def runs(self) -> Sequence[Run]: ...


class RowLookup(Mapping[str, ValueColumn]):
    """The columns of rows from several runs, in the order of the row locations.

    It has every column of the table's schema. A cell is NULL if its row is in no run (negative run number), or if its
    run lacks the column.
    """

    def __init__(self, table: RunSource, run_numbers: Array, row_numbers: Indices) -> None:
        self.table, self.run_numbers, self.row_numbers = table, run_numbers, row_numbers
        self._fetched: dict[str, ValueColumn] = {}
        self._fetched_by_source: dict[tuple[int, ...], ValueColumn] = {}
        self._parts_by_run: list[tuple[Run, Indices, Indices]] | None = None
        self._parts_in_order: list[tuple[Run, Indices]] | None = None
        """Each run with the numbers of its rows, if the rows are ordered by run."""

    @staticmethod
    def from_parts(table: RunSource, parts: Sequence[RunRows]) -> "RowLookup":
        """A lookup whose rows are ordered by run."""
        if len(parts) == 1:
            number, row_numbers = parts[0]
            lookup = RowLookup(table, np.full(len(row_numbers), number), row_numbers)
        else:
            run_numbers = np.repeat([number for number, _ in parts], [len(p) for _, p in parts]) if parts else _NO_ROWS
            lookup = RowLookup(table, run_numbers, np.concatenate([_NO_ROWS, *(p for _, p in parts)]))
        lookup._parts_in_order = [(table.runs[number], row_numbers) for number, row_numbers in parts]
        return lookup

    @staticmethod
    def union(table: RunSource, parts: Sequence["RowLookup"]) -> "RowLookup":
        """The rows of several lookups in one table, each row once."""
        run_numbers = np.concatenate([_NO_ROWS, *(p.run_numbers for p in parts)])
        lookup = RowLookup(table, run_numbers, np.concatenate([_NO_ROWS, *(p.row_numbers for p in parts)]))
        return lookup.take(np.unique(lookup.row_ids, return_index=True)[1]) if lookup.row_count else lookup

    @property
    def row_count(self) -> int:
        return len(self.row_numbers)

    @property
    def row_ids(self) -> Array:
        """A number for each row that no other row of the table has; negative for rows that are not stored."""
        return (self.run_numbers << _ROW_NUMBER_BITS) | self.row_numbers

    def positions_in(self, other: "RowLookup") -> Indices:
        """The position of each row in another lookup of the table; -1 for a row that the other does not have."""
        if not other.row_count:
            return np.full(self.row_count, -1)
        ids = other.row_ids
        order = ids.argsort()
        positions = order[np.minimum(ids[order].searchsorted(self.row_ids), len(ids) - 1)]
        return np.where(ids[positions] == self.row_ids, positions, -1)

    def without(self, removed: "RowLookup") -> "RowLookup":
        """The rows that are not in another lookup of the table."""
        return self.take(true_indices(~np.isin(self.row_ids, removed.row_ids)))

    def __len__(self) -> int:
        """The number of columns."""
        return len(self.table.schema.columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.schema.columns)

    def __getitem__(self, name: str) -> ValueColumn:
        if name not in self._fetched:
            self._fetched[name] = self._fetch(name)
        return self._fetched[name]

    def stored_column_or_none(self, name: str) -> ValueColumn | None:
        """The column, or None if all runs of these rows lack it."""
        runs = [part[0] for part in self._parts_in_order or self._split_by_run()]
        return self[name] if any(name in run.rows for run in runs) else None

    def text_bytes(self) -> Array:
        """For each row, the bytes of its texts and other values of variable size. The values are not fetched."""
        sizes = np.zeros(self.row_count, np.int64)
        for run, indices, row_numbers in self._split_by_run():
            for column in run.rows.values():
                if column.is_text:
                    lengths = pc.fill_null(pc.binary_length(column.data), 0)
                    sizes[indices] += lengths.to_numpy(zero_copy_only=False)[row_numbers]
        return sizes

    def take(self, indices: Indices) -> "RowLookup":
        if self.row_count and self._parts_in_order is not None and len(self._parts_in_order) == 1:
            return RowLookup.from_parts(self.table, [(int(self.run_numbers[0]), self.row_numbers[indices])])
        return RowLookup(self.table, self.run_numbers[indices], self.row_numbers[indices])

    def _split_by_run(self) -> list[tuple[Run, Indices, Indices]]:
        """For each run that has rows of this lookup: the run, the indices of its rows here, and their row numbers."""
        if self._parts_by_run is None:
            self._parts_by_run = []
            for number, run in enumerate(self.table.runs):
                indices = true_indices(self.run_numbers == number)
                if len(indices):
                    self._parts_by_run.append((run, indices, self.row_numbers[indices]))
        return self._parts_by_run

    def _fetch(self, name: str) -> ValueColumn:
        parts = self._parts_in_order or self._split_by_run()
        columns = [part[0].rows.get(name) for part in parts]
        sample = next((c for c in columns if c is not None), None)
        if sample is None:
            return null_column(self.table.schema, name, self.row_count)
        # Two names can refer to one column: fetch it once.
        source_ids = tuple(map(id, columns))
        if source_ids not in self._fetched_by_source:
            if self._parts_in_order:
                self._fetched_by_source[source_ids] = self._fetch_in_order(columns, sample)
            elif sample.is_text:
                self._fetched_by_source[source_ids] = self._fetch_scattered_text(columns, sample)
            else:
                self._fetched_by_source[source_ids] = self._fetch_scattered(columns)
        return self._fetched_by_source[source_ids]

    def _fetch_in_order(self, columns: Sequence[ValueColumn | None], sample: ValueColumn) -> ValueColumn:
        assert self._parts_in_order is not None
        pieces = [
            v.nulls_like(sample, len(row_numbers)) if c is None else c.take(row_numbers)
            for c, (_, row_numbers) in zip(columns, self._parts_in_order, strict=True)
        ]
        return v.concat(pieces)

    def _fetch_scattered(self, columns: Sequence[ValueColumn | None]) -> ValueColumn:
        parts, count = self._split_by_run(), self.row_count
        present_columns = [c for c in columns if c is not None]
        if len(parts) == 1 and len(parts[0][1]) == count:
            return present_columns[0].take(self.row_numbers)
        is_complete = sum(len(part[1]) for part in parts) == count and len(present_columns) == len(parts)
        dtypes = {c.data.dtype for c in present_columns}
        data = np.zeros(count, dtypes.pop() if len(dtypes) == 1 else object)
        valid = None if is_complete and all(c.valid is None for c in present_columns) else np.zeros(count, bool)
        for column, (_, indices, row_numbers) in zip(columns, parts, strict=True):
            if column is not None:
                data[indices] = column.data[row_numbers]
                if valid is not None:
                    valid[indices] = True if column.valid is None else column.valid[row_numbers]
        return ValueColumn(data, valid)

    def _fetch_scattered_text(self, columns: Sequence[ValueColumn | None], sample: ValueColumn) -> ValueColumn:
        parts = self._split_by_run()
        pieces = [
            v.nulls_like(sample, len(row_numbers)) if c is None else c.take(row_numbers)
            for c, (_, _, row_numbers) in zip(columns, parts, strict=True)
        ]
        index_parts = [indices for _, indices, _ in parts]
        missing = true_indices(self.run_numbers < 0)
        if len(missing):
            pieces.append(v.nulls_like(sample, len(missing)))
            index_parts.append(missing)
        order = np.empty(self.row_count, np.int64)
        order[np.concatenate(index_parts)] = np.arange(self.row_count)
        return v.concat(pieces).take(order)


def null_column(schema: TableSchema, name: str, count: int) -> ValueColumn:
    """`count` NULLs of the column's type."""
    return v.nulls_like(_empty_column(schema.columns[name]), count)


@cache
def _empty_column(arrow_type: pa.DataType) -> ValueColumn:
    return v.from_arrow(pa.array([], arrow_type))
