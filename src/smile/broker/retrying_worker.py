"""A thread that works with something outside of the broker, and begins again after a failure, with back-off."""

import logging
import time
from collections.abc import Callable, Mapping
from random import Random
from threading import Event, Thread
from typing import Any

from smile.broker.backoff import Backoff
from smile.errors import Diagnostic, SmileError


class RetryingWorker:
    """`work` works until `stopping` is set, or raises an error. It calls `report_success` when something has worked.
    `wake` ends a wait. `describe` turns an error that is not a SmileError into one that says what it means. `log`
    receives what happens."""

    def __init__(
        self,
        name: str,
        work: Callable[["RetryingWorker"], None],
        describe: Callable[[Exception], SmileError],
        log: logging.Logger,
    ) -> None:
        self.name, self._work, self._describe, self._log = name, work, describe, log
        self.stopping, self.wakeup = Event(), Event()
        self.problem: Diagnostic | None = None
        """Why it does not work now."""
        self.is_working = False
        self._since, self._backoff = time.monotonic(), Backoff(Random())
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Call `join` afterwards."""
        self.stopping.set()
        self.wakeup.set()

    def join(self, timeout_s: float) -> bool:
        """Waits for its end. Returns whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wake(self) -> None:
        self.wakeup.set()

    def wait(self, timeout_s: float) -> None:
        """Waits until it is woken, or for this time."""
        self.wakeup.wait(timeout_s)
        self.wakeup.clear()

    def report_success(self) -> None:
        self.is_working = True
        if self.problem is not None:
            self._log.info("it works again", extra={"worker": self.name})
            self.problem, self._since = None, time.monotonic()
        self._backoff.reset()

    def status(self) -> Mapping[str, Any]:
        problem = self.problem
        return {
            "state": "working" if self.is_working and problem is None else "waiting",
            "for_s": round(self.state_s, 3),
            "failures": self._backoff.failures,
            "problem": None if problem is None else {"code": problem.code, "message": problem.message},
        }

    @property
    def state_s(self) -> float:
        """For how long it has worked, or waited."""
        return time.monotonic() - self._since

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._work(self)
            except SmileError as problem:
                self._fail(problem)
            except Exception as problem:  # noqa: BLE001  # any error: it is reported, and tried again
                self._fail(self._describe(problem))
            finally:
                self.is_working = False

    def _fail(self, problem: SmileError) -> None:
        if self.stopping.is_set():
            return
        diagnostic = problem.diagnostics[0]
        if self.problem is None:
            self._since = time.monotonic()
        if self.problem != diagnostic:
            fields = {"worker": self.name, "code": diagnostic.code, "what": diagnostic.message}
            self._log.warning("it does not work now", extra=fields)
        self.problem = diagnostic
        self.stopping.wait(self._backoff.next_delay_s())
