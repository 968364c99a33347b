"""Throughput of the local engine: Trade-Floor by batch size and by number of events, and single operators.

It runs on one core. In every batch the changes of all subscribed views are built as Arrow, and a state file is written.
"""

import os
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from rich.progress import track

from bench.by_hand import TradeFloorByHand
from bench.operators import OPERATORS
from bench.report import Report, verdict
from bench.workload import count_open_bids, input_batches, load_blocks
from smile.encoding.arrow_changes import arrow_changes
from smile.engine.local import LocalEngine
from smile.kernels.compile import compile_graph
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram, compile_program, read_source
from smile.source import Source
from smile.state.store import StateStore

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
EVENTS = 600_000
BATCH_SIZES = (100_000, 10_000, 1_000)
RATES_MIN = {10_000: 300_000, 1_000: 100_000}
SINGLE_BATCHES = 2_000
SINGLE_MS_MAX = 5.0
LONG_RUN = 10_000_000
OPERATOR_EVENTS = 1_000_000


@dataclass
class EngineRun:
    """The duration of a run, batch by batch."""

    batch_events: list[int] = field(default_factory=list)
    batch_seconds: list[float] = field(default_factory=list)
    changed_rows: int = 0
    bytes_written: int = 0

    @property
    def rate(self) -> float:
        return sum(self.batch_events) / sum(self.batch_seconds)

    def batch_ms(self, quantile: float) -> float:
        """The duration that this share of the batches did not exceed."""
        ordered = sorted(self.batch_seconds)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] * 1000


def run(report: Report) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tradefloor.arrow")
            _measure_by_batch_size(report, path)
            _measure_by_events(report, path)
            _measure_by_operator(report)
    finally:
        os.sched_setaffinity(0, cores)


def run_batches(
    compiled: CompiledProgram, batches: Iterable[InputBatch], warm_engine: LocalEngine | None = None
) -> tuple[EngineRun, LocalEngine]:
    """Runs batches through a program and times each. Only the creation of the batches is not timed."""
    engine_run = EngineRun()
    with tempfile.TemporaryDirectory() as folder:
        engine = warm_engine or LocalEngine(compile_graph(compiled.graph, compiled.rewritten.streams))
        engine.store = StateStore.open(folder, "bench")
        for input_batch in batches:
            begin = time.perf_counter()
            batch = engine.advance(input_batch)
            for view in compiled.rewritten.subscriptions:
                if view in batch.deltas:
                    changes = arrow_changes(engine.kernels.inputs[view], batch.deltas[view], batch.horizons)
                    engine_run.changed_rows += changes.num_rows
            engine_run.bytes_written += engine.checkpoint()
            engine_run.batch_seconds.append(time.perf_counter() - begin)
            engine_run.batch_events.append(sum(b.num_rows for b in input_batch.events.values()))
    return engine_run, engine


# ── Trade-Floor ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_by_batch_size(report: Report, path: Path) -> None:
    compiled = compile_program(read_source(str(PROGRAM)))
    blocks = load_blocks(path, EVENTS)
    # Warm-up, so that one-time imports are not measured.
    run_batches(compiled, islice(input_batches(blocks, 10_000), 3))
    by_hand = _measure_by_hand(blocks)
    rows = []
    warm_engine: LocalEngine | None = None
    for size in track(BATCH_SIZES, "Trade-Floor, by batch"):
        engine_run, warm_engine = run_batches(compiled, input_batches(blocks, size))
        target = f"≥ {RATES_MIN[size]:,}: {verdict(engine_run.rate >= RATES_MIN[size])}" if size in RATES_MIN else ""
        rows.append((size, engine_run, target))
    # Single events run on the state that the last run has built.
    single_events = islice(
        input_batches(load_blocks(path, EVENTS + SINGLE_BATCHES), 1), EVENTS, EVENTS + SINGLE_BATCHES
    )
    engine_run, _ = run_batches(compiled, list(single_events), warm_engine)
    rows.append((1, engine_run, f"< {SINGLE_MS_MAX:g} ms: {verdict(engine_run.batch_ms(0.5) < SINGLE_MS_MAX)}"))
    report.table(
        "Trade-Floor in this process",
        f"{EVENTS:,} events on one core. In every batch the changes of all three views are built as Arrow, and a state "
        "file is written. By hand: the same rows in Python dictionaries, updated event by event, without knowledge, "
        f"changes or files: {by_hand:,.0f} events/s in the same run. {count_open_bids(blocks):,} bids are open at the "
        "end.",
        ("events a batch", "events/s", "times by hand", "ms a batch, median", "99th", "changes an event", "target"),
        [
            (
                f"{size:,}",
                f"{result.rate:,.0f}",
                f"{result.rate / by_hand:.1f}",
                f"{result.batch_ms(0.5):.2f}",
                f"{result.batch_ms(0.99):.2f}",
                f"{result.changed_rows / sum(result.batch_events):.1f}",
                target,
            )
            for size, result, target in rows
        ],
    )
    points = [(size, result.rate) for size, result, _ in rows]
    report.plot("batches", "events a batch", "events/s", {"Trade-Floor, one core": points})


def _measure_by_hand(blocks: Sequence[object]) -> float:
    floor = TradeFloorByHand()
    events = [
        event for input_batch in input_batches(blocks, 10_000) for event in TradeFloorByHand.ordered_events(input_batch)
    ]
    begin = time.perf_counter()
    for event in events:
        floor.apply_event(*event)
    return len(events) / (time.perf_counter() - begin)


def _measure_by_events(report: Report, path: Path) -> None:
    compiled = compile_program(read_source(str(PROGRAM)))
    blocks = load_blocks(path, LONG_RUN)
    engine: LocalEngine | None = None
    rows: list[tuple[int, float, int, int, int, float]] = []
    batches = input_batches(blocks, 10_000)
    done = 0
    for upto in track((100_000, 300_000, 1_000_000, 3_000_000, LONG_RUN), "Trade-Floor, by events"):
        engine_run, engine = run_batches(compiled, islice(batches, (upto - done) // 10_000), engine)
        done = upto
        tables = engine.tables.values()
        size, state_bytes = sum(t.row_count for t in tables), sum(t.nbytes for t in tables)
        rows.append((upto, 1e6 / engine_run.rate, size, state_bytes, engine_run.bytes_written, _resident_mb()))
    first, last = rows[1][1], rows[-1][1]
    report.table(
        "Trade-Floor in the long run",
        "Batches of 10,000 events, one core. Each line has the mean microseconds of the events since the line before. "
        f"From 300,000 to {LONG_RUN:,} events they change by {last / first - 1:+.0%} (target: within 20%: "
        f"{verdict(abs(last / first - 1) <= 0.2)}). The size of the state depends on the open bids, not on the events.",
        ("events", "µs an event", "rows of state", "MB of state", "MB resident"),
        [(f"{n:,}", f"{us:.2f}", f"{s:,}", f"{b / 1e6:.1f}", f"{mb:,.0f}") for n, us, s, b, _, mb in rows],
    )
    report.plot("events", "events", "µs an event", {"Trade-Floor": [(r[0], r[1]) for r in rows]})


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


# ── one operator ────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_by_operator(report: Report) -> None:
    rows = []
    for operator in track(OPERATORS, "operators"):
        compiled = compile_program(Source(f"{operator.name}.smile", operator.program))
        engine_run, engine = run_batches(compiled, _materialize(operator.make_batches(OPERATOR_EVENTS, 10_000, 1)))
        size = sum(t.row_count for t in engine.tables.values())
        rows.append(
            (
                operator.name,
                f"{engine_run.rate:,.0f}",
                f"{engine_run.batch_ms(0.5):.2f}",
                f"{engine_run.batch_ms(0.99):.2f}",
                f"{size:,}",
            )
        )
    report.table(
        "One operator at a time",
        f"{OPERATOR_EVENTS:,} events in batches of 10,000 on one core. Changes and state files are built as above.",
        ("operator", "events/s", "ms a batch, median", "99th", "rows of state"),
        rows,
    )


def _materialize(batches: Iterator[InputBatch]) -> list[InputBatch]:
    return list(batches)
