"""What is true of a global stream in a simulated network: the union of the logs of all producers, and what each broker that
assembles or receives a part of it must have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.parser import parse_expression
from smile.algebra.printer import print_expression
from smile.horizons import END, HORIZON_MIN
from smile.links.routing.names import RoutedStream
from smile.log.membership import HOME_ORIGIN, START_MIN
from smile.log.storage.pieces import StreamPiece
from tests.simulation.global_streams.scenario import NTP, Row
from tests.simulation.truth import Event, Truth

if TYPE_CHECKING:
    from smile.broker.broker import Broker

Selection = Callable[[Row], bool]


class RegistryTruth(Truth):
    """The stream has as many origins as brokers publish to it. `republishers` has their conditions by name. `claims` are
    the brokers of each number: of two with the same, a reader has events of one of them, and all of these."""

    def __init__(
        self, stream: mmpl.StreamDef, republishers: Mapping[str, Selection], claims: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__({NTP: stream})
        self._claims = claims
        self.publishers: dict[int, str] = {}
        """The broker that has logged each event."""
        self._logged_to: dict[str, int] = {}
        """How far each broker has logged what it publishes."""
        self._given: dict[tuple[str, str, str], frozenset[str]] = {}
        """By reader, stream of its log and origin: the brokers that may have published what it has."""
        self.writer, self.reader = "", ""
        """The broker that logs, and the one that is compared."""
        self._types = stream_types(stream)
        self._republishers = republishers
        self._selected: dict[tuple[str, int], bool] = {}

    @property
    def events(self) -> Mapping[int, Event]:
        return self.streams[NTP].events

    def claimants(self, origin: str) -> Sequence[str]:
        """The brokers with this number; nobody publishes as the home of an import."""
        return self._claims.get(origin, ("",))

    def given(self, reader: str, stream: str, origin: str) -> frozenset[str]:
        return self._given.get((reader, stream, origin), frozenset(self.claimants(origin)))

    def narrow(self, reader: str, part: "ReceivedPart", piece: StreamPiece, logged: Sequence[Event]) -> frozenset[str]:
        """A reader has logged a range. Returns the brokers that may have published everything that it has of this
        origin since it has begun."""
        key = reader, piece.stream, piece.origin
        before = self.given(*key) if piece.lo > START_MIN else frozenset(self.claimants(piece.origin))
        is_shared = len(self.claimants(piece.origin)) > 1
        self._given[key] = frozenset(
            claimant
            for claimant in before
            if self.select(part, piece.origin, piece.lo, piece.hi, claimant) == logged
            and (not is_shared or piece.hi <= self._logged_to.get(claimant, START_MIN))
        )
        return self._given[key]

    def log(self, stream: str, origin: str, hi: int, events: pa.RecordBatch | None) -> list[str]:
        history = self.streams[stream].origin(origin)
        if len(self.claimants(origin)) > 1:
            history.announced = HORIZON_MIN  # it may be that of the other one
        for tick in [] if events is None else events.column(0).to_pylist():
            self.publishers[tick] = self.writer
        self._logged_to[self.writer] = max(hi, self._logged_to.get(self.writer, HORIZON_MIN))
        return super().log(stream, origin, hi, events)

    def logged_to(self, stream: str, origin: str) -> int:
        return self._logged_to.get(self.writer, HORIZON_MIN)

    def known_events(
        self, stream: mmpl.StreamDef, base: str, name: str, horizons: Mapping[str, int]
    ) -> dict[int, Event]:
        events = super().known_events(stream, base, name, horizons)
        return {tick: row for tick, row in events.items() if self.is_given(self.reader, name, tick)}

    def is_given(self, reader: str, stream: str, tick: int) -> bool:
        """Whether the event is one of those that a reader may have."""
        return self.publishers[tick] in self.given(reader, stream, self.streams[NTP].origin_of(tick))

    def announce(self, stream: str, origin: str, tick: int, who: str) -> list[str]:
        """The horizon of the home of a global import says who publishes, not what."""
        return [] if origin == HOME_ORIGIN or tick <= START_MIN else super().announce(stream, origin, tick, who)

    def announce_start(self, origin: str, tick: int) -> None:
        """Somebody has been told that an origin publishes nothing up to this tick."""
        history = self.streams[NTP].origin(origin)
        history.announced = max(history.announced, tick)

    def select(self, part: "ReceivedPart", origin: str, lo: int, hi: int, claimant: str) -> list[Event]:
        return [self.events[tick] for tick in self.find_ticks(part, origin, claimant, lo, hi)]

    def find_ticks(
        self, part: "ReceivedPart", origin: str, claimant: str, lo: int = HORIZON_MIN, hi: int = END
    ) -> list[int]:
        """Those of the events of a broker that belong to a part, above `lo` up to `hi`."""
        published = self.streams[NTP]
        ticks = sorted(
            t
            for t, name in self.publishers.items()
            if lo < t <= hi and name == claimant and published.origin_of(t) == origin
        )
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
