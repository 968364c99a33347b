"""AVG: the exact sum of what is there, divided and rounded once. It lies among the members, and in the domain while
members may come."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import FLOAT, INTERVAL, DataType
from smile.columns import values as v
from smile.columns.knowledge import Column, Ranges
from smile.columns.values import Bools, Values
from smile.kernels.aggregates.accumulator import Absorbed, Accumulator, Place
from smile.kernels.aggregates.exact import is_within, total_of
from smile.kernels.aggregates.extremes import Extent
from smile.kernels.aggregates.parts import Argument, Batch, Parts
from smile.knowledge.range import End
from smile.state.run import Rows

_MAYBE, _ONLY = 1, 2


class PlainAverage(Accumulator):
    """Of members that are all there for good, with values that never change: exact sum and count, and the mean."""

    def __init__(self, prefix: str, argument: Argument) -> None:
        self.argument = argument
        self.total = total_of(f"{prefix}sum", argument.data)
        self.n, self.mean = f"{prefix}n", f"{prefix}mean"
        mean = arrow_type(_typed(argument.data))
        self.columns: Mapping[str, pa.DataType] = {**self.total.columns, self.n: pa.int64(), self.mean: mean}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        values = batch.arrived(self.argument)
        found = self.total.changed(rows, batch.groups, None, values)
        counts = rows[self.n].data + batch.groups.sums(values.there().astype(np.int64))
        return Absorbed({**found, self.n: Values(counts), self.mean: self.total.mean(found, counts)})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now, domain = rows[self.mean], self.argument.domain
        there = rows[self.n].data > 0
        count = len(there)
        codes = None if there.all() else np.where(there, 0, _MAYBE).astype(np.uint8)
        lo, hi = (self._end(e, count) for e in (domain.lo, domain.hi))
        if sealed is not None and sealed.any():
            blank = v.empty_like(now, count)
            lo, hi = (v.where(sealed, now, blank if e is None else e) for e in (lo, hi))
            if now.valid is not None:
                codes = np.where(sealed & ~now.valid, _ONLY, np.where(there, 0, _MAYBE)).astype(np.uint8)
        return Ranges(now, lo, hi, codes)

    def _end(self, end: End, count: int) -> Values | None:
        data = _typed(self.argument.data)
        return None if end is None else v.constant(float(end) if data == FLOAT else end, data, count)


class Average(Accumulator):
    """The sums of what is there now and of what is settled, beside all values that may be among the members."""

    reads_members = True

    def __init__(self, prefix: str, argument: Argument) -> None:
        self.argument = argument
        self.extent = Extent(prefix, argument)
        self.settled, self.now = (total_of(f"{prefix}{part}", argument.data) for part in ("settled", "now"))
        self.unsettled, self.n = f"{prefix}unsettled", f"{prefix}n"
        counts = dict.fromkeys((self.unsettled, self.n), pa.int64())
        self.columns = {**self.extent.columns, **self.settled.columns, **self.now.columns, **counts}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        old, new = batch.both(self.argument)
        found = self.extent.absorb(rows, batch, old, new, place)
        found |= self.settled.changed(rows, batch.groups, None if old is None else _settled(old), _settled(new))
        found |= self.now.changed(rows, batch.groups, None if old is None else old.now, new.now)
        unsettled = batch.counts(None if old is None else _unsettled(old), _unsettled(new))
        shown = batch.counts(None if old is None else old.now.there(), new.now.there())
        found[self.unsettled] = Values(rows[self.unsettled].data + unsettled)
        found[self.n] = Values(rows[self.n].data + shown)
        return Absorbed(found)

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now = self.now.mean(rows, rows[self.n].data)
        lo, hi = (_floats(end, self.argument) for end in self.extent.ends(rows, sealed))
        codes = self.extent.codes(rows, sealed).data
        # Without members that may leave or change, and without any to come, the mean is known.
        known = (rows[self.unsettled].data == 0) & (False if sealed is None else sealed)
        if known.any():
            mean = self.settled.mean(rows, rows[self.extent.counted].data)
            lo, hi, now = v.where(known, mean, lo), v.where(known, mean, hi), v.where(known, mean, now)
            codes = np.where(known, np.where(mean.there(), 0, _ONLY), codes).astype(np.uint8)
        return Ranges(now, lo, hi, codes)


def _settled(parts: Parts) -> Values:
    known = parts.counted & parts.sure & parts.final
    return Values(parts.now.data if parts.lo is None else parts.lo.data, known)


def _unsettled(parts: Parts) -> Bools:
    return parts.counted & ~(parts.sure & parts.final)


def _typed(data: DataType) -> DataType:
    """The mean of intervals is one too: a whole number of ticks, the nearest."""
    return data if data == INTERVAL else FLOAT


def _floats(values: Values, argument: Argument) -> Values:
    data = argument.data
    if _typed(data) == data:
        return values
    divisor = 10 ** (data.scale or 0) if data.name == "decimal" else 1
    if values.data.dtype != object and (divisor == 1 or is_within(values.data, 2**53)):
        return Values(values.data / float(divisor), values.valid)
    found = [None if x is None else float(x) for x in (values.at(i, data) for i in range(len(values)))]
    return v.of_python(found, FLOAT)
