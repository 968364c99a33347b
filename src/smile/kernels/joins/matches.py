"""Matches, counted: of each value that is asked for, or of each row that asks, how many rows match it and how surely.

What one row adds to the counters it takes back when it changes, so a change of a match costs the same however many
there are. The rows that ask are remembered elsewhere, in a table that is indexed by `asking`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.columns import masks
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.changes import Changes, Groups
from smile.kernels.joins import kleene
from smile.kernels.joins.ends import Ends, nothing
from smile.kernels.joins.sides import Rows, Side, Sides
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.stored import stored
from smile.kernels.transform import Origin, State
from smile.log.frame import END
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

STEPS = "steps of matches"


@dataclass(frozen=True)
class Counts:
    """`by` has a row of counters for each row that asks; `steps` are those of its matches."""

    by: Array
    steps: Array

    def take(self, at: Indices) -> "Counts":
        return Counts(self.by[at], self.steps[at])

    @staticmethod
    def none(count: int, width: int) -> "Counts":
        return Counts(np.zeros((count, width), np.int64), np.zeros(count, np.int64))


def counters(width: int) -> dict[str, pa.DataType]:
    """The columns of counters in a table."""
    return {**{f"count {n}": pa.int64() for n in range(width)}, STEPS: pa.int64()}


def flat_counts(counts: Counts) -> dict[str, Values]:
    found = {f"count {n}": Values(np.ascontiguousarray(counts.by[:, n])) for n in range(counts.by.shape[1])}
    return {**found, STEPS: Values(counts.steps)}


def counts_of(rows: Mapping[str, Values], width: int) -> Counts:
    """Of rows read from a table; zero where there was none."""
    return Counts(np.stack([rows[f"count {n}"].data for n in range(width)], axis=1), rows[STEPS].data)


@dataclass(frozen=True)
class News:
    """What a frame has changed. `touched` are remembered rows whose matches changed, each perhaps several times, and
    `delta` what that adds to their counters, where those stand beside the rows."""

    tables: State
    touched: Gathered
    delta: Counts | None = None
    keys: Sequence[Values] = ()
    """The keys of what changed in the tables."""


class Matches(ABC):
    """Rows of the side `other` as those of `own` meet them."""

    shapes: Mapping[str, Shape]
    origins: Mapping[str, Origin]
    asking: tuple[tuple[str, ...], ...]
    """Indexes of the table of rows that ask."""
    width: int
    ends: Ends
    """When nobody can come any more who asks for what is remembered."""
    beside: bool
    """Whether counters stand beside each row that asks."""

    def flag_columns(self) -> dict[str, pa.DataType]:
        """What else is remembered of a row that asks,"""
        return {}

    def flags(self, side: Side, rows: Rows) -> dict[str, Values]:
        """and what that is of these rows."""
        return {}

    @abstractmethod
    def absorb(self, state: State, table: Table, changes: Changes | None) -> News: ...

    @abstractmethod
    def counts(self, news: News, rows: Rows, found: Gathered | None, horizons: Horizons) -> Counts:
        """Of rows as they are now. `found` are these rows as they were remembered; None if none of them was."""

    @abstractmethod
    def heard(self, news: News, rows: Rows) -> Bools:
        """Whether the one row that can match has been heard of."""

    @abstractmethod
    def forget(self, news: News, table: Table, dropped: Gathered, moved: Moved) -> State:
        """Without what no row that asks can meet any more; `table` has those that are left."""


def gather(table: Table, parts: Sequence[Gathered]) -> Gathered:
    """Each row once, of those found in one table."""
    parts = [p for p in parts if len(p)]
    if not parts:
        return nothing(table)
    run_of, place = np.concatenate([p.run_of for p in parts]), np.concatenate([p.place for p in parts])
    _, first = np.unique(places(run_of, place), return_index=True)
    return Gathered(table, run_of[first], place[first])


def places(run_of: Array, place: Indices) -> Indices:
    """A number for each row of a table; negative where there is none."""
    return (run_of << 40) | place


def ended(ends: Ends, found: Gathered, horizons: Horizons) -> Gathered:
    """Those that no stream can affect any more."""
    if not ends.orders and not ends.all_over(horizons):
        return found.take(np.zeros(0, np.int64))
    over = np.ones(len(found), bool)
    for stream, order in ends.orders.items():
        if horizons[stream] < END:
            over &= found[order].data <= horizons[stream]
    return found.take(np.flatnonzero(over))


# ── by value ────────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES = "values"


class Equated(Matches):
    """Where nothing but fixed values is equated: whoever asks for the same has the same matches, so one set of counters
    serves them all, and no row of the other side is remembered."""

    beside = False
    width = kleene.PLAIN

    def __init__(self, sides: Sides, own: Side, other: Side) -> None:
        self.own, self.other = own, other
        self.asking = (own.index,) if own.on else ()
        self.key = tuple(f"on {n}" for n in range(len(own.on)))
        types = other.source.layout.fixed
        seals = {s: sides.ties.express(seal, other.on) for s, seal in own.source.type.seals.items()}
        self.ends = Ends(Seals(seals, other.source.type.heading.columns), "asked by")
        columns = {name: arrow_type(types[c]) for name, c in zip(self.key, other.on, strict=True)}
        orders = self.ends.orders.values()
        ticks = {order: pa.int64() for order in orders}
        self.shapes = {VALUES: Shape(self.key, {**columns, **counters(self.width), **ticks}, (), tuple(orders))}
        self.origins = {VALUES: Origin(other.origin.input, dict(zip(other.on, self.key, strict=True)))}
        self.keeps = other.whole and other.layout.heeded

    def absorb(self, state: State, table: Table, changes: Changes | None) -> News:
        values = state[VALUES]
        if changes is not None:
            changes = self._joining(changes)
        if changes is None or not len(changes):
            return News(state, nothing(table))
        delta, steps = kleene.counted(changes.new.mask), changes.new.steps
        if changes.old is not None:
            delta, steps = delta - kleene.counted(changes.old.mask), steps - changes.old.steps
        groups = Groups([changes.fixed[c] for c in self.other.on], len(changes))
        key = [changes.fixed[c].take(groups.first) for c in self.other.on]
        found, rows = self._find(values, key)
        old = counts_of(rows, self.width)
        sums = np.add.reduceat(delta[groups.order], groups.starts, axis=0)
        new = Counts(old.by + sums, old.steps + groups.sums(steps))
        gone = new.by[:, kleene.CAN] == 0
        if self.keeps:
            # The values are the row's whole key, so it is the only one that has them.
            gone = changes.new.mask[groups.first] == masks.ABSENT
        ticks = self.ends.ticks(dict(zip(self.other.on, key, strict=True)), groups.count)
        values = values.updated({**dict(zip(self.key, key, strict=True)), **flat_counts(new), **ticks}, gone)
        changed = ((old.by > 0) != (new.by > 0)).any(axis=1)
        if self.other.whole:
            changed |= found == gone
        at = np.flatnonzero(changed)
        _, touched = self.own.found(table, [c.take(at) for c in key], len(at)) if len(at) else (at, nothing(table))
        return News({VALUES: values}, touched, keys=key)

    def _joining(self, changes: Changes) -> Changes:
        """Without rows that have a NULL where it is equated: they match nothing."""
        if all(changes.fixed[c].valid is None for c in self.other.on):
            return changes
        return changes.take(np.flatnonzero(np.logical_and.reduce([changes.fixed[c].there() for c in self.other.on])))

    def _find(self, values: Table, key: Sequence[Values]) -> tuple[Bools, Gathered]:
        if key:
            return values.find(key)
        found, rows = values.find([])
        return found, rows

    def counts(self, news: News, rows: Rows, found: Gathered | None, horizons: Horizons) -> Counts:
        counts = counts_of(self._asked(news, rows)[1], self.width)
        return counts if self.key else counts.take(np.zeros(len(rows), np.int64))

    def heard(self, news: News, rows: Rows) -> Bools:
        found = self._asked(news, rows)[0]
        return found if self.key else np.repeat(found, len(rows))

    def _asked(self, news: News, rows: Rows) -> tuple[Bools, Gathered]:
        return self._find(news.tables[VALUES], self.own.asked(rows.fixed))

    def forget(self, news: News, table: Table, dropped: Gathered, moved: Moved) -> State:
        """Values that nobody can ask for any more, once none of those who did is left."""
        values = news.tables[VALUES]
        if not self.ends.orders:
            return news.tables
        parts = [self.ends.now(values, moved)]
        for key in (news.keys, [dropped[stored(c)] for c in self.own.on] if len(dropped) else ()):
            if key:
                found, rows = values.find(key)
                parts.append(rows.take(np.flatnonzero(found)))
        candidates = ended(self.ends, gather(values, parts), moved.after)
        if not len(candidates):
            return news.tables
        who, _ = self.own.found(table, [candidates[c] for c in self.key], len(candidates))
        unasked = np.ones(len(candidates), bool)
        unasked[who] = False
        return {VALUES: values.without(candidates.take(np.flatnonzero(unasked)))}


def is_equated(rel: mmpl.Join, sides: Sides, other: Side) -> bool:
    """Whether matches depend on fixed values that are equated and on nothing else."""
    whole_only = not other.whole or set(other.on) == set(other.key)
    return rel.when is None and not rel.null_aware and not sides.moving and whole_only
