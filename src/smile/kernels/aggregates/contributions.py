"""Contributions: what the members of a group add to an aggregate.

A member that is permanently hidden, or whose value is permanently NULL, contributes nothing. For each changed member of
a batch, an accumulator subtracts the old contribution and adds the new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.types import BOOL, DataType
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, MaskColumn, RangeColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_range_column
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.delta import Delta, RowGroups, RowKnowledge
from smile.kernels.expressions import compile_expression
from smile.kernels.transform import InputRelation
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import expression_knowledge

_ALWAYS_NULL = 2


class AggregateArgument:
    """The argument of an aggregate. `is_fixed`: its value never changes in a row. `domain` bounds the value in absent
    rows."""

    def __init__(self, expr: mmpl.Expr, source: InputRelation) -> None:
        types = source.type.heading.columns
        self.expr = expr
        self.data: DataType = type_of(expr, types)
        self.domain: Range = to_range(expression_knowledge(expr, dict(source.bottoms), types))
        layout = source.layout
        self.column = expr.name if isinstance(expr, mmpl.ColumnRef) else None
        if self.column is not None and self.column in layout.evolving:
            # Only the domain is known of a latest value that may be replaced: compiled expressions handle that.
            self.column = self.column if layout.evolving[self.column].kind in ("range", "mask") else None
        self.compiled = None if self.column else compile_expression(expr, layout, source.bottoms)
        self.is_fixed = self.column in layout.fixed if self.compiled is None else self.compiled.kind == "exact"

    def evaluate(
        self, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn], count: int
    ) -> KnowledgeColumn:
        if self.compiled is not None:
            return self.compiled(fixed, columns, count)
        assert self.column is not None
        return fixed[self.column] if self.is_fixed else columns[self.column]

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

    @cached_property
    def is_final(self) -> Bools:
        """Where the value is final, whether or not the member will contribute."""
        if self.lo is None or self.hi is None:
            return np.zeros(len(self.possible), bool)
        return self.lo.is_valid() & self.hi.is_valid() & v.equal_data(self.lo.data, self.hi.data)


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
    ranges = to_range_column(column, BOOL)  # a compiled expression: a range, or a mask
    if ranges.nulls is not None:
        possible, certain = possible & (ranges.nulls != _ALWAYS_NULL), certain & (ranges.nulls == 0)
    now = ranges.now
    return Contributions(
        possible, certain, ranges.lo, ranges.hi, ValueColumn(now.data, shown & possible & now.is_valid())
    )


def boolean_masks(ranges: RangeColumn) -> MaskColumn:
    """Ranges of Booleans (false before true) as masks of the possible truth values."""
    null_codes = ranges.null_codes()
    can_have_value = null_codes != _ALWAYS_NULL
    can_be_true, can_be_false = can_have_value.copy(), can_have_value.copy()
    if ranges.hi is not None:
        can_be_true &= ~ranges.hi.is_valid() | ranges.hi.data
    if ranges.lo is not None:
        can_be_false &= ~(ranges.lo.is_valid() & ranges.lo.data)
    possible = (can_be_true * 1 + can_be_false * 2 + (null_codes != 0) * 4).astype(np.uint8)
    now = np.where(ranges.now.is_valid(), np.where(ranges.now.data, 1, 2), 4).astype(np.uint8)
    is_single_truth = (possible & (possible - np.uint8(1))) == 0
    return MaskColumn(possible, np.where(is_single_truth, possible, now))


def range_or_mask(ranges: RangeColumn, data: DataType) -> KnowledgeColumn:
    return boolean_masks(ranges) if data == BOOL else ranges


@dataclass(frozen=True)
class MemberDelta:
    """The delta of the members, and the group of each member."""

    delta: Delta
    groups: RowGroups

    def contributions(self, argument: AggregateArgument | None, knowledge: RowKnowledge) -> Contributions:
        column = None if argument is None else argument.evaluate(self.delta.fixed, knowledge.columns, len(knowledge))
        return contributions_of(column, knowledge.mask)

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
