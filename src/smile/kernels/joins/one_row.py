"""Joins on the other side's whole key: each row of one side is there once, with the one row that it asks for, or none.

Where the other side is total the default row stands in for one nobody has heard of. Else a row of a side that is
preserved has NULLs for as long as none has come, and for good once none can.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.values import Bools, Values, places_of
from smile.kernels.changes import Changes, Version, concat, differing
from smile.kernels.joins.defaults import default_ends, with_defaults
from smile.kernels.joins.ends import Ends, nothing, together
from smile.kernels.joins.maybe import NOTHING, TO_COME, Maybe, MaybeColumns, kinds_of, states_of
from smile.kernels.joins.pairs import meeting
from smile.kernels.joins.sides import Drawn, Rows, Side, Sides, Which
from smile.kernels.layout import Evolving, Layout
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.stored import stored
from smile.kernels.transform import Input, Output, State, Transform
from smile.knowledge.seals import Seal
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table


class OneRow(Transform):
    """`own` are the rows that ask, by their columns `asking`, for the key of a row of the `other` side."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output, own: Which) -> None:
        self.sides = sides = Sides(rel, left, right, output)
        self.own, self.other = (sides.left, sides.right) if own == "left" else (sides.right, sides.left)
        self.preserved, self.total = rel.kind != "inner", self.other.total
        asked = dict(zip(self.other.on, self.own.on, strict=True))
        self.asking = {b: asked[b] for b in self.other.key}
        self.extra = [(a, b) for a, b in zip(self.own.on, self.other.on, strict=True) if self.asking.get(b) != a]
        self.bare = self.total and not sides.extra and not self.extra
        """Whether there always is a match, unless NULL is asked for."""
        types = self.own.source.type.columns
        self.nullable = self.preserved and (not self.bare or any(types[a].nullable for a in self.asking.values()))
        self.kinds = kinds_of(self.other.layout)
        self.drawn = self._drawn()
        self.layout = self._layout(output)
        self.wakes = default_ends(self.other, self.asking, types) if self.total else [self.own.ends]
        self.done = Ends(Seals(closed(self.other), self.other.source.type.heading.columns), "done")
        """When rows of the other side are final, and no row that asks for them can come or change."""
        self.shapes = {self.own.which: self._own_shape(), self.other.which: self._other_shape()}
        self.origins = sides.origins

    def _drawn(self) -> dict[str, Side]:
        """What is equated under one name is the asking row's."""
        shared = {c for c in self.own.on if c in self.other.on and c in self.own.layout.types}
        return {c: self.own if c in shared else side for c, side in self.sides.of.items()}

    def _layout(self, output: Output) -> Layout:
        fixed, evolving = {}, dict[str, Evolving]()
        for name, side in self.drawn.items():
            is_other = side is self.other
            if name in side.layout.fixed and not (is_other and self.preserved and not self.bare):
                fixed[name] = side.layout.fixed[name]
            else:
                evolving[name] = self.kinds[name] if is_other and self.nullable else side.layout.evolving[name]
        certain = self.own.layout.certain and (self.preserved or (self.bare and self.sides.when is None))
        return Layout(output.type.heading.key, fixed, evolving, certain, output.heeded)

    def _own_shape(self) -> Shape:
        shape = self.own.shape
        ticks = {order: pa.int64() for ends in self.wakes for order in ends.orders.values()}
        self.index = tuple(stored(a) for a in self.asking.values())
        orders = tuple(dict.fromkeys([*shape.orders, *ticks]))
        return Shape(shape.key, {**shape.columns, **ticks}, (self.index,) if self.index else (), orders)

    def _other_shape(self) -> Shape:
        shape, orders = self.other.shape, tuple(self.done.orders.values())
        columns = {c: t for c, t in shape.columns.items() if c not in shape.orders}
        return Shape(shape.key, {**columns, **{order: pa.int64() for order in orders}}, (), orders)

    def is_woken(self, moved: Moved) -> bool:
        return any(ends.wakes(moved) for ends in (*self.wakes, self.own.ends, self.done))

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        owns, others = inputs if self.own is self.sides.left else inputs[::-1]
        known = state[self.other.which]
        rest, own_table = self._asking(state[self.own.which], owns, moved)
        others_table = self._answering(known, others)
        parts = []
        if owns is not None:
            parts.append(self._of_own(owns, known, others_table, moved))
        if others is not None:
            parts += self._of_others(rest, others, moved)
        if moved.at_all:
            parts += self._of_horizons(rest, others_table, others, moved)
        parts = [p for p in parts if len(p)]
        found = differing(concat(self.layout, parts), self.layout.heeded) if parts else None
        return self._forgetting(own_table, others_table, moved), found

    def _of_own(self, owns: Changes, known: Table, others: Table, moved: Moved) -> Changes:
        """Rows that ask, and changed themselves."""
        usable = self._usable(owns.fixed)
        wanted = [owns.fixed[a] for a in self.asking.values()]
        new = self._rows(owns.fixed, owns.new, self._found(others, wanted, usable, len(owns)), usable, moved.after)
        if owns.old is None:
            return Changes(new[0], None, new[1])
        old = self._rows(owns.fixed, owns.old, self._found(known, wanted, usable, len(owns)), usable, moved.before)
        return Changes(new[0], old[1], new[1])

    def _of_others(self, rest: Table, others: Changes, moved: Moved) -> list[Changes]:
        """Rows that did not change, but what they ask for did."""
        key = [others.fixed[b] for b in self.asking]
        if self.index:
            who, found = rest.match(self.index, key, ordered=False)
        else:
            found = rest.scan()
            who = np.zeros(len(found), np.int64)
        if not len(who):
            return []
        rows = self.own.rows(found)
        some = others.take(who)
        before = Rows(some.fixed, some.old) if some.old is not None else self._unheard(rows)
        new = self._rows(rows.fixed, rows.version, Rows(some.fixed, some.new), None, moved.after)
        old = self._rows(rows.fixed, rows.version, before, None, moved.before)
        return [Changes(new[0], old[1], new[1])]

    def _of_horizons(self, rest: Table, table: Table, others: Changes | None, moved: Moved) -> list[Changes]:
        """Rows that did not change, and ask for one nobody has heard of; but the horizons say more about it."""
        found = self._woken(rest, moved)
        if not len(found):
            return []
        wanted = [found[c] for c in self.index]
        there = find(table, wanted, len(found)).run_of >= 0
        if others is not None:
            # Those have been told already, even if nothing is left of what was heard of.
            again, _ = meeting(wanted, [others.fixed[b] for b in self.asking], len(found), len(others))
            there[again] = True
        if there.any():
            found = found.take(places_of(~there))
        if not len(found):
            return []
        rows = self.own.rows(found)
        other = self._unheard(rows)
        new = self._rows(rows.fixed, rows.version, other, None, moved.after)
        old = self._rows(rows.fixed, rows.version, other, None, moved.before)
        return [Changes(new[0], old[1], new[1])]

    def _woken(self, rest: Table, moved: Moved) -> Gathered:
        parts: list[Gathered] = []
        for ends in self.wakes:
            found = ends.now(rest, moved)
            if parts and len(found):
                both = together(rest, [*parts, found])
                _, first = np.unique((both.run_of << 40) | both.place, return_index=True)
                found, parts = both.take(first), []
            parts.append(found)
        return together(rest, parts) if parts else nothing(rest)

    # ── rows put together ───────────────────────────────────────────────────────────────────────────────────────────

    def _rows(
        self, fixed: Mapping[str, Values], version: Version, other: Rows, usable: Bools | None, horizons: Horizons
    ) -> tuple[Mapping[str, Values], Version]:
        """Asking rows with what they ask for, which has no mask where it is unheard of; `usable` as `_usable` says."""
        heard = masks.heard(other.version.mask)
        wanted = {b: fixed[a] for b, a in self.asking.items()}
        if self.total:
            other = with_defaults(self.other, other, wanted, usable, horizons)
        present = masks.heard(other.version.mask)
        own = Rows(fixed, version)
        match = self._match(own, other, present)
        mask, steps = version.mask, version.steps + other.version.steps
        if match is not None:
            steps = np.where(match == masks.F, version.steps, steps)
        if not self.preserved and match is not None:
            mask = masks.all_of(mask, match)
            mask[(match == masks.F) | (version.mask == masks.ABSENT)] = masks.ABSENT
        columns: Mapping[str, Column] = other.version.columns
        if self.nullable:
            columns = self._maybe(own, other, heard, match, usable, horizons)
        drawn = Drawn({c: version.columns if self.drawn[c] is self.own else columns for c in self.layout.evolving})
        return self._fixed(fixed, other.fixed, usable), Version(drawn, mask, steps)

    def _fixed(
        self, own: Mapping[str, Values], other: Mapping[str, Values], usable: Bools | None
    ) -> Mapping[str, Values]:
        """The other side's key is what is asked for."""
        sources: dict[str, Mapping[str, Values]] = {}
        for name in self.layout.fixed:
            if self.drawn[name] is self.own:
                sources[name] = own
            elif name in self.asking:
                column = own[self.asking[name]]
                sources[name] = {name: column if usable is None else Values(column.data, column.there() & usable)}
            else:
                sources[name] = other
        return Drawn(sources)

    def _match(self, own: Rows, other: Rows, present: Bools) -> Codes | None:
        """Whether they match, as far as it is not settled by what is asked for: None if all do."""
        if not self.extra and self.sides.when is None:
            return None if present.all() else np.where(present, np.uint8(masks.T), np.uint8(masks.F))
        at = places_of(present & masks.heard(own.version.mask))
        own, other = own.take(at), other.take(at)
        equal = np.ones(len(at), bool)
        for a, b in self.extra:
            mine, theirs = own.fixed[a], other.fixed[b]
            equal &= mine.same(theirs) & mine.there()
        left, right = (own, other) if self.own is self.sides.left else (other, own)
        codes = self.sides.holds(left, right)
        found = masks.full(masks.F, len(present))
        found[at] = np.where(equal, np.uint8(masks.T) if codes is None else codes, np.uint8(masks.F))
        return found

    def _maybe(
        self, own: Rows, other: Rows, heard: Bools, match: Codes | None, usable: Bools | None, horizons: Horizons
    ) -> MaybeColumns:
        count = len(own)
        there = masks.full(masks.T, count) if match is None else match
        if not self.total:
            there = np.where(heard, masks.all_of(other.version.mask, there), np.uint8(masks.F))
        state = states_of(there)
        if not self.total:
            open_ = ~heard & ~self.own.ends.reached(own.fixed, count, horizons)
            state[open_ if usable is None else open_ & usable] = TO_COME
        if usable is not None:
            state[~usable] = NOTHING
        asked = dict(zip(self.other.on, (own.fixed[a] for a in self.own.on), strict=True))
        shown = masks.shown(there)
        bottoms = self.other.source.bottoms
        return MaybeColumns(Maybe(self.kinds, bottoms, state, shown, other.fixed, other.version.columns, asked))

    # ── what is remembered ──────────────────────────────────────────────────────────────────────────────────────────

    def _usable(self, fixed: Mapping[str, Values]) -> Bools | None:
        """Rows that ask neither for NULL nor for two values of one column; None if all are such."""
        found: Bools | None = None
        for valid in (fixed[a].valid for a in self.own.on):
            if valid is not None:
                found = valid if found is None else found & valid
        for a, b in self.sides.twice(self.own):
            same = fixed[a].same(fixed[b])
            found = same if found is None else found & same
        return found

    def _found(self, table: Table, wanted: Sequence[Values], usable: Bools | None, count: int) -> Rows:
        found = find(table, wanted, count)
        if usable is not None:
            found = Gathered(table, np.where(usable, found.run_of, -1), found.place)
        return self.other.rows(found)

    def _unheard(self, rows: Rows) -> Rows:
        """As many rows of the other side as these, of which nobody has heard."""
        none = np.full(len(rows), -1)
        return self.other.rows(Gathered(Table(self.shapes[self.other.which]), none, none))

    def _asking(self, table: Table, owns: Changes | None, moved: Moved) -> tuple[Table, Table]:
        """The remembered rows that do not change, and all of them. A row that is hidden for good is not worth another
        word, one that asks for NULL asks in vain, and what another asks for may be all there ever will be."""
        if owns is None:
            return table, table
        new, count = owns.new, len(owns)
        keep = masks.live(new.mask) & ~self.own.ends.reached(owns.fixed, count, moved.after)
        usable = self._usable(owns.fixed)
        if usable is not None:
            keep &= usable
        if owns.old is None and not keep.all():
            at = places_of(keep)
            if not len(at):
                return table, table
            owns, keep, count = owns.take(at), keep[at], len(at)
        rows = self.own.flat(owns.fixed, owns.new)
        for ends in self.wakes:
            rows |= ends.ticks(owns.fixed, count)
        return table.parted(rows, None if keep.all() else ~keep, None, self.own.had(table, owns))

    def _answering(self, table: Table, others: Changes | None) -> Table:
        if others is None:
            return table
        mask = others.new.mask
        keep = masks.heard(mask) if self.other.layout.heeded else masks.live(mask)
        rows = self.other.flat(others.fixed, others.new) | self.done.ticks(others.fixed, len(others))
        return table.updated(rows, None if keep.all() else ~keep, self.other.had(table, others))

    def _forgetting(self, own: Table, other: Table, moved: Moved) -> State:
        own_name, other_name = self.own.which, self.other.which
        if self.own.ends.all_over(moved.after) and self.done.all_over(moved.after):
            return {name: Table(shape) for name, shape in self.shapes.items()}
        if moved.at_all:
            own = own.without(self.own.ends.now(own, moved))
            ended = self.done.now(other, moved)
            if len(ended):
                # Who asks for what is final is final as well, and would take it for unheard of.
                asked = [ended[stored(b)] for b in self.asking]
                own = own.without(own.match(self.index, asked)[1] if self.index else own.scan())
                other = other.without(ended)
        return {own_name: own, other_name: other}


def find(table: Table, key: Sequence[Values], count: int) -> Gathered:
    """The row of each of so many keys; a table without a key has but one."""
    found = table.find(key)[1]
    return found if key else found.take(np.zeros(count, np.int64))


def closed(side: Side) -> dict[str, Seal]:
    """In the terms of a side's rows: when it is sealed itself, and every row that can meet it."""
    own = side.source.type.seals
    columns = set(side.fixed)
    seals = {s: seal if {c for c, _ in seal.at} <= {*columns, ""} else Seal.NEVER for s, seal in own.items()}
    for stream, seal in side.meetings.by_stream.items():
        seals[stream] = seals[stream].latest(seal) if stream in seals else seal
    return seals
