"""WebSocket: publications and subscriptions on one connection. A message that is wrong is answered with an error, and
the connection goes on.

Nothing is taken from a view for a connection that cannot be written to: what changes meanwhile is told once, later. A
client that does not read its answers is not read from either.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from smile import limits
from smile.broker.publication import Published
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.answers import Refused, encode, error_answer, error_json
from smile.gateway.calls import silence_tick, ticks
from smile.gateway.connections import Wire
from smile.gateway.frames import place_of
from smile.gateway.gateway import TOKEN_PROTOCOL, Gateway, Visitor
from smile.gateway.json import Message, kind_of, message_of
from smile.gateway.publish import numbered_by, silenced, submitted
from smile.knowledge.json import tick_json

PROTOCOL = "smile"
_TOKEN_REVOKED = "E091"
_POLICY = 1008
"""How a WebSocket is closed to those who are not let in any more."""


class Feed:
    """One subscription of a session. `n` is the number of its last frame, `acked` the last that the client has said it
    is done with."""

    __slots__ = ("_id", "_session", "_window", "acked", "n", "subscription", "view", "visitor", "woken")

    def __init__(self, session: "Session", message: Message) -> None:
        assert message.subscribe is not None and message.id is not None
        gateway = session.gateway
        self._session = session
        self._id = message.id
        self._window = message.window
        self.n = self.acked = 0
        self.woken = False
        self.visitor = session.visitor
        self.view = gateway.broker.view(message.subscribe)
        condition = self.view.condition(message.where or {})
        after = ticks(message.after or {})
        gateway.follow(self)
        try:
            self.subscription = self.view.subscribe(condition, self.wake, message.resume, after)
        except SmileError:
            gateway.unfollow(self)
            raise

    def wake(self) -> None:
        self._session.gateway.rounds.wake(self)

    @property
    def place(self) -> tuple[int, int]:
        return place_of(self.subscription)

    def acknowledge(self, n: int) -> None:
        self.acked = max(self.acked, min(n, self.n))
        self.wake()

    def deliver(self) -> bool:
        session = self._session
        if session.wire.is_closed or session.feeds.get(self._id) is not self:
            return False
        if not session.wire.is_writable:
            session.stalled.add(self)
            return False
        if self._window is not None and self.n - self.acked >= self._window:
            return False
        frame = session.gateway.frames.take(self.subscription)
        if frame is None:
            if self.subscription.ended:
                self.end(self.subscription.ended)
            return False
        self.n += 1
        session.wire.tell(b'{"id":%d,"n":%d,%b' % (self._id, self.n, frame.body))
        counts = session.gateway.counts
        counts["frames"] += 1
        counts["rows"] += frame.rows
        return True

    def end(self, problem: SmileError) -> None:
        self._session.tell({"id": self._id, "ended": error_json(problem)})
        self.close()
        if not self._session.feeds:
            self._session.end_if_revoked(problem)

    def close(self) -> None:
        self._session.feeds.pop(self._id, None)
        self._session.stalled.discard(self)
        self._session.gateway.unfollow(self)
        self.subscription.close()


class Session:
    def __init__(self, gateway: Gateway, visitor: Visitor, wire: Wire) -> None:
        self.gateway = gateway
        self.visitor = visitor
        self.wire = wire
        self.feeds: dict[int, Feed] = {}
        self.stalled: set[Feed] = set()
        self._pending = 0
        wire.talker = self

    def tell(self, message: dict[str, Any]) -> None:
        self.wire.tell(encode(message))

    def close(self) -> None:
        for feed in list(self.feeds.values()):
            feed.close()

    def writable(self) -> None:
        self._hold()
        stalled, self.stalled = self.stalled, set()
        for feed in stalled:
            feed.wake()

    def _hold(self) -> None:
        """A client that has not read its answers, or has many to come, is not read from."""
        self.wire.hold(not self.wire.is_writable or self._pending >= limits.publications_under_way_max)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, text: bytes | None) -> None:
        message: Message | None = None
        try:
            if text is None:
                raise error("E093", "messages are text; this one is binary")
            message = message_of(text.decode())
            kind = kind_of(message)
            self.gateway.counts["messages"] += 1
            if kind != "ack":
                self.gateway.requests.spend(self.visitor.principal, 1)
            getattr(self, f"_{kind}")(message)
        except UnicodeDecodeError:
            self._refuse(None, error("E093", "this message is not UTF-8 text"))
        except SmileError as problem:
            self._refuse(None if message is None else _id_of(message), problem)
        self._hold()

    def _refuse(self, id_: int | None, problem: SmileError) -> None:
        self.gateway.refusals[problem.diagnostics[0].code] += 1
        told: dict[str, Any] = {} if id_ is None else {"id": id_}
        self.tell({**told, "error": error_json(problem)})
        self.end_if_revoked(problem)

    def end_if_revoked(self, problem: SmileError) -> None:
        """Whose token is good no more has nothing to say here."""
        if problem.diagnostics[0].code == _TOKEN_REVOKED:
            self.wire.end(_POLICY)

    def _publish(self, message: Message) -> None:
        assert message.publish is not None and message.events is not UNSET
        numbered = numbered_by(message.producer, message.seq)
        body = bytes(message.events)
        future = submitted(self.gateway, self.visitor, message.publish, "application/json", body, numbered)
        self._answer(future, message.id, _published)

    def _silence(self, message: Message) -> None:
        assert message.silence is not None and message.to is not None
        to = silence_tick(message.to)
        future = silenced(self.gateway, self.visitor, message.silence, to)
        self._answer(future, message.id, lambda _: {"silent": tick_json(to)})

    def _answer(self, future: Future[Published], id_: int | None, told: Callable[[Published], dict[str, Any]]) -> None:
        self._pending += 1

        def then(done: Future[Published]) -> None:
            self._pending -= 1
            self._hold()
            if self.wire.is_closed:
                return
            try:
                answer = told(done.result())
            except SmileError as problem:
                self._refuse(id_, problem)
            else:
                self.tell(answer if id_ is None else {"id": id_, **answer})

        self.gateway.returns.when_done(future, then)

    def _subscribe(self, message: Message) -> None:
        name, id_ = message.subscribe, message.id
        assert name is not None and id_ is not None
        self.gateway.require_running()
        self.gateway.require(self.visitor, Right.subscribe, name)
        if id_ in self.feeds:
            raise error("E093", f"there is a subscription {id_} on this connection already")
        most = self.gateway.settings.subscriptions_per_connection_max
        if len(self.feeds) >= most:
            raise Refused(503, "E092", f"this connection has {most:,} subscriptions already", "Open another one.")
        feed = self.feeds[id_] = Feed(self, message)
        heading = feed.view.source.type.heading
        columns = {c: str(heading.columns[c]) for c in (*heading.key, *heading.values)}
        told = {"subscribed": feed.view.name, "key": list(heading.key), "columns": columns}
        self.tell({"id": id_, **told, "streams": list(feed.view.horizons)})
        feed.wake()

    def _ack(self, message: Message) -> None:
        assert message.ack is not None and message.n is not None
        self._feed(message.ack).acknowledge(message.n)

    def _unsubscribe(self, message: Message) -> None:
        assert message.unsubscribe is not None
        self._feed(message.unsubscribe).close()
        self.tell({"id": message.unsubscribe, "unsubscribed": True})

    def _ping(self, message: Message) -> None:
        self.tell({"pong": message.ping})

    def _feed(self, id_: int) -> Feed:
        found = self.feeds.get(id_)
        if found is None:
            raise error("E093", f"there is no subscription {id_} on this connection")
        return found


def _id_of(message: Message) -> int | None:
    """By which the client knows what is meant."""
    return next((i for i in (message.id, message.ack, message.unsubscribe) if i is not None), None)


def _published(done: Published) -> dict[str, Any]:
    return {"published": [tick_json(t) for t in done.ticks], "repeated": done.repeated}


async def websocket(gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
    """Until the client goes or the broker stops."""
    protocols = scope["subprotocols"]
    await receive()  # the wish to connect
    try:
        gateway.require_running()
        visitor = gateway.visitor(scope["headers"], protocols)
    except SmileError as problem:
        await refuse(send, problem)
        return
    # A browser that offered protocols needs one of them.
    ours = PROTOCOL if PROTOCOL in protocols else next((p for p in protocols if p.startswith(TOKEN_PROTOCOL)), None)
    session = Session(gateway, visitor, scope["extensions"][Wire.EXTENSION])
    try:
        await send({"type": "websocket.accept", "subprotocol": ours})
        await receive()  # the end
    finally:
        session.close()


async def refuse(send: Send, problem: SmileError) -> None:
    """Before there is a connection: as HTTP says it."""
    answer = error_answer(problem)
    headers = [(b"content-type", answer.kind), *answer.headers]
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})
