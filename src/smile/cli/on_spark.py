"""`smile replay` on Spark: the events go into a log, a pipeline reads it, and what it tells is written as it comes."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from smile.cli.recording import Recording
from smile.cli.replay import Figures, OnSpark, Replay, say, write, write_rows
from smile.engine.local import Batch
from smile.engine.spark.job import Generation
from smile.engine.spark.pipeline import Pipeline
from smile.engine.spark.session import session
from smile.engine.spark.standing import Standing
from smile.log.durable import DurableLog
from smile.log.position import Limit, Log
from smile.program import Compiled

BATCH_ROWS_MAX = 200_000
BATCH_BYTES_MAX = 2**27
"""A batch takes all that has come since the last one, but not more than this."""


def on_spark(compiled: Compiled, asked: Replay, where: OnSpark, recorded: Recording, figures: Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="smile-") as folder, _starting(where, Path(folder)) as spark:
        if recorded.log is not None:
            pipeline = _pipeline(spark.result(), compiled, asked, where, recorded.log, folder, figures)
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
        else:
            pipeline = _fed(spark, compiled, asked, where, recorded, folder, figures)
        if not asked.changes:
            for view in asked.views:
                write_rows(pipeline.job.plans["0"].kernels, view, pipeline.rows(view), pipeline.offset.horizons)
        figures.state_bytes = pipeline.figures.state_bytes


def _fed(
    spark: "Future[SparkSession]",
    compiled: Compiled,
    asked: Replay,
    where: OnSpark,
    recorded: Recording,
    folder: str,
    figures: Figures,
) -> Pipeline:
    """Events are read while Spark starts, and then while it works."""
    log = DurableLog.at(f"{folder}/log", compiled.rewritten.streams, flush=False)
    pipeline: Pipeline | None = None
    try:
        for frame in recorded.frames():
            log.append_frame(frame)
            if pipeline is None and spark.done():
                pipeline = _pipeline(spark.result(), compiled, asked, where, log, folder, figures)
                pipeline.start()
            if pipeline is not None:
                pipeline.look()
    finally:
        # What came before a line that is refused is taken in all the same.
        if pipeline is None:
            pipeline = _pipeline(spark.result(), compiled, asked, where, log, folder, figures)
            pipeline.start()
        try:
            pipeline.finish()
        finally:
            pipeline.stop()
    return pipeline


def _pipeline(
    spark: SparkSession, compiled: Compiled, asked: Replay, where: OnSpark, log: Log, folder: str, figures: Figures
) -> Pipeline:
    limit = Limit(BATCH_ROWS_MAX, BATCH_BYTES_MAX) if asked.batch is None else Limit(commits=1)
    views = tuple(asked.views)
    only = Generation("0", compiled.rewritten, views, views, () if asked.changes else views)
    standing = Standing(asked.state or f"{folder}/state")
    job = standing.job((only,), where.partitions, log, limit, say)
    kernels = job.plans["0"].kernels

    def deliver(batch: Batch) -> None:
        write(asked, kernels, batch, figures)

    return Pipeline(spark, standing, job, deliver, say)


@contextmanager
def _starting(where: OnSpark, folder: Path) -> Iterator["Future[SparkSession]"]:
    """Spark, as soon as it is there; it goes with whoever asked for it."""
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(session, where.master, "smile", None if where.verbose else folder / "spark.log")
        try:
            yield found
        finally:
            if not found.exception():
                found.result().stop()
