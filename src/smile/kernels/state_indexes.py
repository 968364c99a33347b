"""Indexes of stored rows: by the hash of their group, and by the ticks at which they are sealed.

A group hash also finds groups whose key has NULLs, unlike `StateTable.match` on the key columns. Different groups can
have equal hashes, so callers must compare the columns too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra.types import DataType
from smile.columns import knowledge as k
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.horizons import END
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.table import StateTable

GROUP_HASH = "group"
"""The column of group hashes, which is indexed."""


def compute_group_hashes(per: Sequence[ValueColumn], count: int) -> ValueColumn:
    """The group hash of each row. Without group columns, all rows are one group."""
    return ValueColumn(hashes(per, count).view(np.int64))


def find_group_rows(table: StateTable, group_hashes: Array) -> RowLookup:
    """All rows with one of these group hashes."""
    return table.match((GROUP_HASH,), [ValueColumn(np.unique(group_hashes))])[1]


def least_horizon(horizons: Horizons, streams: Sequence[str]) -> int:
    return min(horizons[s] for s in streams)


def unchanging_values(
    name: str, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]
) -> ValueColumn:
    """The values of a column that never changes, whether the layout has it as fixed or as evolving."""
    return k.current_values(find_column(name, fixed, columns))


def find_column(name: str, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]) -> KnowledgeColumn:
    return columns[name] if name in columns else fixed[name]


@dataclass(frozen=True)
class SealIndex:
    """The ticks at which the rows of a table are sealed: a column for each stream, whose name starts with `prefix`."""

    seals: Mapping[str, Seal]
    types: Mapping[str, DataType]
    prefix: str = "until"

    @property
    def tick_columns(self) -> tuple[str, ...]:
        return tuple(self._tick_column(s) for s, seal in self.seals.items() if not seal.is_never)

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        return {column: pa.int64() for column in self.tick_columns}

    @property
    def seal_columns(self) -> set[str]:
        """The columns of the relation that determine the ticks."""
        return {column for seal in self.seals.values() for column, _ in seal.terms if column in self.types}

    def ticks(self, columns: Mapping[str, ValueColumn], count: int) -> dict[str, ValueColumn]:
        seals = Seals(self.seals, self.types)
        return {
            self._tick_column(s): ValueColumn(seals.ticks(s, columns, count))
            for s, seal in self.seals.items()
            if not seal.is_never
        }

    def is_sealed(self, horizons: Horizons, columns: Mapping[str, ValueColumn], count: int) -> Bools:
        return Seals(self.seals, self.types).is_sealed(horizons, columns, count)

    def can_seal_rows(self, advance: HorizonAdvance) -> bool:
        """Whether a horizon that can seal rows has advanced."""
        return any(
            advance.after[s] > advance.before[s] and (not seal.is_never or advance.after[s] >= END)
            for s, seal in self.seals.items()
        )

    def find_sealed_rows(self, table: StateTable, advance: HorizonAdvance) -> RowLookup:
        """The rows that the horizon advance seals."""
        parts = []
        for stream, seal in self.seals.items():
            before, after = advance.before[stream], advance.after[stream]
            if after <= before or (seal.is_never and after < END):
                continue
            parts.append(
                table.scan() if seal.is_never else table.rows_between(self._tick_column(stream), before, after)
            )
        if not parts:
            return table.no_rows()
        rows = parts[0]
        if len(parts) > 1:
            ids = np.unique(np.concatenate([row_ids(part) for part in parts]))
            rows = RowLookup(table, ids >> 40, ids & ((1 << 40) - 1))
        keep = np.ones(rows.row_count, bool)
        for stream, seal in self.seals.items():
            if advance.after[stream] < END:
                keep &= False if seal.is_never else rows[self._tick_column(stream)].data <= advance.after[stream]
        return rows if keep.all() else rows.take(np.flatnonzero(keep))

    def _tick_column(self, stream: str) -> str:
        return f"{self.prefix} {stream}"


def row_ids(rows: RowLookup) -> Array:
    """A number that identifies each row of a table by its location; negative for rows that are not stored."""
    return (rows.run_numbers << 40) | rows.row_numbers
