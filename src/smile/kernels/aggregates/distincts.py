"""COUNT(DISTINCT): values that are not exact may all turn out to be one that is there already, or all different.

Beside the group stands a table of its values, each with the number of members that have it; a change reads the values
it touches and no others.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.columns import values as v
from smile.columns.knowledge import Column, Ranges
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.aggregates.accumulator import GROUP, Absorbed, Accumulator, Place
from smile.kernels.aggregates.parts import Argument, Batch, Parts
from smile.kernels.changes import Groups
from smile.kernels.stored import stored
from smile.state.run import Rows, Shape

_VALUE = "value"


def _key(per: Mapping[str, pa.DataType], argument: Argument) -> dict[str, pa.DataType]:
    """What a value of a group is found by."""
    return {GROUP: pa.int64(), **{stored(c): kind for c, kind in per.items()}, _VALUE: arrow_type(argument.data)}


class PlainCountDistinct(Accumulator):
    """Of members that are all there for good, with values that never change: a value that is there stays."""

    def __init__(self, prefix: str, argument: Argument, per: Mapping[str, pa.DataType]) -> None:
        self.argument, self.per = argument, tuple(per)
        self.n, self.table = f"{prefix}n", f"{prefix}values"
        self.columns: Mapping[str, pa.DataType] = {self.n: pa.int64()}
        key = _key(per, argument)
        self.shapes = {self.table: Shape(tuple(key), key, indexes=((GROUP,),))}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        values, table = self.argument.fixed(batch.changes), place.tables[self.table]
        at = np.flatnonzero(batch.arriving(values))
        if not len(at):
            return Absorbed({self.n: Values(rows[self.n].data)})
        value, who = Values(values.take(at).data), batch.groups.of[at]
        pairs = Groups([Values(who), value], len(at))
        value, who = value.take(pairs.first), who[pairs.first]
        marks = place.marks.view(np.int64)
        key = [Values(marks[who]), *(place.key[c].take(who) for c in self.per), value]
        new = np.flatnonzero(~table.find(key)[0])
        named = zip(self.shapes[self.table].key, key, strict=True)
        table = table.updated({name: column.take(new) for name, column in named})
        counts = rows[self.n].data + np.bincount(who[new], minlength=len(place))
        return Absorbed({self.n: Values(counts)}, {self.table: table})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now = Values(rows[self.n].data)
        return Ranges(now, now, None if sealed is None else Values(now.data, sealed))


class CountDistinct(Accumulator):
    """Of each value: how many members have it for sure, may have it, and have it now."""

    def __init__(self, prefix: str, argument: Argument, per: Mapping[str, pa.DataType]) -> None:
        self.argument, self.per = argument, tuple(per)
        self.sure, self.exact, self.now = (f"{prefix}{part}" for part in ("sure", "exact", "now"))
        self.any, self.others = f"{prefix}any", f"{prefix}others"
        names = (self.sure, self.exact, self.now, self.any, self.others)
        self.columns: Mapping[str, pa.DataType] = dict.fromkeys(names, pa.int64())
        self.table = f"{prefix}values"
        key = _key(per, argument)
        self.counts = ("sure", "exact", "now")
        self.shapes = {
            self.table: Shape(tuple(key), {**key, **dict.fromkeys(self.counts, pa.int64())}, indexes=((GROUP,),))
        }

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        old, new = batch.both(self.argument)
        entries = _Entries(batch.groups.of)
        entries.add(new, 1)
        if old is not None:
            entries.add(old, -1)
        found = {
            self.any: batch.counts(None if old is None else old.sure, new.sure),
            self.others: batch.counts(None if old is None else _others(old), _others(new)),
        }
        result = {name: Values(rows[name].data + change) for name, change in found.items()}
        table = place.tables[self.table]
        changed = entries.netted()
        totals: dict[str, Array] = {name: np.zeros(len(place), np.int64) for name in self.counts}
        if changed is not None:
            who, value, changes = changed
            key = [Values(place.marks.view(np.int64)[who]), *(place.key[c].take(who) for c in self.per), value]
            _, had = table.find(key)
            after = {}
            for name, change in zip(self.counts, changes, strict=True):
                before = had[name].data
                after[name] = before + change
                moved = (after[name] > 0).astype(np.int64) - (before > 0)
                np.add.at(totals[name], who, moved)
            gone = ~np.logical_or.reduce([c > 0 for c in after.values()])
            names = self.shapes[self.table].key
            stored_rows = {**dict(zip(names, key, strict=True)), **{n: Values(c) for n, c in after.items()}}
            table = table.updated(stored_rows, gone)
        for name, column in zip(self.counts, (self.sure, self.exact, self.now), strict=True):
            result[column] = Values(rows[column].data + totals[name])
        return Absorbed(result, {self.table: table})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        least = np.maximum(rows[self.sure].data, rows[self.any].data > 0)
        most = None if sealed is None else Values(rows[self.exact].data + rows[self.others].data, sealed)
        return Ranges(Values(rows[self.now].data), Values(least), most)


def _others(parts: Parts) -> Bools:
    return parts.counted & ~parts.final


class _Entries:
    """By how much the numbers of members that have a value change: of each group and value, once it is netted."""

    def __init__(self, of: Indices) -> None:
        self.of = of
        self.who: list[Indices] = []
        self.values: list[Values] = []
        self.changes: list[tuple[Array, Array, Array]] = []

    def add(self, parts: Parts, sign: int) -> None:
        exact = np.flatnonzero(parts.counted & parts.final)
        if parts.lo is not None and len(exact):
            sure = parts.sure[exact].astype(np.int64) * sign
            self._add(exact, parts.lo, (sure, np.full(len(exact), sign), np.zeros(len(exact), np.int64)))
        now = np.flatnonzero(parts.now.there())
        if len(now):
            nothing = np.zeros(len(now), np.int64)
            self._add(now, parts.now, (nothing, nothing, np.full(len(now), sign)))

    def _add(self, at: Indices, values: Values, changes: tuple[Array, Array, Array]) -> None:
        self.who.append(self.of[at])
        self.values.append(Values(values.take(at).data))
        self.changes.append(changes)

    def netted(self) -> tuple[Indices, Values, list[Array]] | None:
        if not self.who:
            return None
        who, value = np.concatenate(self.who), v.concat(self.values)
        groups = Groups([Values(who), value], len(who))
        changes = [groups.sums(np.concatenate(c)) for c in zip(*self.changes, strict=True)]
        return who[groups.first], value.take(groups.first), changes
