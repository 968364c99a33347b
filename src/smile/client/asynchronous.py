"""The client for asyncio: every wait is awaited, and everything happens in one event loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from typing import Any, Self

from smile.client.changes import After, Change, Frame, Published, Schema, ticks_of
from smile.client.feed import Feed, Queue, Signal, Sink
from smile.client.link import Link, get
from smile.client.place import Place
from smile.client.rows import Rows
from smile.client.session import Event
from smile.errors import SmileError, error

CONNECT_S = 5.0
"""A broker that is being started is waited for so long."""


async def until(signal: Signal, ready: Callable[[], bool], timeout: float | None, what: str) -> None:
    """Waits for the signal until all is ready; E108 if that takes too long."""
    event = asyncio.Event()
    signal.add(event.set)
    try:
        async with asyncio.timeout(timeout):
            while not ready():
                event.clear()
                await event.wait()
    except TimeoutError:
        raise error("E108", f"{what} took longer than {timeout:g} s") from None
    finally:
        signal.discard(event.set)


class AsyncSubscription:
    """An endless iterator of changes; `frames` gives them as they came together, with progress."""

    def __init__(self, client: "AsyncClient", feed: Feed, queue: Queue) -> None:
        self._client, self._feed, self._queue = client, feed, queue
        self._changes: list[Change] = []

    @property
    def schema(self) -> Schema:
        assert self._feed.schema is not None
        return self._feed.schema

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._changes:
            self._changes = list(reversed((await self.frame()).changes))
        return self._changes.pop()

    async def frame(self, timeout: float | None = None) -> Frame:
        frames, feed = self._queue.frames, self._feed
        await until(feed.signal, lambda: bool(frames) or feed.error is not None, timeout, "waiting for a change")
        if not frames:
            assert feed.error is not None
            raise feed.error
        frame = frames.popleft()
        self._client.link.session.taken(feed)
        return frame

    async def frames(self) -> AsyncIterator[Frame]:
        while True:
            yield await self.frame()

    async def close(self) -> None:
        self._client.link.session.unsubscribe(self._feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTable(Rows):
    """The rows of a view, kept up to date."""

    def __init__(self, client: "AsyncClient") -> None:
        super().__init__()
        self._client = client
        self.feed: Feed | None = None

    @property
    def error(self) -> SmileError | None:
        """Why it is not kept up to date any longer."""
        return self.feed.error if self.feed is not None else None

    async def wait_for(self, after: After, timeout: float | None = None) -> Self:
        """Until everything that was published there, or up to these ticks, is in it."""
        ticks, feed = ticks_of(after), self.feed
        assert feed is not None
        await until(feed.signal, lambda: self.knows(ticks) or feed.error is not None, timeout, f"{feed.view}")
        if feed.error is not None:
            raise feed.error
        return self

    async def close(self) -> None:
        assert self.feed is not None
        self._client.link.session.unsubscribe(self.feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncClient:
    """Made by `connect_async`; what is lost with a connection is made good with the next."""

    def __init__(self, place: Place) -> None:
        self.link = Link(place)

    async def start(self, timeout: float) -> Self:
        session = self.link.session
        self.link.start()
        try:
            await until(session.moved, lambda: session.connected or session.failed, timeout, "connecting")
            if session.failed and session.problem is not None:
                raise session.problem
        except BaseException as problem:
            why = session.problem
            await self.close()
            late = isinstance(problem, SmileError) and problem.diagnostics[0].code == "E108"
            if late and why is not None:
                raise why from None
            raise
        return self

    async def close(self) -> None:
        """At once: what is not acknowledged yet may be published or not."""
        await self.link.close()

    @property
    def connected(self) -> bool:
        return self.link.session.connected

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, stream: str, events: Event | Sequence[Event]) -> Published:
        """All of the events or none, in one message; ends when they are on the broker's disk. Tasks that publish at
        the same time do not wait for each other."""
        session = self.link.session
        turn = asyncio.Event()
        if not session.admit(turn.set):
            try:
                await turn.wait()
            except BaseException:
                session.leave(turn.set)
                raise
        every = [events] if isinstance(events, Mapping | str) else list(events)
        return await self._settled(lambda settle: session.publish(stream, every, settle))

    async def silence(self, stream: str, to: int) -> None:
        """Of a publisher-timed stream: nothing happens up to this tick but what was published."""
        await self._settled(lambda settle: self.link.session.silence(stream, to, settle))

    async def _settled(self, ask: Callable[[Callable[[Published | SmileError], None]], None]) -> Published:
        future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

        def settle(outcome: Published | SmileError) -> None:
            if future.done():
                return
            if isinstance(outcome, SmileError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        ask(settle)
        return await future

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(
        self, view: str, where: Mapping[str, Any] | None = None, after: After | None = None
    ) -> AsyncSubscription:
        """First all rows, then each change."""
        queue = Queue()
        return AsyncSubscription(self, await self._feed(view, where, after, queue), queue)

    async def table(self, view: str, where: Mapping[str, Any] | None = None, after: After | None = None) -> AsyncTable:
        """Ends when all rows are in it."""
        table = AsyncTable(self)
        table.feed = await self._feed(view, where, after, table)
        await self._reached(table.feed, lambda feed: feed.complete)
        return table

    async def snapshot(self, view: str, where: Mapping[str, Any] | None = None, after: After | None = None) -> Rows:
        """All rows as they are now, or once everything that `after` says is in them."""
        table = await self.table(view, where, after)
        await table.close()
        return table

    async def _feed(self, view: str, where: Mapping[str, Any] | None, after: After | None, sink: Sink) -> Feed:
        feed = self.link.session.subscribe(view, where or {}, ticks_of(after or {}), sink)
        await self._reached(feed, lambda feed: feed.schema is not None)
        return feed

    async def _reached(self, feed: Feed, ready: Callable[[Feed], bool]) -> None:
        try:
            await until(feed.signal, lambda: ready(feed) or feed.error is not None, None, feed.view)
        except BaseException:
            self.link.session.unsubscribe(feed)
            raise
        if feed.error is not None:
            raise feed.error

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self) -> dict[str, Any]:
        """How the broker fares."""
        told: dict[str, Any] = json.loads(await get(self.link.place, "/status"))
        return told

    async def program(self) -> str:
        """The text of the program that runs."""
        return (await get(self.link.place, "/program")).decode()


class Connecting:
    """To be awaited, or entered: `client = await connect_async()`, or `async with connect_async() as client`."""

    def __init__(self, place: Place, timeout: float) -> None:
        self._place, self._timeout = place, timeout
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connected().__await__()

    async def _connected(self) -> AsyncClient:
        return await AsyncClient(self._place).start(self._timeout)

    async def __aenter__(self) -> AsyncClient:
        self._client = await self
        return self._client

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        await self._client.close()


def connect_async(
    url: str | None = None, token: str | None = None, ca: str | None = None, timeout: float = CONNECT_S
) -> Connecting:
    """A client of the broker at `url`, else at SMILE_URL. E103 if it cannot be reached in that time."""
    return Connecting(Place.of(url, token, ca), timeout)
