"""Performance of pipelines on Spark: Trade-Floor by batch size, the cost of a batch with one event, the latency from an
event to its changes, and a long run. All of it runs on this machine with `local[2]`.
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

from bench.report import Report, verdict
from bench.workload import input_batches, load_blocks
from smile.encoding.arrow_changes import arrow_changes
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import PipelineBatch, SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.session import spark_session
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit
from smile.log.storage.durable import DurableLog
from smile.program import compile_program, read_source

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
EVENTS = 600_000
LONG_RUN = 10_000_000
LONG_RUN_BATCH = BatchLimit(50_000)
"""Small enough that even the shortest part has several batches."""
COMMIT_EVENTS = 10_000
"""Events in a commit of a backlog."""
BATCH_SIZES = (None, 200_000, 100_000, 10_000, 1_000)
"""Maximal rows in a batch; None means adaptive batches."""
SMALL_BATCHES = 150
ADAPTIVE_LIMIT = BatchLimit(200_000, 2**27)
RATE_MIN = 250_000
RATES = (1_000, 10_000)
PACED_S = 20
COMMITS_PER_SECOND = 100
P50_MS_MAX, P99_MS_MAX = 200, 600


@dataclass
class PipelineRun:
    """A run of a pipeline: when each batch was delivered, and how many rows changed."""

    pipeline: SparkPipeline
    events: int = 0
    changed_rows: int = 0
    delivery_times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Events a second after the first batch, which is empty and includes one-time work."""
        return self.events / (self.delivery_times[-1] - self.delivery_times[0])

    @property
    def batch_ms(self) -> list[float]:
        return [1000 * (b - a) for a, b in zip(self.delivery_times, self.delivery_times[1:], strict=False)]


@contextmanager
def prepare_run(
    spark: SparkSession, folder: Path, log: DurableLog, partitions: int, limit: BatchLimit
) -> Iterator[PipelineRun]:
    """A pipeline that is not started yet. The driver builds the changes of its views as Arrow."""
    program = compile_program(read_source(str(PROGRAM))).rewritten
    state = Path(tempfile.mkdtemp(dir=folder))
    directory = PipelineDirectory(str(state))
    views = program.subscriptions
    job = directory.open_job((Generation("0", program, views, views, ()),), partitions, log, limit, print)
    inputs = job.plans["0"].kernels.inputs
    pipeline_run = PipelineRun(SparkPipeline(spark, directory, job, lambda _: None, print))

    def deliver(batch: BatchResult) -> None:
        pipeline_run.changed_rows += sum(
            arrow_changes(inputs[v], delta, batch.horizons).num_rows for v, delta in batch.deltas.items()
        )
        pipeline_run.delivery_times.append(time.perf_counter())

    pipeline_run.pipeline.deliver = deliver
    try:
        yield pipeline_run
    finally:
        pipeline_run.pipeline.stop()
        shutil.rmtree(state, ignore_errors=True)


def write_log(folder: Path, batches: Iterable[InputBatch]) -> tuple[DurableLog, int]:
    """A log of these batches, and the number of their events."""
    log = DurableLog.open_or_create(
        f"{tempfile.mkdtemp(dir=folder)}/log", compile_program(read_source(str(PROGRAM))).rewritten.streams, flush=False
    )
    count = 0
    for input_batch in batches:
        log.append_batch(input_batch)
        count += sum(batch.num_rows for batch in input_batch.events.values())
    return log, count


def run_to_end(
    spark: SparkSession, folder: Path, batches: Iterable[InputBatch], partitions: int, limit: BatchLimit
) -> PipelineRun:
    log, count = write_log(folder, batches)
    with prepare_run(spark, folder, log, partitions, limit) as pipeline_run:
        pipeline_run.events = count
        pipeline_run.pipeline.start(available_now=True)
        while not pipeline_run.pipeline.wait():
            pass
    log.close()
    return pipeline_run


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = spark_session("local[2]", "smile bench", folder / "spark.log")
        try:
            path = folder / "tradefloor.arrow"
            blocks = load_blocks(path, EVENTS)
            warm_up_batches = islice(input_batches(blocks, COMMIT_EVENTS), 10)
            run_to_end(spark, folder, warm_up_batches, 2, BatchLimit(30_000))
            _measure_by_batch_size(report, spark, folder, path)
            _measure_batch_overhead(report, spark, folder, path)
            _measure_latency(report, spark, folder, path)
            _measure_long_run(report, spark, folder, path)
        finally:
            spark.stop()


# ── throughput ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_by_batch_size(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    blocks = load_blocks(path, EVENTS)
    rows, lines = [], {}
    for partitions in (1, 2):
        points = []
        for size in track(BATCH_SIZES, f"Trade-Floor on Spark, {partitions} partitions"):
            batches = input_batches(blocks, min(size or COMMIT_EVENTS, COMMIT_EVENTS))
            if size is not None and size < COMMIT_EVENTS:
                batches = islice(batches, SMALL_BATCHES)
            pipeline_run = run_to_end(
                spark, folder, batches, partitions, ADAPTIVE_LIMIT if size is None else BatchLimit(size)
            )
            target = f"≥ {RATE_MIN:,}: {verdict(pipeline_run.rate >= RATE_MIN)}" if size is None else ""
            ms = f"{median(pipeline_run.batch_ms):.0f}"
            rows.append((f"{size:,}" if size else "adaptive", str(partitions), f"{pipeline_run.rate:,.0f}", ms, target))
            if size is not None:
                points.append((float(size), pipeline_run.rate))
        lines[f"{partitions} partitions"] = points
    report.table(
        "Trade-Floor on Spark",
        f"{EVENTS:,} events that are in the log already. In every batch the changes of all three views are delivered "
        "to the driver as Arrow, and each partition writes a state file. The state is empty at first; the start of "
        f"Spark is not counted. For batches below {COMMIT_EVENTS:,} events, {SMALL_BATCHES} batches are measured.",
        ("events a batch", "partitions", "events/s", "ms a batch, median", "target"),
        rows,
    )
    report.plot("spark-batches", "events a batch", "events/s", lines)


# ── overhead of a batch ─────────────────────────────────────────────────────────────────────────────────────────────


def _measure_batch_overhead(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    blocks = load_blocks(path, EVENTS)
    rows = []
    for partitions in (1, 2, 8):
        pipeline_run = run_to_end(
            spark, folder, islice(input_batches(blocks, 1), 200), partitions, BatchLimit(commits=1)
        )
        parts = pipeline_run.pipeline.status()["batch_ms"]
        steady = sorted(pipeline_run.batch_ms[50:])
        quantiles = (median(steady), steady[int(0.99 * len(steady))])
        times = (*quantiles, *(parts[name] for name in ("planning", "job", "kernels", "commit")))
        rows.append((str(partitions), *(f"{ms:.0f}" for ms in times)))
    report.table(
        "The overhead of a batch",
        "Batches of one event, 150 after the first 50: milliseconds between the ends of two batches, and the parts of "
        "the last batch. Kernels are part of the job.",
        ("partitions", "ms, median", "99th", "planning", "job", "kernels", "commit"),
        rows,
    )


# ── latency ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_latency(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    rows = []
    for rate in track(RATES, "latency"):
        for partitions in (1, 2):
            delays = sorted(_measure_delays(spark, folder, path, rate, partitions))
            p50, p99 = (delays[int(share * len(delays))] for share in (0.5, 0.99))
            target = verdict(p50 <= P50_MS_MAX and p99 <= P99_MS_MAX)
            rows.append((f"{rate:,}", str(partitions), f"{p50:.0f}", f"{p99:.0f}", f"{delays[-1]:.0f}", target))
    report.table(
        "From an event to its changes",
        f"Events are appended to the log, and flushed, {COMMITS_PER_SECOND} times a second for {PACED_S} s. The delay "
        "is from before they are appended until the changes of their batch are in the driver, in ms. Target: median "
        f"{P50_MS_MAX}, 99th percentile {P99_MS_MAX}.",
        ("events/s", "partitions", "median", "99th", "worst", "target"),
        rows,
    )


def _measure_delays(spark: SparkSession, folder: Path, path: Path, rate: int, partitions: int) -> list[float]:
    """The delay in milliseconds of each commit after the first two seconds."""
    blocks = load_blocks(path, EVENTS)
    batches = list(islice(input_batches(blocks, rate // COMMITS_PER_SECOND), PACED_S * COMMITS_PER_SECOND))
    path = Path(tempfile.mkdtemp(dir=folder), "log")
    log = DurableLog.open_or_create(str(path), compile_program(read_source(str(PROGRAM))).rewritten.streams)
    appended: list[float] = []
    reached: list[tuple[int, float]] = []
    with prepare_run(spark, folder, log, partitions, ADAPTIVE_LIMIT) as pipeline_run:
        pipeline, deliver = pipeline_run.pipeline, pipeline_run.pipeline.deliver

        def record_delivery(batch: PipelineBatch) -> None:
            deliver(batch)
            last = max(batch.horizons.values())
            reached.append((last, time.perf_counter()))

        pipeline.deliver = record_delivery
        pipeline.start()
        while not pipeline_run.delivery_times:
            time.sleep(0.05)

        def publish() -> None:
            publisher_log = DurableLog.open_or_create(
                str(path), compile_program(read_source(str(PROGRAM))).rewritten.streams
            )
            begin = time.perf_counter()
            for number, input_batch in enumerate(batches):
                time.sleep(max(0.0, begin + number / COMMITS_PER_SECOND - time.perf_counter()))
                appended.append(time.perf_counter())
                publisher_log.append_batch(input_batch)
            publisher_log.close()

        publisher = Thread(target=publish)
        publisher.start()
        publisher.join()
        pipeline.wait_until_caught_up()
    log.close()
    ends = [max(input_batch.horizons.values()) for input_batch in batches]
    delays, index = [], 0
    for end, when in zip(ends, appended, strict=True):
        while reached[index][0] < end:
            index += 1
        delays.append(1000 * (reached[index][1] - when))
    return delays[2 * COMMITS_PER_SECOND :]


# ── long run ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _measure_long_run(report: Report, spark: SparkSession, folder: Path, path: Path) -> None:
    blocks = load_blocks(path, LONG_RUN)
    log, _ = write_log(folder, [])
    batches = input_batches(blocks, COMMIT_EVENTS)
    rows: list[tuple[int, float, float, float, float]] = []
    done = 0
    with prepare_run(spark, folder, log, 2, LONG_RUN_BATCH) as pipeline_run:
        for upto in track((100_000, 300_000, 1_000_000, 3_000_000, LONG_RUN), "Trade-Floor on Spark, the long run"):
            for input_batch in islice(batches, (upto - done) // COMMIT_EVENTS):
                log.append_batch(input_batch)
            pipeline_run.pipeline.start(available_now=True)
            before = len(pipeline_run.delivery_times)
            while not pipeline_run.pipeline.wait():
                pass
            # The very first batch is empty; the first batch of a later step includes the start of the query.
            seconds = (
                _busy_seconds(pipeline_run, before)
                if before
                else pipeline_run.delivery_times[-1] - pipeline_run.delivery_times[0]
            )
            state = pipeline_run.pipeline.metrics.state_bytes / 1e6
            rows.append((upto, 1e6 * seconds / (upto - done), *_resident_mb(), state))
            done = upto
    log.close()
    drift = rows[-1][1] / rows[1][1] - 1
    report.table(
        "Trade-Floor on Spark in the long run",
        f"Batches of {LONG_RUN_BATCH.rows:,}, 2 partitions, a backlog at every step. Each line has the mean "
        f"microseconds of the events since the line before. From 300,000 to {LONG_RUN:,} events they change by "
        f"{drift:+.0%} (target: within 20%: {verdict(abs(drift) <= 0.2)}).",
        ("events", "µs an event", "MB of Java", "MB of Python workers", "MB of state"),
        [(f"{n:,}", f"{us:.2f}", f"{java:,.0f}", f"{py:,.0f}", f"{state:.1f}") for n, us, java, py, state in rows],
    )
    report.plot("spark-events", "events", "µs an event", {"Trade-Floor, 2 partitions": [(r[0], r[1]) for r in rows]})


def _busy_seconds(pipeline_run: PipelineRun, before: int) -> float:
    """The duration of the batches from `before` on. The first one began with the query, so it counts as the mean."""
    gaps = [
        b - a
        for a, b in zip(pipeline_run.delivery_times[before:], pipeline_run.delivery_times[before + 1 :], strict=False)
    ]
    return sum(gaps) + (sum(gaps) / len(gaps) if gaps else 0.0)


def _resident_mb() -> tuple[float, float]:
    """Memory of Java, and of its Python workers."""
    processes = subprocess.run(["ps", "-eo", "rss,ppid,pid,args"], capture_output=True, text=True).stdout
    java = python = 0
    for line in processes.splitlines()[1:]:
        rss, _, _, args = line.split(None, 3)
        if "org.apache.spark.deploy.SparkSubmit" in args:
            java += int(rss)
        elif "smile.engine.spark.daemon" in args or "python_streaming_source_runner" in args:
            python += int(rss)
    return java / 1000, python / 1000
