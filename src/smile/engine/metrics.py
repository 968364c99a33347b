"""The status of a pipeline, and its metrics, which are collected from its tasks and from Spark. The local executor of a
broker reports the same."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from smile.horizons import shown_horizons
from smile.log.position import Log, Position

Json = dict[str, Any]
RATE_WINDOW_S = 30.0
"""Rates are averages over this time."""
TASK_PHASES = ("read", "kernels", "save", "pack")


@dataclass
class PipelineMetrics:
    """`tasks` has the figures of the last batch's tasks, by stage and partition."""

    tasks: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    events: int = 0
    changed_rows: int = 0
    batches: int = 0
    started_at: float = field(default_factory=time.time)
    _recent: "deque[tuple[float, int, int]]" = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def record_batch(self, headers: Sequence[Mapping[str, Any]], changed_rows: int) -> None:
        """Adds a batch: the headers of its tasks' messages, and how many rows it changed."""
        with self._lock:
            self.tasks = {(header["stage"], header["partition"]): header["figures"] for header in headers}
            events = max((task["events"] for (stage, _), task in self.tasks.items() if stage == 1), default=0)
            self.events, self.changed_rows, self.batches = (
                self.events + events,
                self.changed_rows + changed_rows,
                self.batches + 1,
            )
            self._recent.append((time.time(), events, changed_rows))

    @property
    def state_bytes(self) -> int:
        return sum(task["state"] for task in self.tasks.values())

    @property
    def state_bytes_by_view(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for task in list(self.tasks.values()):
            for view, size in task.get("views", {}).items():
                sizes[view] = sizes.get(view, 0) + size
        return sizes

    def status(self, durations_ms: Mapping[str, int]) -> Json:
        """All metrics, for `smile status` and Prometheus.

        `durations_ms` are Spark's own times for the phases of the last batch. They are polled, since a listener would
        cost many calls into Java."""
        with self._lock:
            while self._recent and self._recent[0][0] < time.time() - RATE_WINDOW_S:
                self._recent.popleft()
            window_s = min(RATE_WINDOW_S, max(time.time() - self.started_at, 1e-3))
            stages = sorted({stage for stage, _ in self.tasks})
            return {
                "events": self.events,
                "changed_rows": self.changed_rows,
                "batches": self.batches,
                "events_per_second": sum(events for _, events, _ in self._recent) / window_s,
                "changed_rows_per_second": sum(changed for _, _, changed in self._recent) / window_s,
                "batches_per_second": len(self._recent) / window_s,
                "state_bytes": self.state_bytes,
                "written_bytes": sum(task["written"] for task in self.tasks.values()),
                "batch_ms": self._batch_ms(durations_ms),
                "stage_ms": {
                    str(stage): {phase: 1000 * self._slowest_s(stage, phase) for phase in TASK_PHASES}
                    for stage in stages
                },
            }

    def _slowest_s(self, stage: int, phase: str) -> float:
        return max((float(task[phase]) for (s, _), task in self.tasks.items() if s == stage), default=0.0)

    def _batch_ms(self, durations_ms: Mapping[str, int]) -> Json:
        """How long the phases of the last batch took. `kernels` is part of `job`."""
        stages = {stage for stage, _ in self.tasks}
        planning = sum(durations_ms.get(name, 0) for name in ("latestOffset", "queryPlanning", "getBatch"))
        commit = sum(durations_ms.get(name, 0) for name in ("walCommit", "commitOffsets", "commitBatch"))
        kernels = sum(1000 * self._slowest_s(stage, "kernels") for stage in stages)
        total, job = durations_ms.get("triggerExecution", 0), durations_ms.get("addBatch", 0)
        return {"total": total, "planning": planning, "job": job, "kernels": kernels, "commit": commit}


def pipeline_status(
    log: Log, position: Position, views: Sequence[str], partitions: int, number: int, ui: str | None, metrics: Json
) -> Json:
    """The status of a pipeline that has read the log up to a position, in `number` batches."""
    backlog_events, backlog_bytes = log.backlog(position)
    return {
        "at": time.time(),
        "views": list(views),
        "partitions": partitions,
        "number": number,
        "horizons": shown_horizons(position.stream_horizons()),
        "waiting_events": backlog_events,
        "waiting_bytes": backlog_bytes,
        "ui": ui,
        **metrics,
    }
