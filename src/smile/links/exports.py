"""The sending end of an import: sends what is new, and answers curiosity.

An export sends nothing while the window of its link is closed. Whatever it has not sent costs it no memory: a stream is
read from the log, and a view's cursor skips states that were replaced meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from smile import limits
from smile.errors import SmileError
from smile.links.messages import (
    Curious,
    EventsMessage,
    LinkMessage,
    MembersMessage,
    RangeGone,
    RowsMessage,
    SentRange,
    StreamHorizons,
)

EVENTS_BYTES: Final = 2**20
"""The size of the events of one message, unless a single range has more."""

SILENCE_SHARE: Final = 0.25
"""Silence waits for that of other origins for this share of the time in which its origin has advanced."""
SILENCE_WAIT_S_MAX: Final = 0.25

DataMessage = EventsMessage | RowsMessage | MembersMessage
SendData = Callable[[Callable[[int], DataMessage], bytes], None]
"""Sends a data message: the header is made with the message's number."""


@dataclass(frozen=True)
class RowsFrame:
    """The rows of a view that have changed after change `first` up to change `last`, encoded. A `first` of -1 means all
    rows: earlier ones are to be discarded."""

    first: int
    last: int
    horizons: StreamHorizons | None
    body: bytes
    rows: int = 0


@dataclass(frozen=True)
class EventsRange:
    """All events of an origin up to tick `hi`, encoded; empty bytes mean silence."""

    hi: int
    body: bytes = b""
    rows: int = 0


class MembersSource(Protocol):
    """Who the origins of a stream are."""

    def members(self) -> tuple[int, bytes]:
        """The version and the encoded membership; version 0 if the stream has one origin, or nothing is known. It is
        never older than the horizons that were returned before."""

    def close(self) -> None: ...


class StreamSource(MembersSource, Protocol):
    """A stream that can be exported."""

    def horizons(self) -> Mapping[str, int]:
        """The horizon of each origin."""

    def received(self, origin: str) -> int:
        """Up to which tick the neighbour has an origin because it has itself sent it over this link; the least horizon
        if it has not."""

    def read(self, origin: str, lo: int, hi: int) -> EventsRange | None:
        """The events of an origin above `lo`, up to a tick that is at most `hi`; None if another broker was asked for
        them. Raises E097 if nobody has them any more."""


class ViewCursor(Protocol):
    """A cursor over the changes of a view."""

    def next_frame(self) -> RowsFrame | None:
        """The next frame, after which the cursor stands; None if there is nothing new."""

    def seek(self, change: int) -> None:
        """Continues after this change; -1 means with all rows."""

    def close(self) -> None: ...


class Export(ABC):
    """An import of a neighbour, seen from here."""

    def __init__(self, import_id: int) -> None:
        self.import_id = import_id

    @property
    def deadline(self) -> float:
        """When something that is held back is to be sent."""
        return inf

    @abstractmethod
    def send_next(self, send: SendData, now: float, with_silence: bool = False) -> bool:
        """Sends one message, if there is anything to send, or with silence that would otherwise be held back. Returns
        whether there was."""

    @abstractmethod
    def answer(self, question: Curious) -> None:
        """Notes what the neighbour is curious about. It is sent with the next messages."""

    def take_replies(self) -> list[LinkMessage]:
        """Messages without data that are to be sent."""
        return []

    @abstractmethod
    def close(self) -> None: ...


class _MembersSender:
    """Sends a membership when it has changed."""

    def __init__(self, import_id: int, source: MembersSource, known: int) -> None:
        self._import_id, self._source, self._sent = import_id, source, known

    def answer(self, question: Curious) -> None:
        self._sent = min(self._sent, question.members)

    def send_next(self, send: SendData) -> bool:
        version, body = self._source.members()
        if version <= self._sent:
            return False
        send(lambda n: MembersMessage(n, self._import_id, version), body)
        self._sent = version
        return True


class MembersExport(Export):
    """Sends the membership of a stream to a broker that publishes to it. `on_end` is called with a tick if the broker
    has left."""

    def __init__(self, import_id: int, source: MembersSource, known: int, on_end: Callable[[int], None]) -> None:
        super().__init__(import_id)
        self._source, self._on_end = source, on_end
        self._members = _MembersSender(import_id, source, known)

    def answer(self, question: Curious) -> None:
        self._members.answer(question)
        if question.end is not None:
            self._on_end(question.end)

    def send_next(self, send: SendData, now: float, with_silence: bool = False) -> bool:
        return self._members.send_next(send)

    def close(self) -> None:
        self._source.close()


class _RangeBatch:
    """The ranges of one message."""

    def __init__(self) -> None:
        self.ranges: list[SentRange] = []
        self.bodies: list[bytes] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= EVENTS_BYTES or len(self.ranges) >= limits.link_ranges_max

    def add(self, origin: str, lo: int, events: EventsRange) -> None:
        self.ranges.append(SentRange(origin, lo, events.hi, events.rows, len(events.body)))
        self._bytes += len(events.body)
        if events.body:
            self.bodies.append(events.body)


@dataclass
class _HeldSilence:
    """That an origin is silent up to `hi`, which is to be sent at the time `due_at` at the latest."""

    hi: int
    due_at: float


class StreamExport(Export):
    """`known`: the ticks up to which the neighbour has each origin already. `start` is the horizon of all others.
    `known_members` is the version of the membership that it has.

    A message has ranges of many origins. Silence alone is held back for a share of the time in which the origin has
    advanced, so that that of many origins is sent together; with events it is sent at once."""

    def __init__(
        self, import_id: int, source: StreamSource, known: Mapping[str, int], start: int, known_members: int = 0
    ) -> None:
        super().__init__(import_id)
        self._source = source
        self._sent = dict(known)
        self._start = start
        self._members = _MembersSender(import_id, source, known_members)
        self._questions: dict[str, tuple[int, int]] = {}
        """For each origin, the range that is to be sent again."""
        self._passed_on: dict[tuple[str, int], int] = {}
        """Questions of brokers behind the neighbour: by origin and begin, the end."""
        self._held: dict[str, _HeldSilence] = {}
        self._advanced_at: dict[str, float] = {}
        """When an origin was last seen to advance."""
        self.gone: list[RangeGone] = []
        """Answers that are to be sent."""

    def answer(self, question: Curious) -> None:
        """What was not sent yet is sent now. A newer question about an origin replaces an older one."""
        if question.is_passed_on:
            for origin, lo, hi in question.ranges[: max(0, limits.link_ranges_max - len(self._passed_on))]:
                self._passed_on[origin, lo] = hi
            return
        self._members.answer(question)
        named_origins = {origin for origin, _, _ in question.ranges}
        others = [(o, self._start, sent) for o, sent in self._sent.items() if o not in named_origins]
        for origin, lo, hi in (*question.ranges, *(others if question.includes_other_origins else ())):
            hi = min(hi, self._sent.get(origin, self._start))
            if lo < hi:
                self._questions[origin] = (lo, hi)
        for held in self._held.values():
            held.due_at = -inf

    @property
    def deadline(self) -> float:
        return min((held.due_at for held in self._held.values()), default=inf)

    def send_next(self, send: SendData, now: float, with_silence: bool = False) -> bool:
        horizons = self._source.horizons()
        if self._members.send_next(send):
            return True
        batch = _RangeBatch()
        try:
            is_due = self._collect_answers(batch, horizons) or self._collect_new(batch, horizons, now) or with_silence
            if is_due or self.deadline <= now:
                self._collect_held(batch)
        except SmileError:
            if not batch.ranges:
                raise  # otherwise with the next message
        if not batch.ranges:
            return False
        version, _ = self._source.members()
        send(lambda n: EventsMessage(n, self.import_id, tuple(batch.ranges), version), b"".join(batch.bodies))
        return True

    def _collect_answers(self, batch: _RangeBatch, horizons: Mapping[str, int]) -> bool:
        """Answers to questions of the neighbour, and of brokers behind it. That nobody has an answer for these does not
        end this export: its neighbour may need nothing of it."""
        for (origin, lo), hi in list(self._passed_on.items()):
            if batch.is_full:
                break
            hi = min(hi, horizons.get(origin, self._start))
            try:
                end = self._collect_range(batch, origin, lo, hi) if lo < hi else lo
            except SmileError as problem:
                if problem.diagnostics[0].code != "E097":
                    raise
                self.gone.append(RangeGone(self.import_id, origin, lo, hi))
                end = hi
            if end is not None:
                del self._passed_on[origin, lo]
        for origin, (lo, hi) in list(self._questions.items()):
            if batch.is_full:
                break
            end = self._collect_range(batch, origin, lo, hi)
            if end is not None and end < hi:
                self._questions[origin] = (end, hi)
            elif end is not None:
                del self._questions[origin]
        return bool(batch.ranges)

    def _collect_range(self, batch: _RangeBatch, origin: str, lo: int, hi: int) -> int | None:
        """Returns the end of what was added; None if it is not there yet."""
        events = self._source.read(origin, lo, hi)
        if events is None:
            return None
        batch.add(origin, lo, events)
        return events.hi

    def _collect_new(self, batch: _RangeBatch, horizons: Mapping[str, int], now: float) -> bool:
        """Adds events, with the silence before them, and holds other silence back."""
        for origin, horizon in horizons.items():
            if batch.is_full:
                break
            # What has come over this link is not sent back over it.
            sent = self._sent[origin] = max(self._sent.get(origin, self._start), self._source.received(origin))
            held = self._held.get(origin)
            known = sent if held is None else max(sent, held.hi)
            if known >= horizon or (events := self._source.read(origin, known, horizon)) is None:
                continue
            elapsed_s = now - self._advanced_at.get(origin, now)
            self._advanced_at[origin] = now
            if events.body or events.hi < horizon:
                self._held.pop(origin, None)
                batch.add(origin, sent, events)
                self._sent[origin] = events.hi
                if events.hi < horizon:
                    break  # reading more may take long
            elif held is None:
                wait_s = min(SILENCE_SHARE * elapsed_s, SILENCE_WAIT_S_MAX)
                self._held[origin] = _HeldSilence(events.hi, now + wait_s)
            else:
                held.hi = events.hi
        return bool(batch.ranges)

    def _collect_held(self, batch: _RangeBatch) -> None:
        for origin, held in list(self._held.items()):
            if batch.is_full:
                break
            del self._held[origin]
            if self._sent[origin] < held.hi:
                batch.add(origin, self._sent[origin], EventsRange(held.hi))
                self._sent[origin] = held.hi

    def take_replies(self) -> list[LinkMessage]:
        replies, self.gone = list[LinkMessage](self.gone), []
        return replies

    def close(self) -> None:
        self._source.close()


class ViewExport(Export):
    def __init__(self, import_id: int, cursor: ViewCursor) -> None:
        super().__init__(import_id)
        self._cursor = cursor
        self._epoch = 0

    def answer(self, question: Curious) -> None:
        """If the neighbour asks about an earlier epoch, it has not received the beginning of the present one."""
        if question.after is not None:
            self._cursor.seek(question.after if question.epoch == self._epoch else -1)

    def send_next(self, send: SendData, now: float, with_silence: bool = False) -> bool:
        frame = self._cursor.next_frame()
        if frame is None:
            return False
        if frame.first < 0:
            self._epoch += 1
        epoch = self._epoch
        send(
            lambda n: RowsMessage(n, self.import_id, epoch, frame.first, frame.last, frame.horizons, frame.rows),
            frame.body,
        )
        return True

    def close(self) -> None:
        self._cursor.close()
