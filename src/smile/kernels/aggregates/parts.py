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
from smile.columns.knowledge import Column, Masks, Ranges
from smile.columns.masks import Codes
from smile.columns.ranges import ranges_of
from smile.columns.values import Array, Bools, Values
from smile.kernels.changes import Changes, Groups, Version
from smile.kernels.expressions import compile_expression
from smile.kernels.transform import Input
from smile.knowledge.cells import range_of
from smile.knowledge.range import Range
from smile.knowledge.transfer import know

_ONLY = 2


class Argument:
    """What an aggregate is of. `exact` if it never changes; `domain` is what a member nobody has heard of may have."""

    def __init__(self, expr: mmpl.Expr, source: Input) -> None:
        types = source.type.heading.columns
        self.expr = expr
        self.data: DataType = type_of(expr, types)
        self.domain: Range = range_of(know(expr, dict(source.bottoms), types))
        layout = source.layout
        self.column = expr.name if isinstance(expr, mmpl.Column) else None
        if self.column is not None and self.column in layout.evolving:
            # A latest value that may be replaced is known by its domain alone, which expressions see to.
            self.column = self.column if layout.evolving[self.column].kind in ("range", "mask") else None
        self.compiled = None if self.column else compile_expression(expr, layout, source.bottoms)
        self.exact = self.column in layout.fixed if self.compiled is None else self.compiled.kind == "exact"

    def of(self, fixed: Mapping[str, Values], columns: Mapping[str, Column], count: int) -> Column:
        if self.compiled is not None:
            return self.compiled(fixed, columns, count)
        assert self.column is not None
        return fixed[self.column] if self.exact else columns[self.column]

    def fixed(self, changes: Changes) -> Values:
        """Of members whose value never changes."""
        found = self.of(changes.fixed, {}, len(changes))
        assert isinstance(found, Values)
        return found


@dataclass(frozen=True)
class Parts:
    """`counted`: may contribute. `sure`: does so for good. `lo`, `hi` None: none has that bound. `now` is valid where
    the member contributes at present."""

    counted: Bools
    sure: Bools
    lo: Values | None
    hi: Values | None
    now: Values

    def __len__(self) -> int:
        return len(self.counted)

    @cached_property
    def final(self) -> Bools:
        """Where the value is known for good, whether it will contribute or not."""
        if self.lo is None or self.hi is None:
            return np.zeros(len(self.counted), bool)
        return self.lo.there() & self.hi.there() & v.equal_data(self.lo.data, self.hi.data)


def parts_of(column: Column | None, mask: Codes) -> Parts:
    """`column` is the argument's; None where members are counted whatever they have."""
    live, stays, shown = masks.live(mask), masks.stays(mask), masks.shown(mask)
    if column is None:
        there = Values(np.ones(len(mask), bool))
        return Parts(live, stays, there, there, Values(there.data, shown))
    if isinstance(column, Values):
        if column.valid is not None:
            live, stays, shown = live & column.valid, stays & column.valid, shown & column.valid
        return Parts(live, stays, column, column, Values(column.data, shown))
    ranges = ranges_of(column, BOOL)  # a compiled expression: a range, or a mask
    if ranges.nulls is not None:
        live, stays = live & (ranges.nulls != _ONLY), stays & (ranges.nulls == 0)
    now = ranges.now
    return Parts(live, stays, ranges.lo, ranges.hi, Values(now.data, shown & live & now.there()))


def masks_of(ranges: Ranges) -> Masks:
    """Booleans in order, as truths again."""
    codes = ranges.null_codes()
    valued = codes != _ONLY
    true, false = valued.copy(), valued.copy()
    if ranges.hi is not None:
        true &= ~ranges.hi.there() | ranges.hi.data
    if ranges.lo is not None:
        false &= ~(ranges.lo.there() & ranges.lo.data)
    possible = (true * 1 + false * 2 + (codes != 0) * 4).astype(np.uint8)
    now = np.where(ranges.now.there(), np.where(ranges.now.data, 1, 2), 4).astype(np.uint8)
    single = (possible & (possible - np.uint8(1))) == 0
    return Masks(possible, np.where(single, possible, now))


def typed(ranges: Ranges, data: DataType) -> Column:
    return masks_of(ranges) if data == BOOL else ranges


@dataclass(frozen=True)
class Batch:
    """Changes of members, by groups."""

    changes: Changes
    groups: Groups

    def parts(self, argument: Argument | None, version: Version) -> Parts:
        column = None if argument is None else argument.of(self.changes.fixed, version.columns, len(version))
        return parts_of(column, version.mask)

    def both(self, argument: Argument | None) -> tuple[Parts | None, Parts]:
        """Old and new; of members nobody had heard of the old part does not count."""
        changes = self.changes
        old = None if changes.old is None else self.parts(argument, changes.old)
        return old, self.parts(argument, changes.new)

    def counts(self, old: Bools | None, new: Bools) -> Array:
        """By how much a number of members of each group has changed."""
        found = new.astype(np.int64)
        if old is not None:
            found -= old
        return self.groups.sums(found)

    def arriving(self, values: Values | None) -> Bools:
        """Where all members are there for good: the rows that nobody had heard of, and that have a value."""
        found = np.ones(len(self.changes), bool) if values is None else values.there()
        if self.changes.old is not None:
            found = found & (self.changes.old.mask == masks.ABSENT)
        return found

    def arrived(self, argument: Argument) -> Values:
        """What the same rows have; not valid elsewhere."""
        found = argument.fixed(self.changes)
        return found if self.changes.old is None else Values(found.data, self.arriving(found))
