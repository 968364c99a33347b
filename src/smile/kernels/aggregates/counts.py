"""COUNT: the members that are there for good are the least, those that may be there the most, once no more can come."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.columns.knowledge import Column, Ranges
from smile.columns.values import Bools, Values
from smile.kernels.aggregates.accumulator import Absorbed, Accumulator, Place
from smile.kernels.aggregates.parts import Argument, Batch
from smile.state.run import Rows


class PlainCount(Accumulator):
    """Of members that are all there for good, with values that never change."""

    def __init__(self, prefix: str, argument: Argument | None) -> None:
        self.n, self.argument = f"{prefix}n", argument
        self.columns: Mapping[str, pa.DataType] = {self.n: pa.int64()}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        there = batch.arriving(None if self.argument is None else self.argument.fixed(batch.changes))
        return Absorbed({self.n: Values(rows[self.n].data + batch.groups.sums(there.astype(np.int64)))})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        now = Values(rows[self.n].data)
        return Ranges(now, now, None if sealed is None else now if sealed.all() else Values(now.data, sealed))


class Count(Accumulator):
    def __init__(self, prefix: str, argument: Argument | None) -> None:
        self.sure, self.most, self.now = (f"{prefix}{part}" for part in ("sure", "most", "now"))
        self.argument = argument
        self.columns = dict.fromkeys((self.sure, self.most, self.now), pa.int64())

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        old, new = batch.both(self.argument)
        changed = {
            self.sure: batch.counts(None if old is None else old.sure, new.sure),
            self.most: batch.counts(None if old is None else old.counted, new.counted),
            self.now: batch.counts(None if old is None else old.now.there(), new.now.there()),
        }
        return Absorbed({name: Values(rows[name].data + change) for name, change in changed.items()})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        sure, most, now = (Values(rows[part].data) for part in (self.sure, self.most, self.now))
        return Ranges(now, sure, None if sealed is None else Values(most.data, sealed))
