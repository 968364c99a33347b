"""Passes work from the broker's threads to the gateway's event loop, many items with one wakeup.

Scheduled subscriptions are served in rounds. The rows of a round are encoded together, before the first of them is
sent. After a round, the loop has as much time for other work, such as publications, as the round used. A row that
changes several times meanwhile is delivered once.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from smile import limits
from smile.broker.publishing.publication import PublishResult
from smile.broker.views.view import ViewSubscription

logger = logging.getLogger("smile.gateway")


class DeliveryReceiver(Protocol):
    is_scheduled: bool

    @property
    def cursor(self) -> ViewSubscription | None:
        """Its position in a view, if `deliver` sends rows of the view as JSON."""

    @property
    def delivery_key(self) -> tuple[int, int]:
        """Equal for receivers of the same frame: they are served in sequence, so that it is encoded once."""

    def deliver(self) -> bool:
        """Delivers one message. Returns whether there may be more; if not, the receiver will be scheduled again."""


class DeliveryScheduler:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        encode_ahead: Callable[[Sequence[ViewSubscription]], None] = lambda _: None,
    ) -> None:
        """`encode_ahead` is called with the cursors of a round."""
        self._loop, self._encode_ahead = loop, encode_ahead
        self._scheduled: deque[DeliveryReceiver] = deque()
        self._current_round: list[DeliveryReceiver] = []
        """The receivers to serve before all that were scheduled since."""
        self._is_round_pending = False
        self._rest_until = 0.0

    def schedule(self, receiver: DeliveryReceiver) -> None:
        """Thread-safe. If the receiver is scheduled already, the round that serves it is still to come."""
        if receiver.is_scheduled:
            return
        receiver.is_scheduled = True
        self._scheduled.append(receiver)
        if not self._is_round_pending:
            self._is_round_pending = True
            call_on_loop(self._loop, self._start_round)

    def _start_round(self) -> None:
        rest_s = self._rest_until - time.perf_counter()
        if rest_s > 0:
            self._loop.call_later(rest_s, self._run_round)
        else:
            self._run_round()

    def _run_round(self) -> None:
        self._is_round_pending = False
        deadline = time.perf_counter() + limits.delivery_round_s_max
        cpu_start_s = time.thread_time()
        try:
            if not self._current_round:
                scheduled = [self._scheduled.popleft() for _ in range(len(self._scheduled))]
                self._current_round = sorted(scheduled, key=lambda receiver: receiver.delivery_key, reverse=True)
                self._encode_ahead([cursor for receiver in scheduled if (cursor := receiver.cursor) is not None])
            while self._current_round:
                receiver = self._current_round.pop()
                receiver.is_scheduled = False
                if receiver.deliver():
                    self.schedule(receiver)
                if time.perf_counter() > deadline:
                    break
        finally:
            self._rest_until = time.perf_counter() + time.thread_time() - cpu_start_s
            if (self._current_round or self._scheduled) and not self._is_round_pending:
                self._is_round_pending = True
                self._loop.call_soon(self._start_round)


class PendingPublications:
    """Publications in progress, whose callbacks run on the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, observe_delay: Callable[[float], None] = lambda _: None
    ) -> None:
        """`observe_delay` is called with the seconds that each publication took."""
        self._loop, self._observe_delay = loop, observe_delay
        self._done: deque[tuple[Callable[[Future[PublishResult]], None], Future[PublishResult]]] = deque()
        self._is_callback_pending = False
        self.count = 0

    def add_callback(self, future: Future[PublishResult], callback: Callable[[Future[PublishResult]], None]) -> None:
        self.count += 1
        start_s = time.perf_counter()

        def observed(done: Future[PublishResult]) -> None:
            self._observe_delay(time.perf_counter() - start_s)
            callback(done)

        future.add_done_callback(lambda done: self._enqueue(observed, done))

    async def wait(self, future: Future[PublishResult]) -> PublishResult:
        """Waits for the result. If the waiting task is cancelled, the publication still continues."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.add_callback(future, lambda _: None if waiter.done() else waiter.set_result(None))
        await waiter
        return future.result()

    def _enqueue(self, callback: Callable[[Future[PublishResult]], None], done: Future[PublishResult]) -> None:
        self._done.append((callback, done))
        if not self._is_callback_pending:
            self._is_callback_pending = True
            call_on_loop(self._loop, self._run_callbacks)

    def _run_callbacks(self) -> None:
        self._is_callback_pending = False
        while self._done:
            callback, done = self._done.popleft()
            self.count -= 1
            try:
                callback(done)
            except Exception:
                # The other callbacks must still run.
                logger.exception("the callback of a publication failed")


def call_on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Calls the function on the loop; does nothing if the loop is closed."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not loop.is_closed():
                raise
