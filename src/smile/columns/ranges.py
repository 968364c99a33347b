"""Converts between the kinds of columns. The range of a cell contains every value that is possible for it. For
Booleans, ranges and masks say the same."""

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import ValueColumn

_NEVER, _MAYBE, _ONLY = range(3)


def to_range_column(column: KnowledgeColumn) -> RangeColumn:
    """The knowledge of each cell as a range. The cells must not be nested relations."""
    if isinstance(column, RangeColumn):
        return column
    if isinstance(column, MaskColumn):
        possible, now = column.possible, column.now
        true, false, null = (possible & 1) != 0, (possible & 2) != 0, (possible & 4) != 0
        has_value = true | false
        nulls = np.where(null, np.where(has_value, _MAYBE, _ONLY), _NEVER).astype(np.uint8)
        return RangeColumn(
            ValueColumn(now == 1, now != 4), ValueColumn(~false, has_value), ValueColumn(true, has_value), nulls
        )
    if isinstance(column, LatestColumn):
        return column.bounds
    assert not isinstance(column, ObjectColumn), "a nested relation has no range"
    return RangeColumn(column, column, column, np.where(column.is_valid(), _NEVER, _ONLY).astype(np.uint8))


def to_kind(column: KnowledgeColumn, kind: ColumnKind, data: DataType) -> KnowledgeColumn:
    """The column as one of the given kind, which can represent its cells."""
    if isinstance(column, ValueColumn):
        return k.exact_column(column, kind, data)
    if kind == "object":
        return k.to_object_column(column, data)
    if kind == "latest":
        return column if isinstance(column, LatestColumn) else LatestColumn.from_ranges(to_range_column(column))
    if kind == "mask":
        return to_mask_column(column.bounds) if isinstance(column, LatestColumn) else column
    return to_range_column(column)


def to_mask_column(ranges: RangeColumn) -> MaskColumn:
    """Ranges of Booleans (false before true) as masks of the possible truth values."""
    null_codes = ranges.null_codes()
    can_have_value = null_codes != _ONLY
    can_be_true, can_be_false = can_have_value.copy(), can_have_value.copy()
    if ranges.hi is not None:
        can_be_true &= ~ranges.hi.is_valid() | ranges.hi.data
    if ranges.lo is not None:
        can_be_false &= ~(ranges.lo.is_valid() & ranges.lo.data)
    possible = (can_be_true * 1 + can_be_false * 2 + (null_codes != _NEVER) * 4).astype(np.uint8)
    now = np.where(ranges.now.is_valid(), np.where(ranges.now.data, 1, 2), 4).astype(np.uint8)
    is_single_truth = (possible & (possible - np.uint8(1))) == 0
    return MaskColumn(possible, np.where(is_single_truth, possible, now))
