"""`smile replay` on Spark: writes the events to a log, runs a pipeline over it, and prints the results as they come.

However it ends, it stops Java and its workers, and deletes all temporary folders.
"""

import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from pyspark.sql import SparkSession

from smile import limits
from smile.cli.replay.output import ReplayMetrics, print_message, write_batch, write_rows
from smile.cli.replay.recording import Recording
from smile.cli.replay.request import ReplayRequest, SparkOptions
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.session import SPARK_ERRORS, JavaProcess
from smile.errors import SmileError
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit
from smile.log.storage.durable import DurableLog
from smile.program import CompiledProgram
from smile.temporary_folder import temporary_folder

CreatePipeline = Callable[[], SparkPipeline]


def replay_on_spark(
    compiled: CompiledProgram,
    request: ReplayRequest,
    spark_options: SparkOptions,
    recording: Recording,
    metrics: ReplayMetrics,
) -> None:
    with _exit_on_sigterm(), temporary_folder() as folder, _start_spark(spark_options, folder) as spark:
        log = recording.log or DurableLog.open_or_create(f"{folder}/log", compiled.rewritten.log_streams, flush=False)
        limit = _batch_limit(request.batch, recording)
        views = tuple(request.views)
        generation = Generation("0", compiled.rewritten, views, views, () if request.changes else views)
        # Done while Spark starts, so that errors in the state are reported early.
        directory = PipelineDirectory(request.state or f"{folder}/state")
        job = directory.open_job((generation,), spark_options.partitions, log, limit, print_message)
        kernels = job.plans["0"].kernels

        def deliver(batch: BatchResult) -> None:
            write_batch(request, kernels, batch, metrics)

        def create_pipeline() -> SparkPipeline:
            return SparkPipeline(spark.result(), directory, job, deliver, print_message)

        if isinstance(log, DurableLog) and recording.log is None:
            # Events before a refused line only matter if changes are printed or state is stored.
            pipeline = _feed_pipeline(
                spark, create_pipeline, log, recording, until_refused=request.changes or request.state is not None
            )
        else:
            pipeline = create_pipeline()
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
            pipeline.stop()
        if not request.changes:
            for view in request.views:
                write_rows(kernels, view, pipeline.snapshot(view), pipeline.offset.horizons)
        metrics.state_bytes = pipeline.metrics.state_bytes


def _batch_limit(batch: int | None, recording: Recording) -> BatchLimit:
    """With a batch size given for recorded lines, every commit of the log holds that many lines, so one commit is one
    batch. Otherwise a batch takes as many rows and bytes as the limits allow."""
    if batch is not None and recording.log is None:
        return BatchLimit(commits=1)
    return BatchLimit(batch or limits.spark_batch_rows_max, limits.spark_batch_bytes_max)


def _feed_pipeline(
    spark: "Future[SparkSession]",
    create_pipeline: CreatePipeline,
    log: DurableLog,
    recording: Recording,
    until_refused: bool,
) -> SparkPipeline:
    """Appends events to the log while Spark starts and while it runs. With `until_refused`, the events before a refused
    line are processed before its error is raised."""
    pipeline: SparkPipeline | None = None
    refusal: SmileError | None = None
    for item in _batches_or_error(recording):
        if isinstance(item, SmileError):
            if not until_refused:
                raise item
            refusal = item
            break
        log.append_batch(item)
        if pipeline is None and spark.done():
            pipeline = create_pipeline()
            pipeline.start()
        if pipeline is not None:
            pipeline.poll()
    if pipeline is None:
        pipeline = create_pipeline()
        pipeline.start()
    pipeline.wait_until_caught_up()
    pipeline.stop()
    if refusal is not None:
        raise refusal
    return pipeline


def _batches_or_error(recording: Recording) -> Iterator[InputBatch | SmileError]:
    """The batches; if a line is refused, its error comes last."""
    try:
        yield from recording.batches()
    except SmileError as problem:
        yield problem


@contextmanager
def _start_spark(spark_options: SparkOptions, folder: Path) -> Iterator["Future[SparkSession]"]:
    """Starts Spark in another thread, and stops it at the end."""
    java = JavaProcess(spark_options.master, None if spark_options.verbose else folder / "spark.log")
    with ThreadPoolExecutor(1) as pool, _discard_logs() if not spark_options.verbose else nullcontext():
        try:
            yield pool.submit(java.session, "smile")
        except SPARK_ERRORS as problem:
            raise java.explain_failure(problem) or problem from None
        finally:
            with _ignore_signals():
                java.stop()


@contextmanager
def _discard_logs() -> Iterator[None]:
    """PySpark also logs what it raises: to standard error, unless there is a handler."""
    null_handler = logging.NullHandler()
    logging.getLogger().addHandler(null_handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(null_handler)


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that everything is cleaned up."""
    if current_thread() is not main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    old_handler = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old_handler)


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Ignores signals during the short cleanup, so that a second Ctrl-C leaves nothing behind."""
    if current_thread() is not main_thread():
        yield
        return
    old_handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
