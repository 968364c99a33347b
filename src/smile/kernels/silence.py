"""Silence after each row: false for good once a row that stays breaks it, true for good once the horizon is past it.

A row is open until that is decided. Rows that stay may break one yet to come as long as they lie above the horizon,
which is the least of those of the streams that rows come from: no row comes at or below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import BOOL, TIME
from smile.columns import masks, values as v
from smile.columns.knowledge import Column, Masks
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Values
from smile.kernels.changes import Changes, Groups, Version, concat, differing
from smile.kernels.kept import GROUP, Closing, in_groups, least, marks_of, plain
from smile.kernels.layout import Evolving, Layout
from smile.kernels.seals import Moved, later
from smile.kernels.stored import MASK, columns_of, fixed_of, flat, stored, version_of
from smile.kernels.transform import Input, Output, State, Transform
from smile.state.run import Shape
from smile.state.table import Table

OPEN, DECIDED = "open", "decided"
UNTIL = "until"

_QUIET: Final = 1
_BROKEN: Final = 2
_UNDECIDED: Final = 3
"""What is possible of a silence, as `Masks` has it: true, false, either. One that is undecided is false for now."""


class Silence(Transform):
    """`open` has the rows whose silence is not decided, and those that may break that of rows to come. `decided` has
    what became of others, where a row may change in other columns afterwards."""

    def __init__(self, rel: mmpl.Silence, source: Input, output: Output) -> None:
        own = source.layout
        self.name, self.tick, self.per, self.span = rel.name, rel.tick, rel.per, rel.longer_than
        self.streams = tuple(source.type.seals)
        self.source = own
        evolving = {**own.evolving, rel.name: Evolving("mask", BOOL)}
        self.layout = Layout(own.key, own.fixed, evolving, own.certain, output.heeded)
        key = (stored(rel.tick),)
        columns = {**columns_of(self.layout), GROUP: pa.int64(), UNTIL: pa.int64()}
        columns |= {_per(n): arrow_type(source.type.heading.columns[c]) for n, c in enumerate(rel.per)}
        self.shapes = {OPEN: Shape(key, columns, indexes=((GROUP,),), orders=(UNTIL,))}
        self.closing = Closing(source.type.seals, source.type.heading.columns)
        self.fixed_per = tuple(c for c in rel.per if c in own.fixed)
        if not own.is_history:
            # Rows are read by what is fixed of their group, so that has to be here too.
            routed = {stored(c): arrow_type(own.fixed[c]) for c in self.fixed_per}
            known = {**routed, key[0]: arrow_type(TIME), self.name: pa.uint8(), **self.closing.columns}
            self.shapes[DECIDED] = Shape(key, known, orders=self.closing.orders)

    def is_woken(self, moved: Moved) -> bool:
        return least(moved.after, self.streams) > least(moved.before, self.streams) or (
            DECIDED in self.shapes and self.closing.wakes(moved)
        )

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        tables = dict(state)
        before, after = least(moved.before, self.streams), least(moved.after, self.streams)
        parts = []
        if inputs[0] is not None:
            parts += self._heard(tables, inputs[0], moved, after)
        if after > before:
            parts += self._passed(tables, before, after, moved)
        if DECIDED in self.shapes and self.closing.wakes(moved):
            spent = self.closing.woken(tables[DECIDED], moved)
            tables[DECIDED] = tables[DECIDED].updated(spent, np.ones(len(spent), bool))
        return tables, differing(concat(self.layout, parts), self.layout.heeded) if parts else None

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, tables: dict[str, Table], changes: Changes, moved: Moved, horizon: int) -> list[Changes]:
        """Changed rows beside the open ones of their groups."""
        count = len(changes)
        per = [plain(c, changes.fixed, changes.new.columns) for c in self.per]
        marks = marks_of(per, count)
        others = in_groups(tables[OPEN], marks.data)
        ticks = changes.fixed[self.tick].data
        quiet = masks.full(_UNDECIDED, count)
        if changes.old is not None:
            quiet = self._known(tables, changes.fixed[self.tick], changes.old.mask)
            others = others.take(np.flatnonzero(~np.isin(others[stored(self.tick)].data, ticks)))
        size = len(others)
        rows = _Rows(
            [v.concat([others[_per(n)], column]) for n, column in enumerate(per)],
            np.concatenate([others[GROUP].data, marks.data]).view(np.uint64),
            np.concatenate([others[stored(self.tick)].data, ticks]),
            np.concatenate([others[MASK].data, changes.new.mask]) == masks.T,
            np.concatenate([others[self._possible].data, quiet]),
        )
        found = rows.decided(self.span, horizon)
        altered = np.flatnonzero(found[:size] != rows.quiet[:size])
        parts = []
        if len(altered):
            others = others.take(altered)
            was = version_of(self.layout, others)
            parts.append(Changes(fixed_of(self.layout, others), was, self._with(was, found[altered])))
            more = {name: others[name] for name in (GROUP, UNTIL, *map(_per, range(len(per))))}
            self._keep(tables, parts[0], more, moved, horizon)
        old = None if changes.old is None else self._with(changes.old, quiet)
        parts.append(Changes(changes.fixed, old, self._with(changes.new, found[size:])))
        more = {GROUP: marks, UNTIL: Values(later(ticks, self.span)), **{_per(n): c for n, c in enumerate(per)}}
        self._keep(tables, parts[-1], more, moved, horizon)
        return parts

    def _known(self, tables: dict[str, Table], ticks: Values, heard: Codes) -> Array:
        """What was known of the silence after rows, some of which have been heard of."""
        found, rows = tables[OPEN].find([ticks])
        quiet = np.where(found, rows[self._possible].data, np.uint8(_UNDECIDED))
        if DECIDED in tables and (masks.live(heard) & ~found).any():
            found, rows = tables[DECIDED].find([ticks])
            quiet = np.where(found, rows[self.name].data, quiet)
        return quiet

    def _keep(
        self, tables: dict[str, Table], part: Changes, more: Mapping[str, Values], moved: Moved, horizon: int
    ) -> None:
        """The rows that are still open, or may break rows to come."""
        new = part.new
        quiet = new.columns[self.name]
        assert isinstance(quiet, Masks)
        live, undecided = masks.live(new.mask), quiet.possible == _UNDECIDED
        kept = live & (undecided | (part.fixed[self.tick].data > horizon))
        stale = np.flatnonzero(kept | masks.live(part.old_mask()))
        if len(stale):
            rows = {**flat(self.layout, part.fixed, new), **more}
            taken = {name: column.take(stale) for name, column in rows.items()}
            tables[OPEN] = tables[OPEN].updated(taken, ~kept[stale])
        if DECIDED in tables:
            self._decide(tables, part.fixed, new, ~undecided, moved)

    def _passed(self, tables: dict[str, Table], before: int, after: int, moved: Moved) -> list[Changes]:
        """The rows after which it was silent as long as was asked for, and others that break nothing any more."""
        passed = tables[OPEN].between(UNTIL, before, after)
        if not len(passed):
            return []
        tables[OPEN] = tables[OPEN].updated(passed, np.ones(len(passed), bool))
        passed = passed.take(np.flatnonzero(passed[self._possible].data == _UNDECIDED))
        old = version_of(self.layout, passed)
        part = Changes(fixed_of(self.layout, passed), old, self._with(old, masks.full(_QUIET, len(passed))))
        if DECIDED in tables:
            self._decide(tables, part.fixed, part.new, np.ones(len(passed), bool), moved)
        return [part]

    def _decide(
        self, tables: dict[str, Table], fixed: Mapping[str, Values], new: Version, decided: Bools, moved: Moved
    ) -> None:
        """Remembered until nothing of the row can change any more."""
        columns = {c: plain(c, fixed, new.columns) for c in self.closing.needed}
        live = masks.live(new.mask) & ~self.closing.reached(moved.after, columns, len(new))
        quiet = new.columns[self.name]
        assert isinstance(quiet, Masks)
        rows = {stored(c): fixed[c] for c in (*self.fixed_per, self.tick)} | {self.name: Values(quiet.possible)}
        rows |= self.closing.ticks(columns, len(new))
        at = np.flatnonzero(decided)
        tables[DECIDED] = tables[DECIDED].updated({n: column.take(at) for n, column in rows.items()}, ~live[at])

    @property
    def _possible(self) -> str:
        return f"{stored(self.name)}.possible"

    def _with(self, version: Version, quiet: Array) -> Version:
        """Rows with what is known of the silence after them."""
        now = np.where(quiet == _QUIET, np.uint8(1), np.uint8(2))
        columns: dict[str, Column] = {c: version.columns[c] for c in self.source.evolving}
        return Version({**columns, self.name: Masks(quiet.astype(np.uint8), now)}, version.mask, version.steps)


@dataclass(frozen=True)
class _Rows:
    """Rows of some groups; `stays` are those that break silences."""

    per: Sequence[Values]
    marks: Array
    tick: Array
    stays: Bools
    quiet: Array

    def decided(self, span: int, horizon: int) -> Array:
        """What is known of each silence: the next row that stays decides, since no two have one tick."""
        count = len(self.tick)
        group = Groups(self.per, count, self.marks).of
        order = np.lexsort((self.tick, group))
        places = np.where(self.stays[order], np.arange(count), count)
        following = np.append(np.minimum.accumulate(places[::-1])[::-1][1:], count)
        # Beyond the last row stands one of no group.
        ranked, tick = np.append(group[order], -1), np.append(self.tick[order], 0)
        until = later(self.tick, span)
        broken = np.empty(count, bool)
        broken[order] = (ranked[following] == ranked[:-1]) & (tick[following] <= until[order])
        found = np.where(broken, _BROKEN, np.where(until <= horizon, _QUIET, _UNDECIDED)).astype(np.uint8)
        return np.where(self.quiet == _UNDECIDED, found, self.quiet)


def _per(number: int) -> str:
    return f"per {number}"
