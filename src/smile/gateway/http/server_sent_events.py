"""Changes of a view as server-sent events: first its rows, then changes and progress.

The next frame is taken from the view when the previous one was sent. So a slow client receives fewer frames, and
nothing outdated.
"""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest, refuse_filter
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import SmileError
from smile.gateway.access import Right
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.bodies import AFTER_PREFIX, WHERE_PREFIX, ChangesQuery
from smile.gateway.http.request import parse_query, parse_ticks, read_header
from smile.gateway.http.response import encode, error_body, pause_body
from smile.gateway.http.snapshots import TaskSubscriber, parse_condition, parse_values, select_prefix

_HEADERS: Final = {
    "content-type": "text/event-stream",
    # Asks proxies not to buffer the response.
    "x-accel-buffering": "no",
}


class SseSubscriber(TaskSubscriber):
    """A client that receives server-sent events."""

    def __init__(self, gateway: Gateway, request: Request) -> None:
        super().__init__(gateway)
        self.caller: Caller = request.user
        self.ended: SmileError | None = None
        query = parse_query(request, ChangesQuery)
        self.view = gateway.broker.view(request.path_params["view"])
        self.relation = self.view.name
        refuse_filter(query.get("filter", ""))
        condition = parse_condition(self.view, query)
        resume = query.get("resume") or read_header(request, b"last-event-id") or None
        after = parse_ticks(select_prefix(query, AFTER_PREFIX))
        gateway.require_running()
        gateway.add_subscriber(self)
        self._claim: SubscriptionClaim | None = None
        try:
            if query.get("name"):
                # What the client has received it may not have processed: only what it acknowledges counts.
                values = parse_values(self.view.source.type.heading.columns, select_prefix(query, WHERE_PREFIX))
                key = SubscriptionKey(self.caller.principal, query["name"])
                durable = DurableRequest(key, self.view.name, values, query.get("resume") or None)
                self._claim, resume = gateway.broker.subscriptions.open_rows(durable, self.end)
            self.subscription = self.view.subscribe(condition, self.wake, resume, after)
        except SmileError:
            gateway.remove_subscriber(self)
            if self._claim is not None:
                self._claim.release()
            raise

    @property
    def delivery_key(self) -> tuple[int, int]:
        return self.subscription.position

    def end(self, problem: SmileError) -> None:
        self.ended = problem
        self.wake()

    def close(self) -> None:
        self._gateway.remove_subscriber(self)
        self.subscription.close()
        if self._claim is not None:
            self._claim.release()


class ClosableSubscriber(Protocol):
    def close(self) -> None: ...


class EventStream(StreamingResponse):
    """The response to a subscriber. It ends when the client disconnects."""

    def __init__(self, events: AsyncIterator[bytes], subscriber: ClosableSubscriber) -> None:
        super().__init__(events, headers=_HEADERS)
        self._subscriber = subscriber

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscriber.close()


async def stream_changes(gateway: Gateway, request: Request) -> Response:
    """The view's rows, then its changes, as server-sent events: reset, change, progress, paused, end."""
    gateway.require(request.user, Right.subscribe, request.path_params["view"])
    subscriber = SseSubscriber(gateway, request)
    return EventStream(_events(gateway, subscriber), subscriber)


async def _events(gateway: Gateway, subscriber: SseSubscriber) -> AsyncIterator[bytes]:
    while not gateway.stopping:
        frame = None if subscriber.ended else gateway.sse_frames.encode_next(subscriber.subscription)
        if frame is not None:
            gateway.counts["rows"] += frame.row_count
            yield frame.body
            continue
        if subscriber.subscription.take_pause_change():
            yield b"event: paused\ndata: " + encode({"paused": pause_body(subscriber.view.pause)}) + b"\n\n"
        ended = subscriber.ended or subscriber.subscription.ended
        if ended:
            yield b"event: end\ndata: " + encode({"error": error_body(ended)}) + b"\n\n"
            return
        if not await subscriber.wait(limits.heartbeat_s):
            yield b": still here\n\n"
