"""A source of a running plan: what a consumer of a global stream receives from one publisher."""

from functools import lru_cache

import msgspec

from smile.algebra import mmpl, trees
from smile.algebra.parser import parse_expression
from smile.algebra.printer import print_expression
from smile.algebra.types import TIME
from smile.horizons import HORIZON_MIN
from smile.links.routing.names import RoutedStream


class RunningSource(msgspec.Struct, frozen=True, order=True):
    """The events of a stream of `host` that satisfy `condition` and are above tick `since`. The stream is that of a
    republisher, which has all events that satisfy `view`, or the global stream itself: then these are the events of all
    producers at the host. `history` identifies what the republisher has: with another view, it begins another one."""

    host: str
    stream: str
    condition: str = ""
    view: str = ""
    history: str = ""
    since: int = HORIZON_MIN

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What a plan says of it."""
        return self.host, self.stream, self.condition, self.view, self.history

    def routed(self, tick: str) -> RoutedStream:
        """The routed stream that brings it here. `tick` is the name of the tick of the global stream."""
        return RoutedStream(self.stream, self.host, _where(self.condition, self.since, tick))


@lru_cache(maxsize=10_000)
def _where(condition: str, since: int, tick: str) -> str:
    parts = [parse_expression(condition)] if condition else []
    if since > HORIZON_MIN:
        parts.append(mmpl.Call(">", (mmpl.ColumnRef(tick), mmpl.Constant(since, TIME))))
    return print_expression(trees.conjunction(parts)) if parts else ""
