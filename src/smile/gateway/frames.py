"""Encodes the next frame of a subscription for the wire: as many rows as fit into `limits.frame_rows_bytes_max`, but at
least one, and at most `limits.frame_rows_max`. A frame for several subscribers is encoded once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final
from weakref import ReferenceType, ref

from smile import limits
from smile.broker.views.subscription import ViewSubscription
from smile.broker.views.view_frame import ViewFrame
from smile.broker.views.view_store import RowChunk
from smile.columns.values import Indices
from smile.gateway.http.response import encode

_FIRST_ROWS: Final = 16
_ROWS_GROWTH: Final = 8
"""The sizes of rows are not known before they are encoded: so many are encoded first, and at most so many times those
that were encoded before in the next steps."""


@dataclass(frozen=True)
class EncodedFrame:
    """`last_change` is the number of its last change if more changes follow, else None."""

    body: bytes
    row_count: int
    last_change: int | None


class FrameEncoder:
    """Caches the last frame: subscribers that receive the same frame are served in sequence."""

    def __init__(self, encode: Callable[[ViewFrame, Sequence[bytes]], bytes]) -> None:
        self._encode = encode
        self._last_frame_ref: ReferenceType[ViewFrame] | None = None
        self._last_encoded = EncodedFrame(b"", 0, None)

    def take(self, subscription: ViewSubscription) -> EncodedFrame | None:
        """The next frame; rows that do not fit into it are taken the next time."""
        previous = subscription.progress, subscription.progress_due
        frame = subscription.take(limits.frame_rows_max)
        if frame is None:
            return None
        if self._last_frame_ref is None or self._last_frame_ref() is not frame:
            self._last_frame_ref, self._last_encoded = ref(frame), self._encode_frame(frame)
        if self._last_encoded.last_change is not None:
            subscription.last_change = self._last_encoded.last_change
            subscription.progress, subscription.progress_due = previous
        return self._last_encoded

    def _encode_frame(self, frame: ViewFrame) -> EncodedFrame:
        messages, last = first_messages(frame)
        if last is not None:
            frame = replace(frame, progress=None, resume=None)
        return EncodedFrame(self._encode(frame, messages), len(messages), last)


def first_messages(frame: ViewFrame) -> tuple[list[bytes], int | None]:
    """The encoded rows that fit into a frame, and the number of the last change among them if more rows follow."""
    encoded: list[bytes] = []
    bytes_left, last = limits.frame_rows_bytes_max, None
    for chunk, rows in frame.parts:
        begin = 0
        while begin < len(rows):
            selected = rows[begin : begin + _next_row_count(len(encoded), bytes_left)]
            begin += len(selected)
            messages = _row_messages(frame, chunk, selected)
            fitting_count = (
                _fitting_count(messages, bytes_left) if encoded else max(1, _fitting_count(messages, bytes_left))
            )
            encoded += messages[:fitting_count]
            bytes_left -= sum(map(len, messages[:fitting_count]))
            if fitting_count:
                last = int(chunk.change_numbers[selected[fitting_count - 1]])
            if fitting_count < len(messages):
                return encoded, last
    return encoded, None


def _row_messages(frame: ViewFrame, chunk: RowChunk, rows: Indices) -> list[bytes]:
    """The encoded rows. They are stored in the chunk when they are first needed."""
    if (chunk.messages[rows] == None).any():  # noqa: E711  # element by element
        replace(frame, parts=[(chunk, rows)]).rows_ndjson()
    messages: list[bytes] = chunk.messages[rows].tolist()
    return messages


def _next_row_count(count: int, bytes_left: int) -> int:
    """How many rows to encode next, if they are as large as the previous ones; few at first, since no size is known."""
    if not count:
        return _FIRST_ROWS
    mean_bytes = max(1, (limits.frame_rows_bytes_max - bytes_left) // count)
    return max(1, min(_ROWS_GROWTH * count, bytes_left // mean_bytes + 1))


def _fitting_count(messages: Sequence[bytes], bytes_left: int) -> int:
    """How many of the messages fit."""
    ends = accumulate(map(len, messages))
    return next((count for count, end in enumerate(ends) if end > bytes_left), len(messages))


def delivery_key(subscription: ViewSubscription) -> tuple[int, int]:
    """The channel and the position in it: subscriptions with equal keys receive the same frame."""
    return id(subscription.channel), -1 if subscription.last_change is None else subscription.last_change


def encode_websocket(frame: ViewFrame, messages: Sequence[bytes]) -> bytes:
    """The end of a frame on a WebSocket, whose beginning depends on the subscription: `{"id":1,"n":5,`."""
    parts = [b'"reset":true,' if frame.reset else b"", b'"rows":[', b",".join(messages), b"]"]
    if frame.progress is not None:
        parts += [b',"progress":', frame.progress_json]
    if frame.resume is not None:
        parts += [b',"resume":', encode(frame.resume)]
    return b"".join([*parts, b"}"])


def encode_sse(frame: ViewFrame, messages: Sequence[bytes]) -> bytes:
    """The frame as server-sent events. The resume token is the id of the progress event: a client sends it when it
    reconnects."""
    parts = [b"event: reset\ndata: {}\n\n"] if frame.reset else []
    parts += [b"event: change\ndata: " + message + b"\n\n" for message in messages]
    if frame.progress is not None:
        token = b"id: " + frame.resume.encode() + b"\n" if frame.resume is not None else b""
        parts.append(b"event: progress\n" + token + b'data: {"progress":' + frame.progress_json + b"}\n\n")
    return b"".join(parts)
