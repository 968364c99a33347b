"""How fast pipelines on Spark are: Trade-Floor by batch size; how soon changes follow an event; what a batch costs that
has almost nothing in it; and the long run. All on this machine, `local[2]`.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from threading import Thread

from pyspark.sql import SparkSession
from rich.progress import track

from bench.report import Report, met
from bench.workload import frames_of, recorded
from smile.engine.delivery import arrow_changes
from smile.engine.generation import Generation
from smile.engine.local import Batch
from smile.engine.spark.pipeline import Pipeline, Taken
from smile.engine.spark.session import session
from smile.engine.spark.standing import Standing
from smile.log.durable import DurableLog
from smile.log.frame import Frame
from smile.log.position import Limit
from smile.program import compile_program, read_source

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
EVENTS = 600_000
LONG_RUN = 10_000_000
LONG_RUN_BATCH = Limit(50_000)
"""Several batches even in the shortest part, so that they can be compared."""
COMMIT = 10_000
"""Events a commit, where there is a backlog."""
BATCHES = (None, 200_000, 100_000, 10_000, 1_000)
"""Rows a batch at most; None is what a pipeline chooses by itself."""
SMALL_BATCHES = 150
ADAPTIVE = Limit(200_000, 2**27)
AT_LEAST = 250_000
RATES = (1_000, 10_000)
PACED_S = 20
COMMITS_A_SECOND = 100
P50_MS_MAX, P99_MS_MAX = 200, 600


@dataclass
class Course:
    """A run: when each batch was delivered, and how much it changed."""

    pipeline: Pipeline
    events: int = 0
    changed: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Of the batches after the first, which is empty and comes with all that is done but once."""
        return self.events / (self.times[-1] - self.times[0])

    @property
    def ms(self) -> list[float]:
        return [1000 * (b - a) for a, b in zip(self.times, self.times[1:], strict=False)]


@contextmanager
def course(spark: SparkSession, folder: Path, log: DurableLog, partitions: int, limit: Limit) -> Iterator[Course]:
    """A pipeline, not started yet, whose views' changes are built as Arrow in the driver."""
    program = compile_program(read_source(str(PROGRAM))).rewritten
    state = Path(tempfile.mkdtemp(dir=folder))
    standing = Standing(str(state))
    views = program.subscriptions
    job = standing.job((Generation("0", program, views, views, ()),), partitions, log, limit, print)
    inputs = job.plans["0"].kernels.inputs
    found = Course(Pipeline(spark, standing, job, lambda _: None, print))

    def deliver(batch: Batch) -> None:
        found.changed += sum(arrow_changes(inputs[v], of, batch.horizons).num_rows for v, of in batch.changes.items())
        found.times.append(time.perf_counter())

    found.pipeline.deliver = deliver
    try:
        yield found
    finally:
        found.pipeline.stop()
        shutil.rmtree(state, ignore_errors=True)


def logged(folder: Path, frames: Iterable[Frame]) -> tuple[DurableLog, int]:
    """A log of these frames, and how many events they have."""
    log = DurableLog.at(
        f"{tempfile.mkdtemp(dir=folder)}/log", compile_program(read_source(str(PROGRAM))).rewritten.streams, flush=False
    )
    count = 0
    for frame in frames:
        log.append_frame(frame)
        count += sum(batch.num_rows for batch in frame.events.values())
    return log, count


def to_the_end(spark: SparkSession, folder: Path, frames: Iterable[Frame], partitions: int, limit: Limit) -> Course:
    log, count = logged(folder, frames)
    with course(spark, folder, log, partitions, limit) as found:
        found.events = count
        found.pipeline.start(available_now=True)
        while not found.pipeline.wait():
            pass
    log.close()
    return found


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session("local[2]", "smile bench", folder / "spark.log")
        try:
            path = folder / "tradefloor.arrow"
            blocks = recorded(path, EVENTS)
            to_the_end(spark, folder, islice(frames_of(blocks, COMMIT), 10), 2, Limit(30_000))  # Java warms up
            _by_batch(report, spark, folder, path)
            _floor(report, spark, folder, path)
            _latency(report, spark, folder, path)
            _long_run(report, spark, folder, path)
        finally:
            spark.stop()


# ── how many events a second ────────────────────────────────────────────────────────────────────────────────────────


def _by_batch(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    blocks = recorded(path, EVENTS)
    rows, lines = [], {}
    for partitions in (1, 2):
        points = []
        for size in track(BATCHES, f"Trade-Floor on Spark, {partitions} partitions"):
            frames = frames_of(blocks, min(size or COMMIT, COMMIT))
            if size is not None and size < COMMIT:
                frames = islice(frames, SMALL_BATCHES)
            found = to_the_end(spark, folder, frames, partitions, ADAPTIVE if size is None else Limit(size))
            told = f"≥ {AT_LEAST:,}: {met(found.rate >= AT_LEAST)}" if size is None else ""
            ms = f"{median(found.ms):.0f}"
            rows.append((f"{size:,}" if size else "adaptive", str(partitions), f"{found.rate:,.0f}", ms, told))
            if size is not None:
                points.append((float(size), found.rate))
        lines[f"{partitions} partitions"] = points
    report.table(
        "Trade-Floor on Spark",
        f"{EVENTS:,} events that lie in the log already, all three views' changes delivered to the driver as Arrow, "
        "and a state file a partition in every batch. Cold state; Spark's own start is not counted. Batches below "
        f"{COMMIT:,} events are measured over {SMALL_BATCHES} of them.",
        ("events a batch", "partitions", "events/s", "ms a batch, median", "target"),
        rows,
    )
    report.plot("spark-batches", "events a batch", "events/s", lines)


# ── what a batch costs that has nothing in it ───────────────────────────────────────────────────────────────────────


def _floor(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    blocks = recorded(path, EVENTS)
    rows = []
    for partitions in (1, 2, 8):
        found = to_the_end(spark, folder, islice(frames_of(blocks, 1), 200), partitions, Limit(commits=1))
        parts = found.pipeline.status()["batch_ms"]
        steady = sorted(found.ms[50:])
        found_ms = (median(steady), steady[int(0.99 * len(steady))])
        of = (*found_ms, *(parts[name] for name in ("planning", "job", "kernels", "commit")))
        rows.append((str(partitions), *(f"{ms:.0f}" for ms in of)))
    report.table(
        "The floor of a batch",
        "Batches of one event, 150 after the first 50: milliseconds between the ends of two, and where the time of the "
        "last one went. Kernels are part of the job.",
        ("partitions", "ms, median", "99th", "planning", "job", "kernels", "commit"),
        rows,
    )


# ── how soon a change follows an event ──────────────────────────────────────────────────────────────────────────────


def _latency(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    rows = []
    for rate in track(RATES, "latency"):
        for partitions in (1, 2):
            delays = sorted(_delays(spark, folder, path, rate, partitions))
            p50, p99 = (delays[int(share * len(delays))] for share in (0.5, 0.99))
            told = met(p50 <= P50_MS_MAX and p99 <= P99_MS_MAX)
            rows.append((f"{rate:,}", str(partitions), f"{p50:.0f}", f"{p99:.0f}", f"{delays[-1]:.0f}", told))
    report.table(
        "From an event to its changes",
        f"Events are appended to the log (and flushed) {COMMITS_A_SECOND} times a second for {PACED_S} s; the delay "
        "is from before they are appended until the changes of their batch are in the driver, in ms. Target: "
        f"half of them within {P50_MS_MAX}, 99 in a hundred within {P99_MS_MAX}.",
        ("events/s", "partitions", "median", "99th", "worst", "target"),
        rows,
    )


def _delays(spark: SparkSession, folder: Path, path: Path, rate: int, partitions: int) -> list[float]:
    """Milliseconds, of each commit after the first seconds."""
    blocks = recorded(path, EVENTS)
    frames = list(islice(frames_of(blocks, rate // COMMITS_A_SECOND), PACED_S * COMMITS_A_SECOND))
    path = Path(tempfile.mkdtemp(dir=folder), "log")
    log = DurableLog.at(str(path), compile_program(read_source(str(PROGRAM))).rewritten.streams)
    appended: list[float] = []
    reached: list[tuple[int, float]] = []
    with course(spark, folder, log, partitions, ADAPTIVE) as found:
        pipeline, deliver = found.pipeline, found.pipeline.deliver

        def noted(batch: Taken) -> None:
            deliver(batch)
            last = max(batch.horizons.values())
            reached.append((last, time.perf_counter()))

        pipeline.deliver = noted
        pipeline.start()
        while not found.times:
            time.sleep(0.05)

        def publish() -> None:
            own = DurableLog.at(str(path), compile_program(read_source(str(PROGRAM))).rewritten.streams)
            begin = time.perf_counter()
            for number, frame in enumerate(frames):
                time.sleep(max(0.0, begin + number / COMMITS_A_SECOND - time.perf_counter()))
                appended.append(time.perf_counter())
                own.append_frame(frame)
            own.close()

        publisher = Thread(target=publish)
        publisher.start()
        publisher.join()
        pipeline.finish()
    log.close()
    ends = [max(frame.horizons.values()) for frame in frames]
    delays, at = [], 0
    for end, when in zip(ends, appended, strict=True):
        while reached[at][0] < end:
            at += 1
        delays.append(1000 * (reached[at][1] - when))
    return delays[2 * COMMITS_A_SECOND :]


# ── the long run ────────────────────────────────────────────────────────────────────────────────────────────────────


def _long_run(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    blocks = recorded(path, LONG_RUN)
    log, _ = logged(folder, [])
    frames = frames_of(blocks, COMMIT)
    rows: list[tuple[int, float, float, float, float]] = []
    done = 0
    with course(spark, folder, log, 2, LONG_RUN_BATCH) as found:
        for upto in track((100_000, 300_000, 1_000_000, 3_000_000, LONG_RUN), "Trade-Floor on Spark, the long run"):
            for frame in islice(frames, (upto - done) // COMMIT):
                log.append_frame(frame)
            found.pipeline.start(available_now=True)
            before = len(found.times)
            while not found.pipeline.wait():
                pass
            # The first batch of all is empty, and the first of each step begins with the query.
            seconds = _busy(found, before) if before else found.times[-1] - found.times[0]
            state = found.pipeline.figures.state_bytes / 1e6
            rows.append((upto, 1e6 * seconds / (upto - done), *_resident_mb(), state))
            done = upto
    log.close()
    drift = rows[-1][1] / rows[1][1] - 1
    report.table(
        "Trade-Floor on Spark in the long run",
        f"Batches of {LONG_RUN_BATCH.rows:,}, 2 partitions, a backlog at every step. Microseconds an event are those "
        f"of the events since the line before; from 300,000 events to {LONG_RUN:,} they change by {drift:+.0%} "
        f"(within 20%: {met(abs(drift) <= 0.2)}).",
        ("events", "µs an event", "MB of Java", "MB of Python workers", "MB of state"),
        [(f"{n:,}", f"{us:.2f}", f"{java:,.0f}", f"{py:,.0f}", f"{state:.1f}") for n, us, java, py, state in rows],
    )
    report.plot("spark-events", "events", "µs an event", {"Trade-Floor, 2 partitions": [(r[0], r[1]) for r in rows]})


def _busy(found: Course, before: int) -> float:
    """The time of the batches since, the first of them reckoned as long as the others: it began with the query."""
    gaps = [b - a for a, b in zip(found.times[before:], found.times[before + 1 :], strict=False)]
    return sum(gaps) + (sum(gaps) / len(gaps) if gaps else 0.0)


def _resident_mb() -> tuple[float, float]:
    """Of Java, and of its Python workers."""
    listed = subprocess.run(["ps", "-eo", "rss,ppid,pid,args"], capture_output=True, text=True).stdout.splitlines()[1:]
    java = python = 0
    for line in listed:
        rss, _, _, args = line.split(None, 3)
        if "org.apache.spark.deploy.SparkSubmit" in args:
            java += int(rss)
        elif "smile.engine.spark.daemon" in args or "python_streaming_source_runner" in args:
            python += int(rss)
    return java / 1000, python / 1000
