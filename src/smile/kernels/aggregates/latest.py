"""LATEST: the value of the latest member, by tick and source.

The latest settled member is a bound: the final value is its value or that of a later member. A member is settled if it
is permanently shown and its value is final. If members may leave, all members of a group are read again when its latest
member leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import DataType
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, current_values, is_final
from smile.columns.timed_values import TimedValues, latest_column
from smile.columns.values import Bools, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, MemberDelta
from smile.kernels.aggregates.group_extremes import replace_at
from smile.kernels.delta import RowGroups, RowKnowledge
from smile.knowledge.values.range import NEVER
from smile.state.run import TableRows


@dataclass(frozen=True)
class LatestColumns:
    """Names of the columns that store the latest of some members of a group. Its tick is NULL if there is none."""

    tick: str
    source: str
    value: str

    @classmethod
    def with_prefix(cls, prefix: str, part: str) -> "LatestColumns":
        return cls(f"{prefix}{part}.tick", f"{prefix}{part}.source", f"{prefix}{part}.value")

    def columns(self, data: DataType) -> dict[str, pa.DataType]:
        return {self.tick: pa.int64(), self.source: pa.int64(), self.value: arrow_type(data)}

    def read(self, rows: TableRows) -> "TimedValues":
        return TimedValues(rows[self.tick], rows[self.source].data, rows[self.value])

    def write(self, latest: "TimedValues") -> dict[str, ValueColumn]:
        return {self.tick: latest.tick, self.source: ValueColumn(latest.source), self.value: latest.value}


def latest_per_group(group_numbers: Indices, count: int, timed: TimedValues) -> TimedValues:
    """The latest value of each of `count` groups; `group_numbers` has the group of each value."""
    valid_rows = np.flatnonzero(timed.tick.is_valid())
    order = valid_rows[np.lexsort((timed.source[valid_rows], timed.tick.data[valid_rows], group_numbers[valid_rows]))]
    ordered_groups = group_numbers[order]
    is_last = np.append(ordered_groups[1:] != ordered_groups[:-1], True)[: len(ordered_groups)]
    last_rows, has_value = np.zeros(count, np.int64), np.zeros(count, bool)
    last_rows[ordered_groups[is_last]] = order[is_last]
    has_value[ordered_groups[is_last]] = True
    if not len(timed.source):
        return TimedValues(
            ValueColumn(np.zeros(count, np.int64), has_value),
            np.zeros(count, np.int64),
            v.nulls_like(timed.value, count),
        )
    latest = timed.take(last_rows)
    return TimedValues(
        ValueColumn(latest.tick.data, None if has_value.all() else has_value), latest.source, latest.value
    )


def is_later(a: TimedValues, b: TimedValues) -> Bools:
    """Where `a` has a value, and `b` has none or is not later than `a`."""
    x, y = a.tick.data, b.tick.data
    is_after = (x > y) | ((x == y) & (a.source >= b.source))
    return a.tick.is_valid() & (is_after | b.tick.is_null())


def later_of(first: TimedValues, second: TimedValues) -> TimedValues:
    """The later of the two; the second if they have the same time."""
    chosen = is_later(second, first)
    if chosen.all():
        return second
    return TimedValues(
        v.where(chosen, second.tick, first.tick),
        np.where(chosen, second.source, first.source),
        v.where(chosen, second.value, first.value),
    )


class TimedAccumulator(Accumulator):
    """Common part: the time of a member, and the columns that store it."""

    stored_columns: ClassVar[type[LatestColumns]] = LatestColumns

    def __init__(self, argument: AggregateArgument, tick: tuple[str, ...]) -> None:
        self.argument, self.tick_columns = argument, tick

    def _timed_values(self, fixed: Mapping[str, ValueColumn], value: ValueColumn) -> TimedValues:
        tick = fixed[self.tick_columns[0]]
        source = fixed[self.tick_columns[1]].data if len(self.tick_columns) > 1 else np.zeros(len(tick), np.int64)
        return TimedValues(tick, source, value)


class AppendOnlyTimed(TimedAccumulator):
    """Members that never leave, with values that never change: only the latest is stored."""

    def __init__(self, prefix: str, argument: AggregateArgument, tick: tuple[str, ...]) -> None:
        super().__init__(argument, tick)
        self.last = self.stored_columns.with_prefix(prefix, "last")
        self.columns = self.last.columns(argument.data)

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        delta, groups = member_delta.delta, member_delta.groups
        timed = self._timed_values(delta.fixed, self.argument.evaluate_fixed(delta))
        if delta.old is not None:
            timed = timed.keep_where(member_delta.is_new_member(None))
        return AccumulatorUpdate(
            self.last.write(later_of(self.last.read(rows), latest_per_group(groups.group_numbers, groups.count, timed)))
        )

    def _latest_values(self, rows: TableRows, closed: Bools | None) -> LatestColumn:
        last = self.last.read(rows).without_stale_values()
        return latest_column(last, last.value, closed, last.tick.is_valid(), self.argument.domain, self.argument.data)


class AppendOnlyLatest(AppendOnlyTimed):
    """LATEST of such members."""

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        return self._latest_values(rows, sealed)


class RetractableLatest(TimedAccumulator):
    """LATEST of members that may leave or change: the latest settled member, the latest that can be shown in the end,
    and the latest that is shown now. `certain_column` counts the members that stay, if the argument is never NULL: then
    neither is the result, as soon as there is one."""

    reads_members = True

    def __init__(self, prefix: str, argument: AggregateArgument, tick: tuple[str, ...]) -> None:
        super().__init__(argument, tick)
        self.settled, self.present, self.shown = (
            self.stored_columns.with_prefix(prefix, part) for part in ("settled", "present", "shown")
        )
        data = argument.data
        self.columns = {**self.settled.columns(data), **self.present.columns(data), **self.shown.columns(data)}
        self.certain_column = f"{prefix}certain" if argument.domain.nulls is NEVER else None
        if self.certain_column is not None:
            self.columns[self.certain_column] = pa.int64()

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        delta, groups = member_delta.delta, member_delta.groups
        new = self._latest_candidates(delta.fixed, delta.new)
        old = None if delta.old is None else self._latest_candidates(delta.fixed, delta.old)
        columns: dict[str, ValueColumn] = {}
        for last, candidates in new.items():
            stored, newest = last.read(rows), latest_per_group(groups.group_numbers, groups.count, candidates)
            result = later_of(stored, newest)
            rescan_groups = _groups_to_rescan(stored, newest, groups, None if old is None else old[last])
            if len(rescan_groups):
                group_numbers, fixed, knowledge = context.find_members(context, rescan_groups)
                rescanned = self._latest_candidates(fixed, knowledge)
                result = _replace_at(
                    result, rescan_groups, latest_per_group(group_numbers, len(rescan_groups), rescanned[last])
                )
            columns |= last.write(result)
        if self.certain_column is not None:
            old_certain = None if delta.old is None else masks.is_permanently_shown(delta.old.mask)
            changes = member_delta.count_changes(old_certain, masks.is_permanently_shown(delta.new.mask))
            columns[self.certain_column] = ValueColumn(rows[self.certain_column].data + changes)
        return AccumulatorUpdate(columns)

    def _latest_candidates(
        self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge
    ) -> dict[LatestColumns, TimedValues]:
        column = self.argument.evaluate(fixed, knowledge.columns, len(knowledge))
        timed = self._timed_values(fixed, current_values(column))
        is_settled = masks.is_permanently_shown(knowledge.mask) & is_final(column)
        return {
            self.settled: timed.keep_where(is_settled),
            self.present: timed.keep_where(masks.can_be_shown(knowledge.mask)),
            self.shown: timed.keep_where(masks.is_shown(knowledge.mask)),
        }

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        return self._latest_values(rows, sealed)

    def _latest_values(self, rows: TableRows, sealed: Bools | None) -> LatestColumn:
        settled, present, shown = (
            last.read(rows).without_stale_values() for last in (self.settled, self.present, self.shown)
        )
        if sealed is not None:
            sealed = sealed & (is_later(settled, present) | present.tick.is_null())
        is_certain = settled.tick.is_valid() if self.certain_column is None else rows[self.certain_column].data > 0
        return latest_column(settled, shown.value, sealed, is_certain, self.argument.domain, self.argument.data)


def _groups_to_rescan(
    stored: TimedValues, best: TimedValues, groups: RowGroups, removed: TimedValues | None
) -> Indices:
    """The groups that lose their latest member, while the batch adds none that is as late."""
    if removed is None:
        return np.zeros(0, np.int64)
    own_latest = stored.take(groups.group_numbers)
    has_same_time = (removed.tick.data == own_latest.tick.data) & (removed.source == own_latest.source)
    is_removed = removed.tick.is_valid() & own_latest.tick.is_valid() & has_same_time
    has_lost_latest = np.zeros(groups.count, bool)
    has_lost_latest[groups.group_numbers[is_removed]] = True
    return np.flatnonzero(has_lost_latest & ~is_later(best, stored))


def _replace_at(target: TimedValues, indices: Indices, replacements: TimedValues) -> TimedValues:
    source = target.source.copy()
    source[indices] = replacements.source
    return TimedValues(
        replace_at(target.tick, indices, replacements.tick),
        source,
        replace_at(target.value, indices, replacements.value),
    )
