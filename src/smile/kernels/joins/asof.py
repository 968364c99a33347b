"""Left rows, each with the latest right row that is equated and not after it; provisional while one nearer may come.

A left row is remembered with what was told of it until nothing of it can change. Of right rows with equal values the
latest that no left row to come is before is remembered, and those after it. Where the right side is a history, the
match is found by order; else every row that may match is tried, and where what is equated evolves, all rows are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import TICKS_PER_MICROSECOND, TIMESTAMP
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import Column
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.changes import Changes, Groups, Version, concat, differing
from smile.kernels.joins import kleene
from smile.kernels.joins.ends import nothing
from smile.kernels.joins.latest import Chosen, Columns, column_of_latest, kind_of_latest
from smile.kernels.joins.matches import gather
from smile.kernels.joins.paired import at_odds, column_of, crossed
from smile.kernels.joins.presence import without
from smile.kernels.joins.sides import Rows, Sides
from smile.kernels.layout import Evolving, Layout
from smile.kernels.seals import Horizons, Moved
from smile.kernels.stored import StoredColumns, columns_of, flat, stored
from smile.kernels.transform import Input, Output, State, Transform
from smile.log.frame import END
from smile.state.gathered import Gathered
from smile.state.run import Shape
from smile.state.table import Table

LEFT, RIGHT = "left", "right"
TOLD, ADDED = "told match", "told steps"
"""Columns beside a left row: the mask of its having a match, and the steps of its matches."""


@dataclass(frozen=True)
class Found:
    """Of left rows as they are now: the columns of the match, whether there is one, and its steps."""

    columns: dict[str, Column]
    there: masks.Codes
    steps: Array


class AsOf(Transform):
    def __init__(self, rel: mmpl.Asof, left: Input, right: Input, output: Output) -> None:
        upto = mmpl.Call("<=", (mmpl.Column(rel.at[1]), mmpl.Column(rel.at[0])))
        self.rel, self.output = rel, output
        self.sides = Sides(mmpl.Join("left", rel.left, rel.right, rel.on, upto), left, right, output)
        self.left, self.right = self.sides.left, self.sides.right
        self.tick = right.type.heading.tick
        own, columns = left.layout, output.type.columns
        self.taken = {
            c: Evolving(kind_of_latest(columns[c]), columns[c].data) for c in columns if c not in left.type.columns
        }
        self.layout = Layout(
            own.key, own.fixed, {**own.evolving, **self.taken}, own.certain and rel.kind == "left", output.heeded
        )
        self.stored = Layout((), {}, self.taken)
        self.is_found_by_order = (
            right.layout.certain and not self.right.layout.evolving
            and not self.sides.moving and rel.at[0] in own.fixed
        )  # fmt: skip
        index = () if self.sides.moving or not rel.on else (self.left.index,)
        shape = self.left.shape
        told = {**columns_of(self.stored), **shape.columns, TOLD: pa.uint8(), ADDED: pa.int64()}
        shape_right = self.right.shape
        self.moment = stored(rel.at[1])
        rights = Shape(shape_right.key, shape_right.columns, shape_right.indexes, (self.moment,))
        self.shapes = {LEFT: Shape(shape.key, told, index, shape.orders), RIGHT: rights}
        self.origins = self.sides.origins
        self.distances = self._distances(left)

    def _distances(self, left: Input) -> dict[str, int] | None:
        """By stream, how long after its moment a left row may still come; None if at any time."""
        name = self.rel.at[0]
        if name not in self.left.fixed:
            return None
        found = {}
        for stream, seal in left.type.seals.items():
            terms = dict(left.type.ties.express(seal, [name]).at)
            if set(terms) != {name}:
                return None
            found[stream] = terms[name]
        return found

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def is_woken(self, moved: Moved) -> bool:
        past = self.distances is not None and self._past(moved.before) < self._past(moved.after)
        return past or self.left.ends.wakes(moved)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        lefts, rights = inputs
        table, others = state[LEFT], self._remembering_right(state[RIGHT], rights)
        touched = nothing(table) if rights is None else self._touched(table, rights)
        rest = gather(table, [touched, *([self.left.met_now(table, moved)] if moved.at_all else [])])
        parts, dropped, after = [], [], table
        if lefts is not None:
            lefts, found = self._remembered(table, lefts)
            rest = without(rest, found)
            if len(lefts):
                part, after, gone = self._told(after, lefts, found, others, moved)
                parts.append(part)
                dropped.append(gone)
        if len(rest):
            rows = self.left.rows(rest)
            same = Changes(rows.fixed, rows.version, rows.version)
            part, after, gone = self._told(after, same, rest, others, moved)
            parts.append(part)
            dropped.append(gone)
        if all(h >= END for h in moved.after.values()):
            tables = {name: Table(shape) for name, shape in self.shapes.items()}
        else:
            left_out = gather(table, [d for d in dropped if d is not None])
            tables = {LEFT: after, RIGHT: self._forgetting(others, after, rights, left_out, moved)}
        if not parts:
            return tables, None
        told = differing(concat(self.layout, parts), self.layout.heeded)
        return tables, told if len(told) else None

    def _remembered(self, table: Table, lefts: Changes) -> tuple[Changes, Gathered | None]:
        """Changes of left rows that are new or remembered; of others all has been told."""
        if lefts.old is None:
            return lefts, None
        there, found = table.find([lefts.fixed[c] for c in self.left.key])
        at = np.flatnonzero(there | ~masks.heard(lefts.old.mask))
        return (lefts, found) if len(at) == len(lefts) else (lefts.take(at), found.take(at))

    def _touched(self, table: Table, rights: Changes) -> Gathered:
        """Remembered left rows that a change of right rows may concern."""
        if self.sides.moving or not table.runs:
            return table.scan()
        moments = rights.fixed[self.rel.at[1]].data
        asked = [rights.fixed[c] for c in self.right.on]
        groups = Groups(asked, len(rights))
        earliest = np.minimum.reduceat(moments[groups.order], groups.starts)
        who, found = self.left.found(table, [c.take(groups.first) for c in asked], groups.count)
        if self.rel.at[0] not in self.left.layout.fixed:
            return found
        own = found[stored(self.rel.at[0])]
        return found.take(np.flatnonzero(own.there() & (own.data >= earliest[who])))

    def _told(
        self, table: Table, lefts: Changes, found: Gathered | None, others: Table, moved: Moved
    ) -> tuple[Changes, Table, Gathered | None]:
        """What is told of left rows, and the table that remembers it; with those that it remembers no more."""
        rows = Rows(lefts.fixed, lefts.new)
        match = self._match(rows, others, moved.after)
        new = self._version(lefts.new, match.columns, match.there, match.steps)
        old = None
        if lefts.old is not None and found is not None:
            there = found[TOLD]
            codes = there.data if there.valid is None else np.where(there.valid, there.data, 0).astype(np.uint8)
            old = self._version(lefts.old, StoredColumns(self.stored, found), codes, found[ADDED].data)
        settled = new.mask == masks.T
        for name in self.layout.evolving:
            settled = settled & k.finals(new.columns[name])
        keep = masks.live(new.mask) & ~settled
        known = np.zeros(len(rows), bool) if found is None else found.run_of >= 0
        gone = None if found is None else found.take(np.flatnonzero(known & ~keep))
        changes = Changes(lefts.fixed, old, new)
        at = np.flatnonzero(keep | known)
        if len(at):
            taken = {c: match.columns[c].take(at) for c in self.taken}
            version = lefts.new.take(at)
            kept = {
                **flat(self.stored, {}, Version(taken, version.mask, version.steps)),
                **self.left.flat(rows.take(at).fixed, version),
                TOLD: Values(match.there[at]),
                ADDED: Values(match.steps[at]),
            }
            table = table.updated(kept, None if keep[at].all() else ~keep[at])
        return changes, table, gone

    def _version(self, version: Version, taken: Columns, there: masks.Codes, steps: Array) -> Version:
        columns: dict[str, Column] = {
            c: taken[c] if c in self.taken else version.columns[c] for c in self.layout.evolving
        }
        mask = version.mask
        if self.rel.kind == "inner":
            mask = np.where(masks.heard(mask), masks.all_of(mask, there), np.uint8(masks.ABSENT))
        return Version(columns, mask, version.steps + steps)

    # ── finding the match ───────────────────────────────────────────────────────────────────────────────────────────

    def _match(self, rows: Rows, others: Table, horizons: Horizons) -> Found:
        more = self._may_come(rows, horizons)
        chosen, found, there, steps = (self._by_order if self.is_found_by_order else self._by_trying)(rows, others)
        there = np.where(more, masks.any_of(there, masks.full(masks.HIDDEN, len(rows))), there)
        columns: dict[str, Column] = {}
        for name, evolving in self.taken.items():
            one = chosen[name] if name in chosen else chosen[""]
            bottom = self.output.bottoms[name]
            columns[name] = column_of_latest(one, column_of(found, name), ~more, evolving, bottom)
        return Found(columns, there, steps)

    def _may_come(self, rows: Rows, horizons: Horizons) -> Bools:
        """Whether a right row nobody has heard of may still come to match."""
        open_: Bools = ~self.left.is_met(rows.fixed, len(rows), horizons)
        for name in (*self.left.on, self.rel.at[0]):
            column = column_of(rows, name)
            open_ &= ~(k.finals(column) & k.now_of(column).nulls())
        return open_ & ~at_odds(rows, self.sides.twice(self.left))

    def _ticks(self, found: Rows) -> tuple[Array, Array, list[Array]]:
        """Of right rows the tick, the source, and what else orders rows of one tick: the smaller key comes later."""
        tick = found.fixed[self.tick[0]].data
        source = found.fixed[self.tick[1]].data if len(self.tick) > 1 else np.zeros(len(found), np.int64)
        rest = [-v.ranks(found.fixed[c]) for c in self.right.key if c not in self.tick]
        return tick, source, rest

    def _by_order(self, rows: Rows, others: Table) -> tuple[dict[str, Chosen], Rows, masks.Codes, Array]:
        """The right side is a history: the match is the last row of those before, and it is settled."""
        count = len(rows)
        asked = self.left.asked(rows.fixed)
        groups = Groups(asked, count)
        of_right, gathered = self.right.found(others, [c.take(groups.first) for c in asked], groups.count)
        found = self.right.rows(gathered)
        tick, source, rest = self._ticks(found)
        moment = rows.fixed[self.rel.at[0]]
        is_left = np.repeat([False, True], [len(found), count])
        none = np.zeros(count, np.int64)
        order = np.lexsort(
            (
                *(np.concatenate([r, none]) for r in reversed(rest)),
                np.concatenate([source, none]),
                is_left,
                np.concatenate([tick, moment.data]),
                np.concatenate([of_right, groups.of]),
            )
        )
        # The last right row before each, which is one of its own unless there is none.
        before = np.maximum.accumulate(np.where(is_left[order], -1, np.arange(len(order))))
        last = np.full(len(order), -1)
        last[order] = np.where(before >= 0, order[np.maximum(before, 0)], -1)
        last = last[len(found) :]
        if len(found):
            there = (last >= 0) & moment.there() & (of_right[np.maximum(last, 0)] == groups.of)
        else:
            there = np.zeros(count, bool)
        last = np.where(there, last, -1)
        chosen = Chosen(last, last, last, tick, source)
        steps = np.where(there, found.version.steps[np.maximum(last, 0)] if len(found) else 0, 0)
        return {"": chosen}, found, np.where(there, np.uint8(masks.T), np.uint8(masks.F)), steps

    def _by_trying(self, rows: Rows, others: Table) -> tuple[dict[str, Chosen], Rows, masks.Codes, Array]:
        """Every pair has a mask; of each left row's the last that is shown counts, and the last that is settled."""
        count = len(rows)
        if self.sides.moving:
            who, gathered = crossed(np.arange(count), others.scan())
        else:
            who, gathered = self.right.found(others, self.left.asked(rows.fixed), count)
        found, own = self.right.rows(gathered), rows.take(who)
        types = self.left.source.layout.types
        before = kleene.compared(
            "<=", column_of(found, self.rel.at[1]), column_of(own, self.rel.at[0]), types[self.rel.at[0]]
        )
        if self.sides.moving:
            for a, b in self.rel.on:
                before = kleene.both(before, kleene.compared("=", column_of(own, a), column_of(found, b), types[a]))
        match = kleene.filtered(before)
        odd = at_odds(own, self.sides.twice(self.left)) | at_odds(found, self.sides.twice(self.right))
        match = np.where(odd, np.uint8(masks.F), match)
        codes = masks.all_of(found.version.mask, match)
        tick, source, rest = self._ticks(found)
        order = np.lexsort((*reversed(rest), source, tick, who))
        ranked = who[order]
        present, shown, stays = masks.live(codes)[order], masks.shown(codes)[order], masks.stays(codes)[order]
        last_shown, last_present = _last(ranked, order, shown, count), _last(ranked, order, present, count)
        chosen = {}
        for name in self.taken:
            settled = stays & k.finals(column_of(found, name))[order]
            chosen[name] = Chosen(last_shown, _last(ranked, order, settled, count), last_present, tick, source)
        counts = np.zeros((count, kleene.PLAIN), np.int64)
        np.add.at(counts, who, kleene.counted(codes))
        steps = np.zeros(count, np.int64)
        np.add.at(steps, who, np.where(masks.live(match), found.version.steps, 0))
        there = kleene.filtered(kleene.any_of(counts, np.zeros(count, bool)))
        return chosen, found, there, steps

    # ── remembering right rows ──────────────────────────────────────────────────────────────────────────────────────

    def _remembering_right(self, table: Table, rights: Changes | None) -> Table:
        return self.right.updated(table, rights)

    def _forgetting(
        self, others: Table, lefts: Table, rights: Changes | None, dropped: Gathered, moved: Moved
    ) -> Table:
        """Without right rows that a later one, which is settled, hides from all left rows there are and may come."""
        if self.distances is None or self.sides.moving:
            return others
        before, after = self._past(moved.before), self._past(moved.after)
        parts = [others.between(self.moment, before, after)] if before < after else []
        asked = [[p[stored(c)] for c in self.right.on] for p in parts if len(p)]
        if rights is not None:
            # What comes late may be past already.
            late = np.flatnonzero(rights.fixed[self.rel.at[1]].data <= before)
            asked += [[rights.fixed[c].take(late) for c in self.right.on]] if len(late) else []
        if len(dropped):
            asked.append([dropped[stored(c)] for c in self.left.on])
        if not asked:
            return others
        key = [v.concat(list(columns)) for columns in zip(*asked, strict=True)] if self.right.on else []
        groups = Groups(key, len(key[0]) if key else 1)
        key = [c.take(groups.first) for c in key]
        bound = np.full(groups.count, after)
        if lefts.runs:
            who, waiting = self.left.found(lefts, key, groups.count)
            moments = waiting[stored(self.rel.at[0])]
            np.minimum.at(bound, who, np.where(moments.there(), moments.data, after))
        who, found = self.right.found(others, key, groups.count)
        rows = self.right.rows(found)
        tick, source, rest = self._ticks(rows)
        order = np.lexsort((*reversed(rest), source, tick, who))
        hides = (rows.version.mask == masks.T) & (tick <= bound[who])
        for name in self.right.layout.evolving:
            hides &= k.finals(rows.version.columns[name])
        last = _last(who[order], np.arange(len(order)), hides[order], groups.count)
        old = order[np.arange(len(order)) < last[who[order]]]
        return self.right.forgetting(others, found.take(old))

    def _past(self, horizons: Horizons) -> int:
        """The moment up to which no left row can come any more, in the unit that moments have."""
        assert self.distances is not None
        ends = [END if horizons[s] >= END else horizons[s] - d for s, d in self.distances.items()]
        unit = TICKS_PER_MICROSECOND if self.left.source.layout.fixed[self.rel.at[0]] == TIMESTAMP else 1
        return min(ends) // unit


def _last(groups: Indices, numbers: Array, chosen: Bools, count: int) -> Indices:
    """Of each group the number of its last row that is chosen, -1 if there is none; rows stand group by group."""
    found = np.full(count, -1)
    at = np.flatnonzero(chosen)
    # Of several assignments to one place the last one holds.
    found[groups[at]] = numbers[at]
    return found
