"""Values with the ticks and sources of their events, and the columns of latest values that are made of them."""

from dataclasses import dataclass

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import values as v
from smile.columns.knowledge import NULLABILITY_BY_CODE, LatestColumn, RangeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range

_NEVER, _MAYBE, _ONLY = (np.uint8(NULLABILITY_BY_CODE.index(nulls)) for nulls in (NEVER, MAYBE, ONLY))


@dataclass(frozen=True)
class TimedValues:
    """Values with their ticks and sources; there is no value where the tick is NULL."""

    tick: ValueColumn
    source: Array
    value: ValueColumn

    def take(self, indices: Indices) -> "TimedValues":
        return TimedValues(self.tick.take(indices), self.source[indices], self.value.take(indices))

    def without_stale_values(self) -> "TimedValues":
        """The same, with NULL where there is no value."""
        if self.tick.valid is None:
            return self
        return TimedValues(
            self.tick, self.source, ValueColumn(self.value.data, self.value.is_valid() & self.tick.valid)
        )

    def keep_where(self, where: Bools) -> "TimedValues":
        return TimedValues(ValueColumn(self.tick.data, self.tick.is_valid() & where), self.source, self.value)


def latest_column(
    settled: TimedValues, now: ValueColumn, is_final: Bools | None, is_certain: Bools, domain: Range, data: DataType
) -> LatestColumn:
    """The column of latest values, of which `settled` are bounds: the final values are these or later ones. `now` are
    the current values. Where `is_final`, no later value can come (None: nowhere). Otherwise the final value is in the
    domain, and NULL only if the domain has NULL or no value `is_certain`."""
    value, count = settled.value, len(now)
    lo, hi = (None if end is None or data == BOOL else v.constant(end, data, count) for end in (domain.lo, domain.hi))
    nulls = np.full(count, _MAYBE) if domain.nulls is not NEVER else np.where(is_certain, _NEVER, _MAYBE)
    if is_final is not None and is_final.any():
        now = value if value is now else v.where(is_final, value, now)
        absent = v.nulls_like(value, count)
        lo, hi = (v.where(is_final, value, absent if end is None else end) for end in (lo, hi))
        nulls = np.where(is_final, np.where(value.is_valid(), _NEVER, _ONLY), nulls)
    return LatestColumn(RangeColumn(now, lo, hi, nulls), value, settled.tick, settled.source)
