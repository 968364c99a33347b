"""LATEST: the value of the latest member, by tick and source.

The latest settled member is a bound: the final value is its value or that of a later member. A member is settled if it
is permanently shown and its value is final. If members may leave, all members of a group are read again when its latest
member leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import BOOL, DataType
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, RangeColumn, current_values, is_final
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, MemberDelta, range_or_mask
from smile.kernels.aggregates.group_extremes import replace_at
from smile.kernels.delta import RowGroups, RowKnowledge
from smile.knowledge.values.range import Range
from smile.state.run import TableRows

_MAYBE_NULL, _ALWAYS_NULL = 1, 2


@dataclass(frozen=True)
class LatestColumns:
    """Names of the columns that store the latest of some members of a group. Its tick is NULL if there is none."""

    tick: str
    source: str
    value: str

    @staticmethod
    def with_prefix(prefix: str, part: str) -> "LatestColumns":
        return LatestColumns(f"{prefix}{part}.tick", f"{prefix}{part}.source", f"{prefix}{part}.value")

    def columns(self, data: DataType) -> dict[str, pa.DataType]:
        return {self.tick: pa.int64(), self.source: pa.int64(), self.value: arrow_type(data)}

    def read(self, rows: TableRows) -> "TimedValues":
        return TimedValues(rows[self.tick], rows[self.source].data, rows[self.value])

    def write(self, latest: "TimedValues") -> dict[str, ValueColumn]:
        return {self.tick: latest.tick, self.source: ValueColumn(latest.source), self.value: latest.value}


@dataclass(frozen=True)
class TimedValues:
    """Values with their ticks and sources; there is no value where the tick is NULL."""

    tick: ValueColumn
    source: Array
    value: ValueColumn

    def take(self, indices: Indices) -> "TimedValues":
        return TimedValues(self.tick.take(indices), self.source[indices], self.value.take(indices))

    def keep_where(self, where: Bools) -> "TimedValues":
        return TimedValues(ValueColumn(self.tick.data, self.tick.is_valid() & where), self.source, self.value)


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


class _LatestBase(Accumulator):
    """Common part: the time of a member, and the output column."""

    def __init__(self, argument: AggregateArgument, tick: tuple[str, ...], bottom: Range, as_latest: bool) -> None:
        self.argument, self.tick_columns = argument, tick
        self.bottom, self.as_latest = bottom, as_latest

    def _timed_values(self, fixed: Mapping[str, ValueColumn], value: ValueColumn) -> TimedValues:
        tick = fixed[self.tick_columns[0]]
        source = fixed[self.tick_columns[1]].data if len(self.tick_columns) > 1 else np.zeros(len(tick), np.int64)
        return TimedValues(tick, source, value)

    def _column(self, settled: TimedValues, now: ValueColumn, is_final: Bools) -> KnowledgeColumn:
        """The output column. `is_final`: no later value can come."""
        value = ValueColumn(settled.value.data, settled.value.is_valid() & settled.tick.is_valid())
        # Where nothing later can come, the settled value is the current one.
        now = v.where(is_final, value, now) if is_final.any() else now
        if self.as_latest:
            return LatestColumn(value, settled.tick, settled.source, is_final, now)
        data = self.argument.data
        if data == BOOL:
            bits = np.where(now.is_valid(), np.where(now.data, 1, 2), 4).astype(np.uint8)
            return MaskColumn(np.where(is_final, bits, np.uint8(7)), bits)
        lo, hi = (
            v.where(is_final, value, v.nulls_like(now, len(now)) if e is None else v.constant(e, data, len(now)))
            for e in (self.bottom.lo, self.bottom.hi)
        )
        null_codes = np.where(is_final, np.where(value.is_valid(), 0, _ALWAYS_NULL), _MAYBE_NULL).astype(np.uint8)
        return range_or_mask(RangeColumn(now, lo, hi, null_codes), data)


class AppendOnlyLatest(_LatestBase):
    """LATEST of members that never leave, with values that never change: only the latest is stored."""

    def __init__(
        self, prefix: str, argument: AggregateArgument, tick: tuple[str, ...], bottom: Range, as_latest: bool
    ) -> None:
        super().__init__(argument, tick, bottom, as_latest)
        self.last = LatestColumns.with_prefix(prefix, "last")
        self.columns = self.last.columns(argument.data)

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        delta, groups = member_delta.delta, member_delta.groups
        timed = self._timed_values(delta.fixed, self.argument.evaluate_fixed(delta))
        if delta.old is not None:
            timed = timed.keep_where(member_delta.is_new_member(None))
        return AccumulatorUpdate(
            self.last.write(later_of(self.last.read(rows), latest_per_group(groups.group_numbers, groups.count, timed)))
        )

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        last = self.last.read(rows)
        now = ValueColumn(last.value.data, last.value.is_valid() & last.tick.is_valid())
        return self._column(last, now, np.zeros(len(now), bool) if sealed is None else sealed)


class RetractableLatest(_LatestBase):
    """LATEST of members that may leave or change: the latest settled member, the latest that can be shown in the end,
    and the latest that is shown now."""

    reads_members = True

    def __init__(
        self, prefix: str, argument: AggregateArgument, tick: tuple[str, ...], bottom: Range, as_latest: bool
    ) -> None:
        super().__init__(argument, tick, bottom, as_latest)
        self.settled, self.present, self.shown = (
            LatestColumns.with_prefix(prefix, part) for part in ("settled", "present", "shown")
        )
        data = argument.data
        self.columns = {**self.settled.columns(data), **self.present.columns(data), **self.shown.columns(data)}

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
        settled, present, shown = (last.read(rows) for last in (self.settled, self.present, self.shown))
        now = ValueColumn(shown.value.data, shown.value.is_valid() & shown.tick.is_valid())
        if sealed is None:
            return self._column(settled, now, np.zeros(len(now), bool))
        return self._column(settled, now, sealed & (is_later(settled, present) | present.tick.is_null()))


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
