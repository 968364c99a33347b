"""Joins on the other side's whole key: each row of one side is there once, with the one row that it asks for, or none.

Where the other side is total the default row stands in for one nobody has heard of. Else a row of a side that is
preserved has NULLs for as long as none has come, and for good once none can.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Bools, ValueColumn, true_indices
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.joins.default_rows import default_row_seals, with_defaults
from smile.kernels.joins.inner_join import equal_pairs
from smile.kernels.joins.join_seals import JoinSeals, concat_lookups, empty_lookup
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides, MultiSourceColumns, SideName
from smile.kernels.joins.optional_rows import (
    MISSING,
    PENDING,
    OptionalColumns,
    OptionalRows,
    optional_kinds,
    presence_states,
)
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons, Seals
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable


class LookupJoin(Transform):
    """`own` are the rows that ask, by their columns `asking`, for the key of a row of the `other` side."""

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
        """Whether there always is a match, unless NULL is asked for."""
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
        self.expiry_seals = JoinSeals(
            Seals(row_and_match_seals(self.build), self.build.source.type.heading.columns), "done"
        )
        """When rows of the other side are final, and no row that asks for them can come or change."""
        self.table_schemas = {self.probe.name: self._probe_table_schema(), self.build.name: self._build_table_schema()}
        self.table_sources = sides.table_sources

    def _assign_columns(self) -> dict[str, JoinSide]:
        """What is equated under one name is the asking row's."""
        shared = {c for c in self.probe.on if c in self.build.on and c in self.probe.layout.types}
        return {c: self.probe if c in shared else side for c, side in self.sides.column_sides.items()}

    def _layout(self, output: OutputRelation) -> Layout:
        fixed, evolving = {}, dict[str, EvolvingColumnLayout]()
        for name, side in self.column_sides.items():
            is_other = side is self.build
            if name in side.layout.fixed and not (is_other and self.preserved and not self.always_matches):
                fixed[name] = side.layout.fixed[name]
            else:
                evolving[name] = self.optional_kinds[name] if is_other and self.nullable else side.layout.evolving[name]
        certain = self.probe.layout.certain and (
            self.preserved or (self.always_matches and self.sides.condition is None)
        )
        return Layout(output.type.heading.key, fixed, evolving, certain, output.includes_permanently_hidden)

    def _probe_table_schema(self) -> TableSchema:
        schema = self.probe.table_schema
        ticks = {order: pa.int64() for ends in self.absent_row_seals for order in ends.tick_columns.values()}
        self.probe_index = tuple(stored_column(a) for a in self.lookup_columns.values())
        orders = tuple(dict.fromkeys([*schema.tick_indexes, *ticks]))
        return TableSchema(
            schema.key, {**schema.columns, **ticks}, (self.probe_index,) if self.probe_index else (), orders
        )

    def _build_table_schema(self) -> TableSchema:
        schema, orders = self.build.table_schema, tuple(self.expiry_seals.tick_columns.values())
        columns = {c: t for c, t in schema.columns.items() if c not in schema.tick_indexes}
        return TableSchema(schema.key, {**columns, **{order: pa.int64() for order in orders}}, (), orders)

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return any(
            ends.can_seal_rows(advance) for ends in (*self.absent_row_seals, self.probe.match_seals, self.expiry_seals)
        )

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────────────────────────

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
        output = (
            drop_unchanged_rows(concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden)
            if parts
            else None
        )
        return self._expire(probe_table, build_table, advance), output

    def _probe_rows_changed(
        self, probe_delta: Delta, old_build: StateTable, new_build: StateTable, advance: HorizonAdvance
    ) -> Delta:
        """Rows that ask, and changed themselves."""
        usable = self._valid_keys(probe_delta.fixed)
        lookup_key = [probe_delta.fixed[a] for a in self.lookup_columns.values()]
        new = self._join_rows(
            probe_delta.fixed,
            probe_delta.new,
            self._find_build_rows(new_build, lookup_key, usable, len(probe_delta)),
            usable,
            advance.after,
        )
        if probe_delta.old is None:
            return Delta(new[0], None, new[1])
        old = self._join_rows(
            probe_delta.fixed,
            probe_delta.old,
            self._find_build_rows(old_build, lookup_key, usable, len(probe_delta)),
            usable,
            advance.before,
        )
        return Delta(new[0], old[1], new[1])

    def _build_rows_changed(
        self, unchanged_probe: StateTable, build_delta: Delta, advance: HorizonAdvance
    ) -> list[Delta]:
        """Rows that did not change, but what they ask for did."""
        key = [build_delta.fixed[b] for b in self.lookup_columns]
        if self.probe_index:
            build_numbers, probe_lookup = unchanged_probe.match(self.probe_index, key, ordered=False)
        else:
            probe_lookup = unchanged_probe.scan()
            build_numbers = np.zeros(len(probe_lookup), np.int64)
        if not len(build_numbers):
            return []
        rows = self.probe.decode_rows(probe_lookup)
        matched_delta = build_delta.take(build_numbers)
        old_build = (
            JoinRows(matched_delta.fixed, matched_delta.old)
            if matched_delta.old is not None
            else self._absent_build_rows(rows)
        )
        new = self._join_rows(
            rows.fixed, rows.knowledge, JoinRows(matched_delta.fixed, matched_delta.new), None, advance.after
        )
        old = self._join_rows(rows.fixed, rows.knowledge, old_build, None, advance.before)
        return [Delta(new[0], old[1], new[1])]

    def _horizons_advanced(
        self, unchanged_probe: StateTable, build_table: StateTable, build_delta: Delta | None, advance: HorizonAdvance
    ) -> list[Delta]:
        """Rows that did not change, and ask for one nobody has heard of; but the horizons say more about it."""
        sealed = self._find_sealed_rows(unchanged_probe, advance)
        if not len(sealed):
            return []
        lookup_key = [sealed[c] for c in self.probe_index]
        is_present = find_by_key(build_table, lookup_key, len(sealed)).run_numbers >= 0
        if build_delta is not None:
            # Those have been told already, even if nothing is left of what was heard of.
            changed_rows, _ = equal_pairs(
                lookup_key, [build_delta.fixed[b] for b in self.lookup_columns], len(sealed), len(build_delta)
            )
            is_present[changed_rows] = True
        if is_present.any():
            sealed = sealed.take(true_indices(~is_present))
        if not len(sealed):
            return []
        rows = self.probe.decode_rows(sealed)
        absent = self._absent_build_rows(rows)
        new = self._join_rows(rows.fixed, rows.knowledge, absent, None, advance.after)
        old = self._join_rows(rows.fixed, rows.knowledge, absent, None, advance.before)
        return [Delta(new[0], old[1], new[1])]

    def _find_sealed_rows(self, unchanged_probe: StateTable, advance: HorizonAdvance) -> RowLookup:
        parts: list[RowLookup] = []
        for ends in self.absent_row_seals:
            sealed = ends.find_sealed_rows(unchanged_probe, advance)
            if parts and len(sealed):
                both = concat_lookups(unchanged_probe, [*parts, sealed])
                _, first = np.unique((both.run_numbers << 40) | both.row_numbers, return_index=True)
                sealed, parts = both.take(first), []
            parts.append(sealed)
        return concat_lookups(unchanged_probe, parts) if parts else empty_lookup(unchanged_probe)

    # ── rows put together ───────────────────────────────────────────────────────────────────────────────────────────

    def _join_rows(
        self,
        fixed: Mapping[str, ValueColumn],
        knowledge: RowKnowledge,
        build: JoinRows,
        valid_keys: Bools | None,
        horizons: Horizons,
    ) -> tuple[Mapping[str, ValueColumn], RowKnowledge]:
        """Asking rows with what they ask for, which has no mask where it is unheard of; `usable` as `_usable` says."""
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
        """The other side's key is what is asked for."""
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
        """Whether they match, as far as it is not settled by what is asked for: None if all do."""
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
        presence = presence_states(match_mask)
        if not self.total:
            can_come = ~is_stored & ~self.probe.match_seals.is_sealed(probe.fixed, count, horizons)
            presence[can_come if valid_keys is None else can_come & valid_keys] = PENDING
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

    # ── what is remembered ──────────────────────────────────────────────────────────────────────────────────────────

    def _valid_keys(self, fixed: Mapping[str, ValueColumn]) -> Bools | None:
        """Rows that ask neither for NULL nor for two values of one column; None if all are such."""
        is_valid: Bools | None = None
        for valid in (fixed[a].valid for a in self.probe.on):
            if valid is not None:
                is_valid = valid if is_valid is None else is_valid & valid
        for a, b in self.sides.columns_equated_twice(self.probe):
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
        """As many rows of the other side as these, of which nobody has heard."""
        none = np.full(len(rows), -1)
        return self.build.decode_rows(RowLookup(StateTable(self.table_schemas[self.build.name]), none, none))

    def _update_probe_table(
        self, table: StateTable, probe_delta: Delta | None, advance: HorizonAdvance
    ) -> tuple[StateTable, StateTable]:
        """The remembered rows that do not change, and all of them. A row that is hidden for good is not worth another
        word, one that asks for NULL asks in vain, and what another asks for may be all there ever will be."""
        if probe_delta is None:
            return table, table
        new, count = probe_delta.new, len(probe_delta)
        keep = masks.can_be_shown(new.mask) & ~self.probe.match_seals.is_sealed(probe_delta.fixed, count, advance.after)
        usable = self._valid_keys(probe_delta.fixed)
        if usable is not None:
            keep &= usable
        if probe_delta.old is None and not keep.all():
            kept_rows = true_indices(keep)
            if not len(kept_rows):
                return table, table
            probe_delta, keep, count = probe_delta.take(kept_rows), keep[kept_rows], len(kept_rows)
        rows = self.probe.encode_rows(probe_delta.fixed, probe_delta.new)
        for ends in self.absent_row_seals:
            rows |= ends.ticks(probe_delta.fixed, count)
        return table.split_and_update(
            rows, None if keep.all() else ~keep, None, self.probe.known_stored_rows(table, probe_delta)
        )

    def _update_build_table(self, table: StateTable, build_delta: Delta | None) -> StateTable:
        if build_delta is None:
            return table
        mask = build_delta.new.mask
        keep = masks.is_present(mask) if self.build.layout.includes_permanently_hidden else masks.can_be_shown(mask)
        rows = self.build.encode_rows(build_delta.fixed, build_delta.new) | self.expiry_seals.ticks(
            build_delta.fixed, len(build_delta)
        )
        return table.with_rows(rows, None if keep.all() else ~keep, self.build.known_stored_rows(table, build_delta))

    def _expire(self, probe: StateTable, build: StateTable, advance: HorizonAdvance) -> State:
        probe_name, build_name = self.probe.name, self.build.name
        if self.probe.match_seals.is_finished(advance.after) and self.expiry_seals.is_finished(advance.after):
            return {name: StateTable(schema) for name, schema in self.table_schemas.items()}
        if advance.has_moved:
            probe = probe.without_rows(self.probe.match_seals.find_sealed_rows(probe, advance))
            sealed = self.expiry_seals.find_sealed_rows(build, advance)
            if len(sealed):
                # Who asks for what is final is final as well, and would take it for unheard of.
                build_key = [sealed[stored_column(b)] for b in self.lookup_columns]
                probe = probe.without_rows(
                    probe.match(self.probe_index, build_key)[1] if self.probe_index else probe.scan()
                )
                build = build.without_rows(sealed)
        return {probe_name: probe, build_name: build}


def find_by_key(table: StateTable, key: Sequence[ValueColumn], count: int) -> RowLookup:
    """The row of each of so many keys; a table without a key has but one."""
    lookup = table.find(key)[1]
    return lookup if key else lookup.take(np.zeros(count, np.int64))


def row_and_match_seals(side: JoinSide) -> dict[str, Seal]:
    """In the terms of a side's rows: when it is sealed itself, and every row that can meet it."""
    own_seals = side.source.type.seals
    columns = set(side.fixed)
    seals = {s: seal if {c for c, _ in seal.terms} <= {*columns, ""} else Seal.NEVER for s, seal in own_seals.items()}
    for stream, seal in side.other_side_seals.by_stream.items():
        seals[stream] = seals[stream].latest(seal) if stream in seals else seal
    return seals
