"""Joins: every pair of rows is tried, and matches under a mask, since what it is joined on may evolve.

A total relation joined on its whole key has a row for every value: the default row where nobody has heard of one, and
rows that are hidden count too. While a side is not sealed, rows nobody has heard of may still appear in it and match.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.algebra.heading import is_key_equated
from smile.algebra.types import Value
from smile.knowledge.cell_knowledge import CellKnowledge
from smile.knowledge.cells import cell_hull, equality_mask, null_cell
from smile.knowledge.join_types import match_constraints
from smile.knowledge.mask import MAY_APPEAR, F, Mask, T, all_of, any_of, negation
from smile.knowledge.transfer import exact_cell
from smile.reference.relation import Cells, Key, ReferenceRow, Relation, is_sealed, key_of

if TYPE_CHECKING:
    from smile.reference.evaluate import Evaluation


def join(ev: "Evaluation", rel: mmpl.Join) -> Relation:
    sides = ReferenceJoinSides(ev, rel)
    if rel.kind in ("semi", "anti", "match"):
        return _existence_join(sides)
    if sides.left.is_total and sides.right.is_total and not sides.has_extra_condition:
        return _total_join(sides)
    heading = ev.relation_type(rel).heading
    if rel.kind == "full" and heading.key == sides.left.key:
        return _full_lookup_join(sides)
    if sides.right.is_unique and rel.kind in ("inner", "left"):
        return _lookup_join(sides, sides.left, sides.right)
    if sides.left.is_unique and rel.kind == "right":
        return _lookup_join(sides, sides.right, sides.left)
    return _pair_join(sides)


@dataclass(frozen=True)
class ReferenceJoinSide:
    """`on` are its columns that are equated, in the join's order. `whole`: they include its whole key, so that a row
    of the other side matches but one of it; `total`: and there always is that one."""

    rel: mmpl.Rel
    rows: Relation
    key: tuple[str, ...]
    join_columns: tuple[str, ...]
    is_unique: bool
    is_total: bool
    fixed_columns: tuple[str, ...]


class ReferenceJoinSides:
    """Both sides of a join, and when their rows match."""

    def __init__(self, ev: "Evaluation", rel: mmpl.Join) -> None:
        self.ev, self.rel = ev, rel
        self.left = self._read_side(rel.left, tuple(a for a, _ in rel.on))
        self.right = self._read_side(rel.right, tuple(b for _, b in rel.on))
        self.constraints = match_constraints(rel, ev.relation_type(rel.left), ev.relation_type(rel.right))
        column_types = (ev.relation_type(rel.left).columns, ev.relation_type(rel.right).columns)
        self.has_evolving_keys = any(column_types[0][a].evolves or column_types[1][b].evolves for a, b in rel.on)
        is_equated_once = len(set(self.left.join_columns)) == len(set(self.right.join_columns)) == len(rel.on)
        on_keys = all(a in self.left.key and b in self.right.key for a, b in rel.on)
        self.has_extra_condition = rel.when is not None or not on_keys or not is_equated_once

    def _read_side(self, rel: mmpl.Rel, on: tuple[str, ...]) -> ReferenceJoinSide:
        relation_type = self.ev.relation_type(rel)
        is_unique = is_key_equated(relation_type.heading, on)
        fixed_columns = tuple(c for c, t in relation_type.columns.items() if not t.evolves)
        return ReferenceJoinSide(
            rel,
            self.ev.relation(rel),
            relation_type.heading.key,
            on,
            is_unique,
            is_unique and relation_type.heading.total,
            fixed_columns,
        )

    def match_mask(self, left: Cells, right: Cells) -> Mask:
        """Whether two rows match; NULL where that is unknown, which only a join that is aware of NULL tells apart."""
        equated = all_of(*(equality_mask(left[a], right[b]) for a, b in self.rel.on))
        if not self.rel.null_aware:
            equated = F if self.have_conflicting_keys(left, right) else equated.null_as_false()
        if self.rel.when is None or equated.possible == {False}:
            return equated
        when = self.ev.expression_knowledge(self.rel.when, {**right, **left}, self.rel.left, self.rel.right)
        assert isinstance(when, Mask)
        return all_of(equated, when.null_as_false())

    def possible_matches(
        self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide, include_former: bool = False
    ) -> list[tuple[Mask, ReferenceRow]]:
        """Rows of the other side that match, or may, each with the mask of its being there and matching; with `moved`
        also those that may have matched once."""
        matches = []
        for candidate in self._candidates(row, own, other):
            mask = self._row_match_mask(row, candidate, own)
            if mask.possible != {False} or (include_former and self.has_evolving_keys):
                present = T if other.is_total else candidate.mask
                matches.append((all_of(present, mask), candidate))
        return matches

    def _row_match_mask(self, row: ReferenceRow, other: ReferenceRow, own: ReferenceJoinSide) -> Mask:
        return self.match_mask(row.cells, other.cells) if own is self.left else self.match_mask(other.cells, row.cells)

    def _candidates(
        self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide
    ) -> Iterator[ReferenceRow]:
        yield from other.rows.values()
        if other.is_total:
            key = self._lookup_key(row, own, other)
            if None not in key and key not in other.rows:
                yield self.ev.default_row(other.rel, key)

    def _lookup_key(self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide) -> Key:
        """The other side's key that this row asks for at present; only where that is equated as a whole."""
        source = {b: a for a, b in zip(own.join_columns, other.join_columns, strict=True)}
        return tuple(row.cells[source[c]].now for c in other.key)

    def can_gain_match(self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide) -> bool:
        """Whether a row of the other side nobody has heard of may still come to match this one."""
        join_cells = [row.cells[a] for a in own.join_columns]
        if not self.rel.null_aware and any(c.is_final and c.now is None for c in join_cells):
            return False
        if not self.rel.null_aware and self._has_conflicting_keys(row.cells, own, other):
            return False
        is_key_final = all(c.is_final for c in join_cells)
        if other.is_total and not is_key_final:
            return True  # whatever is asked for in the end, there is a row of it
        if other.is_unique and is_key_final:
            key = self._lookup_key(row, own, other)
            if key in other.rows or (other.is_total and None not in key):
                return False
        seals = {
            s: self.constraints.express_seal(seal, own.fixed_columns)
            for s, seal in self.ev.relation_type(other.rel).seals.items()
        }
        return not is_sealed(seals, row.cells, self.ev.column_types(own.rel), self.ev.history.horizons)

    def have_conflicting_keys(self, left: Cells, right: Cells) -> bool:
        return self._has_conflicting_keys(left, self.left, self.right) or self._has_conflicting_keys(
            right, self.right, self.left
        )

    def _has_conflicting_keys(self, cells: Cells, own: ReferenceJoinSide, other: ReferenceJoinSide) -> bool:
        """Whether one column is asked for two values, which no row has."""
        values: dict[str, Value] = {}
        final_values = [
            (b, cells[a].now) for a, b in zip(own.join_columns, other.join_columns, strict=True) if cells[a].is_final
        ]
        return any(values.setdefault(b, value) != value for b, value in final_values)

    def existence_mask(self, row: ReferenceRow, own: ReferenceJoinSide, other: ReferenceJoinSide) -> Mask:
        """Whether this row has a match."""
        if self.ev.relation_type(other.rel).can_become_absent and not other.is_total:
            other = replace(other, is_unique=False)
        masks = [mask for mask, _ in self.possible_matches(row, own, other)]
        if self.can_gain_match(row, own, other):
            masks.append(Mask.bottom(False) if self.rel.null_aware else MAY_APPEAR)
        return any_of(masks)

    def merge_cells(self, left: Cells, right: Cells) -> dict[str, CellKnowledge]:
        """The columns of a pair. One that is equated under one name is the key's wherever it is part of one."""
        merged = {**left, **right} if self.rel.kind == "right" else {**right, **left}
        for name in set(self.right.key) & set(left) - set(self.left.key):
            merged[name] = right.get(name, left[name])
        return {c: merged[c] for c in self.ev.relation_type(self.rel).heading.columns}

    def null_cells(self, side: ReferenceJoinSide, other: Cells) -> dict[str, CellKnowledge]:
        """The columns of a side that has no row; one shared with the other side is the other's."""
        return {c: other.get(c, null_cell(t)) for c, t in self.ev.column_types(side.rel).items()}

    def output_key(self, cells: Cells) -> Key:
        return key_of(cells, self.ev.relation_type(self.rel).heading.key)


# ── left rows by whether a match exists ─────────────────────────────────────────────────────────────────────────────


def _existence_join(sides: ReferenceJoinSides) -> Relation:
    rel = sides.rel
    # A test asks whether there is a row, and a group without members is none.
    right = replace(sides.right, is_total=False)
    result = {}
    for key, row in sides.left.rows.items():
        exists = sides.existence_mask(row, sides.left, right)
        steps = row.steps + sum(other.steps for _, other in sides.possible_matches(row, sides.left, right))
        if rel.kind == "match":
            assert rel.match_column is not None
            result[key] = ReferenceRow(row.mask, {**row.cells, rel.match_column: exists}, steps)
        else:
            test_mask = exists if rel.kind == "semi" else negation(exists)
            result[key] = ReferenceRow(all_of(row.mask, test_mask.null_as_false()), row.cells, steps)
    return result


# ── one row for each row of one side ────────────────────────────────────────────────────────────────────────────────


def _lookup_join(sides: ReferenceJoinSides, own: ReferenceJoinSide, other: ReferenceJoinSide) -> Relation:
    """The other side's whole key is equated: its columns are those of the one row that matches, or NULL."""
    is_preserved = sides.rel.kind != "inner"
    result = {}
    for row in own.rows.values():
        matches = sides.possible_matches(row, own, other)
        can_gain_match = sides.can_gain_match(row, own, other)
        if not (matches or is_preserved or sides.has_evolving_keys):
            continue
        match_cells = _match_cells(sides, own, other, row, matches, can_gain_match)
        cells = (
            sides.merge_cells(row.cells, match_cells)
            if own is sides.left
            else sides.merge_cells(match_cells, row.cells)
        )
        has_match = any_of([*(mask for mask, _ in matches), *([MAY_APPEAR] if can_gain_match else [])]).null_as_false()
        mask = row.mask if is_preserved else all_of(row.mask, has_match)
        result[sides.output_key(cells)] = ReferenceRow(mask, cells, row.steps + sum(r.steps for _, r in matches))
    return result


def _match_cells(
    sides: ReferenceJoinSides,
    own: ReferenceJoinSide,
    other: ReferenceJoinSide,
    row: ReferenceRow,
    matches: list[tuple[Mask, ReferenceRow]],
    can_gain_match: bool,
) -> dict[str, CellKnowledge]:
    """The columns of the one match: of all rows that it may turn out to be, among them none and one to come."""
    shared_columns = {c for c in row.cells if c in other.join_columns and c in own.join_columns}
    current_cells = next((r.cells for mask, r in matches if mask.is_shown), None)
    certain_cells = next((r.cells for mask, r in matches if mask.is_permanently_shown), None)
    null_cells = sides.null_cells(other, {c: row.cells[c] for c in shared_columns})
    match_cells: dict[str, CellKnowledge] = {}
    bottoms = sides.ev.domains.bottom_row(other.rel)
    own_columns = {b: a for a, b in zip(own.join_columns, other.join_columns, strict=True) if b in other.fixed_columns}
    for name, data in sides.ev.column_types(other.rel).items():
        if name in shared_columns:
            match_cells[name] = row.cells[name]
        elif certain_cells is not None:
            match_cells[name] = certain_cells[name]
        else:
            cells = [r.cells[name] for mask, r in matches if not mask.is_permanently_hidden]
            if sides.rel.kind == "inner" and not cells:
                # Hidden columns keep their knowledge.
                cells = [r.cells[name] for _, r in matches]
            cells += [null_cells[name]] if sides.rel.kind != "inner" or not cells else []
            # Whatever row comes, what is equated is what this row asks for.
            cells += [row.cells[own_columns[name]] if name in own_columns else bottoms[name]] if can_gain_match else []
            match_cells[name] = cell_hull(
                cells, None if current_cells is None else current_cells[name].now, bottoms[name], data
            )
    return match_cells


def _full_lookup_join(sides: ReferenceJoinSides) -> Relation:
    """Both sides have the same key, under the same names: a row of either, or both in one. A side that is total has its
    default row where nobody has heard of another, but joins nothing by NULL."""
    if sides.has_extra_condition or set(sides.left.key) != set(sides.right.key):
        raise NotImplementedError("a FULL JOIN whose rows without a match would share a key")
    types = sides.ev.column_types(sides.left.rel)
    result = {}
    for key in dict.fromkeys([*sides.left.rows, *(_left_key_order(sides, k) for k in sides.right.rows)]):
        key_cells = {c: exact_cell(v, types[c]) for c, v in zip(sides.left.key, key, strict=True)}
        masks, cells, steps = [], dict[str, CellKnowledge](), 0
        for side, other in ((sides.right, sides.left), (sides.left, sides.right)):
            side_key = key_of(key_cells, side.key)
            row = side.rows.get(side_key)
            if side.is_total and None not in side_key:
                row = row or sides.ev.default_row(side.rel, side_key)
                masks.append(row.mask)
                cells |= row.cells
                steps += row.steps
                continue
            can_appear = row is None and sides.can_gain_match(
                ReferenceRow(T, key_cells, 0), replace(other, fixed_columns=tuple(key_cells)), side
            )
            masks.append(row.mask if row is not None else MAY_APPEAR if can_appear else F)
            cells |= _optional_cells(sides, side, row, can_appear, key_cells)
            steps += row.steps if row is not None else 0
        result[key] = ReferenceRow(
            any_of(masks), {c: cells[c] for c in sides.ev.relation_type(sides.rel).heading.columns}, steps
        )
    return result


def _left_key_order(sides: ReferenceJoinSides, key: Key) -> Key:
    key_by_column = dict(zip(sides.right.key, key, strict=True))
    return tuple(key_by_column[c] for c in sides.left.key)


def _optional_cells(
    sides: ReferenceJoinSides,
    side: ReferenceJoinSide,
    row: ReferenceRow | None,
    can_appear: bool,
    asked: Mapping[str, CellKnowledge],
) -> dict[str, CellKnowledge]:
    """The columns of a side whose row may be there or not."""
    types, bottoms = sides.ev.column_types(side.rel), sides.ev.domains.bottom_row(side.rel)
    null_cells = sides.null_cells(side, asked)
    if row is None:
        absent_cells = {
            c: cell_hull([n, bottoms[c]], None, bottoms[c], types[c]) if can_appear else n
            for c, n in null_cells.items()
        }
        return {**absent_cells, **asked}
    if row.mask.is_permanently_shown:
        return dict(row.cells)
    cells: dict[str, CellKnowledge] = {}
    for c, n in null_cells.items():
        alternatives = [n] if row.mask.is_permanently_hidden else [row.cells[c], n]
        cells[c] = (
            asked[c]
            if c in asked
            else cell_hull(alternatives, row.cells[c].now if row.is_shown else None, bottoms[c], types[c])
        )
    return cells


# ── total relations ─────────────────────────────────────────────────────────────────────────────────────────────────


def _total_join(sides: ReferenceJoinSides) -> Relation:
    """Every group that either side has heard of, with the other side's default row where it has not."""
    keys: dict[Key, None] = {}
    for own in (sides.left, sides.right):
        for row in own.rows.values():
            key = tuple(row.cells[own.join_columns[sides.left.join_columns.index(c)]].now for c in sides.left.key)
            keys[key] = None
    preserved_sides = {"left": {"left"}, "right": {"right"}, "full": {"left", "right"}}.get(sides.rel.kind, set())
    result = {}
    for key in keys:
        if None not in key or _is_preserved(sides, key, preserved_sides):
            row = _total_join_row(sides, key)
            result[sides.output_key(row.cells)] = row
    return result


def _total_join_row(sides: ReferenceJoinSides, key: Key) -> ReferenceRow:
    """The row of a key of the left side, heard of or not. A full join would have a group whose key is NULL twice, but
    has one row for each key."""
    if None in key and sides.rel.kind != "full":
        return _null_key_row(sides, key)
    right_key = _right_key(sides, key)
    left = sides.left.rows.get(key) or sides.ev.default_row(sides.left.rel, key)
    right = sides.right.rows.get(right_key) or sides.ev.default_row(sides.right.rel, right_key)
    return _combine_rows(sides, left, right)


def _null_key_row(sides: ReferenceJoinSides, key: Key) -> ReferenceRow:
    """The group whose key is NULL matches none: if its side is preserved it has NULLs beside it. Where no side that has
    such a group is preserved nobody will ever hear of a row, and the default row is that of both."""
    own = {"left": sides.left, "right": sides.right}.get(sides.rel.kind)
    keys = {"left": key, "right": _right_key(sides, key)}
    if own is None or not any(sides.ev.relation_type(own.rel).columns[c].nullable for c in own.key):
        left, right = (sides.ev.default_row(s.rel, keys[w]) for w, s in (("left", sides.left), ("right", sides.right)))
        return _combine_rows(sides, left, right)
    row = own.rows.get(keys[sides.rel.kind]) or sides.ev.default_row(own.rel, keys[sides.rel.kind])
    if own is sides.left:
        return replace(row, cells=sides.merge_cells(row.cells, sides.null_cells(sides.right, row.cells)))
    return replace(row, cells=sides.merge_cells(sides.null_cells(sides.left, row.cells), row.cells))


def _combine_rows(sides: ReferenceJoinSides, left: ReferenceRow, right: ReferenceRow) -> ReferenceRow:
    return ReferenceRow(
        any_of([left.mask, right.mask]), sides.merge_cells(left.cells, right.cells), left.steps + right.steps
    )


def _is_preserved(sides: ReferenceJoinSides, key: Key, preserving: set[str]) -> bool:
    return ("left" in preserving and key in sides.left.rows) or (
        "right" in preserving and _right_key(sides, key) in sides.right.rows
    )


def _right_key(sides: ReferenceJoinSides, key: Key) -> Key:
    """The right side's key that equals a key of the left."""
    key_by_column = dict(zip(sides.left.key, key, strict=True))
    source = {b: key_by_column[a] for a, b in sides.rel.on if a in key_by_column}
    return tuple(source[c] for c in sides.right.key)


def default_row(ev: "Evaluation", rel: mmpl.Join, key: Key) -> ReferenceRow:
    """The row of a join of total relations for a key of its own that nobody has heard of."""
    sides = ReferenceJoinSides(ev, rel)
    if rel.kind == "right":
        key_by_column = dict(zip(sides.right.key, key, strict=True))
        right_columns = dict(rel.on)
        key = tuple(key_by_column[right_columns[c]] for c in sides.left.key)
    return _total_join_row(sides, key)


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pair_join(sides: ReferenceJoinSides) -> Relation:
    """All pairs that match, and rows without a match of the sides that are preserved."""
    result: Relation = {}
    for row in sides.left.rows.values():
        for mask, other in sides.possible_matches(row, sides.left, sides.right, include_former=True):
            cells = sides.merge_cells(row.cells, other.cells)
            pair_mask = mask if sides.left.is_total else all_of(row.mask, mask)
            result[sides.output_key(cells)] = ReferenceRow(pair_mask.null_as_false(), cells, row.steps + other.steps)
    if sides.left.is_total:
        for other in sides.right.rows.values():
            for mask, row in sides.possible_matches(other, sides.right, sides.left):
                cells = sides.merge_cells(row.cells, other.cells)
                result[sides.output_key(cells)] = ReferenceRow(all_of(other.mask, mask), cells, row.steps + other.steps)
    if sides.rel.kind in ("left", "full"):
        for row in sides.left.rows.values():
            cells = sides.merge_cells(row.cells, sides.null_cells(sides.right, row.cells))
            mask = all_of(row.mask, negation(sides.existence_mask(row, sides.left, sides.right)).null_as_false())
            _add_unmatched(sides, result, ReferenceRow(mask, cells, row.steps))
    if sides.rel.kind in ("right", "full"):
        for row in sides.right.rows.values():
            cells = sides.merge_cells(sides.null_cells(sides.left, row.cells), row.cells)
            mask = all_of(row.mask, negation(sides.existence_mask(row, sides.right, sides.left)).null_as_false())
            _add_unmatched(sides, result, ReferenceRow(mask, cells, row.steps))
    return result


def _add_unmatched(sides: ReferenceJoinSides, result: Relation, row: ReferenceRow) -> None:
    key = sides.output_key(row.cells)
    if key in result:
        raise NotImplementedError("an outer join of a key that is NULL, which a row without a match has too")
    result[key] = row
