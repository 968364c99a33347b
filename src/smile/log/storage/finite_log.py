"""A log that ends: an additional last commit declares that all streams are finished."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from smile.horizons import END
from smile.log.position import DEFAULT_ORIGIN, BatchLimit, Log, Position


@dataclass(frozen=True)
class FiniteLog:
    """The content of `log` up to `last`, followed by the end."""

    log: Log
    last: Position

    @staticmethod
    def wrap(log: Log) -> "FiniteLog":
        return FiniteLog(log, log.newest())

    @property
    def streams(self) -> Sequence[str]:
        return self.log.streams

    def start(self) -> Position:
        return self.log.start()

    def newest(self) -> Position:
        horizons = {s: dict.fromkeys(origins or [DEFAULT_ORIGIN], END) for s, origins in self.last.horizons.items()}
        return Position(self.last.commit + 1, horizons, self.last.many_origins)

    def after(self, position: Position, limit: BatchLimit) -> Position:
        if position.commit > self.last.commit:
            return position
        may_end = limit.last is None or limit.last.commit > self.last.commit
        next_position = self.log.after(position, replace(limit, last=self.last) if may_end else limit)
        return self.newest() if next_position == position and may_end else next_position

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        return self.newest() if horizons == self.newest().named_horizons() else self.log.resume_position(horizons)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        return self.log.read(stream, start, end)

    def backlog(self, position: Position) -> tuple[int, int]:
        return (0, 0) if position.commit > self.last.commit else self.log.backlog(position)
