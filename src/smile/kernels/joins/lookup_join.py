"""Joins on the whole key of one side, the build side: each probe row is output once, with its one match or none.

If the build side is total, its default row replaces an absent row. Else a preserved probe row has NULLs while its match
is absent, which are final once no match can come.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Bools, ValueColumn, true_indices
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.joins.default_rows import default_row_seals, with_defaults
from smile.kernels.joins.inner_join import equal_pairs
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides, MultiSourceColumns, SideName
from smile.kernels.joins.optional_rows import (
    MISSING,
    OptionalColumns,
    OptionalRows,
    optional_kinds,
    presence_states,
)
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex, all_or_never
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable


class LookupJoin(Transform):
    """`lookup_columns` maps the key columns of the build side to the probe columns that they are equated to;
    `extra_equalities` are all other equalities."""

    def __init__(
        self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation, probe: SideName
    ) -> None:
        self.sides = sides = JoinSides(rel, left, right, output)
        self.probe, self.build = (sides.left, sides.right) if probe == "left" else (sides.right, sides.left)
        self.preserved, self.total = rel.kind != "inner", self.build.total
        probe_columns = dict(zip(self.build.on, self.probe.on, strict=True))
        self.lookup_columns = {b: probe_columns[b] for b in self.build.key}
        self.extra_equalities = [
            (a, b) for a, b in zip(self.probe.on, self.build.on, strict=True) if self.lookup_columns.get(b) != a
        ]
        self.always_matches = self.total and not sides.has_extra_conditions and not self.extra_equalities
        """Whether every probe row has a match, unless its lookup key contains NULL."""
        types = self.probe.source.type.columns
        self.nullable = self.preserved and (
            not self.always_matches or any(types[a].nullable for a in self.lookup_columns.values())
        )
        self.optional_kinds = optional_kinds(self.build.layout)
        self.column_sides = self._assign_columns()
        self.layout = self._layout(output)
        self.absent_row_seals = (
            default_row_seals(self.build, self.lookup_columns, types) if self.total else [self.probe.match_seals]
        )
        self.expiry_seals = expiry_index(self.build)
        """When a build row is final, and no probe row that it matches can come or change."""
        self.table_schemas = {self.probe.name: self._probe_table_schema(), self.build.name: self._build_table_schema()}
        self.table_sources = sides.table_sources

    def _assign_columns(self) -> dict[str, JoinSide]:
        """The side of each output column. A join key column with the same name on both sides is the probe row's."""
        shared = {c for c in self.probe.on if c in self.build.on and c in self.probe.layout.types}
        return {c: self.probe if c in shared else side for c, side in self.sides.column_sides.items()}

    def _layout(self, output: OutputRelation) -> Layout:
        fixed, evolving = {}, dict[str, EvolvingColumnLayout]()
        for name, side in self.column_sides.items():
            is_build = side is self.build
            if name in side.layout.fixed and not (is_build and self.preserved and not self.always_matches):
                fixed[name] = side.layout.fixed[name]
            else:
                evolving[name] = self.optional_kinds[name] if is_build and self.nullable else side.layout.evolving[name]
        certain = self.probe.layout.certain and (
            self.preserved or (self.always_matches and self.sides.condition is None)
        )
        return Layout(output.type.heading.key, fixed, evolving, certain, output.includes_permanently_hidden)

    def _probe_table_schema(self) -> TableSchema:
        schema = self.probe.table_schema
        ticks = {c: data for seals in self.absent_row_seals for c, data in seals.column_types.items()}
        self.probe_index = tuple(stored_column(a) for a in self.lookup_columns.values())
        tick_columns = tuple(dict.fromkeys([*schema.tick_indexes, *ticks]))
        return TableSchema(
            schema.key, {**schema.columns, **ticks}, (self.probe_index,) if self.probe_index else (), tick_columns
        )

    def _build_table_schema(self) -> TableSchema:
        schema, ticks = self.build.table_schema, self.expiry_seals.column_types
        columns = {c: t for c, t in schema.columns.items() if c not in schema.tick_indexes}
        return TableSchema(schema.key, {**columns, **ticks}, (), tuple(ticks))

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return any(
            seals.can_seal_rows(advance)
            for seals in (*self.absent_row_seals, self.probe.match_seals, self.expiry_seals)
        )

    # ── processing a batch ──────────────────────────────────────────────────────────────────────────────────────────

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        probe_delta, build_delta = inputs if self.probe is self.sides.left else inputs[::-1]
        old_build = state[self.build.name]
        unchanged_probe, probe_table = self._update_probe_table(state[self.probe.name], probe_delta, advance)
        build_table = self._update_build_table(old_build, build_delta)
        parts = []
        if probe_delta is not None:
            parts.append(self._probe_rows_changed(probe_delta, old_build, build_table, advance))
        if build_delta is not None:
            parts += self._build_rows_changed(unchanged_probe, build_delta, advance)
        if advance.has_moved:
            parts += self._horizons_advanced(unchanged_probe, build_table, build_delta, advance)
        parts = [p for p in parts if len(p)]
        output = None
        if parts:
            output = drop_unchanged_rows(concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden)
        return self._expire(probe_table, build_table, advance), output

    def _probe_rows_changed(
        self, probe_delta: Delta, old_build: StateTable, new_build: StateTable, advance: HorizonAdvance
    ) -> Delta:
        """The output of probe rows that changed."""
        valid_keys = self._valid_keys(probe_delta.fixed)
        lookup_key = [probe_delta.fixed[a] for a in self.lookup_columns.values()]
        build = self._find_build_rows(new_build, lookup_key, valid_keys, len(probe_delta))
        new = self._join_rows(probe_delta.fixed, probe_delta.new, build, valid_keys, advance.after)
        if probe_delta.old is None:
            return Delta(new[0], None, new[1])
        build = self._find_build_rows(old_build, lookup_key, valid_keys, len(probe_delta))
        old = self._join_rows(probe_delta.fixed, probe_delta.old, build, valid_keys, advance.before)
        return Delta(new[0], old[1], new[1])

    def _build_rows_changed(
        self, unchanged_probe: StateTable, build_delta: Delta, advance: HorizonAdvance
    ) -> list[Delta]:
        """The output of unchanged probe rows whose match changed."""
        key = [build_delta.fixed[b] for b in self.lookup_columns]
        if self.probe_index:
            build_numbers, probe_lookup = unchanged_probe.match(self.probe_index, key, ordered=False)
        else:
            probe_lookup = unchanged_probe.scan()
            build_numbers = np.zeros(probe_lookup.row_count, np.int64)
        if not len(build_numbers):
            return []
        rows = self.probe.decode_rows(probe_lookup)
        matched_delta = build_delta.take(build_numbers)
        if matched_delta.old is None:
            old_build = self._absent_build_rows(rows)
        else:
            old_build = JoinRows(matched_delta.fixed, matched_delta.old)
        new_build = JoinRows(matched_delta.fixed, matched_delta.new)
        new = self._join_rows(rows.fixed, rows.knowledge, new_build, None, advance.after)
        old = self._join_rows(rows.fixed, rows.knowledge, old_build, None, advance.before)
        return [Delta(new[0], old[1], new[1])]

    def _horizons_advanced(
        self, unchanged_probe: StateTable, build_table: StateTable, build_delta: Delta | None, advance: HorizonAdvance
    ) -> list[Delta]:
        """The output of unchanged probe rows whose match is absent, but the horizons changed the knowledge of it."""
        sealed = self._find_sealed_rows(unchanged_probe, advance)
        if not sealed.row_count:
            return []
        lookup_key = [sealed[c] for c in self.probe_index]
        is_present = find_by_key(build_table, lookup_key, sealed.row_count).run_numbers >= 0
        if build_delta is not None:
            # `_build_rows_changed` has output these rows, even if their match is absent now.
            changed_rows, _ = equal_pairs(
                lookup_key, [build_delta.fixed[b] for b in self.lookup_columns], sealed.row_count, len(build_delta)
            )
            is_present[changed_rows] = True
        if is_present.any():
            sealed = sealed.take(true_indices(~is_present))
        if not sealed.row_count:
            return []
        rows = self.probe.decode_rows(sealed)
        absent = self._absent_build_rows(rows)
        new = self._join_rows(rows.fixed, rows.knowledge, absent, None, advance.after)
        old = self._join_rows(rows.fixed, rows.knowledge, absent, None, advance.before)
        return [Delta(new[0], old[1], new[1])]

    def _find_sealed_rows(self, unchanged_probe: StateTable, advance: HorizonAdvance) -> RowLookup:
        parts = [seals.find_sealed_rows(unchanged_probe, advance) for seals in self.absent_row_seals]
        return parts[0] if len(parts) == 1 else RowLookup.union(unchanged_probe, parts)

    # ── building the output ─────────────────────────────────────────────────────────────────────────────────────────

    def _join_rows(
        self,
        fixed: Mapping[str, ValueColumn],
        knowledge: RowKnowledge,
        build: JoinRows,
        valid_keys: Bools | None,
        horizons: Horizons,
    ) -> tuple[Mapping[str, ValueColumn], RowKnowledge]:
        """The output of probe rows, each with its build row, which may be absent. `valid_keys`: see `_valid_keys`."""
        is_stored = masks.is_present(build.knowledge.mask)
        lookup_key = {b: fixed[a] for b, a in self.lookup_columns.items()}
        if self.total:
            build = with_defaults(self.build, build, lookup_key, valid_keys, horizons)
        present = masks.is_present(build.knowledge.mask)
        probe = JoinRows(fixed, knowledge)
        match = self._match_codes(probe, build, present)
        mask, steps = knowledge.mask, knowledge.steps + build.knowledge.steps
        if match is not None:
            steps = np.where(match == masks.F, knowledge.steps, steps)
        if not self.preserved and match is not None:
            mask = masks.all_of(mask, match)
            mask[(match == masks.F) | (knowledge.mask == masks.ABSENT)] = masks.ABSENT
        columns: Mapping[str, KnowledgeColumn] = build.knowledge.columns
        if self.nullable:
            columns = self._optional_columns(probe, build, is_stored, match, valid_keys, horizons)
        output_columns = MultiSourceColumns(
            {c: knowledge.columns if self.column_sides[c] is self.probe else columns for c in self.layout.evolving}
        )
        return self._fixed_columns(fixed, build.fixed, valid_keys), RowKnowledge(output_columns, mask, steps)

    def _fixed_columns(
        self, probe: Mapping[str, ValueColumn], build: Mapping[str, ValueColumn], valid_keys: Bools | None
    ) -> Mapping[str, ValueColumn]:
        """The fixed output columns. The build key equals the lookup key, so it is known even if the row is absent."""
        sources: dict[str, Mapping[str, ValueColumn]] = {}
        for name in self.layout.fixed:
            if self.column_sides[name] is self.probe:
                sources[name] = probe
            elif name in self.lookup_columns:
                column = probe[self.lookup_columns[name]]
                sources[name] = {
                    name: column if valid_keys is None else ValueColumn(column.data, column.is_valid() & valid_keys)
                }
            else:
                sources[name] = build
        return MultiSourceColumns(sources)

    def _match_codes(self, probe: JoinRows, build: JoinRows, present: Bools) -> MaskCodes | None:
        """Whether the rows match, given that the lookup key is equal; None if all do."""
        if not self.extra_equalities and self.sides.condition is None:
            return None if present.all() else np.where(present, np.uint8(masks.T), np.uint8(masks.F))
        present_rows = true_indices(present & masks.is_present(probe.knowledge.mask))
        probe, build = probe.take(present_rows), build.take(present_rows)
        equal = np.ones(len(present_rows), bool)
        for a, b in self.extra_equalities:
            probe_values, build_values = probe.fixed[a], build.fixed[b]
            equal &= probe_values.same(build_values) & probe_values.is_valid()
        left, right = (probe, build) if self.probe is self.sides.left else (build, probe)
        codes = self.sides.evaluate_condition(left, right)
        match_codes = masks.full(masks.F, len(present))
        match_codes[present_rows] = np.where(equal, np.uint8(masks.T) if codes is None else codes, np.uint8(masks.F))
        return match_codes

    def _optional_columns(
        self,
        probe: JoinRows,
        build: JoinRows,
        is_stored: Bools,
        match: MaskCodes | None,
        valid_keys: Bools | None,
        horizons: Horizons,
    ) -> OptionalColumns:
        count = len(probe)
        match_mask = masks.full(masks.T, count) if match is None else match
        if not self.total:
            match_mask = np.where(is_stored, masks.all_of(build.knowledge.mask, match_mask), np.uint8(masks.F))
        can_come = np.zeros(count, bool)
        if not self.total:
            can_come = ~is_stored if self.build.excludes_others else match_mask != masks.T
            can_come &= ~self.probe.has_final_matches(probe.fixed, count, horizons)
            if valid_keys is not None:
                can_come &= valid_keys
        presence = presence_states(match_mask, can_come)
        if valid_keys is not None:
            presence[~valid_keys] = MISSING
        probe_values = dict(zip(self.build.on, (probe.fixed[a] for a in self.probe.on), strict=True))
        shown = masks.is_shown(match_mask)
        bottoms = self.build.source.bottoms
        return OptionalColumns(
            OptionalRows(
                self.optional_kinds, bottoms, presence, shown, build.fixed, build.knowledge.columns, probe_values
            )
        )

    # ── stored rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _valid_keys(self, fixed: Mapping[str, ValueColumn]) -> Bools | None:
        """The probe rows whose join key has no NULL and no two values for the same build column; None: all rows."""
        is_valid: Bools | None = None
        for valid in (fixed[a].valid for a in self.probe.on):
            if valid is not None:
                is_valid = valid if is_valid is None else is_valid & valid
        for a, b in self.probe.columns_equated_twice:
            same = fixed[a].same(fixed[b])
            is_valid = same if is_valid is None else is_valid & same
        return is_valid

    def _find_build_rows(
        self, table: StateTable, key: Sequence[ValueColumn], valid_keys: Bools | None, count: int
    ) -> JoinRows:
        lookup = find_by_key(table, key, count)
        if valid_keys is not None:
            lookup = RowLookup(table, np.where(valid_keys, lookup.run_numbers, -1), lookup.row_numbers)
        return self.build.decode_rows(lookup)

    def _absent_build_rows(self, rows: JoinRows) -> JoinRows:
        """One absent build row for each of these rows."""
        no_rows = np.full(len(rows), -1)
        return self.build.decode_rows(RowLookup(StateTable(self.table_schemas[self.build.name]), no_rows, no_rows))

    def _update_probe_table(
        self, table: StateTable, probe_delta: Delta | None, advance: HorizonAdvance
    ) -> tuple[StateTable, StateTable]:
        """The table of the stored probe rows that do not change, and the table after the batch. Does not store rows
        that are permanently hidden, that have no valid key, or whose match is final."""
        if probe_delta is None:
            return table, table
        new, count = probe_delta.new, len(probe_delta)
        keep = masks.can_be_shown(new.mask) & ~self.probe.has_final_matches(probe_delta.fixed, count, advance.after)
        valid_keys = self._valid_keys(probe_delta.fixed)
        if valid_keys is not None:
            keep &= valid_keys
        if probe_delta.old is None and not keep.all():
            rows_to_store = true_indices(keep)
            if not len(rows_to_store):
                return table, table
            probe_delta, keep, count = probe_delta.take(rows_to_store), keep[rows_to_store], len(rows_to_store)
        rows = self.probe.encode_rows(probe_delta.fixed, probe_delta.new)
        for seals in self.absent_row_seals:
            rows |= seals.tick_values(probe_delta.fixed, count)
        return table.split_and_update(
            rows, None if keep.all() else ~keep, None, self.probe.known_stored_rows(table, probe_delta)
        )

    def _update_build_table(self, table: StateTable, build_delta: Delta | None) -> StateTable:
        if build_delta is None:
            return table
        mask = build_delta.new.mask
        keep = masks.is_present(mask) if self.build.layout.includes_permanently_hidden else masks.can_be_shown(mask)
        rows = self.build.encode_rows(build_delta.fixed, build_delta.new) | self.expiry_seals.tick_values(
            build_delta.fixed, len(build_delta)
        )
        return table.with_rows(rows, None if keep.all() else ~keep, self.build.known_stored_rows(table, build_delta))

    def _expire(self, probe: StateTable, build: StateTable, advance: HorizonAdvance) -> State:
        probe_name, build_name = self.probe.name, self.build.name
        if self.probe.match_seals.has_ended(advance.after) and self.expiry_seals.has_ended(advance.after):
            return {name: StateTable(schema) for name, schema in self.table_schemas.items()}
        if advance.has_moved:
            probe = probe.without_rows(self.probe.rows_with_final_matches(probe, advance))
            sealed = self.expiry_seals.find_sealed_rows(build, advance)
            if sealed.row_count:
                # The probe rows of a final build row are final too, and would take it for absent.
                build_key = [sealed[stored_column(b)] for b in self.lookup_columns]
                probe = probe.without_rows(
                    probe.match(self.probe_index, build_key)[1] if self.probe_index else probe.scan()
                )
                build = build.without_rows(sealed)
        return {probe_name: probe, build_name: build}


def find_by_key(table: StateTable, key: Sequence[ValueColumn], count: int) -> RowLookup:
    """The row of each of `count` keys; a table without key columns has at most one row, which all keys find."""
    lookup = table.find(key)[1]
    return lookup if key else lookup.take(np.zeros(count, np.int64))


def expiry_index(side: JoinSide) -> SealIndex:
    """When a row of a side and all rows of the other side that it can match are sealed."""
    own_seals = side.source.type.seals
    columns = set(side.fixed)
    seals = {s: seal if seal.columns <= columns else Seal.NEVER for s, seal in own_seals.items()}
    for stream, seal in side.other_side_seals.items():
        seals[stream] = seals[stream].latest(seal) if stream in seals else seal
    return SealIndex(all_or_never(seals), side.source.type.heading.columns, "done ")
