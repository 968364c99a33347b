"""Gap lists: which ticks of one stream and origin are known.

Everything up to the horizon is known. Above it, `ranges` has the known ranges in order; no two of them touch. The
ranges between them are the gaps. A range (lo, hi] excludes its first tick and includes its last.
"""

from bisect import bisect_left
from dataclasses import dataclass

from smile.horizons import HORIZON_MIN

TickRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GapList:
    horizon: int = HORIZON_MIN
    ranges: tuple[TickRange, ...] = ()

    @property
    def known_to(self) -> int:
        """The greatest tick known."""
        return self.ranges[-1][1] if self.ranges else self.horizon

    @property
    def gaps(self) -> tuple[TickRange, ...]:
        """The unknown ranges below the greatest known tick: what a curious consumer requests."""
        if not self.ranges:
            return ()
        ends = [self.horizon, *(hi for _, hi in self.ranges)]
        return tuple((end, lo) for end, (lo, _) in zip(ends, self.ranges, strict=False))

    def knows(self, tick: int) -> bool:
        index = bisect_left(self.ranges, tick, key=_range_end)
        return tick <= self.horizon or (index < len(self.ranges) and self.ranges[index][0] < tick)

    def unknown_in(self, lo: int, hi: int) -> tuple[TickRange, ...]:
        """The unknown ranges within (lo, hi], in order."""
        lo = max(lo, self.horizon)
        if lo >= self.known_to:
            return ((lo, hi),) if lo < hi else ()
        unknown = []
        first = bisect_left(self.ranges, lo, key=_range_end)
        for start, end in self.ranges[first:]:
            if start >= hi:
                break
            if lo < start:
                unknown.append((lo, start))
            lo = end
        if lo < hi:
            unknown.append((lo, hi))
        return tuple(unknown)

    def with_known(self, lo: int, hi: int) -> "GapList":
        """The gap list after (lo, hi] has become known."""
        if hi <= max(lo, self.horizon):
            return self
        if lo <= self.horizon and not self.ranges:
            return GapList(hi)
        # Merge (lo, hi] with all ranges that overlap or touch it.
        first = bisect_left(self.ranges, lo, key=_range_end)
        last = first
        while last < len(self.ranges) and self.ranges[last][0] <= hi:
            last += 1
        if first < last:
            lo, hi = min(lo, self.ranges[first][0]), max(hi, self.ranges[last - 1][1])
        if lo <= self.horizon:
            return GapList(hi, self.ranges[last:])
        return GapList(self.horizon, (*self.ranges[:first], (lo, hi), *self.ranges[last:]))


def _range_end(tick_range: TickRange) -> int:
    return tick_range[1]
