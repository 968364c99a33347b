"""Logs and positions in them. A log is a sequence of commits with pieces of streams; a position says how far it was
read.

A position has ticks in addition to the commit: an event of a fast origin may be in a commit before the position, but
still above its stream's horizon. It is read once the other origins have reached its tick. Besides, the ticks may be
those of a part of the next commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from smile.horizons import HORIZON_MIN

DEFAULT_ORIGIN = "0"
"""The only origin of a single-origin log, and the placeholder for a stream whose origins are not known yet."""


@dataclass(frozen=True)
class Position:
    """How far a log was read: the last whole commit, and for each stream and origin the tick up to which it was
    read."""

    commit: int
    horizons: Mapping[str, Mapping[str, int]]

    def stream_horizons(self) -> dict[str, int]:
        """The horizon of each stream: the minimum of its origins, since everything is known only up to there."""
        return {stream: min(origins.values(), default=HORIZON_MIN) for stream, origins in self.horizons.items()}

    def to_json(self) -> dict[str, Any]:
        return {"commit": self.commit, "horizons": {stream: dict(origins) for stream, origins in self.horizons.items()}}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Position":
        return Position(fields["commit"], {stream: dict(origins) for stream, origins in fields["horizons"].items()})


@dataclass(frozen=True)
class BatchLimit:
    """The maximum size of a batch; None means no limit. `last` is the last commit that the batch may have."""

    rows: int | None = None
    bytes: int | None = None
    commits: int | None = None
    last: int | None = None

    def allows(self, rows: int, size: int, commits: int) -> bool:
        return (
            (self.rows is None or rows <= self.rows)
            and (self.bytes is None or size <= self.bytes)
            and (self.commits is None or commits <= self.commits)
        )

    def share_of(self, rows: int, size: int) -> float:
        """How much of so many rows and bytes it allows, at most 1."""
        shares = [most / max(1, given) for most, given in ((self.rows, rows), (self.bytes, size)) if most is not None]
        return min([1.0, *shares])


class Log(Protocol):
    """What engines read. A log can be pickled, and opens its files again in the other process."""

    @property
    def streams(self) -> Sequence[str]: ...

    def start(self) -> Position:
        """The position before everything."""

    def newest(self) -> Position:
        """The position after everything."""

    def after(self, position: Position, limit: BatchLimit) -> Position:
        """The end of a batch that begins at the position: whole commits, as many as the limit allows. Of a first commit
        that is too large, only a part is in the batch, unless one of its streams has whole commits. Returns the same
        position if nothing is new.

        Only ticks above the position's horizons count. Commits without new ticks are skipped."""

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        """Where a state with these horizons resumes: after the last commit up to which they cover everything."""

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        """The events of a stream above its horizon at `start` up to its horizon at `end`, of all origins, in tick
        order, each once. `end` may be a position after the newest commit with all horizons at END: the caller then
        declares that the streams are finished."""

    def backlog(self, position: Position) -> tuple[int, int]:
        """The number of rows and bytes above the position's horizons in the commits after it."""
