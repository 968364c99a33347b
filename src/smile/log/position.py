"""Logs and positions in them. A log is a sequence of commits with pieces of streams; a position says how far it was
read.

A position has ticks in addition to the commit: they may be those of a part of the next commit. The commit may not exist
any more: the next one has replaced it, and has all that it had. Of a stream with many
origins, the events of each origin are read as they come. Of any other stream that has several origins nevertheless, an
event is read once all origins have reached its tick; until then it may be in a commit before the position.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from smile.errors import error
from smile.horizons import HORIZON_MIN, with_origins

DEFAULT_ORIGIN = "0"
"""The only origin of a single-origin log, and the placeholder for a stream whose origins are not known yet."""


@dataclass(frozen=True)
class Position:
    """How far a log was read: the last whole commit, and for each stream and origin the tick up to which it was
    read. `many_origins` are the streams that are declared so."""

    commit: int
    horizons: Mapping[str, Mapping[str, int]]
    many_origins: frozenset[str] = frozenset()

    def stream_horizons(self) -> dict[str, int]:
        """The horizon of each stream: the minimum of its origins, since everything is known only up to there."""
        return {stream: min(origins.values(), default=HORIZON_MIN) for stream, origins in self.horizons.items()}

    def named_horizons(self) -> dict[str, int]:
        """The horizons that determine which events were read: those of the streams, and of the origins of streams with
        many origins."""
        horizons = self.stream_horizons()
        for stream in self.many_origins:
            horizons |= with_origins(stream, self.horizons.get(stream, {}))
        return horizons

    def to_json(self) -> dict[str, Any]:
        horizons = {stream: dict(origins) for stream, origins in self.horizons.items()}
        return {"commit": self.commit, "horizons": horizons, "many_origins": sorted(self.many_origins)}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Position":
        horizons = {stream: dict(origins) for stream, origins in fields["horizons"].items()}
        return Position(fields["commit"], horizons, frozenset(fields.get("many_origins", ())))


@dataclass(frozen=True)
class BatchLimit:
    """The maximum size of a batch; None means no limit. The batch ends at the position `last` at the latest."""

    rows: int | None = None
    bytes: int | None = None
    commits: int | None = None
    last: Position | None = None

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
        """Where a state with these horizons (`Position.named_horizons`) resumes: after the last commit up to which they
        cover everything."""

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        """The events of a stream above its horizon at `start` up to its horizon at `end`, of all origins, in tick
        order, each once. If the stream has many origins, the horizons are those of each origin. `end` may be a position
        after the newest commit with all horizons at END: the caller then declares that the streams are finished."""

    def backlog(self, position: Position) -> tuple[int, int]:
        """The number of rows and bytes above the position's horizons in the commits after it."""


def refuse_truncated_start(start: Position, streams: Iterable[str]) -> None:
    """Raises E097 if something of a stream was removed before a log's start."""
    for stream in streams:
        if stream not in start.horizons:
            hint = "Events that no view needed were removed (the setting `keep`)."
            raise error("E097", f"the log was truncated: the first events of {stream} were removed", hint=hint)
