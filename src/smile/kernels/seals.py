"""Seals of many rows at once: of each the tick that the horizon of a stream must reach; END is the end of time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import INT_MIN, TICKS_PER_MICROSECOND, TIMESTAMP, DataType
from smile.columns.values import Array, Bools, ValueColumn
from smile.knowledge.seals import START, Seal
from smile.log.input_batch import END

Horizons = Mapping[str, int]


@dataclass(frozen=True)
class HorizonAdvance:
    """The horizons of all streams before a frame and after it."""

    before: Horizons
    after: Horizons

    @property
    def has_moved(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Seals:
    """`types` are of the columns that the seals speak of."""

    by_stream: Mapping[str, Seal]
    types: Mapping[str, DataType]

    def ticks(self, stream: str, columns: Mapping[str, ValueColumn], count: int) -> Array:
        """When the rows are sealed against a stream."""
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
        """Whether no event that is still possible can affect the rows."""
        is_sealed = np.ones(count, bool)
        for stream in self.by_stream:
            if horizons[stream] < END:
                is_sealed &= self.ticks(stream, columns, count) <= horizons[stream]
        return is_sealed


def shift_ticks(ticks: Array, by: int) -> Array:
    """Ticks moved, and kept within what a tick can be."""
    if by >= 0:
        return np.where(ticks > END - by, END, ticks + np.int64(min(by, END)))
    return np.where(ticks < INT_MIN - by, INT_MIN, ticks + np.int64(max(by, INT_MIN)))
