"""Columns of rows that may be there or not: what is known of each cell, a row that is not there having NULL in it.

Each row is in one of four states: it is there for good, or not at all, or it is there or not, or nobody has heard of it
and it may come. Columns are put together when they are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import Column, Masks, Ranges
from smile.columns.masks import Codes
from smile.columns.values import Array, Indices, Values
from smile.kernels.layout import Evolving, Layout
from smile.knowledge.cells import null, one_of
from smile.knowledge.known import Known
from smile.knowledge.range import MAYBE, ONLY

THERE, NOTHING, UNSURE, TO_COME = range(4)
_MAYBE: Final = k.NULLS.index(MAYBE)
_ONLY: Final = k.NULLS.index(ONLY)


def kinds_of(layout: Layout) -> dict[str, Evolving]:
    """How the columns of such rows stand: all of them evolve, and a NULL is no point of some domains."""
    found = {}
    for name, data in layout.types.items():
        kind = layout.evolving[name].kind if name in layout.evolving else k.kind_of(data, "range")
        found[name] = Evolving(kind if kind in ("range", "mask") else "object", data)
    return found


def states_of(mask: Codes) -> Array:
    """By the masks of rows that have been heard of."""
    return np.where(mask == masks.T, THERE, np.where(mask == masks.F, NOTHING, UNSURE))


@dataclass(frozen=True)
class Maybe:
    """Rows by `state`; `shown` says which are there at present. `fixed` and `columns` are what is known of those that
    have been heard of. `asked` are columns of the asking rows that whatever row comes has in its place."""

    kinds: Mapping[str, Evolving]
    bottoms: Mapping[str, Known]
    state: Array
    shown: Array
    fixed: Mapping[str, Values]
    columns: Mapping[str, Column]
    asked: Mapping[str, Values]

    def column(self, name: str) -> Column:
        evolving = self.kinds[name]
        heard = np.flatnonzero((self.state == THERE) | (self.state == UNSURE))
        own = self.columns[name] if name in self.columns else self.fixed[name]
        if len(heard) == len(self.state):
            return self._heard(name, own, self.state == UNSURE, self.shown)
        rest = np.flatnonzero((self.state == NOTHING) | (self.state == TO_COME))
        unheard = self._unheard(name, evolving, rest)
        if not len(heard):
            return unheard
        some = self._heard(name, own.take(heard), self.state[heard] == UNSURE, self.shown[heard])
        back = np.empty(len(self.state), np.int64)
        back[heard], back[rest] = np.arange(len(heard)), np.arange(len(heard), len(back))
        return k.concat([some, unheard]).take(back)  # type: ignore[type-var]

    def _heard(self, name: str, own: Column, unsure: Array, shown: Array) -> Column:
        """As they are, or NULL where they are unsure."""
        evolving = self.kinds[name]
        if isinstance(own, Values):
            own = k.exactly_as(own, evolving.kind, evolving.data)
        if evolving.kind == "object":
            own = k.points_of(own, evolving.data)
        if not unsure.any():
            return own
        hidden = unsure & ~shown
        if isinstance(own, Ranges):
            codes = own.null_codes()
            now = Values(own.now.data, own.now.there() & ~hidden)
            return Ranges(now, own.lo, own.hi, np.where(unsure & (codes != _ONLY), np.uint8(_MAYBE), codes))
        if isinstance(own, Masks):
            now_bits = np.where(hidden, np.uint8(4), own.now)
            return Masks(np.where(unsure, own.possible | np.uint8(4), own.possible), now_bits)
        return self._unsure_points(name, own, unsure, shown, evolving.data)

    def _unsure_points(self, name: str, own: Column, unsure: Array, shown: Array, data: DataType) -> Column:
        points: list[Any] = [k.known(own, i, data) for i in range(len(own))]
        for i in np.flatnonzero(unsure).tolist():
            points[i] = one_of([points[i], null(data)], points[i].now if shown[i] else None, self.bottoms[name], data)
        return k.of_points(points, "object", data)

    def _unheard(self, name: str, evolving: Evolving, at: Indices) -> Column:
        """NULL, or what may come."""
        data, to_come = evolving.data, self.state[at] == TO_COME
        bottom = self.bottoms[name]
        if name in self.asked and to_come.any() and data != BOOL and evolving.kind == "range":
            asked = self.asked[name].take(at)
            ends = Values(asked.data, to_come if asked.valid is None else asked.valid & to_come)
            return Ranges(
                v.empty_like(asked, len(at)), ends, ends, np.where(to_come, np.uint8(_MAYBE), np.uint8(_ONLY))
            )
        if name in self.asked and to_come.any():
            asked = self.asked[name].take(at)
            points = [
                one_of([null(data), k.known(asked, i, data)], None, bottom, data) if to_come[i] else null(data)
                for i in range(len(at))
            ]
            return k.of_points(points, evolving.kind, data)
        two = [null(data), one_of([null(data), bottom], None, bottom, data)]
        return k.of_points(two, evolving.kind, data).take(to_come.astype(np.int64))


class MaybeColumns(Mapping[str, Column]):
    """The columns of such rows, each when it is asked for."""

    def __init__(self, rows: Maybe) -> None:
        self.rows = rows
        self._made: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self.rows.kinds)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.kinds)

    def __getitem__(self, name: str) -> Column:
        if name not in self._made:
            self._made[name] = self.rows.column(name)
        return self._made[name]
