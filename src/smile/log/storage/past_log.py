"""A part of a log: what follows certain ticks, as far as a tick of the past.

Batches are those of the whole log, cut at the ticks. Positions have the numbers of its commits, and the horizons of the
part: what is read between two of them is what the log has between their horizons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

import pyarrow as pa

from smile.log.position import BatchLimit, Log, Position


@dataclass
class PastLog:
    """The events of `log` above the ticks `above`, by stream and origin, and up to tick `to` if there is one: then it
    ends there. For one reader, who has everything that the log had when it was opened when `is_read` is set."""

    log: Log
    above: Mapping[str, Mapping[str, int]]
    to: int | None = None
    is_read: Event = field(default_factory=Event)
    _last: Position = field(init=False)
    _read: Position = field(init=False)
    """How far the whole log was read."""

    def __post_init__(self) -> None:
        self._last, self._read = self.log.newest(), self.start()

    @property
    def streams(self) -> Sequence[str]:
        return self.log.streams

    def start(self) -> Position:
        start = self.log.start()
        return replace(start, horizons={**start.horizons, **self.above})

    def newest(self) -> Position:
        return self._cut(self._last if self.to is not None else self.log.newest())

    def after(self, position: Position, limit: BatchLimit) -> Position:
        if self.to is None:
            end = self.log.after(position, limit)
            if end == position or position.commit >= self._last.commit:
                self.is_read.set()
            return end
        if position.commit < self._read.commit:
            self._read = self.start()
        while True:
            end = self.log.after(self._read, replace(limit, last=self._last))
            if end == self._read:
                self.is_read.set()
                return position
            self._read, cut = end, self._cut(end)
            if end.commit >= position.commit and cut.horizons != position.horizons:
                return cut

    def _cut(self, position: Position) -> Position:
        if self.to is None:
            return position
        horizons = {
            stream: {origin: min(tick, self.to) for origin, tick in origins.items()}
            for stream, origins in position.horizons.items()
        }
        return replace(position, horizons=horizons)

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        return self._cut(self.log.resume_position(horizons))

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        return self.log.read(stream, start, end)

    def backlog(self, position: Position) -> tuple[int, int]:
        return self.log.backlog(position)
