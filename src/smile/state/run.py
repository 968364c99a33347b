"""Runs: immutable rows in the order of their keys' hashes, at most one of each key; some say that a key is gone.

Beside the rows stand indexes, each a sorted column of hashes or ticks with the places of the rows that have them, so
that a few rows are found without reading the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.hashing import hashes, is_injective
from smile.columns.packed import Lazily
from smile.columns.values import Array, Bools, Indices, Values, places_of
from smile.log.frame import END

Rows = Mapping[str, Values]


@dataclass(frozen=True)
class Shape:
    """What a table's rows are. A column that says nothing of any row of a run may be left out of it: there it is NULL.
    `indexes` are sets of columns that rows are found by, beside the key; `orders` are columns of ticks that they are
    found by in order, those at END excepted. Neither ever changes for a key."""

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
        firsts = places_of(starts)
        return self.marks[firsts], np.append(firsts, len(self.marks))

    def is_pure(self, own: Sequence[Values]) -> bool:
        """Whether rows of equal marks are equal in the columns that the index is of; they are but by a rare chance."""
        found: bool | None = self.__dict__.get("_pure")
        if found is None:
            alike = places_of(self.marks[1:] == self.marks[:-1])
            a, b = self.places[alike], self.places[alike + 1]
            found = self.__dict__["_pure"] = all(bool(c.take(a).same(c.take(b)).all()) for c in own)
        return found


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

    @cached_property
    def bytes(self) -> int:
        """What it takes, without reading what has not been read yet."""
        indexes = sum(_bytes_of(i, _index_bytes) for i in (self.indexes, self.orders))
        return int(self.hashes.nbytes + indexes + _bytes_of(self.rows, lambda column: column.bytes))


def _bytes_of(parts: Mapping[Any, Any], bytes_of: Callable[[Any], int]) -> int:
    return parts.bytes if isinstance(parts, Lazily) else sum(map(bytes_of, parts.values()))


def _index_bytes(index: Index) -> int:
    return int(index.marks.nbytes + index.places.nbytes)


_NO_INDEX = Index(np.zeros(0, np.uint64), np.zeros(0, np.int64))
_NO_ORDER = Index(np.zeros(0, np.int64), np.zeros(0, np.int64))

Marks = Mapping[tuple[str, ...], Array]
"""Hashes of rows by the columns that they are of, where they are known already."""


def make(shape: Shape, rows: Rows, gone: Bools | None, found: Array | None = None, known: Marks | None = None) -> Run:
    """From rows in any order, one a key; `found` are the hashes of their keys if they are known, `known` others."""
    key = [rows[c] for c in shape.key]
    # A relation with but one row has no key: of that row, when it is gone, there is nothing.
    size = len(next(iter(rows.values()))) if gone is None else len(gone)
    marks = hashes(key, size) if found is None else found
    known = known or {}
    if size > 1 and not bool((marks[:-1] <= marks[1:]).all()):
        order = marks.argsort(kind="stable")
        marks = marks[order]
        known = {on: of[order] for on, of in known.items()}
        rows = each_once(rows, lambda column: column.take(order))
        gone = None if gone is None else gone[order]
    if gone is not None and not gone.any():
        gone = None
    there = None if gone is None else places_of(~gone)
    if there is not None and not len(there):
        # Of rows that are gone there may be no more than the keys.
        return Run(rows, marks, gone, dict.fromkeys(shape.indexes, _NO_INDEX), dict.fromkeys(shape.orders, _NO_ORDER))
    indexes = {}
    for on in shape.indexes:
        of = known[on] if on in known else hashes([rows[c] for c in on], len(marks))
        indexes[on] = index_of(of, there)
    orders = {name: _order(rows[name].data, there) for name in shape.orders}
    return Run(rows, marks, gone, indexes, orders)


def _order(ticks: Array, there: Indices | None) -> Index:
    """Rows at END are reached only when all are."""
    places = places_of(ticks < END) if there is None else there[ticks[there] < END]
    order = places[ticks[places].argsort(kind="stable")]
    return Index(ticks[order], order)


def merge(shape: Shape, runs: Sequence[Run], live: Sequence[Bools | None], is_oldest: bool) -> Run:
    """One run of all rows that no newer run hides: `live`, None where that is all. What is gone is left out if nothing
    older lies below."""
    parts = [_chosen(run, shown, is_oldest) for run, shown in zip(runs, live, strict=True)]
    kept = [(run, at) for run, at in zip(runs, parts, strict=True) if at is None or len(at)] or [(runs[0], parts[0])]
    marks = np.concatenate([run.hashes if at is None else run.hashes[at] for run, at in kept])
    order = marks.argsort(kind="stable")
    rows = _together(shape, kept, order)
    if not len(marks):
        return Run(rows, marks, None, dict.fromkeys(shape.indexes, _NO_INDEX), dict.fromkeys(shape.orders, _NO_ORDER))
    gone = None
    if not is_oldest and any(run.gone is not None for run in runs):
        gone = np.concatenate([_gone(run, at) for run, at in kept])[order]
    return make(shape, rows, gone, marks[order])


def each_once(rows: Rows, made: Callable[[Values], Values]) -> dict[str, Values]:
    """Of each column another; of one that has several names, one that has them too."""
    found: dict[int, Values] = {}
    result = {}
    for name, column in rows.items():
        if id(column) not in found:
            found[id(column)] = made(column)
        result[name] = found[id(column)]
    return result


def _together(shape: Shape, kept: Sequence[tuple[Run, Indices | None]], order: Indices) -> dict[str, Values]:
    """The columns of several runs one after the other, and then in order."""
    found: dict[tuple[int, ...], Values] = {}
    rows = {}
    for name in shape.columns:
        columns = [run.rows.get(name) for run, _ in kept]
        some = next((c for c in columns if c is not None), None)
        if some is None:
            continue
        same = tuple(map(id, columns))
        if same not in found:
            parts = [
                v.empty_like(some, len(run) if at is None else len(at)) if column is None else _of(column, at)
                for column, (run, at) in zip(columns, kept, strict=True)
            ]
            found[same] = v.concat(parts).take(order)
        rows[name] = found[same]
    return rows


def _chosen(run: Run, live: Bools | None, is_oldest: bool) -> Indices | None:
    if is_oldest and run.gone is not None:
        live = ~run.gone if live is None else live & ~run.gone
    return None if live is None or live.all() else places_of(live)


def _of(column: Values, at: Indices | None) -> Values:
    return column if at is None else column.take(at)


def _gone(run: Run, at: Indices | None) -> Bools:
    gone = np.zeros(len(run), bool) if run.gone is None else run.gone
    return gone if at is None else gone[at]


def find(run: Run, marks: Array, key: Sequence[Values], shape: Shape) -> tuple[Bools, Indices]:
    """For each hash, whether the run has the key, and where. It is quick if the hashes are in order."""
    at: Indices = run.hashes.searchsorted(marks)
    at[at == len(run)] = 0
    alike = run.hashes[at] == marks
    own = [run.rows[c] for c in shape.key]
    if (is_injective(key) and is_injective(own)) or not alike.any():
        return alike, at
    found = alike & _equal(own, at, key)
    for place in places_of(alike & ~found):
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


def index_of(marks: Array, there: Indices | None = None) -> Index:
    """Of all rows, or of those that are `there`."""
    if there is not None:
        marks = marks[there]
    order = marks.argsort(kind="stable")
    return Index(marks[order], order if there is None else there[order])


def matched(index: Index, own: Sequence[Values], marks: Array, asked: Sequence[Values]) -> tuple[Indices, Indices]:
    """Pairs of a number of what is asked and the place of a row that equals it, by the numbers. `own` are the columns
    that the index is of, `marks` the hashes of what is `asked`; no NULL is asked for. It is quick if they are in
    order."""
    nothing = np.zeros(0, np.int64)
    if len(marks) == 1:
        places = _one(index, own, marks[0], asked)
        return (nothing, nothing) if places is None else (np.zeros(len(places), np.int64), places)
    distinct, starts = index.groups
    if not len(distinct) or not len(marks):
        return nothing, nothing
    group: Indices = distinct.searchsorted(marks)
    group[group == len(distinct)] = 0
    hits = places_of(distinct[group] == marks)
    if not len(hits):
        return nothing, nothing
    group = group[hits]
    first = starts[group]
    counts = starts[group + 1] - first
    exact = is_injective(asked) and is_injective(own)
    # To know that an index is pure takes as long as to compare all its rows.
    pure = exact or ((int(counts.sum()) > len(index.marks) or "_pure" in index.__dict__) and index.is_pure(own))
    if pure and not exact:
        # One row speaks for all that have its mark.
        equal = _equal(own, index.places[first], [column.take(hits) for column in asked])
        if not equal.all():
            hits, first, counts = hits[equal], first[equal], counts[equal]
    who = hits.repeat(counts)
    begins = counts.cumsum() - counts
    places = index.places[np.arange(len(who)) - np.repeat(begins - first, counts)]
    if pure:
        return who, places
    equal = _equal(own, places, [column.take(who) for column in asked])
    return who[equal], places[equal]


def _one(index: Index, own: Sequence[Values], mark: Any, asked: Sequence[Values]) -> Indices | None:
    """The places of rows that equal what is asked for once; None if there are none."""
    first = int(index.marks.searchsorted(mark))
    if first == len(index.marks) or index.marks[first] != mark:
        return None
    places = index.places[first : index.marks.searchsorted(mark, "right")]
    equal = [is_equal(own, int(place), asked) for place in places]
    return places if all(equal) else places[equal]


def is_equal(own: Sequence[Values], place: int, asked: Sequence[Values]) -> bool:
    """Whether a row is the one that is asked for; NULL is NULL."""
    for mine, column in zip(own, asked, strict=True):
        there = mine.valid is None or mine.valid[place]
        if there != (column.valid is None or column.valid[0]) or (there and mine.data[place] != column.data[0]):
            return False
    return True
