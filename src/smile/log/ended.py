"""A log that ends: after all it has, one more commit says that nothing will ever happen again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from smile.log.frame import END
from smile.log.position import UNNAMED, Limit, Log, Position


@dataclass(frozen=True)
class Ended:
    """`log` is one that nobody appends to any more."""

    log: Log

    @property
    def streams(self) -> Sequence[str]:
        return self.log.streams

    def start(self) -> Position:
        return self.log.start()

    def newest(self) -> Position:
        horizons = {s: dict.fromkeys(of or [UNNAMED], END) for s, of in self.log.newest().horizons.items()}
        return Position(self.log.newest().commit + 1, horizons)

    def after(self, position: Position, limit: Limit) -> Position:
        if position.commit > self.log.newest().commit:
            return position
        found = self.log.after(position, limit)
        return self.newest() if found == position else found

    def resumed(self, horizons: Mapping[str, int]) -> Position:
        return self.newest() if horizons == self.newest().streams() else self.log.resumed(horizons)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        return self.log.read(stream, start, end)

    def waiting(self, position: Position) -> tuple[int, int]:
        return (0, 0) if position.commit > self.log.newest().commit else self.log.waiting(position)
