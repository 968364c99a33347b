"""Plans batches: decides where the next batch of a job ends. The end depends on the log only, and never moves back."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from smile.log.position import BatchLimit, Log, Position

POLL_TIMEOUT_S = 0.1
"""How long the source waits for new commits before it reports that there are none."""
POLL_PAUSE_S = 0.001


@dataclass(frozen=True)
class Offset:
    """Where a batch starts or ends: after `number` batches, which have read the log up to `position`."""

    number: int
    position: Position

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, **self.position.to_json()}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Offset":
        return Offset(fields["number"], Position.from_json(fields))

    @cached_property
    def horizons(self) -> dict[str, int]:
        """The horizons that determine what was read."""
        return self.position.named_horizons()


@dataclass(frozen=True)
class BatchPlanner:
    """The part of a job that planning needs."""

    log: Log
    limit: BatchLimit
    start: Offset
    until: Position | None
    partitions: int

    def batch_limit(self, rows: int | None, commits: int | None, until: Position | None) -> BatchLimit:
        """The given limits, with the job's limit of bytes and its last position."""
        last = until if self.until is None else self.until
        return BatchLimit(rows, self.limit.bytes, commits, last)

    def latest_offset(self, start: Offset, limit: BatchLimit) -> Offset:
        """The end of the next batch; `start` if there is nothing new. Waits a short time for new commits, since that is
        cheaper than another call from Spark."""
        if not start.number:
            # The first batch has no events. It delivers the rows that views show before any event.
            return replace(start, number=1)
        deadline = time.monotonic() + (POLL_TIMEOUT_S if limit.last is None else 0)
        while True:
            position = self.log.after(start.position, limit)
            if position != start.position:
                return Offset(start.number + 1, position)
            if time.monotonic() >= deadline:
                return start
            time.sleep(POLL_PAUSE_S)
