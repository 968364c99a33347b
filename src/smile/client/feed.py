"""Subscriptions, without a connection: from messages to frames. A frame is acknowledged once it is taken, so that the
broker never has more under way than `window` frames, and merges what waits.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from smile import limits
from smile.client.changes import Change, Frame, Key, Schema
from smile.client.rows import gone_from
from smile.errors import SmileError

Json = dict[str, Any]


class Signal:
    """Whoever waits for something is called when it may have come; from the thread that has the connection."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def discard(self, callback: Callable[[], None]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def fire(self) -> None:
        for callback in self._callbacks.copy():
            callback()


class Sink(Protocol):
    """Where the frames of a subscription go."""

    def begin(self, schema: Schema) -> None: ...

    def take_in(self, reset: bool, frame: Frame) -> Callable[[], None] | None: ...

    def lost(self) -> None: ...


class Queue:
    """Frames for an iterator. After a new snapshot the rows that it does not have are told as deleted: whoever reads
    changes alone is then right, whatever happened to the connection."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self._schema: Schema | None = None
        self._shown: dict[Key, Mapping[str, Any]] = {}
        self._coming: dict[Key, Mapping[str, Any]] | None = None

    def begin(self, schema: Schema) -> None:
        self._schema = schema

    def lost(self) -> None:
        if self._coming is not None:
            self._shown |= self._coming
            self._coming = None

    def take_in(self, reset: bool, frame: Frame) -> None:
        if reset:
            self._coming = {}
        shown = self._shown if self._coming is None else self._coming
        for change in frame.changes:
            if change.deleted:
                shown.pop(change.id, None)
            else:
                shown[change.id] = change.key
        changes = list(frame.changes)
        if self._coming is not None and frame.progress is not None:
            changes += self._replaced(self._coming)
        self.frames.append(Frame(changes, frame.progress))

    def _replaced(self, coming: dict[Key, Mapping[str, Any]]) -> list[Change]:
        assert self._schema is not None
        gone = [gone_from(self._schema, key) for name, key in self._shown.items() if name not in coming]
        self._shown, self._coming = coming, None
        return gone


class Feed:
    """A subscription that outlives connections: it goes on from the token that it was given last. `error` ends it."""

    def __init__(self, id: int, view: str, where: Json, after: Mapping[str, Any], sink: Sink, at_once: bool) -> None:
        self.id, self.view, self.where, self.after = id, view, where, after
        self.sink = sink
        self.at_once = at_once
        """Frames are taken as they come; else when the user takes them."""
        self.schema: Schema | None = None
        self.resume: str | None = None
        self.error: SmileError | None = None
        self.complete = False
        """A whole snapshot has come."""
        self.signal = Signal()
        self._numbers: deque[int | None] = deque()
        """Of frames not taken yet; None where their connection is lost."""

    def subscribe(self) -> Json:
        """What is sent on each new connection."""
        self.sink.lost()
        self._numbers = deque(None for _ in self._numbers)
        message: Json = {"subscribe": self.view, "id": self.id, "window": limits.client_window_frames}
        message |= {"where": self.where} if self.where else {}
        message |= {"resume": self.resume} if self.resume is not None else {}
        return message | ({"after": self.after} if self.after and not self.complete else {})

    def subscribed(self, told: Json) -> None:
        self.schema = Schema.from_json(told)
        self.sink.begin(self.schema)

    def receive(self, told: Json) -> Callable[[], None] | None:
        """A frame; what is left to do afterwards."""
        assert self.schema is not None
        progress = told.get("progress")
        horizons = None if progress is None else {stream: int(tick) for stream, tick in progress.items()}
        frame = Frame([self.schema.change(row) for row in told.get("rows", ())], horizons)
        self._numbers.append(told["n"])
        self.resume = told.get("resume", self.resume)
        left = self.sink.take_in(bool(told.get("reset")), frame)
        self.complete = self.complete or horizons is not None
        return left

    def taken(self) -> Json | None:
        """The oldest frame has been taken: what is to be acknowledged. One of a connection that was lost is not."""
        number = self._numbers.popleft()
        return None if number is None else {"ack": self.id, "n": number}

    def refuse_token(self) -> None:
        self.resume = None
