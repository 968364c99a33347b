"""Windows over rows that are certain and never change: what is absorbed in a window follows from running totals, and
from the extremes of spans whose lengths are powers of two, so that no window is laid out member by member.
"""

from collections.abc import Mapping

import numpy as np

from smile.columns import superaccumulator as s, values as v
from smile.columns.values import Array, Indices, Values
from smile.kernels.aggregates.accumulator import Accumulator
from smile.kernels.aggregates.averages import PlainAverage
from smile.kernels.aggregates.counts import PlainCount
from smile.kernels.aggregates.exact import FloatTotal, Total, WholeTotal, filled, is_within, summed
from smile.kernels.aggregates.extremes import PlainExtreme
from smile.kernels.aggregates.latests import PlainLatest, Times, later
from smile.kernels.aggregates.peaks import better
from smile.kernels.aggregates.sums import PlainSum
from smile.kernels.changes import Changes
from smile.state.run import Rows

_SAFE = 2**62


class Slices:
    """Rows in an order of which windows are slices: from `lo` up to `hi`, neither empty nor beyond the end."""

    def __init__(self, rows: Changes, order: Indices, lo: Indices, hi: Indices) -> None:
        self.rows, self.order, self.lo, self.hi = rows, order, lo, hi

    def absorbed(self, accumulator: Accumulator, had: Rows) -> Mapping[str, Values] | None:
        """What the accumulator has after each window, `had` being what it had before; None: no way to know."""
        match accumulator:
            case PlainCount(argument=argument, n=n):
                there = np.ones(len(self.rows), bool) if argument is None else argument.fixed(self.rows).there()
                return {n: Values(had[n].data + self.sums(there))}
            case PlainSum(argument=argument, total=total):
                return self._total(total, argument.fixed(self.rows), had)
            case PlainAverage(argument=argument, total=total, n=n, mean=mean):
                values = argument.fixed(self.rows)
                found = self._total(total, values, had)
                if found is None:
                    return None
                counts = had[n].data + self.sums(values.there())
                return {**found, n: Values(counts), mean: total.mean(found, counts)}
            case PlainExtreme(argument=argument, value=value, greatest=greatest):
                return {value: better(had[value], self._extreme(argument.fixed(self.rows), greatest), greatest)}
            case PlainLatest(argument=argument, tick=tick, last=last):
                return last.stored(later(last.read(had), self._latest(argument.fixed(self.rows), tick)))
        return None

    def sums(self, data: Array) -> Array:
        """Over each window; the caller sees to it that int64 does not overflow."""
        sums = np.zeros(len(data) + 1, np.int64)
        np.cumsum(data[self.order], out=sums[1:])
        return sums[self.hi] - sums[self.lo]

    def _total(self, total: Total, values: Values, had: Rows) -> dict[str, Values] | None:
        match total:
            case WholeTotal(part=part):
                return {part: Values(summed(had[part].data, self._whole(filled(values)), 1))}
            case FloatTotal(part=part, wide=wide, rounded=rounded):
                each = s.of_floats(filled(values))
                if each.wide is not None:
                    return None
                limbs = np.zeros((len(values) + 1, s.LIMBS), np.int64)
                np.cumsum(each.limbs[self.order], axis=0, out=limbs[1:])
                found = s.Sums.read(had[part], had[wide]).plus(s.Sums(limbs[self.hi] - limbs[self.lo], None))
                first, rest = found.stored()
                return {part: first, wide: rest, rounded: found.rounded()}
        return None

    def _whole(self, data: Array) -> Array:
        if is_within(data, _SAFE // max(len(data), 1)):
            return self.sums(data)
        sums = np.zeros(len(data) + 1, object)
        sums[1:] = np.add.accumulate(data[self.order].astype(object))
        return v.ints((sums[self.hi] - sums[self.lo]).tolist())

    def _extreme(self, values: Values, greatest: bool) -> Values:
        """Each row has a rank of its own, so that the best rank says which row it is."""
        count = len(values)
        rows = np.argsort(v.ranks(Values(values.data)), kind="stable")
        if not greatest:
            rows = rows[::-1]
        rank = np.empty(count, np.int64)
        rank[rows] = np.arange(count)
        if values.valid is not None:
            rank[~values.valid] = -1
        best = _greatest(rank[self.order], self.lo, self.hi)
        found = values.take(rows[best])
        return Values(found.data, None if values.valid is None else best >= 0)

    def _latest(self, values: Values, tick: tuple[str, ...]) -> Times:
        """The last row of each window; of those of one tick the one with the greatest source."""
        times = self.rows.fixed[tick[0]]
        order = self.order
        source = np.zeros(len(times), np.int64)
        if len(tick) > 1:
            source = self.rows.fixed[tick[1]].data
            ticks = times.data[order]
            # Rows of one tick stand together in each group, and groups stand one after the other.
            place = np.zeros(len(order), np.int64)
            np.cumsum(ticks[1:] != ticks[:-1], out=place[1:])
            order = order[np.lexsort((source[order], place))]
        return Times(times, source, values).take(order[self.hi - 1])


def _greatest(ranks: Array, lo: Indices, hi: Indices) -> Array:
    """Of each slice, from two spans that cover it, of the greatest length that fits."""
    level = np.frexp((hi - lo).astype(float))[1] - 1
    found = np.empty(len(lo), np.int64)
    spans = ranks
    for power in range(int(level.max()) + 1 if len(level) else 0):
        if power:
            half = 1 << (power - 1)
            spans = np.maximum(spans[:-half], spans[half:])
        at = np.flatnonzero(level == power)
        found[at] = np.maximum(spans[lo[at]], spans[hi[at] - (1 << power)])
    return found
