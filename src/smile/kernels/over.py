"""Aggregates over the rows before each row: a row that comes, changes or leaves affects itself and those whose windows
it lies in, and no others.

Rows are kept until no row that they could affect can change any more. Without a range they are then absorbed in running
totals of their group, if they are certain: nothing at or below them can come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import Column
from smile.columns.values import Array, Indices, Values
from smile.kernels.aggregates.accumulator import Place
from smile.kernels.aggregates.choose import accumulator, evolving
from smile.kernels.aggregates.members import needed_again
from smile.kernels.aggregates.parts import Batch
from smile.kernels.changes import Changes, Groups, Version, concat, differing
from smile.kernels.kept import GROUP, Closing, in_groups, marks_of, places_of, plain
from smile.kernels.layout import Evolving, Layout
from smile.kernels.over_windows import Aggregates, Windows, none_lost, nothing
from smile.kernels.seals import Horizons, Moved, later
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.kernels.transform import Input, Output, State, Transform
from smile.knowledge.seals import Seal
from smile.state.gathered import Gathered
from smile.state.run import Rows, Shape
from smile.state.table import Table

ROWS, TOTALS = "rows", "totals"


class Over(Transform):
    """Remembers rows as the source has them; what was told of them is worked out again from what was remembered."""

    def __init__(self, rel: mmpl.Over, source: Input, output: Output) -> None:
        own, type_ = source.layout, source.type
        self.by, self.per, self.span, self.own = rel.by, rel.per, rel.range, own
        self.kept = own
        types = type_.heading.columns
        self.is_moving = any(c in own.evolving for c in rel.per)
        seen = replace(source, layout=replace(own, certain=False)) if self.is_moving else source
        accumulators = {n: accumulator(i, n, a, {}, seen, output) for i, (n, a) in enumerate(rel.aggregates)}
        moving = {c: types[c] for c in rel.per} if self.is_moving else {}
        self.aggregates = Aggregates(accumulators, moving, own.is_history)
        self.is_settled = own.is_history and list(type_.seals.values()) == [Seal.of(rel.by)]
        added = {n: evolving(n, a, output) for n, a in rel.aggregates}
        self.layout = _layout(own, added, self.is_settled, output.heeded)
        plain_ones = all(not a.shapes and not a.reads_members for a in accumulators.values())
        self.is_folding = rel.range is None and own.is_history and plain_ones
        # Rows that come with all before them are sealed at once: no horizon changes what is known of them.
        self.closing = Closing({} if self.is_settled else output.type.seals, types)
        released = {s: type_.ties.express(seal, [rel.by]) for s, seal in type_.seals.items()}
        if rel.range is None and not self.is_folding:
            released = dict.fromkeys(released, Seal.NEVER)
        self.release = Closing({s: seal.later(rel.range or 0) for s, seal in released.items()}, types, "release")
        orders = {**self.closing.columns, **self.release.columns}
        if self.is_settled:
            needed = {*own.key, *rel.per, rel.by, *needed_again([a for _, a in rel.aggregates], type_.heading.tick)}
            self.kept = Layout(own.key, {c: t for c, t in own.fixed.items() if c in needed}, certain=True)
        columns = {**columns_of(self.kept), GROUP: pa.int64(), **orders}
        key = tuple(map(stored, own.key))
        self.shapes = {ROWS: Shape(key, columns, indexes=((GROUP,),), orders=tuple(orders))}
        if self.is_folding:
            totals = {stored(c): arrow_type(types[c]) for c in rel.per}
            rest = {name: kind for a in accumulators.values() for name, kind in a.columns.items()}
            self.shapes[TOTALS] = Shape(tuple(totals), {**totals, **rest})

    def is_woken(self, moved: Moved) -> bool:
        return self.closing.wakes(moved) or self.release.wakes(moved)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        tables = dict(state)
        changes = inputs[0]
        found = None
        marks = None if changes is None else self._marks(changes.fixed, len(changes)).data
        if changes is not None or self.closing.wakes(moved):
            found = self._told(tables, changes, marks, moved)
        if changes is not None:
            self._keep(tables, changes, marks, moved)
        if self.release.wakes(moved):
            spent = self.release.woken(tables[ROWS], moved)
            if len(spent):
                tables[ROWS] = tables[ROWS].updated(spent, np.ones(len(spent), bool))
                self._fold(tables, Changes(fixed_of(self.kept, spent), None, version_of(self.kept, spent)))
        return tables, found

    # ── what is told ────────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, tables: State, changes: Changes | None, own: Array | None, moved: Moved) -> Changes | None:
        rows = tables[ROWS]
        touched = [] if own is None else [own]
        woken = self.closing.woken(rows, moved) if self.closing.wakes(moved) and rows.runs else None
        if woken is not None:
            touched.append(woken[GROUP].data)
        marks = np.concatenate(touched) if touched else np.zeros(0, np.int64)
        if not len(marks):
            return None
        had = in_groups(rows, marks)
        stored_ones = Changes(fixed_of(self.kept, had), None, version_of(self.kept, had))
        where = _Where.of(rows, had, changes, self.own)
        after = self._after(stored_ones, where, changes, had[GROUP].data, own)
        sealed = np.zeros(len(had), bool) if woken is None else np.isin(places_of(had), places_of(woken))
        asked = self._affected(after, len(where.kept), sealed[where.kept])
        parts = []
        # Rows that were there, beside what was told of them; and those that were not.
        again = asked[where.was[asked] >= 0]
        if len(again):
            before = _Rows(stored_ones, self._groups(stored_ones, had[GROUP].data))
            told = self._with(tables, before, where.was[again], moved.before)
            new = self._with(tables, after, again, moved.after)
            parts.append(Changes(after.rows.take(again).fixed, told, new))
        fresh = asked[where.was[asked] < 0]
        if len(fresh):
            assert changes is not None
            new = self._with(tables, after, fresh, moved.after)
            taken = changes.take(fresh - len(where.kept))
            heard = taken.old_mask()
            old = Version(new.columns, heard, np.zeros(len(fresh), np.int64)) if masks.heard(heard).any() else None
            parts.append(self._settled(Changes(taken.fixed, old, new)))
        return differing(concat(self.layout, parts), self.layout.heeded) if parts else None

    def _after(
        self, before: Changes, where: "_Where", changes: Changes | None, marks: Array, own: Array | None
    ) -> "_Rows":
        if changes is None or own is None:
            return _Rows(before, self._groups(before, marks))
        rows = Changes(changes.fixed, None, changes.new)
        if len(where.kept):
            rows = concat(self.kept, [before.take(where.kept), rows])
        return _Rows(rows, self._groups(rows, np.concatenate([marks[where.kept], own])))

    def _affected(self, after: "_Rows", kept: int, sealed: Array) -> Indices:
        """Rows that have changed, or been sealed, or in whose windows a row has changed; `kept` have not changed."""
        count = len(after.rows)
        if self.is_settled:
            return np.arange(kept, count)
        hit = np.ones(count, bool)
        hit[:kept] = sealed
        if 0 < kept < count:
            group, by = after.group, after.rows.fixed[self.by].data
            ticks, rank = np.unique(by, return_inverse=True)
            rank = rank.reshape(-1)
            points = np.sort(group[kept:] * len(ticks) + rank[kept:])
            base = group[:kept] * len(ticks)
            since = 0 if self.span is None else np.searchsorted(ticks, later(by[:kept], -self.span))
            found = np.searchsorted(points, base + rank[:kept], side="right") - np.searchsorted(points, base + since)
            hit[:kept] |= found > 0
        return np.flatnonzero(hit)

    def _with(self, tables: State, among: "_Rows", asked: Indices, horizons: Horizons) -> Version:
        """The rows asked for, with their aggregates over those they are among."""
        rows = among.rows
        windows = Windows.of(among.group, rows.fixed[self.by].data, asked, self.span)
        taken = rows.take(asked)
        had: Rows = nothing(list(self.aggregates.accumulators.values()), len(asked))
        if self.is_folding and tables[TOTALS].runs:
            key = [taken.fixed[c] for c in self.per]
            had = tables[TOTALS].find(key)[1]
            if not key:
                had = had.take(np.zeros(len(asked), np.int64))
        sealing = {c: plain(c, taken.fixed, taken.new.columns) for c in self.closing.needed}
        sealed = self.closing.reached(horizons, sealing, len(asked))
        added, steps = self.aggregates.over(windows, rows, had, sealed)
        columns: dict[str, Column] = {c: taken.new.columns[c] for c in self.own.evolving}
        return Version({**columns, **added}, taken.new.mask, steps)

    def _settled(self, changes: Changes) -> Changes:
        """Where all is known from the first, aggregates are plain values."""
        moved = [c for c in changes.new.columns if c in self.layout.fixed]
        if not moved:
            return changes
        fixed = {**changes.fixed, **{c: k.now_of(changes.new.columns[c]) for c in moved}}
        rest = {c: changes.new.columns[c] for c in self.layout.evolving}
        return Changes(fixed, None, Version(rest, changes.new.mask, changes.new.steps))

    def _groups(self, rows: Changes, marks: Array) -> Array:
        if self.is_moving or not self.per:
            return np.zeros(len(rows), np.int64)
        return Groups([rows.fixed[c] for c in self.per], len(rows), marks.view(np.uint64)).of

    def _marks(self, fixed: Mapping[str, Values], count: int) -> Values:
        return marks_of([] if self.is_moving else [fixed[c] for c in self.per], count)

    # ── what is kept ────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, tables: dict[str, Table], changes: Changes, marks: Array | None, moved: Moved) -> None:
        assert marks is not None
        live = masks.live(changes.new.mask)
        times = {c: plain(c, changes.fixed, changes.new.columns) for c in self.release.needed | self.closing.needed}
        done = live & self.release.reached(moved.after, times, len(changes))
        if done.any():
            self._fold(tables, changes.take(np.flatnonzero(done)))
        keep = live & ~done
        stale = np.flatnonzero(keep | masks.live(changes.old_mask()))
        if not len(stale):
            return
        taken = changes.take(stale)
        times = {c: column.take(stale) for c, column in times.items()}
        rows = {**flat(self.kept, taken.fixed, taken.new), GROUP: Values(marks[stale])}
        rows |= {**self.closing.ticks(times, len(stale)), **self.release.ticks(times, len(stale))}
        tables[ROWS] = tables[ROWS].updated(rows, ~keep[stale])

    def _fold(self, tables: dict[str, Table], rows: Changes) -> None:
        """Into the totals of their groups, if there are any: all that comes has them in its window."""
        if not self.is_folding:
            return
        groups = Groups([rows.fixed[c] for c in self.per], len(rows))
        key = {c: rows.fixed[c].take(groups.first) for c in self.per}
        columns = [key[c] for c in self.per]
        had = tables[TOTALS].find(columns)[1]
        place = Place(key, hashes(columns, groups.count), tables, none_lost)
        found: dict[str, Values] = {stored(c): column for c, column in key.items()}
        for each in self.aggregates.accumulators.values():
            found.update(each.absorb(had, Batch(Changes(rows.fixed, None, rows.new), groups), place).rows)
        tables[TOTALS] = tables[TOTALS].updated(found)


def _layout(own: Layout, added: Mapping[str, Evolving], settled: bool, heeded: bool) -> Layout:
    """Aggregates over rows that are known for good when they come, with all before them, never change."""
    exact = {n: e.data for n, e in added.items() if settled and e.kind != "object"}
    rest = {n: e for n, e in added.items() if n not in exact}
    return Layout(own.key, {**own.fixed, **exact}, {**own.evolving, **rest}, own.certain, heeded)


@dataclass(frozen=True)
class _Rows:
    """`group` numbers the groups that rows are of."""

    rows: Changes
    group: Array


@dataclass(frozen=True)
class _Where:
    """`kept` are the places of stored rows that have not changed. `was`: of each of these, and then of each that has,
    where it is among the stored rows, or -1."""

    kept: Indices
    was: Indices

    @staticmethod
    def of(rows: Table, had: Gathered, changes: Changes | None, own: Layout) -> "_Where":
        everywhere = np.arange(len(had))
        if changes is None:
            return _Where(everywhere, everywhere)
        was = np.full(len(changes), -1)
        if changes.old is None:
            return _Where(everywhere, np.concatenate([everywhere, was]))
        if len(had) and masks.heard(changes.old_mask()).any():
            found, those = rows.find([changes.fixed[c] for c in own.key])
            there = places_of(had)
            order = np.argsort(there)
            at = np.searchsorted(there[order], places_of(those)[found])
            was[found] = order[at]
        kept = np.setdiff1d(everywhere, was)
        return _Where(kept, np.concatenate([kept, was]))
