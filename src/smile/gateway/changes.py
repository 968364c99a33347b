"""Changes of a view as server-sent events: first what it shows, then what changes, and how far everything is known.

Nothing is taken from the view before the last of it has gone out, so that a slow reader is told less, and nothing old.
"""

import asyncio

from smile import limits
from smile.errors import SmileError
from smile.gateway.access import Right
from smile.gateway.answers import encode, error_json
from smile.gateway.calls import Call, ticks
from smile.gateway.frames import place_of
from smile.gateway.views import AFTER, WHERE, Waiter, condition_of, prefixed

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Asks proxies not to hold it back.
    (b"x-accel-buffering", b"no"),
]


class Listener(Waiter):
    """A reader of server-sent events."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.gateway)
        self.visitor = call.visitor
        self.ended: SmileError | None = None
        query = call.query(("resume",), (WHERE, AFTER))
        self.view = call.gateway.broker.view(call.name)
        condition = condition_of(self.view, query)
        resume = query.get("resume") or call.header(b"last-event-id") or None
        after = ticks(prefixed(query, AFTER))
        call.gateway.require_running()
        call.gateway.follow(self)
        try:
            self.subscription = self.view.subscribe(condition, self.wake, resume, after)
        except SmileError:
            call.gateway.unfollow(self)
            raise

    @property
    def place(self) -> tuple[int, int]:
        return place_of(self.subscription)

    def end(self, problem: SmileError) -> None:
        self.ended = problem
        self.wake()

    def close(self) -> None:
        self._gateway.unfollow(self)
        self.subscription.close()


async def changes(call: Call) -> None:
    call.require(Right.subscribe, call.name)
    listener = Listener(call)
    gone = asyncio.create_task(_gone(call))
    gone.add_done_callback(lambda _: listener.wake())
    try:
        await call.send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *call.shared]})
        while not gone.done() and not call.gateway.stopping:
            frame = None if listener.ended else call.gateway.server_sent.take(listener.subscription)
            if frame is not None:
                call.gateway.counts["rows"] += frame.rows
                await _send(call, frame.body)
                continue
            ended = listener.ended or listener.subscription.ended
            if ended:
                await _send(call, b"event: end\ndata: " + encode({"error": error_json(ended)}) + b"\n\n")
                break
            if not await listener.wait(limits.heartbeat_s):
                await _send(call, b": still here\n\n")
        await call.send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        listener.close()


async def _send(call: Call, body: bytes) -> None:
    await call.send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(call: Call) -> None:
    """Until the reader hangs up."""
    while (await call.receive())["type"] != "http.disconnect":
        pass
