"""What `smile replay` prints: rows or changes to standard output, messages and a summary to standard error.

Every printed line is complete.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from smile.cli.replay.recording import encode_json
from smile.cli.replay.request import ReplayRequest
from smile.encoding.json_changes import json_changes
from smile.engine.local import BatchResult
from smile.horizons import HORIZON_MIN, shown_horizons
from smile.kernels.compile import Kernels
from smile.kernels.delta import Delta
from smile.knowledge.values.json import tick_json


@dataclass
class ReplayMetrics:
    started: float = field(default_factory=time.perf_counter)
    events: int = 0
    duplicates: int = 0
    refused: int = 0
    batches: int = 0
    changed_rows: int = 0
    state_rows: int | None = None
    """None if it is not counted, because the state is in the files of a pipeline."""
    state_bytes: int = 0

    def _state_text(self) -> str:
        size = f"{self.state_bytes / 1e6:,.1f} MB"
        return f"state: {size}" if self.state_rows is None else f"state: {self.state_rows:,} rows, {size}"

    def text(self) -> str:
        seconds = time.perf_counter() - self.started
        rate = self.events / seconds if seconds else 0
        throughput = f"{rate:,.0f} events/s, {_count_text(self.batches, 'batch')}"
        parts = [
            f"{_count_text(self.events, 'event')} in {seconds:.2f} s ({throughput})",
            f"{_count_text(self.changed_rows, 'row')} changed",
            self._state_text(),
        ]
        if self.duplicates:
            parts.append(f"{_count_text(self.duplicates, 'duplicate')} dropped")
        if self.refused:
            parts.append(f"{_count_text(self.refused, 'line')} refused")
        return "; ".join(parts)


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("ch") else "s")


def print_message(message: str) -> None:
    print(f"smile: {message}", file=sys.stderr)


def write_batch(request: ReplayRequest, kernels: Kernels, batch: BatchResult, metrics: ReplayMetrics) -> None:
    """Counts the changes of a batch. Prints them, and the progress, if changes were requested."""
    out = sys.stdout.buffer
    metrics.batches += bool(
        progress := {stream: tick_json(h) for stream, h in shown_horizons(batch.horizons).items() if h > HORIZON_MIN}
    )
    for view in request.views:
        delta = batch.deltas.get(view)
        if delta is None:
            continue
        metrics.changed_rows += len(delta)
        if request.changes:
            write_rows(kernels, view, delta, batch.horizons)
    if request.changes and progress:
        out.write(encode_json({"progress": progress}) + b"\n")
        out.flush()


def write_rows(kernels: Kernels, view: str, rows: Delta, horizons: Mapping[str, int]) -> None:
    messages = json_changes(kernels.inputs[view], rows, horizons)
    sys.stdout.buffer.writelines(encode_json(message) + b"\n" for message in messages)
