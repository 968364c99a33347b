"""The receiving end of an import: receives what is new, in order, and asks for what is missing.

Messages may be lost, repeated, and overtake each other. What an import passes to its sink continues without a gap:
the ranges of each origin, and for a view frames, each complete up to its horizons.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, Protocol

from msgspec.structs import replace

from smile import limits
from smile.errors import CATALOGUE, SmileError, error
from smile.horizons import END
from smile.links.curiosity import Curiosity
from smile.links.messages import (
    Curious,
    EventsMessage,
    ImportOpened,
    ImportRefused,
    MembersMessage,
    OpenImport,
    OriginRange,
    RangeGone,
    RowsMessage,
    SentRange,
    StreamHorizons,
    split_body,
)

OPEN_WAIT_S: Final = 2.0
"""How long to wait for the answer to a request to open an import."""

STANDING_WAIT_S: Final = 5.0
"""An origin that stands still for so long, while others advance, is asked for: its last range may have been lost."""
REFUSED_WAIT_S: Final = 30.0
"""After a refusal that stays until somebody changes a program or a grant."""


class StreamSink(Protocol):
    """Where an imported stream goes: the log."""

    def horizons(self) -> Mapping[str, int]:
        """For each origin, the tick up to which everything was appended."""

    def start(self) -> int:
        """The horizon of an origin that is not known yet."""

    def append(self, origin: str, lo: int, hi: int, body: bytes, members: int) -> None:
        """Appends all events of an origin above `lo` up to `hi`. The origin's horizon is at or above `lo`: what is
        already known is dropped. `members` is the version of the membership that the range needs."""

    def members(self) -> int:
        """The version of the membership that was appended; 0 if there is none."""

    def append_members(self, version: int, body: bytes) -> None:
        """Raises E125 or E137 if the membership cannot be used."""

    def questions(self, now: float) -> list[OriginRange]:
        """What other brokers have asked for and this one does not have: it is to be asked for on this link."""

    def receive_answer(self, origin: str, lo: int, hi: int, body: bytes) -> None:
        """A range that is known here, and perhaps not to those who have asked for it."""

    def receive_gone(self, origin: str, lo: int, hi: int) -> None:
        """The neighbour has nobody who has a range that others have asked for."""


class MembersSink(Protocol):
    """Where the membership of a stream goes that this broker publishes to."""

    def members(self) -> int: ...

    def append_members(self, version: int, body: bytes) -> None: ...

    def end(self) -> int | None:
        """The last tick of this broker as an origin, if it has left and the home may not know it."""


class ViewSink(Protocol):
    """Where an imported view goes: the log."""

    def horizons(self) -> StreamHorizons: ...

    def append(self, start: StreamHorizons | None, bodies: list[bytes], end: StreamHorizons) -> None:
        """Appends a frame: the rows that have changed between two sets of horizons. Without `start`, they are all
        rows."""


@dataclass(frozen=True)
class Missing:
    """What an import is curious about."""

    what: Literal["gap", "horizon"]
    """Something before what has arrived, or what follows a horizon that stands still."""
    since: float


@dataclass
class ImportFigures:
    """What `smile status` shows of an import."""

    state: str = "opening"
    """opening, live, refused or gone"""
    since: float = 0.0
    problem: SmileError | None = None
    asked: int = 0
    redundant: int = 0
    accepted_bytes: int = 0


class Import(ABC):
    """One relation that is imported over a link. `outgoing` has the messages that are to be sent."""

    def __init__(self, import_id: int, request: OpenImport, random: Random, now: float) -> None:
        self.import_id = import_id
        self.figures = ImportFigures(since=now)
        self.outgoing: list[OpenImport | Curious] = []
        self._request = request
        self._curiosity = Curiosity(random, now)
        self._is_open = False
        self._deadline = now

    @property
    def deadline(self) -> float:
        """When `poll` has something to do."""
        return self._curiosity.deadline if self._is_open else self._deadline

    def poll(self, now: float) -> None:
        """Asks for what is due."""
        if now < self.deadline:
            return
        if not self._is_open:
            self.outgoing.append(self.request())
            self._deadline = now + OPEN_WAIT_S
            return
        self.outgoing.append(self._question())
        self.figures.asked += 1
        self._curiosity.asked(now)

    def opened(self, message: ImportOpened, now: float) -> None:
        if not self._is_open:
            self._is_open, self.figures.problem = True, None
            self._set_state("live", now)
            self._curiosity.advanced(now)

    def refused(self, message: ImportRefused, now: float) -> None:
        """A permanent refusal is shown as such, and the import asks again from time to time: a grant may have been
        given meanwhile."""
        code = message.code if message.code in CATALOGUE else "E123"
        self.figures.problem = error(code, message.message, hint=message.hint or None)
        self._is_open, self._deadline = False, now + (REFUSED_WAIT_S if message.is_permanent else OPEN_WAIT_S)
        self._set_state(("gone" if code == "E097" else "refused") if message.is_permanent else "opening", now)

    def fail(self, problem: SmileError, now: float) -> None:
        """What the neighbour has sent cannot be used."""
        self.figures.problem = problem
        self._is_open, self._deadline = False, now + REFUSED_WAIT_S
        self._set_state("refused", now)

    def _set_state(self, state: str, now: float) -> None:
        if self.figures.state != state:
            self.figures.state, self.figures.since = state, now

    @property
    def missing(self) -> Missing | None:
        """None while the import follows its neighbour."""
        since = self._curiosity.since
        if not self._is_open or since is None:
            return None
        return Missing("gap" if self._curiosity.has_gap else "horizon", since)

    @property
    @abstractmethod
    def gap_count(self) -> int:
        """How many gaps there are before what has arrived."""

    @abstractmethod
    def request(self) -> OpenImport:
        """Says what is known already."""

    @abstractmethod
    def _question(self) -> Curious: ...


# ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _OriginInbox:
    """Of one origin: the tick up to which everything was handed on, and what has arrived beyond a gap, by its first
    tick."""

    horizon: int
    waiting: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    waiting_bytes: int = 0


class StreamImport(Import):
    def __init__(self, import_id: int, request: OpenImport, sink: StreamSink, random: Random, now: float) -> None:
        super().__init__(import_id, request, random, now)
        self._sink = sink
        self._members, self._lacks_members = sink.members(), False
        self._inboxes = {origin: _OriginInbox(horizon) for origin, horizon in sink.horizons().items()}
        self._advanced: set[str] = set()
        """The origins that have advanced since they were compared last."""
        self._compare_at = now + STANDING_WAIT_S
        self.sent_horizons: dict[str, int] = {}
        """Up to which tick the neighbour has each origin, as far as it has sent it."""

    @property
    def gap_count(self) -> int:
        return sum(bool(inbox.waiting) for inbox in list(self._inboxes.values()))

    def request(self) -> OpenImport:
        self._skip_known()
        horizons = {origin: inbox.horizon for origin, inbox in self._inboxes.items()}
        return replace(self._request, horizons={self._request.relation: horizons}, members=self._members)

    def poll(self, now: float) -> None:
        if self._is_open and self._curiosity.has_gap and now >= self.deadline:
            self._skip_known()
            if not self.gap_count and not self._lacks_members:
                self._curiosity.advanced(now)  # another link has brought it
        super().poll(now)
        if self._is_open and (ranges := self._sink.questions(now)):
            self.outgoing.append(Curious(self.import_id, tuple(ranges), is_passed_on=True, members=self._members))
        if self._is_open and now >= self._compare_at:
            self._ask_for_standing(now)

    def _ask_for_standing(self, now: float) -> None:
        """Where all origins stand still, the import is curious anyway."""
        self._skip_known()
        standing = [
            (origin, inbox.horizon, END)
            for origin, inbox in self._inboxes.items()
            if origin not in self._advanced and inbox.horizon < END
        ]
        if standing and self._advanced:
            ranges = tuple(standing[: limits.link_ranges_max])
            self.outgoing.append(Curious(self.import_id, ranges, members=self._members))
        self._advanced.clear()
        self._compare_at = now + STANDING_WAIT_S

    def receive(self, message: EventsMessage, body: bytes, now: float) -> None:
        if message.members > self._members:
            # The membership was lost or overtaken. It is asked for, and then this range again.
            self._lacks_members = True
            self._curiosity.noticed_gap(now)
            return
        sizes = [sent.bytes for sent in message.ranges]
        if sum(sizes) != len(body):
            raise error("E120", "the neighbour sent events whose sizes are wrong")
        has_advanced = False
        for sent, events in zip(message.ranges, split_body(body, sizes), strict=True):
            has_advanced |= self._receive_range(sent, events)
        if has_advanced:
            self._curiosity.advanced(now)
        if any(inbox.waiting for inbox in self._inboxes.values()):
            self._curiosity.noticed_gap(now)

    def _receive_range(self, sent: SentRange, body: bytes) -> bool:
        """Returns whether the horizon of the origin has advanced."""
        inbox, origin = self._inbox(sent.origin), sent.origin
        self.sent_horizons[origin] = max(sent.hi, self.sent_horizons.get(origin, sent.hi))
        if sent.hi <= max(sent.lo, inbox.horizon):
            self.figures.redundant += 1
            self._sink.receive_answer(origin, sent.lo, sent.hi, body)
            return False
        if sent.lo > inbox.horizon:
            self._store(inbox, sent, body)
            return False
        self._hand_on(inbox, origin, sent.lo, sent.hi, body)
        self._sink.receive_answer(origin, sent.lo, sent.hi, body)
        self._hand_on_waiting(inbox, origin)
        return True

    def receive_members(self, message: MembersMessage, body: bytes, now: float) -> None:
        if message.version > self._members:
            self._sink.append_members(message.version, body)
            self._members, self._lacks_members = message.version, False
            self._curiosity.advanced(now)

    def receive_gone(self, message: RangeGone, now: float) -> None:
        self._sink.receive_gone(message.origin, message.lo, message.hi)

    def _store(self, inbox: _OriginInbox, sent: SentRange, body: bytes) -> None:
        """What does not fit is asked for again when the gap has closed."""
        stored_hi, stored_body = inbox.waiting.get(sent.lo, (sent.lo, b""))
        is_within_limit = inbox.waiting_bytes + len(body) <= limits.inbox_waiting_bytes_max
        if sent.hi > stored_hi and is_within_limit and len(inbox.waiting) < limits.inbox_pieces_max:
            inbox.waiting[sent.lo] = sent.hi, body
            inbox.waiting_bytes += len(body) - len(stored_body)

    def _hand_on_waiting(self, inbox: _OriginInbox, origin: str) -> None:
        """Hands on what now continues the horizon."""
        while (lo := min(inbox.waiting, default=None)) is not None and lo <= inbox.horizon:
            hi, body = inbox.waiting.pop(lo)
            inbox.waiting_bytes -= len(body)
            if hi > inbox.horizon:
                self._hand_on(inbox, origin, lo, hi, body)

    def _hand_on(self, inbox: _OriginInbox, origin: str, lo: int, hi: int, body: bytes) -> None:
        self._sink.append(origin, lo, hi, body, self._members)
        inbox.horizon = hi
        self._advanced.add(origin)
        self.figures.accepted_bytes += len(body)

    def _inbox(self, origin: str) -> _OriginInbox:
        if origin not in self._inboxes:
            if len(self._inboxes) >= limits.link_streams_max:
                raise error("E120", "the neighbour sent too many origins of one stream")
            self._inboxes[origin] = _OriginInbox(self._sink.start())
        return self._inboxes[origin]

    def _skip_known(self) -> None:
        """What has come over another link is not asked for."""
        for origin, horizon in self._sink.horizons().items():
            inbox = self._inbox(origin)
            if inbox.horizon < horizon:
                inbox.horizon = horizon
                self._hand_on_waiting(inbox, origin)

    def _question(self) -> Curious:
        """The first gap of each origin; if there are none, everything after the horizons."""
        self._skip_known()
        gaps = [(o, inbox.horizon, min(inbox.waiting)) for o, inbox in self._inboxes.items() if inbox.waiting]
        if gaps:
            return Curious(self.import_id, tuple(gaps[: limits.link_ranges_max]), members=self._members)
        rest = [(origin, inbox.horizon, END) for origin, inbox in self._inboxes.items()]
        is_whole = len(rest) <= limits.link_ranges_max
        ranges = tuple(rest[: limits.link_ranges_max])
        return Curious(self.import_id, ranges, includes_other_origins=is_whole, members=self._members)


class MembersImport(Import):
    """The membership of a stream that this broker publishes to, from the stream's home."""

    def __init__(self, import_id: int, request: OpenImport, sink: MembersSink, random: Random, now: float) -> None:
        super().__init__(import_id, request, random, now)
        self._sink, self._members = sink, sink.members()
        self._reported_end: int | None = None

    @property
    def gap_count(self) -> int:
        return 0

    def request(self) -> OpenImport:
        return replace(self._request, members=self._members)

    def poll(self, now: float) -> None:
        super().poll(now)
        end = self._sink.end()
        if self._is_open and end is not None and end != self._reported_end:
            self.outgoing.append(self._question())
            self._reported_end = end

    def receive_members(self, message: MembersMessage, body: bytes, now: float) -> None:
        if message.version > self._members:
            self._sink.append_members(message.version, body)
            self._members = message.version
        self._curiosity.advanced(now)

    def _question(self) -> Curious:
        return Curious(self.import_id, members=self._members, end=self._sink.end())


# ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _PartialFrame:
    """Rows that have arrived, but are not complete up to horizons yet."""

    bodies: list[bytes] = field(default_factory=list)
    size: int = 0
    reset: bool = False


class ViewImport(Import):
    """`_change` is the last change of the epoch that has arrived without a gap before it; None before the epoch's first
    message. Messages that were made later have greater numbers: an older one never replaces newer rows."""

    def __init__(self, import_id: int, request: OpenImport, sink: ViewSink, random: Random, now: float) -> None:
        super().__init__(import_id, request, random, now)
        self._sink = sink
        self._horizons: StreamHorizons = sink.horizons()
        self._begin(0, None)

    def _begin(self, epoch: int, change: int | None) -> None:
        self._epoch, self._change = epoch, change
        self._last_number = 0
        self._partial = _PartialFrame()
        self._waiting: list[tuple[RowsMessage, bytes]] = []

    @property
    def gap_count(self) -> int:
        return int(bool(self._waiting))

    def request(self) -> OpenImport:
        return replace(self._request, horizons=self._horizons)

    def opened(self, message: ImportOpened, now: float) -> None:
        if not self._is_open:
            self._begin(0, message.change if message.change >= 0 else None)
            self._last_number = message.n
        super().opened(message, now)

    def receive(self, message: RowsMessage, body: bytes, now: float) -> None:
        if not self._is_open or message.epoch < self._epoch or message.n <= self._last_number:
            self.figures.redundant += 1
        elif self._can_accept(message):
            self._accept(message, body)
            self._accept_waiting()
            self._curiosity.advanced(now)
            if self._waiting:
                self._curiosity.noticed_gap(now)
        elif message.epoch > self._epoch or self._change is None or message.first > self._change:
            # What does not fit is asked for again when the gap has closed.
            if sum(len(b) for _, b in self._waiting) + len(body) <= limits.inbox_waiting_bytes_max:
                self._waiting.append((message, body))
            self._curiosity.noticed_gap(now)
        else:
            self.figures.redundant += 1

    def _can_accept(self, message: RowsMessage) -> bool:
        if message.first < 0:
            return message.epoch > self._epoch
        if message.epoch != self._epoch or self._change is None or message.first > self._change:
            return False
        return message.last > self._change or (message.last == self._change and self._is_newer(message.horizons))

    def _is_newer(self, horizons: StreamHorizons | None) -> bool:
        return horizons is not None and horizons != self._horizons

    def _accept(self, message: RowsMessage, body: bytes) -> None:
        if message.first < 0:
            self._begin(message.epoch, None)
            self._partial.reset = True
        self._change, self._last_number = message.last, message.n
        if body:
            self._partial.bodies.append(body)
            self._partial.size += len(body)
        if message.horizons is not None:
            start = None if self._partial.reset else self._horizons
            self._sink.append(start, self._partial.bodies, message.horizons)
            self.figures.accepted_bytes += self._partial.size
            self._horizons = message.horizons
            self._partial = _PartialFrame()

    def _accept_waiting(self) -> None:
        waiting, self._waiting = sorted(self._waiting, key=lambda entry: entry[0].n), []
        for message, body in waiting:
            if message.n > self._last_number and self._can_accept(message):
                self._accept(message, body)
            elif (
                message.n > self._last_number and message.epoch == self._epoch and message.first > self._change_or_start
            ):
                self._waiting.append((message, body))

    @property
    def _change_or_start(self) -> int:
        return -1 if self._change is None else self._change

    def _question(self) -> Curious:
        return Curious(self.import_id, epoch=self._epoch, after=self._change_or_start)
