"""Aggregates over windows of certain rows that never change. They are computed from running totals, and from extremes
of spans whose lengths are powers of two, so no window is expanded member by member.
"""

from collections.abc import Mapping

import numpy as np

from smile.columns import superaccumulator as s, values as v
from smile.columns.timed_values import TimedValues
from smile.columns.values import Array, Indices, ValueColumn
from smile.kernels.aggregates.accumulator import Accumulator
from smile.kernels.aggregates.averages import AppendOnlyAverage
from smile.kernels.aggregates.counts import AppendOnlyCount
from smile.kernels.aggregates.exact_sums import ExactSum, FloatSum, IntegerSum, add_exactly, is_within, zero_filled
from smile.kernels.aggregates.latest import AppendOnlyLatest, later_of
from smile.kernels.aggregates.min_max import AppendOnlyMinMax
from smile.kernels.aggregates.ordered_values import better_of
from smile.kernels.aggregates.sums import AppendOnlySum
from smile.kernels.delta import Delta
from smile.state.run import TableRows

_SAFE_SUM_MAX = 2**62


class WindowSlices:
    """Windows as slices of sorted rows: each has the rows `order[lo:hi]`, and none is empty."""

    def __init__(self, rows: Delta, order: Indices, lo: Indices, hi: Indices) -> None:
        self.rows, self.order, self.lo, self.hi = rows, order, lo, hi

    def absorb(self, accumulator: Accumulator, totals: TableRows) -> Mapping[str, ValueColumn] | None:
        """The accumulator rows after each window, starting from `totals`; None if slices cannot compute them."""
        match accumulator:
            case AppendOnlyCount(argument=argument, count_column=n):
                is_counted = (
                    np.ones(len(self.rows), bool) if argument is None else argument.evaluate_fixed(self.rows).is_valid()
                )
                return {n: ValueColumn(totals[n].data + self.sums(is_counted))}
            case AppendOnlySum(argument=argument, exact_sum=total):
                return self._window_totals(total, argument.evaluate_fixed(self.rows), totals)
            case AppendOnlyAverage(argument=argument, exact_sum=total, count_column=n, mean_column=mean):
                values = argument.evaluate_fixed(self.rows)
                window_totals = self._window_totals(total, values, totals)
                if window_totals is None:
                    return None
                counts = totals[n].data + self.sums(values.is_valid())
                return {**window_totals, n: ValueColumn(counts), mean: total.mean(window_totals, counts)}
            case AppendOnlyMinMax(argument=argument, value_column=value, is_max=greatest):
                return {
                    value: better_of(
                        totals[value], self._window_extremes(argument.evaluate_fixed(self.rows), greatest), greatest
                    )
                }
            case AppendOnlyLatest(argument=argument, tick_columns=tick, last=last):
                return last.write(
                    later_of(last.read(totals), self._window_latests(argument.evaluate_fixed(self.rows), tick))
                )
        return None

    def sums(self, data: Array) -> Array:
        """The sum over each window. The caller ensures that int64 does not overflow."""
        sums = np.zeros(len(data) + 1, np.int64)
        np.cumsum(data[self.order], out=sums[1:])
        return sums[self.hi] - sums[self.lo]

    def _window_totals(self, total: ExactSum, values: ValueColumn, totals: TableRows) -> dict[str, ValueColumn] | None:
        match total:
            case IntegerSum(column=part):
                return {part: ValueColumn(add_exactly(totals[part].data, self._integer_sums(zero_filled(values)), 1))}
            case FloatSum(limbs_column=part, wide_column=wide, rounded_column=rounded):
                each = s.from_floats(zero_filled(values))
                if each.wide is not None:
                    return None
                limbs = np.zeros((len(values) + 1, s.LIMB_COUNT), np.int64)
                np.cumsum(each.limbs[self.order], axis=0, out=limbs[1:])
                sums = s.ExactSums.from_columns(totals[part], totals[wide]).add(
                    s.ExactSums(limbs[self.hi] - limbs[self.lo], None)
                )
                first, rest = sums.to_columns()
                return {part: first, wide: rest, rounded: sums.to_floats()}
        return None

    def _integer_sums(self, data: Array) -> Array:
        if is_within(data, _SAFE_SUM_MAX // max(len(data), 1)):
            return self.sums(data)
        sums = np.zeros(len(data) + 1, object)
        sums[1:] = np.add.accumulate(data[self.order].astype(object))
        return v.ints((sums[self.hi] - sums[self.lo]).tolist())

    def _window_extremes(self, values: ValueColumn, greatest: bool) -> ValueColumn:
        """Every row has a unique rank, so the best rank identifies the row."""
        count = len(values)
        rows = np.argsort(v.ranks(ValueColumn(values.data)), kind="stable")
        if not greatest:
            rows = rows[::-1]
        rank = np.empty(count, np.int64)
        rank[rows] = np.arange(count)
        if values.valid is not None:
            rank[~values.valid] = -1
        best_ranks = _slice_maxima(rank[self.order], self.lo, self.hi)
        extremes = values.take(rows[best_ranks])
        return ValueColumn(extremes.data, None if values.valid is None else best_ranks >= 0)

    def _window_latests(self, values: ValueColumn, tick: tuple[str, ...]) -> TimedValues:
        """The last row of each window. Among rows with one tick, the one with the greatest source."""
        times = self.rows.fixed[tick[0]]
        order = self.order
        source = np.zeros(len(times), np.int64)
        if len(tick) > 1:
            source = self.rows.fixed[tick[1]].data
            ticks = times.data[order]
            # Groups are adjacent, and so are the rows of one tick within a group.
            tick_groups = np.zeros(len(order), np.int64)
            np.cumsum(ticks[1:] != ticks[:-1], out=tick_groups[1:])
            order = order[np.lexsort((source[order], tick_groups))]
        return TimedValues(times, source, values).take(order[self.hi - 1])


def _slice_maxima(ranks: Array, lo: Indices, hi: Indices) -> Array:
    """The maximum of each slice, from two spans that cover it. Their length is the greatest power of two that fits."""
    level = np.frexp((hi - lo).astype(float))[1] - 1
    maxima = np.empty(len(lo), np.int64)
    spans = ranks
    for power in range(int(level.max()) + 1 if len(level) else 0):
        if power:
            half = 1 << (power - 1)
            spans = np.maximum(spans[:-half], spans[half:])
        slices = np.flatnonzero(level == power)
        maxima[slices] = np.maximum(spans[lo[slices]], spans[hi[slices] - (1 << power)])
    return maxima
