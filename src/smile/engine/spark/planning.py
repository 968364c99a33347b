"""Planning: how far the next batch of a job goes. It depends on the log alone, and never goes back."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from smile.log.position import BatchLimit, Log, Position

POLL_TIMEOUT_S = 0.1
"""So long the source waits for something new before it says that there is nothing."""
POLL_PAUSE_S = 0.001


@dataclass(frozen=True)
class Offset:
    """Where a batch begins or ends: so many frames have been taken in, and the log up to this position."""

    number: int
    position: Position

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, **self.position.to_json()}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Offset":
        return Offset(fields["number"], Position.from_json(fields))

    @cached_property
    def horizons(self) -> dict[str, int]:
        """Of each stream."""
        return self.position.stream_horizons()


@dataclass(frozen=True)
class BatchPlanner:
    """What of a job a batch is planned with."""

    log: Log
    limit: BatchLimit
    start: Offset
    until: int | None
    partitions: int

    def batch_limit(self, rows: int | None, commits: int | None, until: int | None) -> BatchLimit:
        """So much, never more bytes than a batch may have, nor a commit too many."""
        last_commit = until if self.until is None else self.until
        return BatchLimit(rows, self.limit.bytes, commits, last_commit)

    def latest_offset(self, start: Offset, limit: BatchLimit) -> Offset:
        """As far as a batch may go; where nothing is new it waits a little, which costs less than to be asked again."""
        if not start.number:
            # What is shown before anything has happened comes first.
            return replace(start, number=1)
        deadline = time.monotonic() + (POLL_TIMEOUT_S if limit.last is None else 0)
        while True:
            position = self.log.after(start.position, limit)
            if position != start.position:
                return Offset(start.number + 1, position)
            if time.monotonic() >= deadline:
                return start
            time.sleep(POLL_PAUSE_S)
