"""Seals of many rows at once, and the one index of stored rows by the ticks at which they are sealed.

For each row, a seal is the tick that the horizon of a stream must reach to seal the row. A row is sealed when all its
streams have reached it. END is the end of time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from smile.algebra.time_forms import START, TICKS_PER_UNIT
from smile.algebra.types import INT_MIN, TICKS_PER_MICROSECOND, DataType
from smile.columns.values import Array, Bools, ValueColumn, true_indices
from smile.horizons import END
from smile.kernels.expressions.compile import Expression, compile_expression
from smile.kernels.layout import Layout
from smile.knowledge.seals import PeriodEnd, Seal, SealPoint
from smile.state.row_lookup import RowLookup
from smile.state.table import StateTable

Horizons = Mapping[str, int]

LEAST = ""
"""Stands for the stream with the least horizon, where rows wait for all streams to reach one tick."""


@dataclass(frozen=True)
class HorizonAdvance:
    """The horizons of all streams before and after a batch."""

    before: Horizons
    after: Horizons

    @property
    def has_moved(self) -> bool:
        return self.before != self.after

    def least(self, streams: Sequence[str]) -> "HorizonAdvance":
        """The advance of the least horizon of these streams, as that of the stream LEAST. Without streams, rows have
        ended."""
        return HorizonAdvance(*({LEAST: min((h[s] for s in streams), default=END)} for h in (self.before, self.after)))


@dataclass(frozen=True)
class Seals:
    """The seals of a relation, by stream. `types`: the types of the columns in the seals."""

    by_stream: Mapping[str, Seal]
    types: Mapping[str, DataType]

    @cached_property
    def seal_columns(self) -> set[str]:
        """The columns of a row that the seals depend on."""
        return {column for seal in self.by_stream.values() for column in seal.columns if column in self.types}

    @cached_property
    def _never_sealing(self) -> tuple[str, ...]:
        """The streams that seal rows only at their end."""
        return tuple(s for s, seal in self.by_stream.items() if seal.is_never)

    @cached_property
    def _period_ends(self) -> dict[PeriodEnd, Expression]:
        points = {point for seal in self.by_stream.values() for point, _ in seal.terms}
        layout = Layout((), self.types)
        return {point: compile_expression(point.expr, layout) for point in points if isinstance(point, PeriodEnd)}

    def ticks(self, stream: str, columns: Mapping[str, ValueColumn], count: int) -> Array:
        """The ticks at which the rows are sealed against a stream."""
        seal = self.by_stream[stream]
        if seal.is_never:
            return np.full(count, END)
        ticks = np.full(count, INT_MIN)
        for point, offset in seal.terms:
            ticks = np.maximum(ticks, self._tick(point, offset, columns, count))
        return ticks

    def _tick(self, point: SealPoint, offset: int, columns: Mapping[str, ValueColumn], count: int) -> Array:
        if point == START:
            return np.full(count, min(max(offset, INT_MIN), END))
        if isinstance(point, PeriodEnd):
            values, unit = self._period_ends[point](columns, {}, count), TICKS_PER_MICROSECOND
            assert isinstance(values, ValueColumn)
        else:
            values, unit = columns[point], TICKS_PER_UNIT[self.types[point]]
        ticks = values.data
        if unit > 1:
            ticks = np.clip(ticks, -(-INT_MIN // unit), END // unit) * unit
        ticks = shift_ticks(ticks, offset)
        return ticks if values.valid is None else np.where(values.valid, ticks, END)

    def is_sealed(self, horizons: Horizons, columns: Mapping[str, ValueColumn], count: int) -> Bools:
        """Which rows no future event can affect."""
        if not self.can_be_sealed(horizons):
            return np.zeros(count, bool)
        is_sealed = np.ones(count, bool)
        for stream in self.by_stream:
            if horizons[stream] < END:
                is_sealed &= self.ticks(stream, columns, count) <= horizons[stream]
        return is_sealed

    def can_be_sealed(self, horizons: Horizons) -> bool:
        """Whether any row can be sealed at these horizons: all streams that never seal have ended."""
        return all(horizons[s] >= END for s in self._never_sealing)

    def can_seal_rows(self, advance: HorizonAdvance) -> bool:
        """Whether the horizon advance can seal a row."""
        has_moved = any(advance.after[s] > advance.before[s] for s in self.by_stream)
        return has_moved and self.can_be_sealed(advance.after)

    def has_ended(self, horizons: Horizons) -> bool:
        """Whether all streams have ended, so that all rows are sealed."""
        return all(horizons[s] >= END for s in self.by_stream)


@dataclass(frozen=True)
class SealIndex(Seals):
    """An index of the rows of a table by the ticks at which they are sealed. The rows that a horizon advance seals are
    found without a scan of the others.

    A row is added with its `tick_values`, in one column for each stream that can seal it. `prefix` and the name of the
    stream are the name of the column, which has a tick index in the table.
    """

    prefix: str

    @cached_property
    def tick_columns(self) -> dict[str, str]:
        """The column of the ticks, by stream."""
        return {s: f"{self.prefix}{s}" for s, seal in self.by_stream.items() if not seal.is_never}

    @cached_property
    def column_types(self) -> dict[str, pa.DataType]:
        return dict.fromkeys(self.tick_columns.values(), pa.int64())

    def tick_values(self, columns: Mapping[str, ValueColumn], count: int) -> dict[str, ValueColumn]:
        """The tick columns of these rows."""
        return {name: ValueColumn(self.ticks(s, columns, count)) for s, name in self.tick_columns.items()}

    def find_sealed_rows(self, table: StateTable, advance: HorizonAdvance) -> RowLookup:
        """The rows that the horizon advance seals. Rows that were sealed before are not among them."""
        if not table.runs or not self.can_seal_rows(advance):
            return table.no_rows()
        if not self.can_be_sealed(advance.before):
            return self.keep_sealed(table.scan(), advance.after)
        parts = [
            table.rows_between(column, advance.before[s], advance.after[s])
            for s, column in self.tick_columns.items()
            if advance.after[s] > advance.before[s]
        ]
        if len(self.tick_columns) == 1:
            return parts[0]
        parts = [p for p in parts if p.row_count]
        return self.keep_sealed(parts[0] if len(parts) == 1 else RowLookup.union(table, parts), advance.after)

    def keep_sealed(self, rows: RowLookup, horizons: Horizons) -> RowLookup:
        """The rows that are sealed at these horizons."""
        is_sealed = self.sealed_rows(rows, horizons)
        return rows if is_sealed.all() else rows.take(true_indices(is_sealed))

    def sealed_rows(self, rows: RowLookup, horizons: Horizons) -> Bools:
        """Which of the stored rows are sealed at these horizons."""
        is_sealed = np.full(rows.row_count, self.can_be_sealed(horizons))
        for stream, column in self.tick_columns.items():
            if horizons[stream] < END:
                is_sealed &= rows[column].data <= horizons[stream]
        return is_sealed


def all_or_never(seals: Mapping[str, Seal]) -> Mapping[str, Seal]:
    """The same seals, but never for all streams if one of them never seals. Rows then need no ticks, and wait for the
    end of all streams. Joins remove rows by such seals: the other streams seldom go on after a stream has ended. What
    is known of a row must not depend on them."""
    return dict.fromkeys(seals, Seal.NEVER) if any(seal.is_never for seal in seals.values()) else seals


def shift_ticks(ticks: Array, offset: int) -> Array:
    """Adds an offset to ticks and limits the results to the range of ticks."""
    if offset >= 0:
        return np.where(ticks > END - offset, END, ticks + np.int64(min(offset, END)))
    return np.where(ticks < INT_MIN - offset, INT_MIN, ticks + np.int64(max(offset, INT_MIN)))
