"""Joins: every pair of rows is compared, and matches under a mask, since the columns it is joined on may evolve.

Hidden rows of a total relation count as present. While a side is not sealed, further rows may appear in it and match.
"""

from collections.abc import Mapping
from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_hull, clipped_cell
from smile.knowledge.values.mask import MAY_APPEAR, F, Mask, T, all_of, any_of, negation
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.join_sides import ReferenceJoinSide, ReferenceJoinSides
from smile.reference.relation import Key, ReferenceRow, Relation, key_of


def join(ev: Evaluation, rel: mmpl.Join) -> Relation:
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


# ── left rows by whether a match exists ─────────────────────────────────────────────────────────────────────────────


def _existence_join(sides: ReferenceJoinSides) -> Relation:
    rel = sides.rel
    # A test is about existing rows, and a group without members is not a row.
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


# ── lookup joins: one row for each row of one side ──────────────────────────────────────────────────────────────────


def _lookup_join(sides: ReferenceJoinSides, own: ReferenceJoinSide, other: ReferenceJoinSide) -> Relation:
    """The whole key of the other side is equated: its columns are those of the only match, or NULL."""
    is_preserved = sides.rel.kind != "inner"
    result = {}
    for row in own.rows.values():
        matches = sides.possible_matches(row, own, other)
        # A row of fixed key columns is absent while it has no match, and begins anew with the next one.
        can_gain_match = (is_preserved or sides.has_evolving_keys) and sides.can_gain_match(row, own, other)
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
    """The columns of the match: the hull over all rows that it may be, including a row that may appear, and none if the
    row is preserved."""
    shared_columns = {c for c in row.cells if c in other.join_columns and c in own.join_columns}
    current_cells = next((r.cells for mask, r in matches if mask.is_shown), None)
    certain_cells = next((r.cells for mask, r in matches if mask.is_permanently_shown), None)
    null_cells = sides.null_cells(other, {c: row.cells[c] for c in shared_columns})
    match_cells: dict[str, CellKnowledge] = {}
    is_preserved = sides.rel.kind != "inner"
    bottoms = sides.ev.domains.bottom_row(other.rel)
    own_columns = {b: a for a, b in zip(own.join_columns, other.join_columns, strict=True) if b in other.fixed_columns}
    for name, data in sides.ev.column_types(other.rel).items():
        if name in shared_columns:
            match_cells[name] = row.cells[name]
        elif certain_cells is not None:
            match_cells[name] = certain_cells[name]
        else:
            cells = [r.cells[name] for mask, r in matches if not mask.is_permanently_hidden]
            if is_preserved:
                cells.append(null_cells[name])
            elif not cells:
                # Hidden columns keep their knowledge.
                cells = [r.cells[name] for _, r in matches]
            if can_gain_match or not cells:
                # Equated columns of a row that may appear have the values that this row looks up.
                is_looked_up = name in own_columns
                cells.append(
                    clipped_cell(row.cells[own_columns[name]], bottoms[name], data) if is_looked_up else bottoms[name]
                )
            match_cells[name] = cell_hull(cells, None if current_cells is None else current_cells[name].now, data)
    return match_cells


def _full_lookup_join(sides: ReferenceJoinSides) -> Relation:
    """Both sides have the same key under the same names: each key has one row, of either side or of both. A total side
    has its default row where no row is present, but matches nothing by NULL."""
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
            is_certain = row is not None and row.mask.is_permanently_shown
            can_appear = not is_certain and sides.can_gain_match(
                ReferenceRow(T, key_cells, 0), replace(other, fixed_columns=tuple(key_cells)), side
            )
            masks.append(any_of([F if row is None else row.mask, MAY_APPEAR if can_appear else F]))
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
    key_cells: Mapping[str, CellKnowledge],
) -> dict[str, CellKnowledge]:
    """The columns of a side whose row may be present or not."""
    types, bottoms = sides.ev.column_types(side.rel), sides.ev.domains.bottom_row(side.rel)
    null_cells = sides.null_cells(side, key_cells)
    if row is None:
        absent_cells = {
            c: cell_hull([n, bottoms[c]], None, types[c]) if can_appear else n for c, n in null_cells.items()
        }
        return {**absent_cells, **key_cells}
    if row.mask.is_permanently_shown:
        return dict(row.cells)
    cells: dict[str, CellKnowledge] = {}
    for c, n in null_cells.items():
        alternatives = [n] if row.mask.is_permanently_hidden else [row.cells[c], n]
        alternatives += [bottoms[c]] if can_appear else []
        cells[c] = (
            key_cells[c]
            if c in key_cells
            else cell_hull(alternatives, row.cells[c].now if row.is_shown else None, types[c])
        )
    return cells


# ── total relations ─────────────────────────────────────────────────────────────────────────────────────────────────


def _total_join(sides: ReferenceJoinSides) -> Relation:
    """Every group that is present on either side, with the default row of the other side where it is absent."""
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
    """The row of a key of the left side, whether present or not. A full join would have two groups whose key is NULL,
    but has one row for each key."""
    if None in key and sides.rel.kind != "full":
        return _null_key_row(sides, key)
    right_key = _right_key(sides, key)
    left = sides.left.rows.get(key) or sides.ev.default_row(sides.left.rel, key)
    right = sides.right.rows.get(right_key) or sides.ev.default_row(sides.right.rel, right_key)
    return _combine_rows(sides, left, right)


def _null_key_row(sides: ReferenceJoinSides, key: Key) -> ReferenceRow:
    """The group whose key is NULL matches nothing: if its side is preserved, the other columns are NULL. If no side
    with such a group is preserved, the row is never present, and the default row combines those of both sides."""
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


def _is_preserved(sides: ReferenceJoinSides, key: Key, preserved_sides: set[str]) -> bool:
    return ("left" in preserved_sides and key in sides.left.rows) or (
        "right" in preserved_sides and _right_key(sides, key) in sides.right.rows
    )


def _right_key(sides: ReferenceJoinSides, key: Key) -> Key:
    """The right side's key that equals a key of the left."""
    key_by_column = dict(zip(sides.left.key, key, strict=True))
    source = {b: key_by_column[a] for a, b in sides.rel.on if a in key_by_column}
    return tuple(source[c] for c in sides.right.key)


def join_default(ev: Evaluation, rel: mmpl.Join, key: Key) -> ReferenceRow:
    """The row of a join of total relations for an absent key."""
    sides = ReferenceJoinSides(ev, rel)
    if rel.kind == "right":
        key_by_column = dict(zip(sides.right.key, key, strict=True))
        right_columns = dict(rel.on)
        key = tuple(key_by_column[right_columns[c]] for c in sides.left.key)
    return _total_join_row(sides, key)


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pair_join(sides: ReferenceJoinSides) -> Relation:
    """All matching pairs, and the rows of preserved sides without a match."""
    result: Relation = {}
    for row in sides.left.rows.values():
        for mask, other in sides.possible_matches(row, sides.left, sides.right, include_former=True):
            _add_pair(sides, result, row, other, mask)
    if sides.left.is_total:
        for other in sides.right.rows.values():
            for mask, row in sides.possible_matches(other, sides.right, sides.left):
                _add_pair(sides, result, row, other, mask)
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


def _add_pair(
    sides: ReferenceJoinSides, result: Relation, left: ReferenceRow, right: ReferenceRow, match: Mask
) -> None:
    """Adds a pair. Of pairs with the same key, which differ in a column that both sides have, at most one can match."""
    if sides.left.is_total and sides.right.is_total:
        presence = any_of([left.mask, right.mask])
    elif sides.left.is_total or sides.right.is_total:
        presence = right.mask if sides.left.is_total else left.mask
    else:
        presence = all_of(left.mask, right.mask)
    mask = all_of(presence, match).null_as_false()
    cells = sides.merge_cells(left.cells, right.cells)
    key = sides.output_key(cells)
    if key not in result or not mask.is_permanently_hidden:
        result[key] = ReferenceRow(mask, cells, left.steps + right.steps)


def _add_unmatched(sides: ReferenceJoinSides, result: Relation, row: ReferenceRow) -> None:
    key = sides.output_key(row.cells)
    if key not in result or result[key].mask.is_permanently_hidden:
        result[key] = row
    elif not row.mask.is_permanently_hidden:
        raise NotImplementedError("an outer join with a NULL key, which a row without a match may have too")
