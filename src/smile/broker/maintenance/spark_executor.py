"""The executor that runs the views as a pipeline on Spark, in a separate Java process.

Only the maintainer's thread calls Spark. If the Java process fails, `start` starts another one, and the state on the
disk says where to resume. From `start` until the pipeline has caught up, a stand-in maintains the views.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from smile import limits
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.broker.maintenance.stand_in import StandIn
from smile.engine.generation import Generation, Json, remaining_generations
from smile.engine.metrics import PipelineMetrics
from smile.engine.spark.host import STOP_S_MAX, SparkHost
from smile.engine.spark.job import Job
from smile.engine.spark.pipeline import PipelineBatch, SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory, read_snapshot, read_states
from smile.engine.spark.reconfiguration import (
    Backfill,
    drop_views,
    grow_batches,
    replace_log,
    separate_views,
    shrink_batches,
    store_separated,
)
from smile.engine.spark.session import SPARK_ERRORS, JavaProcess, PySparkSession, current_java
from smile.engine.view_error import ViewError
from smile.errors import SmileError, error
from smile.log.position import BatchLimit, Log
from smile.log.storage.remote import TOKEN_VARIABLE
from smile.memory import MEMORY_VARIABLE

BATCH_LIMIT = BatchLimit(limits.spark_batch_rows_max, limits.spark_batch_bytes_max)


class SparkExecutor(Executor):
    """It uses the given `host`, or the Java process that exists already, or starts one and ends it when it is closed.
    `token` allows Spark's executors on other machines to read the log over the network. `memory_max` is the limit of
    each Python worker, in bytes."""

    polls_log = True
    _delivery: OrderedDelivery
    _log: Log

    def __init__(
        self,
        directory: Path,
        master: str,
        partitions: int,
        spark_log_path: Path,
        token: str | None = None,
        memory_max: int | None = None,
        host: SparkHost | None = None,
    ) -> None:
        self._directory = PipelineDirectory(str(directory / "on-spark"))
        self._master, self._partitions, self._spark_log_path = master, partitions, spark_log_path
        self._environment = {TOKEN_VARIABLE: token} if token is not None else {}
        if memory_max is not None:
            self._environment[MEMORY_VARIABLE] = str(memory_max)
        self._metrics = PipelineMetrics()
        self._batches_seen = 0
        self._given_host = host
        self._host: SparkHost | None = None
        self._owns_host = False
        self._is_interrupted = False
        self._job: Job | None = None
        """What was resumed from the disk. The pipeline's job replaces it."""
        self._pipeline: SparkPipeline | None = None
        self._backfill: Backfill | None = None
        self._paused: list[Generation] = []
        self._unrestored: list[Job] = []
        """Jobs of paused generations whose rows were not offered yet."""
        self._status: Json = {}
        self._stand_in: StandIn | None = None

    # ── the lifecycle ───────────────────────────────────────────────────────────────────────────────────────────────

    def open(
        self, generations: Sequence[Generation], paused: Sequence[Generation], log: Log, delivery: OrderedDelivery
    ) -> None:
        if self._job is not None:
            return
        self._log, self._delivery, self._paused = log, delivery, list(paused)
        self._unrestored = [self._open_paused(generation) for generation in paused]
        stored_names = {generation.name for generation in self._stored_generations()}
        own = [g for g in generations if g.name in stored_names or not self._is_being_filled(g)]
        job = self._directory.reconcile_job(own, self._partitions, log, BATCH_LIMIT, delivery.warn)
        missing = [generation for generation in generations if generation not in job.generations]
        self._directory.delete_other_backfills([*paused, *missing])
        self._job, self._status = job, job.status(job.start, None, self._metrics.status({}))

    def _open_paused(self, generation: Generation) -> Job:
        """The job that a backfill of this generation continues. If a separation was interrupted, the main pipeline
        still has the state."""
        directory, warn = self._directory.backfill_directory(generation), self._delivery.warn
        if directory.generations() is None:
            stored = self._stored_generations()
            if any(original.contains(generation) for original in stored):
                job = self._directory.open_job(stored, self._partitions, self._log, BATCH_LIMIT, warn)
                store_separated(self._directory, job, job.start, generation, read_states(job, job.start))
        return directory.reconcile_job([generation], self._partitions, self._log, BATCH_LIMIT, warn)

    def _stored_generations(self) -> tuple[Generation, ...]:
        """No generation if the description of the pipeline is damaged: `reconcile_job` creates it again."""
        try:
            return self._directory.generations() or ()
        except SmileError as problem:
            if problem.diagnostics[0].code != "E061":
                raise
            return ()

    def _is_being_filled(self, generation: Generation) -> bool:
        return self._directory.backfill_directory(generation).generations() is not None

    def start(self) -> None:
        assert self._job is not None
        if not self._is_stood_in:
            self._stand_in = StandIn(self._job, self._delivery)
            self._stand_in.start()
        spark = self._open_session()
        self.start_phase = "starting the pipeline"
        self._pipeline = SparkPipeline(
            spark, self._directory, self._job, self._deliver, self._delivery.warn, metrics=self._metrics
        )
        self._pipeline.start()

    @property
    def is_running(self) -> bool:
        return self._pipeline is not None and self._pipeline.has_started and not self._is_stood_in

    @property
    def _is_stood_in(self) -> bool:
        return self._stand_in is not None and self._stand_in.is_running

    def _end_stand_in(self) -> None:
        if self._stand_in is not None:
            self._stand_in.stop()
            self._stand_in = None

    def suspend(self) -> None:
        """Stops all pipelines. A stand-in continues."""
        for pipeline in (None if self._backfill is None else self._backfill.backfill_pipeline, self._pipeline):
            try:
                if pipeline is not None:
                    pipeline.stop()
            except (*SPARK_ERRORS, SmileError):
                pass  # it ended with its Java process, or its last status cannot be written
        self._pipeline = self._backfill = self._job = None

    def close(self) -> None:
        self._end_stand_in()
        self.suspend()
        self._end_java()

    def interrupt(self, is_overdue: bool) -> None:
        self._is_interrupted = True
        if is_overdue:
            self._end_java(timeout_s=0.0)  # it does not answer, or computes a batch that is much too large
        elif self._pipeline is None:
            self._end_java()

    def explain(self, problem: Exception) -> Exception:
        if isinstance(problem, SPARK_ERRORS) and self._host is not None:
            return self._host.explain_failure(problem) or problem
        return problem

    def process_problem(self) -> str | None:
        host = self._host
        return None if host is None else host.problem

    def process_memory_bytes(self) -> int | None:
        host = self._host
        return None if host is None else host.memory_bytes

    def _open_session(self) -> PySparkSession:
        host: SparkHost | None = self._given_host or current_java()
        self.start_phase = "opening a session" if host is not None else "starting Java"
        if host is None:
            self._host, self._owns_host = JavaProcess(self._master, self._spark_log_path, self._environment), True
            if self._is_interrupted:
                raise error("E098", "the maintainer is stopping")
        elif host is not self._host:
            self._host, self._owns_host = host, False
        assert self._host is not None
        try:
            return self._host.session("smile")
        except BaseException:
            self._end_java()
            raise

    def _end_java(self, timeout_s: float = STOP_S_MAX) -> None:
        if self._host is not None and self._owns_host:
            self._host.stop(timeout_s)

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
        for paused in self._unrestored:
            if paused.start.number:
                read_rows = partial(read_snapshot, paused, paused.start)
                self._delivery.restore(paused.views, paused.start.horizons, read_rows)
        self._unrestored = []

    def advance(self) -> bool:
        self._poll(self._running_pipeline)
        if self._is_stood_in and self._has_nearly_caught_up(self._running_pipeline):
            self._end_stand_in()  # the next batches reach what it has delivered
        if self.start_phase:
            self.start_phase = "" if self._running_pipeline.has_started else "running the first batch"
        self._status = self._running_pipeline.last_status
        batches_before, self._batches_seen = self._batches_seen, self._metrics.batches
        return self._batches_seen > batches_before

    def _has_nearly_caught_up(self, pipeline: SparkPipeline) -> bool:
        """Whether it has processed a part of the log, and the rest is at most one batch."""
        job, position = pipeline.job, pipeline.offset.position
        has_begun = pipeline.offset.number > job.start.number and position != job.start.position
        return pipeline.is_caught_up or (has_begun and job.log.backlog(position)[0] <= limits.spark_batch_rows_max)

    def _poll(self, pipeline: SparkPipeline) -> None:
        """Handles failures of a pipeline. If a batch needs too much memory, it is repeated with fewer events. More are
        tried again later."""
        try:
            pipeline.poll()
        except ViewError as failure:
            if not (failure.is_lack_of_memory and shrink_batches(pipeline)):
                raise
            self._delivery.warn(f"{failure}; the batch is repeated with fewer events")
        else:
            grow_batches(pipeline, BATCH_LIMIT)

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
        self._end_stand_in()
        if self._backfill is None:
            replace_log(self._running_pipeline, log)
            self._log = log
            self._backfill = Backfill.prepare(self._running_pipeline, generation)
            self._paused = [paused for paused in self._paused if paused.name != generation.name]
            self._backfill.backfill_pipeline.start()
        self._poll(self._backfill.backfill_pipeline)
        if not self._backfill.is_caught_up:
            return False
        self._backfill.merge()
        self._backfill = None
        return True

    def pause_fill(self, generation: Generation) -> None:
        if self._stop_backfill(generation):
            self._paused.append(generation)

    def abandon_fill(self, generation: Generation) -> None:
        self._stop_backfill(generation)
        self._directory.backfill_directory(generation).delete()

    def _stop_backfill(self, generation: Generation) -> bool:
        """Returns whether this generation was being filled."""
        if self._backfill is None or self._backfill.generation.name != generation.name:
            return False
        self._backfill.stop()
        self._backfill = None
        return True

    def separate(self, views: Sequence[str], separated: Generation) -> None:
        self._end_stand_in()
        separate_views(self._running_pipeline, views, separated)
        self._paused.append(separated)

    def drop(self, views: Sequence[str]) -> None:
        self._end_stand_in()
        if not {*views}.isdisjoint(self._current_job.views):
            drop_views(self._running_pipeline, views)
        affected = [generation for generation in self._paused if {*views} & {*generation.views}]
        self._paused = list(remaining_generations(self._paused, views))
        for generation in affected:
            reduced = generation.without_views(views)
            if reduced is None:
                self._directory.backfill_directory(generation).delete()
            else:
                self._open_paused(reduced)

    def begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        pipeline = self._running_pipeline
        if not pipeline.offset.number:
            return None
        with pipeline.delivery_lock:
            job, offset = pipeline.job, pipeline.offset
            self._directory.begin_hard_checkpoint(job, offset)
        return lambda: self._directory.finish_hard_checkpoint(job, offset)

    def state_bytes_by_view(self) -> Mapping[str, int]:
        backfill_metrics = [] if self._backfill is None else [self._backfill.backfill_pipeline.metrics]
        views = {view for generation in self.generations for view in generation.views} | {
            view for metrics in backfill_metrics for view in metrics.state_bytes_by_view
        }
        sizes = {v: s for metrics in [self._metrics, *backfill_metrics] for v, s in metrics.state_bytes_by_view.items()}
        return {view: size for view, size in sizes.items() if view in views}

    def status(self) -> Json:
        return {**self._status, "stand_in": self._is_stood_in}
