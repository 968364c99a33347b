"""How fast the in-process engine is: Trade-Floor by batch size and by number of events, and one operator at a time.

On one core. In every batch the changes of all subscribed views are built as Arrow, and a state file is written.
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
from bench.report import Report, met
from bench.workload import frames_of, open_bids, recorded
from smile.engine.delivery import arrow_changes
from smile.engine.local import LocalEngine
from smile.kernels.compile import compile_graph
from smile.log.frame import Frame
from smile.program import Compiled, compile_program, read_source
from smile.source import Source
from smile.state.store import Store

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
EVENTS = 600_000
BATCHES = (100_000, 10_000, 1_000)
AT_LEAST = {10_000: 300_000, 1_000: 100_000}
SINGLE_BATCHES = 2_000
SINGLE_MS_MAX = 5.0
LONG_RUN = 10_000_000
OPERATOR_EVENTS = 1_000_000


@dataclass
class Course:
    """What a run took, batch by batch."""

    events: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    changed: int = 0
    written: int = 0

    @property
    def rate(self) -> float:
        return sum(self.events) / sum(self.seconds)

    def ms(self, share: float) -> float:
        """The time of a batch that this share of them do not exceed."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))] * 1000


def run(report: Report) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tradefloor.arrow")
            _by_batch(report, path)
            _by_events(report, path)
            _by_operator(report)
    finally:
        os.sched_setaffinity(0, cores)


def course(compiled: Compiled, frames: Iterable[Frame], start: LocalEngine | None = None) -> tuple[Course, LocalEngine]:
    """Runs frames through a program, timing each; only the frames themselves are made outside the clock."""
    found = Course()
    with tempfile.TemporaryDirectory() as folder:
        engine = start or LocalEngine(compile_graph(compiled.graph, compiled.rewritten.streams))
        engine.store = Store.at(folder, "bench")
        for frame in frames:
            begin = time.perf_counter()
            batch = engine.advance(frame)
            for view in compiled.rewritten.subscriptions:
                if view in batch.changes:
                    told = arrow_changes(engine.kernels.inputs[view], batch.changes[view], batch.horizons)
                    found.changed += told.num_rows
            found.written += engine.checkpoint()
            found.seconds.append(time.perf_counter() - begin)
            found.events.append(sum(b.num_rows for b in frame.events.values()))
    return found, engine


# ── Trade-Floor ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_batch(report: Report, path: Path) -> None:
    compiled = compile_program(read_source(str(PROGRAM)))
    blocks = recorded(path, EVENTS)
    course(compiled, islice(frames_of(blocks, 10_000), 3))  # so that nothing is measured that is loaded only once
    by_hand = _by_hand(blocks)
    rows = []
    warm: LocalEngine | None = None
    for size in track(BATCHES, "Trade-Floor, by batch"):
        found, warm = course(compiled, frames_of(blocks, size))
        told = f"≥ {AT_LEAST[size]:,}: {met(found.rate >= AT_LEAST[size])}" if size in AT_LEAST else ""
        rows.append((size, found, told))
    # Single events meet the state that all the others have left.
    later = islice(frames_of(recorded(path, EVENTS + SINGLE_BATCHES), 1), EVENTS, EVENTS + SINGLE_BATCHES)
    found, _ = course(compiled, list(later), warm)
    rows.append((1, found, f"< {SINGLE_MS_MAX:g} ms: {met(found.ms(0.5) < SINGLE_MS_MAX)}"))
    report.table(
        "Trade-Floor in this process",
        f"{EVENTS:,} events, one core, all three views' changes built as Arrow and a state file written in every "
        f"batch. By hand: the same rows (without knowledge, changes or files) kept in Python dictionaries, event by "
        f"event, {by_hand:,.0f} events/s in the same run. {open_bids(blocks):,} bids are open at the end.",
        ("events a batch", "events/s", "times by hand", "ms a batch, median", "99th", "rows told an event", "target"),
        [
            (
                f"{size:,}", f"{f.rate:,.0f}", f"{f.rate / by_hand:.1f}", f"{f.ms(0.5):.2f}", f"{f.ms(0.99):.2f}",
                f"{f.changed / sum(f.events):.1f}", told,
            )
            for size, f, told in rows
        ],
    )  # fmt: skip
    report.plot("batches", "events a batch", "events/s", {"Trade-Floor, one core": [(s, f.rate) for s, f, _ in rows]})


def _by_hand(blocks: Sequence[object]) -> float:
    floor = TradeFloorByHand()
    lines = [line for frame in frames_of(blocks, 10_000) for line in TradeFloorByHand.lines(frame)]
    begin = time.perf_counter()
    for line in lines:
        floor.take(*line)
    return len(lines) / (time.perf_counter() - begin)


def _by_events(report: Report, path: Path) -> None:
    compiled = compile_program(read_source(str(PROGRAM)))
    blocks = recorded(path, LONG_RUN)
    engine: LocalEngine | None = None
    rows: list[tuple[int, float, int, int, int, float]] = []
    frames = frames_of(blocks, 10_000)
    done = 0
    for upto in track((100_000, 300_000, 1_000_000, 3_000_000, LONG_RUN), "Trade-Floor, by events"):
        found, engine = course(compiled, islice(frames, (upto - done) // 10_000), engine)
        done = upto
        tables = engine.tables.values()
        size, taken = sum(t.size for t in tables), sum(t.bytes for t in tables)
        rows.append((upto, 1e6 / found.rate, size, taken, found.written, _resident_mb()))
    first, last = rows[1][1], rows[-1][1]
    report.table(
        "Trade-Floor in the long run",
        "Batches of 10,000 events, one core. Microseconds an event are those of the events since the line before. "
        f"From 300,000 events to {LONG_RUN:,} they change by {last / first - 1:+.0%} (within 20%: "
        f"{met(abs(last / first - 1) <= 0.2)}). State follows the bids that are open, not the events.",
        ("events", "µs an event", "rows of state", "MB of state", "MB resident"),
        [(f"{n:,}", f"{us:.2f}", f"{s:,}", f"{b / 1e6:.1f}", f"{mb:,.0f}") for n, us, s, b, _, mb in rows],
    )
    report.plot("events", "events", "µs an event", {"Trade-Floor": [(r[0], r[1]) for r in rows]})


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


# ── one operator ────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_operator(report: Report) -> None:
    rows = []
    for operator in track(OPERATORS, "operators"):
        compiled = compile_program(Source(f"{operator.name}.smile", operator.program))
        found, engine = course(compiled, _made(operator.frames(OPERATOR_EVENTS, 10_000, 1)))
        size = sum(t.size for t in engine.tables.values())
        rows.append((operator.name, f"{found.rate:,.0f}", f"{found.ms(0.5):.2f}", f"{found.ms(0.99):.2f}", f"{size:,}"))
    report.table(
        "One operator at a time",
        f"{OPERATOR_EVENTS:,} events in batches of 10,000, one core, changes built and state written as above.",
        ("operator", "events/s", "ms a batch, median", "99th", "rows of state"),
        rows,
    )


def _made(frames: Iterator[Frame]) -> list[Frame]:
    return list(frames)
