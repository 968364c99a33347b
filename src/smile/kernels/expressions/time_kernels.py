"""The kernel of `date_trunc`: the beginning of the period that each timestamp of a column is in."""

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from smile.algebra.coercions import MICROSECONDS_PER_DAY
from smile.algebra.functions.time import UNIT_MICROSECONDS, truncation_unit
from smile.columns.values import Array, Bools
from smile.kernels.expressions.arithmetic_kernels import ColumnData, Kernel, KernelResult

_DAYS_PER_WEEK = 7
_WEEKDAY_OF_DAY_0 = 3  # 1970-01-01 is a Thursday, and weeks begin on Monday


def date_trunc_kernel(row_by_row: Kernel) -> Kernel:
    """`row_by_row` is the kernel for rows with different units."""

    def run(operands: Sequence[ColumnData], valid: Bools | None) -> KernelResult:
        units, microseconds = operands
        distinct_units = pc.unique(units)
        unit = truncation_unit(str(distinct_units[0])) if len(distinct_units) == 1 else None
        starts = _period_starts(unit, microseconds) if unit is not None else None
        return row_by_row(operands, valid) if starts is None else (starts, None)

    return run


def _period_starts(unit: str, microseconds: Array) -> Array | None:
    if unit in UNIT_MICROSECONDS:
        return microseconds - microseconds % UNIT_MICROSECONDS[unit]
    days = microseconds // MICROSECONDS_PER_DAY
    if unit == "week":
        return (days - (days + _WEEKDAY_OF_DAY_0) % _DAYS_PER_WEEK) * MICROSECONDS_PER_DAY
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    if unit == "quarter":
        months = months - (months.astype(np.int64) % 3).astype("timedelta64[M]")
    elif unit == "year":
        months = months.astype("datetime64[Y]").astype("datetime64[M]")
    elif unit != "month":
        return None
    return months.astype("datetime64[D]").astype(np.int64) * MICROSECONDS_PER_DAY
