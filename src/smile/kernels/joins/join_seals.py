"""Ends: when all streams that can still affect a row in some way have gone by, kept beside the row in a table."""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.log.input_batch import END
from smile.state.row_lookup import RowLookup
from smile.state.table import StateTable


class JoinSeals:
    """`orders` are, by stream, the columns of the ticks; none if there is a stream without such a tick, which only its
    end ends."""

    def __init__(self, seals: Seals, prefix: str) -> None:
        self.seals = seals
        sealed = not any(s.is_never for s in seals.by_stream.values())
        self.tick_columns: dict[str, str] = {s: f"{prefix} {s}" for s in seals.by_stream} if sealed else {}
        self.seal_columns = {c for seal in seals.by_stream.values() for c, _ in seal.terms if c in seals.types}
        """The columns that say when."""

    def ticks(self, fixed: Mapping[str, ValueColumn], count: int) -> dict[str, ValueColumn]:
        """What stands beside rows."""
        return {order: ValueColumn(self.seals.ticks(s, fixed, count)) for s, order in self.tick_columns.items()}

    def is_sealed(self, fixed: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Bools:
        if not self.tick_columns and not self.is_finished(horizons):
            return np.zeros(count, bool)
        return self.seals.is_sealed(horizons, fixed, count)

    def is_finished(self, horizons: Horizons) -> bool:
        """Whether all its streams are finished."""
        return all(horizons[s] >= END for s in self.seals.by_stream)

    def can_seal_rows(self, advance: HorizonAdvance) -> bool:
        """Whether a horizon has moved that can end a row."""
        if not self.tick_columns:
            return self.is_finished(advance.after) and not self.is_finished(advance.before)
        return any(advance.before[s] < advance.after[s] for s in self.tick_columns)

    def find_sealed_rows(self, table: StateTable, advance: HorizonAdvance) -> RowLookup:
        """Rows of the table that the horizons end in this frame."""
        if not self.can_seal_rows(advance):
            return empty_lookup(table)
        if not self.tick_columns:
            return table.scan()
        before, after = advance.before, advance.after
        parts = []
        earlier: list[str] = []
        for stream, order in self.tick_columns.items():
            if before[stream] < after[stream]:
                parts.append(
                    self._keep_newly_sealed(table.rows_between(order, before[stream], after[stream]), earlier, advance)
                )
            earlier.append(stream)
        return concat_lookups(table, parts)

    def _keep_newly_sealed(
        self, lookup: RowLookup, earlier_streams: Sequence[str], advance: HorizonAdvance
    ) -> RowLookup:
        """Those that no stream can affect any more, without those found by one of the `earlier` streams."""
        keep: Array = np.ones(len(lookup), bool)
        for stream, order in self.tick_columns.items():
            if advance.after[stream] < END:
                keep &= lookup[order].data <= advance.after[stream]
            if stream in earlier_streams and advance.before[stream] < END:
                keep &= lookup[order].data <= advance.before[stream]
        return lookup if keep.all() else lookup.take(np.flatnonzero(keep))


def empty_lookup(table: StateTable) -> RowLookup:
    none = np.zeros(0, np.int64)
    return RowLookup(table, none, none)


def concat_lookups(table: StateTable, parts: Sequence[RowLookup]) -> RowLookup:
    """Rows found in one table, none of them twice."""
    parts = [p for p in parts if len(p)]
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    run_of = np.concatenate([none, *(p.run_numbers for p in parts)])
    return RowLookup(table, run_of, np.concatenate([none, *(p.row_numbers for p in parts)]))
