"""Rows kept in tables: each is found by the mark of its group, and by the ticks at which it is sealed.

Unlike `Table.match` a group may be that of NULL. Marks of different groups may be equal, so whoever finds by them
compares the columns too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra.types import DataType
from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.delta import RowKnowledge
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.knowledge.seals import Seal
from smile.log.input_batch import END
from smile.state.row_lookup import RowLookup
from smile.state.table import StateTable

GROUP_HASH = "group"
"""The column of marks, which has an index of its own."""


def compute_group_hashes(per: Sequence[ValueColumn], count: int) -> ValueColumn:
    """Of each row its group's mark; without columns all rows are one group."""
    return ValueColumn(hashes(per, count).view(np.int64))


def find_group_rows(table: StateTable, group_hashes: Array) -> RowLookup:
    """All rows whose group has one of these marks."""
    return table.match((GROUP_HASH,), [ValueColumn(np.unique(group_hashes))])[1]


def least_horizon(horizons: Horizons, streams: Sequence[str]) -> int:
    return min(horizons[s] for s in streams)


def unchanging_values(
    name: str, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]
) -> ValueColumn:
    """A column that never changes, wherever it stands."""
    return k.current_values(find_column(name, fixed, columns))


def find_column(name: str, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]) -> KnowledgeColumn:
    return columns[name] if name in columns else fixed[name]


def restrict_masks(knowledge: RowKnowledge, codes: MaskCodes) -> RowKnowledge:
    """Rows that are shown only if these masks let them be; those nobody has heard of stay so."""
    mask = np.where(knowledge.mask == masks.ABSENT, np.uint8(masks.ABSENT), masks.all_of(knowledge.mask, codes))
    return RowKnowledge(knowledge.columns, mask, knowledge.steps)


@dataclass(frozen=True)
class SealIndex:
    """When rows are sealed, as columns of the table that keeps them, whose names begin with `prefix`."""

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
        """The columns that say when."""
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
        """Whether a horizon has moved that can seal a row."""
        return any(
            advance.after[s] > advance.before[s] and (not seal.is_never or advance.after[s] >= END)
            for s, seal in self.seals.items()
        )

    def find_sealed_rows(self, table: StateTable, advance: HorizonAdvance) -> RowLookup:
        """The rows that horizons have sealed in this frame."""
        parts = []
        for stream, seal in self.seals.items():
            before, after = advance.before[stream], advance.after[stream]
            if after <= before or (seal.is_never and after < END):
                continue
            parts.append(
                table.scan() if seal.is_never else table.rows_between(self._tick_column(stream), before, after)
            )
        if not parts:
            no_rows = np.zeros(0, np.int64)
            return RowLookup(table, no_rows, no_rows)
        rows = parts[0]
        if len(parts) > 1:
            ids = np.unique(np.concatenate([row_ids(part) for part in parts]))
            rows = RowLookup(table, ids >> 40, ids & ((1 << 40) - 1))
        keep = np.ones(len(rows), bool)
        for stream, seal in self.seals.items():
            if advance.after[stream] < END:
                keep &= False if seal.is_never else rows[self._tick_column(stream)].data <= advance.after[stream]
        return rows if keep.all() else rows.take(np.flatnonzero(keep))

    def _tick_column(self, stream: str) -> str:
        return f"{self.prefix} {stream}"


def row_ids(rows: RowLookup) -> Array:
    """Where each row is stored: a number of its own."""
    return rows.run_numbers * (1 << 40) + rows.row_numbers
