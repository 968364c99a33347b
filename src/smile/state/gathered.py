"""Rows gathered from the runs of a table: where each row is is known, and a column is fetched when it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.values import Array, Indices, Values, places_of
from smile.state.run import Run, Shape

if TYPE_CHECKING:
    from smile.state.table import Table

_NONE = np.zeros(0, np.int64)

Part = tuple[int, Indices]
"""The number of a run, and places in it."""


class Gathered(Mapping[str, Values]):
    """Rows from several runs, a column fetched when it is asked for; NULL where a row is from no run."""

    def __init__(self, table: "Table", run_of: Array, place: Indices) -> None:
        self.table, self.run_of, self.place = table, run_of, place
        self._fetched: dict[str, Values] = {}
        self._same: dict[tuple[int, ...], Values] = {}
        self._parts: list[tuple[Run, Indices, Indices]] | None = None
        self._ranged: list[tuple[Run, Indices]] | None = None
        """Places run by run, if the rows stand so."""

    @staticmethod
    def of(table: "Table", parts: Sequence[Part]) -> "Gathered":
        """Rows that stand run by run."""
        if len(parts) == 1:
            number, place = parts[0]
            found = Gathered(table, np.full(len(place), number), place)
        else:
            run_of = np.repeat([number for number, _ in parts], [len(p) for _, p in parts]) if parts else _NONE
            found = Gathered(table, run_of, np.concatenate([_NONE, *(p for _, p in parts)]))
        found._ranged = [(table.runs[number], place) for number, place in parts]
        return found

    def __len__(self) -> int:
        """How many rows; a mapping of columns though it is."""
        return len(self.place)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.shape.columns)

    def __getitem__(self, name: str) -> Values:
        if name not in self._fetched:
            self._fetched[name] = self._fetch(name)
        return self._fetched[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The column, or `default` if no run that rows are from has it."""
        runs = [part[0] for part in self._ranged or self._split()]
        return self[name] if any(name in run.rows for run in runs) else default

    def take(self, at: Indices) -> "Gathered":
        return Gathered(self.table, self.run_of[at], self.place[at])

    def _split(self) -> list[tuple[Run, Indices, Indices]]:
        """The runs that rows are from, where those rows stand here, and where there."""
        if self._parts is None:
            self._parts = []
            for number, run in enumerate(self.table.runs):
                here = places_of(self.run_of == number)
                if len(here):
                    self._parts.append((run, here, self.place[here]))
        return self._parts

    def _fetch(self, name: str) -> Values:
        parts = self._ranged or self._split()
        columns = [part[0].rows.get(name) for part in parts]
        some = next((c for c in columns if c is not None), None)
        if some is None:
            return blank(self.table.shape, name, len(self.place))
        # A column by two names is fetched once.
        same = tuple(map(id, columns))
        if same not in self._same:
            if self._ranged:
                self._same[same] = self._in_turn(columns, some)
            elif some.is_text:
                self._same[same] = self._scattered_text(columns, some)
            else:
                self._same[same] = self._scattered(columns)
        return self._same[same]

    def _in_turn(self, columns: Sequence[Values | None], some: Values) -> Values:
        assert self._ranged is not None
        ranged = zip(columns, self._ranged, strict=True)
        return v.concat([v.empty_like(some, len(at)) if c is None else c.take(at) for c, (_, at) in ranged])

    def _scattered(self, columns: Sequence[Values | None]) -> Values:
        parts, count = self._split(), len(self.place)
        there = [c for c in columns if c is not None]
        if len(parts) == 1 and len(parts[0][1]) == count:
            return there[0].take(self.place)
        whole = sum(len(part[1]) for part in parts) == count and len(there) == len(parts)
        kinds = {c.data.dtype for c in there}
        data = np.zeros(count, kinds.pop() if len(kinds) == 1 else object)
        valid = None if whole and all(c.valid is None for c in there) else np.zeros(count, bool)
        for column, (_, here, at) in zip(columns, parts, strict=True):
            if column is not None:
                data[here] = column.data[at]
                if valid is not None:
                    valid[here] = True if column.valid is None else column.valid[at]
        return Values(data, valid)

    def _scattered_text(self, columns: Sequence[Values | None], some: Values) -> Values:
        parts = self._split()
        pieces = [
            v.empty_like(some, len(at)) if c is None else c.take(at)
            for c, (_, _, at) in zip(columns, parts, strict=True)
        ]
        places = [here for _, here, _ in parts]
        missing = places_of(self.run_of < 0)
        if len(missing):
            pieces.append(v.empty_like(some, len(missing)))
            places.append(missing)
        back = np.empty(len(self.place), np.int64)
        back[np.concatenate(places)] = np.arange(len(self.place))
        return v.concat(pieces).take(back)


def blank(shape: Shape, name: str, count: int) -> Values:
    """NULLs of a column."""
    return v.empty_like(_like(shape.columns[name]), count)


@cache
def _like(kind: pa.DataType) -> Values:
    return v.from_arrow(pa.array([], kind))
