"""Seals of many rows at once: for each row, the tick that the horizon of a stream must reach to seal it. END is the end
of time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import INT_MIN, TICKS_PER_MICROSECOND, TIMESTAMP, DataType
from smile.columns.values import Array, Bools, ValueColumn
from smile.horizons import END
from smile.knowledge.seals import START, Seal

Horizons = Mapping[str, int]


@dataclass(frozen=True)
class HorizonAdvance:
    """The horizons of all streams before and after a batch."""

    before: Horizons
    after: Horizons

    @property
    def has_moved(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Seals:
    """The seals of a relation, by stream. `types`: the types of the columns in the seals."""

    by_stream: Mapping[str, Seal]
    types: Mapping[str, DataType]

    def ticks(self, stream: str, columns: Mapping[str, ValueColumn], count: int) -> Array:
        """The ticks at which the rows are sealed against a stream."""
        seal = self.by_stream[stream]
        if seal.is_never:
            return np.full(count, END)
        ticks = np.full(count, INT_MIN)
        for column, offset in seal.terms:
            ticks = np.maximum(ticks, self._tick(column, offset, columns, count))
        return ticks

    def _tick(self, column: str, offset: int, columns: Mapping[str, ValueColumn], count: int) -> Array:
        if column == START:
            return np.full(count, min(max(offset, INT_MIN), END))
        values = columns[column]
        ticks = values.data
        if self.types[column] == TIMESTAMP:
            scaled = np.clip(ticks, INT_MIN // TICKS_PER_MICROSECOND, END // TICKS_PER_MICROSECOND)
            ticks = scaled * TICKS_PER_MICROSECOND
        ticks = shift_ticks(ticks, offset)
        return ticks if values.valid is None else np.where(values.valid, ticks, END)

    def is_sealed(self, horizons: Horizons, columns: Mapping[str, ValueColumn], count: int) -> Bools:
        """Which rows no future event can affect."""
        is_sealed = np.ones(count, bool)
        for stream in self.by_stream:
            if horizons[stream] < END:
                is_sealed &= self.ticks(stream, columns, count) <= horizons[stream]
        return is_sealed


def shift_ticks(ticks: Array, offset: int) -> Array:
    """Adds an offset to ticks and limits the results to the range of ticks."""
    if offset >= 0:
        return np.where(ticks > END - offset, END, ticks + np.int64(min(offset, END)))
    return np.where(ticks < INT_MIN - offset, INT_MIN, ticks + np.int64(max(offset, INT_MIN)))
