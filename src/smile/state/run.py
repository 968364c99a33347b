"""Runs: immutable rows in the order of their keys' hashes, at most one of each key; some say that a key is gone.

Beside the rows stand indexes, each a sorted column of hashes or ticks with the places of the rows that have them, so
that a few rows are found without reading the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.hashing import hashes, is_injective
from smile.columns.values import Array, Bools, Indices, Values
from smile.log.frame import END

Rows = Mapping[str, Values]


@dataclass(frozen=True)
class Shape:
    """What a table's rows are. `indexes` are the sets of columns that rows are found by, beside the key; `orders` are
    columns of ticks that they are found by in order, those at END excepted. Neither ever changes for a key."""

    key: tuple[str, ...]
    columns: Mapping[str, pa.DataType]
    indexes: tuple[tuple[str, ...], ...] = ()
    orders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Index:
    """`marks` in order, and where in the run the row of each stands."""

    marks: Array
    places: Indices

    @cached_property
    def groups(self) -> tuple[Array, Indices]:
        """Each mark once, and where in `marks` those that equal it begin; one more says where the last of them end."""
        starts = np.ones(len(self.marks), bool)
        np.not_equal(self.marks[1:], self.marks[:-1], out=starts[1:])
        firsts = np.flatnonzero(starts)
        return self.marks[firsts], np.append(firsts, len(self.marks))


@dataclass(frozen=True)
class Run:
    """`gone` is None where no row is."""

    rows: Rows
    hashes: Array
    gone: Bools | None
    indexes: Mapping[tuple[str, ...], Index]
    orders: Mapping[str, Index]

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def bytes(self) -> int:
        indexes = [*self.indexes.values(), *self.orders.values()]
        marks = self.hashes.nbytes + sum(i.marks.nbytes + i.places.nbytes for i in indexes)
        return int(marks + sum(column.bytes for column in self.rows.values()))


def make(shape: Shape, rows: Rows, gone: Bools | None, found: Array | None = None) -> Run:
    """From rows in any order, one a key; `found` are the hashes of their keys if they are known."""
    key = [rows[c] for c in shape.key]
    count = len(next(iter(rows.values())))
    marks = hashes(key, count) if found is None else found
    if count > 1 and not bool((marks[:-1] <= marks[1:]).all()):
        order = np.argsort(marks, kind="stable")
        marks = marks[order]
        rows = {name: column.take(order) for name, column in rows.items()}
        gone = None if gone is None else gone[order]
    indexes = {on: index_of(hashes([rows[c] for c in on], count)) for on in shape.indexes}
    orders = {name: _order(rows[name].data) for name in shape.orders}
    return Run(rows, marks, gone if gone is not None and gone.any() else None, indexes, orders)


def _order(ticks: Array) -> Index:
    """Rows at END are reached only when all are."""
    places = np.flatnonzero(ticks < END)
    order = places[np.argsort(ticks[places], kind="stable")]
    return Index(ticks[order], order)


def merge(shape: Shape, runs: Sequence[Run], live: Sequence[Bools | None], is_oldest: bool) -> Run:
    """One run of all rows that no newer run hides: `live`, None where that is all. What is gone is left out if nothing
    older lies below."""
    parts = [_chosen(run, shown, is_oldest) for run, shown in zip(runs, live, strict=True)]
    kept = [(run, at) for run, at in zip(runs, parts, strict=True) if at is None or len(at)] or [(runs[0], parts[0])]
    marks = np.concatenate([run.hashes if at is None else run.hashes[at] for run, at in kept])
    order = np.argsort(marks, kind="stable")
    rows = {name: v.concat([_of(run.rows[name], at) for run, at in kept]).take(order) for name in shape.columns}
    gone = None
    if not is_oldest and any(run.gone is not None for run in runs):
        gone = np.concatenate([_gone(run, at) for run, at in kept])[order]
    return make(shape, rows, gone, marks[order])


def _chosen(run: Run, live: Bools | None, is_oldest: bool) -> Indices | None:
    if is_oldest and run.gone is not None:
        live = ~run.gone if live is None else live & ~run.gone
    return None if live is None or live.all() else np.flatnonzero(live)


def _of(column: Values, at: Indices | None) -> Values:
    return column if at is None else column.take(at)


def _gone(run: Run, at: Indices | None) -> Bools:
    gone = np.zeros(len(run), bool) if run.gone is None else run.gone
    return gone if at is None else gone[at]


def find(run: Run, marks: Array, key: Sequence[Values], shape: Shape) -> tuple[Bools, Indices]:
    """For each hash, whether the run has the key, and where. It is quick if the hashes are in order."""
    at: Indices = np.searchsorted(run.hashes, marks)
    at[at == len(run)] = 0
    alike = run.hashes[at] == marks
    own = [run.rows[c] for c in shape.key]
    if (is_injective(key) and is_injective(own)) or not alike.any():
        return alike, at
    found = alike & _equal(own, at, key)
    for place in np.flatnonzero(alike & ~found):
        # Another key has the same hash: look at those that follow.
        one = np.array([place])
        step = at[place] + 1
        while step < len(run) and run.hashes[step] == marks[place]:
            if _equal(own, np.array([step]), [c.take(one) for c in key])[0]:
                found[place], at[place] = True, step
                break
            step += 1
    return found, at


def _equal(own: Sequence[Values], at: Indices, key: Sequence[Values]) -> Bools:
    equal = np.ones(len(at), bool)
    for mine, column in zip(own, key, strict=True):
        equal &= mine.take(at).same(column)
    return equal


def index_of(marks: Array) -> Index:
    order = np.argsort(marks, kind="stable")
    return Index(marks[order], order)


def matched(index: Index, own: Sequence[Values], marks: Array, asked: Sequence[Values]) -> tuple[Indices, Indices]:
    """Pairs of a number of what is asked and the place of a row that equals it, by the numbers. `own` are the columns
    that the index is of, `marks` the hashes of what is `asked`; no NULL is asked for."""
    nothing = np.zeros(0, np.int64)
    distinct, starts = index.groups
    if not len(distinct) or not len(marks):
        return nothing, nothing
    group: Indices = np.searchsorted(distinct, marks)
    group[group == len(distinct)] = 0
    hits = np.flatnonzero(distinct[group] == marks)
    if not len(hits):
        return nothing, nothing
    group = group[hits]
    first = starts[group]
    counts = starts[group + 1] - first
    who = np.repeat(hits, counts)
    begins = np.cumsum(counts) - counts
    places = index.places[np.arange(len(who)) - np.repeat(begins - first, counts)]
    if is_injective(asked) and is_injective(own):
        return who, places
    equal = np.ones(len(who), bool)
    for mine, column in zip(own, asked, strict=True):
        equal &= column.take(who).same(mine.take(places))
    return (who, places) if equal.all() else (who[equal], places[equal])
