"""Rows gathered from the runs of a table: where each row is is known, and a column is fetched when it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.values import Array, Indices, ValueColumn, true_indices
from smile.state.run import Run, TableSchema

if TYPE_CHECKING:
    from smile.state.table import StateTable

_NO_ROWS = np.zeros(0, np.int64)

RunRows = tuple[int, Indices]
"""The number of a run, and places in it."""


class RowLookup(Mapping[str, ValueColumn]):
    """Rows from several runs, a column fetched when it is asked for; NULL where a row is from no run."""

    def __init__(self, table: "StateTable", run_numbers: Array, row_numbers: Indices) -> None:
        self.table, self.run_numbers, self.row_numbers = table, run_numbers, row_numbers
        self._fetched: dict[str, ValueColumn] = {}
        self._fetched_by_source: dict[tuple[int, ...], ValueColumn] = {}
        self._parts_by_run: list[tuple[Run, Indices, Indices]] | None = None
        self._parts_in_order: list[tuple[Run, Indices]] | None = None
        """Places run by run, if the rows stand so."""

    @staticmethod
    def from_parts(table: "StateTable", parts: Sequence[RunRows]) -> "RowLookup":
        """Rows that stand run by run."""
        if len(parts) == 1:
            number, row_numbers = parts[0]
            lookup = RowLookup(table, np.full(len(row_numbers), number), row_numbers)
        else:
            run_numbers = np.repeat([number for number, _ in parts], [len(p) for _, p in parts]) if parts else _NO_ROWS
            lookup = RowLookup(table, run_numbers, np.concatenate([_NO_ROWS, *(p for _, p in parts)]))
        lookup._parts_in_order = [(table.runs[number], row_numbers) for number, row_numbers in parts]
        return lookup

    def __len__(self) -> int:
        """How many rows; a mapping of columns though it is."""
        return len(self.row_numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.schema.columns)

    def __getitem__(self, name: str) -> ValueColumn:
        if name not in self._fetched:
            self._fetched[name] = self._fetch(name)
        return self._fetched[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The column, or `default` if no run that rows are from has it."""
        runs = [part[0] for part in self._parts_in_order or self._split_by_run()]
        return self[name] if any(name in run.rows for run in runs) else default

    def take(self, indices: Indices) -> "RowLookup":
        return RowLookup(self.table, self.run_numbers[indices], self.row_numbers[indices])

    def _split_by_run(self) -> list[tuple[Run, Indices, Indices]]:
        """The runs that rows are from, where those rows stand here, and where there."""
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
            return null_column(self.table.schema, name, len(self.row_numbers))
        # A column by two names is fetched once.
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
        ranged = zip(columns, self._parts_in_order, strict=True)
        return v.concat(
            [
                v.nulls_like(sample, len(row_numbers)) if c is None else c.take(row_numbers)
                for c, (_, row_numbers) in ranged
            ]
        )

    def _fetch_scattered(self, columns: Sequence[ValueColumn | None]) -> ValueColumn:
        parts, count = self._split_by_run(), len(self.row_numbers)
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
        order = np.empty(len(self.row_numbers), np.int64)
        order[np.concatenate(index_parts)] = np.arange(len(self.row_numbers))
        return v.concat(pieces).take(order)


def null_column(schema: TableSchema, name: str, count: int) -> ValueColumn:
    """NULLs of a column."""
    return v.nulls_like(_empty_values(schema.columns[name]), count)


@cache
def _empty_values(kind: pa.DataType) -> ValueColumn:
    return v.from_arrow(pa.array([], kind))
