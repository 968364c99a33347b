"""What is true of a global stream in a simulated network: the union of the logs of all producers, and what each broker that
assembles or receives a part of it must have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.parser import parse_expression
from smile.algebra.printer import print_expression
from smile.horizons import END, HORIZON_MIN
from smile.links.routing.names import RoutedStream
from smile.log.membership import HOME_ORIGIN, START_MIN
from tests.simulation.global_streams.scenario import NTP, Row
from tests.simulation.truth import Event, Truth

if TYPE_CHECKING:
    from smile.broker.broker import Broker

Selection = Callable[[Row], bool]


class RegistryTruth(Truth):
    """The stream has as many origins as brokers publish to it. `republishers` has their conditions by name."""

    def __init__(self, stream: mmpl.StreamDef, republishers: Mapping[str, Selection]) -> None:
        super().__init__({NTP: stream})
        self._types = stream_types(stream)
        self._republishers = republishers
        self._selected: dict[tuple[str, int], bool] = {}

    @property
    def events(self) -> Mapping[int, Event]:
        return self.streams[NTP].events

    def announce(self, stream: str, origin: str, tick: int, who: str) -> list[str]:
        """The horizon of the home of a global import says who publishes, not what."""
        return [] if origin == HOME_ORIGIN or tick <= START_MIN else super().announce(stream, origin, tick, who)

    def announce_start(self, origin: str, tick: int) -> None:
        """Somebody has been told that an origin publishes nothing up to this tick."""
        history = self.streams[NTP].origin(origin)
        history.announced = max(history.announced, tick)

    def select(self, part: "ReceivedPart", origin: str, lo: int, hi: int) -> list[Event]:
        return [self.events[tick] for tick in self.find_ticks(part, origin, lo, hi)]

    def find_ticks(self, part: "ReceivedPart", origin: str, lo: int = HORIZON_MIN, hi: int = END) -> list[int]:
        """Those of the events of an origin that belong to a part, above `lo` up to `hi`."""
        published = self.streams[NTP]
        ticks = sorted(t for t in published.events if lo < t <= hi and published.origin_of(t) == origin)
        return [tick for tick in ticks if self._is_selected(part, tick)]

    def _is_selected(self, part: "ReceivedPart", tick: int) -> bool:
        if part.republisher and not self._republishers[part.republisher](self.events[tick]):
            return False
        key = part.where, tick
        if part.where and key not in self._selected:
            self._selected[key] = evaluate_expr(_parse(part.where), self.events[tick], self._types) is True
        return not part.where or self._selected[key]


@dataclass(frozen=True)
class ReceivedPart:
    """The events of a republisher, or of producers if it is "", that satisfy a condition."""

    republisher: str
    where: str


def find_part(broker: "Broker", stream: str) -> ReceivedPart | None:
    """What a stream of a broker's log has of the global stream; None if it is another stream, or that of its own
    producers."""
    import_ = next((i for i in broker.program.imports if i.stream is not None and i.stream.name == stream), None)
    if import_ is None:
        return None
    if import_.name in broker.import_records.routed:
        return received_part(broker.import_records.routed[import_.name].stream)
    return assembled_part(import_) if import_.is_global else None


def received_part(routed: RoutedStream) -> ReceivedPart:
    return ReceivedPart("" if routed.stream == NTP else routed.stream, routed.where)


def assembled_part(import_: mmpl.ImportDef) -> ReceivedPart:
    if not mmpl.is_consumer_name(import_.name):
        return ReceivedPart(import_.name, "")
    return ReceivedPart("", "" if import_.condition is None else print_expression(import_.condition))


@lru_cache(maxsize=10_000)
def _parse(text: str) -> mmpl.Expr:
    return parse_expression(text)
