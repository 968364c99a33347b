"""What is told next, as it goes over the wire: as many rows as make a mebibyte, and at least one. Whatever many are
told alike is made once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final
from weakref import ReferenceType, ref

from smile import limits
from smile.broker.rows import Chunk
from smile.broker.subscription import Subscription
from smile.broker.told import Told
from smile.columns.values import Indices
from smile.gateway.answers import encode

_FIRST: Final = 16
_GROWTH: Final = 8
"""So many rows are written first, and so many times those that were seen next, before it is seen how large they are."""


@dataclass(frozen=True)
class Frame:
    """`last` is the number of the last change in it, if there are more."""

    body: bytes
    rows: int
    last: int | None


class Frames:
    """Keeps the last frame that it made: those who are told the same come one after the other."""

    def __init__(self, make: Callable[[Told, Sequence[bytes]], bytes]) -> None:
        self._make = make
        self._told: ReferenceType[Told] | None = None
        self._made = Frame(b"", 0, None)

    def take(self, subscription: Subscription) -> Frame | None:
        """What it has not been told yet; what does not go into the frame is taken the next time."""
        before = subscription.progress, subscription.due
        told = subscription.take(limits.frame_rows_max)
        if told is None:
            return None
        if self._told is None or self._told() is not told:
            self._told, self._made = ref(told), self._frame(told)
        if self._made.last is not None:
            subscription.number = self._made.last
            subscription.progress, subscription.due = before
        return self._made

    def _frame(self, told: Told) -> Frame:
        messages, last = first_messages(told)
        if last is not None:
            told = replace(told, progress=None, resume=None)
        return Frame(self._make(told, messages), len(messages), last)


def first_messages(told: Told) -> tuple[list[bytes], int | None]:
    """Of the first rows, as many as go into a frame; and the number of the last of them if there are more."""
    found: list[bytes] = []
    room, last = limits.told_bytes, None
    for chunk, at in told.parts:
        begin = 0
        while begin < len(at):
            step = at[begin : begin + _step(len(found), room)]
            begin += len(step)
            messages = _messages(told, chunk, step)
            fitting = _fitting(messages, room) if found else max(1, _fitting(messages, room))
            found += messages[:fitting]
            room -= sum(map(len, messages[:fitting]))
            if fitting:
                last = int(chunk.numbers[step[fitting - 1]])
            if fitting < len(messages):
                return found, last
    return found, None


def _messages(told: Told, chunk: Chunk, at: Indices) -> list[bytes]:
    """Of these rows. They lie with the chunk once they are written."""
    if (chunk.messages[at] == None).any():  # noqa: E711  # of each of them
        replace(told, parts=[(chunk, at)]).lines()
    found: list[bytes] = chunk.messages[at].tolist()
    return found


def _step(found: int, room: int) -> int:
    """How many rows to write next, if they are like those found; few at first, since nobody knows that."""
    if not found:
        return _FIRST
    mean = max(1, (limits.told_bytes - room) // found)
    return max(1, min(_GROWTH * found, room // mean + 1))


def _fitting(messages: Sequence[bytes], room: int) -> int:
    """How many of them there is room for."""
    ends = accumulate(map(len, messages))
    return next((count for count, end in enumerate(ends) if end > room), len(messages))


def place_of(subscription: Subscription) -> tuple[int, int]:
    """Of which rows, and how far it was told of them: from the same place all are told the same."""
    return id(subscription.channel), -1 if subscription.number is None else subscription.number


def websocket_frame(told: Told, messages: Sequence[bytes]) -> bytes:
    """The end of a WebSocket's frame, which begins with whose it is: `{"id":1,"n":5,`."""
    parts = [b'"reset":true,' if told.reset else b"", b'"rows":[', b",".join(messages), b"]"]
    if told.progress is not None:
        parts += [b',"progress":', told.progress_json]
    if told.resume is not None:
        parts += [b',"resume":', encode(told.resume)]
    return b"".join([*parts, b"}"])


def server_sent(told: Told, messages: Sequence[bytes]) -> bytes:
    """The same as server-sent events. The token goes with the progress: whoever comes again says it."""
    parts = [b"event: reset\ndata: {}\n\n"] if told.reset else []
    parts += [b"event: change\ndata: " + message + b"\n\n" for message in messages]
    if told.progress is not None:
        token = b"id: " + told.resume.encode() + b"\n" if told.resume is not None else b""
        parts.append(b"event: progress\n" + token + b'data: {"progress":' + told.progress_json + b"}\n\n")
    return b"".join(parts)
