"""WebSockets: publications and subscriptions on one connection. A wrong message is answered with an error, and the
connection continues.

Nothing is taken from a view while the connection cannot be written to; a row that changes several times meanwhile is
sent once, later. The server does not read from a client that does not read its answers.
"""

from collections.abc import Callable
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
from smile.gateway.http.publish import producer_sequence, submit_events, submit_silence
from smile.gateway.http.request import parse_silence_tick, parse_ticks
from smile.gateway.http.response import HttpError, encode, error_body, pause_body
from smile.gateway.uvicorn_internals import WebSocketConnection
from smile.horizons import without_origins
from smile.knowledge.values.json import tick_json

PROTOCOL = "smile"
_TOKEN_REVOKED = "E091"
_POLICY_VIOLATION = 1008
"""The code that closes the connection of a client whose token was revoked."""


class WebSocketSubscription:
    """A subscription of a session. `n` is the number of its last frame, `acked` that of the last one the client has
    acknowledged."""

    __slots__ = ("_id", "_session", "_window", "acked", "caller", "is_scheduled", "n", "subscription", "view")

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
        gateway.add_subscriber(self)
        try:
            self.subscription = self.view.subscribe(condition, self.wake, message.resume, after)
        except SmileError:
            gateway.remove_subscriber(self)
            raise

    def wake(self) -> None:
        self._session.gateway.scheduler.schedule(self)

    @property
    def delivery_key(self) -> tuple[int, int]:
        return self.subscription.position

    def acknowledge(self, n: int) -> None:
        self.acked = max(self.acked, min(n, self.n))
        self.wake()

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
        session.connection.send_text(b'{"id":%d,"n":%d,%b' % (self._id, self.n, frame.body))
        counts = session.gateway.counts
        counts["frames"] += 1
        counts["rows"] += frame.row_count
        return True

    def end(self, problem: SmileError) -> None:
        self._session.send({"id": self._id, "ended": error_body(problem)})
        self.close()
        if not self._session.subscriptions:
            self._session.end_if_revoked(problem)

    def close(self) -> None:
        self._session.subscriptions.pop(self._id, None)
        self._session.stalled.discard(self)
        self._session.gateway.remove_subscriber(self)
        self.subscription.close()


class WebSocketSession:
    def __init__(self, gateway: Gateway, caller: Caller, connection: WebSocketConnection) -> None:
        self.gateway = gateway
        self.caller = caller
        self.connection = connection
        self.subscriptions: dict[int, WebSocketSubscription] = {}
        self.stalled: set[WebSocketSubscription] = set()
        self._pending = 0
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
        """Stops reading from a client that has not read its answers, or has many publications in progress."""
        self.connection.set_reading_paused(
            not self.connection.is_writable or self._pending >= limits.publications_unanswered_max
        )

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def receive_binary(self, data: bytes) -> None:
        self._refuse(None, error("E093", "messages are text; this one is binary"))
        self._update_reading()

    def receive_message(self, text: bytes) -> None:
        message: ClientMessage | None = None
        try:
            message = parse_message(text.decode())
            kind = message_kind(message)
            self.gateway.counts["messages"] += 1
            if kind != "ack":
                self.gateway.request_limiter.spend(self.caller.principal, 1)
            getattr(self, f"_{kind}")(message)
        except UnicodeDecodeError:
            self._refuse(None, error("E093", "this message is not UTF-8 text"))
        except SmileError as problem:
            self._refuse(None if message is None else _message_id(message), problem)
        except MemoryError:
            self._refuse(None if message is None else _message_id(message), memory_error())
        self._update_reading()

    def _refuse(self, id_: int | None, problem: SmileError) -> None:
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
        sequence = producer_sequence(self.caller.principal, message.producer, message.seq)
        body = bytes(message.events)
        future = submit_events(self.gateway, self.caller, message.publish, "application/json", body, sequence)
        self._answer_when_done(future, message.id, _published_json)

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
                message = to_message(done.result())
            except SmileError as problem:
                self._refuse(id_, problem)
            else:
                self.send(message if id_ is None else {"id": id_, **message})

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
        subscription = self.subscriptions[id_] = WebSocketSubscription(self, message)
        heading = subscription.view.source.type.heading
        columns = {c: str(heading.columns[c]) for c in (*heading.key, *heading.value_columns)}
        fields = {"subscribed": subscription.view.name, "key": list(heading.key), "columns": columns}
        self.send({"id": id_, **fields, "streams": list(without_origins(subscription.view.horizons))})
        subscription.wake()

    def _ack(self, message: ClientMessage) -> None:
        assert message.ack is not None and message.n is not None
        self._find_subscription(message.ack).acknowledge(message.n)

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
