"""The kernels of `date_trunc` and `period_end`: boundaries of the period that each timestamp of a column is in."""

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from smile.algebra.coercions import MICROSECONDS_PER_DAY, TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.periods import Period, read_period
from smile.algebra.time_zones import TimeZone
from smile.columns import exact
from smile.columns.values import Array, Bools
from smile.kernels.expressions.arithmetic_kernels import ColumnData, Kernel, KernelResult


def period_kernel(name: str, row_by_row: Kernel) -> Kernel:
    """`row_by_row` is the kernel for rows with different periods."""
    following = int(name == "period_end")

    def run(operands: Sequence[ColumnData], valid: Bools | None) -> KernelResult:
        texts, moments, *zones = operands
        names = [pc.unique(column) for column in (texts, *zones)]
        period = read_period(*(str(n[0]) for n in names)) if all(len(n) == 1 for n in names) else None
        if period is None:
            return row_by_row(operands, valid)
        return exact.zero_out_of_bounds(_boundaries(period, moments, following), TIMESTAMP_MIN, TIMESTAMP_MAX)

    return run


def _boundaries(period: Period, moments: Array, following: int) -> Array:
    readings = moments if period.zone is None else _readings(period.zone, moments)
    if period.in_months:
        months = (readings // MICROSECONDS_PER_DAY).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        months = ((months - period.origin) // period.length + following) * period.length + period.origin
        days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        boundaries = days * MICROSECONDS_PER_DAY
    else:
        numbers = (readings - period.origin) // period.length + following
        boundaries = numbers * period.length + period.origin
    return boundaries if period.zone is None else _moments(period.zone, boundaries)


def _readings(zone: TimeZone, moments: Array) -> Array:
    offsets, latest = np.array(zone.offsets), np.array(zone.latest)
    n = np.maximum(np.searchsorted(np.array(zone.begins), moments, side="right") - 1, 0)
    shown = moments + offsets[n]
    return np.where(n > 0, np.maximum(shown, latest[n - 1] - 1), shown)


def _moments(zone: TimeZone, readings: Array) -> Array:
    begins, offsets = np.array(zone.begins), np.array(zone.offsets)
    n = np.minimum(np.searchsorted(np.array(zone.latest), readings, side="right"), len(begins) - 1)
    first = readings - offsets[n]
    return np.where(n > 0, np.maximum(first, begins[n]), first)
