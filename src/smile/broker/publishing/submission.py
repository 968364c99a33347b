"""Submits publications for a service that runs beside the broker, and waits until they are in the log.

What the broker does not take now is tried again: nothing is lost.
"""

from collections.abc import Callable
from concurrent.futures import Future, TimeoutError as FutureTimeout
from threading import Event
from typing import Final, Protocol

from smile import limits
from smile.broker.publishing.publication import AtomicPublication, Publication, PublishResult
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError

RETRY_S: Final = 0.2
_TEMPORARY: Final = ("E084", "E092", "E114")
"""The log cannot be written, or too much waits already."""


class PublishingBroker(Protocol):
    @property
    def decoder(self) -> EventDecoder: ...

    def publish(self, publication: Publication | AtomicPublication, /) -> "Future[PublishResult]": ...


class StoppedPublishing(Exception):
    """The service is stopping. What was not published is published after the next start."""


class Submission:
    """`report_delay` is told why the broker does not take events now, and None when it does."""

    def __init__(
        self,
        broker: PublishingBroker,
        stopping: Event,
        report_delay: Callable[[SmileError | None], None] = lambda _: None,
    ) -> None:
        self._broker, self._stopping, self._report_delay = broker, stopping, report_delay

    def submit(self, publication: Publication | AtomicPublication) -> PublishResult:
        """Waits until the publication is in the log. Tries again while the broker has no room for it."""
        parts = publication.parts if isinstance(publication, AtomicPublication) else [publication]
        is_too_large = sum(len(part.rows) for part in parts) > limits.publication_events_max
        while True:
            try:
                result = self._wait_for(self._broker.publish(publication))
            except SmileError as problem:
                code = problem.diagnostics[0].code
                if code == "E098":
                    raise StoppedPublishing from None
                if code not in _TEMPORARY or is_too_large:
                    raise
                self._report_delay(problem)
                if self._stopping.wait(RETRY_S):
                    raise StoppedPublishing from None
            else:
                self._report_delay(None)
                return result

    def _wait_for(self, future: "Future[PublishResult]") -> PublishResult:
        while True:
            try:
                return future.result(RETRY_S)
            except FutureTimeout:
                if self._stopping.is_set():
                    raise StoppedPublishing from None
