"""`smile replay` on Spark: writes the events to a log, runs a pipeline over it, and prints the results as they come."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future

from pyspark.sql import SparkSession

from smile import limits
from smile.cli.replay.output import ReplayMetrics, print_message, write_batch, write_rows
from smile.cli.replay.recording import Recording
from smile.cli.replay.request import ReplayRequest, SparkOptions
from smile.cli.spark_process import exit_on_sigterm, start_spark
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
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
    master, verbose = spark_options.master, spark_options.verbose
    with exit_on_sigterm(), temporary_folder() as folder, start_spark(master, verbose, folder) as spark:
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
