"""The interface of sources: a source gives events in parts. A part is what has an order and positions of its own: a
file, the session of a subscriber, a partition of a topic. Within a part the events are numbered.

The log stores the number of the last event of each part, and the position after it, in the commit that has the events.
A source that is opened again continues there, so each event is logged once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from smile.broker.publishing.publication import EventRows
from smile.decoding.event_decoder import EventDecoder
from smile.errors import Diagnostic


class SourceEvents(Protocol):
    """Events as the source has them."""

    def __len__(self) -> int: ...

    def decode(self, decoder: EventDecoder, stream: str, begin: int, end: int) -> EventRows:
        """The events from `begin` to `end`, one row each. Raises SmileError if one of them does not fit the stream."""

    def content(self, index: int) -> bytes:
        """An event as a text that somebody can read and mend. It is the same event: if it is decoded again, it is
        refused again, or the stream takes it now. It may not be UTF-8."""

    @property
    def text_format(self) -> str:
        """The format of the text: json or csv."""

    def describe(self, index: int) -> str:
        """Where an event is in the source."""

    def refuse_all(self, decoder: EventDecoder, stream: str) -> "RefusedEvent | None":
        """One refusal for all events if none can fit the stream: their columns are not those of the stream."""


@dataclass(frozen=True)
class PartPosition:
    """`number` is that of the last event in the log, and `note` what the source has written beside it."""

    number: int
    note: str


FindPosition = Callable[[str], PartPosition | None]
"""The position of a part in the log; None if the log has nothing of it."""


@dataclass(frozen=True)
class SourceBatch:
    """Consecutive events of a part; `first` is the number of the first one. `note` returns what is to be logged with
    the events before an index."""

    part: str
    first: int
    events: SourceEvents
    note: Callable[[int], str]


class EventSource(Protocol):
    """Used by one thread. After `close` it may be opened again."""

    def open(self, find_position: FindPosition) -> None:
        """Connects. Raises SmileError if that does not work now."""

    def next_batch(self) -> SourceBatch | None:
        """The next events; None if there are none now. It returns soon."""

    def accept(self, batch: SourceBatch) -> None:
        """All events of the batch are in the log, or were refused and stored. The source may forget them."""

    def close(self) -> None: ...

    def problems(self) -> Mapping[str, Diagnostic]:
        """What cannot be read now, while the rest goes on. Thread-safe."""

    def status(self) -> Mapping[str, Any]:
        """Figures, such as how much waits. Thread-safe."""


@dataclass(frozen=True)
class RefusedEvent:
    """An event that the stream does not take, or several of them with the same problem."""

    subject: str
    content: bytes
    text_format: str
    problem: Diagnostic


RefuseEvent = Callable[[RefusedEvent], None]
"""Stores a refused event. Returns when it is on the disk."""
