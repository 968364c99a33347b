"""Both sides of a join, compiled: each row of a side is remembered until no row of the other side can meet it any more.

A pair of rows is put together by reference: of its columns only those are fetched that somebody reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl, trees
from smile.algebra.heading import whole_key_equated
from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import Column, Masks
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Indices, Values, places_of
from smile.kernels.changes import Changes, Taken, Version
from smile.kernels.expressions import compile_expression
from smile.kernels.joins.ends import Ends
from smile.kernels.layout import Evolving, Layout
from smile.kernels.rows import filtered
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.kernels.transform import Input, Origin, Output
from smile.knowledge.join_types import match_ties
from smile.knowledge.seals import Ties
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

C = TypeVar("C", bound=Column)
Which = Literal["left", "right"]


class Drawn(Mapping[str, C], Generic[C]):
    """Columns, each from one of several mappings."""

    def __init__(self, sources: Mapping[str, Mapping[str, C]]) -> None:
        self.sources = sources

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __getitem__(self, name: str) -> C:
        return self.sources[name][name]


@dataclass(frozen=True)
class Rows:
    """Rows of one side, each at one version."""

    fixed: Mapping[str, Values]
    version: Version

    def __len__(self) -> int:
        return len(self.version)

    def take(self, at: Indices) -> "Rows":
        return Rows(Taken(self.fixed, at), self.version.take(at))


class Side:
    """`on` are its columns that are equated, in the join's order. `whole`: they include its whole key, so that a row of
    the other side matches but one of it; `total`: and there always is that one. `fixed` are the columns that never
    change. `meetings` say, in the terms of `fixed`, when every row of the other side that a row can meet is sealed:
    then none nobody has heard of can come, and those that have come are final. `layout` is what is remembered."""

    def __init__(
        self, which: Which, source: Input, on: tuple[str, ...], other: Input, ties: Ties, kept: set[str]
    ) -> None:
        self.which, self.source, self.on = which, source, on
        heading, own = source.type.heading, source.layout
        self.key = heading.key
        self.whole = whole_key_equated(heading, on)
        self.total = self.whole and heading.total
        self.fixed = tuple(c for c, t in source.type.columns.items() if not t.evolves and c in own.fixed)
        seals = {s: ties.express(seal, self.fixed) for s, seal in other.type.seals.items()}
        self.meetings = Seals(seals, heading.columns)
        named = {c for seal in seals.values() for c, _ in seal.at}
        needed = {*kept, *heading.key, *on, *named}
        fixed = {c: t for c, t in own.fixed.items() if c in needed}
        evolving = {c: e for c, e in own.evolving.items() if c in needed}
        self.layout = Layout(heading.key, fixed, evolving, own.certain, own.heeded)
        self.index = tuple(dict.fromkeys(stored(c) for c in on))
        self.ends = Ends(self.meetings, "meets")
        self.orders = self.ends.orders
        """By stream the column of the ticks at which it is met for the last time; none if a stream has no such tick."""
        is_fixed = all(c in own.fixed for c in on)
        self.shape = Shape(
            tuple(stored(c) for c in heading.key),
            {**columns_of(self.layout), **{order: pa.int64() for order in self.orders.values()}},
            (self.index,) if is_fixed and on else (),
            tuple(self.orders.values()),
        )

    @property
    def origin(self) -> Origin:
        """Of its rows."""
        return Origin(0 if self.which == "left" else 1)

    # ── remembering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def flat(self, fixed: Mapping[str, Values], version: Version) -> dict[str, Values]:
        """Rows as the side's table has them."""
        return {**flat(self.layout, fixed, version), **self.ends.ticks(fixed, len(version))}

    def updated(self, table: Table, changes: Changes | None, met: Bools | None = None) -> Table:
        """With the rows as they are now. Forgotten are those of which nothing is left, those hidden for good (unless
        they are heeded), and those `met` for the last time."""
        return self.parted(table, changes, met)[1]

    def parted(
        self, table: Table, changes: Changes | None, met: Bools | None = None, marks: Array | None = None
    ) -> tuple[Table, Table]:
        """The remembered rows that do not change, and all of them as `updated`. `marks` are those of `marks`."""
        if changes is None:
            return table, table
        new = changes.new
        keep = masks.heard(new.mask) if self.layout.heeded else masks.live(new.mask)
        if met is not None:
            keep = keep & ~met
        known = {} if marks is None else {self.index: marks}
        had = self.had(table, changes)
        if keep.all():
            return table.parted(self.flat(changes.fixed, new), None, known, had)
        if changes.old is None:
            if not keep.any():
                return table, table
            at = places_of(keep)
            changes, known = changes.take(at), {on: of[at] for on, of in known.items()}
            return table.parted(self.flat(changes.fixed, changes.new), None, known, had)
        return table.parted(self.flat(changes.fixed, new), ~keep, known)

    def had(self, table: Table, changes: Changes) -> Gathered | None:
        """What the table has of rows that change, where that is known without a look: nobody had heard of them. Of rows
        that are gone one may hear again."""
        return table.nothing() if changes.old is None and not self.layout.heeded else None

    def is_met(self, fixed: Mapping[str, Values], count: int, horizons: Horizons) -> Bools:
        """Of each row, whether no row of the other side that it can meet is open: none can come, all are final."""
        return self.ends.reached(fixed, count, horizons)

    def met_now(self, table: Table, moved: Moved) -> Gathered:
        """Remembered rows that the horizons meet for the last time in this frame."""
        return self.ends.now(table, moved)

    def without_met(self, table: Table, moved: Moved) -> Table:
        """Without the rows that the horizons meet for the last time in this frame."""
        if self.ends.all_over(moved.after):
            return Table(self.shape)
        return self.forgetting(table, self.met_now(table, moved)) if moved.at_all else table

    def forgetting(self, table: Table, found: Gathered) -> Table:
        """Without these of its rows."""
        return table.without(found)

    # ── finding ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, found: Gathered) -> Rows:
        """Remembered rows, as they were found."""
        return Rows(fixed_of(self.layout, found), version_of(self.layout, found))

    def asked(self, columns: Mapping[str, Values]) -> list[Values]:
        """What a row of this side asks for: its columns that are equated."""
        return [columns[c] for c in self.on]

    def marks(self, columns: Mapping[str, Values], count: int) -> Array | None:
        """The hashes of what is equated, which are the same on both sides; None if they are of no use."""
        asked = self.asked(columns)
        if not asked or any(c.valid is not None for c in asked) or len(set(self.on)) < len(self.on):
            return None
        return hashes(asked, count)

    def matching(
        self, table: Table, asked: Sequence[Values], count: int, ordered: bool = True, marks: Array | None = None
    ) -> tuple[Indices, Rows]:
        """Rows of this side whose columns `on` equal those of the other side's rows: numbers of the latter, each with a
        row. `asked` are the other side's columns, of which there are `count` rows."""
        who, found = self.found(table, asked, count, ordered, marks)
        return who, self.rows(found)

    def found(
        self, table: Table, asked: Sequence[Values], count: int, ordered: bool = True, marks: Array | None = None
    ) -> tuple[Indices, Gathered]:
        """The same, as the table has them."""
        if self.on:
            # A column may be equated to several: the index has it once, and the rest are compared.
            marks = marks if len(self.index) == len(self.on) else None
            first = {stored(c): n for n, c in reversed(list(enumerate(self.on)))}
            who, found = table.match(self.index, [asked[first[c]] for c in self.index], ordered, marks)
            keep: Array | None = None
            for n, c in enumerate(self.on):
                if first[stored(c)] != n:
                    alike = found[stored(c)].same(asked[n].take(who))
                    keep = alike if keep is None else keep & alike
            if keep is not None and not keep.all():
                at = places_of(keep)
                who, found = who[at], found.take(at)
            return who, found
        every = table.scan()
        who = np.repeat(np.arange(count), len(every))
        return who, every.take(np.tile(np.arange(len(every)), count))


class Sides:
    """Both sides of a join, and when their rows match beyond what is equated. `moving`: what is equated evolves."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        self.rel = rel
        self.ties = ties = match_ties(rel, left.type, right.type)
        tested = set(trees.columns_in(rel.when)) if rel.when is not None else set()
        kept = {*output.type.heading.columns, *tested}
        self.left = Side("left", left, tuple(a for a, _ in rel.on), right, ties, kept)
        self.right = Side("right", right, tuple(b for _, b in rel.on), left, ties, kept)
        self.origins = {str(side.which): side.origin for side in (self.left, self.right)}
        """Of the rows of a join that remembers either side under its name."""
        fixed = (left.layout.fixed, right.layout.fixed)
        self.moving = any(a not in fixed[0] or b not in fixed[1] for a, b in rel.on)
        once = len(set(self.left.on)) == len(set(self.right.on)) == len(rel.on)
        on_keys = all(a in self.left.key and b in self.right.key for a, b in rel.on)
        self.extra = rel.when is not None or not on_keys or not once
        self.of = self._drawn_from(output)
        """Of each column of a pair the side that it is from. One that is equated under one name is the key's wherever
        it is part of one."""
        self.pair = self._pair()
        bottoms = {**right.bottoms, **left.bottoms}
        self.when = None if rel.when is None else compile_expression(rel.when, self.pair, bottoms)

    def _drawn_from(self, output: Output) -> dict[str, Side]:
        own, other = (self.right, self.left) if self.rel.kind == "right" else (self.left, self.right)
        found = {}
        for name in output.type.heading.columns:
            found[name] = own if name in own.source.layout.types else other
            if name in self.right.key and name in self.left.source.layout.types and name not in self.left.key:
                found[name] = self.right
        return found

    def _pair(self) -> Layout:
        """Of all columns of both; of two by one name the left side's."""
        left, right = self.left.layout, self.right.layout
        fixed, evolving = dict(left.fixed), dict(left.evolving)
        fixed |= {c: t for c, t in right.fixed.items() if c not in left.types}
        evolving |= {c: e for c, e in right.evolving.items() if c not in left.types}
        return Layout((), fixed, evolving)

    def other(self, side: Side) -> Side:
        return self.right if side is self.left else self.left

    def twice(self, side: Side) -> list[tuple[str, str]]:
        """Columns of a side that are equated to one and the same of the other: a row in which they differ has no
        match."""
        pairs = zip(side.on, self.other(side).on, strict=True)
        return [(a, c) for (a, b), (c, d) in combinations(pairs, 2) if b == d]

    def layout(self, key: tuple[str, ...], certain: bool, heeded: bool) -> Layout:
        """Of the pairs, if what is fixed in a side is fixed in them."""
        fixed = {c: s.layout.fixed[c] for c, s in self.of.items() if c in s.layout.fixed}
        evolving: dict[str, Evolving] = {c: s.layout.evolving[c] for c, s in self.of.items() if c not in fixed}
        return Layout(key, fixed, evolving, certain, heeded)

    def holds(self, left: Rows, right: Rows) -> Codes | None:
        """Whether `when` holds of pairs, NULL being false; None if there is none."""
        if self.when is None:
            return None
        fixed = self._both(self.pair.fixed, left.fixed, right.fixed)
        columns = self._both(self.pair.evolving, left.version.columns, right.version.columns)
        found = self.when(fixed, columns, len(left))
        if isinstance(found, Masks):
            return filtered(found)
        assert isinstance(found, Values)
        holds = found.data if found.valid is None else found.data & found.valid
        return np.where(holds, np.uint8(masks.T), np.uint8(masks.F))

    def _both(self, names: Mapping[str, object], left: Mapping[str, C], right: Mapping[str, C]) -> Mapping[str, C]:
        return Drawn({c: left if c in self.left.layout.types else right for c in names})

    def fixed_of(self, layout: Layout, left: Mapping[str, Values], right: Mapping[str, Values]) -> Mapping[str, Values]:
        """The fixed columns of pairs."""
        return Drawn({c: left if self.of[c] is self.left else right for c in layout.fixed})

    def columns_of(self, layout: Layout, left: Mapping[str, Column], right: Mapping[str, Column]) -> Drawn[Column]:
        """Their evolving ones."""
        return Drawn({c: left if self.of[c] is self.left else right for c in layout.evolving})
