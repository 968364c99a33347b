"""One connection between two brokers, seen from one of them. A state machine without input and output: messages and the
time come in, messages and a deadline go out.

Both sides may import over one link. A link that breaks is replaced by another one, which continues from what the
importing side has by then.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from smile import limits
from smile.errors import SmileError, error
from smile.links.exports import DataMessage, Export
from smile.links.imports import Import, MembersImport, StreamImport, ViewImport
from smile.links.messages import (
    VERSION,
    VERSION_MIN,
    Acknowledge,
    CloseImport,
    Curious,
    EventsMessage,
    Heartbeat,
    Hello,
    ImportOpened,
    ImportRefused,
    LinkMessage,
    MembersMessage,
    OpenImport,
    RangeGone,
    Received,
    RoutingReceived,
    RoutingUpdate,
    RowsMessage,
    StreamHorizons,
    decode_packet,
    encode_message,
    join_packets,
)
from smile.links.rate_meter import RateMeter
from smile.links.routing.exchange import RoutingExchange
from smile.links.send_window import SendWindow

HEARTBEAT_S: Final = 2.0
"""A side that has sent nothing for this time sends a heartbeat. So does one whose data is not confirmed, and that has
sent no more data for this time."""
DEAD_S: Final = 3 * HEARTBEAT_S + 1.0
"""A side that has received nothing for this time gives the connection up."""
ACKNOWLEDGE_S: Final = 5.0
GREET_S: Final = 1.0
"""A side that has not heard the other one's greeting after this time greets again."""


@dataclass(frozen=True)
class LinkIdentity:
    """The name of this broker, and one start of it."""

    broker: str
    run: str


class Importer(Protocol):
    """What a broker imports over a link."""

    def greet(self, neighbour: str) -> None:
        """The neighbour has said its name. Raises an error if the link is refused."""

    def imports(self, now: float) -> Mapping[int, Import]:
        """The imports, by id. They may change. Raises an error if the link has to end."""

    def acknowledged(self, import_id: int) -> StreamHorizons:
        """What will not be asked for again, whatever happens to this broker."""

    def note_received(self, number: int) -> None:
        """All data messages up to this number were passed to the imports, or are lost."""

    def stored_number(self) -> int:
        """The last of these numbers up to which everything is stored. The neighbour may send more then."""


class Exporter(Protocol):
    """What a broker lets its neighbours import."""

    def open(self, neighbour: str, request: OpenImport, wake: Callable[[], None]) -> tuple[Export, int]:
        """An export and, for a view, the change after which it begins. `wake` is called when there is something new.
        Raises an error if the request is refused."""

    def acknowledge(self, neighbour: str, relation: str, horizons: StreamHorizons) -> None:
        """The neighbour will not ask again for what is up to these horizons."""

    def release(self, neighbour: str, relation: str) -> None:
        """The neighbour needs nothing of the relation any more."""


@dataclass
class LinkFigures:
    """What `smile status` shows of a link."""

    sent_bytes: RateMeter = field(default_factory=RateMeter)
    sent_rows: RateMeter = field(default_factory=RateMeter)
    received_bytes: RateMeter = field(default_factory=RateMeter)
    received_rows: RateMeter = field(default_factory=RateMeter)
    questions_asked: int = 0
    questions_answered: int = 0


class Link:
    """Call `poll` when the deadline is reached, when the connection can be written to, and when `wake` was called; then
    send what `take_packets` returns."""

    def __init__(
        self,
        identity: LinkIdentity,
        importer: Importer,
        exporter: Exporter,
        now: float,
        wake: Callable[[], None] = lambda: None,
        routing: RoutingExchange | None = None,
    ) -> None:
        self.neighbour: str | None = None
        """The name of the other broker, when it is known."""
        self.outgoing: list[bytes] = []
        """The messages that are to be sent."""
        self.figures = LinkFigures()
        self._identity, self._wake = identity, wake
        self._importer, self._exporter = importer, exporter
        self._routing = routing
        self.routes = False
        """Whether both sides take part in routing."""
        self._imports: Mapping[int, Import] = {}
        self._exports: dict[int, tuple[OpenImport, Export, ImportOpened]] = {}
        self._window = SendWindow(limits.link_window_bytes)
        self._held_until: float | None = None
        """When to send what was held back, because a small message is under way."""
        self._silence_at = inf
        """When to send silence that was held back."""
        self._received_number = self._confirmed_number = 0
        self._must_confirm = False
        self._sent_at = self._received_at = self._said_at = now
        self._acknowledge_at = now + ACKNOWLEDGE_S
        self._acknowledged_horizons: dict[int, StreamHorizons] = {}
        self._greet(now)

    @property
    def deadline(self) -> float:
        deadlines = [self._heartbeat_at, self._received_at + DEAD_S]
        if self.neighbour is None:
            return min(*deadlines, self._greet_at)
        if self._routing is not None and self.routes:
            deadlines.append(self._routing.deadline)
        if self._held_until is not None:
            deadlines.append(self._held_until)
        return min(*deadlines, self._silence_at, self._acknowledge_at, *(i.deadline for i in self._imports.values()))

    @property
    def holds_data(self) -> bool:
        """Whether there may be data that are sent later, so that others are sent with them."""
        return self._held_until is not None or self._silence_at < inf

    @property
    def _heartbeat_at(self) -> float:
        """While data is under way, only data and heartbeats count. Other messages do not say how much data there was:
        the last of it may be lost and fill the window."""
        return (self._said_at if self._window.is_waiting else self._sent_at) + HEARTBEAT_S

    @property
    def exported_relations(self) -> list[str]:
        return [request.relation for request, _, _ in self._exports.values()]

    @property
    def delay_s(self) -> float | None:
        """The time from the last confirmed data message to its confirmation: the neighbour has stored it by then."""
        return self._window.delay_s

    def close(self) -> None:
        for _, export, _ in self._exports.values():
            export.close()
        self._exports.clear()

    def _greet(self, now: float) -> None:
        has_heard = self.neighbour is not None
        self._send(Hello(VERSION, VERSION_MIN, self._identity.broker, self._identity.run, has_heard), now)
        self._greet_at = now + GREET_S

    def take_packets(self) -> list[bytes]:
        """What is to be sent: the messages so far, small ones together."""
        messages, self.outgoing = self.outgoing, []
        return join_packets(messages)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, message: LinkMessage, now: float) -> None:
        self._send_packet(encode_message(message), now)

    def _send_packet(self, packet: bytes, now: float) -> None:
        self.outgoing.append(packet)
        self.figures.sent_bytes.add(len(packet), now)
        self._sent_at = now

    def poll(self, now: float, is_writable: bool = True) -> None:
        """Does what is due. Raises E121 if the neighbour is silent for too long."""
        if now >= self._received_at + DEAD_S:
            raise error("E121", f"the neighbour has been silent for {DEAD_S:.0f} seconds")
        if self.neighbour is not None:
            if self._routing is not None and self.routes:
                for update in self._routing.poll(now):
                    self._send(update, now)
            self._update_imports(now)
            self._poll_imports(now)
            self._silence_at = inf
            if is_writable:
                self._send_exports(now)
            else:
                self._held_until = None  # it waits for room, not for a time
        elif now >= self._greet_at:
            self._greet(now)
        self._confirm(now)
        if now >= self._heartbeat_at:
            self._said_at = now
            self._send(Heartbeat(self._window.last_number), now)

    def _confirm(self, now: float) -> None:
        """Says what is stored: once, and again if the neighbour seems not to know."""
        stored_number = self._importer.stored_number()
        is_all_stored = stored_number >= self._received_number
        if stored_number > self._confirmed_number or (self._must_confirm and is_all_stored):
            self._confirmed_number = stored_number
            self._must_confirm &= not is_all_stored
            self._send(Received(stored_number), now)

    def _update_imports(self, now: float) -> None:
        imports = self._importer.imports(now)
        for import_id in self._imports.keys() - imports.keys():
            self._acknowledged_horizons.pop(import_id, None)
            self._send(CloseImport(import_id, is_dropped=True), now)
        self._imports = dict(imports)

    def _poll_imports(self, now: float) -> None:
        for imported in self._imports.values():
            imported.poll(now)
            for message in imported.outgoing:
                self._send(message, now)
                self.figures.questions_asked += isinstance(message, Curious)
            imported.outgoing.clear()
        if now >= self._acknowledge_at:
            self._acknowledge(now)

    def _acknowledge(self, now: float) -> None:
        self._acknowledge_at = now + ACKNOWLEDGE_S
        for import_id in self._imports:
            horizons = self._importer.acknowledged(import_id)
            if horizons != self._acknowledged_horizons.get(import_id, {}):
                self._acknowledged_horizons[import_id] = horizons
                self._send(Acknowledge(import_id, horizons), now)

    def _send_exports(self, now: float) -> None:
        """Sends in turns, so that no export waits for another one."""
        self._held_until = self._window.held_until
        if self._held_until is not None and now < self._held_until:
            return
        self._held_until = None

        def send(make_header: Callable[[int], DataMessage], body: bytes) -> None:
            header = make_header(self._window.next_number())
            packet = encode_message(header, body)
            self._window.sent(len(packet), now)
            self._said_at = now
            self.figures.sent_rows.add(header.rows, now)
            self._send_packet(packet, now)

        if self._send_in_turns(send, now):
            self._send_in_turns(send, now, with_silence=True)
        if self._window.is_open:
            self._silence_at = min((export.deadline for _, export, _ in self._exports.values()), default=inf)

    def _send_in_turns(self, send: Callable[..., None], now: float, *, with_silence: bool = False) -> bool:
        """Returns whether anything was sent."""
        has_sent, pending = False, deque(self._exports)
        while pending and self._window.is_open:
            import_id = pending.popleft()
            if self._send_next(import_id, send, now, with_silence):
                has_sent = True
                pending.append(import_id)
        return has_sent

    def _send_next(self, import_id: int, send: Callable[..., None], now: float, with_silence: bool) -> bool:
        _, export, _ = self._exports[import_id]
        try:
            has_sent = export.send_next(send, now, with_silence)
            for reply in export.take_replies():
                self._send(reply, now)
            return has_sent
        except SmileError as problem:
            self._refuse(import_id, problem, now)
            return False

    def _refuse(self, import_id: int, problem: SmileError, now: float) -> None:
        entry = self._exports.pop(import_id, None)
        if entry is not None:
            entry[1].close()
        diagnostic = problem.diagnostics[0]
        is_permanent = diagnostic.code in PERMANENT_CODES
        refusal = ImportRefused(
            import_id, diagnostic.code, diagnostic.message[:1000], (diagnostic.hint or "")[:1000], is_permanent
        )
        self._send(refusal, now)

    # ── receiving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, packet: bytes, now: float) -> None:
        """Processes the messages of a packet. Raises E120 or E122 if the neighbour does not follow the protocol: the
        connection is then to be closed."""
        messages = decode_packet(packet)
        self._received_at = now
        self.figures.received_bytes.add(len(packet), now)
        for message, body in messages:
            self._receive_message(message, body, now)

    def _receive_message(self, message: LinkMessage, body: bytes, now: float) -> None:
        if isinstance(message, Hello):
            self._receive_hello(message, now)
        elif self.neighbour is None:
            return  # a message has overtaken the greeting; what it says is said again
        else:
            self._dispatch(message, body, now)

    def _receive_hello(self, hello: Hello, now: float) -> None:
        if hello.version < VERSION_MIN or hello.version_min > VERSION:
            theirs, ours = f"{hello.version_min} to {hello.version}", f"{VERSION_MIN} to {VERSION}"
            message = f"{hello.broker} knows versions {theirs} of the link protocol, this broker {ours}"
            raise error("E122", message, hint="Upgrade the older one of the two brokers.")
        if hello.run == self._identity.run:
            raise error("E126", f"{hello.broker} has called itself", hint="Check the address of the neighbour.")
        if self.neighbour is None:
            if hello.broker == self._identity.broker:
                hint = "Give each broker another `name`."
                raise error("E126", f"both brokers of the link are named {hello.broker}", hint=hint)
            self._importer.greet(hello.broker)
            self.neighbour = hello.broker
            self.routes = self._routing is not None
        elif self.neighbour != hello.broker:
            raise error("E120", f"the neighbour {self.neighbour} now calls itself {hello.broker}")
        if not hello.has_heard:
            self._greet(now)

    def _dispatch(self, message: LinkMessage, body: bytes, now: float) -> None:
        assert self.neighbour is not None
        match message:
            case EventsMessage() | RowsMessage() | MembersMessage():
                self.figures.received_rows.add(message.rows, now)
                self._receive_data(message, body, now)
                self._note_number(message.n)
            case RangeGone():
                imported = self._imports.get(message.id)
                if isinstance(imported, StreamImport):
                    imported.receive_gone(message, now)
            case ImportOpened():
                if message.id in self._imports:
                    self._imports[message.id].opened(message, now)
            case ImportRefused():
                if message.id in self._imports:
                    self._imports[message.id].refused(message, now)
            case OpenImport():
                self._open(message, now)
            case Curious():
                self.figures.questions_answered += 1
                if message.id in self._exports:
                    self._exports[message.id][1].answer(message)
                else:
                    self._refuse(message.id, error("E123", "this import is not open"), now)
            case Acknowledge():
                if message.id in self._exports:
                    self._exporter.acknowledge(self.neighbour, self._exports[message.id][0].relation, message.horizons)
            case Received():
                self._window.stored(message.n, now)
            case Heartbeat():
                self._note_number(message.n)
            case RoutingUpdate():
                if self._routing is not None and (confirmation := self._routing.receive(message)) is not None:
                    self._send(confirmation, now)
            case RoutingReceived():
                if self._routing is not None:
                    self._routing.receive_confirmation(message)
            case CloseImport():
                entry = self._exports.pop(message.id, None)
                if entry is not None:
                    entry[1].close()
                    others = {request.relation for request, _, _ in self._exports.values() if not request.hosts}
                    if message.is_dropped and not entry[0].hosts and entry[0].relation not in others:
                        self._exporter.release(self.neighbour, entry[0].relation)

    def _receive_data(self, message: DataMessage, body: bytes, now: float) -> None:
        imported = self._imports.get(message.id)
        try:
            match imported, message:
                case StreamImport(), EventsMessage():
                    imported.receive(message, body, now)
                case ViewImport(), RowsMessage():
                    imported.receive(message, body, now)
                case StreamImport() | MembersImport(), MembersMessage():
                    imported.receive_members(message, body, now)
        except SmileError as problem:
            if imported is None or problem.diagnostics[0].code not in UNUSABLE_CODES:
                raise
            imported.fail(problem, now)
            self._send(CloseImport(message.id), now)

    def _note_number(self, number: int) -> None:
        self._received_number = max(self._received_number, number)
        self._must_confirm = True
        self._importer.note_received(self._received_number)

    def _open(self, request: OpenImport, now: float) -> None:
        assert self.neighbour is not None
        if request.id in self._exports:
            self._send(self._exports[request.id][2], now)  # the first answer was lost
            return
        if len(self._exports) >= limits.imports_max:
            self._refuse(request.id, error("E092", f"there are {limits.imports_max} imports on this link already"), now)
            return
        try:
            export, change = self._exporter.open(self.neighbour, request, self._wake)
        except SmileError as problem:
            self._refuse(request.id, problem, now)
            return
        answer = ImportOpened(request.id, change, self._window.last_number)
        self._exports[request.id] = request, export, answer
        self._send(answer, now)


PERMANENT_CODES: Final = frozenset({"E021", "E076", "E089", "E090", "E091", "E097", "E124", "E135", "E137"})
"""Refusals that stay until somebody changes a program or a grant: no such relation, no right, gone, another type, no
origin."""

UNUSABLE_CODES: Final = frozenset({"E125", "E136", "E137"})
"""What an import has received cannot be used. The import ends, and the link goes on."""
