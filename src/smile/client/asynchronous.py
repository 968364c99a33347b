"""The client for asyncio. Every call that waits is a coroutine, and everything runs in one event loop."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar
from urllib.parse import quote

from smile.client.address import BrokerAddress
from smile.client.changes import AfterTicks, Change, Frame, Published, ticks_of
from smile.client.connection import BrokerConnection, http_request
from smile.client.durable_feed import StreamEvent
from smile.client.event_batches import Events, count_from_first, divide_into_publications
from smile.client.feed import CallbackRegistry, FrameQueue, FrameSink, SubscriptionFeed
from smile.client.row_tables import connection_text
from smile.client.rows import Rows
from smile.client.session import Event, Reliability
from smile.client.subscriptions import DurableSubscriptionBase, SubscriptionBase, TableBase
from smile.errors import SmileError, error

T = TypeVar("T")

AsyncCallback = Callable[[StreamEvent], Awaitable[object] | object]
"""Called with each event of a subscription."""

CONNECT_TIMEOUT_S = 5.0
"""How long to wait for a broker that is starting."""


async def wait_until(signal: CallbackRegistry, ready: Callable[[], bool], timeout: float | None, action: str) -> None:
    """Waits until `ready()`, which is checked whenever the signal fires. Raises E108 after `timeout` seconds."""
    event = asyncio.Event()
    signal.add(event.set)
    try:
        async with asyncio.timeout(timeout):
            while not ready():
                event.clear()
                await event.wait()
    except TimeoutError:
        raise error("E108", f"{action} took longer than {timeout:g} s") from None
    finally:
        signal.discard(event.set)


async def await_outcome(send: Callable[[Callable[[T | SmileError], None]], None]) -> T:
    """Calls `send` with a callback, and waits until that is called with the outcome."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def settle(outcome: T | SmileError) -> None:
        if future.done():
            return
        if isinstance(outcome, SmileError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    send(settle)
    return await future


class AsyncSubscription(SubscriptionBase):
    """An endless iterator of changes. `frames` yields them in the groups they arrived in, with progress."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._changes:
            self._changes = list(reversed((await self.frame()).changes))
        return self._changes.pop()

    async def frame(self, timeout: float | None = None) -> Frame:
        await wait_until(self._feed.signal, self._has_frame, timeout, "waiting for a change")
        return self._take_frame()

    async def frames(self) -> AsyncIterator[Frame]:
        while True:
            yield await self.frame()

    async def ack(self) -> None:
        """Acknowledges all frames that were taken, if the subscription has a name: it then continues there."""
        self._session.acknowledge_consumed(self._feed)

    async def close(self) -> None:
        self._session.unsubscribe(self._feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncDurableSubscription(DurableSubscriptionBase):
    """An endless iterator of events. Every event is delivered until it is acknowledged; on this object each comes once.
    While four thousand events are not acknowledged, no more come. With a callback, it is not iterated: a task calls the
    callback with each event, and acknowledges the event when it is done."""

    _task: "asyncio.Task[None] | None" = None

    def start(self, callback: AsyncCallback) -> None:
        """Begins to call the callback."""
        self._task = asyncio.get_running_loop().create_task(self._run(callback))

    async def _run(self, callback: AsyncCallback) -> None:
        try:
            while True:
                await wait_until(self._feed.signal, self._has_event, None, "")
                done = callback(self._next_event())
                if inspect.isawaitable(done):
                    await done
                self._take_event()
                self._acknowledge_taken()
        finally:
            self._session.unsubscribe(self._feed)

    async def join(self) -> None:
        """Waits until the subscription ends. Raises what the callback raised, or why the broker ended it."""
        assert self._task is not None, "it has no callback"
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        return await self.event()

    async def event(self, timeout: float | None = None) -> StreamEvent:
        """The next event."""
        await wait_until(self._feed.signal, self._has_event, timeout, "waiting for an event")
        return self._take_event()

    async def ack(self) -> str:
        """Acknowledges all events that were taken. Returns the token of the position when it is on the broker's
        disk."""
        return await await_outcome(lambda settle: self._session.acknowledge_events(self._feed, settle))

    async def close(self) -> None:
        """What was not acknowledged is delivered again to the next subscriber with the name."""
        if self._task is not None:
            self._task.cancel()
        self._session.unsubscribe(self._feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTable(TableBase):
    """The rows of a view, kept up to date."""

    async def wait_for(self, after: AfterTicks, timeout: float | None = None) -> Self:
        """Waits until the table includes these published events, or all events up to these ticks. Raises E109 if the
        view is paused."""
        ticks, feed = ticks_of(after), self.feed
        assert feed is not None
        await wait_until(feed.signal, lambda: self.has_reached(ticks) or bool(feed.problem), timeout, feed.view)
        if not self.has_reached(ticks) and feed.problem is not None:
            raise feed.problem
        return self

    async def close(self) -> None:
        assert self.feed is not None
        self._session.unsubscribe(self.feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncClient:
    """Created by `connect_async`. It reconnects by itself, resends publications and resumes subscriptions."""

    def __init__(self, address: BrokerAddress) -> None:
        self.connection = BrokerConnection(address)

    async def start(self, timeout: float) -> Self:
        session = self.connection.session
        self.connection.start()
        try:
            await wait_until(session.state_changed, lambda: session.connected or session.failed, timeout, "connecting")
            if session.failed and session.problem is not None:
                raise session.problem
        except BaseException as problem:
            connection_problem = session.problem
            await self.close()
            timed_out = isinstance(problem, SmileError) and problem.diagnostics[0].code == "E108"
            if timed_out and connection_problem is not None:
                raise connection_problem from None
            raise
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.connection.address.url}, {connection_text(self.connected)}>"

    async def close(self) -> None:
        """Closes immediately. Publications that are not acknowledged may or may not have been logged."""
        await self.connection.close()

    @property
    def connected(self) -> bool:
        return self.connection.session.connected

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        stream: str,
        events: Events,
        reliability: Reliability = "guaranteed",
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Publishes an event, a list of events, an iterator, or a data frame (pandas, Polars, Arrow) with a row for
        each event. Returns when they are on the broker's disk. A list is published as a whole or not at all; frames and
        iterators are divided: if an event is refused, the parts before are published, and the error has the number of
        these events as `published`. Tasks that publish at the same time do not wait for each other, unless too many
        publications are unacknowledged. What is `guaranteed` is sent again after a lost connection. What is
        `non-guaranteed` is sent once: if the connection is lost before the answer, or there is none, E103 is raised.
        `progress` is called with the number of events that are published, after each part."""
        published = Published.from_ticks(stream, (), 0)
        try:
            for part in divide_into_publications(events):
                published = published.followed_by(await self._publish_part(stream, part, reliability))
                if progress is not None:
                    progress(len(published))
        except SmileError as problem:
            raise count_from_first(problem, len(published)) from None
        return published

    async def _publish_part(self, stream: str, events: Sequence[Event], reliability: Reliability) -> Published:
        """All of the events or none, in one message."""
        session = self.connection.session
        admitted = asyncio.Event()
        if not session.admit(admitted.set):
            try:
                await admitted.wait()
            except BaseException:
                session.cancel_wait(admitted.set)
                raise
        return await await_outcome(lambda settle: session.publish(stream, events, settle, reliability))

    async def silence(self, stream: str, to: int | datetime) -> None:
        """States that a publisher-timed stream has no further events up to this tick, or to the first one at a time."""
        session = self.connection.session
        _: Published = await await_outcome(lambda settle: session.silence(stream, to, settle))

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        name: str | None = None,
        final: bool = False,
    ) -> AsyncSubscription:
        """Subscribes to a view: first all rows are delivered, then each change. With a name, frames are acknowledged by
        `ack`, and the next subscriber with the name continues there. With `final`, only rows that are final are
        delivered, each once."""
        queue = FrameQueue(final)
        feed = await self._open_feed(view, where, after, queue, final, name)
        return AsyncSubscription(self.connection.session, feed, queue)

    async def durable(
        self,
        relation: str,
        name: str,
        where: Mapping[str, Any] | None = None,
        start: str = "all",
        resume: str | None = None,
        scope: str = "local",
        filter: str | None = None,
        callback: AsyncCallback | None = None,
    ) -> AsyncDurableSubscription:
        """Subscribes durably to the events of a stream, or of a selection of one. The broker stores what is
        acknowledged under the name. `start` says where a new name begins: with `all` events, those that the log has
        `kept`, or `new` ones. `resume` is a token from another broker. With `scope="global"`, the events are those of
        all brokers that publish a stream of this name. `filter` is a predicate in SmileSQL. `callback` is called with
        each event, in a task; if it is a coroutine function, it is awaited. An event is acknowledged when it is done.
        If it raises an exception, the subscription is closed, and the event is delivered again to the next
        subscriber."""
        session = self.connection.session
        feed = session.subscribe_durably(relation, where or {}, name, start, resume, scope, filter or "")
        await self._wait_for_feed(feed, lambda _: feed.columns is not None)
        subscription = AsyncDurableSubscription(session, feed)
        if callback is not None:
            subscription.start(callback)
        return subscription

    async def table(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        final: bool = False,
    ) -> AsyncTable:
        """A live copy of a view, or with `final` of its rows that are final. Returns when it has all rows."""
        table = AsyncTable(self.connection.session)
        table.feed = await self._open_feed(view, where, after, table, final)
        await self._wait_for_feed(table.feed, lambda feed: feed.has_snapshot)
        return table

    async def snapshot(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        after: AfterTicks | None = None,
        final: bool = False,
    ) -> Rows:
        """All rows, or with `final` those that are final, as they are now, or as soon as they include what `after`
        names."""
        table = await self.table(view, where, after, final)
        await table.close()
        return table

    async def _open_feed(
        self,
        view: str,
        where: Mapping[str, Any] | None,
        after: AfterTicks | None,
        sink: FrameSink,
        only_final: bool,
        name: str | None = None,
    ) -> SubscriptionFeed:
        session, ticks = self.connection.session, ticks_of(after or {})
        feed = session.subscribe(view, where or {}, ticks, sink, name, only_final=only_final)
        await self._wait_for_feed(feed, lambda feed: feed.schema is not None)
        return feed

    async def _wait_for_feed(self, feed: SubscriptionFeed, ready: Callable[[SubscriptionFeed], bool]) -> None:
        try:
            await wait_until(feed.signal, lambda: ready(feed) or feed.error is not None, None, feed.view)
        except BaseException:
            self.connection.session.unsubscribe(feed)
            raise
        if feed.error is not None:
            raise feed.error

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def relations(self) -> dict[str, list[str]]:
        """The names of the streams and of the views that this client may use."""
        answers = [json.loads(await self._get(f"/{kind}"))[kind] for kind in ("streams", "views")]
        streams, views = ([entry["name"] for entry in answer] for answer in answers)
        return {"streams": streams, "views": views}

    async def _get(self, path: str) -> bytes:
        return await http_request(self.connection.address, "GET", path)

    async def status(self) -> dict[str, Any]:
        """The broker's status, as `GET /status` returns it."""
        status: dict[str, Any] = json.loads(await self._get("/status"))
        return status

    async def resume(self, view: str) -> None:
        """Resumes a view that the broker has paused, and those that were paused with it."""
        await http_request(self.connection.address, "POST", f"/views/{quote(view, safe='')}/resume")

    async def subscriptions(self) -> list[dict[str, Any]]:
        """The durable subscriptions of this client's principal."""
        body = json.loads(await http_request(self.connection.address, "GET", "/subscriptions"))
        found: list[dict[str, Any]] = body["subscriptions"]
        return found

    async def drop_subscription(self, name: str) -> None:
        """Forgets a durable subscription."""
        await http_request(self.connection.address, "DELETE", f"/subscriptions/{quote(name, safe='')}")

    async def origins(self, stream: str) -> dict[str, Any]:
        """The origins of a stream that has many, as `GET /streams/{stream}/origins` returns them."""
        return await self.change_origins("GET", f"/streams/{quote(stream, safe='')}/origins")

    async def change_origins(self, method: str, path: str) -> dict[str, Any]:
        """Sends a command about the origins of a stream. Returns the origins."""
        report: dict[str, Any] = json.loads(await http_request(self.connection.address, method, path))
        return report

    async def advertise(self, stream: str, where: str = "") -> None:
        """Advertises a stream of this broker to its neighbours, with a condition if not all events are for them."""
        body = json.dumps({"where": where}).encode()
        await http_request(self.connection.address, "PUT", f"/streams/{quote(stream, safe='')}/advertisement", body)

    async def add_producer(self, stream: str, name: str, where: str = "") -> None:
        """Advertises a producer of a global stream at this broker: its events satisfy the condition."""
        body = json.dumps({"where": where or None, "producer": name}).encode()
        await http_request(self.connection.address, "PUT", f"/streams/{quote(stream, safe='')}/advertisement", body)

    async def remove_producer(self, stream: str, name: str) -> None:
        """Withdraws a producer of a global stream."""
        path = f"/streams/{quote(stream, safe='')}/advertisement?producer={quote(name, safe='')}"
        await http_request(self.connection.address, "DELETE", path)

    async def unadvertise(self, stream: str) -> None:
        """Takes the advertisement of a stream back."""
        await http_request(self.connection.address, "DELETE", f"/streams/{quote(stream, safe='')}/advertisement")

    async def program(self) -> str:
        """The text of the running program."""
        return (await http_request(self.connection.address, "GET", "/program")).decode()


class PendingConnection:
    """Can be awaited or entered: `client = await connect_async()`, or `async with connect_async() as client`."""

    def __init__(self, address: BrokerAddress, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def _connect(self) -> AsyncClient:
        return await AsyncClient(self._address).start(self._timeout)

    async def __aenter__(self) -> AsyncClient:
        self._client = await self
        return self._client

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        await self._client.close()


def connect_async(
    url: str | None = None, token: str | None = None, ca: str | None = None, timeout: float = CONNECT_TIMEOUT_S
) -> PendingConnection:
    """Connects to the broker at `url`, or else at SMILE_URL. If that fails for `timeout` seconds, raises the last error
    (E103), or E108 if the first attempt is still waiting."""
    return PendingConnection(BrokerAddress.resolve(url, token, ca), timeout)
