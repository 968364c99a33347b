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
from smile.broker.subscriptions.durable_subscriptions import DurableRequest, SubscriptionClaim
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.broker.views.view import ViewSubscription
from smile.errors import SmileError, error, memory_error
from smile.gateway.access import Right
from smile.gateway.client_messages import ClientMessage, message_kind, parse_message
from smile.gateway.delivery_scheduler import call_on_loop
from smile.gateway.event_frames import EncodedEvents, read_events
from smile.gateway.gateway import TOKEN_PROTOCOL, Caller, Gateway
from smile.gateway.http.publish import producer_sequence, submit_events, submit_silence
from smile.gateway.http.request import parse_silence_tick, parse_tick, parse_ticks
from smile.gateway.http.response import HttpError, encode, error_body, pause_body
from smile.gateway.uvicorn_internals import WebSocketConnection
from smile.horizons import shown_horizons
from smile.knowledge.values.json import tick_json

PROTOCOL = "smile"
_TOKEN_REVOKED = "E091"
_POLICY_VIOLATION = 1008
"""The code that closes the connection of a client whose token was revoked."""


class WebSocketSubscription:
    """A subscription of a session. `n` is the number of its last frame, `acked` that of the last one the client has
    acknowledged. If it has a name, the broker stores the progress that was acknowledged."""

    __slots__ = (
        "_claim",
        "_id",
        "_session",
        "_tokens",
        "_window",
        "acked",
        "caller",
        "is_scheduled",
        "n",
        "subscription",
        "view",
    )

    def __init__(self, session: "WebSocketSession", message: ClientMessage) -> None:
        assert message.subscribe is not None and message.id is not None
        gateway = session.gateway
        self._session = session
        self._id = message.id
        self._window = message.window
        self.n = self.acked = 0
        self.is_scheduled = False
        self.caller = session.caller
        self.view = gateway.broker.view(message.subscribe)
        condition = self.view.condition(message.where or {})
        after = parse_ticks(message.after or {})
        self._claim: SubscriptionClaim | None = None
        self._tokens: deque[tuple[int, str]] = deque()
        """The tokens of the frames of a named subscription that are not acknowledged."""
        gateway.add_subscriber(self)
        try:
            resume = message.resume
            if message.name is not None:
                request = _durable_request(session.caller, message)
                self._claim, resume = gateway.broker.subscriptions.open_rows(request, self._end_from_thread)
            self.subscription = self.view.subscribe(condition, self.wake, resume, after)
        except SmileError:
            gateway.remove_subscriber(self)
            if self._claim is not None:
                self._claim.release()
            raise

    @property
    def relation(self) -> str:
        return self.view.name

    @property
    def subscribed_fields(self) -> dict[str, Any]:
        heading = self.view.source.type.heading
        columns = {c: str(heading.columns[c]) for c in (*heading.key, *heading.value_columns)}
        fields = {"subscribed": self.view.name, "key": list(heading.key), "columns": columns}
        named = {} if self._claim is None else {"name": self._claim.key.name, "delivers": "rows"}
        return {**fields, "streams": list(shown_horizons(self.view.horizons)), **named}

    def wake(self) -> None:
        self._session.gateway.scheduler.schedule(self)

    def _end_from_thread(self, problem: SmileError) -> None:
        call_on_loop(self._session.gateway.loop, lambda: self.end(problem))

    @property
    def cursor(self) -> ViewSubscription:
        return self.subscription

    @property
    def delivery_key(self) -> tuple[int, int]:
        return self.subscription.position

    def acknowledge(self, message: ClientMessage) -> None:
        if message.n is None:
            raise error("E093", "ack needs n", hint="Ticks acknowledge events; rows are acknowledged by frames.")
        self.acked = max(self.acked, min(message.n, self.n))
        self.wake()
        if self._claim is None:
            return
        token: str | None = None
        while self._tokens and self._tokens[0][0] <= self.acked:
            _, token = self._tokens.popleft()
        if token is None:  # none of these frames ends with progress
            self._session.send({"id": self._id, "acked": self.acked})
            return
        self._session.answer_stored(self._id, self._claim.acknowledge_rows(token), {"acked": self.acked})

    def deliver(self) -> bool:
        session = self._session
        if session.connection.is_closed or session.subscriptions.get(self._id) is not self:
            return False
        if not session.connection.is_writable:
            session.stalled.add(self)
            return False
        if self.subscription.take_pause_change():
            session.send({"id": self._id, "paused": pause_body(self.view.pause)})
        if self._window is not None and self.n - self.acked >= self._window:
            return False
        frame = session.gateway.websocket_frames.encode_next(self.subscription)
        if frame is None:
            if self.subscription.ended:
                self.end(self.subscription.ended)
            return False
        self.n += 1
        if self._claim is not None and frame.resume is not None:
            self._tokens.append((self.n, frame.resume))
        session.connection.send_text(b'{"id":%d,"n":%d,%b' % (self._id, self.n, frame.body))
        counts = session.gateway.counts
        counts["frames"] += 1
        counts["rows"] += frame.row_count
        return True

    def end(self, problem: SmileError) -> None:
        if self._session.subscriptions.get(self._id) is not self:
            return
        self._session.send({"id": self._id, "ended": error_body(problem)})
        self.close()
        if not self._session.subscriptions:
            self._session.end_if_revoked(problem)

    def close(self) -> None:
        self._session.subscriptions.pop(self._id, None)
        self._session.stalled.discard(self)
        self._session.gateway.remove_subscriber(self)
        self.subscription.close()
        if self._claim is not None:
            self._claim.release()


class WebSocketEvents:
    """A durable subscription of a session that receives events. They are read from the log in another thread, one frame
    at a time."""

    delivery_key = (0, 0)
    cursor = None

    def __init__(self, session: "WebSocketSession", message: ClientMessage) -> None:
        assert message.subscribe is not None and message.id is not None
        self._session, self._id = session, message.id
        self.caller, self.relation = session.caller, message.subscribe
        self.is_scheduled = False
        self._request = _durable_request(session.caller, message)
        self._claim: SubscriptionClaim | None = None
        self._frame: EncodedEvents | None = None
        self._is_reading = self._is_woken = False
        session.gateway.add_subscriber(self)

    def open(self) -> None:
        """Continues when the position is known. Then the subscription is answered."""
        gateway, request = self._session.gateway, self._request
        opening = gateway.loop.create_task(
            gateway.read_log(
                lambda: gateway.broker.subscriptions.open_events(request, self.wake, self._end_from_thread)
            )
        )
        opening.add_done_callback(self._opened)

    def _opened(self, opening: "asyncio.Task[SubscriptionClaim]") -> None:
        problem = None if opening.cancelled() else opening.exception()
        is_closed = self._session.connection.is_closed or self._session.subscriptions.get(self._id) is not self
        if isinstance(problem, SmileError):
            self.close()
            if not is_closed:
                self._session.refuse(self._id, problem)
        elif is_closed or problem is not None or opening.cancelled():
            self.close()
            if problem is None and not opening.cancelled():
                opening.result().release()
            elif problem is not None:
                raise problem
        else:
            self._claim = opening.result()
            assert self._claim.events is not None
            source, position = self._claim.events.selection.source, self._claim.events.position
            columns = {c: str(source.type.heading.columns[c]) for c in source.type.heading.value_columns}
            ticks = {origin: tick_json(tick) for origin, tick in position.items()}
            fields = {"subscribed": self.relation, "name": self._claim.key.name, "delivers": "events"}
            self._session.send({"id": self._id, **fields, "columns": columns, "position": ticks})
            self.wake()

    def wake(self) -> None:
        self._session.gateway.scheduler.schedule(self)

    def _end_from_thread(self, problem: SmileError) -> None:
        call_on_loop(self._session.gateway.loop, lambda: self.end(problem))

    def acknowledge(self, message: ClientMessage) -> None:
        if self._claim is None:
            raise error("E093", f"the subscription {self._id} is not answered yet")
        if (message.n is None) == (message.at is None):
            raise error("E093", "ack needs n or at", hint="n is the number of a frame, at has ticks by origin.")
        if message.at is not None:
            ticks = {origin: parse_tick(tick, "at") for origin, tick in message.at.items()}
            stored = self._claim.acknowledge_events(ticks)
            acked: Any = message.at
        else:
            assert message.n is not None
            stored, acked = self._claim.acknowledge_frame(message.n), message.n
        self._session.answer_stored(self._id, stored, {"acked": acked})

    def deliver(self) -> bool:
        session = self._session
        if self._claim is None or session.connection.is_closed or session.subscriptions.get(self._id) is not self:
            return False
        if not session.connection.is_writable:
            session.stalled.add(self)
            return False
        if self._frame is not None:
            session.connection.send_text(self._frame.websocket_body(self._id))
            session.gateway.counts["frames"] += 1
            session.gateway.counts["rows"] += len(self._frame.messages)
            self._frame = None
        if self._is_reading:
            self._is_woken = True
        elif not session.gateway.stopping:
            self._is_reading, self._is_woken = True, False
            events = self._claim.events
            assert events is not None
            reading = session.gateway.loop.create_task(session.gateway.read_log(lambda: read_events(events)))
            reading.add_done_callback(self._received)
        return False

    def _received(self, reading: "asyncio.Task[EncodedEvents | None]") -> None:
        self._is_reading = False
        if reading.cancelled():
            return
        problem = reading.exception()
        if isinstance(problem, SmileError):
            self.end(problem)
        elif problem is not None:
            self.end(error("E105", f"the events cannot be read: {problem!r}"))
            raise problem
        else:
            self._frame = reading.result()
            if self._frame is not None or self._is_woken:
                self.wake()

    def end(self, problem: SmileError) -> None:
        if self._session.subscriptions.get(self._id) is not self:
            return
        self._session.send({"id": self._id, "ended": error_body(problem)})
        self.close()
        if not self._session.subscriptions:
            self._session.end_if_revoked(problem)

    def close(self) -> None:
        self._session.subscriptions.pop(self._id, None)
        self._session.stalled.discard(self)
        self._session.gateway.remove_subscriber(self)
        if self._claim is not None:
            self._claim.release()


def _durable_request(caller: Caller, message: ClientMessage) -> DurableRequest:
    assert message.name is not None and message.subscribe is not None
    return DurableRequest(
        SubscriptionKey(caller.principal, message.name),
        message.subscribe,
        message.where or {},
        message.resume,
        message.start or "all",
        message.window or limits.durable_window_events,
    )


class WebSocketSession:
    def __init__(self, gateway: Gateway, caller: Caller, connection: WebSocketConnection) -> None:
        self.gateway = gateway
        self.caller = caller
        self.connection = connection
        self.subscriptions: dict[int, WebSocketSubscription | WebSocketEvents] = {}
        self.stalled: set[WebSocketSubscription | WebSocketEvents] = set()
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
            events = self.subscriptions[id_] = WebSocketEvents(self, message)
            events.open()
            return
        subscription = self.subscriptions[id_] = WebSocketSubscription(self, message)
        self.send({"id": id_, **subscription.subscribed_fields})
        subscription.wake()

    def _delivers_events(self, message: ClientMessage, relation: str) -> bool:
        if message.name is None:
            if message.deliver is not None or message.start is not None:
                raise error("E093", "deliver and start are for subscriptions with a name")
            return False
        if message.deliver == "events" and message.after is not None:
            raise error("E093", "after is not for events", hint="Events are delivered as soon as they are logged.")
        if message.deliver is not None:
            return message.deliver == "events"
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

    def _find_subscription(self, id_: int) -> WebSocketSubscription | WebSocketEvents:
        subscription = self.subscriptions.get(id_)
        if subscription is None:
            raise error("E093", f"there is no subscription {id_} on this connection")
        return subscription


def _message_id(message: ClientMessage) -> int | None:
    """The id by which the client recognizes the answer."""
    return next((i for i in (message.id, message.ack, message.unsubscribe) if i is not None), None)


def _published_json(result: PublishResult) -> dict[str, Any]:
    return {"published": [tick_json(t) for t in result.ticks], "repeated": result.repeated}


async def serve_websocket(gateway: Gateway, websocket: WebSocket) -> None:
    """Serves until the client disconnects or the broker stops."""
    gateway.require_running()
    protocols = websocket.scope["subprotocols"]
    # A browser that offered subprotocols requires one of them in the answer.
    subprotocol = (
        PROTOCOL if PROTOCOL in protocols else next((p for p in protocols if p.startswith(TOKEN_PROTOCOL)), None)
    )
    session = WebSocketSession(gateway, websocket.user, websocket.scope["extensions"][WebSocketConnection.EXTENSION])
    gateway.sessions.add(session)
    try:
        await websocket.accept(subprotocol)
        await websocket.receive()  # websocket.disconnect
    finally:
        gateway.sessions.discard(session)
        session.close()
