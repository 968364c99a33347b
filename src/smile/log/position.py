"""Positions in a log. A log is a row of commits, each with pieces of streams, and a position says how far it was read.

A position counts ticks, not only commits: an event of a fast origin may lie in a commit that was passed, and above its
stream's horizon still. It is read once the other origins have come as far.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from smile.log.input_batch import HORIZON_MIN

DEFAULT_ORIGIN = "0"
"""The origin of a log that has but one, and what stands for all origins of a stream before any was heard of."""


@dataclass(frozen=True)
class Position:
    """How far a log was read: the last commit, and of each stream and origin the tick up to which all was taken."""

    commit: int
    horizons: Mapping[str, Mapping[str, int]]

    def stream_horizons(self) -> dict[str, int]:
        """Each stream's horizon: the least of its origins', since only up to there all is known."""
        return {stream: min(origins.values(), default=HORIZON_MIN) for stream, origins in self.horizons.items()}

    def to_json(self) -> dict[str, Any]:
        return {"commit": self.commit, "horizons": {stream: dict(origins) for stream, origins in self.horizons.items()}}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Position":
        return Position(fields["commit"], {stream: dict(origins) for stream, origins in fields["horizons"].items()})


@dataclass(frozen=True)
class BatchLimit:
    """What a batch has at most; None is no limit. `last` is a commit that it does not go beyond."""

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


class Log(Protocol):
    """What pipelines read. It may be pickled, and opens its files again where it is used."""

    @property
    def streams(self) -> Sequence[str]: ...

    def start(self) -> Position:
        """Nothing is read."""

    def newest(self) -> Position:
        """Everything is read."""

    def after(self, position: Position, limit: BatchLimit) -> Position:
        """As far as a batch from here may go: whole commits, at least one if there is any, as many as the limit allows.

        Only what lies above the position's horizons counts, and commits that tell nothing new are passed over. The
        same position if nothing is new."""

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        """Where a state with these horizons goes on: after the last commit up to which they cover everything."""

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        """The events of a stream with ticks above its horizon at `start` up to that at `end`, in order of ticks, each
        once, whatever their origin. A position after the newest commit whose horizons are at the end may be an `end`:
        whoever makes it declares that nothing more happens."""

    def backlog(self, position: Position) -> tuple[int, int]:
        """How many rows and bytes the commits after the position have above its horizons."""
