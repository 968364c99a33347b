"""SUMMARIZE and DISTINCT: of each group a row that follows from its accumulators and from whether it is sealed.

What old members contributed is taken out, what new ones do is put in; a batch looks each of its groups up once. A group
is told of when its members change or a horizon seals it, and forgotten once it is sealed: nothing can affect it then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Indices, Values, places_of
from smile.kernels.aggregates.accumulator import Accumulator, Found, Place
from smile.kernels.aggregates.choose import accumulator, evolving
from smile.kernels.aggregates.members import MEMBERS, Members, needed_again, without_groups
from smile.kernels.aggregates.parts import Batch
from smile.kernels.changes import Changes, Groups, Version, concat, differing
from smile.kernels.layout import Layout
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.stored import stored
from smile.kernels.transform import Input, Output, State, Transform
from smile.log.frame import END
from smile.state.gathered import Gathered
from smile.state.run import Rows, Shape
from smile.state.table import Table

GROUPS = "groups"
_STEPS = "steps"
_COUNTS = ("heard", "live", "stays", "shown")
"""How many members there are, may be shown in the end, are shown for good, and are shown."""


class Grouping:
    """Groups by columns that never change, and how they are shown: what every way of keeping them has in common."""

    def __init__(
        self, per: tuple[str, ...], aggregates: Sequence[tuple[str, mmpl.Aggregate]], source: Input, output: Output,
        moving: bool,
    ) -> None:  # fmt: skip
        """`moving`: members may leave for another group, whatever their masks are."""
        self.per, self.source, self.output = per, source, output
        heading = output.type.heading
        if moving:
            source = replace(source, layout=replace(source.layout, certain=False))
        self.certain = source.layout.certain or not per
        kinds = {c: arrow_type(heading.columns[c]) for c in per}
        self.accumulators: dict[str, Accumulator] = {
            name: accumulator(i, name, wanted, kinds, source, output) for i, (name, wanted) in enumerate(aggregates)
        }
        fixed = {c: heading.columns[c] for c in per}
        columns = {name: evolving(name, wanted, output) for name, wanted in aggregates}
        self.layout = Layout(per, fixed, columns, self.certain, output.heeded)
        self.counts: tuple[str, ...] = () if self.certain else _COUNTS
        self.columns: dict[str, pa.DataType] = {
            **{stored(c): kind for c, kind in kinds.items()},
            **dict.fromkeys((_STEPS, *self.counts), pa.int64()),
            **{name: kind for a in self.accumulators.values() for name, kind in a.columns.items()},
        }
        self.members: Members | None = None
        looking = [w for name, w in aggregates if self.accumulators[name].reads_members]
        if looking:
            needed = needed_again(looking, source.type.heading.tick)
            self.members = Members(source.layout, per, needed, any(w.function == "group" for w in looking))
        shapes = {name: shape for a in self.accumulators.values() for name, shape in a.shapes.items()}
        self.shapes: dict[str, Shape] = shapes | ({} if self.members is None else {MEMBERS: self.members.shape})

    # ── absorbing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def place(self, key: Mapping[str, Values], marks: Array, tables: State) -> Place:
        return Place(key, marks, tables, self._members_of)

    def _members_of(self, place: Place, numbers: Indices) -> Found:
        assert self.members is not None
        return self.members.of(place, numbers)

    def absorbed(self, rows: Rows, batch: Batch, place: Place) -> tuple[dict[str, Values], State]:
        """The groups' rows, but for what tells them apart, and the tables beside them, once a batch is known."""
        tables = dict(place.tables)
        changes, groups = batch.changes, batch.groups
        if self.members is not None:
            tables[MEMBERS] = self.members.changed(tables[MEMBERS], changes, place.marks[groups.of])
        place = self.place(place.key, place.marks, tables)
        steps = _present(changes.new)
        if changes.old is not None:
            steps = steps - _present(changes.old)
        found = {_STEPS: Values(rows[_STEPS].data + groups.sums(steps))}
        for name in self.counts:
            test = getattr(masks, name)
            change = batch.counts(None if changes.old is None else test(changes.old.mask), test(changes.new.mask))
            found[name] = Values(rows[name].data + change)
        for each in self.accumulators.values():
            absorbed = each.absorb(rows, batch, place)
            found.update(absorbed.rows)
            tables.update(absorbed.tables)
        return found, tables

    # ── showing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def version(self, rows: Rows, sealed: Bools | None, place: Place, there: Bools | None) -> Version:
        """`there` are the groups that anybody has heard of, None for all."""
        mask = self._masks(rows, sealed, len(place))
        if there is not None:
            mask[~there] = masks.ABSENT
        return Version(_Rendered(self, rows, sealed, place), mask, rows[_STEPS].data)

    def _masks(self, rows: Rows, sealed: Bools | None, count: int) -> Codes:
        """A group is shown while one of its members is; members may come until it is sealed."""
        if self.certain:
            return masks.full(masks.T, count)
        heard, live, stays, shown = (rows[name].data > 0 for name in _COUNTS)
        can = live | (np.ones(count, bool) if sealed is None else ~sealed)
        return np.where(heard, masks.of(can, ~stays, shown), np.uint8(masks.ABSENT))

    def nothing(self, key: Mapping[str, Values], count: int, sealed: Bools | None) -> Version:
        """Of groups nobody has heard of: all accumulators are at zero."""
        rows = self.zero(count)
        place = self.place(key, hashes([key[c] for c in self.per], count), self.empty())
        mask = masks.full(masks.HIDDEN if self.per else masks.T, count)
        if sealed is not None and self.per:
            mask[sealed] = masks.F
        return Version(_Rendered(self, rows, sealed, place), mask, np.zeros(count, np.int64))

    def zero(self, count: int) -> Rows:
        """The rows of groups without members."""
        empty = Table(Shape(tuple(map(stored, self.per)), self.columns))
        return Gathered(empty, np.full(count, -1), np.zeros(count, np.int64))

    def empty(self) -> State:
        return {name: Table(shape) for name, shape in self.shapes.items()}


def _present(version: Version) -> Array:
    absent = version.mask == masks.ABSENT
    return np.where(absent, 0, version.steps) if absent.any() else version.steps


class _Rendered(Mapping[str, Column]):
    """The aggregates of groups, each when it is asked for."""

    def __init__(self, grouping: Grouping, rows: Rows, sealed: Bools | None, place: Place) -> None:
        self.grouping, self.rows, self.sealed, self.place = grouping, rows, sealed, place
        self._found: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self.grouping.accumulators)

    def __iter__(self) -> Iterator[str]:
        return iter(self.grouping.accumulators)

    def __getitem__(self, name: str) -> Column:
        if name not in self._found:
            accumulator = self.grouping.accumulators[name]
            self._found[name] = accumulator.render(self.rows, self.sealed, self.place)
        return self._found[name]


class Grouped(Transform):
    """Groups of any number of members, by columns that never change."""

    def __init__(self, grouping: Grouping) -> None:
        self.grouping, self.layout = grouping, grouping.layout
        output = grouping.output
        self.per = grouping.per
        self.seals = Seals(output.type.seals, output.type.heading.columns)
        self.never = tuple(s for s, seal in output.type.seals.items() if seal.is_never)
        self.orders = {s: f"@{s}" for s, seal in output.type.seals.items() if not seal.is_never}
        columns = {**grouping.columns, **dict.fromkeys(self.orders.values(), pa.int64())}
        shape = Shape(tuple(map(stored, self.per)), columns, orders=tuple(self.orders.values()))
        self.shapes = {GROUPS: shape, **grouping.shapes}

    def is_woken(self, moved: Moved) -> bool:
        if not self.per:
            return True
        if any(moved.after[s] < END for s in self.never):
            return False
        return any(moved.after[s] > moved.before[s] for s in (*self.orders, *self.never))

    def default(self, key: Mapping[str, Values], count: int, horizons: Horizons) -> Changes:
        return Changes(key, None, self.grouping.nothing(key, count, self._sealed(horizons, key, count)))

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        (changes,) = inputs
        before = state[GROUPS]
        parts, tables, touched = [], dict(state), None
        if changes is not None and len(changes):
            part, tables, touched = self._changed(state, changes, moved)
            parts.append(part)
        elif not self.per and not before.runs:
            parts.append(self._first(tables, moved))
        closing = self._closing(before, touched, moved)
        if closing is not None:
            parts.append(self._closed(tables, closing, moved, state))
        if not parts:
            return tables, None
        return tables, differing(concat(self.layout, parts), self.layout.heeded)

    # ── members change ──────────────────────────────────────────────────────────────────────────────────────────────

    def _changed(
        self, state: State, changes: Changes, moved: Moved
    ) -> tuple[Changes, dict[str, Table], Gathered | None]:
        count = len(changes)
        marks = hashes([changes.fixed[c] for c in self.per], count)
        groups = Groups([changes.fixed[c] for c in self.per], count, marks)
        key = changes.fixed if count == 1 else {c: changes.fixed[c].take(groups.first) for c in self.per}
        key = {c: key[c] for c in self.per}
        columns = list(key.values())
        place = self.grouping.place(key, marks[groups.first], state)
        was, had = state[GROUPS].find(columns)
        found, tables = self.grouping.absorbed(had, Batch(changes, groups), place)
        before, after = (self._sealed(h, key, groups.count) for h in (moved.before, moved.after))
        old = self.grouping.version(had, before, place, was) if was.any() else None
        there = self._there(found)
        new = self.grouping.version(found, after, self.grouping.place(key, place.marks, tables), there)
        rows = {**{stored(c): column for c, column in key.items()}, **found, **self._order_columns(key, groups.count)}
        gone = self._spent(there, after)
        dropped = dict(tables)
        if gone is None:
            dropped[GROUPS] = state[GROUPS].updated(rows, None, had)
        else:
            keep = places_of(~gone | was)
            taken = {name: column.take(keep) for name, column in rows.items()}
            dropped[GROUPS] = state[GROUPS].updated(taken, gone[keep], had)
            self._forget(dropped, key, place.marks, places_of(gone))
        return Changes(key, old, new), dropped, had if was.any() else None

    def _there(self, rows: Mapping[str, Values]) -> Bools | None:
        """Groups that anybody has heard of; those that every member has left are as if there had never been one. If all
        that is left are members that are hidden for good, only who heeds them tells the difference."""
        if self.grouping.certain:
            return None
        heard: Bools = rows["heard" if self.layout.heeded else "live"].data > 0
        return None if heard.all() else heard

    def _spent(self, there: Bools | None, sealed: Bools | None) -> Bools | None:
        """Groups of which nothing need be remembered. The one row without grouping is always there."""
        if not self.per or (there is None and sealed is None):
            return None
        if sealed is None:
            assert there is not None
            return ~there
        return sealed if there is None else sealed | ~there

    def _forget(self, tables: dict[str, Table], key: Mapping[str, Values], marks: Array, at: Indices) -> None:
        taken = {c: column.take(at) for c, column in key.items()}
        for name in self.grouping.shapes:
            tables[name] = without_groups(tables[name], marks[at], taken)

    def _first(self, tables: dict[str, Table], moved: Moved) -> Changes:
        """The one row that is there before anything happens."""
        sealed = self._sealed(moved.after, {}, 1)
        version = self.grouping.nothing({}, 1, sealed)
        assert isinstance(version.columns, _Rendered)
        rows = dict(version.columns.rows)
        blank = {name: _plain(rows[name]) for name in (_STEPS, *self.grouping.counts)}
        tables[GROUPS] = tables[GROUPS].updated({**rows, **blank, **self._order_columns({}, 1)})
        return Changes({}, None, version)

    def _order_columns(self, key: Mapping[str, Values], count: int) -> dict[str, Values]:
        return {name: Values(self.seals.ticks(s, key, count)) for s, name in self.orders.items()}

    # ── horizons move ───────────────────────────────────────────────────────────────────────────────────────────────

    def _sealed(self, horizons: Horizons, key: Mapping[str, Values], count: int) -> Bools | None:
        if any(horizons[s] < END for s in self.never):
            return None
        found = self.seals.reached(horizons, key, count)
        return found if found.any() else None

    def _closing(self, table: Table, touched: Gathered | None, moved: Moved) -> Gathered | None:
        """Groups that horizons seal, but for those whose members have changed."""
        if not table.runs or any(moved.after[s] < END for s in self.never):
            return None
        if any(moved.before[s] < END for s in self.never):
            found = table.scan()
        else:
            parts = [
                table.between(name, moved.before[s], moved.after[s])
                for s, name in self.orders.items()
                if moved.after[s] > moved.before[s]
            ]
            parts = [p for p in parts if len(p.place)]
            if not parts:
                return None
            places = np.concatenate([_places(p) for p in parts])
            _, first = np.unique(places, return_index=True)
            run_of, place = (np.concatenate([getattr(p, a) for p in parts])[first] for a in ("run_of", "place"))
            found = Gathered(table, run_of, place)
        if touched is not None:
            found = found.take(places_of(~np.isin(_places(found), _places(touched))))
        count = len(found.place)
        key = {c: found[stored(c)] for c in self.per}
        after, before = (self._sealed(h, key, count) for h in (moved.after, moved.before))
        if after is None:
            return None
        closed = places_of(after if before is None else after & ~before)
        return found.take(closed) if len(closed) else None

    def _closed(self, tables: dict[str, Table], rows: Gathered, moved: Moved, state: State) -> Changes:
        count = len(rows.place)
        key = {c: rows[stored(c)] for c in self.per}
        place = self.grouping.place(key, hashes([key[c] for c in self.per], count), state)
        before, after = (self._sealed(h, key, count) for h in (moved.before, moved.after))
        old, new = (self.grouping.version(rows, sealed, place, None) for sealed in (before, after))
        if self.per:
            tables[GROUPS] = tables[GROUPS].updated(rows, np.ones(count, bool))
            self._forget(tables, key, place.marks, np.arange(count))
        return Changes(key, old, new)


def _plain(values: Values) -> Values:
    return Values(values.data)


def _places(rows: Gathered) -> Array:
    """Rows of one table by numbers of their own; below zero where there is none."""
    return (rows.run_of << 40) | rows.place
