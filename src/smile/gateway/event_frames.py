"""Reads and encodes the events of durable subscriptions. It is done in threads, since the log is on the disk."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.event_subscription import EventFrame, EventSubscription
from smile.errors import SmileError
from smile.gateway.access import Right
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.response import ProgramError, encode
from smile.source import Source


def open_events(
    gateway: Gateway,
    caller: Caller,
    request: DurableRequest,
    waker: Callable[[], None],
    on_end: Callable[[SmileError], None],
) -> SubscriptionClaim:
    """Begins to deliver events. The caller also needs the right to subscribe to the tables that the filter reads. An
    error in the text of the filter has its position in it."""
    subscriptions = gateway.broker.subscriptions
    try:
        for table in subscriptions.tables_of(request):
            gateway.require(caller, Right.subscribe, table)
        return subscriptions.open_events(request, waker, on_end)
    except SmileError as problem:
        if problem.diagnostics[0].span is None:
            raise
        raise ProgramError(problem, Source("filter", request.filter)) from None


@dataclass(frozen=True)
class EncodedEvents:
    """A frame of events, each encoded."""

    frame: EventFrame
    messages: list[bytes]

    def websocket_body(self, id_: int) -> bytes:
        parts = (id_, self.frame.number, b",".join(self.messages), encode(self.frame.resume))
        return b'{"id":%d,"n":%d,"events":[%b],"resume":%b}' % parts

    def sse_body(self) -> bytes:
        """The id of an event is the token that acknowledges it and all before it."""
        return b"".join(
            b"event: event\nid: " + token.encode() + b"\ndata: " + message + b"\n\n"
            for token, message in zip(self.frame.tokens(), self.messages, strict=True)
        )


def read_events(gateway: Gateway, subscription: EventSubscription) -> EncodedEvents | None:
    """The next frame, with as many events as fit into it, but at least one."""
    frame = subscription.next_frame(limits.frame_rows_max)
    if frame is None:
        return None
    messages = gateway.event_encoder.encode(subscription.selection, frame)
    sizes = accumulate(map(len, messages))
    count = next((i for i, size in enumerate(sizes) if size > limits.frame_rows_bytes_max), len(messages))
    if count < len(messages):
        count = max(1, count)
        frame = subscription.return_events(frame, count)
    return EncodedEvents(frame, messages[:count])
