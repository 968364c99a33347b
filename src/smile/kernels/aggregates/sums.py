"""SUM: never NULL, unless floats overflow. Its bounds are the sums of its members' bounds once no more can come; until
then there is none that members to come may pass."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.columns.knowledge import Column, Ranges
from smile.columns.values import Bools, Values
from smile.kernels.aggregates.accumulator import Absorbed, Accumulator, Place
from smile.kernels.aggregates.exact import at_least_zero, at_most_zero, sign_of, total_of
from smile.kernels.aggregates.parts import Argument, Batch, Parts
from smile.state.run import Rows

_MAYBE, _ONLY = 1, 2


class PlainSum(Accumulator):
    """Of members that are all there for good, with values that never change: one exact number."""

    def __init__(self, prefix: str, argument: Argument) -> None:
        self.argument = argument
        self.total = total_of(f"{prefix}sum", argument.data)
        self.columns: Mapping[str, pa.DataType] = self.total.columns
        self.falls, self.rises = _open(argument)

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        values = batch.arrived(self.argument)
        return Absorbed(self.total.changed(rows, batch.groups, None, values))

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now = self.total.value(rows)
        lo = now if not self.falls else None if sealed is None else Values(now.data, _and(now, sealed))
        hi = now if not self.rises else None if sealed is None else Values(now.data, _and(now, sealed))
        if now.valid is None:
            return Ranges(now, lo, hi)
        # Beyond all floats it is NULL; for good, if no more members can come.
        over = ~now.valid & (np.ones(len(now), bool) if not (self.falls and self.rises) else _or_none(sealed, len(now)))
        code = np.where(_or_none(sealed, len(now)), _ONLY, _MAYBE)
        return Ranges(now, lo, hi, np.where(over, code, 0).astype(np.uint8))


def _open(argument: Argument) -> tuple[bool, bool]:
    """Whether a member that comes may lower the sum, and whether it may raise it."""
    lo, hi = argument.domain.lo, argument.domain.hi
    return lo is None or sign_of(lo) < 0, hi is None or sign_of(hi) > 0


def _and(now: Values, sealed: Bools) -> Bools:
    return sealed if now.valid is None else sealed & now.valid


def _or_none(sealed: Bools | None, count: int) -> Bools:
    return np.zeros(count, bool) if sealed is None else sealed


class Sum(Accumulator):
    """Exact sums of the members' bounds, beside the numbers of members that have none."""

    def __init__(self, prefix: str, argument: Argument) -> None:
        self.argument = argument
        self.least, self.greatest, self.now = (
            total_of(f"{prefix}{part}", argument.data) for part in ("lo", "hi", "now")
        )
        self.below, self.above, self.unsettled = (f"{prefix}{part}" for part in ("below", "above", "unsettled"))
        counts = dict.fromkeys((self.below, self.above, self.unsettled), pa.int64())
        self.columns = {**self.least.columns, **self.greatest.columns, **self.now.columns, **counts}
        self.falls, self.rises = _open(argument)

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        old, new = batch.both(self.argument)
        before, after = None if old is None else _Contribution(old), _Contribution(new)
        found: dict[str, Values] = {}
        for total, part in ((self.least, "lo"), (self.greatest, "hi"), (self.now, "now")):
            minus = None if before is None else getattr(before, part)
            found |= total.changed(rows, batch.groups, minus, getattr(after, part))
        for name, part in ((self.below, "below"), (self.above, "above"), (self.unsettled, "unsettled")):
            was = None if before is None else getattr(before, part)
            found[name] = Values(rows[name].data + batch.counts(was, getattr(after, part)))
        return Absorbed(found)

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now = self.now.value(rows)
        closed = _or_none(sealed, len(now))
        least, greatest = self.least.value(rows), self.greatest.value(rows)
        bounded_below = (rows[self.below].data == 0) & (closed | (not self.falls))
        bounded_above = (rows[self.above].data == 0) & (closed | (not self.rises))
        overflows = (bounded_below & least.nulls()) | (bounded_above & greatest.nulls())
        lo, hi = (
            Values(least.data, bounded_below & least.there()),
            Values(greatest.data, bounded_above & greatest.there()),
        )
        if not overflows.any():
            return Ranges(now, lo, hi)
        only = overflows & closed & (rows[self.unsettled].data == 0)
        codes = np.where(only, _ONLY, np.where(overflows, _MAYBE, 0)).astype(np.uint8)
        now, lo, hi = (Values(column.data, column.there() & ~only) for column in (now, lo, hi))
        return Ranges(now, lo, hi, codes)


class _Contribution:
    """What members add at least, at most and now; and how many have no bound, or may yet turn out otherwise."""

    def __init__(self, parts: Parts) -> None:
        counted, sure = parts.counted, parts.sure
        blank = Values(parts.now.data, np.zeros(len(counted), bool))
        lo, hi = parts.lo or blank, parts.hi or blank
        self.below, self.above = counted & lo.nulls(), counted & hi.nulls()
        self.lo = at_most_zero(Values(lo.data, counted & lo.there()), sure)
        self.hi = at_least_zero(Values(hi.data, counted & hi.there()), sure)
        self.now = parts.now
        self.unsettled = counted & ~(sure & parts.final)
