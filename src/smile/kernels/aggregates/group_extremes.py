"""Extremes: the greatest or the least of some values of a group's members; NULL if there are none.

An extreme is one column of the group's row. A new value is compared only with it. If a batch removes the extreme itself
and adds none as good, all members of that group are read again: this work is proportional to the group.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import INT_MAX, INT_MIN
from smile.columns import values as v
from smile.columns.values import Array, Indices, ValueColumn, ranks
from smile.kernels.aggregates.accumulator import GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, Contributions, MemberDelta
from smile.kernels.aggregates.ordered_values import better_of, is_as_good
from smile.kernels.delta import RowGroups


@dataclass(frozen=True)
class GroupExtreme:
    """One extreme. `member_values` gives the values to compare; they are not valid for members that do not count."""

    column: str
    member_values: Callable[[Contributions], ValueColumn]
    is_max: bool


def update_extreme(
    extreme: GroupExtreme,
    stored: ValueColumn,
    member_delta: MemberDelta,
    old: Contributions | None,
    new: Contributions,
    argument: AggregateArgument,
    context: GroupContext,
) -> ValueColumn:
    """The extreme of each group after a batch; `stored` has the extremes before it."""
    best = best_per_group(member_delta.groups, extreme.member_values(new), extreme.is_max)
    updated = better_of(stored, best, extreme.is_max)
    if old is None:
        return updated
    rescan_groups = _groups_to_rescan(extreme, stored, best, member_delta.groups, extreme.member_values(old))
    if not len(rescan_groups):
        return updated
    group_numbers, fixed, knowledge = context.find_members(context, rescan_groups)
    contributions = argument.contributions(fixed, knowledge)
    rescanned = best_per_group_number(
        group_numbers, len(rescan_groups), extreme.member_values(contributions), extreme.is_max
    )
    return replace_at(updated, rescan_groups, rescanned)


def _groups_to_rescan(
    extreme: GroupExtreme, stored: ValueColumn, best: ValueColumn, groups: RowGroups, removed: ValueColumn
) -> Indices:
    """The groups that lose their extreme, while the batch adds no value that is as good."""
    own_extreme = stored.take(groups.group_numbers)
    is_removed = removed.is_valid() & own_extreme.is_valid() & v.equal_data(removed.data, own_extreme.data)
    if not is_removed.any():
        return np.zeros(0, np.int64)
    has_lost_extreme = np.zeros(groups.count, bool)
    has_lost_extreme[groups.group_numbers[is_removed]] = True
    return np.flatnonzero(has_lost_extreme & ~is_as_good(best, stored, extreme.is_max))


def replace_at(target: ValueColumn, indices: Indices, values: ValueColumn) -> ValueColumn:
    """`target` with `values` at `indices`."""
    source_rows = np.arange(len(target))
    source_rows[indices] = np.arange(len(target), len(target) + len(indices))
    return v.concat([target, values]).take(source_rows)


# ── the best of each group ──────────────────────────────────────────────────────────────────────────────────────────


def best_per_group(groups: RowGroups, values: ValueColumn, is_max: bool) -> ValueColumn:
    """The best valid value of each group; NULL if there is none."""
    data = values.data
    if not isinstance(data, np.ndarray) or data.dtype == object:
        return best_per_group_number(groups.group_numbers, groups.count, values, is_max)
    best_ufunc = np.maximum if is_max else np.minimum
    if values.valid is None:
        return ValueColumn(best_ufunc.reduceat(data[groups.order], groups.starts))
    has_value = np.logical_or.reduceat(values.valid[groups.order], groups.starts)
    worst = _worst(data, is_max)
    best = best_ufunc.reduceat(np.where(values.valid, data, worst)[groups.order], groups.starts)
    return ValueColumn(best, None if has_value.all() else has_value)


def _worst(data: Array, is_max: bool) -> float | int:
    if data.dtype == np.float64:
        return -np.inf if is_max else np.inf
    if data.dtype == bool:
        return not is_max
    return INT_MIN if is_max else INT_MAX


def best_per_group_number(group_numbers: Indices, count: int, values: ValueColumn, is_max: bool) -> ValueColumn:
    """The best valid value of each of `count` groups; `group_numbers` has the group of each value, in any order."""
    valid_rows = np.flatnonzero(values.is_valid())
    valid = np.zeros(count, bool)
    if not len(valid_rows):
        return v.nulls_like(values, count)
    valid_values = values.take(valid_rows)
    codes = ranks(ValueColumn(valid_values.data))
    # Not -codes: the least int has no negative.
    order = np.lexsort((codes if is_max else ~codes, group_numbers[valid_rows]))
    ordered_groups = group_numbers[valid_rows][order]
    is_last = np.append(ordered_groups[1:] != ordered_groups[:-1], True)
    best_rows = np.zeros(count, np.int64)
    best_rows[ordered_groups[is_last]] = order[is_last]
    valid[ordered_groups[is_last]] = True
    return ValueColumn(valid_values.take(best_rows).data, None if valid.all() else valid)
