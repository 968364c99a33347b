"""Whether rows of one side of a join have a match on the other: of each that may change its mind, what was told of it.

A row is remembered until nothing can change any more: it is known for good, and so is whether it has a match. Changes
of rows that are remembered no more are not worth a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Masks
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.changes import Changes, Version
from smile.kernels.joins import kleene
from smile.kernels.joins.matches import (
    Counts,
    Equated,
    Matches,
    News,
    counters,
    flat_counts,
    gather,
    is_equated,
    places,
)
from smile.kernels.joins.paired import Paired, at_odds, column_of
from smile.kernels.joins.sides import Rows, Side, Sides
from smile.kernels.seals import Horizons, Moved
from smile.kernels.transform import State
from smile.log.frame import END
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

POSSIBLE, NOW, ADDED = "told possible", "told now", "told steps"
"""Columns beside a remembered row: what was told of whether it has a match, and the steps of its matches."""

Test = Literal["semi", "anti", "match"]
"""What becomes of a row: it is shown where there is a match, or where there is none, or it is shown with the answer."""


@dataclass(frozen=True)
class Tested:
    """Rows that changed, or whose matches did, with whether they had a match and whether they have one."""

    changes: Changes
    had: Masks
    has: Masks
    steps_before: Array
    steps: Array

    def take(self, at: Indices) -> "Tested":
        had, has = self.had.take(at), self.has.take(at)
        return Tested(self.changes.take(at), had, has, self.steps_before[at], self.steps[at])


class Presence:
    def __init__(self, sides: Sides, own: Side, test: Test, total: bool) -> None:
        self.own, self.other, self.test = own, sides.other(own), test
        self.total, self.aware = total, sides.rel.null_aware
        self.twice = sides.twice(own)
        equated = is_equated(sides.rel, sides, self.other) and not total
        self.matches: Matches = (
            Equated(sides, own, self.other) if equated else Paired(sides, own, self.other, total)
        )  # fmt: skip
        self.rows = f"{own.which} rows"
        told = {POSSIBLE: pa.uint8(), NOW: pa.uint8(), ADDED: pa.int64()}
        beside = counters(self.matches.width) if self.matches.beside else {}
        nulls = self.matches.flag_columns()
        columns = {**own.shape.columns, **told, **beside, **nulls}
        shape = Shape(own.shape.key, columns, self.matches.asking, own.shape.orders)
        self.shapes = {self.rows: shape, **self.matches.shapes}
        self.origins = {self.rows: own.origin, **self.matches.origins}

    def is_woken(self, moved: Moved) -> bool:
        return self.own.ends.wakes(moved) or self.matches.ends.wakes(moved)

    def step(
        self, state: State, own: Changes | None, other: Changes | None, moved: Moved
    ) -> tuple[State, Sequence[Tested]]:
        table = state[self.rows]
        news = self.matches.absorb(state, table, other)
        rest = gather(table, [news.touched, *([self.own.met_now(table, moved)] if moved.at_all else [])])
        parts, dropped, after = [], [], table
        if own is not None:
            own, found = self._remembered(table, own)
            rest = without(rest, found)
            if len(own):
                tested, counts = self._tested(own, found, news, moved)
                parts.append(tested)
                after, gone = self._remembering(after, tested, counts, found)
                dropped.append(gone)
        if len(rest):
            rows = self.own.rows(rest)
            tested, counts = self._tested(Changes(rows.fixed, rows.version, rows.version), rest, news, moved)
            parts.append(tested)
            after, gone = self._remembering(after, tested, counts, rest)
            dropped.append(gone)
        if all(h >= END for h in moved.after.values()):
            return {name: Table(shape) for name, shape in self.shapes.items()}, parts
        left = gather(table, [d for d in dropped if d is not None])
        return {**self.matches.forget(news, after, left, moved), self.rows: after}, parts

    def _remembered(self, table: Table, own: Changes) -> tuple[Changes, Gathered | None]:
        """Changes of rows that are new or remembered, with what is remembered of them."""
        if own.old is None:
            return own, None
        heard = masks.heard(own.old.mask)
        there, found = table.find([own.fixed[c] for c in self.own.key])
        at = np.flatnonzero(there | ~heard)
        if len(at) < len(own):
            own, found = own.take(at), found.take(at)
        return own, found

    def _tested(self, changes: Changes, found: Gathered | None, news: News, moved: Moved) -> tuple[Tested, Counts]:
        rows = Rows(changes.fixed, changes.new)
        counts = self.matches.counts(news, rows, found, moved.after)
        has = kleene.any_of(counts.by, self._may_come(rows, news, moved.after))
        if found is None:
            return Tested(changes, has, has, counts.steps, counts.steps), counts
        had = Masks(found[POSSIBLE].data, found[NOW].data)
        return Tested(changes, had, has, found[ADDED].data, counts.steps), counts

    def _may_come(self, rows: Rows, news: News, horizons: Horizons) -> Bools:
        """Whether a row nobody has heard of may still come to match."""
        open_: Bools = ~self.own.is_met(rows.fixed, len(rows), horizons)
        if not self.aware:
            for name in self.own.on:
                column = column_of(rows, name)
                if isinstance(column, Values):
                    open_ &= column.there()
                else:
                    open_ &= ~(k.finals(column) & k.now_of(column).nulls())
            if self.twice:
                open_ &= ~at_odds(rows, self.twice)
        if self.other.whole and open_.any() and (self.total or not self.other.source.type.forgets):
            open_ &= ~self.matches.heard(news, rows)
        return open_

    # ── remembering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def shown(self, has: Masks) -> Codes:
        """What the answer makes of a row."""
        if self.test == "match":
            return masks.full(masks.T, len(has))
        return kleene.filtered(has if self.test == "semi" else kleene.negated(has))

    def _remembering(
        self, table: Table, tested: Tested, counts: Counts, found: Gathered | None
    ) -> tuple[Table, Gathered | None]:
        """The table with these rows as they are now, without those that are settled; the latter if they were there."""
        changes, new = tested.changes, tested.changes.new
        shown = self.shown(tested.has)
        settled = tested.has.finals() if self.test == "match" else shown == masks.T
        keep = masks.live(masks.all_of(new.mask, shown)) & ~(settled & self._finals(new))
        known = np.zeros(len(new), bool) if found is None else found.run_of >= 0
        at = np.flatnonzero(keep | known)
        gone = None if found is None else found.take(np.flatnonzero(known & ~keep))
        if not len(at):
            return table, gone
        rows = Rows(changes.fixed, new)
        if len(at) < len(new):
            rows, tested, counts, keep = rows.take(at), tested.take(at), counts.take(at), keep[at]
        told = {POSSIBLE: Values(tested.has.possible), NOW: Values(tested.has.now), ADDED: Values(tested.steps)}
        beside = flat_counts(counts) if self.matches.beside else {}
        flat = {**self.own.flat(rows.fixed, rows.version), **told, **beside, **self.matches.flags(self.own, rows)}
        return table.updated(flat, None if keep.all() else ~keep), gone

    def _finals(self, version: Version) -> Bools:
        found = version.mask == masks.T
        for name in self.own.layout.evolving:
            found = found & k.finals(version.columns[name])
        return found


def without(found: Gathered, others: Gathered | None) -> Gathered:
    if others is None or not len(found):
        return found
    same = np.isin(places(found.run_of, found.place), places(others.run_of, others.place))
    return found.take(np.flatnonzero(~same))
