"""The links of a hierarchy: how many connections and messages brokers need by the plans of the registry.

The links with their imports and exports, the plans and the assemblies are those of the product. There is no network, no
log and no engine: messages go from one link to the other in this process. In the end, every consumer must have exactly
the events that it selects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean
from typing import Final

from smile.algebra.types import Value
from smile.horizons import HORIZON_MIN
from smile.links.exports import EventsRange, Export, StreamExport
from smile.links.imports import Import, StreamImport
from smile.links.link import Link, LinkIdentity
from smile.links.messages import OpenImport, OriginRange, StreamHorizons
from smile.registry.assembly import Assembly
from smile.registry.condition_index import ConditionIndex
from smile.registry.conditions import Condition, is_consistent
from smile.registry.hierarchy import Hierarchy
from smile.registry.planner import Query, QueryPlan, QuerySource
from smile.registry.publishers import StreamPublisher

RELATION: Final = "ntp"
POLL_S: Final = 0.002
POLLS_MAX: Final = 1_000

IDLE_S: Final = 2.0
"""How long the network is watched while nothing is published."""
ADVANCE_S: Final = 1.0
"""How often the horizon of each producer advances meanwhile: the default of `idle_ms`."""
STEP_S: Final = 0.05

Event = Mapping[str, Value]


@dataclass(frozen=True)
class Traffic:
    """What has gone over all links: messages of the exporting sides, of the importing sides, and bytes of both."""

    data: int = 0
    confirmations: int = 0
    bytes: int = 0

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.data - other.data, self.confirmations - other.confirmations, self.bytes - other.bytes)


@dataclass(frozen=True)
class LinkCounts:
    """`round` is the traffic after every producer has published one event; `rows` are the events in it. `idle` is that
    of a second in which nothing is published, and `lag_s` how far the horizons of consumers are behind meanwhile."""

    connections: int
    of_consumer: float
    of_busiest_producer: int
    opening: int
    round: Traffic
    by_producers: int
    rows: int
    idle: Traffic
    lag_s: float


@dataclass(eq=False)
class _Host:
    """A broker that has events: ticks and numbers of events by origin, and how far it has each origin. An origin is the
    name of its producer."""

    horizons: dict[str, int] = field(default_factory=dict)
    events: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def append(self, origin: str, hi: int, events: Sequence[tuple[int, int]]) -> None:
        self.horizons[origin] = hi
        self.events.setdefault(origin, []).extend(events)


class _Source:
    """What a broker exports of the events that it has."""

    def __init__(self, host: _Host, selects: Callable[[int], bool]) -> None:
        self._host, self._selects = host, selects

    def members(self) -> tuple[int, bytes]:
        return 1, b"members"

    def horizons(self) -> Mapping[str, int]:
        return self._host.horizons

    def received(self, _origin: str) -> int:
        return HORIZON_MIN

    def read(self, origin: str, lo: int, hi: int) -> EventsRange:
        found = [(t, n) for t, n in self._host.events.get(origin, ()) if lo < t <= hi and self._selects(n)]
        return EventsRange(hi, " ".join(f"{t}:{n}" for t, n in found).encode(), len(found))

    def close(self) -> None: ...


class _Sink:
    """What a broker has received over one link."""

    def __init__(self) -> None:
        self.received = _Host()
        self._version = 0

    def horizons(self) -> Mapping[str, int]:
        return self.received.horizons

    def start(self) -> int:
        return HORIZON_MIN

    def append(self, origin: str, _lo: int, hi: int, body: bytes, _members: int) -> None:
        pairs = (text.split(":") for text in body.decode().split())
        self.received.append(origin, hi, [(int(tick), int(number)) for tick, number in pairs])

    def members(self) -> int:
        return self._version

    def append_members(self, version: int, _body: bytes) -> None:
        self._version = version

    def questions(self, _now: float) -> list[OriginRange]:
        return []

    def receive_answer(self, origin: str, lo: int, hi: int, body: bytes) -> None: ...

    def receive_gone(self, origin: str, lo: int, hi: int) -> None: ...


class _End:
    """What one side of a link imports and exports."""

    def __init__(self, imported: Import | None = None, source: _Source | None = None) -> None:
        self._imports = {} if imported is None else {imported.import_id: imported}
        self._source, self._number = source, 0

    def greet(self, neighbour: str) -> None: ...

    def imports(self, _now: float) -> Mapping[int, Import]:
        return self._imports

    def acknowledged(self, _import_id: int) -> StreamHorizons:
        return {}

    def note_received(self, number: int) -> None:
        self._number = number

    def stored_number(self) -> int:
        return self._number

    def open(self, _neighbour: str, request: OpenImport, _wake: Callable[[], None]) -> tuple[Export, int]:
        assert self._source is not None
        known = request.horizons.get(RELATION, {})
        return StreamExport(request.id, self._source, known, HORIZON_MIN, request.members), -1

    def acknowledge(self, neighbour: str, relation: str, horizons: StreamHorizons) -> None: ...

    def release(self, neighbour: str, relation: str) -> None: ...


class _Connection:
    """A link between a broker and a source of its plan, with a clock of its own."""

    def __init__(self, target: str, source: str, exported: _Source, random: Random) -> None:
        self.source, self.sink, self.now = source, _Sink(), 0.0
        request = OpenImport(1, RELATION, "definition")
        importing, exporting = _End(StreamImport(1, request, self.sink, random, 0.0)), _End(source=exported)
        self._links = [
            Link(LinkIdentity(name, f"run of {name}"), end, end, 0.0)
            for name, end in ((target, importing), (f"broker of {source}", exporting))
        ]
        self.sent, self.sent_bytes = [0, 0], 0
        """By the importing side, and by the exporting one."""

    def run(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(POLLS_MAX):
            self.now += POLL_S
            if not self._exchange() and not any(link.holds_data for link in self._links):
                return
        raise AssertionError("a link does not come to rest")

    def run_to(self, seconds: float) -> None:
        """Until this time of its clock. What is under way arrives at once."""
        self.now = seconds
        while self._exchange():
            pass

    def _exchange(self) -> bool:
        packets = []
        for side, link in enumerate(self._links):
            link.poll(self.now)
            packets.append(link.take_packets())
            self.sent[side] += len(packets[-1])
            self.sent_bytes += sum(map(len, packets[-1]))
        for link, arriving in zip(reversed(self._links), packets, strict=True):
            for packet in arriving:
                link.receive(packet, self.now)
        return any(packets)


class _Receiver(_Host):
    """A republisher or consumer: what its plan says, over links, put together by an assembly."""

    def __init__(self, name: str, query: Query, plan: QueryPlan, network: "LinkedNetwork", random: Random) -> None:
        super().__init__()
        self.query, self._plan, self._network = query, plan, network
        self.connections = [
            _Connection(name, s.publisher, network.export(s.publisher, s.condition), random) for s in plan.sources
        ]
        self._texts = [str(source.condition) for source in plan.sources]
        self._origins = network.find_origins(query.condition)
        self._assembly: Assembly[int] = Assembly(self._may_have, lambda _: HORIZON_MIN)
        self._assembly.begin(range(len(plan.sources)))

    def _may_have(self, source: int, origin: str) -> bool:
        return self._network.may_have(self._plan.sources[source], self._texts[source], origin)

    def run(self, until_s: float | None = None) -> None:
        for connection in self.connections:
            if until_s is None:
                connection.run()
            else:
                connection.run_to(until_s)
        self._assembly.horizons = self.horizons
        received = [connection.sink.received for connection in self.connections]
        reached = {number: host.horizons for number, host in enumerate(received)}
        for part in self._assembly.next_ranges(self._origins, reached):
            events = [
                e for s in part.sources for e in received[s].events.get(part.origin, ()) if part.lo < e[0] <= part.hi
            ]
            self.append(part.origin, part.hi, sorted(events))


class LinkedNetwork:
    """Each producer, republisher and consumer has a broker of its own, with links to the sources of its plan."""

    def __init__(
        self,
        publishers: Mapping[str, StreamPublisher],
        hierarchy: Hierarchy,
        consumers: Sequence[tuple[Query, QueryPlan]],
        seed: int = 0,
    ) -> None:
        self._random = random = Random(seed)
        self._publishers = publishers
        self._events: list[Event] = []
        self._selected: dict[tuple[str, int], bool] = {}
        self._may_have: dict[tuple[str, str, str], bool] = {}
        self._index: ConditionIndex[str] = ConditionIndex()
        self._hosts: dict[str, _Host] = {}
        for name, publisher in publishers.items():
            if publisher.is_producer:
                self._index.add(name, publisher.condition)
                self._hosts[name] = _Host()
        edges, self._receivers = hierarchy.physical_edges, list[_Receiver]()
        while waiting := [name for name in edges if name not in self._hosts]:
            for name in waiting:
                if all(source in self._hosts for source in edges[name]):
                    query = Query(publishers[name].condition, is_republisher=True)
                    receiver = _Receiver(name, query, hierarchy.plans[name], self, random)
                    self._hosts[name] = receiver
                    self._receivers.append(receiver)
        self._consumers = [
            _Receiver(f"consumer {number}", query, plan, self, random) for number, (query, plan) in enumerate(consumers)
        ]

    # ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def export(self, publisher: str, condition: Condition) -> _Source:
        text = str(condition)

        def selects(number: int) -> bool:
            key = text, number
            if key not in self._selected:
                self._selected[key] = condition.is_true_of(self._events[number])
            return self._selected[key]

        return _Source(self._hosts[publisher], selects)

    def find_origins(self, condition: Condition) -> list[str]:
        near = self._index.candidates(condition)
        return sorted(name for name in near if is_consistent(self._publishers[name].condition, condition))

    def may_have(self, source: QuerySource, text: str, origin: str) -> bool:
        """`text` is that of the condition."""
        publisher, producer = self._publishers[source.publisher], self._publishers[origin]
        if publisher.is_producer:
            return publisher is producer
        key = source.publisher, text, origin
        if key not in self._may_have:
            both = (publisher.condition, source.condition)
            self._may_have[key] = all(is_consistent(producer.condition, condition) for condition in both)
        return self._may_have[key]

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def measure(self, make_event: Callable[[StreamPublisher], Event]) -> LinkCounts:
        """Opens all links. Then every producer publishes one event. Then all of them are idle."""
        opening = self._run()
        for name, publisher in self._publishers.items():
            if publisher.is_producer:
                self._hosts[name].append(name, 1, [(1, len(self._events))])
                self._events.append(make_event(publisher))
        before = self._sent_by_producers
        of_round = self._run()
        by_producers = self._sent_by_producers - before
        self._check()
        idle, lag_s = self._run_idle()
        self._check()
        of_producers = [c.source for c in self._connections if self._publishers[c.source].is_producer]
        return LinkCounts(
            len(self._connections),
            sum(len(c.connections) for c in self._consumers) / len(self._consumers),
            max(map(of_producers.count, set(of_producers)), default=0),
            opening.data + opening.confirmations,
            of_round,
            by_producers,
            sum(len(events) for c in self._connections for events in c.sink.received.events.values()),
            idle,
            lag_s,
        )

    def _run(self, until_s: float | None = None) -> Traffic:
        """Those who are fed by others come after them."""
        before = self._traffic
        for receiver in (*self._receivers, *self._consumers):
            receiver.run(until_s)
        return self._traffic - before

    def _run_idle(self) -> tuple[Traffic, float]:
        """Nothing is published, and the horizon of each producer advances at times of its own. A tick is a microsecond.
        Returns the traffic of a second, and by how much the horizons of consumers are behind on average."""
        producers = [name for name, publisher in self._publishers.items() if publisher.is_producer]
        due_s = {name: self._random.uniform(0, ADVANCE_S) for name in producers}
        before, lags = Traffic(), list[float]()
        begin_s = max(c.now for c in self._connections)
        for step in range(round((ADVANCE_S + IDLE_S) / STEP_S)):
            elapsed_s = step * STEP_S
            for name in producers:
                if due_s[name] <= elapsed_s:
                    due_s[name] += ADVANCE_S
                    self._hosts[name].append(name, round(elapsed_s * 1e6) + 2, [])
            self._run(begin_s + elapsed_s)
            if elapsed_s < ADVANCE_S:
                before = self._traffic
            else:
                horizons = (h for c in self._consumers for h in c.horizons.values())
                lags.append(mean(elapsed_s - horizon / 1e6 for horizon in horizons))
        traffic = self._traffic - before
        per_second = (round(count / IDLE_S) for count in (traffic.data, traffic.confirmations, traffic.bytes))
        return Traffic(*per_second), mean(lags)

    @property
    def _connections(self) -> list[_Connection]:
        return [c for receiver in (*self._receivers, *self._consumers) for c in receiver.connections]

    @property
    def _traffic(self) -> Traffic:
        sent = [sum(c.sent[side] for c in self._connections) for side in (0, 1)]
        return Traffic(sent[1], sent[0], sum(c.sent_bytes for c in self._connections))

    @property
    def _sent_by_producers(self) -> int:
        return sum(c.sent[1] for c in self._connections if self._publishers[c.source].is_producer)

    def _check(self) -> None:
        """Every receiver has every event that it selects, once."""
        for receiver in (*self._receivers, *self._consumers):
            selects = self.export(next(iter(self._publishers)), receiver.query.condition)._selects
            expected = [number for number in range(len(self._events)) if selects(number)]
            numbers = sorted(number for events in receiver.events.values() for _, number in events)
            assert numbers == expected, f"{receiver.query.condition}: {numbers} instead of {expected}"
