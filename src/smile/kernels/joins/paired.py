"""Matches counted beside each row that asks: each pair of rows matches under a mask of its own.

This is for what is more than equated: another condition, NULL that leaves the answer unknown, columns that evolve. A
row that asks anew is tried with every row it may match. Where what it asks for evolves, so is any that a change
touches, and where an equated column evolves there is no index to find it by: these paths are slow, and so are rows with
NULL where NULL matches everything.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from smile.algebra import trees
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.changes import Changes
from smile.kernels.joins import kleene
from smile.kernels.joins.ends import Ends, nothing
from smile.kernels.joins.matches import Counts, Matches, News, counts_of, ended, gather, places
from smile.kernels.joins.sides import Rows, Side, Sides
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.stored import columns_of, flat, stored
from smile.kernels.transform import State
from smile.knowledge.join_types import match_ties
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

NULLS = "asks for NULL"
"""A column of both tables where NULL matches everything: whether a row has one."""


def column_of(rows: Rows, name: str) -> Column:
    return rows.version.columns[name] if name in rows.version.columns else rows.fixed[name]


def at_odds(rows: Rows, twice: Sequence[tuple[str, str]]) -> Bools:
    """Rows that ask one column for two values, which no row has; `twice` are the columns that ask for the same."""
    found = np.zeros(len(rows), bool)
    for names in twice:
        a, b = (column_of(rows, name) for name in names)
        found |= k.finals(a) & k.finals(b) & ~k.now_of(a).same(k.now_of(b))
    return found


class Paired(Matches):
    beside = True

    def __init__(self, sides: Sides, own: Side, other: Side, total: bool) -> None:
        self.sides, self.own, self.other, self.total = sides, own, other, total
        self.aware = sides.rel.null_aware
        self.twice = bool(sides.twice(own) or sides.twice(other))
        self.width = kleene.AWARE if self.aware else kleene.PLAIN
        pairs = list(zip(own.on, other.on, strict=True))
        self.asked = {b: a for a, b in pairs}
        indexed = [(self.asked[b], b) for b in other.key] if other.whole else pairs
        self.indexed = [] if sides.moving else indexed
        """What rows are found by. A row of the other side whose whole key is asked for is found by that alone, since
        having heard of it is worth knowing though the rest should differ."""
        self.compared = pairs if self.aware else [p for p in pairs if p not in self.indexed]
        self.types = own.source.layout.types
        named = trees.columns_in(sides.rel.when) if sides.rel.when is not None else frozenset()
        self.anew = sides.moving or total or any(c in own.layout.evolving for c in named)
        """Whether the matches of a row are counted anew whenever the row changes, or one of them does."""
        self.asking = self._indexes([a for a, _ in self.indexed])
        self.table = f"{other.which} rows that match"
        # That the one row which can match has been heard of counts for rows too that it does not match otherwise.
        rel = replace(sides.rel, when=None) if other.whole else sides.rel
        ties = match_ties(rel, sides.left.source.type, sides.right.source.type)
        seals = {s: ties.express(seal, other.fixed) for s, seal in own.source.type.seals.items()}
        self.ends = Ends(Seals(seals, other.source.type.heading.columns), "asked by")
        orders = self.ends.orders.values()
        columns = {**columns_of(other.layout), **{order: pa.int64() for order in orders}, **self.flag_columns()}
        indexes = self._indexes([b for _, b in self.indexed])
        self.shapes = {self.table: Shape(other.shape.key, columns, indexes, tuple(orders))}
        self.origins = {self.table: other.origin}

    def _indexes(self, on: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        by_value = (tuple(stored(c) for c in on),) if on else ()
        return (*by_value, (NULLS,)) if self.aware and not self.sides.moving else by_value

    # ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def flag_columns(self) -> dict[str, pa.DataType]:
        return {NULLS: pa.int64()} if self.aware else {}

    def flags(self, side: Side, rows: Rows) -> dict[str, Values]:
        if not self.aware:
            return {}
        if self.sides.moving:
            return {NULLS: Values(np.zeros(len(rows), np.int64))}
        return {NULLS: Values(self._with_nulls([rows.fixed[c] for c in side.on], len(rows)).astype(np.int64))}

    @staticmethod
    def _with_nulls(columns: Sequence[Values], count: int) -> Bools:
        found = np.zeros(count, bool)
        for column in columns:
            found |= column.nulls()
        return found

    def _candidates(self, table: Table, side: Side, rows: Rows) -> tuple[Indices, Gathered]:
        """Remembered rows of `side` that may match rows of the other side: numbers of the latter, each with one."""
        count = len(rows)
        asker = self.sides.other(side)
        at_left = side is self.own
        pairs = [(a, b) if at_left else (b, a) for a, b in self.indexed]
        if not pairs:
            return crossed(np.arange(count), table.scan())
        asked = [rows.fixed[b] for _, b in pairs]
        who, found = table.match(tuple(stored(a) for a, _ in pairs), asked)
        if not self.aware:
            return who, found
        null = self._with_nulls([rows.fixed[c] for c in asker.on], count)
        plain = np.flatnonzero((found[NULLS].data == 0) & ~null[who])
        parts = [(who[plain], found.take(plain))]
        if not null.all():
            unknown = table.match((NULLS,), [Values(np.ones(1, np.int64))])[1]
            parts.append(crossed(np.flatnonzero(~null), unknown))
        if null.any():
            parts.append(crossed(np.flatnonzero(null), table.scan()))
        return np.concatenate([w for w, _ in parts]), Gathered(
            table, np.concatenate([g.run_of for _, g in parts]), np.concatenate([g.place for _, g in parts])
        )

    def _pairs(self, own: Rows, other: Rows) -> Counts:
        """What each pair adds to the counters of its row of this side."""
        left, right = (own, other) if self.own is self.sides.left else (other, own)
        there = other.version.mask
        heard = masks.heard(there)
        if self.total:
            there = np.where(heard, np.uint8(masks.T), there)
        when = self.sides.holds(left, right)
        equal = None
        for a, b in self.compared:
            found = kleene.compared("=", column_of(own, a), column_of(other, b), self.types[a])
            equal = found if equal is None else kleene.both(equal, found)
        if not self.aware:
            match = masks.full(masks.T, len(own)) if equal is None else kleene.filtered(equal)
            if self.twice:
                odd = at_odds(own, self.sides.twice(self.own)) | at_odds(other, self.sides.twice(self.other))
                match = np.where(odd, np.uint8(masks.F), match)
            if when is not None:
                match = masks.all_of(match, when)
            codes = np.where(heard, masks.all_of(there, match), np.uint8(masks.ABSENT))
            return Counts(kleene.counted(codes), np.where(heard & masks.live(match), other.version.steps, 0))
        test = equal if equal is not None else kleene.of_codes(masks.full(masks.T, len(own)))
        if when is not None:
            test = kleene.both(test, kleene.of_codes(when))
        steps = np.where(heard & (test.possible != kleene.FALSE), other.version.steps, 0)
        return Counts(kleene.counted_aware(kleene.both(kleene.of_codes(there), test), heard), steps)

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def absorb(self, state: State, table: Table, changes: Changes | None) -> News:
        rows = state[self.table]
        if changes is None:
            return News(state, nothing(table))
        new = Rows(changes.fixed, changes.new)
        who, touched = self._candidates(table, self.own, new)
        delta = None
        if not self.anew and len(who):
            own = self.own.rows(touched)
            delta = self._pairs(own, new.take(who))
            if changes.old is not None:
                before = self._pairs(own, Rows(changes.fixed, changes.old).take(who))
                delta = Counts(delta.by - before.by, delta.steps - before.steps)
        key = [changes.fixed[c] for c in self.other.key]
        return News({self.table: self._remembering(rows, changes)}, touched, delta, key)

    def _remembering(self, table: Table, changes: Changes) -> Table:
        rows = Rows(changes.fixed, changes.new)
        mask = changes.new.mask
        keep = masks.heard(mask) if self.other.layout.heeded else masks.live(mask)
        ticks = self.ends.ticks(changes.fixed, len(changes))
        told = {**flat(self.other.layout, changes.fixed, changes.new), **ticks, **self.flags(self.other, rows)}
        return table.updated(told, None if keep.all() else ~keep)

    def counts(self, news: News, rows: Rows, found: Gathered | None, horizons: Horizons) -> Counts:
        if found is None or self.anew:
            return self._anew(news, rows, horizons)
        counts = counts_of(found, self.width)
        if news.delta is not None:
            counts = self._added(counts, news, found)
        new = np.flatnonzero(found.run_of < 0)
        if len(new):
            fresh = self._anew(news, rows.take(new), horizons)
            counts.by[new], counts.steps[new] = fresh.by, fresh.steps
        return counts

    def _added(self, counts: Counts, news: News, found: Gathered) -> Counts:
        assert news.delta is not None
        touched = places(news.touched.run_of, news.touched.place)
        own = places(found.run_of, found.place)
        order = np.argsort(own)
        at = np.minimum(np.searchsorted(own[order], touched), len(own) - 1)
        here = order[at]
        mine = np.flatnonzero(own[here] == touched)
        by, steps = counts.by.copy(), counts.steps.copy()
        np.add.at(by, here[mine], news.delta.by[mine])
        np.add.at(steps, here[mine], news.delta.steps[mine])
        return Counts(by, steps)

    def _anew(self, news: News, rows: Rows, horizons: Horizons) -> Counts:
        counts = Counts.none(len(rows), self.width)
        who, found = self._candidates(news.tables[self.table], self.other, rows)
        parts = [(who, self.other.rows(found))]
        if self.total:
            parts.append(self._defaults(news, rows, horizons))
        for numbers, others in parts:
            if len(numbers):
                each = self._pairs(rows.take(numbers), others)
                np.add.at(counts.by, numbers, each.by)
                np.add.at(counts.steps, numbers, each.steps)
        return counts

    # ── keys that are asked for as a whole ──────────────────────────────────────────────────────────────────────────

    def _wanted(self, rows: Rows) -> list[Values]:
        """The key of the other side that each row asks for at present."""
        return [k.now_of(column_of(rows, self.asked[c])) for c in self.other.key]

    def heard(self, news: News, rows: Rows) -> Bools:
        count = len(rows)
        final = np.ones(count, bool)
        for name in self.own.on:
            final &= k.finals(column_of(rows, name))
        wanted = self._wanted(rows)
        found = news.tables[self.table].find(wanted)[0]
        found = found if wanted else np.repeat(found, count)
        if self.total:
            found |= ~self._with_nulls(wanted, count)
        return final & found

    def _defaults(self, news: News, rows: Rows, horizons: Horizons) -> tuple[Indices, Rows]:
        """The default rows of keys that are asked for and that nobody has heard of."""
        wanted, source = self._wanted(rows), self.other.source
        assert source.transform is not None, "a stream is never total"
        found = news.tables[self.table].find(wanted)[0]
        found = found if wanted else np.repeat(found, len(rows))
        at = np.flatnonzero(~found & ~self._with_nulls(wanted, len(rows)))
        key = {c: column.take(at) for c, column in zip(self.other.key, wanted, strict=True)}
        made = source.transform.default(key, len(at), horizons)
        return at, Rows(made.fixed, made.new)

    # ── forgetting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, news: News, table: Table, dropped: Gathered, moved: Moved) -> State:
        """Rows that no row can ask for any more; those counted anew are needed until all who asked are gone."""
        rows = news.tables[self.table]
        parts = [self.ends.now(rows, moved)]
        if news.keys and self.ends.orders:
            # What comes late may have been over before.
            there, found = rows.find(news.keys)
            parts.append(found.take(np.flatnonzero(there)))
        if self.anew and len(dropped):
            parts.append(self._candidates(rows, self.other, self.own.rows(dropped))[1])
        candidates = ended(self.ends, gather(rows, parts), moved.after)
        if self.anew and len(candidates):
            needed, _ = self._candidates(table, self.own, self.other.rows(candidates))
            unasked = np.ones(len(candidates), bool)
            unasked[needed] = False
            candidates = candidates.take(np.flatnonzero(unasked))
        return {self.table: rows.without(candidates)} if len(candidates) else news.tables


def crossed(numbers: Array, found: Gathered) -> tuple[Indices, Gathered]:
    """Each of the numbers with each of the rows."""
    who = np.repeat(numbers, len(found))
    return who, found.take(np.tile(np.arange(len(found)), len(numbers)))
