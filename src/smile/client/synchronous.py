"""The client for threads. It runs the asynchronous client in a thread of its own, and waits for it.

It may be used from any number of threads.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from smile.client.address import BrokerAddress
from smile.client.asynchronous import CONNECT_TIMEOUT_S, AsyncClient
from smile.client.changes import AfterTicks, Change, Frame, Published, ticks_of
from smile.client.durable_feed import StreamEvent
from smile.client.event_batches import Events, count_from_first, divide_into_publications
from smile.client.feed import CallbackRegistry, FrameQueue, SubscriptionFeed
from smile.client.row_tables import client_html, connection_text
from smile.client.rows import Rows
from smile.client.session import Event, Reliability
from smile.client.subscriptions import DurableSubscriptionBase, SubscriptionBase, TableBase
from smile.errors import SmileError, error

T = TypeVar("T")

_log = logging.getLogger("smile.client")


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
    While four thousand events are not acknowledged, no more come. With a callback, it is not iterated: a thread calls
    the callback with each event, and acknowledges the event when it returns."""

    _thread: threading.Thread | None = None
    _problem: BaseException | None = None
    _is_closed = False

    def start(self, callback: Callable[[StreamEvent], object]) -> None:
        """Begins to call the callback."""
        name = f"smile-subscription-{self._feed.view}"
        self._thread = threading.Thread(target=self._run, args=(callback,), name=name, daemon=True)
        self._thread.start()

    def _run(self, callback: Callable[[StreamEvent], object]) -> None:
        try:
            while True:
                wait_until(self._feed.signal, lambda: self._is_closed or self._has_event(), None, "")
                if self._is_closed:
                    return
                callback(self._next_event())
                self._take_event()
                self._acknowledge_taken()
        except Exception as problem:  # noqa: BLE001  # whatever the callback raises
            self._problem = problem
            if not isinstance(problem, SmileError):
                _log.exception("the callback of a subscription has failed", extra={"relation": self._feed.view})
            self.close()

    def join(self, timeout: float | None = None) -> None:
        """Waits until the subscription ends. Raises what the callback raised, or why the broker ended it."""
        assert self._thread is not None, "it has no callback"
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise error("E108", f"the subscription has not ended within {timeout:g} s")
        if self._problem is not None:
            raise self._problem

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
        self._is_closed = True
        self._session.unsubscribe(self._feed)
        self._feed.signal.fire()

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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client.connection.address.url}, {connection_text(self.connected)}>"

    def _repr_html_(self) -> str:
        """A notebook shows the broker, with the streams and the views that this client may use."""
        try:
            relations = self._run_coroutine(self._client.relations())
        except SmileError as problem:
            relations = {"problem": [problem.message]}
        return client_html(self._client.connection.address.url, self.connected, relations)

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        stream: str,
        events: Events,
        reliability: Reliability = "guaranteed",
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Publishes an event, a list of events, an iterator, or a data frame (pandas, Polars, Arrow) with a row for
        each event. Returns when they are on the broker's disk. A list is published as a whole or not at all; frames
        and iterators are divided: if an event is refused, the parts before are published, and nothing after. The error
        has the number of these events as `published`.
        What is `guaranteed` is sent again after a lost connection. What is `non-guaranteed` is sent once: if the
        connection is lost before the answer, or there is none, E103 is raised. `progress`
        is called with the number of events that are published, after each part."""
        published = Published.from_ticks(stream, (), 0)
        try:
            for part in divide_into_publications(events):
                published = published.followed_by(self.submit(stream, part, reliability).result())
                if progress is not None:
                    progress(len(published))
        except SmileError as problem:
            raise count_from_first(problem, len(published)) from None
        return published

    def submit(
        self, stream: str, events: Event | Sequence[Event], reliability: Reliability = "guaranteed"
    ) -> Future[Published]:
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
        return future_outcome(lambda settle: session.publish(stream, event_list, settle, reliability))

    def silence(self, stream: str, to: int | datetime) -> None:
        """States that a publisher-timed stream has no further events up to this tick, or to the first one at a time."""
        future: Future[Published] = future_outcome(lambda settle: self.session.silence(stream, to, settle))
        future.result()

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        name: str | None = None,
        final: bool = False,
    ) -> Subscription:
        """Subscribes to a view: first all rows are delivered, then each change. With a name, frames are acknowledged by
        `ack`, and the next subscriber with the name continues there. With `final`, only rows that are final are
        delivered, each once."""
        queue = FrameQueue(final)
        feed = self._open_feed(view, where, after, queue, final, name)
        return Subscription(self.session, feed, queue)

    def durable(
        self,
        relation: str,
        name: str,
        where: Mapping[str, Any] | None = None,
        start: str = "all",
        resume: str | None = None,
        scope: str = "local",
        filter: str | None = None,
        callback: Callable[[StreamEvent], object] | None = None,
    ) -> DurableSubscription:
        """Subscribes durably to the events of a stream, or of a selection of one. The broker stores what is
        acknowledged under the name. `start` says where a new name begins: with `all` events, those that the log has
        `kept`, or `new` ones. `resume` is a token from another broker. With `scope="global"`, the events are those of
        all brokers that publish a stream of this name. `filter` is a predicate in SmileSQL. `callback` is called with
        each event, in a thread of its own; an event is acknowledged when it returns. If it raises an exception, the
        subscription is closed, and the event is delivered again to the next subscriber."""
        feed = self.session.subscribe_durably(relation, where or {}, name, start, resume, scope, filter or "")
        self._wait_for_feed(feed, lambda _: feed.columns is not None)
        subscription = DurableSubscription(self.session, feed)
        if callback is not None:
            subscription.start(callback)
        return subscription

    def table(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        final: bool = False,
    ) -> Table:
        """A live copy of a view, or with `final` of its rows that are final. Returns when it has all rows."""
        table = Table(self.session)
        table.feed = self._open_feed(view, where, after, table, final)
        self._wait_for_feed(table.feed, lambda feed: feed.has_snapshot)
        return table

    def snapshot(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        final: bool = False,
    ) -> Rows:
        """All rows, or with `final` those that are final, as they are now, or as soon as they include what `after`
        names."""
        table = self.table(view, where, after, final)
        table.close()
        return table

    def _open_feed(
        self,
        view: str,
        where: Mapping[str, Any] | None,
        after: AfterTicks | None,
        sink: FrameQueue | Table,
        only_final: bool,
        name: str | None = None,
    ) -> SubscriptionFeed:
        feed = self.session.subscribe(view, where or {}, ticks_of(after or {}), sink, name, only_final=only_final)
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

    def advertise(self, stream: str, where: str = "") -> None:
        """Advertises a stream of this broker to its neighbours, with a condition if not all events are for them."""
        self._run_coroutine(self._client.advertise(stream, where))

    def add_producer(self, stream: str, name: str, where: str = "") -> None:
        """Advertises a producer of a global stream at this broker: its events satisfy the condition."""
        self._run_coroutine(self._client.add_producer(stream, name, where))

    def remove_producer(self, stream: str, name: str) -> None:
        """Withdraws a producer of a global stream."""
        self._run_coroutine(self._client.remove_producer(stream, name))

    def unadvertise(self, stream: str) -> None:
        """Takes the advertisement of a stream back."""
        self._run_coroutine(self._client.unadvertise(stream))

    def program(self) -> str:
        """The text of the running program."""
        return self._run_coroutine(self._client.program())


def connect(
    url: str | None = None, token: str | None = None, ca: str | None = None, timeout: float = CONNECT_TIMEOUT_S
) -> Client:
    """Connects to the broker at `url`, or else at SMILE_URL. If that fails for `timeout` seconds, raises the last error
    (E103), or E108 if the first attempt is still waiting."""
    return Client(BrokerAddress.resolve(url, token, ca), timeout)
