"""Gives the changes of a view to one sink, in a thread of its own. A sink that is slow receives fewer, newer rows."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from smile.broker.broker import Broker
from smile.broker.retrying_worker import RetryingWorker
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import ViewFrame, ViewSubscription
from smile.connectors.sinks.change_sink import ChangeSink, ViewChanges
from smile.errors import Diagnostic, SmileError, error

FRAME_ROWS = 5_000
WAIT_S = 1.0

_log = logging.getLogger("smile.connectors")


class SinkWorker:
    """`pause_s` is the least time between two writes. `count_letters` returns the number of dead letters."""

    def __init__(
        self, name: str, view: str, sink: ChangeSink, broker: Broker, pause_s: float, count_letters: Callable[[], int]
    ) -> None:
        self.name, self._view, self._sink, self._broker = name, view, sink, broker
        self._pause_s, self._count_letters = pause_s, count_letters
        self.worker = RetryingWorker(f"sink {name}", self._work, self._describe, _log)
        self._writes = self._rows = 0
        self._is_beginning_anew = False
        self._current_at: float | None = None

    def _describe(self, problem: Exception) -> SmileError:
        _log.exception("a sink has failed", extra={"sink": self.name})
        return error("E206", f"the sink {self.name} has failed: {problem!r}")

    def _work(self, worker: RetryingWorker) -> None:
        subscription = None
        try:
            view = self._broker.view(self._view)
            resume = self._sink.open(view.source)
            condition = ViewCondition(only_final=self._sink.only_final)
            try:
                subscription = view.subscribe(condition, worker.wake, resume)
            except SmileError as problem:
                if problem.code != "E094":
                    raise
                subscription = view.subscribe(condition, worker.wake)
            while not worker.stopping.is_set():
                if self._is_beginning_anew:
                    self._is_beginning_anew = False
                    subscription.seek(None)
                self._write_next(worker, subscription)
        finally:
            if subscription is not None:
                subscription.close()
            self._sink.close()

    def _write_next(self, worker: RetryingWorker, subscription: ViewSubscription) -> None:
        """Writes everything up to the next progress mark, or waits for it."""
        changes = self._read_changes(worker, subscription)
        if changes is None:
            return
        started_at = time.monotonic()
        if changes.row_count or changes.is_reset:
            self._sink.write(changes)
            self._writes += 1
            self._rows += changes.row_count
        worker.report_success()
        self._current_at = started_at
        if changes.row_count:
            # A sink whose writes are slow rests as long as they take.
            worker.stopping.wait(max(self._pause_s, min(time.monotonic() - started_at, 10 * self._pause_s)))

    def _read_changes(self, worker: RetryingWorker, subscription: ViewSubscription) -> ViewChanges | None:
        """None if there is nothing new."""
        frames, is_reset = list[ViewFrame](), False
        while not worker.stopping.is_set():
            frame = subscription.next_frame(FRAME_ROWS)
            if frame is None:
                if subscription.ended is not None:
                    raise subscription.ended
                if not frames:
                    if subscription.last_change is not None:
                        self._current_at = time.monotonic()
                    worker.report_success()
                    worker.wait(WAIT_S)
                    return None
                worker.wait(WAIT_S)
                continue
            if frame.reset:
                frames, is_reset = [], True
            frames.append(frame)
            if frame.progress is not None:
                return ViewChanges(frames, is_reset, frame.resume)
        return None

    def begin_anew(self) -> None:
        """Gives the sink all rows again."""
        self._is_beginning_anew = True
        self.worker.wake()

    @property
    def dead_letters(self) -> int:
        return self._count_letters()

    def problems(self) -> Mapping[str, Diagnostic]:
        """What is wrong now; empty text stands for the sink as a whole."""
        problem = self.worker.problem
        return {} if problem is None else {"": problem}

    def status(self) -> Mapping[str, Any]:
        """`behind_s` is the time since the sink had everything that the view had."""
        current_at = self._current_at
        return {
            **self.worker.status(),
            "view": self._view,
            "writes": self._writes,
            "rows": self._rows,
            "dead_letters": self.dead_letters,
            "behind_s": None if current_at is None else round(time.monotonic() - current_at, 3),
            "wrote": self._sink.status(),
        }
