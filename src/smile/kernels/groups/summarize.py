"""SUMMARIZE and DISTINCT: one row per group, which depends on the group's accumulators and on whether it is sealed.

A batch looks up each of its groups once, subtracts the contributions of old members and adds those of new ones. A group
is in the output delta if its members change, or if a horizon seals it or passes the value of an aggregate. A sealed
group expires, because nothing can affect it any more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import TIME
from smile.columns import masks
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Bools, Indices, ValueColumn, true_indices
from smile.kernels.aggregates.accumulator import Accumulator, GroupContext, MemberRows
from smile.kernels.aggregates.compile_accumulator import aggregate_column, compile_accumulator
from smile.kernels.aggregates.contributions import MemberDelta
from smile.kernels.aggregates.displacement import displaced_ranges
from smile.kernels.aggregates.members import MEMBERS, MemberStore, member_columns, remove_groups
from smile.kernels.aggregates.value_seals import ValueSealIndex, compile_value_seals
from smile.kernels.delta import Delta, RowGroups, RowKnowledge, concat_deltas, drop_unchanged_rows
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import stored_column
from smile.kernels.seals import HorizonAdvance, Horizons, SealIndex, Seals
from smile.kernels.transform import InputRelation, OutputRelation, State, Transform
from smile.knowledge.aggregate_types import displaced_value, group_closing_seals, grouped_sessions, membership
from smile.knowledge.seals import Seal
from smile.state.row_lookup import RowLookup
from smile.state.run import TableRows, TableSchema
from smile.state.table import StateTable

GROUPS = "groups"
_STEPS = "steps"
_LAST = "last tick"
"""The greatest tick of the members of a session."""
_COUNTS = {
    "heard": masks.is_present,
    "live": masks.can_be_shown,
    "stays": masks.is_permanently_shown,
    "shown": masks.is_shown,
}
"""How many members of a group are present, can be shown, are permanently shown, and are shown."""


class AggregateGrouping:
    """The accumulators of a grouping, and the knowledge of its group rows. All transforms that group rows use it."""

    def __init__(
        self,
        per: tuple[str, ...],
        aggregates: Sequence[tuple[str, mmpl.Aggregate]],
        source: InputRelation,
        output: OutputRelation,
        is_evolving: bool,
    ) -> None:
        """`is_evolving`: members can move to another group, whatever their masks are."""
        self.per, self.source, self.output = per, source, output
        heading = output.type.heading
        if is_evolving:
            source = replace(source, layout=replace(source.layout, certain=False))
        self.certain = source.layout.certain or not per
        group = membership(source.type, per)
        self.displacement = group.displacement
        self.displaced_values = {
            name: displaced
            for name, call in aggregates
            if (displaced := displaced_value(call, source.type, group)) is not None
        }
        self.sessions = grouped_sessions(source.type, per)
        key_types = {c: arrow_type(heading.columns[c]) for c in per}
        self.accumulators: dict[str, Accumulator] = {
            name: compile_accumulator(i, wanted, key_types, source, output.type.columns[name])
            for i, (name, wanted) in enumerate(aggregates)
        }
        self.value_seals: dict[str, ValueSealIndex] = {}
        """When aggregates are final before their group is sealed."""
        for name, call in aggregates:
            column = self.accumulators[name].passed_column
            index = None if column is None else compile_value_seals(column, call, source, output)
            if index is not None:
                self.value_seals[name] = index
        fixed = {c: heading.columns[c] for c in per}
        columns = {name: aggregate_column(wanted, output.type.heading.columns[name]) for name, wanted in aggregates}
        self.layout = Layout(per, fixed, columns, self.certain, output.includes_permanently_hidden)
        needs_counts = not self.certain or self.displacement is not None
        self.count_columns: tuple[str, ...] = tuple(_COUNTS) if needs_counts else ()
        self.columns: dict[str, pa.DataType] = {
            **{stored_column(c): kind for c, kind in key_types.items()},
            **dict.fromkeys((_STEPS, *self.count_columns), pa.int64()),
            **({} if self.sessions is None else {_LAST: pa.int64()}),
            **{name: kind for a in self.accumulators.values() for name, kind in a.columns.items()},
        }
        self.members: MemberStore | None = None
        reading_members = [w for name, w in aggregates if self.accumulators[name].reads_members]
        if reading_members:
            needed = member_columns(reading_members, source.type.heading.tick)
            self.members = MemberStore(source.layout, per, needed, any(w.function == "group" for w in reading_members))
        schemas = {name: schema for a in self.accumulators.values() for name, schema in a.table_schemas.items()}
        self.table_schemas: dict[str, TableSchema] = schemas | (
            {} if self.members is None else {MEMBERS: self.members.table_schema}
        )

    # ── accumulation ────────────────────────────────────────────────────────────────────────────────────────────────

    def make_context(self, key: Mapping[str, ValueColumn], key_hashes: Array, tables: State) -> GroupContext:
        return GroupContext(key, key_hashes, tables, self._find_members)

    def _find_members(self, context: GroupContext, numbers: Indices) -> MemberRows:
        assert self.members is not None
        return self.members.find_members(context, numbers)

    def absorb(
        self, rows: TableRows, member_delta: MemberDelta, context: GroupContext
    ) -> tuple[dict[str, ValueColumn], State]:
        """Adds a batch of member changes. Returns the new rows of the groups, without their keys, and the new tables of
        the accumulators."""
        tables = dict(context.tables)
        delta, groups = member_delta.delta, member_delta.groups
        if self.members is not None:
            tables[MEMBERS] = self.members.update(tables[MEMBERS], delta, context.key_hashes[groups.group_numbers])
        context = self.make_context(context.key, context.key_hashes, tables)
        steps = _present_steps(delta.new)
        if delta.old is not None:
            steps = steps - _present_steps(delta.old)
        accumulated = {_STEPS: ValueColumn(rows[_STEPS].data + groups.sums(steps))}
        for name in self.count_columns:
            predicate = _COUNTS[name]
            change = member_delta.count_changes(
                None if delta.old is None else predicate(delta.old.mask), predicate(delta.new.mask)
            )
            accumulated[name] = ValueColumn(rows[name].data + change)
        if self.sessions is not None:
            ticks = np.where(masks.is_present(delta.new.mask), delta.fixed[self.sessions.tick].data, 0)
            accumulated[_LAST] = ValueColumn(np.maximum(rows[_LAST].data, groups.maxima(ticks)))
        for accumulator in self.accumulators.values():
            absorbed = accumulator.absorb(rows, member_delta, context)
            accumulated.update(absorbed.rows)
            tables.update(absorbed.tables)
        return accumulated, tables

    # ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def group_knowledge(
        self,
        rows: TableRows,
        is_sealed: Bools | None,
        context: GroupContext,
        is_present: Bools | None,
        horizons: Horizons | None,
    ) -> RowKnowledge:
        """The knowledge of group rows. `is_present`: which groups are present, None for all. `horizons` is None if all
        groups are sealed."""
        mask = self._group_masks(rows, is_sealed, len(context))
        if is_present is not None:
            mask[~is_present] = masks.ABSENT
        columns = _AggregateColumns(self, rows, is_sealed, context, horizons)
        return RowKnowledge(columns, mask, rows[_STEPS].data)

    def _group_masks(self, rows: TableRows, is_sealed: Bools | None, count: int) -> MaskCodes:
        """A group is shown while any of its members is. It can get new members until it is sealed."""
        if self.certain:
            return masks.full(masks.T, count)
        is_present, is_live, is_permanent, is_shown = (rows[name].data > 0 for name in _COUNTS)
        if self.displacement is not None:
            # A member that leaves by displacement leaves another one in the group.
            is_permanent = is_permanent | is_shown
        can_be_shown = is_live | (np.ones(count, bool) if is_sealed is None else ~is_sealed)
        return np.where(is_present, masks.pack_codes(can_be_shown, ~is_permanent, is_shown), np.uint8(masks.ABSENT))

    def default_knowledge(self, key: Mapping[str, ValueColumn], count: int, is_sealed: Bools | None) -> RowKnowledge:
        """The knowledge of absent groups: all accumulators are zero."""
        rows = self.zero_rows(count)
        context = self.make_context(key, hashes([key[c] for c in self.per], count), self.empty_tables())
        mask = masks.full(masks.HIDDEN if self.per else masks.T, count)
        if is_sealed is not None and self.per:
            mask[is_sealed] = masks.F
        columns = _AggregateColumns(self, rows, is_sealed, context, None)
        return RowKnowledge(columns, mask, np.zeros(count, np.int64))

    def zero_rows(self, count: int) -> TableRows:
        """The accumulator rows of groups without members."""
        empty_table = StateTable(TableSchema(tuple(map(stored_column, self.per)), self.columns))
        return RowLookup(empty_table, np.full(count, -1), np.zeros(count, np.int64))

    def empty_tables(self) -> State:
        return {name: StateTable(schema) for name, schema in self.table_schemas.items()}


def _present_steps(knowledge: RowKnowledge) -> Array:
    is_absent = knowledge.mask == masks.ABSENT
    return np.where(is_absent, 0, knowledge.steps) if is_absent.any() else knowledge.steps


class _AggregateColumns(Mapping[str, KnowledgeColumn]):
    """The aggregates of groups. Each column is computed on first access."""

    def __init__(
        self,
        grouping: AggregateGrouping,
        rows: TableRows,
        is_sealed: Bools | None,
        context: GroupContext,
        horizons: Horizons | None,
    ) -> None:
        self.grouping, self.rows, self.is_sealed, self.context = grouping, rows, is_sealed, context
        self.horizons = horizons
        self._columns: dict[str, KnowledgeColumn] = {}

    def __len__(self) -> int:
        return len(self.grouping.accumulators)

    def __iter__(self) -> Iterator[str]:
        return iter(self.grouping.accumulators)

    def __getitem__(self, name: str) -> KnowledgeColumn:
        if name not in self._columns:
            accumulator = self.grouping.accumulators[name]
            column = accumulator.render(self.rows, self._closed_groups(name), self.context)
            self._columns[name] = self._with_displacement(name, column)
        return self._columns[name]

    def _with_displacement(self, name: str, column: KnowledgeColumn) -> KnowledgeColumn:
        """The aggregate in groups whose members leave only by displacement."""
        displaced, displacement = self.grouping.displaced_values.get(name), self.grouping.displacement
        if displaced is None or displacement is None or not isinstance(column, RangeColumn):
            return column
        is_full = self.rows["shown"].data == displacement.rows_max if displaced.must_be_full else None
        return displaced_ranges(column, displaced, is_full)

    def _closed_groups(self, name: str) -> Bools | None:
        """The groups in which no new member can affect the aggregate; None if there are none."""
        closed = [] if self.is_sealed is None else [self.is_sealed]
        value_seals, displacement = self.grouping.value_seals.get(name), self.grouping.displacement
        if value_seals is not None and self.horizons is not None:
            closed.append(value_seals.passed_groups(self.horizons, self.context.key, self.rows))
        if displacement is not None and displacement.rows_max is not None:
            # It has as many members as it can have, and all of them stay.
            closed.append(self.rows["stays"].data == displacement.rows_max)
        is_closed = np.logical_or.reduce(closed) if closed else None
        return is_closed if is_closed is not None and is_closed.any() else None


class MultiMemberGroups(Transform):
    """Groups by columns that never change, with any number of members."""

    def __init__(self, grouping: AggregateGrouping) -> None:
        self.grouping, self.layout = grouping, grouping.layout
        output = grouping.output
        self.per = grouping.per
        source = grouping.source.type
        seals, types = group_closing_seals(source, self.per), source.heading.columns
        if grouping.sessions is not None:
            seals = dict.fromkeys(seals, Seal.from_column(_LAST, grouping.sessions.gap))
            types = {**types, _LAST: TIME}
        self.seal_index = SealIndex(seals, types, "@")
        self.determined_columns = sorted(self.seal_index.seal_columns - {*self.per, _LAST})
        """Columns on which all members of a group agree, and that decide when it is sealed."""
        self.default_row_seals = Seals(output.type.seals, output.type.heading.columns)
        self.value_seals = tuple(grouping.value_seals.values())
        key = tuple(map(stored_column, self.per))
        ticks = {name: kind for i in (self.seal_index, *self.value_seals) for name, kind in i.column_types.items()}
        schema = TableSchema(key, {**grouping.columns, **ticks}, tick_indexes=tuple(ticks))
        self.table_schemas = {GROUPS: schema, **grouping.table_schemas}

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return not self.per or any(i.can_seal_rows(advance) for i in (self.seal_index, *self.value_seals))

    def default_rows(self, key: Mapping[str, ValueColumn], count: int, horizons: Horizons) -> Delta:
        is_sealed = self.default_row_seals.is_sealed(horizons, key, count)
        return Delta(key, None, self.grouping.default_knowledge(key, count, is_sealed if is_sealed.any() else None))

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        (delta,) = inputs
        old_groups = state[GROUPS]
        parts, tables, touched_rows = [], dict(state), None
        if delta is not None and len(delta):
            part, tables, touched_rows = self._apply_delta(state, delta, advance)
            parts.append(part)
        elif not self.per and not old_groups.runs:
            parts.append(self._create_total_row(tables, advance))
        sealing_rows = self.seal_index.find_sealed_rows(old_groups, advance)
        if touched_rows is not None and sealing_rows.row_count:
            sealing_rows = sealing_rows.without(touched_rows)
        if sealing_rows.row_count:
            parts.append(self._seal_groups(tables, sealing_rows, advance, state))
        for value_seals in self.value_seals:
            passed_rows = value_seals.find_sealed_rows(old_groups, advance)
            for done_rows in (touched_rows, sealing_rows):
                if done_rows is not None and done_rows.row_count and passed_rows.row_count:
                    passed_rows = passed_rows.without(done_rows)
            if passed_rows.row_count:
                parts.append(self._group_delta(passed_rows, advance, state))
                sealing_rows = RowLookup.union(old_groups, [sealing_rows, passed_rows])
        if not parts:
            return tables, None
        return tables, drop_unchanged_rows(concat_deltas(self.layout, parts), self.layout.includes_permanently_hidden)

    # ── member changes ──────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_delta(
        self, state: State, delta: Delta, advance: HorizonAdvance
    ) -> tuple[Delta, dict[str, StateTable], RowLookup | None]:
        count = len(delta)
        row_hashes = hashes([delta.fixed[c] for c in self.per], count)
        groups = RowGroups([delta.fixed[c] for c in self.per], count, row_hashes)
        key = delta.fixed if count == 1 else {c: delta.fixed[c].take(groups.first) for c in self.per}
        key = {c: key[c] for c in self.per}
        columns = list(key.values())
        seal_columns = {**key, **{c: delta.fixed[c].take(groups.first) for c in self.determined_columns}}
        context = self.grouping.make_context(key, row_hashes[groups.first], state)
        was_present, old_rows = state[GROUPS].find(columns)
        new_rows, tables = self.grouping.absorb(old_rows, MemberDelta(delta, groups), context)
        sealed_before = self._sealed_groups(advance.before, {**seal_columns, **_last_ticks(old_rows)}, groups.count)
        seal_columns |= _last_ticks(new_rows)
        sealed_after = self._sealed_groups(advance.after, seal_columns, groups.count)
        old_knowledge = (
            self.grouping.group_knowledge(old_rows, sealed_before, context, was_present, advance.before)
            if was_present.any()
            else None
        )
        is_present = self._present_groups(new_rows)
        new_knowledge = self.grouping.group_knowledge(
            new_rows,
            sealed_after,
            self.grouping.make_context(key, context.key_hashes, tables),
            is_present,
            advance.after,
        )
        rows = {
            **{stored_column(c): column for c, column in key.items()},
            **new_rows,
            **self._tick_values(key, seal_columns, new_rows, groups.count),
        }
        is_expired = self._expired_groups(is_present, sealed_after)
        new_tables = dict(tables)
        if is_expired is None:
            new_tables[GROUPS] = state[GROUPS].with_rows(rows, None, old_rows)
        else:
            to_store = true_indices(~is_expired | was_present)
            taken = {name: column.take(to_store) for name, column in rows.items()}
            new_tables[GROUPS] = state[GROUPS].with_rows(taken, is_expired[to_store], old_rows)
            self._expire_groups(new_tables, key, context.key_hashes, true_indices(is_expired))
        return Delta(key, old_knowledge, new_knowledge), new_tables, old_rows if was_present.any() else None

    def _present_groups(self, rows: Mapping[str, ValueColumn]) -> Bools | None:
        """Which groups are present; None if all are. A group that all members have left is absent again. A group with
        only permanently hidden members is present only if the layout includes permanently hidden rows."""
        if self.grouping.certain:
            return None
        is_present: Bools = rows["heard" if self.layout.includes_permanently_hidden else "live"].data > 0
        return None if is_present.all() else is_present

    def _expired_groups(self, is_present: Bools | None, is_sealed: Bools | None) -> Bools | None:
        """Which groups expire; None if none does. The single row without grouping never expires."""
        if not self.per or (is_present is None and is_sealed is None):
            return None
        if is_sealed is None:
            assert is_present is not None
            return ~is_present
        return is_sealed if is_present is None else is_sealed | ~is_present

    def _expire_groups(
        self, tables: dict[str, StateTable], key: Mapping[str, ValueColumn], group_hashes: Array, indices: Indices
    ) -> None:
        expired_key = {c: column.take(indices) for c, column in key.items()}
        for name in self.grouping.table_schemas:
            tables[name] = remove_groups(tables[name], group_hashes[indices], expired_key)

    def _create_total_row(self, tables: dict[str, StateTable], advance: HorizonAdvance) -> Delta:
        """The single row without grouping, which exists before the first event."""
        is_sealed = self._sealed_groups(advance.after, {}, 1)
        knowledge = self.grouping.default_knowledge({}, 1, is_sealed)
        assert isinstance(knowledge.columns, _AggregateColumns)
        rows = dict(knowledge.columns.rows)
        zeros = {name: _without_nulls(rows[name]) for name in (_STEPS, *self.grouping.count_columns)}
        tables[GROUPS] = tables[GROUPS].with_rows({**rows, **zeros, **self._tick_values({}, {}, rows, 1)})
        return Delta({}, None, knowledge)

    def _tick_values(
        self,
        key: Mapping[str, ValueColumn],
        seal_columns: Mapping[str, ValueColumn],
        rows: TableRows,
        count: int,
    ) -> dict[str, ValueColumn]:
        """The ticks at which these groups change without new members."""
        ticks = self.seal_index.tick_values(seal_columns, count)
        for value_seals in self.value_seals:
            ticks |= value_seals.tick_values(value_seals.value_columns(key, rows), count)
        return ticks

    # ── horizon advances ────────────────────────────────────────────────────────────────────────────────────────────

    def _sealed_groups(self, horizons: Horizons, columns: Mapping[str, ValueColumn], count: int) -> Bools | None:
        """Which groups are sealed; None if none is. `columns` are those that the seals depend on."""
        if not self.seal_index.can_be_sealed(horizons):
            return None
        is_sealed = self.seal_index.is_sealed(horizons, columns, count)
        return is_sealed if is_sealed.any() else None

    def _seal_groups(
        self, tables: dict[str, StateTable], rows: RowLookup, advance: HorizonAdvance, state: State
    ) -> Delta:
        delta, count = self._group_delta(rows, advance, state), rows.row_count
        if self.per:
            tables[GROUPS] = tables[GROUPS].with_rows(rows, np.ones(count, bool))
            key_hashes = hashes([delta.fixed[c] for c in self.per], count)
            self._expire_groups(tables, delta.fixed, key_hashes, np.arange(count))
        return delta

    def _group_delta(self, rows: RowLookup, advance: HorizonAdvance, state: State) -> Delta:
        """The knowledge of stored groups, without a change of their members, before and after the horizon advance."""
        count = rows.row_count
        key = {c: rows[stored_column(c)] for c in self.per}
        context = self.grouping.make_context(key, hashes([key[c] for c in self.per], count), state)
        old, new = (
            self.grouping.group_knowledge(rows, self.seal_index.sealed_rows(rows, h), context, None, h)
            for h in (advance.before, advance.after)
        )
        return Delta(key, old, new)


def _last_ticks(rows: TableRows) -> dict[str, ValueColumn]:
    """The greatest tick of each group, if the groups are sessions."""
    return {_LAST: _without_nulls(rows[_LAST])} if _LAST in rows else {}


def _without_nulls(values: ValueColumn) -> ValueColumn:
    return ValueColumn(values.data)
