"""Seals of rows that joins store: the ticks after which no stream can affect a row, or its matches, any more.

`JoinSeals` is for joins, which have several kinds of seals for one row. It stores no ticks at all if one of its streams
never seals: then only the end of all streams seals the rows. `SealIndex` (`kernels/state_indexes.py`) is for all other
operators. It stores ticks for the streams that have them, even if other streams never seal.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns.values import Array, Bools, ValueColumn
from smile.horizons import END
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.state.row_lookup import RowLookup
from smile.state.table import StateTable


class JoinSeals:
    """One kind of seal of the rows of a table. `tick_columns` are the columns of the ticks, by stream; they are empty
    if a stream never seals, so that only its end does."""

    def __init__(self, seals: Seals, prefix: str) -> None:
        self.seals = seals
        can_seal = not any(s.is_never for s in seals.by_stream.values())
        self.tick_columns: dict[str, str] = {s: f"{prefix} {s}" for s in seals.by_stream} if can_seal else {}
        self.seal_columns = {c for seal in seals.by_stream.values() for c, _ in seal.terms if c in seals.types}
        """The columns of a row that the seals depend on."""

    def ticks(self, fixed: Mapping[str, ValueColumn], count: int) -> dict[str, ValueColumn]:
        """The tick columns of these rows."""
        return {
            tick_column: ValueColumn(self.seals.ticks(s, fixed, count)) for s, tick_column in self.tick_columns.items()
        }

    def is_sealed(self, fixed: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Bools:
        if not self.tick_columns and not self.is_finished(horizons):
            return np.zeros(count, bool)
        return self.seals.is_sealed(horizons, fixed, count)

    def is_finished(self, horizons: Horizons) -> bool:
        """Whether all streams have ended."""
        return all(horizons[s] >= END for s in self.seals.by_stream)

    def can_seal_rows(self, advance: HorizonAdvance) -> bool:
        """Whether a horizon that can seal a row has moved."""
        if not self.tick_columns:
            return self.is_finished(advance.after) and not self.is_finished(advance.before)
        return any(advance.before[s] < advance.after[s] for s in self.tick_columns)

    def find_sealed_rows(self, table: StateTable, advance: HorizonAdvance) -> RowLookup:
        """The rows of the table that this advance seals."""
        if not self.can_seal_rows(advance):
            return empty_lookup(table)
        if not self.tick_columns:
            return table.scan()
        before, after = advance.before, advance.after
        parts = []
        earlier: list[str] = []
        for stream, tick_column in self.tick_columns.items():
            if before[stream] < after[stream]:
                parts.append(
                    self._keep_newly_sealed(
                        table.rows_between(tick_column, before[stream], after[stream]), earlier, advance
                    )
                )
            earlier.append(stream)
        return concat_lookups(table, parts)

    def _keep_newly_sealed(
        self, lookup: RowLookup, earlier_streams: Sequence[str], advance: HorizonAdvance
    ) -> RowLookup:
        """The rows that are sealed against all streams, without those that were found by an earlier stream."""
        keep: Array = np.ones(lookup.row_count, bool)
        for stream, tick_column in self.tick_columns.items():
            if advance.after[stream] < END:
                keep &= lookup[tick_column].data <= advance.after[stream]
            if stream in earlier_streams and advance.before[stream] < END:
                keep &= lookup[tick_column].data <= advance.before[stream]
        return lookup if keep.all() else lookup.take(np.flatnonzero(keep))


def empty_lookup(table: StateTable) -> RowLookup:
    no_rows = np.zeros(0, np.int64)
    return RowLookup(table, no_rows, no_rows)


def concat_lookups(table: StateTable, parts: Sequence[RowLookup]) -> RowLookup:
    """All rows of several disjoint lookups in one table."""
    parts = [p for p in parts if p.row_count]
    if len(parts) == 1:
        return parts[0]
    no_rows = np.zeros(0, np.int64)
    run_numbers = np.concatenate([no_rows, *(p.run_numbers for p in parts)])
    return RowLookup(table, run_numbers, np.concatenate([no_rows, *(p.row_numbers for p in parts)]))
