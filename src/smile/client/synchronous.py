"""The client for threads. It runs the asynchronous client in a thread of its own, and waits for it.

It may be used from any number of threads.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar

from smile.client.address import BrokerAddress
from smile.client.asynchronous import CONNECT_TIMEOUT_S, AsyncClient
from smile.client.changes import AfterTicks, Change, Frame, Published, ticks_of
from smile.client.durable_feed import StreamEvent
from smile.client.feed import CallbackRegistry, FrameQueue, SubscriptionFeed
from smile.client.rows import Rows
from smile.client.session import Event
from smile.client.subscriptions import DurableSubscriptionBase, SubscriptionBase, TableBase
from smile.errors import SmileError, error

T = TypeVar("T")


def wait_until(signal: CallbackRegistry, ready: Callable[[], bool], timeout: float | None, action: str) -> None:
    """Waits until `ready()`, which is checked whenever the signal fires. Raises E108 after `timeout` seconds."""
    event = threading.Event()
    deadline = None if timeout is None else time.monotonic() + timeout
    signal.add(event.set)
    try:
        while not ready():
            if not event.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise error("E108", f"{action} took longer than {timeout:g} s")
            event.clear()
    finally:
        signal.discard(event.set)


def future_outcome(send: Callable[[Callable[[T | SmileError], None]], None]) -> Future[T]:
    """Calls `send` with a callback. The future has the outcome when that is called. It cannot be cancelled."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def settle(outcome: T | SmileError) -> None:
        if isinstance(outcome, SmileError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    send(settle)
    return future


class Subscription(SubscriptionBase):
    """An endless iterator of changes. `frames` yields them in the groups they arrived in, with progress."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        while not self._changes:
            self._changes = list(reversed(self.frame().changes))
        return self._changes.pop()

    def frame(self, timeout: float | None = None) -> Frame:
        wait_until(self._feed.signal, self._has_frame, timeout, "waiting for a change")
        return self._take_frame()

    def frames(self) -> Iterator[Frame]:
        while True:
            yield self.frame()

    def ack(self) -> None:
        """Acknowledges all frames that were taken, if the subscription has a name: it then continues there."""
        self._session.acknowledge_consumed(self._feed)

    def close(self) -> None:
        self._session.unsubscribe(self._feed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DurableSubscription(DurableSubscriptionBase):
    """An endless iterator of events. Every event is delivered until it is acknowledged; on this object each comes once.
    While four thousand events are not acknowledged, no more come."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        return self.event()

    def event(self, timeout: float | None = None) -> StreamEvent:
        """The next event."""
        wait_until(self._feed.signal, self._has_event, timeout, "waiting for an event")
        return self._take_event()

    def ack(self, timeout: float | None = None) -> str:
        """Acknowledges all events that were taken. Returns the token of the position when it is on the broker's
        disk."""
        future: Future[str] = future_outcome(lambda settle: self._session.acknowledge_events(self._feed, settle))
        try:
            return future.result(timeout)
        except TimeoutError:
            raise error("E108", f"the acknowledgement took longer than {timeout:g} s") from None

    def close(self) -> None:
        """What was not acknowledged is delivered again to the next subscriber with the name."""
        self._session.unsubscribe(self._feed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Table(TableBase):
    """The rows of a view, kept up to date."""

    def wait_for(self, after: AfterTicks, timeout: float | None = None) -> Self:
        """Waits until the table includes these published events, or all events up to these ticks. Raises E109 if the
        view is paused."""
        ticks, feed = ticks_of(after), self.feed
        assert feed is not None
        wait_until(feed.signal, lambda: self.has_reached(ticks) or bool(feed.problem), timeout, feed.view)
        if not self.has_reached(ticks) and feed.problem is not None:
            raise feed.problem
        return self

    def close(self) -> None:
        assert self.feed is not None
        self._session.unsubscribe(self.feed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """Created by `connect`. It reconnects by itself, resends publications and resumes subscriptions."""

    def __init__(self, address: BrokerAddress, timeout: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="smile-client", daemon=True)
        self._thread.start()
        try:
            self._client = self._run_coroutine(self._start_client(address, timeout))
        except BaseException:
            self._stop_loop()
            raise
        self.session = self._client.connection.session

    async def _start_client(self, address: BrokerAddress, timeout: float) -> AsyncClient:
        return await AsyncClient(address).start(timeout)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        if tasks := asyncio.all_tasks(self._loop):  # there are some if the client did not even start
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            coroutine.close()
            raise error("E103", "the client was closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise error("E103", "the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def close(self) -> None:
        """Closes immediately. Publications that are not acknowledged may or may not have been logged."""
        if not self._loop.is_closed():
            self._run_coroutine(self._client.close())
            self._stop_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for all publications, unless there is an exception; then closes."""
        try:
            if problem is None:
                session = self.session
                wait_until(
                    session.state_changed, lambda: not session.unacknowledged or session.failed, None, "publishing"
                )
        finally:
            self.close()

    @property
    def connected(self) -> bool:
        return self.session.connected

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, stream: str, events: Event | Sequence[Event]) -> Published:
        """Publishes all of the events or none, in one message. Returns when they are on the broker's disk."""
        return self.submit(stream, events).result()

    def submit(self, stream: str, events: Event | Sequence[Event]) -> Future[Published]:
        """Like `publish`, but returns a future. Waits only while too many publications are unacknowledged."""
        session = self.session
        admitted = threading.Event()
        if not session.admit(admitted.set):
            try:
                admitted.wait()
            except BaseException:
                session.cancel_wait(admitted.set)
                raise
        event_list = [events] if isinstance(events, Mapping | str) else list(events)
        return future_outcome(lambda settle: session.publish(stream, event_list, settle))

    def silence(self, stream: str, to: int) -> None:
        """States that a publisher-timed stream has no further events up to this tick."""
        future: Future[Published] = future_outcome(lambda settle: self.session.silence(stream, to, settle))
        future.result()

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        name: str | None = None,
    ) -> Subscription:
        """Subscribes to a view: first all rows are delivered, then each change. With a name, frames are acknowledged by
        `ack`, and the next subscriber with the name continues there."""
        queue = FrameQueue()
        feed = self._open_feed(view, where, after, queue, name)
        return Subscription(self.session, feed, queue)

    def durable(
        self,
        relation: str,
        name: str,
        where: Mapping[str, Any] | None = None,
        start: str = "all",
        resume: str | None = None,
    ) -> DurableSubscription:
        """Subscribes durably to the events of a stream, or of a selection of one. The broker stores what is
        acknowledged under the name. `start` says where a new name begins: with `all` events, those that the log has
        `kept`, or `new` ones. `resume` is a token from another broker."""
        feed = self.session.subscribe_durably(relation, where or {}, name, start, resume)
        self._wait_for_feed(feed, lambda _: feed.columns is not None)
        return DurableSubscription(self.session, feed)

    def table(self, view: str, where: Mapping[str, Any] | None = None, after: AfterTicks | None = None) -> Table:
        """A live copy of a view. Returns when it has all rows."""
        table = Table(self.session)
        table.feed = self._open_feed(view, where, after, table)
        self._wait_for_feed(table.feed, lambda feed: feed.has_snapshot)
        return table

    def snapshot(self, view: str, where: Mapping[str, Any] | None = None, after: AfterTicks | None = None) -> Rows:
        """All rows as they are now, or as soon as they include what `after` names."""
        table = self.table(view, where, after)
        table.close()
        return table

    def _open_feed(
        self,
        view: str,
        where: Mapping[str, Any] | None,
        after: AfterTicks | None,
        sink: FrameQueue | Table,
        name: str | None = None,
    ) -> SubscriptionFeed:
        feed = self.session.subscribe(view, where or {}, ticks_of(after or {}), sink, name)
        self._wait_for_feed(feed, lambda feed: feed.schema is not None)
        return feed

    def _wait_for_feed(self, feed: SubscriptionFeed, ready: Callable[[SubscriptionFeed], bool]) -> None:
        try:
            wait_until(feed.signal, lambda: ready(feed) or feed.error is not None, None, feed.view)
        except BaseException:
            self.session.unsubscribe(feed)
            raise
        if feed.error is not None:
            raise feed.error

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> dict[str, Any]:
        """The broker's status, as `GET /status` returns it."""
        return self._run_coroutine(self._client.status())

    def resume(self, view: str) -> None:
        """Resumes a view that the broker has paused, and those that were paused with it."""
        self._run_coroutine(self._client.resume(view))

    def subscriptions(self) -> list[dict[str, Any]]:
        """The durable subscriptions of this client's principal."""
        return self._run_coroutine(self._client.subscriptions())

    def drop_subscription(self, name: str) -> None:
        """Forgets a durable subscription."""
        self._run_coroutine(self._client.drop_subscription(name))

    def origins(self, stream: str) -> dict[str, Any]:
        """The origins of a stream that has many, as `GET /streams/{stream}/origins` returns them."""
        return self._run_coroutine(self._client.origins(stream))

    def change_origins(self, method: str, path: str) -> dict[str, Any]:
        """Sends a command about the origins of a stream. Returns the origins."""
        return self._run_coroutine(self._client.change_origins(method, path))

    def program(self) -> str:
        """The text of the running program."""
        return self._run_coroutine(self._client.program())


def connect(
    url: str | None = None, token: str | None = None, ca: str | None = None, timeout: float = CONNECT_TIMEOUT_S
) -> Client:
    """Connects to the broker at `url`, or else at SMILE_URL. If that fails for `timeout` seconds, raises the last error
    (E103), or E108 if the first attempt is still waiting."""
    return Client(BrokerAddress.resolve(url, token, ca), timeout)
