"""Joins of two relations on the keys of both: a row for each key that either has heard of, found in both by that key.

Of two total relations the default row stands in for the one nobody has heard of; in a FULL JOIN of others, NULLs.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.columns import masks, values as v
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.values import Bools, Values
from smile.kernels.changes import Changes, Groups, Version, differing
from smile.kernels.joins.defaults import default_ends, with_defaults
from smile.kernels.joins.ends import Ends
from smile.kernels.joins.maybe import NOTHING, THERE, TO_COME, Maybe, MaybeColumns, kinds_of, states_of
from smile.kernels.joins.one_row import closed, find
from smile.kernels.joins.sides import Drawn, Rows, Side, Sides
from smile.kernels.layout import Evolving, Layout
from smile.kernels.refused import Refused
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.transform import Input, Output, State, Transform
from smile.knowledge.seals import Seal
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

Keys = Sequence[Values]


class ByKey(Transform):
    """Keys are those of the left side."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        self.sides = sides = Sides(rel, left, right, output)
        self.both = (sides.left, sides.right)
        equated = dict(reversed(rel.on))
        self.names = {c: equated[c] for c in sides.left.key}
        """By the left side's key, what a right row has in its place."""
        self.of_right = {b: a for a, b in rel.on if a in self.names}
        """By the right side's key, what it is for a key of the left."""
        self.kinds = {side.which: kinds_of(side.layout) for side in self.both}
        self.wakes: dict[str, list[Ends]] = {side.which: self._wakes(side) for side in self.both}
        self.done: dict[str, Ends] = {
            side.which: Ends(Seals(closed(side), side.source.type.heading.columns), "done") for side in self.both
        }
        """When a row and all that it meets are final."""
        self.shapes = {side.which: self._shape(side) for side in self.both}
        self.origins = sides.origins
        self.layout = self._layout(output)

    @abstractmethod
    def _wakes(self, side: Side) -> list[Ends]:
        """When what is known of the other side's rows that nobody has heard of changes, in the terms of this one's."""

    @abstractmethod
    def _layout(self, output: Output) -> Layout: ...

    @abstractmethod
    def _together(self, key: Keys, rows: Sequence[Rows], horizons: Horizons) -> Rows:
        """The rows of some keys, of which each side has found its own."""

    def _shape(self, side: Side) -> Shape:
        ends = (*self.wakes[side.which], self.done[side.which])
        orders = tuple(order for e in ends for order in e.orders.values())
        columns = {c: t for c, t in side.shape.columns.items() if c not in side.shape.orders}
        return Shape(side.shape.key, {**columns, **{order: pa.int64() for order in orders}}, (), orders)

    def is_woken(self, moved: Moved) -> bool:
        ends = (e for which in self.shapes for e in (*self.wakes[which], self.done[which]))
        return any(e.wakes(moved) for e in ends)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        told = [(side, changes) for side, changes in zip(self.both, inputs, strict=True) if changes is not None]
        tables = dict(state)
        for side, changes in told:
            tables[side.which] = self._updated(side, state, changes)
        keys = [(self._key_of(side, changes.fixed), len(changes)) for side, changes in told]
        if moved.at_all:
            for side in self.both:
                for ends in self.wakes[side.which]:
                    found = ends.now(tables[side.which], moved)
                    if len(found):
                        keys.append((self._key_of(side, side.rows(found).fixed), len(found)))
        return self._forgetting(tables, moved), self._changes(keys, state, tables, moved) if keys else None

    def _changes(self, parts: Sequence[tuple[Keys, int]], before: State, after: State, moved: Moved) -> Changes:
        key = [v.concat(columns) for columns in zip(*(columns for columns, _ in parts), strict=True)]
        groups = Groups(key, sum(count for _, count in parts))
        key = [column.take(groups.first) for column in key]
        rows = [side.rows(self._found(side, before, key, groups.count)) for side in self.both]
        new_rows = [side.rows(self._found(side, after, key, groups.count)) for side in self.both]
        old, new = self._together(key, rows, moved.before), self._together(key, new_rows, moved.after)
        return differing(Changes(new.fixed, old.version, new.version), self.layout.heeded)

    def _found(self, side: Side, state: State, key: Keys, count: int) -> Gathered:
        named = self._named(side, key)
        return find(state[side.which], [named[c] for c in side.key], count)

    def _named(self, side: Side, key: Keys) -> dict[str, Values]:
        """A key by the side's names."""
        own = dict(zip(self.names, key, strict=True))
        return {b: own[a] for b, a in self.of_right.items()} if side is self.sides.right else own

    def _key_of(self, side: Side, fixed: Mapping[str, Values]) -> list[Values]:
        return [fixed[b if side is self.sides.right else a] for a, b in self.names.items()]

    def _fixed(self, key: Keys, rows: Sequence[Rows]) -> Mapping[str, Values]:
        """What is fixed follows from the key: it is the same whether a row is heard of, or not yet, or no more."""
        left, right = (self._named(side, key) for side in self.both)
        sources: dict[str, Mapping[str, Values]] = {}
        for name in self.layout.fixed:
            at = 0 if self.sides.of[name] is self.sides.left else 1
            named = (left, right)[at]
            sources[name] = named if name in named else rows[at].fixed
        return Drawn(sources)

    def _updated(self, side: Side, state: State, changes: Changes | None) -> Table:
        table = state[side.which]
        if changes is None:
            return table
        mask = changes.new.mask
        keep = masks.heard(mask) if side.layout.heeded else masks.live(mask)
        rows = side.flat(changes.fixed, changes.new)
        for ends in (*self.wakes[side.which], self.done[side.which]):
            rows |= ends.ticks(changes.fixed, len(changes))
        return table.updated(rows, None if keep.all() else ~keep)

    def _forgetting(self, tables: State, moved: Moved) -> State:
        if all(self.done[which].all_over(moved.after) for which in tables):
            return {name: Table(shape) for name, shape in self.shapes.items()}
        if not moved.at_all:
            return tables
        for side in self.both:
            ended = self.done[side.which].now(tables[side.which], moved)
            if len(ended):
                # The rows of both sides go together: one alone would be taken for all that was heard of.
                key = self._key_of(side, side.rows(ended).fixed)
                found = {other.which: self._found(other, tables, key, len(ended)) for other in self.both}
                tables = {w: tables[w].without(f.take(np.flatnonzero(f.run_of >= 0))) for w, f in found.items()}
        return tables


class BothTotal(ByKey):
    """Every group that either side has heard of. One whose key has a NULL joins nothing, but is there if its side is
    preserved: with NULLs, or in a FULL JOIN with what the other side has under that key."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        own = {"left": left, "right": right}.get(rel.kind)
        self.alone = own is not None and any(own.type.columns[c].nullable for c in own.layout.key)
        """Whether rows of the preserved side may have no match."""
        super().__init__(rel, left, right, output)

    def _wakes(self, side: Side) -> list[Ends]:
        other = self.sides.other(side)
        asking = self.of_right if other is self.sides.right else self.names
        return default_ends(other, asking, side.source.type.columns)

    def _layout(self, output: Output) -> Layout:
        found = self.sides.layout(output.type.heading.key, False, output.heeded)
        if not self.alone:
            return found
        kinds = {c: self.kinds[s.which][c] for c, s in self.sides.of.items() if s.which != self.sides.rel.kind}
        evolving = {c: kinds.get(c, e) for c, e in found.evolving.items()}
        return Layout(found.key, found.fixed, evolving, False, found.heeded)

    def _together(self, key: Keys, rows: Sequence[Rows], horizons: Horizons) -> Rows:
        heard = [masks.heard(r.version.mask) for r in rows]
        nulls = _nulls(key)
        told = heard[0] | heard[1]
        if nulls is not None:
            preserved = np.zeros(len(told), bool)
            for side, there in zip(self.both, heard, strict=True):
                if self.sides.rel.kind in (side.which, "full"):
                    preserved |= there
            told &= preserved | ~nulls
        return self._defaults(key, rows, told, horizons)

    def _defaults(self, key: Keys, rows: Sequence[Rows], told: Bools, horizons: Horizons) -> Rows:
        """Rows of both sides, with default rows where nobody has heard of one."""
        masks_, steps, columns = [], [], []
        nulls = _nulls(key)
        rows = [with_defaults(s, r, self._named(s, key), None, horizons) for s, r in zip(self.both, rows, strict=True)]
        for side, found in zip(self.both, rows, strict=True):
            version = found.version
            mask, count, known = version.mask, version.steps, version.columns
            if self.alone and side.which != self.sides.rel.kind:
                nobody = np.zeros(len(told), bool) if nulls is None else nulls
                mask, count = np.where(nobody, np.uint8(masks.F), mask), np.where(nobody, 0, count)
                state = np.where(nobody, NOTHING, THERE)
                kinds, bottoms = self.kinds[side.which], side.source.bottoms
                known = MaybeColumns(Maybe(kinds, bottoms, state, ~nobody, found.fixed, known, {}))
            masks_.append(mask)
            steps.append(count)
            columns.append(known)
        mask = masks.any_of(masks_[0], masks_[1])
        both = self.sides.columns_of(self.layout, columns[0], columns[1])
        version = Version(both, np.where(told, mask, np.uint8(masks.ABSENT)), steps[0] + steps[1])
        return Rows(self._fixed(key, rows), version)

    def _fixed(self, key: Keys, rows: Sequence[Rows]) -> Mapping[str, Values]:
        found = super()._fixed(key, rows)
        nulls = _nulls(key)
        if nulls is None or not self.alone:
            return found
        plain = dict(found)
        for name, side in self.sides.of.items():
            if side.which != self.sides.rel.kind and name in plain and name not in self.layout.key:
                plain[name] = Values(plain[name].data, plain[name].there() & ~nulls)
        return plain

    def default(self, key: Mapping[str, Values], count: int, horizons: Horizons) -> Changes:
        own = [key[a] if a in key else key[b] for a, b in self.names.items()]
        none = np.full(count, -1)
        rows = [side.rows(Gathered(Table(self.shapes[side.which]), none, none)) for side in self.both]
        found = self._defaults(own, rows, np.ones(count, bool), horizons)
        return Changes(found.fixed, None, found.version)

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        found = []
        for side in self.both:
            transform = side.source.transform
            assert transform is not None, "a stream is never total"
            for parts in transform.default_seals(side.source.type.seals):
                named = {stream: seal.renamed(self._own_names(side)) for stream, seal in parts.items()}
                if named not in found:
                    found.append(named)
        return found

    def _own_names(self, side: Side) -> dict[str, str]:
        """The key of the join, by a side's names."""
        key = self.layout.key
        of_left = {a: a if a in key else b for a, b in self.names.items()}
        return {b: of_left[a] for b, a in self.of_right.items()} if side is self.sides.right else of_left


class OneRowFull(ByKey):
    """Both sides have the same key, under the same names: a row of either, or both in one. A side that is total has its
    default row where nobody has heard of another, but joins nothing by NULL."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        on_keys = {a for a, _ in rel.on} == set(left.layout.key) and {b for _, b in rel.on} == set(right.layout.key)
        once = len(rel.on) == len(left.layout.key)
        if rel.when is not None or not (on_keys and once) or set(left.layout.key) != set(right.layout.key):
            raise Refused(rel, "rows of the FULL JOIN that have no match would share a key with others")
        super().__init__(rel, left, right, output)

    def _wakes(self, side: Side) -> list[Ends]:
        """When no row of the other side can come, or its default rows change."""
        other = self.sides.other(side)
        if other.total:
            asking = self.of_right if other is self.sides.right else self.names
            return default_ends(other, asking, side.source.type.columns)
        return [Ends(self._coming(other), "comes")]

    def _coming(self, side: Side) -> Seals:
        """A side's seals, in the terms of the key."""
        ties = self.sides.ties
        seals = {s: ties.express(seal, side.key) for s, seal in side.source.type.seals.items()}
        return Seals(seals, side.source.type.heading.columns)

    def _layout(self, output: Output) -> Layout:
        fixed = {c: t for c, t in self.sides.left.layout.fixed.items() if c in self.sides.left.key}
        evolving: dict[str, Evolving] = {
            c: self.kinds[side.which][c] for c, side in self.sides.of.items() if c not in fixed
        }
        return Layout(output.type.heading.key, fixed, evolving, False, output.heeded)

    def _together(self, key: Keys, rows: Sequence[Rows], horizons: Horizons) -> Rows:
        count = len(rows[0])
        asked = dict(zip(self.names, key, strict=True))
        found: list[MaybeColumns] = []
        mask: Codes = masks.full(masks.F, count)
        nulls = _nulls(key)
        there = np.ones(count, bool) if nulls is None else ~nulls
        for side, own in zip(self.both, rows, strict=True):
            if side.total:
                own = with_defaults(side, own, self._named(side, key), there, horizons)
            codes = own.version.mask
            heard = masks.heard(codes)
            more = ~heard & there
            if more.any():
                more &= ~Ends(self._coming(side), "").reached(asked, count, horizons)
            codes = np.where(heard, codes, np.where(more, np.uint8(masks.HIDDEN), np.uint8(masks.F)))
            mask = masks.any_of(mask, codes)
            state = states_of(codes)
            state[more] = TO_COME
            if side.total:
                state[there] = THERE
            columns: Mapping[str, Column] = own.version.columns
            kinds, bottoms = self.kinds[side.which], side.source.bottoms
            found.append(MaybeColumns(Maybe(kinds, bottoms, state, masks.shown(codes), own.fixed, columns, {})))
        told = masks.heard(rows[0].version.mask) | masks.heard(rows[1].version.mask)
        columns = self.sides.columns_of(self.layout, found[0], found[1])
        steps = rows[0].version.steps + rows[1].version.steps
        version = Version(columns, np.where(told, mask, np.uint8(masks.ABSENT)), steps)
        return Rows(self._fixed(key, rows), version)


def _nulls(key: Keys) -> Bools | None:
    """Keys with a NULL in them; None if there are none."""
    found: Bools | None = None
    for column in key:
        if column.valid is not None:
            found = ~column.valid if found is None else found | ~column.valid
    return found
