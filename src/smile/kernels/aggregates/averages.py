"""AVG: the exact sum of the current members, divided by their number and rounded once.

Its bounds are the hull of the values of all possible members, and of the column's domain while the group is open.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import FLOAT, INTERVAL, DataType
from smile.columns import values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator, AccumulatorUpdate, GroupContext
from smile.kernels.aggregates.contributions import AggregateArgument, MemberDelta
from smile.kernels.aggregates.exact_sums import exact_sum, is_within
from smile.kernels.aggregates.min_max import MemberBounds
from smile.knowledge.values.range import RangeEnd
from smile.state.run import TableRows

_MAYBE_NULL, _ALWAYS_NULL = 1, 2


class AppendOnlyAverage(Accumulator):
    """AVG of members that never leave, with values that never change: the exact sum, the count and the mean."""

    def __init__(self, prefix: str, argument: AggregateArgument) -> None:
        self.argument = argument
        self.exact_sum = exact_sum(f"{prefix}sum", argument.data, argument.limits)
        self.count_column, self.mean_column = f"{prefix}n", f"{prefix}mean"
        mean = arrow_type(_mean_type(argument.data))
        self.columns: Mapping[str, pa.DataType] = {
            **self.exact_sum.columns,
            self.count_column: pa.int64(),
            self.mean_column: mean,
        }

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        values = member_delta.new_member_values(self.argument)
        columns = self.exact_sum.update(rows, member_delta.groups, None, values)
        counts = rows[self.count_column].data + member_delta.groups.sums(values.is_valid().astype(np.int64))
        return AccumulatorUpdate(
            {**columns, self.count_column: ValueColumn(counts), self.mean_column: self.exact_sum.mean(columns, counts)}
        )

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now, domain = rows[self.mean_column], self.argument.domain
        has_members = rows[self.count_column].data > 0
        lo, hi = (self._domain_end(e, len(has_members)) for e in (domain.lo, domain.hi))
        return within_domain(now, has_members, sealed, lo, hi)

    def _domain_end(self, end: RangeEnd, count: int) -> ValueColumn | None:
        data = _mean_type(self.argument.data)
        return None if end is None else v.constant(float(end) if data == FLOAT else end, data, count)


def within_domain(
    now: ValueColumn, has_members: Bools, sealed: Bools | None, lo: ValueColumn | None, hi: ValueColumn | None
) -> RangeColumn:
    """A value that is anywhere in the domain lo..hi until the group is sealed, and then is the current one."""
    null_codes = None if has_members.all() else np.where(has_members, 0, _MAYBE_NULL).astype(np.uint8)
    if sealed is not None and sealed.any():
        blank = v.nulls_like(now, len(now))
        lo, hi = (v.where(sealed, now, blank if e is None else e) for e in (lo, hi))
        if now.valid is not None:
            null_codes = np.where(sealed & ~now.valid, _ALWAYS_NULL, np.where(has_members, 0, _MAYBE_NULL)).astype(
                np.uint8
            )
    return RangeColumn(now, lo, hi, null_codes)


class RetractableAverage(Accumulator):
    """AVG of members that may leave or change: the sums of the current values and of the settled values, and the bounds
    of all possible values. A member is settled if it is permanently shown and its value is final."""

    reads_members = True

    def __init__(self, prefix: str, argument: AggregateArgument) -> None:
        self.argument = argument
        self.bounds = MemberBounds(prefix, argument)
        self.settled_sum, self.now_sum = (
            exact_sum(f"{prefix}{part}", argument.data, argument.limits) for part in ("settled", "now")
        )
        self.unsettled_column, self.count_column = f"{prefix}unsettled", f"{prefix}n"
        counts = dict.fromkeys((self.unsettled_column, self.count_column), pa.int64())
        self.columns = {**self.bounds.columns, **self.settled_sum.columns, **self.now_sum.columns, **counts}

    def absorb(self, rows: TableRows, member_delta: MemberDelta, context: GroupContext) -> AccumulatorUpdate:
        old, new = member_delta.old_and_new_contributions(self.argument)
        columns = self.bounds.absorb(rows, member_delta, old, new, context)
        columns |= self.settled_sum.update(
            rows, member_delta.groups, None if old is None else old.settled_values, new.settled_values
        )
        columns |= self.now_sum.update(rows, member_delta.groups, None if old is None else old.now, new.now)
        unsettled_changes = member_delta.count_changes(None if old is None else old.is_unsettled, new.is_unsettled)
        now_changes = member_delta.count_changes(None if old is None else old.now.is_valid(), new.now.is_valid())
        columns[self.unsettled_column] = ValueColumn(rows[self.unsettled_column].data + unsettled_changes)
        columns[self.count_column] = ValueColumn(rows[self.count_column].data + now_changes)
        return AccumulatorUpdate(columns)

    def render(self, rows: TableRows, sealed: Bools | None, context: GroupContext) -> KnowledgeColumn:
        now = self.now_sum.mean(rows, rows[self.count_column].data)
        lo, hi = (_to_mean_type(end, self.argument) for end in self.bounds.ends(rows, sealed))
        null_codes = self.bounds.null_codes(rows, sealed).data
        # If no member may leave or change and none can be added, the mean is final.
        is_final = (rows[self.unsettled_column].data == 0) & (False if sealed is None else sealed)
        if is_final.any():
            mean = self.settled_sum.mean(rows, rows[self.bounds.possible_column].data)
            lo, hi, now = v.where(is_final, mean, lo), v.where(is_final, mean, hi), v.where(is_final, mean, now)
            null_codes = np.where(is_final, np.where(mean.is_valid(), 0, _ALWAYS_NULL), null_codes).astype(np.uint8)
        return RangeColumn(now, lo, hi, null_codes)


def _mean_type(data: DataType) -> DataType:
    """The mean of intervals is an interval, rounded to a whole number of ticks; all other means are floats."""
    return data if data == INTERVAL else FLOAT


def _to_mean_type(values: ValueColumn, argument: AggregateArgument) -> ValueColumn:
    data = argument.data
    if _mean_type(data) == data:
        return values
    divisor = 10 ** (data.scale or 0) if data.name == "decimal" else 1
    if values.data.dtype != object and (divisor == 1 or is_within(values.data, 2**53)):
        return ValueColumn(values.data / float(divisor), values.valid)
    floats = [None if x is None else float(x) for x in (values.value_at(i, data) for i in range(len(values)))]
    return v.from_python(floats, FLOAT)
