"""A log that ends: after all it has, one more commit says that nothing will ever happen again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from smile.log.frame import END
from smile.log.position import UNNAMED, Limit, Log, Position


@dataclass(frozen=True)
class Ended:
    """What `log` has at `last`, and then the end."""

    log: Log
    last: Position

    @staticmethod
    def of(log: Log) -> "Ended":
        return Ended(log, log.newest())

    @property
    def streams(self) -> Sequence[str]:
        return self.log.streams

    def start(self) -> Position:
        return self.log.start()

    def newest(self) -> Position:
        horizons = {s: dict.fromkeys(of or [UNNAMED], END) for s, of in self.last.horizons.items()}
        return Position(self.last.commit + 1, horizons)

    def after(self, position: Position, limit: Limit) -> Position:
        if position.commit > self.last.commit:
            return position
        most = self.last.commit if limit.last is None else min(limit.last, self.last.commit)
        found = self.log.after(position, replace(limit, last=most))
        may_end = limit.last is None or limit.last > self.last.commit
        return self.newest() if found == position and may_end else found

    def resumed(self, horizons: Mapping[str, int]) -> Position:
        return self.newest() if horizons == self.newest().streams() else self.log.resumed(horizons)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        return self.log.read(stream, start, end)

    def waiting(self, position: Position) -> tuple[int, int]:
        return (0, 0) if position.commit > self.last.commit else self.log.waiting(position)
