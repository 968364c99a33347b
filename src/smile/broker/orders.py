"""Orders: what other threads ask of a keeper's own, which does it when it comes to it, one after the other."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeGuard, TypeVar

from smile.errors import SmileError

T = TypeVar("T")

_LASTING = {"E051", "E060", "E062", "E065", "E067", "E085", "E086", "E087", "E089", "E097"}
"""What does not go away by itself: state or a log that is damaged, newer, of something else, or cut;
no Java; events of which a view cannot be made."""


def is_lasting(problem: BaseException) -> TypeGuard[SmileError]:
    return isinstance(problem, SmileError) and bool(_LASTING & {found.code for found in problem.diagnostics})


@dataclass
class Orders:
    """`wake` tells the keeper's thread that there is one. Once it is closed, no more are taken."""

    wake: Callable[[], None]
    _given: "deque[tuple[Callable[[], Any], Future[Any]]]" = field(default_factory=deque)
    _refusal: SmileError | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def closed(self) -> bool:
        return self._refusal is not None

    @property
    def any(self) -> bool:
        """Whether there is something to do."""
        return bool(self._given) or self.closed

    def give(self, what: Callable[[], T]) -> T:
        """Returns when it is done, with what came of it."""
        future: Future[T] = Future()
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._given.append((what, future))
        self.wake()
        return future.result()

    def obey(self) -> None:
        """In the keeper's thread. What goes wrong is for whoever gave the order."""
        while self._given:
            what, future = self._given.popleft()
            try:
                future.set_result(what())
            except Exception as problem:  # noqa: BLE001
                future.set_exception(problem)

    def close(self, refusal: SmileError) -> None:
        with self._lock:
            self._refusal = self._refusal or refusal

    def refuse(self, problem: SmileError, waiting: "dict[str, Future[None]]") -> None:
        """What was asked for before it was closed, and was not done; and those who wait for what was begun."""
        while self._given:
            self._given.popleft()[1].set_exception(self._refusal)
        for future in waiting.values():
            future.set_exception(problem)
        waiting.clear()
