"""Counts the snapshots in progress, and the bytes that they keep in memory. Both are limited."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from smile import limits
from smile.broker.views.view import ViewFrame
from smile.gateway.http.response import HttpError

_ROW_NUMBER_BYTES: Final = 48
"""A snapshot has for each row the numbers of its run, of its place in it and of its change."""


class SnapshotCounts:
    """The snapshots that are sent in parts. A snapshot refers to the runs of its view's table when it began. They stay
    in memory until it is sent, even if the view has replaced them. `hold` is for one thread."""

    def __init__(self) -> None:
        self._frames: list[ViewFrame] = []

    @property
    def count(self) -> int:
        return len(self._frames)

    def bytes_held(self, besides: ViewFrame | None = None) -> int:
        """The size of the snapshots in progress with the runs that they refer to, without the runs of `besides`: its
        view has them now."""
        runs = {id(run): run for frame in self._frames for run in frame.rows.table.runs}
        for run in () if besides is None else besides.rows.table.runs:
            runs.pop(id(run), None)
        rows = sum(frame.row_count for frame in self._frames)
        return sum(run.nbytes for run in runs.values()) + _ROW_NUMBER_BYTES * rows

    def require_free(self, frame: ViewFrame) -> None:
        """E092 if this snapshot may not begin. Thread-safe."""
        hint = "Try again in a moment; clients that do not read their snapshots are disconnected."
        if self.count >= limits.snapshots_max:
            raise HttpError(503, "E092", f"{limits.snapshots_max} snapshots are in progress already", hint)
        if self.bytes_held(besides=frame) >= limits.snapshots_bytes_max:
            message = f"the snapshots in progress have more than {limits.snapshots_bytes_max:,} bytes already"
            raise HttpError(503, "E092", message, hint)

    @contextmanager
    def hold(self, frame: ViewFrame) -> Iterator[None]:
        """Counts the snapshot meanwhile."""
        self._frames = [*self._frames, frame]
        try:
            yield
        finally:
            self._frames = [other for other in self._frames if other is not frame]
