"""Operands of expressions: columns of exact values, of ranges, or of masks for Booleans. All rows are canonical.

Canonical means: where the value is final, `now` is that value; where only NULL is possible, a range has neither ends
nor a value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.ranges import to_mask_column
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.expressions.column_functions import constant_column, is_equal
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import Operand as Limits

Operand = ValueColumn | RangeColumn | MaskColumn

TRUE, FALSE, NULL = 1, 2, 4
"""The truth values of a mask, as bits."""
NEVER_NULL, MAYBE_NULL, ALWAYS_NULL = range(3)
"""Codes of nullability in a RangeColumn. Ordered: the code of a strict function is the greatest of its operands'."""


def as_range(operand: Operand) -> RangeColumn:
    """The operand as ranges; not for Booleans."""
    if isinstance(operand, RangeColumn):
        return operand
    assert isinstance(operand, ValueColumn)
    valid = operand.valid
    nulls = None if valid is None else np.where(valid, np.uint8(NEVER_NULL), np.uint8(ALWAYS_NULL))
    return RangeColumn(operand, operand, operand, nulls)


def as_mask(operand: Operand) -> MaskColumn:
    """The operand as masks; only for Booleans."""
    if isinstance(operand, MaskColumn):
        return operand
    assert isinstance(operand, ValueColumn)
    codes = truth_bits(operand)
    return MaskColumn(codes, codes)


def truth_bits(values: ValueColumn) -> Array:
    """The bit of each Boolean in a mask."""
    bits = np.uint8(FALSE) - values.data.view(np.uint8)
    return bits if values.valid is None else np.where(values.valid, bits, np.uint8(NULL))


def canonical_mask(possible: Array, now: Array) -> MaskColumn:
    """A mask column in which a single possible truth value is also the current one."""
    return MaskColumn(possible, np.where(possible & (possible - np.uint8(1)), now, possible))


def canonical_ranges(
    now: ValueColumn, lo: ValueColumn | None, hi: ValueColumn | None, nulls: Array | None
) -> RangeColumn:
    """A canonical range column: sets `now` where the value is final. All else must be canonical already."""
    if nulls is not None and not nulls.any():
        nulls = None
    if lo is not None and hi is not None:
        final = is_equal(lo.data, hi.data)
        for valid in (lo.valid, hi.valid, None if nulls is None else nulls == NEVER_NULL):
            final = final if valid is None else final & valid
        stale = (
            final & ~is_equal(now.data, lo.data)
            if now.valid is None
            else final & ~(is_equal(now.data, lo.data) & now.valid)
        )
        if stale.any():
            now = v.where(stale, lo, now)
    return RangeColumn(now, lo, hi, nulls)


def is_single_valued(operand: RangeColumn) -> Bools:
    """The rows in which only one value is possible, apart from NULL."""
    lo, hi = operand.lo, operand.hi
    if lo is None or hi is None:
        return np.zeros(len(operand), bool)
    if lo is hi:
        return lo.is_valid()
    return is_equal(lo.data, hi.data) & lo.is_valid() & hi.is_valid()


def strict_nulls(operands: Sequence[RangeColumn]) -> Array | None:
    """The nullability of a strict function that follows from its operands. None: never NULL."""
    null_codes = None
    for operand in operands:
        if operand.nulls is not None:
            null_codes = operand.nulls if null_codes is None else np.maximum(null_codes, operand.nulls)
    return null_codes


def null_where(values: ValueColumn, where: Bools) -> ValueColumn:
    """The values, with NULL in the given rows."""
    return ValueColumn(values.data, values.is_valid() & ~where)


def end_null_where(end: ValueColumn | None, where: Bools) -> ValueColumn | None:
    return None if end is None else null_where(end, where)


def select_end(chosen: Bools, a: ValueColumn | None, b: ValueColumn | None) -> ValueColumn | None:
    """In each row end `a` if it is chosen, else end `b`."""
    if a is None or b is None:
        return end_null_where(b, chosen) if a is None else null_where(a, ~chosen)
    return v.where(chosen, a, b)


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LimitColumn = Callable[[int], ValueColumn] | None
"""Gives the limit for a number of rows. None: the type has no limit."""


@dataclass(frozen=True)
class OperandLimits:
    """The limits of the operands of a function. `can_be_undefined`: within them, it can overflow or be undefined."""

    ends: tuple[tuple[LimitColumn, LimitColumn], ...]
    can_be_undefined: bool

    def fill_lower(self, argument: int, operand: RangeColumn) -> ValueColumn | None:
        """The lower ends, with the limit where there is none."""
        return _fill(operand.lo, self.ends[argument][0], len(operand))

    def fill_upper(self, argument: int, operand: RangeColumn) -> ValueColumn | None:
        return _fill(operand.hi, self.ends[argument][1], len(operand))


def _fill(end: ValueColumn | None, limit: LimitColumn, count: int) -> ValueColumn | None:
    if limit is None or (end is not None and end.valid is None):
        return end
    return limit(count) if end is None else v.where(end.is_valid(), end, limit(count))


def operand_limits(limits: Sequence[Limits], types: Sequence[DataType], can_be_undefined: bool) -> OperandLimits:
    def columns(limit: Limits, data: DataType) -> tuple[LimitColumn, LimitColumn]:
        ends = (limit.lo, limit.hi) if isinstance(limit, Range) else (None, None)
        lo, hi = (None if end is None else constant_column(end, data) for end in ends)
        return lo, hi

    return OperandLimits(tuple(columns(o, t) for o, t in zip(limits, types, strict=True)), can_be_undefined)


# ── conversion of columns ───────────────────────────────────────────────────────────────────────────────────────────


def to_operand(column: KnowledgeColumn, data: DataType) -> Operand:
    """The column as an operand. A nested relation is not one."""
    assert not isinstance(column, ObjectColumn)
    if isinstance(column, LatestColumn):
        return to_mask_column(column.bounds) if data == BOOL else column.bounds
    return column
