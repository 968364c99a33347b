"""Joins of two relations on the keys of both: one row for each key that is present on either side.

A row that is absent on one side is replaced by that side's default row if the side is total (both sides, or one side of
a FULL JOIN), else by NULLs.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Bools, ValueColumn
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, drop_unchanged_rows
from smile.kernels.joins.default_rows import default_row_seals, with_defaults
from smile.kernels.joins.join_sides import JoinRows, JoinSide, JoinSides, MultiSourceColumns
from smile.kernels.joins.lookup_join import expiry_index, find_by_key
from smile.kernels.joins.optional_rows import (
    CERTAIN,
    MISSING,
    OptionalColumns,
    OptionalRows,
    optional_kinds,
    presence_states,
)
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.kernels.unsupported_join import UnsupportedJoinError
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

KeyColumns = Sequence[ValueColumn]


class KeyedJoin(Transform):
    """Common part of both joins. In all methods, keys have the columns of the left side's key."""

    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        self.sides = sides = JoinSides(rel, left, right, output)
        self.both_sides = (sides.left, sides.right)
        equated = dict(reversed(rel.on))
        self.right_key_names = {c: equated[c] for c in sides.left.key}
        """From the left side's key columns to those of the right side."""
        self.left_key_names = {b: a for a, b in rel.on if a in self.right_key_names}
        """From the right side's key columns to those of the left side."""
        self.optional_kinds = {side.name: optional_kinds(side.layout) for side in self.both_sides}
        self.absent_row_seals: dict[str, list[SealIndex]] = {
            side.name: self._absent_row_seals(side) for side in self.both_sides
        }
        self.expiry_seals: dict[str, SealIndex] = {side.name: expiry_index(side) for side in self.both_sides}
        """When a row and its match are final."""
        self.table_schemas = {side.name: self._table_schema(side) for side in self.both_sides}
        self.table_sources = sides.table_sources
        self.layout = self._layout(output)

    @abstractmethod
    def _absent_row_seals(self, side: JoinSide) -> list[SealIndex]:
        """When the knowledge of absent rows of the other side changes, in terms of this side's columns."""

    @abstractmethod
    def _layout(self, output: OutputRelation) -> Layout: ...

    @abstractmethod
    def _join_rows(self, key: KeyColumns, rows: Sequence[JoinRows], horizons: Horizons) -> JoinRows:
        """The output rows of these keys; `rows` are the rows of each side."""

    def _table_schema(self, side: JoinSide) -> TableSchema:
        seals = (*self.absent_row_seals[side.name], self.expiry_seals[side.name])
        ticks = {column: data for s in seals for column, data in s.column_types.items()}
        columns = {c: t for c, t in side.table_schema.columns.items() if c not in side.table_schema.tick_indexes}
        return TableSchema(side.table_schema.key, {**columns, **ticks}, (), tuple(ticks))

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        seals = (s for name in self.table_schemas for s in (*self.absent_row_seals[name], self.expiry_seals[name]))
        return any(s.can_seal_rows(advance) for s in seals)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        deltas = [(side, delta) for side, delta in zip(self.both_sides, inputs, strict=True) if delta is not None]
        tables = dict(state)
        for side, delta in deltas:
            tables[side.name] = self._update_table(side, state, delta)
        keys = [(self._left_key(side, delta.fixed), len(delta)) for side, delta in deltas]
        if advance.has_moved:
            for side in self.both_sides:
                for seals in self.absent_row_seals[side.name]:
                    sealed = seals.find_sealed_rows(tables[side.name], advance)
                    if sealed.row_count:
                        keys.append((self._left_key(side, side.decode_rows(sealed).fixed), sealed.row_count))
        return self._expire(tables, advance), self._output_delta(keys, state, tables, advance) if keys else None

    def _output_delta(
        self, parts: Sequence[tuple[KeyColumns, int]], before: State, after: State, advance: HorizonAdvance
    ) -> Delta:
        key = [v.concat(columns) for columns in zip(*(columns for columns, _ in parts), strict=True)]
        groups = RowGroups(key, sum(count for _, count in parts))
        key = [column.take(groups.first) for column in key]
        rows = [side.decode_rows(self._find_rows(side, before, key, groups.count)) for side in self.both_sides]
        new_rows = [side.decode_rows(self._find_rows(side, after, key, groups.count)) for side in self.both_sides]
        old, new = self._join_rows(key, rows, advance.before), self._join_rows(key, new_rows, advance.after)
        return drop_unchanged_rows(
            Delta(new.fixed, old.knowledge, new.knowledge), self.layout.includes_permanently_hidden
        )

    def _find_rows(self, side: JoinSide, state: State, key: KeyColumns, count: int) -> RowLookup:
        named = self._name_key_columns(side, key)
        return find_by_key(state[side.name], [named[c] for c in side.key], count)

    def _name_key_columns(self, side: JoinSide, key: KeyColumns) -> dict[str, ValueColumn]:
        """The key columns by the names that the side has for them."""
        named = dict(zip(self.right_key_names, key, strict=True))
        return {b: named[a] for b, a in self.left_key_names.items()} if side is self.sides.right else named

    def _left_key(self, side: JoinSide, fixed: Mapping[str, ValueColumn]) -> list[ValueColumn]:
        return [fixed[b if side is self.sides.right else a] for a, b in self.right_key_names.items()]

    def _fixed_columns(self, key: KeyColumns, rows: Sequence[JoinRows]) -> Mapping[str, ValueColumn]:
        """The fixed columns follow from the key: they are the same whether a row is present or absent."""
        left, right = (self._name_key_columns(side, key) for side in self.both_sides)
        sources: dict[str, Mapping[str, ValueColumn]] = {}
        for name in self.layout.fixed:
            side_number = 0 if self.sides.column_sides[name] is self.sides.left else 1
            named = (left, right)[side_number]
            sources[name] = named if name in named else rows[side_number].fixed
        return MultiSourceColumns(sources)

    def _update_table(self, side: JoinSide, state: State, delta: Delta | None) -> StateTable:
        table = state[side.name]
        if delta is None:
            return table
        mask = delta.new.mask
        keep = masks.is_present(mask) if side.layout.includes_permanently_hidden else masks.can_be_shown(mask)
        rows = side.encode_rows(delta.fixed, delta.new)
        for seals in (*self.absent_row_seals[side.name], self.expiry_seals[side.name]):
            rows |= seals.tick_values(delta.fixed, len(delta))
        return table.with_rows(rows, None if keep.all() else ~keep)

    def _expire(self, tables: State, advance: HorizonAdvance) -> State:
        if all(self.expiry_seals[name].has_ended(advance.after) for name in tables):
            return {name: StateTable(schema) for name, schema in self.table_schemas.items()}
        if not advance.has_moved:
            return tables
        for side in self.both_sides:
            sealed = self.expiry_seals[side.name].find_sealed_rows(tables[side.name], advance)
            if sealed.row_count:
                # Removes the rows of both sides together: else the row of one side would be taken for absent.
                key = self._left_key(side, side.decode_rows(sealed).fixed)
                lookups = {
                    other.name: self._find_rows(other, tables, key, sealed.row_count) for other in self.both_sides
                }
                tables = {
                    name: tables[name].without_rows(lookup.take(np.flatnonzero(lookup.run_numbers >= 0)))
                    for name, lookup in lookups.items()
                }
        return tables


class TotalKeyedJoin(KeyedJoin):
    """Join of two total relations. A row whose key has a NULL matches nothing, but is output if its side is preserved:
    with NULLs, or in a FULL JOIN with the other side's row of the same key."""

    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        preserved = {"left": left, "right": right}.get(rel.kind)
        self.can_lack_match = preserved is not None and any(
            preserved.type.columns[c].nullable for c in preserved.layout.key
        )
        """Whether rows of the preserved side may have no match."""
        super().__init__(rel, left, right, output)

    def _absent_row_seals(self, side: JoinSide) -> list[SealIndex]:
        other = self.sides.other(side)
        lookup_columns = self.left_key_names if other is self.sides.right else self.right_key_names
        return default_row_seals(other, lookup_columns, side.source.type.columns)

    def _layout(self, output: OutputRelation) -> Layout:
        layout = self.sides.output_layout(output.type.heading.key, False, output.includes_permanently_hidden)
        if not self.can_lack_match:
            return layout
        kinds = {
            c: self.optional_kinds[s.name][c]
            for c, s in self.sides.column_sides.items()
            if s.name != self.sides.rel.kind
        }
        evolving = {c: kinds.get(c, e) for c, e in layout.evolving.items()}
        return Layout(layout.key, layout.fixed, evolving, False, layout.includes_permanently_hidden)

    def _join_rows(self, key: KeyColumns, rows: Sequence[JoinRows], horizons: Horizons) -> JoinRows:
        present_by_side = [masks.is_present(r.knowledge.mask) for r in rows]
        nulls = _has_null(key)
        present = present_by_side[0] | present_by_side[1]
        if nulls is not None:
            preserved = np.zeros(len(present), bool)
            for side, side_present in zip(self.both_sides, present_by_side, strict=True):
                if self.sides.rel.kind in (side.name, "full"):
                    preserved |= side_present
            present &= preserved | ~nulls
        return self._join_with_defaults(key, rows, present, horizons)

    def _join_with_defaults(
        self, key: KeyColumns, rows: Sequence[JoinRows], present: Bools, horizons: Horizons
    ) -> JoinRows:
        """The output rows of these keys, with default rows for absent rows. Output rows that are not `present` are
        absent."""
        side_masks, steps, columns = [], [], []
        nulls = _has_null(key)
        rows = [
            with_defaults(s, r, self._name_key_columns(s, key), None, horizons)
            for s, r in zip(self.both_sides, rows, strict=True)
        ]
        for side, side_rows in zip(self.both_sides, rows, strict=True):
            knowledge = side_rows.knowledge
            mask, side_steps, side_columns = knowledge.mask, knowledge.steps, knowledge.columns
            if self.can_lack_match and side.name != self.sides.rel.kind:
                has_no_row = np.zeros(len(present), bool) if nulls is None else nulls
                mask, side_steps = np.where(has_no_row, np.uint8(masks.F), mask), np.where(has_no_row, 0, side_steps)
                presence = np.where(has_no_row, MISSING, CERTAIN)
                kinds, bottoms = self.optional_kinds[side.name], side.source.bottoms
                side_columns = OptionalColumns(
                    OptionalRows(kinds, bottoms, presence, ~has_no_row, side_rows.fixed, side_columns, {})
                )
            side_masks.append(mask)
            steps.append(side_steps)
            columns.append(side_columns)
        mask = masks.any_of(side_masks[0], side_masks[1])
        joined_columns = self.sides.pair_evolving_columns(self.layout, columns[0], columns[1])
        knowledge = RowKnowledge(joined_columns, np.where(present, mask, np.uint8(masks.ABSENT)), steps[0] + steps[1])
        return JoinRows(self._fixed_columns(key, rows), knowledge)

    def _fixed_columns(self, key: KeyColumns, rows: Sequence[JoinRows]) -> Mapping[str, ValueColumn]:
        columns = super()._fixed_columns(key, rows)
        nulls = _has_null(key)
        if nulls is None or not self.can_lack_match:
            return columns
        nulled = dict(columns)
        for name, side in self.sides.column_sides.items():
            if side.name != self.sides.rel.kind and name in nulled and name not in self.layout.key:
                nulled[name] = ValueColumn(nulled[name].data, nulled[name].is_valid() & ~nulls)
        return nulled

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        left_key = [key[a] if a in key else key[b] for a, b in self.right_key_names.items()]
        no_rows = np.full(count, -1)
        rows = [
            side.decode_rows(RowLookup(StateTable(self.table_schemas[side.name]), no_rows, no_rows))
            for side in self.both_sides
        ]
        joined = self._join_with_defaults(left_key, rows, np.ones(count, bool), horizons)
        return Delta(joined.fixed, None, joined.knowledge)

    def default_seals(self, seals: Mapping[str, Seal]) -> Sequence[Mapping[str, Seal]]:
        renamed_seals = []
        for side in self.both_sides:
            transform = side.source.transform
            assert transform is not None, "a stream is never total"
            for side_seals in transform.default_seals(side.source.type.seals):
                named = {stream: seal.rename(self._output_key_names(side)) for stream, seal in side_seals.items()}
                if named not in renamed_seals:
                    renamed_seals.append(named)
        return renamed_seals

    def _output_key_names(self, side: JoinSide) -> dict[str, str]:
        """From a side's key columns to those of the output."""
        key = self.layout.key
        left_names = {a: a if a in key else b for a, b in self.right_key_names.items()}
        return {b: left_names[a] for b, a in self.left_key_names.items()} if side is self.sides.right else left_names


class FullKeyedJoin(KeyedJoin):
    """FULL JOIN of two relations with the same key columns: a row of either side, or the rows of both in one. A total
    side has default rows in place of absent ones, except for keys with NULL, which match nothing."""

    def __init__(self, rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> None:
        on_keys = {a for a, _ in rel.on} == set(left.layout.key) and {b for _, b in rel.on} == set(right.layout.key)
        is_one_to_one = len(rel.on) == len(left.layout.key)
        if rel.when is not None or not (on_keys and is_one_to_one) or set(left.layout.key) != set(right.layout.key):
            raise UnsupportedJoinError(rel, "rows of the FULL JOIN that have no match would share a key with others")
        super().__init__(rel, left, right, output)

    def _absent_row_seals(self, side: JoinSide) -> list[SealIndex]:
        """When no more rows of the other side can come, or its default rows change."""
        other = self.sides.other(side)
        if other.total:
            lookup_columns = self.left_key_names if other is self.sides.right else self.right_key_names
            return default_row_seals(other, lookup_columns, side.source.type.columns)
        return [self._key_seals(other)]

    def _key_seals(self, side: JoinSide) -> SealIndex:
        """The seals of a side's rows, expressed by the columns of the join key."""
        ties = self.sides.ties
        seals = {s: ties.express_seal(seal, side.key) for s, seal in side.source.type.seals.items()}
        return SealIndex(seals, side.source.type.heading.columns, "comes ")

    def _layout(self, output: OutputRelation) -> Layout:
        fixed = {c: t for c, t in self.sides.left.layout.fixed.items() if c in self.sides.left.key}
        evolving: dict[str, EvolvingColumnLayout] = {
            c: self.optional_kinds[side.name][c] for c, side in self.sides.column_sides.items() if c not in fixed
        }
        return Layout(output.type.heading.key, fixed, evolving, False, output.includes_permanently_hidden)

    def _join_rows(self, key: KeyColumns, rows: Sequence[JoinRows], horizons: Horizons) -> JoinRows:
        count = len(rows[0])
        key_columns = dict(zip(self.right_key_names, key, strict=True))
        side_columns: list[OptionalColumns] = []
        mask: MaskCodes = masks.full(masks.F, count)
        nulls = _has_null(key)
        has_no_null = np.ones(count, bool) if nulls is None else ~nulls
        for side, side_rows in zip(self.both_sides, rows, strict=True):
            if side.total:
                side_rows = with_defaults(side, side_rows, self._name_key_columns(side, key), has_no_null, horizons)
            codes = side_rows.knowledge.mask
            present = masks.is_present(codes)
            can_come = has_no_null & (~present if side.excludes_others else codes != masks.T)
            if can_come.any():
                can_come &= ~self._key_seals(side).is_sealed(horizons, key_columns, count)
            codes = np.where(present, codes, np.uint8(masks.F))
            mask = masks.any_of(
                mask, masks.any_of(codes, np.where(can_come, np.uint8(masks.HIDDEN), np.uint8(masks.F)))
            )
            presence = presence_states(codes, can_come)
            if side.total:
                presence[has_no_null] = CERTAIN
            columns: Mapping[str, KnowledgeColumn] = side_rows.knowledge.columns
            kinds, bottoms = self.optional_kinds[side.name], side.source.bottoms
            side_columns.append(
                OptionalColumns(
                    OptionalRows(kinds, bottoms, presence, masks.is_shown(codes), side_rows.fixed, columns, {})
                )
            )
        is_present = masks.is_present(rows[0].knowledge.mask) | masks.is_present(rows[1].knowledge.mask)
        columns = self.sides.pair_evolving_columns(self.layout, side_columns[0], side_columns[1])
        steps = rows[0].knowledge.steps + rows[1].knowledge.steps
        knowledge = RowKnowledge(columns, np.where(is_present, mask, np.uint8(masks.ABSENT)), steps)
        return JoinRows(self._fixed_columns(key, rows), knowledge)


def _has_null(key: KeyColumns) -> Bools | None:
    """The keys that contain NULL; None if there are none."""
    has_null: Bools | None = None
    for column in key:
        if column.valid is not None:
            has_null = ~column.valid if has_null is None else has_null | ~column.valid
    return has_null
