"""LATEST: by tick and source. The latest member that stays with a settled value is a bound: the final value is that, or
a later one.

Over members that come and go, the members of a group are read when the latest of them is taken away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import BOOL, DataType
from smile.columns import masks, values as v
from smile.columns.knowledge import Column, Latests, Masks, Ranges, finals, now_of
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.aggregates.accumulator import Absorbed, Accumulator, Place
from smile.kernels.aggregates.parts import Argument, Batch, typed
from smile.kernels.aggregates.peaks import put
from smile.kernels.changes import Groups, Version
from smile.knowledge.range import Range
from smile.state.run import Rows

_MAYBE, _ONLY = 1, 2


@dataclass(frozen=True)
class Last:
    """Names of the columns that have the latest of some members of a group: its time is NULL where there is none."""

    tick: str
    source: str
    value: str

    @staticmethod
    def of(prefix: str, part: str) -> "Last":
        return Last(f"{prefix}{part}.tick", f"{prefix}{part}.source", f"{prefix}{part}.value")

    def columns(self, data: DataType) -> dict[str, pa.DataType]:
        return {self.tick: pa.int64(), self.source: pa.int64(), self.value: arrow_type(data)}

    def read(self, rows: Rows) -> "Times":
        return Times(rows[self.tick], rows[self.source].data, rows[self.value])

    def stored(self, times: "Times") -> dict[str, Values]:
        return {self.tick: times.tick, self.source: Values(times.source), self.value: times.value}


@dataclass(frozen=True)
class Times:
    """Values with the ticks and sources they are of; where no tick is valid there is none."""

    tick: Values
    source: Array
    value: Values

    def take(self, at: Indices) -> "Times":
        return Times(self.tick.take(at), self.source[at], self.value.take(at))

    def only(self, there: Bools) -> "Times":
        return Times(Values(self.tick.data, self.tick.there() & there), self.source, self.value)


def latest_of(who: Indices, count: int, times: Times) -> Times:
    """Of each of `count` groups the latest; `who` is the group of each."""
    at = np.flatnonzero(times.tick.there())
    order = at[np.lexsort((times.source[at], times.tick.data[at], who[at]))]
    owner = who[order]
    last = np.append(owner[1:] != owner[:-1], True)[: len(owner)]
    place, there = np.zeros(count, np.int64), np.zeros(count, bool)
    place[owner[last]] = order[last]
    there[owner[last]] = True
    if not len(times.source):
        return Times(
            Values(np.zeros(count, np.int64), there), np.zeros(count, np.int64), v.empty_like(times.value, count)
        )
    found = times.take(place)
    return Times(Values(found.tick.data, None if there.all() else there), found.source, found.value)


def is_later(a: Times, b: Times) -> Bools:
    """Where a is there, and not earlier than b."""
    x, y = a.tick.data, b.tick.data
    after = (x > y) | ((x == y) & (a.source >= b.source))
    return a.tick.there() & (after | b.tick.nulls())


def later(had: Times, best: Times) -> Times:
    """The later of the two; of equals the second."""
    chosen = is_later(best, had)
    if chosen.all():
        return best
    return Times(
        v.where(chosen, best.tick, had.tick), np.where(chosen, best.source, had.source),
        v.where(chosen, best.value, had.value),
    )  # fmt: skip


class _Latest(Accumulator):
    """What both kinds have in common: when a member happened, and how the outcome is shown."""

    def __init__(self, argument: Argument, tick: tuple[str, ...], bottom: Range, as_latest: bool) -> None:
        self.argument, self.tick = argument, tick
        self.bottom, self.as_latest = bottom, as_latest

    def _times(self, fixed: Mapping[str, Values], value: Values) -> Times:
        tick = fixed[self.tick[0]]
        source = fixed[self.tick[1]].data if len(self.tick) > 1 else np.zeros(len(tick), np.int64)
        return Times(tick, source, value)

    def _shown(self, settled: Times, now: Values, done: Bools) -> Column:
        """`done`: nothing later can come."""
        value = Values(settled.value.data, settled.value.there() & settled.tick.there())
        # Of what is done the present value is the last.
        now = v.where(done, value, now) if done.any() else now
        if self.as_latest:
            return Latests(value, settled.tick, settled.source, done, now)
        data = self.argument.data
        if data == BOOL:
            bits = np.where(now.there(), np.where(now.data, 1, 2), 4).astype(np.uint8)
            return Masks(np.where(done, bits, np.uint8(7)), bits)
        lo, hi = (
            v.where(done, value, v.empty_like(now, len(now)) if e is None else v.constant(e, data, len(now)))
            for e in (self.bottom.lo, self.bottom.hi)
        )
        codes = np.where(done, np.where(value.there(), 0, _ONLY), _MAYBE).astype(np.uint8)
        return typed(Ranges(now, lo, hi, codes), data)


class PlainLatest(_Latest):
    """Of members that are all there for good, with values that never change: the latest alone."""

    def __init__(self, prefix: str, argument: Argument, tick: tuple[str, ...], bottom: Range, as_latest: bool) -> None:
        super().__init__(argument, tick, bottom, as_latest)
        self.last = Last.of(prefix, "last")
        self.columns = self.last.columns(argument.data)

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        changes, groups = batch.changes, batch.groups
        times = self._times(changes.fixed, self.argument.fixed(changes))
        if changes.old is not None:
            times = times.only(batch.arriving(None))
        return Absorbed(self.last.stored(later(self.last.read(rows), latest_of(groups.of, groups.count, times))))

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        last = self.last.read(rows)
        now = Values(last.value.data, last.value.there() & last.tick.there())
        return self._shown(last, now, np.zeros(len(now), bool) if sealed is None else sealed)


class Latest(_Latest):
    """The latest member that is settled, that may be there, and that is shown."""

    reads_members = True

    def __init__(self, prefix: str, argument: Argument, tick: tuple[str, ...], bottom: Range, as_latest: bool) -> None:
        super().__init__(argument, tick, bottom, as_latest)
        self.settled, self.present, self.shown = (Last.of(prefix, part) for part in ("settled", "present", "shown"))
        data = argument.data
        self.columns = {**self.settled.columns(data), **self.present.columns(data), **self.shown.columns(data)}

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        changes, groups = batch.changes, batch.groups
        new = self._of(changes.fixed, changes.new)
        old = None if changes.old is None else self._of(changes.fixed, changes.old)
        found: dict[str, Values] = {}
        again: dict[Last, Times] | None = None
        for last, times in new.items():
            had, best = last.read(rows), latest_of(groups.of, groups.count, times)
            result = later(had, best)
            lost = _lost(had, best, groups, None if old is None else old[last])
            if len(lost):
                who, fixed, version = place.members(place, lost)
                again = self._of(fixed, version)
                result = _put(result, lost, latest_of(who, len(lost), again[last]))
            found |= last.stored(result)
        return Absorbed(found)

    def _of(self, fixed: Mapping[str, Values], version: Version) -> dict[Last, Times]:
        column = self.argument.of(fixed, version.columns, len(version))
        times = self._times(fixed, now_of(column))
        stays = masks.stays(version.mask) & finals(column)
        return {
            self.settled: times.only(stays),
            self.present: times.only(masks.live(version.mask)),
            self.shown: times.only(masks.shown(version.mask)),
        }

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        settled, present, shown = (last.read(rows) for last in (self.settled, self.present, self.shown))
        now = Values(shown.value.data, shown.value.there() & shown.tick.there())
        if sealed is None:
            return self._shown(settled, now, np.zeros(len(now), bool))
        return self._shown(settled, now, sealed & (is_later(settled, present) | present.tick.nulls()))


def _lost(had: Times, best: Times, groups: Groups, taken: Times | None) -> Indices:
    """The groups whose latest is among what is taken away, with none as late in its place."""
    if taken is None:
        return np.zeros(0, np.int64)
    mine = had.take(groups.of)
    same = (taken.tick.data == mine.tick.data) & (taken.source == mine.source)
    hit = taken.tick.there() & mine.tick.there() & same
    struck = np.zeros(groups.count, bool)
    struck[groups.of[hit]] = True
    return np.flatnonzero(struck & ~is_later(best, had))


def _put(into: Times, at: Indices, times: Times) -> Times:
    source = into.source.copy()
    source[at] = times.source
    return Times(put(into.tick, at, times.tick), source, put(into.value, at, times.value))
