"""The sending end of an import: sends what is new, and answers curiosity.

An export sends nothing while the window of its link is closed. Whatever it has not sent costs it no memory: a stream is
read from the log, and a view's cursor skips states that were replaced meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from smile.links.messages import Curious, EventsMessage, RowsMessage, StreamHorizons

SendData = Callable[[Callable[[int], EventsMessage | RowsMessage], bytes], None]
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


class StreamSource(Protocol):
    """A stream that can be exported."""

    def horizons(self) -> Mapping[str, int]:
        """The horizon of each origin."""

    def read(self, origin: str, lo: int, hi: int) -> EventsRange:
        """The events of an origin above `lo`, up to a tick that is at most `hi`. Raises E097 if they were removed."""

    def close(self) -> None: ...


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

    @abstractmethod
    def close(self) -> None: ...


class StreamExport(Export):
    """`known`: the ticks up to which the neighbour has each origin already. `start` is the horizon of all others."""

    def __init__(self, import_id: int, source: StreamSource, known: Mapping[str, int], start: int) -> None:
        super().__init__(import_id)
        self._source = source
        self._sent = dict(known)
        self._start = start
        self._questions: dict[str, tuple[int, int]] = {}
        """For each origin, the range that is to be sent again."""

    def answer(self, question: Curious) -> None:
        """What was not sent yet is sent anyway. A newer question about an origin replaces an older one."""
        named_origins = {origin for origin, _, _ in question.ranges}
        others = [(o, self._start, sent) for o, sent in self._sent.items() if o not in named_origins]
        for origin, lo, hi in (*question.ranges, *(others if question.includes_other_origins else ())):
            hi = min(hi, self._sent.get(origin, self._start))
            if lo < hi:
                self._questions[origin] = (lo, hi)

    def send_next(self, send: SendData) -> bool:
        for origin, (lo, hi) in list(self._questions.items()):
            end = self._send_range(send, origin, lo, hi)
            if end < hi:
                self._questions[origin] = (end, hi)
            else:
                del self._questions[origin]
            return True
        for origin, horizon in self._source.horizons().items():
            sent = self._sent.setdefault(origin, self._start)
            if sent < horizon:
                self._sent[origin] = self._send_range(send, origin, sent, horizon)
                return True
        return False

    def _send_range(self, send: SendData, origin: str, lo: int, hi: int) -> int:
        events = self._source.read(origin, lo, hi)
        send(lambda n: EventsMessage(n, self.import_id, origin, lo, events.hi, events.rows), events.body)
        return events.hi

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
