"""A broker that speaks the wire protocol over a real socket, stores what is published, and misbehaves as a test
requires.

Its only view `Counts` counts the events of its stream `S` by their column `k`. It has no engine.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.processes import WAIT_S

Json = dict[str, Any]

BEGIN = 2**60
"""Ticks are those of a clock: beyond what JSON's readers hold as numbers."""


@dataclass
class Store:
    """What survives a restart: the log, and what each producer has published."""

    events: list[tuple[int, str]] = field(default_factory=list)
    producers: dict[tuple[str, int], int] = field(default_factory=dict)
    received: int = 0

    def publish(self, producer: str, seq: int, events: list[Json]) -> tuple[list[int], int]:
        ticks, repeated = list[int](), 0
        for number, event in enumerate(events, seq):
            self.received += 1
            known = self.producers.get((producer, number)) if producer else None
            repeated += known is not None
            if known is None:
                known = BEGIN + 1024 * len(self.events)
                self.producers[producer, number] = known
                self.events.append((known, event["k"]))
            ticks.append(known)
        return ticks, repeated

    def counts(self, where: Json) -> dict[str, int]:
        counts: dict[str, int] = {}
        for _, k in self.events:
            if where.get("k", k) == k:
                counts[k] = counts.get(k, 0) + 1
        return counts

    @property
    def horizon(self) -> int:
        return self.events[-1][0] if self.events else BEGIN - 1


def row(k: str, n: int) -> Json:
    message: Json = {"view": "Counts", "key": {"k": k}, "row": {"n": n}, "knowledge": {"n": {"at_least": n}}}
    return message | {"final": False, "stays": True, "steps": n}


@dataclass
class Misbehaviour:
    """`answer` may swallow or change a message to a client; None means that the connection is cut instead."""

    answer: Callable[[Json], Json | None] = lambda message: message
    forget_tokens: bool = False
    refuse_status: int | None = None
    refuse_body: bytes = b""
    stopping: bool = False
    view_ended: bool = False
    message_bytes_max: int = 2**20


class Subscriber:
    def __init__(self, message: Json) -> None:
        self.id, self.where = message["id"], message.get("where", {})
        self.window = message.get("window", 10**9)
        self.n = self.acked = 0
        self.sent_counts: dict[str, int] = {}
        self.progress: int | None = None
        self.reset = True


class Fake:
    """Runs in a thread of its own; `restart` cuts all connections, and listens again at the same port."""

    def __init__(self, store: Store | None = None, ssl: Any = None) -> None:
        self.store = store or Store()
        self.wrong = Misbehaviour()
        self.subscriptions: list[Json] = []
        self.publications: list[int] = []
        """The number of events of each publication that was accepted."""
        self.headers: list[Any] = []
        self.port = 0
        self.ssl = ssl
        self._connections: dict[ServerConnection, dict[int, Subscriber]] = {}
        self._loop = asyncio.new_event_loop()
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self.ssl else ''}://127.0.0.1:{self.port}"

    def run(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(timeout=WAIT_S)

    def start(self) -> None:
        self.run(self._start())

    def stop(self) -> None:
        """As a kill: connections are cut, not closed."""
        self.run(self._stop())

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self._server is not None:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def cut(self) -> None:
        self.run(self._cut())

    def publish(self, *keys: str) -> None:
        """As some other client."""
        self.run(self._publish(keys))

    async def _publish(self, keys: tuple[str, ...]) -> None:
        for k in keys:
            self.store.publish("another", len(self.store.producers) + 1, [{"k": k}])
        await self._tell_all()

    async def _start(self) -> None:
        self._server = await serve(
            self._serve, "127.0.0.1", self.port, process_request=self._handshake, ssl=self.ssl,
            max_size=self.wrong.message_bytes_max, close_timeout=1,
        )  # fmt: skip
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close(close_connections=False)
        await self._cut()
        await self._server.wait_closed()
        self._server = None

    async def _cut(self) -> None:
        for connection in list(self._connections):
            connection.transport.abort()
            await connection.wait_closed()

    def _handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(request.headers)
        if self.wrong.refuse_status is not None:
            return connection.respond(self.wrong.refuse_status, self.wrong.refuse_body.decode())
        if request.path != "/ws":
            answers = {"/status": '{"program":"ok"}', "/program": "CREATE STREAM S (t: time -> k: string);\n"}
            return connection.respond(200 if request.path in answers else 404, answers.get(request.path, ""))
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        self._connections[connection] = {}
        try:
            with suppress(ConnectionClosed):
                async for text in connection:
                    await self._received(connection, json.loads(text))
        finally:
            del self._connections[connection]

    async def _send(self, connection: ServerConnection, message: Json) -> None:
        answer = self.wrong.answer(message)
        if answer is None:
            connection.transport.abort()
            return
        with suppress(ConnectionClosed):
            await connection.send(json.dumps(answer))

    async def _received(self, connection: ServerConnection, message: Json) -> None:
        feeds = self._connections[connection]
        match message:
            case {"publish": "S", "events": events, "id": id} if not self.wrong.stopping:
                wrong = next((i for i, e in enumerate(events, 1) if not isinstance(e.get("k"), str)), None)
                if wrong is not None:
                    problem = {"code": "E078", "message": f"event {wrong}: S.k: not a string", "hint": "Write text."}
                    await self._send(connection, {"id": id, "error": problem})
                    return
                self.publications.append(len(events))
                ticks, repeated = self.store.publish(message.get("producer", ""), message.get("seq", 1), events)
                await self._tell_all()
                await self._send(connection, {"id": id, "published": [str(t) for t in ticks], "repeated": repeated})
            case {"publish": _, "id": id} if self.wrong.stopping:
                await self._send(connection, {"id": id, "error": {"code": "E098", "message": "stopping"}})
            case {"publish": stream, "id": id}:
                await self._send(connection, {"id": id, "error": {"code": "E076", "message": f"no stream {stream}"}})
            case {"silence": _, "to": to, "id": id}:
                await self._send(connection, {"id": id, "silent": to})
            case {"subscribe": "Counts", "id": id}:
                self.subscriptions.append(message)
                if self.wrong.forget_tokens and "resume" in message:
                    await self._send(connection, {"id": id, "error": {"code": "E094", "message": "of another broker"}})
                    return
                if self.wrong.view_ended:
                    await self._send(connection, {"id": id, "error": {"code": "E095", "message": "the view has ended"}})
                    return
                feeds[id] = Subscriber(message)
                resume = message.get("resume")
                if resume is not None and int(resume) <= self.store.horizon:
                    feeds[id].reset, feeds[id].progress = False, int(resume)
                    feeds[id].sent_counts = (
                        {} if int(resume) < self.store.horizon else self.store.counts(feeds[id].where)
                    )
                columns = {"k": "string", "n": "decimal(38, 0)"}
                heading = {"subscribed": "Counts", "key": ["k"], "columns": columns, "streams": ["S"]}
                await self._send(connection, {"id": id, **heading})
                await self._tell(connection, feeds[id])
            case {"subscribe": view, "id": id}:
                problem = {"code": "E021", "message": f"there is no view {view}", "hint": "Did you mean Counts?"}
                await self._send(connection, {"id": id, "error": problem})
            case {"unsubscribe": id}:
                feeds.pop(id, None)
            case {"ack": id, "n": n}:
                if id in feeds:
                    feeds[id].acked = n
                    await self._tell(connection, feeds[id])

    async def _tell_all(self) -> None:
        for connection, feeds in list(self._connections.items()):
            for feed in list(feeds.values()):
                await self._tell(connection, feed)

    async def _tell(self, connection: ServerConnection, feed: Subscriber) -> None:
        """Sends everything that has changed since the last frame. Changes of one row merge while the client does not
        read."""
        horizon = self.store.horizon
        if feed.n - feed.acked >= feed.window or (feed.progress == horizon and not feed.reset):
            return
        now = self.store.counts(feed.where)
        rows = [row(k, n) for k, n in now.items() if feed.sent_counts.get(k) != n]
        feed.n += 1
        frame: Json = {
            "id": feed.id,
            "n": feed.n,
            "rows": rows,
            "progress": {"S": str(horizon)},
            "resume": str(horizon),
        }
        frame |= {"reset": True} if feed.reset else {}
        feed.sent_counts, feed.progress, feed.reset = now, horizon, False
        await self._send(connection, frame)

    async def _ended(self, code: str) -> None:
        for connection, feeds in list(self._connections.items()):
            for id in list(feeds):
                await self._send(connection, {"id": id, "ended": {"code": code, "message": "the view has ended"}})

    def end(self, code: str) -> None:
        self.wrong.view_ended = code == "E095"
        self.run(self._ended(code))
