"""What all subscriptions on a WebSocket have in common: when they deliver, and how they end."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.broker.views.view import ViewSubscription
from smile.errors import SmileError
from smile.gateway.client_messages import ClientMessage
from smile.gateway.delivery_scheduler import call_on_loop
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.response import error_body
from smile.gateway.uvicorn_internals import WebSocketConnection


class SubscriberSession(Protocol):
    """What a subscription needs of its session. `stalled` has the subscriptions that wait until the connection can be
    written to."""

    gateway: Gateway
    caller: Caller
    connection: WebSocketConnection
    subscriptions: "dict[int, WebSocketSubscription]"
    stalled: "set[WebSocketSubscription]"

    def send(self, message: dict[str, Any]) -> None: ...

    def refuse(self, id_: int | None, problem: SmileError) -> None: ...

    def answer_stored(self, id_: int, stored: "Future[str]", fields: dict[str, Any]) -> None: ...

    def end_if_revoked(self, problem: SmileError) -> None: ...


class WebSocketSubscription(ABC):
    """A subscription of a session. `_claim` is its name, if it is durable: then the broker stores what was
    acknowledged."""

    __slots__ = ("_claim", "_id", "_session", "caller", "is_scheduled")

    def __init__(self, session: SubscriberSession, message: ClientMessage) -> None:
        assert message.id is not None
        self._session, self._id = session, message.id
        self._claim: SubscriptionClaim | None = None
        self.caller = session.caller
        self.is_scheduled = False

    @property
    @abstractmethod
    def relation(self) -> str: ...

    @property
    def tables(self) -> Iterable[str]:
        return () if self._claim is None else self._claim.tables

    @property
    @abstractmethod
    def cursor(self) -> ViewSubscription | None: ...

    @property
    @abstractmethod
    def delivery_key(self) -> tuple[int, int]: ...

    @abstractmethod
    def acknowledge(self, message: ClientMessage) -> None: ...

    @abstractmethod
    def _deliver_next(self) -> bool:
        """Sends one frame. Returns whether there may be more."""

    @property
    def _is_open(self) -> bool:
        session = self._session
        return not session.connection.is_closed and session.subscriptions.get(self._id) is self

    def wake(self) -> None:
        """Thread-safe. There may be something to deliver."""
        self._session.gateway.scheduler.schedule(self)

    def deliver(self) -> bool:
        if not self._is_open:
            return False
        if not self._session.connection.is_writable:
            self._session.stalled.add(self)
            return False
        return self._deliver_next()

    def _count_frame(self, row_count: int) -> None:
        counts = self._session.gateway.counts
        counts["frames"] += 1
        counts["rows"] += row_count

    def end(self, problem: SmileError) -> None:
        """Tells the client why the subscription ends."""
        if self._session.subscriptions.get(self._id) is not self:
            return
        self._session.send({"id": self._id, "ended": error_body(problem)})
        self.close()
        if not self._session.subscriptions:
            self._session.end_if_revoked(problem)

    def _end_from_thread(self, problem: SmileError) -> None:
        call_on_loop(self._session.gateway.loop, lambda: self.end(problem))

    def close(self) -> None:
        self._session.subscriptions.pop(self._id, None)
        self._session.stalled.discard(self)
        self._session.gateway.remove_subscriber(self)
        if self._claim is not None:
            self._claim.release()


def durable_request(caller: Caller, message: ClientMessage) -> DurableRequest:
    assert message.name is not None and message.subscribe is not None
    return DurableRequest(
        SubscriptionKey(caller.principal, message.name),
        message.subscribe,
        message.where or {},
        message.resume,
        message.start or "all",
        message.window or limits.durable_window_events,
        message.scope or "local",
        message.filter or "",
    )
