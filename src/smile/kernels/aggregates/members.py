"""Members of groups, kept for aggregates that must look at them again: all that may yet be shown, found by their group.

A member that is hidden for good is kept only where a nested relation tells it from one nobody has heard of.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl, trees
from smile.columns import masks
from smile.columns.values import Array, Indices, Values
from smile.kernels.aggregates.accumulator import GROUP, Found, Place
from smile.kernels.changes import Changes
from smile.kernels.layout import Layout
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

MEMBERS = "members"


class Members:
    """`layout` is of the columns that are needed again."""

    def __init__(self, layout: Layout, per: tuple[str, ...], needed: Iterable[str], gone_too: bool) -> None:
        kept = {*layout.key, *per, *needed}
        self.layout = Layout(
            layout.key,
            {c: t for c, t in layout.fixed.items() if c in kept},
            {c: e for c, e in layout.evolving.items() if c in kept},
        )
        self.per, self.gone_too = per, gone_too
        columns = {GROUP: pa.int64(), **columns_of(self.layout)}
        self.shape = Shape(tuple(map(stored, layout.key)), columns, indexes=((GROUP,),))

    def changed(self, table: Table, changes: Changes, marks: Array) -> Table:
        """`marks` are the hashes of the members' groups."""
        keep = masks.heard(changes.new.mask) if self.gone_too else masks.live(changes.new.mask)
        if changes.old is None and not keep.all():
            at = np.flatnonzero(keep)
            changes, marks, keep = changes.take(at), marks[at], keep[at]
        if not len(changes):
            return table
        rows = {GROUP: Values(marks.view(np.int64)), **flat(self.layout, changes.fixed, changes.new)}
        return table.updated(rows, None if keep.all() else ~keep)

    def of(self, place: Place, numbers: Indices) -> Found:
        key = {c: place.key[c].take(numbers) for c in self.per}
        who, rows = rows_of_groups(place.tables[MEMBERS], place.marks[numbers], key)
        return who, fixed_of(self.layout, rows), version_of(self.layout, rows)


def rows_of_groups(table: Table, marks: Array, key: Mapping[str, Values]) -> tuple[Indices, Gathered]:
    """The rows of some groups in a table that has GROUP beside the columns that groups are made by."""
    who, rows = table.match((GROUP,), [Values(marks.view(np.int64))])
    if not len(who):
        return who, rows
    equal = np.ones(len(who), bool)
    for name, column in key.items():
        equal &= rows[stored(name)].same(column.take(who))
    if not equal.all():
        at = np.flatnonzero(equal)
        who, rows = who[at], rows.take(at)
    return who, rows


def without_groups(table: Table, marks: Array, key: Mapping[str, Values]) -> Table:
    """The table once nothing of these groups is asked for any more."""
    who, rows = rows_of_groups(table, marks, key)
    return table.updated(rows, np.ones(len(who), bool)) if len(who) else table


def needed_again(aggregates: Iterable[mmpl.Aggregate], tick: tuple[str, ...]) -> set[str]:
    """The columns of members that aggregates look at."""
    found: set[str] = set()
    for wanted in aggregates:
        found |= {*wanted.columns, *(tick if wanted.function == "latest" else ())}
        found |= set(trees.columns_in(wanted.arg)) if wanted.arg is not None else set()
    return found
