"""Commands from other threads to a maintainer's thread, which runs them in order, and waits here for news."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, TypeVar

from smile.errors import SmileError

T = TypeVar("T")


@dataclass
class CommandQueue:
    """A closed queue accepts no more commands: `refusal` is the reason."""

    refusal: SmileError | None = None
    _pending: "deque[tuple[Callable[[], Any], Future[Any]]]" = field(default_factory=deque)
    _is_notified: bool = False
    _changed: Condition = field(default_factory=Condition)

    @property
    def is_closed(self) -> bool:
        return self.refusal is not None

    # ── other threads ───────────────────────────────────────────────────────────────────────────────────────────────

    def call(self, command: Callable[[], T]) -> T:
        """Waits until the maintainer's thread has run the command. Returns its result, or raises its error."""
        future: Future[T] = Future()
        with self._changed:
            if self.refusal is not None:
                raise self.refusal
            self._pending.append((command, future))
            self._changed.notify_all()
        return future.result()

    def notify(self) -> None:
        """Ends the current `wait`, or the next one."""
        with self._changed:
            self._is_notified = True
            self._changed.notify_all()

    def close(self, refusal: SmileError) -> None:
        with self._changed:
            self.refusal = self.refusal or refusal
            self._changed.notify_all()

    # ── the maintainer's thread ─────────────────────────────────────────────────────────────────────────────────────

    def run_pending(self) -> None:
        """An error goes to the caller of the command."""
        while self._pending:
            command, future = self._pending.popleft()
            try:
                future.set_result(command())
            except Exception as problem:  # noqa: BLE001
                future.set_exception(problem)

    def refuse_pending(self) -> None:
        """Fails the commands that were not run before the queue was closed."""
        while self._pending:
            self._pending.popleft()[1].set_exception(self.refusal)

    def wait(self, seconds: float) -> None:
        """Waits for a notification, a command or the end, at most for this time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_notified or self._pending or self.is_closed, seconds)
            self._is_notified = False

    def pause(self, seconds: float) -> None:
        """Waits for this time, or until the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed, seconds)
