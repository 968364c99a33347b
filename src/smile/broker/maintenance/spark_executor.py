"""The executor that runs the views as a pipeline on Spark, in a separate Java process.

Only the maintainer's thread calls Spark. If the Java process fails, `start` starts another one, and the state on the
disk says where to resume.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from smile import limits
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, Json
from smile.engine.spark.job import Job
from smile.engine.spark.metrics import PipelineMetrics
from smile.engine.spark.pipeline import PipelineBatch, SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory, read_snapshot
from smile.engine.spark.reconfiguration import Backfill, drop_views, replace_log
from smile.engine.spark.session import SPARK_ERRORS, JavaProcess, PySparkSession, current_java
from smile.errors import SmileError, error
from smile.log.position import BatchLimit, Log

BATCH_LIMIT = BatchLimit(limits.spark_batch_rows_max, limits.spark_batch_bytes_max)


class SparkExecutor(Executor):
    """It uses the Java process that exists already, or starts one and ends it when it is closed. `token` allows Spark's
    executors on other machines to read the log over the network."""

    polls_log = True
    _delivery: OrderedDelivery

    def __init__(
        self, directory: Path, master: str, partitions: int, spark_log_path: Path, token: str | None = None
    ) -> None:
        self._directory = PipelineDirectory(str(directory / "on-spark"))
        self._master, self._partitions, self._spark_log_path, self._token = master, partitions, spark_log_path, token
        self._metrics = PipelineMetrics()
        self._batches_seen = 0
        self._java: JavaProcess | None = None
        self._owns_java = False
        self._is_interrupted = False
        self._job: Job | None = None
        """What was resumed from the disk. The pipeline's job replaces it."""
        self._pipeline: SparkPipeline | None = None
        self._backfill: Backfill | None = None
        self._status: Json = {}

    # ── the lifecycle ───────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, generations: Sequence[Generation], log: Log, delivery: OrderedDelivery) -> None:
        if self._job is None:
            self._delivery = delivery
            job = self._directory.reconcile_job(generations, self._partitions, log, BATCH_LIMIT, delivery.warn)
            self._job, self._status = job, job.status(job.start, None, self._metrics.status({}))

    def start(self) -> None:
        assert self._job is not None
        spark = self._open_session()
        self._pipeline = SparkPipeline(
            spark, self._directory, self._job, self._deliver, self._delivery.warn, metrics=self._metrics
        )
        self._pipeline.start()

    @property
    def is_running(self) -> bool:
        return self._pipeline is not None and self._pipeline.has_started

    def suspend(self) -> None:
        """Stops all pipelines."""
        for pipeline in (None if self._backfill is None else self._backfill.backfill_pipeline, self._pipeline):
            try:
                if pipeline is not None:
                    pipeline.stop()
            except (*SPARK_ERRORS, SmileError):
                pass  # it ended with its Java process, or its last status cannot be written
        self._pipeline = self._backfill = self._job = None

    def close(self) -> None:
        self.suspend()
        self._end_java()

    def interrupt(self, is_overdue: bool) -> None:
        self._is_interrupted = True
        if self._pipeline is None or is_overdue:
            self._end_java()

    def explain(self, problem: Exception) -> Exception:
        if isinstance(problem, SPARK_ERRORS) and self._java is not None:
            return self._java.explain_failure(problem) or problem
        return problem

    def _open_session(self) -> PySparkSession:
        java = current_java()
        if java is None:
            self._java, self._owns_java = JavaProcess(self._master, self._spark_log_path, self._token), True
            if self._is_interrupted:
                raise error("E098", "the maintainer is stopping")
        elif java is not self._java:
            self._java, self._owns_java = java, False
        assert self._java is not None
        try:
            return self._java.session("smile")
        except BaseException:
            self._end_java()
            raise

    def _end_java(self) -> None:
        if self._java is not None and self._owns_java:
            self._java.stop()

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _current_job(self) -> Job:
        job = self._job if self._pipeline is None else self._pipeline.job
        assert job is not None
        return job

    @property
    def _running_pipeline(self) -> SparkPipeline:
        assert self._pipeline is not None
        return self._pipeline

    @property
    def generations(self) -> Sequence[Generation]:
        return self._current_job.generations

    def restore_views(self) -> None:
        job = self._current_job
        offset = job.start if self._pipeline is None else self._pipeline.offset
        if offset.number:
            self._delivery.restore(job.views, offset.horizons, lambda view: read_snapshot(job, offset, view))

    def advance(self) -> bool:
        self._running_pipeline.poll()
        self._status = self._running_pipeline.last_status
        batches_before, self._batches_seen = self._batches_seen, self._metrics.batches
        return self._batches_seen > batches_before

    def _deliver(self, batch: PipelineBatch) -> None:
        self._delivery.deliver(
            batch.job.views,
            batch.start.horizons,
            batch.end.horizons,
            batch.deltas,
            lambda view: read_snapshot(batch.job, batch.end, view),
        )

    def fill(self, generation: Generation, log: Log) -> bool:
        """A second pipeline fills the generation, until it is merged into the first one."""
        if self._backfill is None:
            replace_log(self._running_pipeline, log)
            self._backfill = Backfill.prepare(self._running_pipeline, generation)
            self._backfill.backfill_pipeline.start()
        if not self._backfill.poll():
            return False
        self._backfill.merge()
        self._backfill = None
        return True

    def abandon_fill(self, generation: Generation) -> None:
        if self._backfill is not None and self._backfill.generation.name == generation.name:
            self._backfill.abandon()
            self._backfill = None

    def drop(self, views: Sequence[str]) -> None:
        drop_views(self._running_pipeline, views)

    def begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        pipeline = self._running_pipeline
        if not pipeline.offset.number:
            return None
        with pipeline.delivery_lock:
            job, offset = pipeline.job, pipeline.offset
            self._directory.begin_hard_checkpoint(job, offset)
        return lambda: self._directory.finish_hard_checkpoint(job, offset)

    def status(self) -> Json:
        return self._status
