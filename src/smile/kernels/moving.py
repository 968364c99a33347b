"""Groups by columns that evolve: a row belongs to a group under a mask, so to any number of groups.

All members are kept, and a frame reads all of them: groups are found by what members have now, and each group that a
changed member belongs or may belong to is computed anew from all members that may belong to it. The work of a frame is
in proportion to the members, and to the members of each group that it touches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.hashing import hashes
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.ranges import ranges_of
from smile.columns.values import Bools, Indices, Values
from smile.kernels.aggregates.accumulator import Found, Place
from smile.kernels.aggregates.parts import Batch
from smile.kernels.aggregates.peaks import is_as_good
from smile.kernels.changes import Changes, Groups, Version, differing
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.kernels.summarize import Grouping
from smile.kernels.transform import State, Transform
from smile.log.frame import END
from smile.state.run import Shape

ALL = "all"
_ONLY = 2


@dataclass(frozen=True)
class Rows:
    """Rows of the input, each with what it is grouped by now."""

    fixed: Mapping[str, Values]
    version: Version
    now: Sequence[Values]

    def __len__(self) -> int:
        return len(self.version)


class Moving(Transform):
    """`single`: a group has no member but the one that made it, and is sealed once that is heard of."""

    def __init__(self, grouping: Grouping, single: bool) -> None:
        self.grouping, self.layout, self.single = grouping, grouping.layout, single
        self.per = grouping.per
        self.own = grouping.source.layout
        type_ = grouping.output.type
        self.seals = Seals(type_.seals, type_.heading.columns)
        self.shapes = {ALL: Shape(tuple(map(stored, self.own.key)), columns_of(self.own))}

    def default(self, key: Mapping[str, Values], count: int, horizons: Horizons) -> Changes:
        return Changes(key, None, self.grouping.nothing(key, count, self.seals.reached(horizons, key, count)))

    def is_woken(self, moved: Moved) -> bool:
        seals = self.seals.by_stream
        if any(moved.after[s] < END for s, seal in seals.items() if seal.is_never):
            return False
        return any(moved.after[s] > moved.before[s] for s in seals)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        (changes,) = inputs
        table = state[ALL]
        if changes is not None and len(changes):
            rows = flat(self.own, changes.fixed, changes.new)
            table = table.updated(rows, ~masks.heard(changes.new.mask))
        before, after = self._all(state), self._all({ALL: table})
        key = self._keys(before, after)
        count = len(key[0])
        touched = self._touched(key, count, changes, moved)
        if not len(touched):
            return {ALL: table}, None
        key = [column.take(touched) for column in key]
        names = dict(zip(self.per, key, strict=True))
        old = self._version(before, names, len(touched), moved.before)
        new = self._version(after, names, len(touched), moved.after)
        found = differing(Changes(names, old, new), self.layout.heeded)
        return {ALL: table}, found if len(found) else None

    def _all(self, state: State) -> Rows:
        rows = state[ALL].scan()
        return self._rows(fixed_of(self.own, rows), version_of(self.own, rows))

    def _rows(self, fixed: Mapping[str, Values], version: Version) -> Rows:
        now = [fixed[c] if c in self.own.fixed else k.now_of(version.columns[c]) for c in self.per]
        return Rows(fixed, version, now)

    def _keys(self, before: Rows, after: Rows) -> list[Values]:
        """All groups, each once."""
        both = [v.concat([a, b]) for a, b in zip(before.now, after.now, strict=True)]
        groups = Groups(both, len(before) + len(after))
        return [column.take(groups.first) for column in both]

    def _touched(self, key: list[Values], count: int, changes: Changes | None, moved: Moved) -> Indices:
        """Groups that a changed row belongs or may belong to, before or after, and those that horizons seal."""
        names = dict(zip(self.per, key, strict=True))
        before, after = (self.seals.reached(h, names, count) for h in (moved.before, moved.after))
        found = before != after
        if changes is not None:
            versions = [changes.new] if changes.old is None else [changes.old, changes.new]
            for version in versions:
                rows = self._rows(changes.fixed, version)
                heard = masks.heard(version.mask)
                for group in range(count):
                    if not found[group]:
                        found[group] = bool((heard & masks.live(self._belongs(rows, key, group))).any())
        return np.flatnonzero(found)

    # ── groups anew ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _version(self, rows: Rows, key: Mapping[str, Values], count: int, horizons: Horizons) -> Version:
        """The groups, from all rows that may belong to them. Rows that have moved on are hidden for good and have no
        steps; only a nested relation tells of them."""
        columns = [key[c] for c in self.per]
        every = self.grouping.members is not None and self.grouping.members.gone_too
        at, codes = [], []
        there = np.zeros(count, bool)
        for group in range(count):
            belongs = self._belongs(rows, columns, group)
            there[group] = bool(masks.shown(belongs).any())
            mine = np.arange(len(rows)) if every else np.flatnonzero(masks.live(belongs))
            at.append(mine)
            codes.append(belongs[mine])
        place = np.concatenate(at)
        belongs = np.concatenate(codes)
        taken = rows.version.take(place)
        steps = np.where(masks.live(belongs), taken.steps, 0)
        members = Version(
            taken.columns, np.where(masks.live(belongs), masks.all_of(taken.mask, belongs), belongs), steps
        )
        fixed = {c: rows.fixed[c].take(place) for c in self.own.fixed}
        who = np.repeat(np.arange(count), [len(a) for a in at])
        sealed = self.seals.reached(horizons, key, count)
        if self.single:
            sealed[who[masks.live(belongs)]] = True
        return self._computed(who, fixed, members, key, count, sealed, there)

    def _computed(
        self, who: Indices, fixed: Mapping[str, Values], members: Version, key: Mapping[str, Values], count: int,
        sealed: Bools, there: Bools,
    ) -> Version:  # fmt: skip
        def found(_place: Place, _numbers: Indices) -> Found:
            return who, fixed, members

        grouping = self.grouping
        # Every group has a row of its own in the batch, so that groups are numbered as their keys are.
        groups = Groups([Values(who)], len(who))
        marks = hashes([key[c] for c in self.per], count)
        present = who[groups.first]
        taken = {c: column.take(present) for c, column in key.items()}
        place = Place(taken, marks[present], grouping.empty(), found)
        batch = Batch(Changes(fixed, None, members), groups)
        some, tables = grouping.absorbed(grouping.zero(groups.count), batch, place)
        back = np.full(count, groups.count)
        back[present] = np.arange(groups.count)
        zero = grouping.zero(1)
        rows = {name: v.concat([column, zero[name]]).take(back) for name, column in some.items()}
        return grouping.version(rows, sealed, Place(key, marks, tables, found), there)

    def _belongs(self, rows: Rows, key: Sequence[Values], group: int) -> Codes:
        found = masks.full(masks.T, len(rows))
        for name, column in zip(self.per, key, strict=True):
            wanted = column.take(np.full(len(rows), group))
            own: Column = rows.fixed[name] if name in self.own.fixed else rows.version.columns[name]
            found = masks.all_of(found, same(own, wanted, self.own.types[name]))
        return found


def same(column: Column, wanted: Values, data: DataType) -> Codes:
    """Row by row, whether the cell IS NOT DISTINCT FROM a value."""
    if isinstance(column, Values):
        equal = column.same(wanted)
        return masks.of(equal, ~equal, equal)
    ranges = ranges_of(column, data)
    codes = ranges.null_codes()
    is_value, valued = wanted.there(), codes != _ONLY
    above = _passes(wanted, ranges.lo, True)
    below = _passes(wanted, ranges.hi, False)
    point = np.zeros(len(wanted), bool)
    if ranges.lo is not None and ranges.hi is not None:
        point = ranges.lo.there() & ranges.hi.there() & ranges.lo.same(wanted) & ranges.hi.same(wanted)
    can = np.where(is_value, valued & above & below, codes != 0)
    cannot = np.where(is_value, ~point | (codes != 0), valued)
    return masks.of(can, cannot, ranges.now.same(wanted))


def _passes(wanted: Values, end: Values | None, is_start: bool) -> Bools:
    if end is None:
        return np.ones(len(wanted), bool)
    return end.nulls() | is_as_good(Values(wanted.data), Values(end.data), is_start)
