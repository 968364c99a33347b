"""Total relations as a side of a join: every key that is asked for has a row, the default row until one is heard of."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.columns.values import Bools, Indices, Values, places_of
from smile.kernels.changes import Version
from smile.kernels.joins.ends import Ends
from smile.kernels.joins.sides import Rows, Side
from smile.kernels.seals import Horizons, Seals
from smile.knowledge.types import ColumnType

C = TypeVar("C", bound=Column)


class Filled(Mapping[str, C], Generic[C]):
    """Rows, with others in the place of some of them; each column when it is asked for."""

    def __init__(self, names: tuple[str, ...], rows: Mapping[str, C], others: Mapping[str, C], at: Indices, count: int):
        self.names, self.rows, self.others = names, rows, others
        self.at, self.count = at, count
        self._filled: dict[str, C] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> C:
        if name not in self._filled:
            self._filled[name] = self._fill(name)
        return self._filled[name]

    def _fill(self, name: str) -> C:
        if len(self.at) == self.count:
            return self.others[name]
        back = np.arange(self.count)
        back[self.at] = np.arange(self.count, self.count + len(self.at))
        return k.concat([self.rows[name], self.others[name]]).take(back)  # type: ignore[type-var, return-value]


def with_defaults(side: Side, rows: Rows, key: Mapping[str, Values], asked: Bools | None, horizons: Horizons) -> Rows:
    """The rows of a total relation for these keys: those nobody has heard of are its default rows. Where it is not
    `asked` there is none (None: it is asked everywhere)."""
    absent = rows.version.mask == masks.ABSENT
    if asked is not None:
        absent &= asked
    at = places_of(absent)
    if not len(at):
        return rows
    count = len(rows)
    every = len(at) == count
    transform = side.source.transform
    assert transform is not None, "a stream is never total"
    found = transform.default(key if every else {c: column.take(at) for c, column in key.items()}, len(at), horizons)
    names = (tuple(side.layout.fixed), tuple(side.layout.evolving))
    fixed = Filled(names[0], rows.fixed, found.fixed, at, count)
    columns = Filled(names[1], rows.version.columns, found.new.columns, at, count)
    mask, steps = rows.version.mask.copy(), rows.version.steps.copy()
    mask[at], steps[at] = found.new.mask, found.new.steps
    return Rows(fixed, Version(columns, mask, steps))


def default_ends(side: Side, asking: Mapping[str, str], types: Mapping[str, ColumnType]) -> list[Ends]:
    """When the default rows of a total side change, in the terms of the columns that ask for its key."""
    transform = side.source.transform
    assert transform is not None, "a stream is never total"
    found = []
    data = {name: column.data for name, column in types.items()}
    for number, seals in enumerate(transform.default_seals(side.source.type.seals)):
        renamed = {stream: seal.renamed(asking) for stream, seal in seals.items()}
        found.append(Ends(Seals(renamed, data), f"default {number}"))
    return found
