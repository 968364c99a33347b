"""Figures of a pipeline: what its tasks and Spark say of each batch, in a file that whoever wants to know can read."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

Json = dict[str, Any]
RECENT_S = 30.0
"""Rates are of so many seconds."""
TIMES = ("read", "kernels", "save", "pack")


@dataclass
class Figures:
    """`tasks` are by stage and partition, of the last batch."""

    tasks: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    events: int = 0
    changed: int = 0
    batches: int = 0
    began: float = field(default_factory=time.time)
    _recent: "deque[tuple[float, int, int]]" = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def take(self, heads: Sequence[Mapping[str, Any]], changed: int) -> None:
        """The heads of a batch's messages, and how many rows it changed."""
        with self._lock:
            self.tasks = {(head["stage"], head["partition"]): head["figures"] for head in heads}
            events = max((of["events"] for (stage, _), of in self.tasks.items() if stage == 1), default=0)
            self.events, self.changed, self.batches = self.events + events, self.changed + changed, self.batches + 1
            self._recent.append((time.time(), events, changed))

    @property
    def state_bytes(self) -> int:
        return sum(of["state"] for of in self.tasks.values())

    def status(self, spark: Mapping[str, int]) -> Json:
        """All of them, for people and for Prometheus. `spark` are the milliseconds that Spark says a batch took, in
        parts: what its listeners hear, asked for when it is wanted, since listening is many calls into Java."""
        with self._lock:
            while self._recent and self._recent[0][0] < time.time() - RECENT_S:
                self._recent.popleft()
            span = min(RECENT_S, max(time.time() - self.began, 1e-3))
            stages = sorted({stage for stage, _ in self.tasks})
            return {
                "events": self.events,
                "changed_rows": self.changed,
                "batches": self.batches,
                "events_per_second": sum(events for _, events, _ in self._recent) / span,
                "changed_rows_per_second": sum(changed for _, _, changed in self._recent) / span,
                "batches_per_second": len(self._recent) / span,
                "state_bytes": self.state_bytes,
                "written_bytes": sum(of["written"] for of in self.tasks.values()),
                "batch_ms": self._parts(spark),
                "stage_ms": {
                    str(stage): {part: 1000 * self._slowest(stage, part) for part in TIMES} for stage in stages
                },
            }

    def _slowest(self, stage: int, part: str) -> float:
        return max((float(of[part]) for (s, _), of in self.tasks.items() if s == stage), default=0.0)

    def _parts(self, of: Mapping[str, int]) -> Json:
        """Where the time of the last batch went: to plan it, to run its tasks, in them to the kernels, to commit it."""
        stages = {stage for stage, _ in self.tasks}
        planning = sum(of.get(name, 0) for name in ("latestOffset", "queryPlanning", "getBatch"))
        commit = sum(of.get(name, 0) for name in ("walCommit", "commitOffsets", "commitBatch"))
        kernels = sum(1000 * self._slowest(stage, "kernels") for stage in stages)
        total, job = of.get("triggerExecution", 0), of.get("addBatch", 0)
        return {"total": total, "planning": planning, "job": job, "kernels": kernels, "commit": commit}
