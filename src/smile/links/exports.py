"""The sending end of an import: sends what is new, and answers curiosity.

An export sends nothing while the window of its link is closed. Whatever it has not sent costs it no memory: a stream is
read from the log, and a view's cursor skips states that were replaced meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from smile import limits
from smile.errors import SmileError
from smile.links.messages import (
    Curious,
    EventsMessage,
    LinkMessage,
    MembersMessage,
    RangeGone,
    RowsMessage,
    StreamHorizons,
)

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

    @abstractmethod
    def send_next(self, send: SendData) -> bool:
        """Sends one message, if there is anything to send. Returns whether there was."""

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

    def send_next(self, send: SendData) -> bool:
        return self._members.send_next(send)

    def close(self) -> None:
        self._source.close()


class StreamExport(Export):
    """`known`: the ticks up to which the neighbour has each origin already. `start` is the horizon of all others.
    `known_members` is the version of the membership that it has."""

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
        self.gone: list[RangeGone] = []
        """Answers that are to be sent."""

    def answer(self, question: Curious) -> None:
        """What was not sent yet is sent anyway. A newer question about an origin replaces an older one."""
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

    def send_next(self, send: SendData) -> bool:
        horizons = self._source.horizons()
        if self._members.send_next(send) or self._send_passed_on(send, horizons):
            return True
        for origin, (lo, hi) in list(self._questions.items()):
            end = self._send_range(send, origin, lo, hi)
            if end is None:
                continue
            if end < hi:
                self._questions[origin] = (end, hi)
            else:
                del self._questions[origin]
            return True
        for origin, horizon in horizons.items():
            # What has come over this link is not sent back over it.
            sent = self._sent[origin] = max(self._sent.get(origin, self._start), self._source.received(origin))
            if sent < horizon and (end := self._send_range(send, origin, sent, horizon)) is not None:
                self._sent[origin] = end
                return True
        return False

    def _send_passed_on(self, send: SendData, horizons: Mapping[str, int]) -> bool:
        """Answers a question of another broker. That nobody has the answer does not end this export: its neighbour
        may need nothing of it."""
        for (origin, lo), hi in list(self._passed_on.items()):
            hi = min(hi, horizons.get(origin, self._start))
            try:
                end = self._send_range(send, origin, lo, hi) if lo < hi else lo
            except SmileError as problem:
                if problem.diagnostics[0].code != "E097":
                    raise
                self.gone.append(RangeGone(self.import_id, origin, lo, hi))
                end = hi
            if end is not None:
                del self._passed_on[origin, lo]
                return True
        return False

    def _send_range(self, send: SendData, origin: str, lo: int, hi: int) -> int | None:
        """Returns up to where it was sent; None if it is not there yet."""
        events = self._source.read(origin, lo, hi)
        if events is None:
            return None
        version, _ = self._source.members()
        send(lambda n: EventsMessage(n, self.import_id, origin, lo, events.hi, events.rows, version), events.body)
        return events.hi

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

    def send_next(self, send: SendData) -> bool:
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
