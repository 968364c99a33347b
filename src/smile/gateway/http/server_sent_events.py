"""Changes of a view as server-sent events: first its rows, then changes and progress.

The next frame is taken from the view when the previous one was sent. So a slow client receives fewer frames, and
nothing outdated.
"""

import asyncio

from smile import limits
from smile.errors import SmileError
from smile.gateway.access import Right
from smile.gateway.frames import delivery_key
from smile.gateway.http.request import HttpRequest, parse_ticks
from smile.gateway.http.response import encode, error_json
from smile.gateway.http.snapshots import AFTER_PREFIX, WHERE_PREFIX, TaskSubscriber, parse_condition, select_prefix

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Asks proxies not to buffer the response.
    (b"x-accel-buffering", b"no"),
]


class SseSubscriber(TaskSubscriber):
    """A client that receives server-sent events."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request.gateway)
        self.caller = request.caller
        self.ended: SmileError | None = None
        query = request.query(("resume",), (WHERE_PREFIX, AFTER_PREFIX))
        self.view = request.gateway.broker.view(request.name)
        condition = parse_condition(self.view, query)
        resume = query.get("resume") or request.header(b"last-event-id") or None
        after = parse_ticks(select_prefix(query, AFTER_PREFIX))
        request.gateway.require_running()
        request.gateway.add_subscriber(self)
        try:
            self.subscription = self.view.subscribe(condition, self.wake, resume, after)
        except SmileError:
            request.gateway.remove_subscriber(self)
            raise

    @property
    def delivery_key(self) -> tuple[int, int]:
        return delivery_key(self.subscription)

    def end(self, problem: SmileError) -> None:
        self.ended = problem
        self.wake()

    def close(self) -> None:
        self._gateway.remove_subscriber(self)
        self.subscription.close()


async def stream_changes(request: HttpRequest) -> None:
    request.require(Right.subscribe, request.name)
    subscriber = SseSubscriber(request)
    disconnected = asyncio.create_task(_wait_for_disconnect(request))
    disconnected.add_done_callback(lambda _: subscriber.wake())
    try:
        await request.send(
            {"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *request.cors_headers]}
        )
        while not disconnected.done() and not request.gateway.stopping:
            frame = None if subscriber.ended else request.gateway.sse_frames.take(subscriber.subscription)
            if frame is not None:
                request.gateway.counts["rows"] += frame.row_count
                await _send(request, frame.body)
                continue
            ended = subscriber.ended or subscriber.subscription.ended
            if ended:
                await _send(request, b"event: end\ndata: " + encode({"error": error_json(ended)}) + b"\n\n")
                break
            if not await subscriber.wait(limits.heartbeat_s):
                await _send(request, b": still here\n\n")
        await request.send({"type": "http.response.body", "body": b""})
    finally:
        disconnected.cancel()
        subscriber.close()


async def _send(request: HttpRequest, body: bytes) -> None:
    await request.send({"type": "http.response.body", "body": body, "more_body": True})


async def _wait_for_disconnect(request: HttpRequest) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
