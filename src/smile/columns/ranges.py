"""Converts knowledge of any kind to ranges. The range of a cell contains every value that is possible for it."""

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import Array, Bools, ValueColumn
from smile.knowledge.values.cells import to_range

_MAYBE, _ONLY = 1, 2


def to_range_column(column: KnowledgeColumn, data: DataType) -> RangeColumn:
    """The knowledge of each cell as a range. A latest value that may be replaced has no bounds."""
    if isinstance(column, RangeColumn):
        return column
    if isinstance(column, MaskColumn):
        possible, now = column.possible, column.now
        true, false, null = (possible & 1) != 0, (possible & 2) != 0, (possible & 4) != 0
        has_value = true | false
        nulls = np.where(null, np.where(has_value, _MAYBE, _ONLY), 0).astype(np.uint8)
        return RangeColumn(
            ValueColumn(now == 1, now != 4), ValueColumn(~false, has_value), ValueColumn(true, has_value), nulls
        )
    if isinstance(column, LatestColumn):
        ends = ValueColumn(column.value.data, column.value.is_valid() & column.sealed)
        return RangeColumn(column.now, ends, ends, _null_codes(column.sealed, column.value))
    if isinstance(column, ObjectColumn):
        range_column = k.from_points([to_range(p) for p in column.points], "range", data)
        assert isinstance(range_column, RangeColumn)
        return range_column
    return RangeColumn(column, column, column, _null_codes(np.ones(len(column), bool), column))


def _null_codes(is_final: Bools, values: ValueColumn) -> Array:
    return np.where(is_final, np.where(values.is_valid(), 0, _ONLY), _MAYBE).astype(np.uint8)
