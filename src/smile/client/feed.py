"""Subscriptions, independent of connections: they turn messages into frames.

A frame is acknowledged when it is consumed. So the broker never has more than `window` frames under way, and merges
the changes that wait.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from smile import limits
from smile.client.changes import Change, Frame, Key, Schema
from smile.client.rows import deletion_change
from smile.errors import SmileError, error

Json = dict[str, Any]


class CallbackRegistry:
    """Calls all registered callbacks, in the connection's thread, when what they wait for may have happened."""

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


class FrameSink(Protocol):
    """Receives the frames of a subscription."""

    def set_schema(self, schema: Schema) -> None: ...

    def deliver_frame(self, frame: Frame) -> Callable[[], None] | None: ...

    def abort_snapshot(self) -> None: ...

    def begin_anew(self) -> None:
        """The next snapshot is of another history or definition."""


class FrameQueue:
    """Frames for an iterator. After a new snapshot, the rows that it does not have are reported as deleted, so that a
    reader of changes has the right rows even after a lost connection. With `only_final`, the rows of a new snapshot
    that were there before are left out: each comes once."""

    def __init__(self, only_final: bool = False) -> None:
        self._only_final = only_final
        self.frames: deque[Frame] = deque()
        self._schema: Schema | None = None
        self._visible_keys: dict[Key, Mapping[str, Any]] = {}
        self._snapshot_keys: dict[Key, Mapping[str, Any]] | None = None
        self._has_begun = False

    def set_schema(self, schema: Schema) -> None:
        self._schema = schema

    def abort_snapshot(self) -> None:
        if self._snapshot_keys is not None:
            self._visible_keys |= self._snapshot_keys
            self._snapshot_keys = None

    def begin_anew(self) -> None:
        if self._only_final:
            self._visible_keys, self._has_begun = {}, False

    def deliver_frame(self, frame: Frame) -> None:
        if self._only_final:
            changes = [change for change in frame.changes if change.id not in self._visible_keys]
            self._visible_keys.update({change.id: change.key for change in changes})
            self.frames.append(replace(frame, changes=changes, reset=frame.reset and not self._has_begun))
            self._has_begun = True
            return
        if frame.reset:
            self._snapshot_keys = {}
        visible_keys = self._visible_keys if self._snapshot_keys is None else self._snapshot_keys
        for change in frame.changes:
            if change.deleted:
                visible_keys.pop(change.id, None)
            else:
                visible_keys[change.id] = change.key
        changes = list(frame.changes)
        if self._snapshot_keys is not None and frame.progress is not None:
            changes += self._replace_snapshot(self._snapshot_keys)
        self.frames.append(replace(frame, changes=changes))

    def _replace_snapshot(self, snapshot_keys: dict[Key, Mapping[str, Any]]) -> list[Change]:
        assert self._schema is not None
        deletions = [
            deletion_change(self._schema, key) for name, key in self._visible_keys.items() if name not in snapshot_keys
        ]
        self._visible_keys, self._snapshot_keys = snapshot_keys, None
        return deletions


class SubscriptionFeed:
    """A subscription that outlives connections: it resumes from its last token. If `error` is set, it has ended."""

    def __init__(
        self,
        id: int,
        view: str,
        where: Json,
        after: Mapping[str, Any],
        sink: FrameSink,
        auto_acknowledge: bool,
        name: str | None = None,
        only_final: bool = False,
    ) -> None:
        self.id, self.view, self.where, self.after, self._name = id, view, where, after, name
        self._only_final = only_final
        self.sink = sink
        self.auto_acknowledge = auto_acknowledge
        """Whether frames are acknowledged on arrival, or when the user consumes them."""
        self.schema: Schema | None = None
        self.resume_token: str | None = None
        self.error: SmileError | None = None
        self.paused: SmileError | None = None
        """Why the view is paused, if it is."""
        self.view_change: SmileError | None = None
        """That the view was changed. It is subscribed to again, and continues if it has the same columns."""
        self.has_snapshot = False
        """Whether a complete snapshot has arrived."""
        self.signal = CallbackRegistry()
        self._frame_numbers: deque[int | None] = deque()
        """Of the frames not consumed yet; None if their connection was lost."""
        self._consumed_number: int | None = None
        """Of the last frame that was consumed and not acknowledged; only if the subscription has a name."""

    @property
    def problem(self) -> SmileError | None:
        """Why nothing more arrives, for good or for now."""
        return self.error or self.paused

    def subscribe_message(self) -> Json:
        """Prepares for a new connection, and returns the first message to send on it."""
        self.sink.abort_snapshot()
        self.paused = None  # the broker says so again
        self._frame_numbers, self._consumed_number = deque(None for _ in self._frame_numbers), None
        message: Json = {"subscribe": self.view, "id": self.id, "window": limits.client_window_frames}
        message |= {"where": self.where} if self.where else {}
        message |= {"final": True} if self._only_final else {}
        message |= {"name": self._name, "deliver": "rows"} if self._name is not None else {}
        message |= {"resume": self.resume_token} if self.resume_token is not None else {}
        return message | ({"after": self.after} if self.after and not self.has_snapshot else {})

    def receive_schema(self, message: Json) -> SmileError | None:
        """Returns why it ends if the view was changed, and has other columns now."""
        schema, change = Schema.from_json(message), self.view_change
        if change is not None:
            assert self.schema is not None
            if (schema.key, schema.columns) != (self.schema.key, self.schema.columns):
                return change
            self.view_change = None
        self.schema = schema
        self.sink.set_schema(schema)
        return None

    def receive_pause(self, encoded: Json | None) -> None:
        self.paused = None
        if encoded is not None:
            message = f"the view {self.view} is paused: {encoded.get('message')}"
            self.paused = error("E109", message, hint=encoded.get("hint"))

    def receive_frame(self, message: Json) -> Callable[[], None] | None:
        """Delivers a frame. Returns a callback to run after the session's lock is released."""
        assert self.schema is not None
        progress = message.get("progress")
        horizons = None if progress is None else {stream: int(tick) for stream, tick in progress.items()}
        changes = [self.schema.decode_change(row) for row in message.get("rows", ())]
        frame = Frame(changes, horizons, message.get("resume"), message.get("epochs", {}), bool(message.get("reset")))
        self._frame_numbers.append(message["n"])
        self.resume_token = message.get("resume", self.resume_token)
        callback = self.sink.deliver_frame(frame)
        self.has_snapshot = self.has_snapshot or horizons is not None
        return callback

    def consume_frame(self) -> Json | None:
        """Called when the application has consumed a frame. Returns the message that acknowledges it, or None if the
        connection that delivered the frame was lost, or the application acknowledges."""
        number = self._frame_numbers.popleft()
        if self._name is not None:
            self._consumed_number = number
            return None
        return None if number is None else {"ack": self.id, "n": number}

    def acknowledge_consumed(self) -> Json | None:
        """The message that acknowledges all frames that the application has consumed."""
        number, self._consumed_number = self._consumed_number, None
        return None if number is None else {"ack": self.id, "n": number}

    def begin_anew(self) -> None:
        """All rows come again, of another history or definition."""
        self.resume_token = None
        self.sink.begin_anew()
