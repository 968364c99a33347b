"""Seals of many rows at once: of each the tick that the horizon of a stream must reach; END is the end of time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import INT_MIN, TICKS_PER_MICROSECOND, TIMESTAMP, DataType
from smile.columns.values import Array, Bools, Values
from smile.knowledge.seals import START, Seal
from smile.log.frame import END

Horizons = Mapping[str, int]


@dataclass(frozen=True)
class Moved:
    """The horizons of all streams before a frame and after it."""

    before: Horizons
    after: Horizons

    @property
    def at_all(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Seals:
    """`types` are of the columns that the seals speak of."""

    by_stream: Mapping[str, Seal]
    types: Mapping[str, DataType]

    def ticks(self, stream: str, columns: Mapping[str, Values], count: int) -> Array:
        """When the rows are sealed against a stream."""
        seal = self.by_stream[stream]
        if seal.is_never:
            return np.full(count, END)
        found = np.full(count, INT_MIN)
        for column, offset in seal.at:
            found = np.maximum(found, self._tick(column, offset, columns, count))
        return found

    def _tick(self, column: str, offset: int, columns: Mapping[str, Values], count: int) -> Array:
        if column == START:
            return np.full(count, min(max(offset, INT_MIN), END))
        values = columns[column]
        found = values.data
        if self.types[column] == TIMESTAMP:
            scaled = np.clip(found, INT_MIN // TICKS_PER_MICROSECOND, END // TICKS_PER_MICROSECOND)
            found = scaled * TICKS_PER_MICROSECOND
        found = later(found, offset)
        return found if values.valid is None else np.where(values.valid, found, END)

    def reached(self, horizons: Horizons, columns: Mapping[str, Values], count: int) -> Bools:
        """Whether no event that is still possible can affect the rows."""
        found = np.ones(count, bool)
        for stream in self.by_stream:
            if horizons[stream] < END:
                found &= self.ticks(stream, columns, count) <= horizons[stream]
        return found


def later(ticks: Array, by: int) -> Array:
    """Ticks moved, and kept within what a tick can be."""
    if by >= 0:
        return np.where(ticks > END - by, END, ticks + np.int64(min(by, END)))
    return np.where(ticks < INT_MIN - by, INT_MIN, ticks + np.int64(max(by, INT_MIN)))
