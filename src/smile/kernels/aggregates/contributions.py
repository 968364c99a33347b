"""Contributions: what the members of a group add to an aggregate.

A member that is permanently hidden, or whose value is permanently NULL, contributes nothing. For each changed member of
a batch, an accumulator subtracts the old contribution and adds the new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.types import BOOL, DataType
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_mask_column, to_range_column
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.aggregates.ordered_values import better_of, is_as_good
from smile.kernels.delta import Delta, RowGroups, RowKnowledge
from smile.kernels.expressions import compile_expression
from smile.kernels.transform import InputRelation
from smile.knowledge.aggregate_types import argument_domain, distinct_values_max
from smile.knowledge.column_values import value_limits
from smile.knowledge.expression_types import expression_type
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import expression_knowledge

_ALWAYS_NULL = 2


class AggregateArgument:
    """The argument of an aggregate. `is_fixed`: its value never changes in a row. `domain` bounds the value in rows
    that are shown in the end: only these contribute. `values_max`: the number of values in it, if it has few."""

    def __init__(self, expr: mmpl.Expr, source: InputRelation) -> None:
        types = source.type.heading.columns
        self.expr = expr
        self.data: DataType = type_of(expr, types)
        column_type = expression_type(expr, source.type.columns)
        self.domain, domain_of_all = (
            argument_domain(to_range(expression_knowledge(expr, dict(bottoms), types, source.limits)), column_type)
            for bottoms in (source.shown_bottoms, source.bottoms)
        )
        self.limits = value_limits(column_type)
        self.values_max = distinct_values_max(column_type, self.domain)
        layout = source.layout
        self.column = expr.name if isinstance(expr, mmpl.ColumnRef) else None
        if self.column is not None and self.data.name == "relation":
            self.column = None  # compiled expressions handle nested relations
        self.compiled = None if self.column else compile_expression(expr, layout, source.limits)
        self.is_fixed = self.column in layout.fixed if self.compiled is None else self.compiled.kind == "exact"
        has_narrow_domain = (self.domain.lo, self.domain.hi) != (domain_of_all.lo, domain_of_all.hi)
        self.may_leave_domain = has_narrow_domain and not (self.is_fixed and layout.certain)

    def evaluate(
        self, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn], count: int
    ) -> KnowledgeColumn:
        if self.compiled is not None:
            return self.compiled(fixed, columns, count)
        assert self.column is not None
        return fixed[self.column] if self.is_fixed else columns[self.column]

    def contributions(self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> "Contributions":
        """The contributions of members with these fixed columns and this knowledge."""
        column = self.evaluate(fixed, knowledge.columns, len(knowledge))
        contributions = contributions_of(column, knowledge.mask)
        return contributions.within(self.domain, self.data) if self.may_leave_domain else contributions

    def evaluate_fixed(self, delta: Delta) -> ValueColumn:
        """The argument's values in the rows of a batch; only for a fixed argument."""
        values = self.evaluate(delta.fixed, {}, len(delta))
        assert isinstance(values, ValueColumn)
        return values


@dataclass(frozen=True)
class Contributions:
    """The contribution of each member. `possible`: it may contribute in the end; `certain`: it does. `lo` or `hi` is
    None if no member has that bound. `now` is valid where the member contributes at present."""

    possible: Bools
    certain: Bools
    lo: ValueColumn | None
    hi: ValueColumn | None
    now: ValueColumn

    def __len__(self) -> int:
        return len(self.possible)

    def within(self, domain: Range, data: DataType) -> "Contributions":
        """The contributions within a domain. A member whose value lies outside of it does not contribute."""
        lo, hi = self.lo, self.hi
        if domain.lo is not None:
            lo = _tighter_end(lo, v.constant(domain.lo, data, len(self)), is_lower=True)
        if domain.hi is not None:
            hi = _tighter_end(hi, v.constant(domain.hi, data, len(self)), is_lower=False)
        if lo is None or hi is None:
            return replace(self, lo=lo, hi=hi)
        is_outside = lo.is_valid() & hi.is_valid() & ~is_as_good(hi, lo, is_max=True)
        if not is_outside.any():
            return replace(self, lo=lo, hi=hi)
        now = ValueColumn(self.now.data, self.now.is_valid() & ~is_outside)
        return Contributions(self.possible & ~is_outside, self.certain & ~is_outside, lo, hi, now)

    @cached_property
    def is_final(self) -> Bools:
        """Where the value is final, whether or not the member will contribute."""
        if self.lo is None or self.hi is None:
            return np.zeros(len(self.possible), bool)
        return self.lo.is_valid() & self.hi.is_valid() & v.equal_data(self.lo.data, self.hi.data)

    @property
    def settled_values(self) -> ValueColumn:
        """The values of settled members: those that contribute in any case, and whose value is final."""
        is_settled = self.possible & self.certain & self.is_final
        return ValueColumn(self.now.data if self.lo is None else self.lo.data, is_settled)

    @property
    def is_unsettled(self) -> Bools:
        """Which members may contribute and are not settled."""
        return self.possible & ~(self.certain & self.is_final)


def _tighter_end(end: ValueColumn | None, domain_end: ValueColumn, is_lower: bool) -> ValueColumn:
    return domain_end if end is None else better_of(end, domain_end, is_max=is_lower)


def contributions_of(column: KnowledgeColumn | None, mask: MaskCodes) -> Contributions:
    """`column` is the argument's; None for COUNT(*), which counts members whatever their values."""
    possible, certain, shown = masks.can_be_shown(mask), masks.is_permanently_shown(mask), masks.is_shown(mask)
    if column is None:
        always = ValueColumn(np.ones(len(mask), bool))
        return Contributions(possible, certain, always, always, ValueColumn(always.data, shown))
    if isinstance(column, ValueColumn):
        if column.valid is not None:
            possible, certain, shown = possible & column.valid, certain & column.valid, shown & column.valid
        return Contributions(possible, certain, column, column, ValueColumn(column.data, shown))
    ranges = to_range_column(column)  # a compiled expression: a range, or a mask
    if ranges.nulls is not None:
        possible, certain = possible & (ranges.nulls != _ALWAYS_NULL), certain & (ranges.nulls == 0)
    now = ranges.now
    return Contributions(
        possible, certain, ranges.lo, ranges.hi, ValueColumn(now.data, shown & possible & now.is_valid())
    )


def range_or_mask(ranges: RangeColumn, data: DataType) -> KnowledgeColumn:
    return to_mask_column(ranges) if data == BOOL else ranges


@dataclass(frozen=True)
class MemberDelta:
    """The delta of the members, and the group of each member."""

    delta: Delta
    groups: RowGroups

    def contributions(self, argument: AggregateArgument | None, knowledge: RowKnowledge) -> Contributions:
        if argument is None:
            return contributions_of(None, knowledge.mask)
        return argument.contributions(self.delta.fixed, knowledge)

    def old_and_new_contributions(
        self, argument: AggregateArgument | None
    ) -> tuple[Contributions | None, Contributions]:
        """The contributions before the batch and after it. Absent members contribute nothing. The first is None if all
        members are new."""
        delta = self.delta
        old = None if delta.old is None else self.contributions(argument, delta.old)
        return old, self.contributions(argument, delta.new)

    def count_changes(self, old: Bools | None, new: Bools) -> Array:
        """For each group, by how much the number of flagged members has changed."""
        changes = new.astype(np.int64)
        if old is not None:
            changes -= old
        return self.groups.sums(changes)

    def is_new_member(self, values: ValueColumn | None) -> Bools:
        """Rows that were absent before the batch and have a value (any, if `values` is None). Only for members that
        never leave: they are then the only rows that add something."""
        is_new = np.ones(len(self.delta), bool) if values is None else values.is_valid()
        if self.delta.old is not None:
            is_new = is_new & (self.delta.old.mask == masks.ABSENT)
        return is_new

    def new_member_values(self, argument: AggregateArgument) -> ValueColumn:
        """The argument's values in the rows of `is_new_member`; not valid in others."""
        values = argument.evaluate_fixed(self.delta)
        return values if self.delta.old is None else ValueColumn(values.data, self.is_new_member(values))
