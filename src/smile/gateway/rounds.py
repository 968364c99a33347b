"""From the broker's threads to the gateway's loop: what many of them have to say comes over in one go.

Subscriptions that were woken are served in rounds. After a round the loop has as much time for publishers as the round
has worked; what changes meanwhile is told once.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from smile import limits
from smile.broker.publication import Published

logger = logging.getLogger("smile.gateway")


class Receiver(Protocol):
    woken: bool

    @property
    def place(self) -> tuple[int, int]:
        """Equal for those who are told the same: they are served one after the other, and it is made once."""

    def deliver(self) -> bool:
        """Tells one message's worth. Whether there may be more; if not, it will be woken again."""


class Rounds:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken: deque[Receiver] = deque()
        self._turn: list[Receiver] = []
        """Who is served before all that were woken since."""
        self._is_due = False
        self._rest_until = 0.0

    def wake(self, receiver: Receiver) -> None:
        """From any thread. Whoever finds it woken already comes before the round that serves it."""
        if receiver.woken:
            return
        receiver.woken = True
        self._woken.append(receiver)
        if not self._is_due:
            self._is_due = True
            call_in(self._loop, self._due)

    def _due(self) -> None:
        rest = self._rest_until - time.perf_counter()
        if rest > 0:
            self._loop.call_later(rest, self._round)
        else:
            self._round()

    def _round(self) -> None:
        self._is_due = False
        if not self._turn:
            woken = [self._woken.popleft() for _ in range(len(self._woken))]
            self._turn = sorted(woken, key=lambda receiver: receiver.place, reverse=True)
        end = time.perf_counter() + limits.round_s_max
        worked = time.thread_time()
        try:
            while self._turn:
                receiver = self._turn.pop()
                receiver.woken = False
                if receiver.deliver():
                    self.wake(receiver)
                if time.perf_counter() > end:
                    break
        finally:
            self._rest_until = time.perf_counter() + time.thread_time() - worked
            if (self._turn or self._woken) and not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._due)


class Returns:
    """Publications under way: what becomes of each is told on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[Callable[[Future[Published]], None], Future[Published]]] = deque()
        self._is_due = False
        self.pending = 0

    def when_done(self, future: Future[Published], then: Callable[[Future[Published]], None]) -> None:
        self.pending += 1
        future.add_done_callback(lambda done: self._come(then, done))

    async def wait(self, future: Future[Published]) -> Published:
        """Whoever waits may go away; the publication goes on."""
        here: asyncio.Future[None] = self._loop.create_future()
        self.when_done(future, lambda _: None if here.done() else here.set_result(None))
        await here
        return future.result()

    def _come(self, then: Callable[[Future[Published]], None], done: Future[Published]) -> None:
        self._done.append((then, done))
        if not self._is_due:
            self._is_due = True
            call_in(self._loop, self._tell)

    def _tell(self) -> None:
        self._is_due = False
        while self._done:
            then, done = self._done.popleft()
            self.pending -= 1
            try:
                then(done)
            except Exception:
                # The others are told all the same.
                logger.exception("what became of a publication could not be told")


def call_in(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """After the loop has ended there is nobody to be told."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(what)
        except RuntimeError:
            if not loop.is_closed():
                raise
