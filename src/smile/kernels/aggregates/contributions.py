"""Members as an aggregate sees them: a member that is hidden for good, or whose value is NULL for good, takes no part.

Each row of a batch has one part; what it contributes is subtracted in its old version and added in its new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from smile.algebra import mmpl
from smile.algebra.scalars import type_of
from smile.algebra.types import BOOL, DataType
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, MaskColumn, RangeColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_range_column
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.delta import Delta, RowGroups, RowKnowledge
from smile.kernels.expressions import compile_expression
from smile.kernels.transform import InputRelation
from smile.knowledge.cells import to_range
from smile.knowledge.range import Range
from smile.knowledge.transfer import expression_knowledge

_ALWAYS_NULL = 2


class AggregateArgument:
    """What an aggregate is of. `exact` if it never changes; `domain` is what a member nobody has heard of may have."""

    def __init__(self, expr: mmpl.Expr, source: InputRelation) -> None:
        types = source.type.heading.columns
        self.expr = expr
        self.data: DataType = type_of(expr, types)
        self.domain: Range = to_range(expression_knowledge(expr, dict(source.bottoms), types))
        layout = source.layout
        self.column = expr.name if isinstance(expr, mmpl.ColumnRef) else None
        if self.column is not None and self.column in layout.evolving:
            # A latest value that may be replaced is known by its domain alone, which expressions see to.
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
        """Of members whose value never changes."""
        values = self.evaluate(delta.fixed, {}, len(delta))
        assert isinstance(values, ValueColumn)
        return values


@dataclass(frozen=True)
class Contributions:
    """`counted`: may contribute. `sure`: does so for good. `lo`, `hi` None: none has that bound. `now` is valid where
    the member contributes at present."""

    possible: Bools
    certain: Bools
    lo: ValueColumn | None
    hi: ValueColumn | None
    now: ValueColumn

    def __len__(self) -> int:
        return len(self.possible)

    @cached_property
    def is_final(self) -> Bools:
        """Where the value is known for good, whether it will contribute or not."""
        if self.lo is None or self.hi is None:
            return np.zeros(len(self.possible), bool)
        return self.lo.is_valid() & self.hi.is_valid() & v.equal_data(self.lo.data, self.hi.data)


def contributions_of(column: KnowledgeColumn | None, mask: MaskCodes) -> Contributions:
    """`column` is the argument's; None where members are counted whatever they have."""
    live, stays, shown = masks.can_be_shown(mask), masks.is_permanently_shown(mask), masks.is_shown(mask)
    if column is None:
        always = ValueColumn(np.ones(len(mask), bool))
        return Contributions(live, stays, always, always, ValueColumn(always.data, shown))
    if isinstance(column, ValueColumn):
        if column.valid is not None:
            live, stays, shown = live & column.valid, stays & column.valid, shown & column.valid
        return Contributions(live, stays, column, column, ValueColumn(column.data, shown))
    ranges = to_range_column(column, BOOL)  # a compiled expression: a range, or a mask
    if ranges.nulls is not None:
        live, stays = live & (ranges.nulls != _ALWAYS_NULL), stays & (ranges.nulls == 0)
    now = ranges.now
    return Contributions(live, stays, ranges.lo, ranges.hi, ValueColumn(now.data, shown & live & now.is_valid()))


def boolean_masks(ranges: RangeColumn) -> MaskColumn:
    """Booleans in order, as truths again."""
    null_codes = ranges.null_codes()
    valued = null_codes != _ALWAYS_NULL
    can_be_true, can_be_false = valued.copy(), valued.copy()
    if ranges.hi is not None:
        can_be_true &= ~ranges.hi.is_valid() | ranges.hi.data
    if ranges.lo is not None:
        can_be_false &= ~(ranges.lo.is_valid() & ranges.lo.data)
    possible = (can_be_true * 1 + can_be_false * 2 + (null_codes != 0) * 4).astype(np.uint8)
    now = np.where(ranges.now.is_valid(), np.where(ranges.now.data, 1, 2), 4).astype(np.uint8)
    single = (possible & (possible - np.uint8(1))) == 0
    return MaskColumn(possible, np.where(single, possible, now))


def range_or_mask(ranges: RangeColumn, data: DataType) -> KnowledgeColumn:
    return boolean_masks(ranges) if data == BOOL else ranges


@dataclass(frozen=True)
class MemberDelta:
    """Changes of members, by groups."""

    delta: Delta
    groups: RowGroups

    def contributions(self, argument: AggregateArgument | None, knowledge: RowKnowledge) -> Contributions:
        column = None if argument is None else argument.evaluate(self.delta.fixed, knowledge.columns, len(knowledge))
        return contributions_of(column, knowledge.mask)

    def old_and_new_contributions(
        self, argument: AggregateArgument | None
    ) -> tuple[Contributions | None, Contributions]:
        """Old and new; of members nobody had heard of the old part does not count."""
        delta = self.delta
        old = None if delta.old is None else self.contributions(argument, delta.old)
        return old, self.contributions(argument, delta.new)

    def count_changes(self, old: Bools | None, new: Bools) -> Array:
        """By how much a number of members of each group has changed."""
        changes = new.astype(np.int64)
        if old is not None:
            changes -= old
        return self.groups.sums(changes)

    def is_new_member(self, values: ValueColumn | None) -> Bools:
        """Where all members are there for good: the rows that nobody had heard of, and that have a value."""
        is_new = np.ones(len(self.delta), bool) if values is None else values.is_valid()
        if self.delta.old is not None:
            is_new = is_new & (self.delta.old.mask == masks.ABSENT)
        return is_new

    def new_member_values(self, argument: AggregateArgument) -> ValueColumn:
        """What the same rows have; not valid elsewhere."""
        values = argument.evaluate_fixed(self.delta)
        return values if self.delta.old is None else ValueColumn(values.data, self.is_new_member(values))
