"""Joins on columns that evolve: every pair of rows may match, each pair with its own mask.

This is slow, and goes row by row. A changed row is compared with all rows of the other side, and a row whose matches
may have changed is computed again from all of them. The work of a batch is proportional to the affected rows times the
stored rows. No row expires when horizons advance: a row is removed only if it becomes absent or permanently hidden.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra import mmpl, trees
from smile.columns import masks
from smile.columns.knowledge import current_values
from smile.columns.values import Bools, from_python
from smile.kernels.delta import Delta, RowKnowledge, drop_unchanged_rows
from smile.kernels.joins.join_row import Cells, JoinRow, Key, column_from_cells, rows_by_key
from smile.kernels.joins.join_seals import JoinSeals
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides
from smile.kernels.joins.optional_rows import optional_kinds
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.kernels.unsupported_join import UnsupportedJoinError
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_hull, equality_mask, null_cell, to_operand_in_domain
from smile.knowledge.values.mask import MAY_APPEAR, F, Mask, T, all_of, any_of, negation
from smile.knowledge.values.transfer import expression_knowledge

RowsByKey = dict[Key, JoinRow]


@dataclass(frozen=True)
class JoinSnapshot:
    """All rows of both sides before or after a batch. `open_keys` are those of rows that new rows of the other side may
    match."""

    rows: Mapping[str, RowsByKey]
    open_keys: Mapping[str, set[Key]]
    horizons: Horizons


class EvolvingJoin(Transform):
    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        self.sides = sides = JoinSides(rel, left, right, output)
        self.rel, self.output = rel, output
        self.inputs = {"left": left, "right": right}
        self.probe: JoinSide | None = None
        """The side whose rows have at most one match, if the join outputs one row for each of them."""
        if sides.right.covers_key and rel.kind in ("inner", "left"):
            self.probe = sides.left
        elif sides.left.covers_key and rel.kind == "right":
            self.probe = sides.right
        self.preserved_sides = {"left": ("left",), "right": ("right",), "full": ("left", "right")}.get(rel.kind, ())
        self.columns_equated_twice = {
            str(side.name): sides.columns_equated_twice(side) for side in (sides.left, sides.right)
        }
        self.layout = self._layout()
        self.match_seals = {str(side.name): self._match_seals(side) for side in (sides.left, sides.right)}
        self.table_schemas = {"left": sides.left.table_schema, "right": sides.right.table_schema}
        self.table_sources = sides.table_sources
        self.bottoms = {**right.bottoms, **left.bottoms}
        self.types = {**right.layout.types, **left.layout.types}

    def _match_seals(self, side: JoinSide) -> JoinSeals:
        """When no more rows of the other side can come and match. Uses all columns whose type never evolves, even if
        the layout has them among the evolving columns."""
        fixed = [c for c, t in side.source.type.columns.items() if not t.evolves and c in side.layout.types]
        seals = self.sides.other(side).source.type.seals
        expressed = {s: self.sides.ties.express_seal(seal, fixed) for s, seal in seals.items()}
        return JoinSeals(Seals(expressed, side.source.type.heading.columns), "ends")

    def _is_sealed(self, side: JoinSide, rows: JoinRows, horizons: Horizons) -> Bools:
        match_seals = self.match_seals[side.name]
        columns = rows.knowledge.columns
        values = {
            c: rows.fixed[c] if c in side.layout.fixed else current_values(columns[c]) for c in match_seals.seal_columns
        }
        return match_seals.is_sealed(values, len(rows), horizons)

    def _layout(self) -> Layout:
        key, includes_permanently_hidden = self.output.type.heading.key, self.output.includes_permanently_hidden
        if self.probe is None and not self.preserved_sides:
            return self.sides.output_layout(key, False, includes_permanently_hidden)
        fixed, evolving = {}, dict[str, EvolvingColumnLayout]()
        for name, column_side in self.sides.column_sides.items():
            # A key column with the same name on both sides is the probe row's; without a probe side, that of the row
            # that is present.
            sources = [side for side in (column_side, self.sides.other(column_side)) if name in side.layout.types]
            if self.probe is not None:
                sources = [self.probe] if self.probe in sources else sources
            evolving_side = next((side for side in sources if name in side.layout.evolving), None)
            if name in key or (evolving_side is None and (self.probe is None or sources == [self.probe])):
                fixed[name] = column_side.layout.types[name]
            else:
                evolving[name] = optional_kinds((evolving_side or column_side).layout)[name]
        return Layout(key, fixed, evolving, False, includes_permanently_hidden)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        tables, changed_rows = {}, dict[str, JoinRows]()
        changed_keys: dict[str, set[Key]] = {}
        for side, delta in zip((self.sides.left, self.sides.right), inputs, strict=True):
            tables[str(side.name)] = side.update_table(state[side.name], delta)
            changed_keys[side.name] = set()
            if delta is not None:
                changed_rows[side.name] = JoinRows(delta.fixed, delta.new)
                changed_keys[side.name] |= set(rows_by_key(side, changed_rows[side.name]))
                if delta.old is not None:
                    changed_keys[side.name] |= set(rows_by_key(side, JoinRows(delta.fixed, delta.old)))
        # Rows that have just become permanently hidden are no longer stored, but are output once more.
        before, after = self._snapshot(state, {}, advance.before), self._snapshot(tables, changed_rows, advance.after)
        old, new = self._affected_rows(before, after, changed_keys), self._affected_rows(after, before, changed_keys)
        return tables, self._output_delta(old, new)

    def _snapshot(self, state: State, changed_rows: Mapping[str, JoinRows], horizons: Horizons) -> JoinSnapshot:
        rows: dict[str, RowsByKey] = {}
        open_keys: dict[str, set[Key]] = {}
        for side in (self.sides.left, self.sides.right):
            rows[side.name], open_keys[side.name] = {}, set()
            stored_rows = side.decode_rows(state[side.name].scan())
            for part in (stored_rows, changed_rows[side.name]) if side.name in changed_rows else (stored_rows,):
                part_rows = rows_by_key(side, part)
                is_sealed = self._is_sealed(side, part, horizons)[masks.is_present(part.knowledge.mask)]
                rows[side.name] |= part_rows
                open_keys[side.name] |= {key for key, s in zip(part_rows, is_sealed.tolist(), strict=True) if not s}
        return JoinSnapshot(rows, open_keys, horizons)

    # ── output rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _affected_rows(self, now: JoinSnapshot, then: JoinSnapshot, changed_keys: Mapping[str, set[Key]]) -> RowsByKey:
        """The output rows that may differ between the two snapshots, as they are in `now`."""
        left, right = self.sides.left, self.sides.right
        if self.probe is not None:
            keys = self._affected_keys(self.probe, now, then, changed_keys)
            rows = now.rows[self.probe.name]
            return dict(self._lookup_row(now, self.probe, key, rows[key]) for key in keys if key in rows)
        result: RowsByKey = {}
        for key, row in now.rows["left"].items():
            for other_key, other in now.rows["right"].items():
                if key in changed_keys["left"] or other_key in changed_keys["right"]:
                    row_masks = (T if left.total else row.mask, T if right.total else other.mask)
                    mask = all_of(*row_masks, self._match_mask(row, other, left)).null_as_false()
                    self._add_pair(result, row, other, mask)
        # The matches of default rows may change whenever a row changes or the default rows do.
        for probe, rows in ((left, now.rows["left"]), (right, now.rows["right"])):
            for row in rows.values():
                for other in self._default_rows(now, row, probe, self.sides.other(probe)):
                    mask = self._match_mask(row, other, probe)
                    if mask.possible != {False}:
                        pair = (row, other) if probe is left else (other, row)
                        self._add_pair(result, *pair, all_of(T if probe.total else row.mask, mask).null_as_false())
        for side in (left, right):
            if side.name in self.preserved_sides:
                rows = now.rows[side.name]
                for key in self._affected_keys(side, now, then, changed_keys):
                    if key in rows:
                        self._add_unmatched(now, side, key, rows[key], result)
        return result

    def _affected_keys(
        self, probe: JoinSide, now: JoinSnapshot, then: JoinSnapshot, changed_keys: Mapping[str, set[Key]]
    ) -> set[Key]:
        """The rows of `probe` that changed, that a changed row of the other side may match, or that no new row can
        match any more."""
        other = self.sides.other(probe)
        affected = set(changed_keys[probe.name]) | (now.open_keys[probe.name] ^ then.open_keys[probe.name])
        changed_rows = [
            s.rows[other.name][k] for s in (now, then) for k in changed_keys[other.name] if k in s.rows[other.name]
        ]
        for snapshot in (now, then):
            for key, row in snapshot.rows[probe.name].items():
                if key not in affected and any(
                    self._match_mask(row, c, probe).possible != {False} for c in changed_rows
                ):
                    affected.add(key)
        if other.total and now.horizons != then.horizons:
            affected |= set(now.rows[probe.name])
        return affected

    def _add_pair(self, result: RowsByKey, left: JoinRow, right: JoinRow, mask: Mask) -> None:
        cells = self._merge_cells(left.cells, right.cells)
        result[self._output_key(cells)] = JoinRow(mask, cells, left.steps + right.steps)

    def _add_unmatched(self, snapshot: JoinSnapshot, side: JoinSide, key: Key, row: JoinRow, result: RowsByKey) -> None:
        other = self.sides.other(side)
        nulls = {c: row.cells.get(c, null_cell(t)) for c, t in other.layout.types.items()}
        on_left = side is self.sides.left
        cells = self._merge_cells(row.cells, nulls) if on_left else self._merge_cells(nulls, row.cells)
        match_masks = [mask for mask, _ in self._find_matches(snapshot, row, side)]
        match_excludes_others = other.total or not other.source.type.can_become_absent
        match_masks += [MAY_APPEAR] if self._can_gain_match(snapshot, side, key, row, match_excludes_others) else []
        mask = all_of(row.mask, negation(any_of(match_masks)).null_as_false())
        output_key = self._output_key(cells)
        if output_key in result:
            raise UnsupportedJoinError(
                self.rel, "a row of the outer join has NULL for a key, as rows without a match do"
            )
        result[output_key] = JoinRow(mask, cells, row.steps)

    def _lookup_row(self, snapshot: JoinSnapshot, probe: JoinSide, key: Key, row: JoinRow) -> tuple[Key, JoinRow]:
        other = self.sides.other(probe)
        matches = list(self._find_matches(snapshot, row, probe))
        can_gain = self._can_gain_match(snapshot, probe, key, row)
        match_cells = self._match_cells(probe, other, row, matches, can_gain)
        on_left = probe is self.sides.left
        cells = self._merge_cells(row.cells, match_cells) if on_left else self._merge_cells(match_cells, row.cells)
        match_mask = any_of([*(mask for mask, _ in matches), *([MAY_APPEAR] if can_gain else [])]).null_as_false()
        mask = row.mask if self.preserved_sides else all_of(row.mask, match_mask)
        return self._output_key(cells), JoinRow(mask, cells, row.steps + sum(r.steps for _, r in matches))

    def _match_cells(
        self, probe: JoinSide, build: JoinSide, row: JoinRow, matches: list[tuple[Mask, JoinRow]], can_gain_match: bool
    ) -> dict[str, CellKnowledge]:
        """The columns of the one match: the hull of all rows that it may turn out to be, including none and an absent
        one."""
        shared = {c for c in row.cells if c in build.on and c in probe.on}
        shown_cells = next((r.cells for mask, r in matches if mask.is_shown), None)
        certain_cells = next((r.cells for mask, r in matches if mask.is_permanently_shown), None)
        chosen: dict[str, CellKnowledge] = {}
        bottoms = build.source.bottoms
        kinds = build.source.type.columns
        lookup_columns = {b: a for a, b in zip(probe.on, build.on, strict=True) if not kinds[b].evolves}
        for name, data in build.layout.types.items():
            if name in shared:
                chosen[name] = row.cells[name]
            elif certain_cells is not None:
                chosen[name] = certain_cells[name]
            else:
                cells = [r.cells[name] for mask, r in matches if not mask.is_permanently_hidden]
                if not self.preserved_sides and not cells:
                    # Hidden columns keep their knowledge.
                    cells = [r.cells[name] for _, r in matches]
                cells += [null_cell(data)] if self.preserved_sides or not cells else []
                cells += (
                    [row.cells[lookup_columns[name]] if name in lookup_columns else bottoms[name]]
                    if can_gain_match
                    else []
                )
                chosen[name] = cell_hull(
                    cells, None if shown_cells is None else shown_cells[name].now, bottoms[name], data
                )
        return chosen

    # ── matches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _find_matches(self, snapshot: JoinSnapshot, row: JoinRow, probe: JoinSide) -> Iterator[tuple[Mask, JoinRow]]:
        """The rows of the other side that match or may match, each with the mask of being shown and matching."""
        other = self.sides.other(probe)
        rows = snapshot.rows[other.name]
        for candidate in [*rows.values(), *self._default_rows(snapshot, row, probe, other)]:
            mask = self._match_mask(row, candidate, probe)
            if mask.possible != {False}:
                yield all_of(T if other.total else candidate.mask, mask), candidate

    def _default_rows(
        self, snapshot: JoinSnapshot, row: JoinRow, probe: JoinSide, build: JoinSide
    ) -> Iterator[JoinRow]:
        if not build.total:
            return
        lookup_key = self._lookup_key(row, probe, build)
        if None in lookup_key or lookup_key in snapshot.rows[build.name]:
            return
        types = build.layout.types
        key = {c: from_python([value], types[c]) for c, value in zip(build.key, lookup_key, strict=True)}
        transform = build.source.transform
        assert transform is not None, "a stream is never total"
        defaults = transform.default_rows(key, 1, snapshot.horizons)
        yield from rows_by_key(build, JoinRows(defaults.fixed, defaults.new)).values()

    def _match_mask(self, row: JoinRow, candidate: JoinRow, probe: JoinSide) -> Mask:
        left, right = (row, candidate) if probe is self.sides.left else (candidate, row)
        if self._has_conflicting_keys(left.cells, self.sides.left) or self._has_conflicting_keys(
            right.cells, self.sides.right
        ):
            return F
        equal_mask = all_of(*(equality_mask(left.cells[a], right.cells[b]) for a, b in self.rel.on)).null_as_false()
        if self.rel.when is None or equal_mask.possible == {False}:
            return equal_mask
        cells = {**right.cells, **left.cells}
        columns = trees.columns_in(self.rel.when)
        operands = {c: to_operand_in_domain(cells[c], self.bottoms[c], self.types[c]) for c in columns}
        when = expression_knowledge(self.rel.when, operands, self.types)
        assert isinstance(when, Mask)
        return all_of(equal_mask, when.null_as_false())

    def _has_conflicting_keys(self, cells: Cells, side: JoinSide) -> bool:
        """Whether two columns that are equated to the same column of the other side differ: then no row matches."""
        cell_pairs = ((cells[a], cells[b]) for a, b in self.columns_equated_twice[side.name])
        return any(a.is_final and b.is_final and a.now != b.now for a, b in cell_pairs)

    def _lookup_key(self, row: JoinRow, probe: JoinSide, build: JoinSide) -> Key:
        source = {b: a for a, b in zip(probe.on, build.on, strict=True)}
        return tuple(row.cells[source[c]].now for c in build.key)

    def _can_gain_match(
        self, snapshot: JoinSnapshot, probe: JoinSide, key: Key, row: JoinRow, match_excludes_others: bool = True
    ) -> bool:
        """Whether an absent row of the other side may still come and match this row. `match_excludes_others`: if
        the row with the key that this row looks up is present, no absent row can match."""
        other = self.sides.other(probe)
        key_cells = [row.cells[a] for a in probe.on]
        if any(c.is_final and c.now is None for c in key_cells):
            return False
        if self._has_conflicting_keys(row.cells, probe):
            return False
        is_key_final = all(c.is_final for c in key_cells)
        if other.total and not is_key_final:
            return True
        if match_excludes_others and other.covers_key and is_key_final:
            lookup_key = self._lookup_key(row, probe, other)
            if lookup_key in snapshot.rows[other.name] or (other.total and None not in lookup_key):
                return False
        return key in snapshot.open_keys[probe.name]

    # ── building the output ─────────────────────────────────────────────────────────────────────────────────────────

    def _merge_cells(self, left: Cells, right: Cells) -> dict[str, CellKnowledge]:
        merged = {**left, **right} if self.rel.kind == "right" else {**right, **left}
        for name in set(self.sides.right.key) & set(left) - set(self.sides.left.key):
            merged[name] = right.get(name, left[name])
        return {c: merged[c] for c in self.output.type.heading.columns}

    def _output_key(self, cells: Cells) -> Key:
        return tuple(cells[c].now for c in self.layout.key)

    def _output_delta(self, old: RowsByKey, new: RowsByKey) -> Delta | None:
        keys = list(dict.fromkeys([*old, *new]))
        if not keys:
            return None
        new_rows = [new[k] if k in new else old[k] for k in keys]
        old_rows = [old[k] if k in old else new[k] for k in keys]
        types = self.layout.types
        fixed = {c: from_python([r.cells[c].now for r in new_rows], types[c]) for c in self.layout.fixed}
        delta = Delta(fixed, self._row_knowledge(keys, old_rows, old), self._row_knowledge(keys, new_rows, new))
        return drop_unchanged_rows(delta, self.layout.includes_permanently_hidden)

    def _row_knowledge(self, keys: list[Key], rows: list[JoinRow], relation: RowsByKey) -> RowKnowledge:
        columns = {c: column_from_cells([r.cells[c] for r in rows], e) for c, e in self.layout.evolving.items()}
        codes = [masks.encode_mask(r.mask) if k in relation else masks.ABSENT for k, r in zip(keys, rows, strict=True)]
        return RowKnowledge(columns, np.array(codes, np.uint8), np.array([r.steps for r in rows], np.int64))
