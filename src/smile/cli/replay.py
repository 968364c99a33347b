"""`smile replay`: runs recorded events through a program and prints its views. Every printed line is complete."""

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from smile.algebra.printer import print_program
from smile.cli.recording import Recording, encode_json, open_recording
from smile.encoding.json_changes import json_changes
from smile.engine.local import BatchResult, LocalEngine
from smile.horizons import HORIZON_MIN
from smile.kernels.compile import Kernels, compile_graph, materialized_name
from smile.kernels.delta import Delta
from smile.kernels.materialized_view import MaterializedView
from smile.knowledge.values.json import tick_json
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram
from smile.state.store import StateStore


@dataclass(frozen=True)
class SparkOptions:
    """Where a pipeline runs, and in how many partitions. With `verbose`, Java's output is shown."""

    master: str
    partitions: int
    verbose: bool


@dataclass(frozen=True)
class ReplayRequest:
    """The options of a replay. Without `batch`, a batch has `BATCH_DEFAULT` lines in this process, and grows with the
    backlog on Spark. `bad` is the file for refused lines; without it the first refused line ends the replay. `state` is
    the directory where state is stored between runs. Without `spark`, the replay runs in this process."""

    views: Sequence[str]
    events: str
    batch: int | None
    changes: bool
    end: bool
    bad: str | None
    state: str | None
    spark: SparkOptions | None


BATCH_DEFAULT = 10_000
"""Lines in a batch: enough that the cost of a batch is small for each, few enough that changes appear often."""


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


def replay(compiled: CompiledProgram, request: ReplayRequest) -> ReplayMetrics:
    """Prints to standard output. Raises SmileError for errors of events, files or the machine."""
    metrics = ReplayMetrics()
    batch = request.batch or BATCH_DEFAULT
    with open_recording(compiled, request.events, batch, request.end, request.bad) as recording:
        if request.spark is None:
            _replay_locally(compiled, request, recording, metrics)
        else:
            # Importing Spark takes a second, and only this needs it.
            from smile.cli.spark_replay import replay_on_spark  # noqa: PLC0415

            replay_on_spark(compiled, request, request.spark, recording, metrics)
    metrics.events, metrics.duplicates, metrics.refused = recording.events, recording.duplicates, recording.refused
    sys.stdout.buffer.flush()
    return metrics


def _replay_locally(
    compiled: CompiledProgram, request: ReplayRequest, recording: Recording, metrics: ReplayMetrics
) -> None:
    kernels = compile_graph(compiled.graph.for_views(request.views), compiled.rewritten.streams)
    engine = LocalEngine(kernels if request.changes else kernels.with_materialized_views(request.views))
    if request.state is not None:
        engine.store = StateStore.open(f"{request.state}/in-process", _digest(compiled, request))
        for problem in engine.resume():
            print_message(f"{problem}; it is passed over")
    # An empty batch comes first: views may have rows before any event.
    for batch in chain([InputBatch({}, {})], recording.batches()):
        write_batch(request, kernels, engine.advance(batch), metrics)
        if request.state is not None:
            engine.checkpoint()
    if not request.changes:
        states = engine.state.states
        for view in request.views:
            transform = engine.kernels.transforms[materialized_name(view)]
            assert isinstance(transform, MaterializedView)
            write_rows(kernels, view, transform.read_rows(states[materialized_name(view)]), engine.state.horizons)
    tables = engine.tables.values()
    metrics.state_rows = sum(table.row_count for table in tables)
    metrics.state_bytes = sum(table.nbytes for table in tables)


def _digest(compiled: CompiledProgram, request: ReplayRequest) -> str:
    """Identifies what state belongs to: the rewritten program, and the views whose rows are stored."""
    materialized_views = [] if request.changes else sorted(request.views)
    return hashlib.sha256(repr([print_program(compiled.rewritten), materialized_views]).encode()).hexdigest()


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def print_message(message: str) -> None:
    print(f"smile: {message}", file=sys.stderr)


def write_batch(request: ReplayRequest, kernels: Kernels, batch: BatchResult, metrics: ReplayMetrics) -> None:
    """Counts the changes of a batch. Prints them, and the progress, if changes were requested."""
    out = sys.stdout.buffer
    metrics.batches += bool(
        progress := {stream: tick_json(h) for stream, h in batch.horizons.items() if h > HORIZON_MIN}
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
