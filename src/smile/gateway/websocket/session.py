"""WebSockets: publications and subscriptions on one connection. A wrong message is answered with an error, and the
connection continues.

Nothing is taken from a view while the connection cannot be written to; a row that changes several times meanwhile is
sent once, later. The server does not read from a client that does not read its answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from msgspec import UNSET
from starlette.websockets import WebSocket

from smile import limits
from smile.broker.publishing.publication import PublishResult
from smile.errors import SmileError, error, memory_error
from smile.gateway.access import Right
from smile.gateway.client_messages import ClientMessage, message_kind, parse_message
from smile.gateway.gateway import TOKEN_PROTOCOL, Caller, Gateway
from smile.gateway.http.publish import absent_column_warnings, producer_sequence, submit_events, submit_silence
from smile.gateway.http.request import parse_silence_tick
from smile.gateway.http.response import HttpError, encode, error_body
from smile.gateway.uvicorn_internals import WebSocketConnection
from smile.gateway.websocket.events import WebSocketEvents
from smile.gateway.websocket.rows import WebSocketRows
from smile.gateway.websocket.subscription import WebSocketSubscription
from smile.knowledge.values.json import tick_json

PROTOCOL = "smile"
_TOKEN_REVOKED = "E091"
_POLICY_VIOLATION = 1008
"""The code that closes the connection of a client whose token was revoked."""


class WebSocketSession:
    def __init__(self, gateway: Gateway, caller: Caller, connection: WebSocketConnection) -> None:
        self.gateway = gateway
        self.caller = caller
        self.connection = connection
        self.subscriptions: dict[int, WebSocketSubscription] = {}
        self.stalled: set[WebSocketSubscription] = set()
        self._pending = 0
        self._is_decoding = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_messages: deque[bytes | None] = deque()
        """Messages that have come while a large publication is decoded in a thread; None is a binary one. They are few:
        nothing is read meanwhile."""
        connection.handler = self

    def send(self, message: dict[str, Any]) -> None:
        self.connection.send_text(encode(message))

    def close(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.close()

    def on_writable(self) -> None:
        self._update_reading()
        stalled, self.stalled = self.stalled, set()
        for subscription in stalled:
            subscription.wake()

    def _update_reading(self) -> None:
        """Stops reading from a client that has not read its answers, has many publications in progress, or a large one
        that is being decoded."""
        self.connection.set_reading_paused(
            not self.connection.is_writable or self._pending >= limits.publications_unanswered_max or self._is_decoding
        )

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def receive_binary(self, data: bytes) -> None:
        self._receive(None)

    def receive_message(self, text: bytes) -> None:
        self._receive(text)

    def _receive(self, text: bytes | None) -> None:
        self._waiting_messages.append(text)
        self._handle_waiting()

    def _handle_waiting(self) -> None:
        """Handles messages in the order in which they came, up to a large publication."""
        while self._waiting_messages and not self._is_decoding:
            text = self._waiting_messages.popleft()
            if text is None:
                self.refuse(None, error("E093", "messages are text; this one is binary"))
            else:
                self._handle_message(text)
        self._update_reading()

    def _handle_message(self, text: bytes) -> None:
        message: ClientMessage | None = None
        try:
            message = parse_message(text.decode())
            kind = message_kind(message)
            self.gateway.counts["messages"] += 1
            if kind != "ack":
                self.gateway.request_limiter.spend(self.caller.principal, 1)
            getattr(self, f"_{kind}")(message)
        except UnicodeDecodeError:
            self.refuse(None, error("E093", "this message is not UTF-8 text"))
        except SmileError as problem:
            self.refuse(None if message is None else _message_id(message), problem)
        except MemoryError:
            self.refuse(None if message is None else _message_id(message), memory_error())

    def refuse(self, id_: int | None, problem: SmileError) -> None:
        self.gateway.refusals[problem.diagnostics[0].code] += 1
        fields: dict[str, Any] = {} if id_ is None else {"id": id_}
        self.send({**fields, "error": error_body(problem)})
        self.end_if_revoked(problem)

    def end(self, problem: SmileError) -> None:
        self.send({"error": error_body(problem)})
        self.connection.close(_POLICY_VIOLATION)

    def end_if_revoked(self, problem: SmileError) -> None:
        """Closes the connection if its token was revoked."""
        if problem.diagnostics[0].code == _TOKEN_REVOKED:
            self.connection.close(_POLICY_VIOLATION)

    def _publish(self, message: ClientMessage) -> None:
        assert message.publish is not None and message.events is not UNSET
        stream, body = message.publish, bytes(message.events)
        sequence = producer_sequence(self.caller.principal, message.producer, message.seq)

        def submit() -> Future[PublishResult]:
            return submit_events(self.gateway, self.caller, stream, "application/json", body, sequence)

        if len(body) <= limits.body_bytes_small:
            self._answer_when_done(submit(), message.id, _published_json)
        else:
            # It may have hundreds of thousands of events: nobody else waits for their decoding.
            self._is_decoding = True
            self._start_task(self._publish_large(submit, message.id))

    async def _publish_large(self, submit: Callable[[], Future[PublishResult]], id_: int | None) -> None:
        """Later messages of the connection wait until the events are decoded, so that their order is kept."""
        try:
            future = await self.gateway.run_in_thread(submit)
            self._answer_when_done(future, id_, _published_json)
        except SmileError as problem:
            self.refuse(id_, problem)
        except MemoryError:
            self.refuse(id_, memory_error())
        finally:
            self._is_decoding = False
            self._handle_waiting()

    async def _send_large(self, to_message: Callable[[], dict[str, Any]]) -> None:
        self.connection.send_text(await self.gateway.run_in_thread(lambda: encode(to_message())))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.gateway.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _silence(self, message: ClientMessage) -> None:
        assert message.silence is not None and message.to is not None
        to = parse_silence_tick(message.to)
        future = submit_silence(self.gateway, self.caller, message.silence, to)
        self._answer_when_done(future, message.id, lambda _: {"silent": tick_json(to)})

    def _answer_when_done(
        self, future: Future[PublishResult], id_: int | None, to_message: Callable[[PublishResult], dict[str, Any]]
    ) -> None:
        self._pending += 1

        def callback(done: Future[PublishResult]) -> None:
            self._pending -= 1
            self._update_reading()
            if self.connection.is_closed:
                return
            try:
                result = done.result()
            except SmileError as problem:
                self.refuse(id_, problem)
                return

            def answer() -> dict[str, Any]:
                return to_message(result) if id_ is None else {"id": id_, **to_message(result)}

            if len(result.ticks) <= limits.answer_ticks_small or self.gateway.stopping:
                self.send(answer())
            else:
                self._start_task(self._send_large(answer))

        self.gateway.pending_publications.add_callback(future, callback)

    def _subscribe(self, message: ClientMessage) -> None:
        name, id_ = message.subscribe, message.id
        assert name is not None and id_ is not None
        self.gateway.require_running()
        self.gateway.require(self.caller, Right.subscribe, name)
        if id_ in self.subscriptions:
            raise error("E093", f"there is a subscription {id_} on this connection already")
        subscriptions_max = self.gateway.settings.subscriptions_per_connection_max
        if len(self.subscriptions) >= subscriptions_max:
            raise HttpError(
                503, "E092", f"this connection has {subscriptions_max:,} subscriptions already", "Open another one."
            )
        if self._delivers_events(message, name):
            self.subscriptions[id_] = events = WebSocketEvents(self, message)
            events.open()
        else:
            self.subscriptions[id_] = rows = WebSocketRows(self, message)
            self.send({"id": id_, **rows.subscribed_fields})
            rows.wake()

    def _delivers_events(self, message: ClientMessage, relation: str) -> bool:
        if message.name is None:
            if message.deliver is not None or message.start is not None or message.scope is not None:
                raise error("E093", "deliver, start and scope are for subscriptions with a name")
            return False
        if message.scope == "global" and message.deliver == "rows":
            raise error("E093", "a global subscription delivers events")
        if message.deliver == "events" and message.after is not None:
            raise error("E093", "after is not for events", hint="Events are delivered as soon as they are logged.")
        if message.deliver is not None:
            return message.deliver == "events"
        if message.scope == "global":
            return True
        return self.gateway.broker.subscriptions.find_selection(relation) is not None

    def _ack(self, message: ClientMessage) -> None:
        assert message.ack is not None
        self._find_subscription(message.ack).acknowledge(message)

    def answer_stored(self, id_: int, stored: "Future[str]", fields: dict[str, Any]) -> None:
        """Answers an acknowledgement when it is stored, with the token of the position."""

        def answer(done: "asyncio.Future[str]") -> None:
            if done.cancelled() or self.connection.is_closed:
                return
            problem = done.exception()
            if isinstance(problem, SmileError):
                self.refuse(id_, problem)
            else:
                self.send({"id": id_, **fields, "resume": done.result()})

        asyncio.wrap_future(stored, loop=self.gateway.loop).add_done_callback(answer)

    def _unsubscribe(self, message: ClientMessage) -> None:
        assert message.unsubscribe is not None
        self._find_subscription(message.unsubscribe).close()
        self.send({"id": message.unsubscribe, "unsubscribed": True})

    def _ping(self, message: ClientMessage) -> None:
        self.send({"pong": message.ping})

    def _find_subscription(self, id_: int) -> WebSocketSubscription:
        subscription = self.subscriptions.get(id_)
        if subscription is None:
            raise error("E093", f"there is no subscription {id_} on this connection")
        return subscription


def _message_id(message: ClientMessage) -> int | None:
    """The id by which the client recognizes the answer."""
    return next((i for i in (message.id, message.ack, message.unsubscribe) if i is not None), None)


def _published_json(result: PublishResult) -> dict[str, Any]:
    answer = {"published": [tick_json(t) for t in result.ticks], "repeated": result.repeated}
    warnings = absent_column_warnings(result)
    return {**answer, "warnings": warnings} if warnings else answer


def accepted_protocol(websocket: WebSocket) -> str | None:
    """A browser that offered subprotocols requires one of them in the answer."""
    protocols = websocket.scope["subprotocols"]
    return PROTOCOL if PROTOCOL in protocols else next((p for p in protocols if p.startswith(TOKEN_PROTOCOL)), None)


async def serve_websocket(gateway: Gateway, websocket: WebSocket) -> None:
    """Serves until the client disconnects or the broker stops."""
    gateway.require_running()
    session = WebSocketSession(gateway, websocket.user, websocket.scope["extensions"][WebSocketConnection.EXTENSION])
    gateway.sessions.add(session)
    try:
        await websocket.accept(accepted_protocol(websocket))
        await websocket.receive()  # websocket.disconnect
    finally:
        gateway.sessions.discard(session)
        session.close()
