"""Reads and encodes the events of durable subscriptions. It is done in threads, since the log is on the disk."""

from dataclasses import dataclass
from itertools import accumulate

from smile import limits
from smile.broker.subscriptions.event_subscription import EventFrame, EventSubscription
from smile.encoding.json_events import json_events
from smile.gateway.http.response import encode


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


def read_events(subscription: EventSubscription) -> EncodedEvents | None:
    """The next frame, with as many events as fit into it, but at least one."""
    frame = subscription.next_frame(limits.frame_rows_max)
    if frame is None:
        return None
    messages = [encode(event) for event in json_events(frame.source, frame.rows, frame.ticks, frame.origins)]
    sizes = accumulate(map(len, messages))
    count = next((i for i, size in enumerate(sizes) if size > limits.frame_rows_bytes_max), len(messages))
    if count < len(messages):
        count = max(1, count)
        frame = subscription.return_events(frame, count)
    return EncodedEvents(frame, messages[:count])
