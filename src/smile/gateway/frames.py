"""Encodes frames for the wire: as JSON, one message for each row, or as Arrow.

A frame of a subscription has as many rows as fit into `limits.frame_rows_bytes_max`, but at least one, and at most
`limits.frame_rows_max`. The rows that do not fit are returned to the subscription. A row is encoded once for all frames
that contain it, and a frame once for all subscribers that receive it. Encoding many rows at once costs far less than
encoding them in small frames, so the rows of several subscriptions with different conditions are encoded together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa

from smile import limits
from smile.broker.views.view import View, ViewFrame, ViewSubscription
from smile.columns.values import Indices
from smile.encoding.arrow_changes import arrow_changes
from smile.encoding.json_changes import json_changes
from smile.gateway.http.response import encode
from smile.horizons import shown_horizons
from smile.kernels.row_encoding import decode_rows
from smile.knowledge.values.json import tick_json

_FIRST_ROWS: Final = 16
_ROWS_GROWTH: Final = 8
"""The sizes of rows are not known before they are encoded: so many are encoded first, and at most so many times those
that were encoded before in the next steps."""


@dataclass(frozen=True)
class EncodedFrame:
    """`is_complete`: it has all rows of its frame, and the progress."""

    body: bytes
    row_count: int
    is_complete: bool
    resume: str | None = None


class FrameEncoder:
    """Caches the last frame: subscribers that receive the same frame are served in sequence."""

    def __init__(
        self,
        encode: Callable[[ViewFrame, Sequence[bytes]], bytes],
        observe: Callable[[ViewFrame], None] = lambda _: None,
    ) -> None:
        """`observe` is called with each frame that a subscriber receives."""
        self._encode, self._observe = encode, observe
        self._last_frame_ref: ReferenceType[ViewFrame] | None = None
        self._last_encoded = EncodedFrame(b"", 0, True)

    def encode_next(self, subscription: ViewSubscription) -> EncodedFrame | None:
        """The next frame of the subscription."""
        frame = subscription.next_frame(limits.frame_rows_max)
        if frame is None:
            return None
        self._observe(frame)
        if self._last_frame_ref is None or self._last_frame_ref() is not frame:
            self._last_frame_ref, self._last_encoded = ref(frame), self._encode_frame(frame)
        if not self._last_encoded.is_complete:
            subscription.return_rows(frame, self._last_encoded.row_count)
        return self._last_encoded

    def _encode_frame(self, frame: ViewFrame) -> EncodedFrame:
        messages = _fitting_messages(frame)
        is_complete = len(messages) == len(frame.change_numbers)
        if not is_complete:
            frame = replace(frame, progress=None, resume=None, epochs={})
        return EncodedFrame(self._encode(frame, messages), len(messages), is_complete, frame.resume)


def encode_ahead(subscriptions: Sequence[ViewSubscription]) -> None:
    """Encodes the next rows of these subscriptions together. Their cursors do not move."""
    by_view: dict[View, list[ViewSubscription]] = {}
    for subscription in subscriptions:
        by_view.setdefault(subscription.view, []).append(subscription)
    for view, of_view in by_view.items():
        frame = view.pending_rows(of_view, limits.encoded_ahead_rows_max)
        if frame is not None:
            _fitting_messages(frame)


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def row_messages(frame: ViewFrame) -> list[bytes]:
    """The encoded rows. Large ones are not cached: a frame may have rows that the view has replaced since, so that the
    cache would grow."""
    return _encode_rows(frame, np.arange(frame.row_count), limits.encoded_row_bytes_max)


def _encode_rows(frame: ViewFrame, rows: Indices, cached_bytes_max: float = math.inf) -> list[bytes]:
    numbers: list[int] = frame.change_numbers[rows].tolist()
    messages = [frame.encoded_rows.get(number) for number in numbers]
    missing = [i for i, message in enumerate(messages) if message is None]
    if missing:
        delta = decode_rows(frame.source.layout, frame.rows.take(rows[missing]))
        new_messages = json_changes(frame.source, delta, frame.horizons, include_hidden=True)
        for i, message in zip(missing, new_messages, strict=True):
            encoded = messages[i] = encode(message)
            if len(encoded) <= cached_bytes_max:
                # Two threads may do this at the same time: they write the same bytes.
                frame.encoded_rows[numbers[i]] = encoded
    return messages  # type: ignore[return-value]  # none is missing any more


def frame_batch(frame: ViewFrame) -> pa.RecordBatch:
    """The rows as an Arrow batch."""
    rows = decode_rows(frame.source.layout, frame.rows)
    return arrow_changes(frame.source, rows, frame.horizons, include_hidden=True)


def _fitting_messages(frame: ViewFrame) -> list[bytes]:
    """The encoded rows that fit into a frame."""
    row_count, bytes_left = frame.row_count, limits.frame_rows_bytes_max
    known = [frame.encoded_rows.get(number) for number in frame.change_numbers.tolist()]
    encoded = [message for message in known if message is not None]
    if len(encoded) == row_count and sum(map(len, encoded)) <= bytes_left:
        return encoded
    encoded = []
    while len(encoded) < row_count:
        end = min(row_count, len(encoded) + _next_row_count(len(encoded), bytes_left))
        messages = _encode_rows(frame, np.arange(len(encoded), end))
        fitting_count = max(_fitting_count(messages, bytes_left), 0 if encoded else 1)
        encoded += messages[:fitting_count]
        bytes_left -= sum(map(len, messages[:fitting_count]))
        if fitting_count < len(messages):
            break
    return encoded


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


# ── frames ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def progress_json(frame: ViewFrame) -> bytes:
    """The horizons as a JSON object; empty if the frame does not end with progress."""
    return _horizons_json(tuple((frame.progress or {}).items()))


def progress_fields(frame: ViewFrame) -> bytes:
    """The progress, and the closed epochs if there are any, as fields of a JSON object."""
    epochs = b',"epochs":' + encode(frame.epochs) if frame.epochs else b""
    return b'"progress":' + progress_json(frame) + epochs


@lru_cache(maxsize=100)
def _horizons_json(horizons: tuple[tuple[str, int], ...]) -> bytes:
    """Cached, because all frames of a round have the same horizons."""
    return encode({stream: tick_json(tick) for stream, tick in shown_horizons(dict(horizons)).items()})


def encode_websocket(frame: ViewFrame, messages: Sequence[bytes]) -> bytes:
    """The end of a frame on a WebSocket, whose beginning depends on the subscription: `{"id":1,"n":5,`."""
    parts = [b'"reset":true,' if frame.reset else b"", b'"rows":[', b",".join(messages), b"]"]
    if frame.progress is not None:
        parts += [b",", progress_fields(frame)]
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
        parts.append(b"event: progress\n" + token + b"data: {" + progress_fields(frame) + b"}\n\n")
    return b"".join(parts)
