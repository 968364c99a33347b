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
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Values
from smile.kernels.changes import Version
from smile.kernels.seals import Horizons, Moved, Seals
from smile.knowledge.seals import Seal
from smile.log.frame import END
from smile.state.gathered import Gathered
from smile.state.table import Table

GROUP = "group"
"""The column of marks, which has an index of its own."""


def marks_of(per: Sequence[Values], count: int) -> Values:
    """Of each row its group's mark; without columns all rows are one group."""
    return Values(hashes(per, count).view(np.int64))


def in_groups(table: Table, marks: Array) -> Gathered:
    """All rows whose group has one of these marks."""
    return table.match((GROUP,), [Values(np.unique(marks))])[1]


def least(horizons: Horizons, streams: Sequence[str]) -> int:
    return min(horizons[s] for s in streams)


def plain(name: str, fixed: Mapping[str, Values], columns: Mapping[str, Column]) -> Values:
    """A column that never changes, wherever it stands."""
    return k.now_of(cells(name, fixed, columns))


def cells(name: str, fixed: Mapping[str, Values], columns: Mapping[str, Column]) -> Column:
    return columns[name] if name in columns else fixed[name]


def under(version: Version, codes: Codes) -> Version:
    """Rows that are shown only if these masks let them be; those nobody has heard of stay so."""
    found = np.where(version.mask == masks.ABSENT, np.uint8(masks.ABSENT), masks.all_of(version.mask, codes))
    return Version(version.columns, found, version.steps)


@dataclass(frozen=True)
class Closing:
    """When rows are sealed, as columns of the table that keeps them, whose names begin with `prefix`."""

    seals: Mapping[str, Seal]
    types: Mapping[str, DataType]
    prefix: str = "until"

    @property
    def orders(self) -> tuple[str, ...]:
        return tuple(self._order(s) for s, seal in self.seals.items() if not seal.is_never)

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return {order: pa.int64() for order in self.orders}

    @property
    def needed(self) -> set[str]:
        """The columns that say when."""
        return {column for seal in self.seals.values() for column, _ in seal.at if column in self.types}

    def ticks(self, columns: Mapping[str, Values], count: int) -> dict[str, Values]:
        seals = Seals(self.seals, self.types)
        return {self._order(s): Values(seals.ticks(s, columns, count)) for s, e in self.seals.items() if not e.is_never}

    def reached(self, horizons: Horizons, columns: Mapping[str, Values], count: int) -> Bools:
        return Seals(self.seals, self.types).reached(horizons, columns, count)

    def wakes(self, moved: Moved) -> bool:
        """Whether a horizon has moved that can seal a row."""
        return any(
            moved.after[s] > moved.before[s] and (not seal.is_never or moved.after[s] >= END)
            for s, seal in self.seals.items()
        )

    def woken(self, table: Table, moved: Moved) -> Gathered:
        """The rows that horizons have sealed in this frame."""
        found = []
        for stream, seal in self.seals.items():
            before, after = moved.before[stream], moved.after[stream]
            if after <= before or (seal.is_never and after < END):
                continue
            found.append(table.scan() if seal.is_never else table.between(self._order(stream), before, after))
        if not found:
            nothing = np.zeros(0, np.int64)
            return Gathered(table, nothing, nothing)
        rows = found[0]
        if len(found) > 1:
            places = np.unique(np.concatenate([places_of(f) for f in found]))
            rows = Gathered(table, places >> 40, places & ((1 << 40) - 1))
        keep = np.ones(len(rows), bool)
        for stream, seal in self.seals.items():
            if moved.after[stream] < END:
                keep &= False if seal.is_never else rows[self._order(stream)].data <= moved.after[stream]
        return rows if keep.all() else rows.take(np.flatnonzero(keep))

    def _order(self, stream: str) -> str:
        return f"{self.prefix} {stream}"


def places_of(rows: Gathered) -> Array:
    """Where each row is stored: a number of its own."""
    return rows.run_of * (1 << 40) + rows.place
