"""Takes the events of one source into the log, in a thread of its own."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from smile.broker.broker import Broker
from smile.broker.publishing.submission import StoppedPublishing, Submission
from smile.broker.retrying_worker import RetryingWorker
from smile.connectors.sources.event_source import EventSource, RefuseEvent
from smile.connectors.sources.source_publisher import SourcePublisher
from smile.errors import Diagnostic, SmileError, error

POLL_S: Final = 1.0

_log = logging.getLogger("smile.connectors")


class SourceWorker:
    """`count_letters` returns the number of dead letters."""

    def __init__(
        self,
        name: str,
        stream: str,
        source: EventSource,
        broker: Broker,
        refuse: RefuseEvent,
        count_letters: Callable[[], int],
    ) -> None:
        self.name, self.stream, self._source = name, stream, source
        self.worker = RetryingWorker(f"source {name}", self._work, self._describe, _log)
        self.delay: SmileError | None = None
        """Why the broker takes no events now."""
        self._broker, self._count_letters = broker, count_letters
        submission = Submission(broker, self.worker.stopping, self._set_delay)
        self._publisher = SourcePublisher(broker, broker.log, name, stream, submission, refuse)
        self._read_at: float | None = None

    def _set_delay(self, problem: SmileError | None) -> None:
        self.delay = problem

    def _describe(self, problem: Exception) -> SmileError:
        _log.exception("a source has failed", extra={"source": self.name})
        return error("E201", f"the source {self.name} has failed: {problem!r}")

    def _work(self, worker: RetryingWorker) -> None:
        try:
            self._broker.decoder.schema(self.stream)  # the program has the stream
            self._source.open(self._publisher.find_position)
            while not worker.stopping.is_set():
                batch = self._source.next_batch()
                if batch is not None:
                    self._publisher.publish(batch)
                    self._source.accept(batch)
                worker.report_success()
                if batch is None:
                    self._read_at = time.monotonic()
                    worker.wait(POLL_S)
        except StoppedPublishing:
            pass
        finally:
            self._source.close()

    @property
    def dead_letters(self) -> int:
        return self._count_letters()

    def problems(self) -> Mapping[str, Diagnostic]:
        """What is wrong now, by a name for it; empty for the source as a whole."""
        problems = dict(self._source.problems())
        worker_problem = self.worker.problem
        if worker_problem is not None:
            problems[""] = worker_problem
        elif self.delay is not None:
            problems[""] = self.delay.diagnostics[0]
        return problems

    def status(self) -> Mapping[str, Any]:
        """`behind_s` is the time since everything was read that the source had."""
        publisher, read_at = self._publisher, self._read_at
        return {
            **self.worker.status(),
            "stream": self.stream,
            "events": publisher.events,
            "repeated": publisher.repeated,
            "refused": publisher.refused,
            "dead_letters": self.dead_letters,
            "behind_s": None if read_at is None else round(time.monotonic() - read_at, 3),
            "reads": dict(self._source.status()),
        }
