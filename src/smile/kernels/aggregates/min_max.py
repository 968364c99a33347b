"""MAX and MIN. MIN is the mirror of MAX.

The lower bound of MAX is the greatest lower bound of the members that are permanently shown. Its upper bound is the
greatest upper bound of all possible members, or that of the domain while the group is open. For the MIN of a time, a
group is closed as soon as no new member can have a lower value. If members may leave, all members of a group are read
again only when the extreme itself leaves.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.columns import values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, Contributions, MemberDelta, range_or_mask
from smile.kernels.aggregates.group_extremes import GroupExtreme, best_per_group, update_extreme
from smile.kernels.aggregates.ordered_values import better_of
from smile.state.run import TableRows

_MAYBE_NULL, _ALWAYS_NULL = 1, 2


class AppendOnlyMinMax(Accumulator):
    """MAX or MIN of members that never leave, with values that never change: one value."""

    def __init__(self, prefix: str, argument: AggregateArgument, is_max: bool) -> None:
        self.argument, self.is_max = argument, is_max
        self.value_column = f"{prefix}value"
        self.passed_column = None if is_max else self.value_column
        self.columns: Mapping[str, pa.DataType] = {self.value_column: arrow_type(argument.data)}

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        best = best_per_group(member_delta.groups, member_delta.new_member_values(self.argument), self.is_max)
        return AccumulatorUpdate({self.value_column: better_of(rows[self.value_column], best, self.is_max)})

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now, domain, data = rows[self.value_column], self.argument.domain, self.argument.data
        count = len(now)
        if sealed is not None and sealed.all():
            null_codes = None if now.valid is None else np.where(now.valid, 0, _ALWAYS_NULL).astype(np.uint8)
            return range_or_mask(RangeColumn(now, now, now, null_codes), data)
        outer_domain_end = _domain_end(domain.hi if self.is_max else domain.lo, self.argument, count)
        inner_domain_end = _domain_end(domain.lo if self.is_max else domain.hi, self.argument, count)
        inner: ValueColumn | None = now
        outer = outer_domain_end
        null_codes = None
        if now.valid is not None:
            # A group without a value may still get any value of the domain, or stay NULL.
            inner = now if inner_domain_end is None else v.where(now.valid, now, inner_domain_end)
            null_codes = np.where(now.valid, 0, _MAYBE_NULL).astype(np.uint8)
        if sealed is not None:
            outer = v.where(sealed, now, v.nulls_like(now, count) if outer_domain_end is None else outer_domain_end)
            if null_codes is not None and inner is not None:
                inner = v.where(sealed, now, inner)
                null_codes = np.where(sealed & ~now.is_valid(), _ALWAYS_NULL, null_codes).astype(np.uint8)
        lo, hi = (inner, outer) if self.is_max else (outer, inner)
        return range_or_mask(RangeColumn(now, lo, hi, null_codes), data)


def _domain_end(end: object, argument: AggregateArgument, count: int) -> ValueColumn | None:
    return None if end is None else v.constant(end, argument.data, count)  # type: ignore[arg-type]


class MemberBounds:
    """The bounds of all values that members may have, and whether there may be no value at all."""

    def __init__(self, prefix: str, argument: AggregateArgument) -> None:
        self.argument = argument
        self.lowest = GroupExtreme(f"{prefix}least", possible_lo, is_max=False)
        self.highest = GroupExtreme(f"{prefix}greatest", possible_hi, is_max=True)
        self.certain_column, self.possible_column, self.unbounded_below_column, self.unbounded_above_column = (
            f"{prefix}{part}" for part in ("sure", "counted", "below", "above")
        )
        kind = arrow_type(argument.data)
        counts = dict.fromkeys(
            (self.certain_column, self.possible_column, self.unbounded_below_column, self.unbounded_above_column),
            pa.int64(),
        )
        self.columns: dict[str, pa.DataType] = {self.lowest.column: kind, self.highest.column: kind, **counts}

    def absorb(
        self,
        rows: TableRows,
        member_delta: MemberDelta,
        old: Contributions | None,
        new: Contributions,
        context: GroupContext,
    ) -> dict[str, ValueColumn]:
        columns = {
            extreme.column: update_extreme(
                extreme, rows[extreme.column], member_delta, old, new, self.argument, context
            )
            for extreme in self._extremes
        }
        old_counts, new_counts = None if old is None else self._counted_members(old), self._counted_members(new)
        for name, now in new_counts.items():
            columns[name] = ValueColumn(
                rows[name].data + member_delta.count_changes(None if old_counts is None else old_counts[name], now)
            )
        return columns

    def _counted_members(self, contributions: Contributions) -> dict[str, Bools]:
        unbounded = [
            contributions.possible if end is None else contributions.possible & end.is_null()
            for end in (contributions.lo, contributions.hi)
        ]
        return {
            self.certain_column: contributions.certain,
            self.possible_column: contributions.possible,
            self.unbounded_below_column: unbounded[0],
            self.unbounded_above_column: unbounded[1],
        }

    @property
    def _extremes(self) -> tuple[GroupExtreme, GroupExtreme]:
        return self.lowest, self.highest

    def ends(self, rows: TableRows, sealed: Bools | None) -> tuple[ValueColumn, ValueColumn]:
        """The bounds over all possible members, widened to the domain while the group is open; not valid where there is
        no bound."""
        count = len(rows[self.certain_column])
        is_sealed = np.zeros(count, bool) if sealed is None else sealed
        domain = self.argument.domain
        lo = self._bound(
            rows[self.lowest.column], rows[self.unbounded_below_column].data > 0, is_sealed, domain.lo, False
        )
        hi = self._bound(
            rows[self.highest.column], rows[self.unbounded_above_column].data > 0, is_sealed, domain.hi, True
        )
        return lo, hi

    def _bound(
        self, own: ValueColumn, is_unbounded: Bools, is_sealed: Bools, domain: object, is_max: bool
    ) -> ValueColumn:
        if is_sealed.all() or domain is None:
            return ValueColumn(own.data, own.is_valid() & ~is_unbounded & is_sealed)
        domain_end = v.constant(domain, self.argument.data, len(own))  # type: ignore[arg-type]
        bounds = v.where(is_sealed, own, better_of(own, domain_end, is_max))
        return ValueColumn(bounds.data, bounds.is_valid() & ~is_unbounded)

    def null_codes(self, rows: TableRows, sealed: Bools | None) -> ValueColumn:
        """Codes of nullability: never NULL if a member is certain, always NULL if there is none and none can come."""
        is_always_null = (rows[self.possible_column].data == 0) & (False if sealed is None else sealed)
        nullable_code = np.where(rows[self.certain_column].data > 0, 0, _MAYBE_NULL)
        return ValueColumn(np.where(is_always_null, _ALWAYS_NULL, nullable_code).astype(np.uint8))


def possible_lo(contributions: Contributions) -> ValueColumn:
    return _valid_ends(contributions.lo, contributions.possible, contributions)


def possible_hi(contributions: Contributions) -> ValueColumn:
    return _valid_ends(contributions.hi, contributions.possible, contributions)


def certain_lo(contributions: Contributions) -> ValueColumn:
    return _valid_ends(contributions.lo, contributions.certain, contributions)


def certain_hi(contributions: Contributions) -> ValueColumn:
    return _valid_ends(contributions.hi, contributions.certain, contributions)


def current_values(contributions: Contributions) -> ValueColumn:
    return contributions.now


def _valid_ends(end: ValueColumn | None, where: Bools, contributions: Contributions) -> ValueColumn:
    if end is None:
        return ValueColumn(contributions.now.data, np.zeros(len(contributions), bool))
    return ValueColumn(end.data, where & end.is_valid())


class RetractableMinMax(Accumulator):
    """MAX or MIN of members that may leave or change: the bounds of all possible members, the extreme bound of the
    certain ones, and the extreme of the current values."""

    reads_members = True

    def __init__(self, prefix: str, argument: AggregateArgument, is_max: bool) -> None:
        self.argument, self.is_max = argument, is_max
        self.bounds = MemberBounds(prefix, argument)
        self.certain_extreme = GroupExtreme(f"{prefix}bound", certain_lo if is_max else certain_hi, is_max)
        self.now_extreme = GroupExtreme(f"{prefix}now", current_values, is_max)
        self.passed_column = None if is_max else self.certain_extreme.column
        kind = arrow_type(argument.data)
        self.columns = {**self.bounds.columns, self.certain_extreme.column: kind, self.now_extreme.column: kind}

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        old, new = member_delta.old_and_new_contributions(self.argument)
        columns = self.bounds.absorb(rows, member_delta, old, new, context)
        for extreme in (self.certain_extreme, self.now_extreme):
            columns[extreme.column] = update_extreme(
                extreme, rows[extreme.column], member_delta, old, new, self.argument, context
            )
        return AccumulatorUpdate(columns)

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        lo, hi = self.bounds.ends(rows, sealed)
        null_codes = self.bounds.null_codes(rows, sealed).data
        certain_values = rows[self.certain_extreme.column]
        has_certain = null_codes == 0
        if self.is_max:
            lo = v.where(has_certain, certain_values, lo)
        else:
            hi = v.where(has_certain, certain_values, hi)
        now = rows[self.now_extreme.column]
        return range_or_mask(RangeColumn(now, lo, hi, null_codes), self.argument.data)
