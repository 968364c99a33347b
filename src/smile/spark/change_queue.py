"""Receives the frames of a subscription as batches for Spark: each ends with progress, so it can be resumed after it.

Within a batch, a row is there once, as it is known at the end.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from smile.client.changes import Change, Frame, Key
from smile.client.feed import FrameQueue, SubscriptionFeed
from smile.client.session import ClientSession
from smile.spark.view_schema import DELETED, RESET, ROW, ChangeRow


@dataclass(frozen=True)
class ChangeOffset:
    """How far a view was read. `resume` is the broker's token for these horizons; at the beginning there is none."""

    resume: str | None = None
    horizons: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"resume": self.resume or "", "horizons": dict(self.horizons)}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "ChangeOffset":
        return ChangeOffset(fields["resume"] or None, fields["horizons"])


@dataclass(frozen=True)
class ChangeBatch:
    """The changes between two offsets. If it `is_reset`, it has all rows of the view, and all others are gone."""

    start: ChangeOffset
    end: ChangeOffset
    changes: Sequence[Change]
    is_reset: bool

    def rows(self) -> list[ChangeRow]:
        """A reset comes first. Also that of the first batch is needed: it may repeat one that was not committed."""
        rows = [ChangeRow(DELETED if change.deleted else ROW, change) for change in self.changes]
        return [ChangeRow(RESET, None), *rows] if self.is_reset else rows


class ChangeQueue(FrameQueue):
    """The sink of one subscription. The connection's thread fills it, and one other thread takes batches."""

    def __init__(self, start: ChangeOffset, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._position = start
        self._changes: dict[Key, Change] = {}
        self._is_reset = False
        self._end: ChangeOffset | None = None
        """The progress up to which `_changes` is complete; None if frames are missing."""
        self._waiting: deque[Frame | None] = deque()
        """What was received and not taken; None for a new connection."""
        self._arrived = Condition()

    def abort_snapshot(self) -> None:
        """A new connection: it continues after the last frame with progress, or resets."""
        self._add(None)

    def deliver_frame(self, frame: Frame) -> None:
        self._add(frame)

    def _add(self, item: Frame | None) -> None:
        with self._arrived:
            self._waiting.append(item)
            self._arrived.notify_all()

    def wake(self) -> None:
        """The subscription may have ended."""
        with self._arrived:
            self._arrived.notify_all()

    def take_batch(
        self, session: ClientSession, feed: SubscriptionFeed, wait_s: float, may_be_empty: bool = False
    ) -> ChangeBatch | None:
        """The next batch, if it is complete within the time. Raises the error that has ended the subscription."""
        deadline = self._clock() + wait_s
        while True:
            while self._needs_frames and self._take_frame(session, feed):
                pass
            if self._end is not None and (may_be_empty or self._has_changes):
                return self._finish_batch(self._end)
            with self._arrived:
                if not self._waiting:
                    if feed.error is not None:
                        raise feed.error
                    if (remaining_s := deadline - self._clock()) <= 0:
                        return None
                    self._arrived.wait(remaining_s)

    @property
    def _has_changes(self) -> bool:
        return bool(self._changes) or self._is_reset

    @property
    def _needs_frames(self) -> bool:
        return self._end is None or not self._has_changes

    def _take_frame(self, session: ClientSession, feed: SubscriptionFeed) -> bool:
        """Adds a frame to the batch. Returns whether there was one."""
        with self._arrived:
            if not self._waiting:
                return False
            frame = self._waiting.popleft()
        if frame is None:
            # What came since the last progress comes again, and a reset that was not complete may not.
            self._changes, self._is_reset = {}, False
            return True
        session.consume_frame(feed)
        if frame.reset:
            self._changes, self._is_reset = {}, True
        self._changes.update((change.id, change) for change in frame.changes)
        self._end = None if frame.progress is None else ChangeOffset(frame.resume, frame.progress)
        return True

    def _finish_batch(self, end: ChangeOffset) -> ChangeBatch:
        batch = ChangeBatch(self._position, end, list(self._changes.values()), self._is_reset)
        self._position, self._changes, self._is_reset, self._end = end, {}, False, None
        return batch
