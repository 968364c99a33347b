"""Passes questions about a stream to other brokers: a neighbour needs a range that was removed from this broker's log,
and a broker that this one imports the stream from may still have it. The answer goes to those who have asked, and not
into the log.

Equal questions are asked once. Answers are stored for a short time, within a limit, so that all who have asked get
them.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from smile import limits
from smile.errors import error
from smile.links.messages import OriginRange
from smile.log.storage.pieces import StreamPiece

RETRY_S: Final = 2.0
"""A question without an answer is asked again after this time."""
UNUSED_MAX: Final = 5
"""A question that is asked so often, while nobody waits for the answer any more, is dropped."""

RangeStart = tuple[str, int]
"""An origin, and the tick after which the range begins."""


@dataclass(eq=False)
class _Question:
    hi: int
    asked_at: float | None = None
    unused: int = 0
    gone_on: set[object] = field(default_factory=set)
    """The links on which nobody has the range."""


class RangeRelay:
    """The questions about one imported stream. Thread-safe. `links` returns the links over which it is imported now.
    `wake` lets all links look for questions and answers."""

    def __init__(self, stream: str, links: Callable[[], Collection[object]], wake: Callable[[], None]) -> None:
        self._stream, self._links, self._wake = stream, links, wake
        self._questions: dict[RangeStart, _Question] = {}
        self._answers: OrderedDict[RangeStart, StreamPiece] = OrderedDict()
        self._answer_bytes = 0
        self._lock = Lock()

    def read(self, origin: str, lo: int, hi: int) -> StreamPiece | None:
        """The beginning of a range; None if it has been asked for. Raises E097 if nobody has it."""
        with self._lock:
            piece = self._answers.get((origin, lo))
            if piece is not None:
                self._answers.move_to_end((origin, lo))
                return piece
            question = self._questions.get((origin, lo))
            if question is not None:
                question.unused, question.hi = 0, max(question.hi, hi)
                links = self._links()
                if links and question.gone_on.issuperset(links):
                    del self._questions[origin, lo]
                    raise error("E097", f"no broker has events of {self._stream} above tick {lo} any more")
                return None
            if len(self._questions) >= limits.link_ranges_max:
                return None
            self._questions[origin, lo] = _Question(hi)
        self._wake()
        return None

    def questions(self, link: object, now: float) -> list[OriginRange]:
        """What is to be asked on a link now."""
        due = list[OriginRange]()
        if not self._questions:
            return due
        with self._lock:
            for (origin, lo), question in list(self._questions.items()):
                is_due = question.asked_at is None or now - question.asked_at >= RETRY_S
                if is_due and link not in question.gone_on:
                    question.asked_at = now
                    question.unused += 1
                    if question.unused > UNUSED_MAX:
                        del self._questions[origin, lo]
                    else:
                        due.append((origin, lo, question.hi))
        return due

    def is_waiting_for(self, origin: str, lo: int) -> bool:
        return (origin, lo) in self._questions

    def receive(self, piece: StreamPiece) -> None:
        start = piece.origin, piece.lo
        with self._lock:
            if self._questions.pop(start, None) is None:
                return
            self._answers[start] = piece
            self._answer_bytes += piece.bytes
            while self._answer_bytes > limits.relayed_bytes_max and len(self._answers) > 1:
                _, oldest = self._answers.popitem(last=False)
                self._answer_bytes -= oldest.bytes
        self._wake()

    def receive_gone(self, link: object, origin: str, lo: int) -> None:
        with self._lock:
            question = self._questions.get((origin, lo))
            if question is None:
                return
            question.gone_on.add(link)
            question.asked_at = None
        self._wake()
