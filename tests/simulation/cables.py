"""Links between simulated brokers. One side calls the other again and again, as the transport does; messages are lost,
repeated, reordered and delayed on their way, also above TCP."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from smile.algebra import mmpl
from smile.broker.network.imported_relation import ImportedRelation
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.links.link import Link
from smile.links.messages import (
    VERSION,
    VERSION_MIN,
    AnyMessage,
    Curious,
    EventsMessage,
    Hello,
    OpenImport,
    RowsMessage,
    SentRange,
    decode_packet,
    encode_message,
)
from smile.links.redial import Redial
from tests.simulation.scenario import LINK_FAULTS, MESSAGE_FAULTS, Fault, FaultKind
from tests.simulation.scheduler import Alarm
from tests.simulation.world import World, message_text, tag_of

if TYPE_CHECKING:
    from tests.simulation.brokers import SimulatedBroker

BUFFER_BYTES = 4_000
"""What fits into the buffers of a connection."""
SLOW_BYTES_PER_S = 500.0
"""The speed of a slow link with a rate of 1."""


_WRONG_CODES = frozenset({"E084", "E120", "E123", "E125"})
"""Between brokers that follow the protocol no connection ends so: something was not a message, or left a gap."""


class SimulatedLink:
    """The broker at end 0 calls the one at end 1."""

    def __init__(self, world: World, number: int, brokers: "tuple[SimulatedBroker, SimulatedBroker]") -> None:
        self.world, self.number, self.brokers = world, number, brokers
        self.name = f"{brokers[0].name}-{brokers[1].name}/{number}"
        self.random = world.random("link", number)
        self.fault_randoms: dict[Fault, Random] = {}
        self.cables: list[Cable] = []
        self.has_bundles = world.random("bundles", number).random() < 0.5
        """Otherwise each message is a packet, and is lost, repeated and delayed by itself."""
        self._redial = Redial(self.random)
        self._alarm = Alarm(world.scheduler, f"{self.name} calls", self._call)
        self._alarm.set(self.random.uniform(0, 0.5))
        self._connections = 0

    @property
    def is_partitioned(self) -> bool:
        return bool(self.world.faults_at(FaultKind.PARTITION, self.number))

    @property
    def is_settled(self) -> bool:
        """Whether there is one connection, both sides know each other, and all imports are open that can be."""
        if any(broker.is_dead for broker in self.brokers):
            return True
        ends = [end for cable in self.cables for end in cable.ends]
        return len(ends) == 2 and all(
            end.is_open and end.state.neighbour is not None and end.broker.has_open_imports(end.state) for end in ends
        )

    def is_blocked(self, side: int) -> bool:
        """Whether nothing that this side sends arrives."""
        return self.is_partitioned or any(
            fault.seed % 2 == side for fault in self.world.faults_at(FaultKind.ONE_WAY, self.number)
        )

    def _call(self) -> None:
        caller, called = self.brokers
        if not caller.is_up or caller.frozen_until > self.world.now:
            self._alarm.set(max(caller.frozen_until, self.world.now + 0.2))
            return
        can_connect = called.is_up and called.frozen_until <= self.world.now
        if not can_connect or self.is_blocked(0) or self.is_blocked(1):
            problem = error("E121", f"{called.name} does not answer")
            caller.broker.network.report_unreachable(called.name, problem, self.world.now)
            self._alarm.set(self.world.now + self._redial.wait_s(0))
            return
        self._connections += 1
        self.cables.append(Cable(self, f"{self.name}#{self._connections}"))

    def call_again(self, connected_s: float) -> None:
        self._alarm.set(self.world.now + self._redial.wait_s(connected_s))

    def cut(self) -> None:
        """All connections break; what is on its way is lost."""
        for cable in list(self.cables):
            cable.cut()


class Cable:
    """A connection."""

    def __init__(self, link: SimulatedLink, name: str) -> None:
        self.link, self.world, self.name = link, link.world, name
        self.since = self.world.now
        self.world.note(name, "connected")
        self.ends = (CableEnd(self, 0), CableEnd(self, 1))
        for end in self.ends:
            end.alarm.set(self.world.now)

    def cut(self, problem: SmileError | None = None) -> None:
        for end in self.ends:
            end.close(problem or error("E121", "the connection has broken"))

    def closed(self, side: int, is_told: bool = True) -> None:
        """One end is closed. The other one is told, if that reaches it; otherwise it notices when it has heard nothing
        for too long."""
        if side == 0:
            self.link.call_again(self.world.now - self.since)
        if not any(end.is_open for end in self.ends):
            self.link.cables.remove(self)
        elif is_told and not self.link.is_blocked(side):
            other = self.ends[1 - side]
            self.world.scheduler.at(
                self.world.now + 0.01,
                f"{self.name} closes",
                lambda: other.close(error("E121", "the neighbour has closed the connection")),
            )


class CableEnd:
    """The end of a connection at one broker, with the product's state machine."""

    def __init__(self, cable: Cable, side: int) -> None:
        self.cable, self.side, self.world = cable, side, cable.world
        self.broker, neighbour = cable.link.brokers[side], cable.link.brokers[1 - side]
        self.neighbour = neighbour
        self.incarnation = self.broker.incarnation
        self.is_open = True
        self.alarm = Alarm(self.world.scheduler, f"{cable.name} {side}", self.service)
        expected = neighbour.name if side == 0 else None
        self.state: Link = self.broker.broker.network.connect(expected, neighbour.name, self.world.now, self._wake)
        is_old = self.world.faults_at(FaultKind.OLD_VERSION, self.broker.number)
        self._version = VERSION_MIN - 1 if is_old else VERSION
        self._random = self.world.random("cable", cable.name, side)
        self._queued_bytes = 0
        self._last_arrival = 0.0
        self._sent_ticks: dict[tuple[int, str], int] = {}
        """The end of the last range of each import and origin."""
        self.opened: dict[int, mmpl.ImportDef] = {}
        """What this end has asked for, by its numbers. After a restart a broker numbers its imports anew."""
        self._begun: dict[int, Mapping[str, int]] = {}
        """What it had of each stream when it asked for it first."""
        self._asked: dict[tuple[int, str], int] = {}
        """The least tick after which it has asked for an origin again."""
        self._has_asked_for_others: set[int] = set()

    @property
    def other(self) -> "CableEnd":
        return self.cable.ends[1 - self.side]

    def _wake(self) -> None:
        self.alarm.set(self.world.now)

    def service(self) -> None:
        if not self.is_open:
            return
        if self.broker.frozen_until > self.world.now:
            self.alarm.set(self.broker.frozen_until)
            return
        self._run(self._poll)

    def _poll(self) -> None:
        self.state.poll(self.world.now, self._has_room)
        if self.state.deadline <= self.world.now:
            self.world.complain(f"{self.cable.name}: {self.broker.name} does not wait for anything, but polls again")

    @property
    def _has_room(self) -> bool:
        return self._queued_bytes < BUFFER_BYTES

    def receive(self, packet: bytes) -> None:
        if not self.is_open:
            return
        stalled = self.world.faults_at(FaultKind.STALLED_READER, self.cable.link.number)
        until = max([self.broker.frozen_until, *(f.end for f in stalled if f.seed % 2 == self.side)])
        if until > self.world.now:
            self.world.scheduler.at(until, f"{self.cable.name} {self.side} reads", lambda: self.receive(packet))
            return
        had_room = self.other._has_room
        self.other._queued_bytes -= len(packet)
        if not had_room and self.other._has_room:
            self.other._wake()
        self._run(lambda: self.state.receive(packet, self.world.now))
        self.alarm.set(self.world.now)

    def _run(self, action: Callable[[], None]) -> None:
        try:
            action()
        except SmileError as problem:
            self._send_outgoing()
            self.close(problem)
            return
        self._send_outgoing()
        self.alarm.set(max(self.state.deadline, self.world.now + 0.001))
        self.broker.schedule_commit()

    def _send_outgoing(self) -> None:
        packets = self.state.take_packets()
        if not self.cable.link.has_bundles:
            packets = [encode_message(*message) for packet in packets for message in decode_packet(packet)]
        for packet in packets:
            self._send(packet)

    def close(self, problem: SmileError | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.alarm.cancel()
        self.world.note(self.cable.name, f"{self.broker.name} closes: {problem}")
        if problem is not None and problem.diagnostics[0].code in _WRONG_CODES:
            self.world.complain(f"{self.cable.name}: {self.broker.name} cannot use what it has received: {problem}")
        if self.broker.incarnation == self.incarnation and self.broker.is_up:
            self.broker.broker.network.disconnect(self.state, problem, self.world.now)
        self.cable.closed(self.side)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, packet: bytes) -> None:
        messages = decode_packet(packet)
        if isinstance(hello := messages[0][0], Hello) and self._version != hello.version:
            hello = replace(hello, version=self._version, version_min=min(self._version, hello.version_min))
            messages, packet = [(hello, b"")], encode_message(hello)
        for message, body in messages:
            self._observe(message, body)
        link, is_lost, copies, is_ordered, delay_s = self.cable.link, False, 1, True, 0.0
        for fault in self.world.active:
            if fault.target != link.number or fault.kind not in MESSAGE_FAULTS:
                continue
            random = link.fault_randoms.setdefault(fault, Random(fault.seed))
            if random.random() >= fault.rate:
                continue
            is_lost |= fault.kind is FaultKind.LOST
            copies += fault.kind is FaultKind.REPEATED
            if fault.kind is FaultKind.REORDERED:
                is_ordered, delay_s = False, delay_s + random.uniform(0.02, 1.0)
            elif fault.kind is FaultKind.DELAYED:
                delay_s += random.uniform(0.2, 3.0)
        is_lost |= link.is_blocked(self.side)
        if is_lost or delay_s:
            self.world.figures.disturbed_bytes += len(packet)
        if is_lost:
            self.world.note(
                self.cable.name, f"lost: {', '.join(map(tag_of, (m for m, _ in messages)))} of {self.broker.name}"
            )
            return
        for _ in range(copies):
            self._transmit(packet, delay_s, is_ordered)

    def _transmit(self, packet: bytes, delay_s: float, is_ordered: bool) -> None:
        for fault in self.world.faults_at(FaultKind.SLOW_LINK, self.cable.link.number):
            delay_s += len(packet) * fault.rate / SLOW_BYTES_PER_S
        arrival = self.world.now + self._random.uniform(0.001, 0.02) + delay_s
        if is_ordered:
            arrival = self._last_arrival = max(arrival, self._last_arrival)
        self._queued_bytes += len(packet)
        self.world.scheduler.at(arrival, f"{self.cable.name} {1 - self.side} <", lambda: self.other.receive(packet))

    def _observe(self, message: AnyMessage, body: bytes) -> None:
        world, tag, size = self.world, tag_of(message), len(encode_message(message, body))
        world.note(f"{self.cable.name} {self.broker.name}", message_text(message, size))
        world.figures.messages[tag] += 1
        if isinstance(message, EventsMessage | RowsMessage):
            world.figures.data_bytes += size
        if isinstance(message, EventsMessage):
            for sent in message.ranges:
                if self.other.has_been_given(message.id, sent):
                    world.complain(f"{self.broker.name} sends {sent} again, although nobody has asked for it")
                if sent.lo < self._sent_ticks.get((message.id, sent.origin), sent.lo):
                    world.figures.repeated_bytes += size // len(message.ranges)
                self._sent_ticks[message.id, sent.origin] = sent.hi
        elif isinstance(message, OpenImport) and (relation := self._relations.get(message.id)) is not None:
            self.opened[message.id] = relation.import_
            if relation.import_.stream is not None:
                self._begin(message, relation)
        elif isinstance(message, Curious):
            if message.includes_other_origins:
                self._has_asked_for_others.add(message.id)
            for origin, lo, _ in message.ranges:
                self._asked[message.id, origin] = min(lo, self._asked.get((message.id, origin), lo))
        self.broker.check_message(self, message, body)
        state = self._state_of(message)
        for fault in world.active:
            if self._is_concerned(fault):
                world.combinations[fault.kind.value, tag, state] += 1

    def _begin(self, request: OpenImport, relation: ImportedRelation) -> None:
        """A new connection continues where the log is."""
        horizons = request.horizons.get(request.relation, {})
        self._begun.setdefault(request.id, horizons)
        for origin, tick in relation.cache.horizons.items():
            if horizons.get(origin, HORIZON_MIN) < tick:
                self.world.complain(f"{self.broker.name} asks for {request.relation} from {horizons}, but has {tick}")

    def has_been_given(self, import_id: int, sent: SentRange) -> bool:
        """Whether a range begins before what this end had when it asked for the import, and has not asked for again."""
        begun = self._begun.get(import_id, {}).get(sent.origin, HORIZON_MIN)
        asked = self._asked.get((import_id, sent.origin), begun)
        return sent.lo < min(begun, asked) and import_id not in self._has_asked_for_others

    @property
    def _relations(self) -> Mapping[int, ImportedRelation]:
        return self.broker.broker.network._relations

    def _is_concerned(self, fault: Fault) -> bool:
        if fault.kind in LINK_FAULTS:
            return fault.target == self.cable.link.number
        if fault.kind is FaultKind.ORIGIN_DEAD:
            return True  # all others must go on without it
        return fault.target in (self.broker.number, self.neighbour.number)

    def _state_of(self, message: AnyMessage) -> str:
        if self.state.neighbour is None:
            return "greeting"
        import_id: int = getattr(message, "id", -1)
        for end in self.cable.ends:
            imported = end.state._imports.get(import_id)
            if imported is not None:
                return imported.figures.state
        return "open"
