"""SUM: never NULL, unless it overflows.

In a sealed group its bounds are the sums of the members' bounds. An open group has a lower bound only if no new member
can lower the sum, and an upper bound only if none can raise it. If the sum can overflow, an open group has no bounds.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, Contributions, MemberDelta
from smile.kernels.aggregates.exact_sums import at_least_zero, at_most_zero, exact_sum, sign_of
from smile.state.run import TableRows

_MAYBE_NULL, _ALWAYS_NULL = 1, 2


class AppendOnlySum(Accumulator):
    """SUM of members that never leave, with values that never change: one exact sum."""

    def __init__(self, prefix: str, argument: AggregateArgument, can_overflow: bool) -> None:
        self.argument, self.can_overflow = argument, can_overflow
        self.exact_sum = exact_sum(f"{prefix}sum", argument.data, argument.limits)
        self.columns: Mapping[str, pa.DataType] = self.exact_sum.columns
        self.can_fall, self.can_rise = _open_directions(argument)

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        values = member_delta.new_member_values(self.argument)
        return AccumulatorUpdate(self.exact_sum.update(rows, member_delta.groups, None, values))

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now = self.exact_sum.value(rows)
        if self.can_overflow:
            return _render_with_overflow(now, sealed)
        final = None if sealed is None else ValueColumn(now.data, sealed)
        return RangeColumn(now, final if self.can_fall else now, final if self.can_rise else now)


def _render_with_overflow(now: ValueColumn, sealed: Bools | None) -> RangeColumn:
    """A sum that can overflow has bounds only when no more members can come."""
    is_sealed, is_valid = _sealed_or_false(sealed, len(now)), now.is_valid()
    final = None if sealed is None else ValueColumn(now.data, is_sealed & is_valid)
    null_codes = np.where(is_sealed, np.where(is_valid, 0, _ALWAYS_NULL), _MAYBE_NULL).astype(np.uint8)
    return RangeColumn(now, final, final, null_codes)


def _open_directions(argument: AggregateArgument) -> tuple[bool, bool]:
    """Whether a new member can lower the sum, and whether it can raise it."""
    lo, hi = argument.domain.lo, argument.domain.hi
    return lo is None or sign_of(lo) < 0, hi is None or sign_of(hi) > 0


def _sealed_or_false(sealed: Bools | None, count: int) -> Bools:
    return np.zeros(count, bool) if sealed is None else sealed


class RetractableSum(Accumulator):
    """SUM of members that may leave or change: exact sums of the members' bounds and current values, and the numbers of
    members without a bound."""

    def __init__(self, prefix: str, argument: AggregateArgument, can_overflow: bool) -> None:
        self.argument, self.can_overflow = argument, can_overflow
        self.lower_sum, self.upper_sum, self.now_sum = (
            exact_sum(f"{prefix}{part}", argument.data, argument.limits) for part in ("lo", "hi", "now")
        )
        self.unbounded_below_column, self.unbounded_above_column, self.unsettled_column = (
            f"{prefix}{part}" for part in ("below", "above", "unsettled")
        )
        counts = dict.fromkeys(
            (self.unbounded_below_column, self.unbounded_above_column, self.unsettled_column), pa.int64()
        )
        self.columns = {**self.lower_sum.columns, **self.upper_sum.columns, **self.now_sum.columns, **counts}
        self.can_fall, self.can_rise = _open_directions(argument)

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        old, new = member_delta.old_and_new_contributions(self.argument)
        old_terms, new_terms = None if old is None else _SumTerms(old), _SumTerms(new)
        columns: dict[str, ValueColumn] = {}
        for total, part in ((self.lower_sum, "lo"), (self.upper_sum, "hi"), (self.now_sum, "now")):
            removed = None if old_terms is None else getattr(old_terms, part)
            columns |= total.update(rows, member_delta.groups, removed, getattr(new_terms, part))
        for name, part in (
            (self.unbounded_below_column, "below"),
            (self.unbounded_above_column, "above"),
            (self.unsettled_column, "unsettled"),
        ):
            old_flags = None if old_terms is None else getattr(old_terms, part)
            columns[name] = ValueColumn(
                rows[name].data + member_delta.count_changes(old_flags, getattr(new_terms, part))
            )
        return AccumulatorUpdate(columns)

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now = self.now_sum.value(rows)
        is_sealed = _sealed_or_false(sealed, len(now))
        lower_sums, upper_sums = self.lower_sum.value(rows), self.upper_sum.value(rows)
        bounded_below = (rows[self.unbounded_below_column].data == 0) & (is_sealed | (not self.can_fall))
        bounded_above = (rows[self.unbounded_above_column].data == 0) & (is_sealed | (not self.can_rise))
        lo, hi = ValueColumn(lower_sums.data, bounded_below), ValueColumn(upper_sums.data, bounded_above)
        if not self.can_overflow:
            return RangeColumn(now, lo, hi)
        has_bounds = is_sealed & bounded_below & bounded_above & lower_sums.is_valid() & upper_sums.is_valid()
        is_always_null = is_sealed & ~has_bounds & (rows[self.unsettled_column].data == 0)
        null_codes = np.where(is_always_null, _ALWAYS_NULL, np.where(has_bounds, 0, _MAYBE_NULL)).astype(np.uint8)
        now = ValueColumn(now.data, now.is_valid() & ~is_always_null)
        return RangeColumn(now, ValueColumn(lo.data, has_bounds), ValueColumn(hi.data, has_bounds), null_codes)


class _SumTerms:
    """What each member adds at least, at most and now; whether it lacks a lower or an upper bound, and whether it may
    still leave or change. The names are those of the columns."""

    def __init__(self, contributions: Contributions) -> None:
        possible, certain = contributions.possible, contributions.certain
        no_bounds = ValueColumn(contributions.now.data, np.zeros(len(possible), bool))
        lo, hi = contributions.lo or no_bounds, contributions.hi or no_bounds
        self.below, self.above = possible & lo.is_null(), possible & hi.is_null()
        self.lo = at_most_zero(ValueColumn(lo.data, possible & lo.is_valid()), certain)
        self.hi = at_least_zero(ValueColumn(hi.data, possible & hi.is_valid()), certain)
        self.now = contributions.now
        self.unsettled = possible & ~(certain & contributions.is_final)
