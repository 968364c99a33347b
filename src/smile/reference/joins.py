"""Joins: every pair of rows is tried, and matches under a mask, since what it is joined on may evolve.

A total relation joined on its whole key has a row for every value: the default row where nobody has heard of one, and
rows that are hidden count too. While a side is not sealed, rows nobody has heard of may still appear in it and match.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.algebra.heading import whole_key_equated
from smile.algebra.types import Value
from smile.knowledge.cells import equal, null, one_of
from smile.knowledge.join_types import match_ties
from smile.knowledge.known import Known
from smile.knowledge.mask import UNHEARD, F, Mask, T, all_of, any_of, none_of
from smile.knowledge.transfer import exactly
from smile.reference.relation import Cells, Key, Relation, Row, is_sealed, key_of

if TYPE_CHECKING:
    from smile.reference.evaluate import Evaluation


def join(ev: "Evaluation", rel: mmpl.Join) -> Relation:
    sides = Sides(ev, rel)
    if rel.kind in ("semi", "anti", "match"):
        return _tested(sides)
    if sides.left.total and sides.right.total and not sides.extra:
        return _both_total(sides)
    heading = ev.type(rel).heading
    if rel.kind == "full" and heading.key == sides.left.key:
        return _one_row_full(sides)
    if sides.right.whole and rel.kind in ("inner", "left"):
        return _one_row(sides, sides.left, sides.right)
    if sides.left.whole and rel.kind == "right":
        return _one_row(sides, sides.right, sides.left)
    return _pairs(sides)


@dataclass(frozen=True)
class Side:
    """`on` are its columns that are equated, in the join's order. `whole`: they include its whole key, so that a row
    of the other side matches but one of it; `total`: and there always is that one."""

    rel: mmpl.Rel
    rows: Relation
    key: tuple[str, ...]
    on: tuple[str, ...]
    whole: bool
    total: bool
    fixed: tuple[str, ...]


class Sides:
    """Both sides of a join, and when their rows match."""

    def __init__(self, ev: "Evaluation", rel: mmpl.Join) -> None:
        self.ev, self.rel = ev, rel
        self.left = self._side(rel.left, tuple(a for a, _ in rel.on))
        self.right = self._side(rel.right, tuple(b for _, b in rel.on))
        self.ties = match_ties(rel, ev.type(rel.left), ev.type(rel.right))
        kinds = (ev.type(rel.left).columns, ev.type(rel.right).columns)
        self.moving = any(kinds[0][a].evolves or kinds[1][b].evolves for a, b in rel.on)
        once = len(set(self.left.on)) == len(set(self.right.on)) == len(rel.on)
        on_keys = all(a in self.left.key and b in self.right.key for a, b in rel.on)
        self.extra = rel.when is not None or not on_keys or not once

    def _side(self, rel: mmpl.Rel, on: tuple[str, ...]) -> Side:
        found = self.ev.type(rel)
        whole = whole_key_equated(found.heading, on)
        fixed = tuple(c for c, t in found.columns.items() if not t.evolves)
        return Side(rel, self.ev.of(rel), found.heading.key, on, whole, whole and found.heading.total, fixed)

    def match(self, left: Cells, right: Cells) -> Mask:
        """Whether two rows match; NULL where that is unknown, which only a join that is aware of NULL tells apart."""
        equated = all_of(*(equal(left[a], right[b]) for a, b in self.rel.on))
        if not self.rel.null_aware:
            equated = F if self.are_at_odds(left, right) else equated.filter()
        if self.rel.when is None or equated.possible == {False}:
            return equated
        when = self.ev.know(self.rel.when, {**right, **left}, self.rel.left, self.rel.right)
        assert isinstance(when, Mask)
        return all_of(equated, when.filter())

    def matches(self, row: Row, own: Side, other: Side, moved: bool = False) -> list[tuple[Mask, Row]]:
        """Rows of the other side that match, or may, each with the mask of its being there and matching; with `moved`
        also those that may have matched once."""
        found = []
        for candidate in self._candidates(row, own, other):
            mask = self._matched(row, candidate, own)
            if mask.possible != {False} or (moved and self.moving):
                there = T if other.total else candidate.mask
                found.append((all_of(there, mask), candidate))
        return found

    def _matched(self, row: Row, other: Row, own: Side) -> Mask:
        return self.match(row.cells, other.cells) if own is self.left else self.match(other.cells, row.cells)

    def _candidates(self, row: Row, own: Side, other: Side) -> Iterator[Row]:
        yield from other.rows.values()
        if other.total:
            wanted = self._wanted(row, own, other)
            if None not in wanted and wanted not in other.rows:
                yield self.ev.default(other.rel, wanted)

    def _wanted(self, row: Row, own: Side, other: Side) -> Key:
        """The other side's key that this row asks for at present; only where that is equated as a whole."""
        source = {b: a for a, b in zip(own.on, other.on, strict=True)}
        return tuple(row.cells[source[c]].now for c in other.key)

    def may_come(self, row: Row, own: Side, other: Side) -> bool:
        """Whether a row of the other side nobody has heard of may still come to match this one."""
        asked = [row.cells[a] for a in own.on]
        if not self.rel.null_aware and any(c.is_final and c.now is None for c in asked):
            return False
        if not self.rel.null_aware and self._is_at_odds(row.cells, own, other):
            return False
        settled = all(c.is_final for c in asked)
        if other.total and not settled:
            return True  # whatever is asked for in the end, there is a row of it
        if other.whole and settled:
            wanted = self._wanted(row, own, other)
            if wanted in other.rows or (other.total and None not in wanted):
                return False
        seals = {s: self.ties.express(seal, own.fixed) for s, seal in self.ev.type(other.rel).seals.items()}
        return not is_sealed(seals, row.cells, self.ev.data(own.rel), self.ev.history.horizons)

    def are_at_odds(self, left: Cells, right: Cells) -> bool:
        return self._is_at_odds(left, self.left, self.right) or self._is_at_odds(right, self.right, self.left)

    def _is_at_odds(self, cells: Cells, own: Side, other: Side) -> bool:
        """Whether one column is asked for two values, which no row has."""
        wanted: dict[str, Value] = {}
        final = [(b, cells[a].now) for a, b in zip(own.on, other.on, strict=True) if cells[a].is_final]
        return any(wanted.setdefault(b, value) != value for b, value in final)

    def exists(self, row: Row, own: Side, other: Side) -> Mask:
        """Whether this row has a match."""
        if self.ev.type(other.rel).forgets and not other.total:
            other = replace(other, whole=False)
        masks = [mask for mask, _ in self.matches(row, own, other)]
        if self.may_come(row, own, other):
            masks.append(Mask.bottom(False) if self.rel.null_aware else UNHEARD)
        return any_of(masks)

    def cells(self, left: Cells, right: Cells) -> dict[str, Known]:
        """The columns of a pair. One that is equated under one name is the key's wherever it is part of one."""
        both = {**left, **right} if self.rel.kind == "right" else {**right, **left}
        for name in set(self.right.key) & set(left) - set(self.left.key):
            both[name] = right.get(name, left[name])
        return {c: both[c] for c in self.ev.type(self.rel).heading.columns}

    def nulls(self, side: Side, other: Cells) -> dict[str, Known]:
        """The columns of a side that has no row; one shared with the other side is the other's."""
        return {c: other.get(c, null(t)) for c, t in self.ev.data(side.rel).items()}

    def key(self, cells: Cells) -> Key:
        return key_of(cells, self.ev.type(self.rel).heading.key)


# ── left rows by whether a match exists ─────────────────────────────────────────────────────────────────────────────


def _tested(sides: Sides) -> Relation:
    rel = sides.rel
    # A test asks whether there is a row, and a group without members is none.
    right = replace(sides.right, total=False)
    result = {}
    for key, row in sides.left.rows.items():
        exists = sides.exists(row, sides.left, right)
        steps = row.steps + sum(other.steps for _, other in sides.matches(row, sides.left, right))
        if rel.kind == "match":
            assert rel.mark is not None
            result[key] = Row(row.mask, {**row.cells, rel.mark: exists}, steps)
        else:
            test = exists if rel.kind == "semi" else none_of(exists)
            result[key] = Row(all_of(row.mask, test.filter()), row.cells, steps)
    return result


# ── one row for each row of one side ────────────────────────────────────────────────────────────────────────────────


def _one_row(sides: Sides, own: Side, other: Side) -> Relation:
    """The other side's whole key is equated: its columns are those of the one row that matches, or NULL."""
    preserved = sides.rel.kind != "inner"
    result = {}
    for row in own.rows.values():
        found = sides.matches(row, own, other)
        more = sides.may_come(row, own, other)
        if not (found or preserved or sides.moving):
            continue
        chosen = _chosen(sides, own, other, row, found, more)
        cells = sides.cells(row.cells, chosen) if own is sides.left else sides.cells(chosen, row.cells)
        there = any_of([*(mask for mask, _ in found), *([UNHEARD] if more else [])]).filter()
        mask = row.mask if preserved else all_of(row.mask, there)
        result[sides.key(cells)] = Row(mask, cells, row.steps + sum(r.steps for _, r in found))
    return result


def _chosen(
    sides: Sides, own: Side, other: Side, row: Row, found: list[tuple[Mask, Row]], more: bool
) -> dict[str, Known]:
    """The columns of the one match: of all rows that it may turn out to be, among them none and one to come."""
    shared = {c for c in row.cells if c in other.on and c in own.on}
    current = next((r.cells for mask, r in found if mask.shown), None)
    sure = next((r.cells for mask, r in found if mask.stays), None)
    nothing = sides.nulls(other, {c: row.cells[c] for c in shared})
    chosen: dict[str, Known] = {}
    bottoms = sides.ev.domains.of(other.rel)
    asked = {b: a for a, b in zip(own.on, other.on, strict=True) if b in other.fixed}
    for name, data in sides.ev.data(other.rel).items():
        if name in shared:
            chosen[name] = row.cells[name]
        elif sure is not None:
            chosen[name] = sure[name]
        else:
            cells = [r.cells[name] for mask, r in found if not mask.gone]
            if sides.rel.kind == "inner" and not cells:
                # Hidden columns keep their knowledge.
                cells = [r.cells[name] for _, r in found]
            cells += [nothing[name]] if sides.rel.kind != "inner" or not cells else []
            # Whatever row comes, what is equated is what this row asks for.
            cells += [row.cells[asked[name]] if name in asked else bottoms[name]] if more else []
            chosen[name] = one_of(cells, None if current is None else current[name].now, bottoms[name], data)
    return chosen


def _one_row_full(sides: Sides) -> Relation:
    """Both sides have the same key, under the same names: a row of either, or both in one. A side that is total has its
    default row where nobody has heard of another, but joins nothing by NULL."""
    if sides.extra or set(sides.left.key) != set(sides.right.key):
        raise NotImplementedError("a FULL JOIN whose rows without a match would share a key")
    types = sides.ev.data(sides.left.rel)
    result = {}
    for key in dict.fromkeys([*sides.left.rows, *(_reordered(sides, k) for k in sides.right.rows)]):
        asked = {c: exactly(v, types[c]) for c, v in zip(sides.left.key, key, strict=True)}
        masks, cells, steps = [], dict[str, Known](), 0
        for side, other in ((sides.right, sides.left), (sides.left, sides.right)):
            own = key_of(asked, side.key)
            row = side.rows.get(own)
            if side.total and None not in own:
                row = row or sides.ev.default(side.rel, own)
                masks.append(row.mask)
                cells |= row.cells
                steps += row.steps
                continue
            more = row is None and sides.may_come(Row(T, asked, 0), replace(other, fixed=tuple(asked)), side)
            masks.append(row.mask if row is not None else UNHEARD if more else F)
            cells |= _present(sides, side, row, more, asked)
            steps += row.steps if row is not None else 0
        result[key] = Row(any_of(masks), {c: cells[c] for c in sides.ev.type(sides.rel).heading.columns}, steps)
    return result


def _reordered(sides: Sides, key: Key) -> Key:
    named = dict(zip(sides.right.key, key, strict=True))
    return tuple(named[c] for c in sides.left.key)


def _present(sides: Sides, side: Side, row: Row | None, more: bool, asked: Mapping[str, Known]) -> dict[str, Known]:
    """The columns of a side whose row may be there or not."""
    types, bottoms = sides.ev.data(side.rel), sides.ev.domains.of(side.rel)
    nothing = sides.nulls(side, asked)
    if row is None:
        unheard = {c: one_of([n, bottoms[c]], None, bottoms[c], types[c]) if more else n for c, n in nothing.items()}
        return {**unheard, **asked}
    if row.mask.stays:
        return dict(row.cells)
    found: dict[str, Known] = {}
    for c, n in nothing.items():
        parts = [n] if row.mask.gone else [row.cells[c], n]
        found[c] = (
            asked[c] if c in asked else one_of(parts, row.cells[c].now if row.shown else None, bottoms[c], types[c])
        )
    return found


# ── total relations ─────────────────────────────────────────────────────────────────────────────────────────────────


def _both_total(sides: Sides) -> Relation:
    """Every group that either side has heard of, with the other side's default row where it has not."""
    keys: dict[Key, None] = {}
    for own in (sides.left, sides.right):
        for row in own.rows.values():
            key = tuple(row.cells[own.on[sides.left.on.index(c)]].now for c in sides.left.key)
            keys[key] = None
    preserving = {"left": {"left"}, "right": {"right"}, "full": {"left", "right"}}.get(sides.rel.kind, set())
    result = {}
    for key in keys:
        if None not in key or _is_preserved(sides, key, preserving):
            row = _of_both(sides, key)
            result[sides.key(row.cells)] = row
    return result


def _of_both(sides: Sides, key: Key) -> Row:
    """The row of a key of the left side, heard of or not. A full join would have a group whose key is NULL twice, but
    has one row for each key."""
    if None in key and sides.rel.kind != "full":
        return _of_null(sides, key)
    of_right = _of_right(sides, key)
    left = sides.left.rows.get(key) or sides.ev.default(sides.left.rel, key)
    right = sides.right.rows.get(of_right) or sides.ev.default(sides.right.rel, of_right)
    return _together(sides, left, right)


def _of_null(sides: Sides, key: Key) -> Row:
    """The group whose key is NULL matches none: if its side is preserved it has NULLs beside it. Where no side that has
    such a group is preserved nobody will ever hear of a row, and the default row is that of both."""
    own = {"left": sides.left, "right": sides.right}.get(sides.rel.kind)
    keys = {"left": key, "right": _of_right(sides, key)}
    if own is None or not any(sides.ev.type(own.rel).columns[c].nullable for c in own.key):
        left, right = (sides.ev.default(s.rel, keys[w]) for w, s in (("left", sides.left), ("right", sides.right)))
        return _together(sides, left, right)
    row = own.rows.get(keys[sides.rel.kind]) or sides.ev.default(own.rel, keys[sides.rel.kind])
    if own is sides.left:
        return replace(row, cells=sides.cells(row.cells, sides.nulls(sides.right, row.cells)))
    return replace(row, cells=sides.cells(sides.nulls(sides.left, row.cells), row.cells))


def _together(sides: Sides, left: Row, right: Row) -> Row:
    return Row(any_of([left.mask, right.mask]), sides.cells(left.cells, right.cells), left.steps + right.steps)


def _is_preserved(sides: Sides, key: Key, preserving: set[str]) -> bool:
    return ("left" in preserving and key in sides.left.rows) or (
        "right" in preserving and _of_right(sides, key) in sides.right.rows
    )


def _of_right(sides: Sides, key: Key) -> Key:
    """The right side's key that equals a key of the left."""
    named = dict(zip(sides.left.key, key, strict=True))
    source = {b: named[a] for a, b in sides.rel.on if a in named}
    return tuple(source[c] for c in sides.right.key)


def default(ev: "Evaluation", rel: mmpl.Join, key: Key) -> Row:
    """The row of a join of total relations for a key of its own that nobody has heard of."""
    sides = Sides(ev, rel)
    if rel.kind == "right":
        named = dict(zip(sides.right.key, key, strict=True))
        asking = dict(rel.on)
        key = tuple(named[asking[c]] for c in sides.left.key)
    return _of_both(sides, key)


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pairs(sides: Sides) -> Relation:
    """All pairs that match, and rows without a match of the sides that are preserved."""
    result: Relation = {}
    for row in sides.left.rows.values():
        for mask, other in sides.matches(row, sides.left, sides.right, moved=True):
            cells = sides.cells(row.cells, other.cells)
            present = mask if sides.left.total else all_of(row.mask, mask)
            result[sides.key(cells)] = Row(present.filter(), cells, row.steps + other.steps)
    if sides.left.total:
        for other in sides.right.rows.values():
            for mask, row in sides.matches(other, sides.right, sides.left):
                cells = sides.cells(row.cells, other.cells)
                result[sides.key(cells)] = Row(all_of(other.mask, mask), cells, row.steps + other.steps)
    if sides.rel.kind in ("left", "full"):
        for row in sides.left.rows.values():
            cells = sides.cells(row.cells, sides.nulls(sides.right, row.cells))
            mask = all_of(row.mask, none_of(sides.exists(row, sides.left, sides.right)).filter())
            _add_unmatched(sides, result, Row(mask, cells, row.steps))
    if sides.rel.kind in ("right", "full"):
        for row in sides.right.rows.values():
            cells = sides.cells(sides.nulls(sides.left, row.cells), row.cells)
            mask = all_of(row.mask, none_of(sides.exists(row, sides.right, sides.left)).filter())
            _add_unmatched(sides, result, Row(mask, cells, row.steps))
    return result


def _add_unmatched(sides: Sides, result: Relation, row: Row) -> None:
    key = sides.key(row.cells)
    if key in result:
        raise NotImplementedError("an outer join of a key that is NULL, which a row without a match has too")
    result[key] = row
