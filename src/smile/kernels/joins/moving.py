"""Joins on columns that evolve: every pair of rows may match, each under a mask of its own.

A slow path, row by row: a row that changed is tried against all rows of the other side, and a row whose match may have
changed is computed anew against all of them. So a frame's work is in proportion to the rows that it touches times those
remembered; and a row that is preserved, or has but one match, is remembered until it is hidden for good.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra import mmpl, trees
from smile.columns import masks
from smile.columns.knowledge import now_of
from smile.columns.values import Bools, of_python
from smile.kernels.changes import Changes, Version, differing
from smile.kernels.joins.ends import Ends
from smile.kernels.joins.maybe import kinds_of
from smile.kernels.joins.points import Cells, Key, Row, column_of, rows_of
from smile.kernels.joins.sides import Rows, Side, Sides
from smile.kernels.layout import Evolving, Layout
from smile.kernels.refused import Refused
from smile.kernels.seals import Horizons, Moved, Seals
from smile.kernels.transform import Input, Output, State, Transform
from smile.knowledge.cells import as_operand, equal, null, one_of
from smile.knowledge.known import Known
from smile.knowledge.mask import UNHEARD, F, Mask, T, all_of, any_of, none_of
from smile.knowledge.transfer import know

Relation = dict[Key, Row]


@dataclass(frozen=True)
class Content:
    """All rows of both sides at one point; `open` are those for which rows of the other side may come."""

    rows: Mapping[str, Relation]
    open: Mapping[str, set[Key]]
    horizons: Horizons


class Moving(Transform):
    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        self.sides = sides = Sides(rel, left, right, output)
        self.rel, self.output = rel, output
        self.inputs = {"left": left, "right": right}
        self.own: Side | None = None
        """The side whose rows have but one match, and that is all they have."""
        if sides.right.whole and rel.kind in ("inner", "left"):
            self.own = sides.left
        elif sides.left.whole and rel.kind == "right":
            self.own = sides.right
        self.preserved = {"left": ("left",), "right": ("right",), "full": ("left", "right")}.get(rel.kind, ())
        self.twice = {str(side.which): sides.twice(side) for side in (sides.left, sides.right)}
        self.layout = self._layout()
        self.ends = {str(side.which): self._ends(side) for side in (sides.left, sides.right)}
        self.shapes = {"left": sides.left.shape, "right": sides.right.shape}
        self.origins = sides.origins
        self.bottoms = {**right.bottoms, **left.bottoms}
        self.types = {**right.layout.types, **left.layout.types}

    def _ends(self, side: Side) -> Ends:
        """When no row of the other side can come to match. A column may be known for good as soon as it is heard of,
        though it stands among those that evolve."""
        fixed = [c for c, t in side.source.type.columns.items() if not t.evolves and c in side.layout.types]
        seals = self.sides.other(side).source.type.seals
        expressed = {s: self.sides.ties.express(seal, fixed) for s, seal in seals.items()}
        return Ends(Seals(expressed, side.source.type.heading.columns), "ends")

    def _reached(self, side: Side, rows: Rows, horizons: Horizons) -> Bools:
        ends = self.ends[side.which]
        columns = rows.version.columns
        plain = {c: rows.fixed[c] if c in side.layout.fixed else now_of(columns[c]) for c in ends.named}
        return ends.reached(plain, len(rows), horizons)

    def _layout(self) -> Layout:
        key, heeded = self.output.type.heading.key, self.output.heeded
        if self.own is None and not self.preserved:
            return self.sides.layout(key, False, heeded)
        fixed, evolving = {}, dict[str, Evolving]()
        for name, drawn in self.sides.of.items():
            # What is equated under one name is the asking row's; else that of whichever row is there.
            both = [side for side in (drawn, self.sides.other(drawn)) if name in side.layout.types]
            if self.own is not None:
                both = [self.own] if self.own in both else both
            moves = next((side for side in both if name in side.layout.evolving), None)
            if name in key or (moves is None and (self.own is None or both == [self.own])):
                fixed[name] = drawn.layout.types[name]
            else:
                evolving[name] = kinds_of((moves or drawn).layout)[name]
        return Layout(key, fixed, evolving, False, heeded)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        tables, fresh = {}, dict[str, Rows]()
        touched: dict[str, set[Key]] = {}
        for side, changes in zip((self.sides.left, self.sides.right), inputs, strict=True):
            tables[str(side.which)] = side.updated(state[side.which], changes)
            touched[side.which] = set()
            if changes is not None:
                fresh[side.which] = Rows(changes.fixed, changes.new)
                touched[side.which] |= set(rows_of(side, fresh[side.which]))
                if changes.old is not None:
                    touched[side.which] |= set(rows_of(side, Rows(changes.fixed, changes.old)))
        # Rows that have just been hidden for good are remembered no more, but told of once.
        before, after = self._content(state, {}, moved.before), self._content(tables, fresh, moved.after)
        old, new = self._relation(before, after, touched), self._relation(after, before, touched)
        return tables, self._changes(old, new)

    def _content(self, state: State, fresh: Mapping[str, Rows], horizons: Horizons) -> Content:
        rows: dict[str, Relation] = {}
        open_: dict[str, set[Key]] = {}
        for side in (self.sides.left, self.sides.right):
            rows[side.which], open_[side.which] = {}, set()
            known = side.rows(state[side.which].scan())
            for part in (known, fresh[side.which]) if side.which in fresh else (known,):
                found = rows_of(side, part)
                reached = self._reached(side, part, horizons)[masks.heard(part.version.mask)]
                rows[side.which] |= found
                open_[side.which] |= {key for key, r in zip(found, reached.tolist(), strict=True) if not r}
        return Content(rows, open_, horizons)

    # ── what is told ────────────────────────────────────────────────────────────────────────────────────────────────

    def _relation(self, now: Content, then: Content, touched: Mapping[str, set[Key]]) -> Relation:
        """Rows that may differ between two contents, as they are in the one."""
        left, right = self.sides.left, self.sides.right
        if self.own is not None:
            keys = self._affected(self.own, now, then, touched)
            rows = now.rows[self.own.which]
            return dict(self._one(now, self.own, key, rows[key]) for key in keys if key in rows)
        result: Relation = {}
        for key, row in now.rows["left"].items():
            for other_key, other in now.rows["right"].items():
                if key in touched["left"] or other_key in touched["right"]:
                    there = (T if left.total else row.mask, T if right.total else other.mask)
                    self._add(result, row, other, all_of(*there, self._match(row, other, left)).filter())
        # Default rows may match otherwise than before whenever a row changes, or what is known of them does.
        for own, rows in ((left, now.rows["left"]), (right, now.rows["right"])):
            for row in rows.values():
                for other in self._default(now, row, own, self.sides.other(own)):
                    mask = self._match(row, other, own)
                    if mask.possible != {False}:
                        pair = (row, other) if own is left else (other, row)
                        self._add(result, *pair, all_of(T if own.total else row.mask, mask).filter())
        for side in (left, right):
            if side.which in self.preserved:
                rows = now.rows[side.which]
                for key in self._affected(side, now, then, touched):
                    if key in rows:
                        self._add_unmatched(now, side, key, rows[key], result)
        return result

    def _affected(self, own: Side, now: Content, then: Content, touched: Mapping[str, set[Key]]) -> set[Key]:
        """Rows that changed, or for which a row that changed may match, or none can come any more."""
        other = self.sides.other(own)
        found = set(touched[own.which]) | (now.open[own.which] ^ then.open[own.which])
        changed = [
            c.rows[other.which][k] for c in (now, then) for k in touched[other.which] if k in c.rows[other.which]
        ]
        for content in (now, then):
            for key, row in content.rows[own.which].items():
                if key not in found and any(self._match(row, c, own).possible != {False} for c in changed):
                    found.add(key)
        if other.total and now.horizons != then.horizons:
            found |= set(now.rows[own.which])
        return found

    def _add(self, result: Relation, left: Row, right: Row, mask: Mask) -> None:
        cells = self._cells(left.cells, right.cells)
        result[self._key(cells)] = Row(mask, cells, left.steps + right.steps)

    def _add_unmatched(self, content: Content, side: Side, key: Key, row: Row, result: Relation) -> None:
        other = self.sides.other(side)
        nulls = {c: row.cells.get(c, null(t)) for c, t in other.layout.types.items()}
        on_left = side is self.sides.left
        cells = self._cells(row.cells, nulls) if on_left else self._cells(nulls, row.cells)
        found = [mask for mask, _ in self._matches(content, row, side)]
        remembers = other.total or not other.source.type.forgets
        found += [UNHEARD] if self._may_come(content, side, key, row, remembers) else []
        mask = all_of(row.mask, none_of(any_of(found)).filter())
        own = self._key(cells)
        if own in result:
            raise Refused(self.rel, "a row of the outer join has NULL for a key, as rows without a match do")
        result[own] = Row(mask, cells, row.steps)

    def _one(self, content: Content, own: Side, key: Key, row: Row) -> tuple[Key, Row]:
        other = self.sides.other(own)
        found = list(self._matches(content, row, own))
        more = self._may_come(content, own, key, row)
        chosen = self._chosen(own, other, row, found, more)
        on_left = own is self.sides.left
        cells = self._cells(row.cells, chosen) if on_left else self._cells(chosen, row.cells)
        there = any_of([*(mask for mask, _ in found), *([UNHEARD] if more else [])]).filter()
        mask = row.mask if self.preserved else all_of(row.mask, there)
        return self._key(cells), Row(mask, cells, row.steps + sum(r.steps for _, r in found))

    def _chosen(self, own: Side, other: Side, row: Row, found: list[tuple[Mask, Row]], more: bool) -> dict[str, Known]:
        """The columns of the one match: of all rows that it may turn out to be, among them none and one to come."""
        shared = {c for c in row.cells if c in other.on and c in own.on}
        current = next((r.cells for mask, r in found if mask.shown), None)
        sure = next((r.cells for mask, r in found if mask.stays), None)
        chosen: dict[str, Known] = {}
        bottoms = other.source.bottoms
        kinds = other.source.type.columns
        asked = {b: a for a, b in zip(own.on, other.on, strict=True) if not kinds[b].evolves}
        for name, data in other.layout.types.items():
            if name in shared:
                chosen[name] = row.cells[name]
            elif sure is not None:
                chosen[name] = sure[name]
            else:
                cells = [r.cells[name] for mask, r in found if not mask.gone]
                if not self.preserved and not cells:
                    # Hidden columns keep their knowledge.
                    cells = [r.cells[name] for _, r in found]
                cells += [null(data)] if self.preserved or not cells else []
                cells += [row.cells[asked[name]] if name in asked else bottoms[name]] if more else []
                chosen[name] = one_of(cells, None if current is None else current[name].now, bottoms[name], data)
        return chosen

    # ── matches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _matches(self, content: Content, row: Row, own: Side) -> Iterator[tuple[Mask, Row]]:
        """Rows of the other side that match, or may, each with the mask of its being there and matching."""
        other = self.sides.other(own)
        rows = content.rows[other.which]
        for candidate in [*rows.values(), *self._default(content, row, own, other)]:
            mask = self._match(row, candidate, own)
            if mask.possible != {False}:
                yield all_of(T if other.total else candidate.mask, mask), candidate

    def _default(self, content: Content, row: Row, own: Side, other: Side) -> Iterator[Row]:
        if not other.total:
            return
        wanted = self._wanted(row, own, other)
        if None in wanted or wanted in content.rows[other.which]:
            return
        types = other.layout.types
        key = {c: of_python([value], types[c]) for c, value in zip(other.key, wanted, strict=True)}
        transform = other.source.transform
        assert transform is not None, "a stream is never total"
        found = transform.default(key, 1, content.horizons)
        yield from rows_of(other, Rows(found.fixed, found.new)).values()

    def _match(self, row: Row, candidate: Row, own: Side) -> Mask:
        left, right = (row, candidate) if own is self.sides.left else (candidate, row)
        if self._is_at_odds(left.cells, self.sides.left) or self._is_at_odds(right.cells, self.sides.right):
            return F
        equated = all_of(*(equal(left.cells[a], right.cells[b]) for a, b in self.rel.on)).filter()
        if self.rel.when is None or equated.possible == {False}:
            return equated
        cells = {**right.cells, **left.cells}
        columns = trees.columns_in(self.rel.when)
        operands = {c: as_operand(cells[c], self.bottoms[c], self.types[c]) for c in columns}
        when = know(self.rel.when, operands, self.types)
        assert isinstance(when, Mask)
        return all_of(equated, when.filter())

    def _is_at_odds(self, cells: Cells, side: Side) -> bool:
        """Whether a row asks one column for two values, which no row has."""
        twice = ((cells[a], cells[b]) for a, b in self.twice[side.which])
        return any(a.is_final and b.is_final and a.now != b.now for a, b in twice)

    def _wanted(self, row: Row, own: Side, other: Side) -> Key:
        source = {b: a for a, b in zip(own.on, other.on, strict=True)}
        return tuple(row.cells[source[c]].now for c in other.key)

    def _may_come(self, content: Content, own: Side, key: Key, row: Row, remembers: bool = True) -> bool:
        """Whether a row of the other side nobody has heard of may still come to match this one. `remembers`: that
        one has been heard of settles which it is."""
        other = self.sides.other(own)
        asked = [row.cells[a] for a in own.on]
        if any(c.is_final and c.now is None for c in asked):
            return False
        if self._is_at_odds(row.cells, own):
            return False
        settled = all(c.is_final for c in asked)
        if other.total and not settled:
            return True
        if remembers and other.whole and settled:
            wanted = self._wanted(row, own, other)
            if wanted in content.rows[other.which] or (other.total and None not in wanted):
                return False
        return key in content.open[own.which]

    # ── rows put together ───────────────────────────────────────────────────────────────────────────────────────────

    def _cells(self, left: Cells, right: Cells) -> dict[str, Known]:
        both = {**left, **right} if self.rel.kind == "right" else {**right, **left}
        for name in set(self.sides.right.key) & set(left) - set(self.sides.left.key):
            both[name] = right.get(name, left[name])
        return {c: both[c] for c in self.output.type.heading.columns}

    def _key(self, cells: Cells) -> Key:
        return tuple(cells[c].now for c in self.layout.key)

    def _changes(self, old: Relation, new: Relation) -> Changes | None:
        keys = list(dict.fromkeys([*old, *new]))
        if not keys:
            return None
        last = [new[k] if k in new else old[k] for k in keys]
        first = [old[k] if k in old else new[k] for k in keys]
        types = self.layout.types
        fixed = {c: of_python([r.cells[c].now for r in last], types[c]) for c in self.layout.fixed}
        changes = Changes(fixed, self._version(keys, first, old), self._version(keys, last, new))
        return differing(changes, self.layout.heeded)

    def _version(self, keys: list[Key], rows: list[Row], there: Relation) -> Version:
        columns = {c: column_of([r.cells[c] for r in rows], e) for c, e in self.layout.evolving.items()}
        codes = [masks.code(r.mask) if k in there else masks.ABSENT for k, r in zip(keys, rows, strict=True)]
        return Version(columns, np.array(codes, np.uint8), np.array([r.steps for r in rows], np.int64))
