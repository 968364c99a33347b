"""Windows of rows, each as a group of its own: a row is a member of as many as it lies in, itself included.

What is known of an aggregate over a window is what its accumulator makes of these members, as if all had just come.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.columns.ranges import ranges_of
from smile.columns.values import Array, Bools, Indices
from smile.kernels.aggregates.accumulator import Accumulator, Found, Place
from smile.kernels.aggregates.parts import Batch
from smile.kernels.changes import Changes, Groups, Taken, Version
from smile.kernels.kept import cells
from smile.kernels.ordering import Spread, spread_of
from smile.kernels.over_slices import Slices
from smile.kernels.seals import later
from smile.state.gathered import Gathered
from smile.state.run import Rows, Shape
from smile.state.table import Table

MEMBERS_MAX = 1 << 20
"""How many members of windows are laid out at once: bounds memory."""


class Spans(Groups):
    """Groups that stand one after the other, none of them empty."""

    def __init__(self, counts: Array) -> None:
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        self.order = np.arange(total)
        self.starts = ends - counts
        self.count = len(counts)
        self.of = np.repeat(np.arange(self.count), counts)
        self.first, self.last = self.starts, ends - 1


@dataclass(frozen=True)
class Windows:
    """Rows in the order of their groups and ticks. The window of the row `asked[i]` is `order[lo[i]:hi[i]]`."""

    asked: Indices
    order: Indices
    lo: Indices
    hi: Indices

    @staticmethod
    def of(group: Array, by: Array, asked: Indices, span: int | None) -> "Windows":
        """Of rows with these groups and ticks, those asked for; without a span windows go back to the beginning."""
        ticks, rank = np.unique(by, return_inverse=True)
        place = group * len(ticks) + rank.reshape(-1)
        order = np.argsort(place, kind="stable")
        ranked, base = place[order], group[asked] * len(ticks)
        if span is not None:
            base += np.searchsorted(ticks, later(by[asked], -span))
        return Windows(asked, order, np.searchsorted(ranked, base), np.searchsorted(ranked, place[asked], side="right"))

    def chunks(self) -> Iterator["Windows"]:
        """The same, a bounded number of members at a time."""
        ends = np.cumsum(self.hi - self.lo)
        start = 0
        while start < len(ends):
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + MEMBERS_MAX, side="right")))
            yield Windows(self.asked[start:stop], self.order, self.lo[start:stop], self.hi[start:stop])
            start = stop

    def members(self) -> tuple[Indices, Indices]:
        """Pairs of the number of a window and a row in it."""
        counts = self.hi - self.lo
        who = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(counts) - counts
        return who, self.order[np.arange(len(who)) - np.repeat(starts - self.lo, counts)]


@dataclass(frozen=True)
class Aggregates:
    """Accumulators by the columns they make. `moving` are the columns of `per`, where those evolve. `certain`: all rows
    stay, and no column of theirs evolves."""

    accumulators: Mapping[str, Accumulator]
    moving: Mapping[str, DataType]
    certain: bool

    def over(self, windows: Windows, rows: Changes, had: Rows, sealed: Bools) -> tuple[dict[str, Column], Array]:
        """What is known of each aggregate, and the events absorbed. `had` is what windows have absorbed already."""
        columns: dict[str, Column] = {}
        if self.certain:
            slices = Slices(rows, windows.order, windows.lo, windows.hi)
            place = Place({}, np.arange(len(sealed)).astype(np.uint64), {}, none_lost)
            for name, accumulator in self.accumulators.items():
                absorbed = slices.absorbed(accumulator, had)
                if absorbed is not None:
                    columns[name] = accumulator.render(absorbed, sealed, place)
            if len(columns) == len(self.accumulators):
                return columns, slices.sums(rows.new.steps)
        rest = {name: a for name, a in self.accumulators.items() if name not in columns}
        parts = []
        start = 0
        for chunk in windows.chunks():
            stop = start + len(chunk.asked)
            at = np.arange(start, stop)
            taken = {name: column.take(at) for name, column in had.items()}
            parts.append(self._laid_out(rest, chunk, rows, taken, sealed[start:stop]))
            start = stop
        columns |= {name: k.concat([p[0][name] for p in parts]) for name in rest}  # type: ignore[type-var]
        return columns, np.concatenate([p[1] for p in parts])

    def _laid_out(
        self, accumulators: Mapping[str, Accumulator], windows: Windows, rows: Changes, had: Rows, sealed: Bools
    ) -> tuple[dict[str, Column], Array]:
        """Windows as groups of members, each member as often as there are windows it lies in."""
        who, at = windows.members()
        mask = np.where(rows.new.mask[at] == masks.ABSENT, np.uint8(masks.F), rows.new.mask[at])
        if self.moving:
            codes = self._belonging(rows, windows.asked[who], at)
            kept = np.flatnonzero(codes != masks.F)
            who, at, mask = who[kept], at[kept], masks.all_of(mask, codes)[kept]
        count = len(windows.asked)
        spans = Spans(np.bincount(who, minlength=count))
        version = Version(Taken(rows.new.columns, at), mask, rows.new.steps[at])
        members = Changes(Taken(rows.fixed, at), None, version)
        tables = {name: Table(shape) for a in accumulators.values() for name, shape in a.shapes.items()}
        marks = np.arange(count).astype(np.uint64)

        def found(_: Place, numbers: Indices) -> Found:
            assert len(numbers) == count, "a window that has just been laid out has lost nothing"
            return who, members.fixed, members.new

        columns = {}
        for name, accumulator in accumulators.items():
            absorbed = accumulator.absorb(had, Batch(members, spans), Place({}, marks, tables, found))
            place = Place({}, marks, {**tables, **absorbed.tables}, found)
            columns[name] = accumulator.render(absorbed.rows, sealed, place)
        return columns, spans.sums(members.new.steps)

    def _belonging(self, rows: Changes, asked: Indices, at: Indices) -> Array:
        """Whether pairs of rows are of one group, as masks; each row is of its own."""
        now, may, sure = (np.ones(len(at), bool) for _ in range(3))
        for name, data in self.moving.items():
            spread = spread_of(ranges_of(cells(name, rows.fixed, rows.new.columns), data))
            now &= spread.now[asked] == spread.now[at]
            may &= _may_be_same(spread, asked, at)
            sure &= _is_same(spread, asked, at)
        own = asked == at
        return masks.of(may | own, ~(sure | own), now | own)


def _is_same(spread: Spread, a: Indices, b: Indices) -> Bools:
    only, exact = spread.nulls == 2, (spread.nulls == 0) & (spread.lo == spread.hi)
    return np.asarray((exact[a] & exact[b] & (spread.lo[a] == spread.lo[b])) | (only[a] & only[b]))


def _may_be_same(spread: Spread, a: Indices, b: Indices) -> Bools:
    valued, null = spread.nulls != 2, spread.nulls != 0
    meet = (spread.lo[a] <= spread.hi[b]) & (spread.lo[b] <= spread.hi[a])
    return np.asarray((valued[a] & valued[b] & meet) | (null[a] & null[b]))


def nothing(accumulators: Sequence[Accumulator], count: int) -> Rows:
    """What groups without members have absorbed."""
    columns = {name: kind for a in accumulators for name, kind in a.columns.items()}
    return Gathered(Table(Shape((), columns)), np.full(count, -1), np.zeros(count, np.int64))


def none_lost(_: Place, numbers: Indices) -> Found:
    raise AssertionError(f"rows that are certain do not leave, and {numbers} have lost some")
