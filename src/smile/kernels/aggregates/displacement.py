"""Aggregates of groups whose members leave only if others take their place, as those of BEST do.

The results are those of `smile.reference.grouping`.
"""

import numpy as np

from smile.algebra.types import INT
from smile.columns import values as v
from smile.columns.knowledge import RangeColumn
from smile.columns.values import Bools, ValueColumn
from smile.kernels.aggregates.ordered_values import better_of
from smile.knowledge.aggregate_types import DisplacedValue
from smile.knowledge.types import Direction

_NEVER_NULL, _MAYBE_NULL = 0, 1


def displaced_ranges(column: RangeColumn, displaced: DisplacedValue, is_full: Bools | None) -> RangeColumn:
    """The ranges of an aggregate, narrowed by what displacement says of it. `is_full`: the groups that have as many
    members as they can have; None if it does not matter."""
    null_codes, now, lo, hi = column.null_codes(), column.now, column.lo, column.hi
    narrows = now.is_valid() & (null_codes <= (_MAYBE_NULL if displaced.never_null else _NEVER_NULL))
    bound = ValueColumn(now.data, narrows if is_full is None else narrows & is_full)
    if displaced.direction is Direction.UP:
        lo = _tighter(lo, bound, is_lower=True)
    elif displaced.direction is Direction.DOWN:
        hi = _tighter(hi, bound, is_lower=False)
    if displaced.most is not None:
        hi = _tighter(hi, v.constant(displaced.most, INT, len(column)), is_lower=False)
    nulls = np.where(narrows & displaced.never_null, np.uint8(_NEVER_NULL), null_codes)
    return RangeColumn(now, lo, hi, nulls if nulls.any() else None)


def _tighter(end: ValueColumn | None, bound: ValueColumn, is_lower: bool) -> ValueColumn:
    return bound if end is None else better_of(end, bound, is_max=is_lower)
