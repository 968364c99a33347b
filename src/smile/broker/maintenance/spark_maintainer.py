"""The maintainer whose views are a pipeline on Spark, in a separate Java process.

Only one thread calls Spark. If the Java process fails, the maintainer starts another one, as often as needed, and the
state on the disk says where to resume.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from smile import limits
from smile.broker.maintenance.command_queue import CommandQueue, is_permanent
from smile.broker.maintenance.maintainer import Horizons, MaintainerListener
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, Json
from smile.engine.spark.job import Job
from smile.engine.spark.metrics import PipelineMetrics
from smile.engine.spark.pipeline import PipelineBatch, SparkPipeline, pipeline_status
from smile.engine.spark.pipeline_directory import PipelineDirectory, read_snapshot
from smile.engine.spark.planning import Offset
from smile.engine.spark.reconfiguration import (
    Backfill,
    drop_views,
    refuse_duplicates,
    remaining_generations,
    replace_log,
)
from smile.engine.spark.session import SPARK_ERRORS, JavaProcess, PySparkSession, current_java
from smile.errors import SmileError, error
from smile.kernels.transform import InputRelation
from smile.log.position import BatchLimit, Log

BATCH_LIMIT = BatchLimit(limits.spark_batch_rows_max, limits.spark_batch_bytes_max)
STOPPING = "the maintainer is stopping"


class SparkMaintainer:
    """Implements `Maintainer`. It uses the Java process that exists already, or starts one and ends it when it stops.
    `token` allows executors on other machines to read the log over the network."""

    def __init__(
        self,
        directory: Path,
        log: Log,
        generations: Sequence[Generation],
        listener: MaintainerListener,
        master: str,
        partitions: int,
        spark_log_path: Path,
        token: str | None = None,
    ) -> None:
        self._directory = PipelineDirectory(str(directory / "on-spark"))
        self._log, self._generations = log, tuple(generations)
        self._master, self._partitions, self._spark_log_path, self._token = master, partitions, spark_log_path, token
        self._inputs = {view: source for g in generations for view, source in g.inputs().items()}
        self._delivery = OrderedDelivery(listener)
        self._metrics = PipelineMetrics()
        self._job: Job | None = None
        self._java: JavaProcess | None = None
        self._owns_java = False
        self._pipeline: SparkPipeline | None = None
        self._backfill: Backfill | None = None
        self._waiting: dict[str, Future[None]] = {}
        """Futures of callers that wait for a generation, by its name."""
        self._wakeup = Condition()
        self._commands = CommandQueue(self._wake)
        self._thread = Thread(target=self._run, name="maintainer", daemon=True)
        self.state = "starting"
        self._status: Json = {}

    # ── the Maintainer protocol ─────────────────────────────────────────────────────────────────────────────────────

    def view_input(self, view: str) -> InputRelation:
        if view not in self._inputs:
            raise error("E021", f"there is no view {view}")
        return self._inputs[view]

    def start(self) -> None:
        job = self._resume_job()
        self._restore(job, job.start)
        self._status = pipeline_status(job, job.start, None, self._metrics.status({}))
        self._thread.start()

    def wake(self) -> None:
        """Does nothing: Spark polls the log."""

    def add(self, generation: Generation, log: Log) -> None:
        self._commands.call(lambda: self._add_generation(generation, log)).result()

    def drop(self, views: Sequence[str]) -> None:
        self._commands.call(lambda: self._drop_views(views))

    def checkpoint(self) -> Horizons | None:
        checkpoint = self._commands.call(self._begin_hard_checkpoint) if self.state == "running" else None
        return None if checkpoint is None else self._directory.finish_hard_checkpoint(*checkpoint)

    def status(self) -> Mapping[str, Any]:
        return {"state": self.state, **self._status}

    def stop(self) -> None:
        self._commands.close(error("E098", STOPPING))
        self._delivery.close()
        self._wake()
        if self._thread.is_alive():
            if self._pipeline is None:
                # Java is still starting, and nobody needs it any more.
                self._end_java()
            self._thread.join(limits.maintainer_stop_s_max)
            if self._thread.is_alive():
                self._end_java()
                self._thread.join(limits.maintainer_stop_s_max)
        if self.state != "failed":
            self.state = "stopped"

    # ── the maintainer's thread ─────────────────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        with self._wakeup:
            self._wakeup.notify_all()

    def _wait(self, seconds: float) -> None:
        """Waits until there is a command, or for this time."""
        with self._wakeup:
            if not self._commands.has_work:
                self._wakeup.wait(seconds)

    def _pause(self, seconds: float) -> None:
        """Waits for this time, or until the maintainer stops."""
        until = time.monotonic() + seconds
        with self._wakeup:
            while not self._commands.is_closed and (remaining_s := until - time.monotonic()) > 0:
                self._wakeup.wait(remaining_s)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._commands.is_closed:
            batches_before = self._metrics.batches
            try:
                self._run_pipeline()
            except Exception as problem:  # noqa: BLE001  # any error: the next attempt may succeed
                explained = self._explain_failure(problem)
                if is_permanent(explained):
                    self._fail(explained)
                    break
                if not self._commands.is_closed:
                    self.state = "recovering"
                    self._delivery.warn(str(explained) or repr(explained))
            self._stop_pipelines()
            pause_s = 0.0 if self._metrics.batches > batches_before else pause_s
            pause_s = min(max(2 * pause_s, limits.maintainer_pause_s_min), limits.maintainer_pause_s_max)
            self._pause(pause_s)
        self._stop_pipelines()
        self._end_java()
        self._commands.refuse_pending(error("E098", STOPPING), self._waiting)

    def _run_pipeline(self) -> None:
        """Runs until the maintainer stops or an error occurs."""
        spark = self._open_session()
        job = self._job or self._resume_job()
        self._pipeline = SparkPipeline(spark, self._directory, job, self._deliver, self._delivery.warn)
        self._pipeline.metrics = self._metrics
        self._pipeline.start()
        while not self._commands.is_closed:
            self._commands.run_pending()
            self._advance_backfill()
            self._pipeline.poll()
            self._status = self._pipeline.last_status
            if self.state != "running" and self._pipeline.has_started:
                self.state = "running"
            self._wait(limits.maintainer_poll_s)

    def _open_session(self) -> PySparkSession:
        self._java, self._owns_java = current_java(), False
        if self._java is None:
            self._java, self._owns_java = JavaProcess(self._master, self._spark_log_path, self._token), True
            if self._commands.is_closed:
                raise error("E098", STOPPING)
        try:
            return self._java.session("smile")
        except BaseException:
            self._end_java()
            raise

    def _end_java(self) -> None:
        if self._java is not None and self._owns_java:
            self._java.stop()

    def _resume_job(self) -> Job:
        """Resumes from the state on the disk. Generations that are not in it are filled later."""
        self._job = self._directory.reconcile_job(
            self._generations, self._partitions, self._log, BATCH_LIMIT, self._delivery.warn
        )
        return self._job

    def _stop_pipelines(self) -> None:
        """Stops all pipelines. The next ones resume from the state on the disk."""
        for pipeline in (None if self._backfill is None else self._backfill.backfill_pipeline, self._pipeline):
            try:
                if pipeline is not None:
                    pipeline.stop()
            except (*SPARK_ERRORS, SmileError):
                pass  # it ended with its Java process, or its last status cannot be written
        self._pipeline = self._backfill = self._job = None

    def _explain_failure(self, problem: Exception) -> Exception:
        """The cause of an error of Spark, if the Java process reveals it."""
        if isinstance(problem, SPARK_ERRORS) and self._java is not None:
            return self._java.explain_failure(problem) or problem
        return problem

    def _fail(self, problem: SmileError) -> None:
        self.state = "failed"
        self._commands.close(problem)
        self._commands.refuse_pending(problem, self._waiting)
        self._delivery.fail(problem)

    # ── delivery ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, batch: PipelineBatch) -> None:
        views = [view for generation in batch.job.generations for view in generation.views]
        start, end = batch.start.horizons, batch.end.horizons
        self._delivery.deliver(views, start, end, batch.deltas, lambda view: read_snapshot(batch.job, batch.end, view))

    def _restore(self, job: Job, offset: Offset) -> None:
        if offset.number:
            views = [view for generation in job.generations for view in generation.views]
            self._delivery.restore(views, offset.horizons, lambda view: read_snapshot(job, offset, view))

    # ── adding and dropping views ───────────────────────────────────────────────────────────────────────────────────

    def _add_generation(self, generation: Generation, log: Log) -> "Future[None]":
        assert self._pipeline is not None
        refuse_duplicates(self._generations, generation)
        self._log = log
        replace_log(self._pipeline, log)
        self._inputs |= generation.inputs()
        self._generations += (generation,)
        future: Future[None] = Future()
        self._waiting[generation.name] = future
        return future

    def _advance_backfill(self) -> None:
        """Fills generations that are wanted and missing, one after the other."""
        assert self._pipeline is not None
        if self._backfill is None:
            missing = self._missing_generations(self._pipeline.job)
            if not missing:
                return
            self._backfill = Backfill.prepare(self._pipeline, missing[0])
            pipeline = self._backfill.backfill_pipeline
            self._restore(pipeline.job, pipeline.offset)
            pipeline.start()
        generation = self._backfill.generation
        try:
            if not self._backfill.poll():
                return
            self._backfill.merge()
        except SmileError as problem:
            if generation.name not in self._waiting or not is_permanent(problem):
                raise
            self._backfill.abandon()
            self._backfill = None
            self._remove_views(generation.views)
            self._waiting.pop(generation.name).set_exception(problem)
            return
        self._backfill = None
        if generation.name in self._waiting:
            self._waiting.pop(generation.name).set_result(None)

    def _missing_generations(self, job: Job) -> list[Generation]:
        present = {generation.name for generation in job.generations}
        return [generation for generation in self._generations if generation.name not in present]

    def _remove_views(self, views: Sequence[str]) -> None:
        self._generations = remaining_generations(self._generations, views)
        self._inputs = {view: source for view, source in self._inputs.items() if view not in views}
        self._delivery.remove_views(views)

    def _drop_views(self, views: Sequence[str]) -> None:
        assert self._pipeline is not None
        for view in views:
            self.view_input(view)
        if self._backfill is not None and set(views) & set(self._backfill.generation.views):
            self._backfill.abandon()
            future = self._waiting.pop(self._backfill.generation.name, None)
            if future is not None:
                future.set_exception(error("E021", f"{', '.join(views)} was dropped"))
            self._backfill = None
        running = [view for view in views if view in self._pipeline.views]
        if running:
            drop_views(self._pipeline, running)
        self._remove_views(views)

    def _begin_hard_checkpoint(self) -> tuple[Job, Offset] | None:
        """Pins the current version. Returns None before the first batch, and while views are filled, because these read
        the log from the beginning."""
        pipeline = self._pipeline
        assert pipeline is not None
        if not pipeline.offset.number or self._missing_generations(pipeline.job):
            return None
        with pipeline.delivery_lock:
            self._directory.begin_hard_checkpoint(pipeline.job, pipeline.offset)
            return pipeline.job, pipeline.offset
