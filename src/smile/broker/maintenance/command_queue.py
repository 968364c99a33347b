"""Commands from other threads to a maintainer's thread, which runs them one after the other."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeGuard, TypeVar

from smile.errors import SmileError

T = TypeVar("T")

_PERMANENT_CODES = {"E051", "E060", "E062", "E065", "E067", "E085", "E086", "E087", "E089", "E097"}
"""Errors that do not go away by themselves: state or a log that is damaged, newer, truncated or of another program; no
Java; events from which a view cannot be computed."""


def is_permanent(problem: BaseException) -> TypeGuard[SmileError]:
    return isinstance(problem, SmileError) and bool(
        _PERMANENT_CODES & {diagnostic.code for diagnostic in problem.diagnostics}
    )


@dataclass
class CommandQueue:
    """`wake` notifies the maintainer's thread of a command. A closed queue accepts no more commands."""

    wake: Callable[[], None]
    _pending: "deque[tuple[Callable[[], Any], Future[Any]]]" = field(default_factory=deque)
    _refusal: SmileError | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_closed(self) -> bool:
        return self._refusal is not None

    @property
    def has_work(self) -> bool:
        """Whether a command is pending, or the queue is closed."""
        return bool(self._pending) or self.is_closed

    def call(self, command: Callable[[], T]) -> T:
        """Waits until the maintainer's thread has run the command. Returns its result, or raises its error."""
        future: Future[T] = Future()
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._pending.append((command, future))
        self.wake()
        return future.result()

    def run_pending(self) -> None:
        """Called in the maintainer's thread. An error goes to the caller of the command."""
        while self._pending:
            command, future = self._pending.popleft()
            try:
                future.set_result(command())
            except Exception as problem:  # noqa: BLE001
                future.set_exception(problem)

    def close(self, refusal: SmileError) -> None:
        with self._lock:
            self._refusal = self._refusal or refusal

    def refuse_pending(self, problem: SmileError, waiting: "dict[str, Future[None]]") -> None:
        """Fails the commands that were not run, and the futures in `waiting`, whose work was begun but not finished."""
        while self._pending:
            self._pending.popleft()[1].set_exception(self._refusal)
        for future in waiting.values():
            future.set_exception(problem)
        waiting.clear()
