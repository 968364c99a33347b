"""Orders: what other threads ask of a keeper's own, which does it when it comes to it, one after the other."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeGuard, TypeVar

from smile.errors import SmileError

T = TypeVar("T")

_PERMANENT_CODES = {"E051", "E060", "E062", "E065", "E067", "E085", "E086", "E087", "E089", "E097"}
"""What does not go away by itself: state or a log that is damaged, newer, of something else, or cut;
no Java; events of which a view cannot be made."""


def is_permanent(problem: BaseException) -> TypeGuard[SmileError]:
    return isinstance(problem, SmileError) and bool(
        _PERMANENT_CODES & {diagnostic.code for diagnostic in problem.diagnostics}
    )


@dataclass
class CommandQueue:
    """`wake` tells the keeper's thread that there is one. Once it is closed, no more are taken."""

    wake: Callable[[], None]
    _pending: "deque[tuple[Callable[[], Any], Future[Any]]]" = field(default_factory=deque)
    _refusal: SmileError | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_closed(self) -> bool:
        return self._refusal is not None

    @property
    def has_work(self) -> bool:
        """Whether there is something to do."""
        return bool(self._pending) or self.is_closed

    def call(self, command: Callable[[], T]) -> T:
        """Returns when it is done, with what came of it."""
        future: Future[T] = Future()
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._pending.append((command, future))
        self.wake()
        return future.result()

    def run_pending(self) -> None:
        """In the keeper's thread. What goes wrong is for whoever gave the order."""
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
        """What was asked for before it was closed, and was not done; and those who wait for what was begun."""
        while self._pending:
            self._pending.popleft()[1].set_exception(self._refusal)
        for future in waiting.values():
            future.set_exception(problem)
        waiting.clear()
