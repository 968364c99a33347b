"""The k best rows of each group: a row is out for good once k rows that stay surely precede it, and is then forgotten.

Whatever such a row precedes is preceded by those k rows too, so it can make no difference to any other. Of rows that
are certain, and whose order never changes, the k best of each group are therefore all that is kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.ranges import ranges_of
from smile.columns.values import Array, Bools, Values
from smile.kernels.aggregates.parts import Argument
from smile.kernels.changes import Changes, Groups, Version, concat, differing
from smile.kernels.kept import GROUP, Closing, cells, in_groups, marks_of, places_of, plain
from smile.kernels.layout import Layout
from smile.kernels.ordering import Places, Spread, before, places, spread_of
from smile.kernels.seals import Moved
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.kernels.transform import Input, Output, State, Transform
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

ROWS, OUT = "rows", "out"
"""A row is stored as its source has it, with the mask that it was given here beside it."""

PAIRS_MAX = 1 << 20
"""How many pairs of rows are compared at once where groups themselves evolve: bounds memory."""


@dataclass(frozen=True)
class _Part:
    """Rows that are ranked together with others, with the marks of their groups; `out` are the masks they had."""

    fixed: Mapping[str, Values]
    version: Version
    out: Codes
    marks: Array

    def __len__(self) -> int:
        return len(self.out)

    def take(self, at: Array) -> "_Part":
        changes = Changes(self.fixed, None, self.version).take(at)
        return _Part(changes.fixed, changes.new, self.out[at], self.marks[at])


class Best(Transform):
    """Remembers the rows that may be among the best, by group. A group that changes is ranked anew, as a whole; if what
    rows are grouped by evolves, all rows are compared in pairs."""

    def __init__(self, rel: mmpl.Best, source: Input, output: Output) -> None:
        own = source.layout
        self.k, self.per = rel.k, rel.per
        self.by = [(Argument(e, source), descending) for e, descending in rel.by]
        self.layout = Layout(own.key, own.fixed, own.evolving, False, output.heeded)
        self.types = source.type.heading.columns
        self.is_moving = any(c in own.evolving for c in rel.per)
        self.is_settled = own.certain and not self.is_moving and all(e.exact for e, _ in self.by)
        self.closing = Closing(output.type.seals, self.types)
        columns = {**columns_of(self.layout), OUT: pa.uint8(), GROUP: pa.int64(), **self.closing.columns}
        key = tuple(map(stored, own.key))
        self.shapes = {ROWS: Shape(key, columns, indexes=((GROUP,),), orders=self.closing.orders)}

    def is_woken(self, moved: Moved) -> bool:
        return self.closing.wakes(moved)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        table, changes = state[ROWS], inputs[0]
        own = None if changes is None else self._marks(changes.fixed, len(changes)).data
        touched = [] if own is None else [own]
        if self.closing.wakes(moved):
            touched.append(self.closing.woken(table, moved)[GROUP].data)
        marks = np.concatenate(touched) if touched else np.zeros(0, np.int64)
        if not len(marks):
            return state, None
        others = in_groups(table, marks)
        changed = None
        if changes is not None:
            others, out = self._before(table, others, changes)
            changed = _Part(changes.fixed, changes.new, out, own)
        version = version_of(self.layout, others)
        kept = _Part(fixed_of(self.layout, others), version, others[OUT].data, others[GROUP].data)
        return self._ranked(table, others, kept, changed, changes, moved)

    def _marks(self, fixed: Mapping[str, Values], count: int) -> Values:
        return marks_of([] if self.is_moving else [fixed[c] for c in self.per], count)

    def _before(self, table: Table, others: Gathered, changes: Changes) -> tuple[Gathered, Codes]:
        """The stored rows that have not changed, and the masks that the changed ones were given. Of those that are
        heard of and not stored, all are out."""
        heard = changes.old_mask()
        if not masks.heard(heard).any():
            return others, heard
        found, rows = table.find([changes.fixed[c] for c in self.layout.key])
        out = np.where(found, rows[OUT].data, np.where(masks.heard(heard), masks.F, masks.ABSENT)).astype(np.uint8)
        same = np.isin(places_of(others), places_of(rows)[found])
        return others.take(np.flatnonzero(~same)), out

    def _ranked(
        self,
        table: Table,
        others: Gathered,
        kept: _Part,
        changed: _Part | None,
        changes: Changes | None,
        moved: Moved,
    ) -> tuple[State, Changes | None]:
        live = np.zeros(0, np.int64) if changed is None else np.flatnonzero(masks.live(changed.version.mask))
        parts = [kept] if changed is None else [kept, changed.take(live)]
        codes, spent = self._codes([p for p in parts if len(p)], moved)
        size = len(kept)
        found = masks.all_of(kept.version.mask, codes[:size])
        told = []
        at = np.flatnonzero((found != kept.out) | spent[:size])
        if len(at):
            others = others.take(at)
            old = version_of(self.layout, others)
            was, now = (Version(old.columns, out, old.steps) for out in (kept.out[at], found[at]))
            told.append(Changes(fixed_of(self.layout, others), was, now))
            table = table.updated({**others, OUT: Values(found[at])}, spent[:size][at])
        if changed is not None and changes is not None:
            mask = changed.version.mask.copy()
            mask[live] = masks.all_of(mask[live], codes[size:])
            new = Version(changes.new.columns, mask, changes.new.steps)
            heard = None if changes.old is None else Version(changes.old.columns, changed.out, changes.old.steps)
            told.append(Changes(changes.fixed, heard, new))
            gone = np.ones(len(changes), bool)
            gone[live] = spent[size:]
            stale = np.flatnonzero(~gone | masks.live(changed.out))
            if len(stale):
                rows = self._stored(changes.take(stale), mask[stale], changed.marks[stale])
                table = table.updated(rows, gone[stale])
        return {ROWS: table}, differing(concat(self.layout, told), self.layout.heeded) if told else None

    def _stored(self, changes: Changes, out: Codes, marks: Array) -> dict[str, Values]:
        fixed, count = changes.fixed, len(changes)
        rows = {**flat(self.layout, fixed, changes.new), OUT: Values(out), GROUP: Values(marks)}
        return rows | self.closing.ticks(self._sealing(fixed, changes.new.columns), count)

    def _sealing(self, fixed: Mapping[str, Values], columns: Mapping[str, Column]) -> dict[str, Values]:
        return {c: plain(c, fixed, columns) for c in self.closing.needed}

    # ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _codes(self, parts: Sequence[_Part], moved: Moved) -> tuple[Codes, Bools]:
        """Whether each row is among the best of its group, and whether it can be forgotten."""
        if not parts:
            return masks.full(masks.F, 0), np.zeros(0, bool)
        count = sum(map(len, parts))
        mask = np.concatenate([p.version.mask for p in parts])
        by = [
            (k.concat([e.of(p.fixed, p.version.columns, len(p)) for p in parts]), descending)  # type: ignore[type-var]
            for e, descending in self.by
        ]
        key = [k.concat([p.fixed[c] for p in parts]) for c in self.layout.key]
        where = places(by, key, count)
        group = np.zeros(count, np.int64)
        if not self.is_moving:
            marks = np.concatenate([p.marks for p in parts]).view(np.uint64)
            group = Groups([k.concat([p.fixed[c] for p in parts]) for c in self.per], count, marks).of
        if self.is_settled:
            ahead = before(where.now, np.ones(count, np.int64), where.now, group, where.size)
            sure, may = ahead, ahead
        elif self.is_moving:
            ahead, sure, may = self._in_pairs(parts, mask, where)
        else:
            ahead = before(where.now, masks.shown(mask).astype(np.int64), where.now, group, where.size)
            sure = before(where.last, masks.stays(mask).astype(np.int64), where.first, group, where.size)
            may = before(where.first, masks.live(mask).astype(np.int64), where.last, group, where.size)
        sealed = np.concatenate(
            [self.closing.reached(moved.after, self._sealing(p.fixed, p.version.columns), len(p)) for p in parts]
        )
        out, stays = sure >= self.k, (may < self.k) & sealed
        codes = np.where(out, masks.F, np.where(stays, masks.T, np.where(ahead < self.k, masks.SHOWN, masks.HIDDEN)))
        # A group is done with when every row of it is sealed.
        open_ = np.bincount(group, ~(sealed & (out | stays)), int(group.max()) + 1)[group] > 0
        return codes.astype(np.uint8), out | ~open_

    def _in_pairs(self, parts: Sequence[_Part], mask: Codes, where: Places) -> tuple[Array, Array, Array]:
        """How many rows precede each: now, surely, and perhaps; which of them are of its group is itself a mask."""
        spreads = []
        for c in self.per:
            known = [ranges_of(cells(c, p.fixed, p.version.columns), self.types[c]) for p in parts]
            spreads.append(spread_of(k.concat(known)))
        count = len(mask)
        shown, stays, live = masks.shown(mask), masks.stays(mask), masks.live(mask)
        found = [np.empty(count, np.int64) for _ in range(3)]
        for at in _slices(count):
            now, sure, may = (np.ones((len(at), count), bool) for _ in range(3))
            for spread in spreads:
                now &= spread.now[at, None] == spread.now
                sure &= _surely_same(spread, at)
                may &= _maybe_same(spread, at)
            now &= shown & (where.now < where.now[at, None])
            sure &= stays & (where.last < where.first[at, None])
            may &= live & (where.first < where.last[at, None])
            may[np.arange(len(at)), at] = False
            for counts, pairs in zip(found, (now, sure, may), strict=True):
                counts[at] = pairs.sum(axis=1)
        return found[0], found[1], found[2]


def _slices(count: int) -> Iterator[Array]:
    size = max(1, PAIRS_MAX // max(count, 1))
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))


def _surely_same(spread: Spread, at: Array) -> Bools:
    only, exact = spread.nulls == 2, (spread.nulls == 0) & (spread.lo == spread.hi)
    equal = exact & exact[at, None] & (spread.lo == spread.lo[at, None])
    return np.asarray(equal | (only & only[at, None]))


def _maybe_same(spread: Spread, at: Array) -> Bools:
    valued, null = spread.nulls != 2, spread.nulls != 0
    meet = (spread.lo <= spread.hi[at, None]) & (spread.lo[at, None] <= spread.hi)
    return np.asarray((valued & valued[at, None] & meet) | (null & null[at, None]))
