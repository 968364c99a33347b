"""MAX and MIN. At least what members that stay have; at most what any may have, or the domain while members may come.

Over members that come and go the cost of a change is that of its group only when it takes away the extreme itself.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.columns import values as v
from smile.columns.knowledge import Column, Ranges
from smile.columns.values import Bools, Values
from smile.kernels.aggregates.accumulator import Absorbed, Accumulator, Place
from smile.kernels.aggregates.parts import Argument, Batch, Parts, typed
from smile.kernels.aggregates.peaks import Peak, best_by, better, moved
from smile.state.run import Rows

_MAYBE, _ONLY = 1, 2


class PlainExtreme(Accumulator):
    """Of members that are all there for good, with values that never change: one value."""

    def __init__(self, prefix: str, argument: Argument, greatest: bool) -> None:
        self.argument, self.greatest = argument, greatest
        self.value = f"{prefix}value"
        self.columns: Mapping[str, pa.DataType] = {self.value: arrow_type(argument.data)}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        best = best_by(batch.groups, batch.arrived(self.argument), self.greatest)
        return Absorbed({self.value: better(rows[self.value], best, self.greatest)})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now, domain, data = rows[self.value], self.argument.domain, self.argument.data
        count = len(now)
        if sealed is not None and sealed.all():
            codes = None if now.valid is None else np.where(now.valid, 0, _ONLY).astype(np.uint8)
            return typed(Ranges(now, now, now, codes), data)
        far = _end(domain.hi if self.greatest else domain.lo, self.argument, count)
        near = _end(domain.lo if self.greatest else domain.hi, self.argument, count)
        inner: Values | None = now
        outer = far
        codes = None
        if now.valid is not None:
            # A group without a value may yet have any, or none.
            inner = now if near is None else v.where(now.valid, now, near)
            codes = np.where(now.valid, 0, _MAYBE).astype(np.uint8)
        if sealed is not None:
            outer = v.where(sealed, now, v.empty_like(now, count) if far is None else far)
            if codes is not None and inner is not None:
                inner = v.where(sealed, now, inner)
                codes = np.where(sealed & ~now.there(), _ONLY, codes).astype(np.uint8)
        lo, hi = (inner, outer) if self.greatest else (outer, inner)
        return typed(Ranges(now, lo, hi, codes), data)


def _end(end: object, argument: Argument, count: int) -> Values | None:
    return None if end is None else v.constant(end, argument.data, count)  # type: ignore[arg-type]


class Extent:
    """All values that may be among the members, and whether there may be none."""

    def __init__(self, prefix: str, argument: Argument) -> None:
        self.argument = argument
        self.least = Peak(f"{prefix}least", counted_lo, greatest=False)
        self.greatest = Peak(f"{prefix}greatest", counted_hi, greatest=True)
        self.sure, self.counted, self.below, self.above = (
            f"{prefix}{part}" for part in ("sure", "counted", "below", "above")
        )
        kind = arrow_type(argument.data)
        counts = dict.fromkeys((self.sure, self.counted, self.below, self.above), pa.int64())
        self.columns: dict[str, pa.DataType] = {self.least.column: kind, self.greatest.column: kind, **counts}

    def absorb(self, rows: Rows, batch: Batch, old: Parts | None, new: Parts, place: Place) -> dict[str, Values]:
        found = {p.column: moved(p, rows[p.column], batch, old, new, self.argument, place) for p in self._peaks}
        before, after = None if old is None else self._counted(old), self._counted(new)
        for name, now in after.items():
            found[name] = Values(rows[name].data + batch.counts(None if before is None else before[name], now))
        return found

    def _counted(self, parts: Parts) -> dict[str, Bools]:
        lacking = [parts.counted if end is None else parts.counted & end.nulls() for end in (parts.lo, parts.hi)]
        return {self.sure: parts.sure, self.counted: parts.counted, self.below: lacking[0], self.above: lacking[1]}

    @property
    def _peaks(self) -> tuple[Peak, Peak]:
        return self.least, self.greatest

    def ends(self, rows: Rows, sealed: Bools | None) -> tuple[Values, Values]:
        """Of members, and of the domain while others may come; not valid where there is no bound."""
        count = len(rows[self.sure])
        closed = np.zeros(count, bool) if sealed is None else sealed
        domain = self.argument.domain
        lo = self._end(rows[self.least.column], rows[self.below].data > 0, closed, domain.lo, False)
        hi = self._end(rows[self.greatest.column], rows[self.above].data > 0, closed, domain.hi, True)
        return lo, hi

    def _end(self, own: Values, lacking: Bools, closed: Bools, domain: object, greatest: bool) -> Values:
        if closed.all() or domain is None:
            return Values(own.data, own.there() & ~lacking & closed)
        edge = v.constant(domain, self.argument.data, len(own))  # type: ignore[arg-type]
        found = v.where(closed, own, better(own, edge, greatest))
        return Values(found.data, found.there() & ~lacking)

    def codes(self, rows: Rows, sealed: Bools | None) -> Values:
        """Whether it may be NULL: never if a member is sure, only if there is none and none can come."""
        only = (rows[self.counted].data == 0) & (False if sealed is None else sealed)
        return Values(np.where(only, _ONLY, np.where(rows[self.sure].data > 0, 0, _MAYBE)).astype(np.uint8))


def counted_lo(parts: Parts) -> Values:
    return _where(parts.lo, parts.counted, parts)


def counted_hi(parts: Parts) -> Values:
    return _where(parts.hi, parts.counted, parts)


def sure_lo(parts: Parts) -> Values:
    return _where(parts.lo, parts.sure, parts)


def sure_hi(parts: Parts) -> Values:
    return _where(parts.hi, parts.sure, parts)


def present(parts: Parts) -> Values:
    return parts.now


def _where(end: Values | None, there: Bools, parts: Parts) -> Values:
    if end is None:
        return Values(parts.now.data, np.zeros(len(parts), bool))
    return Values(end.data, there & end.there())


class Extreme(Accumulator):
    reads_members = True

    def __init__(self, prefix: str, argument: Argument, greatest: bool) -> None:
        self.argument, self.greatest = argument, greatest
        self.extent = Extent(prefix, argument)
        self.bound = Peak(f"{prefix}bound", sure_lo if greatest else sure_hi, greatest)
        self.now = Peak(f"{prefix}now", present, greatest)
        kind = arrow_type(argument.data)
        self.columns = {**self.extent.columns, self.bound.column: kind, self.now.column: kind}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        old, new = batch.both(self.argument)
        found = self.extent.absorb(rows, batch, old, new, place)
        for peak in (self.bound, self.now):
            found[peak.column] = moved(peak, rows[peak.column], batch, old, new, self.argument, place)
        return Absorbed(found)

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        lo, hi = self.extent.ends(rows, sealed)
        codes = self.extent.codes(rows, sealed).data
        bound = rows[self.bound.column]
        sure = codes == 0
        if self.greatest:
            lo = v.where(sure, bound, lo)
        else:
            hi = v.where(sure, bound, hi)
        now = rows[self.now.column]
        return typed(Ranges(now, lo, hi, codes), self.argument.data)
