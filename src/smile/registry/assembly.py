"""Assembles the answer to a query from the sources of its plan: which ranges of which origins can be passed on next.

Each source delivers the events of every origin in tick order, restricted to its condition, and says up to which tick it
has them. The conditions of a plan's sources are disjoint, and together they are that of the query. So an origin can be
passed on up to the least horizon of the sources that may have channels of it. Several plans may run at once. Each
origin follows the plan that is furthest, among those that have all of its channels: a producer that has joined may be
in none of the sources of an earlier plan. A plan ends when a later one has reached what was passed on.

Invariants: the horizon of an origin only grows; a range that is passed on begins at it, and no event at or below it is
passed on again. So what is passed on is duplicate free and in tick order, whatever plans there are.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from smile.horizons import HORIZON_MIN

S = TypeVar("S", bound=Hashable)
"""A source."""

Horizons = Mapping[str, int]
"""By origin."""


@dataclass(frozen=True)
class OriginRange(Generic[S]):
    """The events of an origin in (lo, hi] of all these sources together are those of the answer."""

    origin: str
    lo: int
    hi: int
    sources: tuple[S, ...]


class Assembly(Generic[S]):
    """`horizons` are those up to which each origin was passed on. `may_have` says whether a source may have channels of
    an origin, `begins_at` the tick above which it has events, and `has_all` whether a plan has all channels of an
    origin."""

    def __init__(
        self,
        may_have: Callable[[S, str], bool],
        begins_at: Callable[[S], int],
        has_all: Callable[[Sequence[S], str], bool] = lambda _, __: True,
    ) -> None:
        self._may_have, self._begins_at, self._has_all = may_have, begins_at, has_all
        self.horizons: Horizons = {}
        self.plans: list[tuple[S, ...]] = []
        """The plans that run, the latest one last."""

    @property
    def sources(self) -> list[S]:
        """Those of all plans that run."""
        return list(dict.fromkeys(source for plan in self.plans for source in plan))

    def begin(self, plan: Iterable[S]) -> None:
        """Begins to run another plan. Those before it run until it has reached them."""
        self.plans.append(tuple(plan))

    def lacking(self, origins: Iterable[str]) -> dict[S, str]:
        """The sources of the latest plan that begin above what was passed on of an origin: they never reach it."""
        latest = self.plans[-1] if self.plans else ()
        return {
            source: origin
            for origin in origins
            for source in latest
            if self._begins_at(source) > self._horizon(origin) and self._may_have(source, origin)
        }

    def next_ranges(self, origins: Iterable[str], reached: Mapping[S, Horizons]) -> list[OriginRange[S]]:
        """What can be passed on. `reached` has up to which tick each source has each origin."""
        ranges = []
        for origin in origins:
            lo = self._horizon(origin)
            reaches = ((self._reach(plan, origin, reached), plan) for plan in self.plans)
            hi, plan = max(reaches, key=lambda r: r[0], default=(lo, ()))
            if hi > lo:
                needed = tuple(source for source in plan if self._may_have(source, origin))
                ranges.append(OriginRange(origin, lo, hi, needed))
        return ranges

    def end_plans(self, origins: Sequence[str], reached: Mapping[S, Horizons]) -> bool:
        """Ends the plans before one that has reached what was passed on of every one of these origins. Returns whether
        there are any."""
        for index in range(len(self.plans) - 1, 0, -1):
            plan = self.plans[index]
            if all(self._has_reached(plan, origin, reached) for origin in origins):
                del self.plans[:index]
                return True
        return False

    def _has_reached(self, plan: Sequence[S], origin: str, reached: Mapping[S, Horizons]) -> bool:
        """An origin of which a plan has nothing needs no source of it."""
        needed = [source for source in plan if self._may_have(source, origin)]
        return not needed or self._reach(plan, origin, reached) >= self._horizon(origin)

    def _reach(self, plan: Sequence[S], origin: str, reached: Mapping[S, Horizons]) -> int:
        needed = [source for source in plan if self._may_have(source, origin)]
        begins_too_late = any(self._begins_at(source) > self._horizon(origin) for source in needed)
        if not needed or begins_too_late or not self._has_all(plan, origin):
            return HORIZON_MIN
        return min(reached.get(source, {}).get(origin, HORIZON_MIN) for source in needed)

    def _horizon(self, origin: str) -> int:
        return self.horizons.get(origin, HORIZON_MIN)
