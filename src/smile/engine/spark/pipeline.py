"""A pipeline: a program's views kept up to date on Spark, from a log, for as long as it is let run.

Batches come in order, each once; after a failure some may come again. Spark's own checkpoint is of no account: a
pipeline goes on from the newest version of its own state that was delivered and is whole in every partition.
"""

import math
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Condition, Lock
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import PythonEvalType, vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.streaming.query import StreamingQuery

from smile.engine.exchange import ExchangeMessage, merge_deltas
from smile.engine.generation import Json
from smile.engine.local import BatchResult
from smile.engine.spark.error_transport import decode_error, encode_errors
from smile.engine.spark.job import Job
from smile.engine.spark.metrics import PipelineMetrics
from smile.engine.spark.pipeline_directory import PipelineDirectory, read_snapshot
from smile.engine.spark.planning import Offset
from smile.engine.spark.source import FORMAT, SCHEMA
from smile.engine.spark.task import record_batches, run_later_stage
from smile.errors import SmileError, error
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation
from smile.log.position import BatchLimit

STATUS_EVERY_S = 1.0
RESTARTS_MAX = 3
"""Failures in a row, without a batch between them, before a pipeline gives up."""


@dataclass(frozen=True)
class PipelineBatch(BatchResult):
    """A batch that a job has taken in, between two offsets. Its state is there as long as it is being delivered."""

    job: Job
    start: Offset
    end: Offset


@dataclass
class SparkPipeline:
    """`deliver` is given what each batch changed. It runs in a thread of its own, and the next batch waits for it."""

    spark: SparkSession
    directory: PipelineDirectory
    job: Job
    deliver: Callable[[PipelineBatch], None]
    on_warning: Callable[[str], None]
    delivery_lock: Lock = field(default_factory=Lock)
    """Held while something is delivered and noted: pipelines that deliver to one place take turns."""
    offset: Offset = field(init=False)
    """How far it has come."""
    metrics: PipelineMetrics = field(default_factory=PipelineMetrics)
    _query: StreamingQuery | None = None
    _checkpoint: str | None = None
    _failure: BaseException | None = None
    _available_now: bool = False
    _restarts: int = 0
    _batch_delivered: Condition = field(default_factory=Condition)
    last_status: Json = field(default_factory=dict)
    _status_written_at: float = -math.inf
    _status_problem: str = ""
    """Why the status could not be told last."""

    def __post_init__(self) -> None:
        self.offset = self.job.start

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, available_now: bool = False) -> None:
        """From where it is; with `available_now` only to where the log ends now."""
        self.job = replace(self.job, start=self.offset, run_id=uuid4().hex)
        self._failure, self._available_now = None, available_now
        self._checkpoint = tempfile.mkdtemp(prefix="smile-")
        dataframe = self.spark.readStream.format(FORMAT).options(**self._source_options()).load()
        for number in range(2, self.job.stage_count + 1):
            dataframe = _map_in_arrow(
                dataframe.repartitionById(self.job.partitions, dataframe.target), _stage_function(self.job, number)
            )
        writer = dataframe.writeStream.foreachBatch(self._deliver_batch).option(
            "checkpointLocation", f"file://{self._checkpoint}"
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        self._query = writer.queryName(f"{', '.join(self.views)} ({self.job.run_id[:6]})").start()

    def _source_options(self) -> dict[str, str]:
        return {"job": self.job.pickled_job().to_text(), "planning": self.job.pickled_planner().to_text()}

    def wait(self, seconds: int | None = None) -> bool:
        """Until it has ended, or so long; whether it has. Trouble that goes away by itself is only told of."""
        assert self._query is not None
        try:
            ended = self._query.awaitTermination(seconds) if seconds is not None else self._wait()
        except StreamingQueryException as problem:
            self._recover(problem)
            return False
        if ended:
            self._remove_checkpoint()
        return bool(ended)

    def _wait(self) -> bool:
        assert self._query is not None
        while not self._query.awaitTermination(1):
            self._write_status()
        return True

    @property
    def is_running(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def poll(self) -> None:
        """Whether it is still at work; trouble is met as in `wait`."""
        if not self.is_running:
            self.wait()
        self._write_status()

    def wait_until_caught_up(self) -> None:
        """Until all that the log has is delivered."""
        while not self.is_caught_up:
            self.wait_for_batch(0.2)
            if not self.is_running and self.wait() and not self.is_caught_up:
                raise error("E069", "the pipeline was stopped before it had taken all in")
            self._write_status()

    def wait_for_batch(self, seconds: float) -> None:
        """Until the next batch was delivered, or so long."""
        with self._batch_delivered:
            self._batch_delivered.wait(seconds)

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the log has is delivered."""
        position = self.offset.position
        return bool(self.offset.number) and self.job.log.after(position, BatchLimit(commits=1)) == position

    def stop(self) -> None:
        """After the batch that is under way, of which nothing may be delivered any more."""
        try:
            if self._query is not None:
                self._query.stop()
        finally:
            self._remove_checkpoint()
        self._status_written_at = -math.inf
        self._write_status()

    def _remove_checkpoint(self) -> None:
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def _recover(self, problem: StreamingQueryException) -> None:
        self._remove_checkpoint()
        if self._failure is not None:
            raise self._failure
        smile_error = decode_error(str(problem))
        if smile_error is not None and smile_error.diagnostics[0].code != "E061":
            raise smile_error
        self._restarts += 1
        if self._restarts > RESTARTS_MAX:
            raise smile_error or problem
        self.on_warning(str(smile_error) if smile_error else _cause(problem))
        self.offset = self.directory.recover_offset(self.job, self.on_warning)
        self.start(self._available_now)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, view: str) -> Delta:
        """All rows that a view that is kept shows now, as if all of them were new."""
        return read_snapshot(self.job, self.offset, view)

    @property
    def views(self) -> list[str]:
        return [view for plan in self.job.plans.values() for view in plan.views]

    def view_input(self, view: str) -> InputRelation:
        """What is known of a view before anything has happened."""
        return next(plan.kernels.inputs[view] for plan in self.job.plans.values() if view in plan.views)

    def status(self) -> Json:
        """How it fares."""
        ui = self.spark.sparkContext.uiWebUrl
        return pipeline_status(self.job, self.offset, ui, self.metrics.status(self._durations_ms()))

    @property
    def has_started(self) -> bool:
        """Whether Spark is at it, and not about to be."""
        return self._query is not None and not str(self._query.status["message"]).startswith("Initializing")

    def _durations_ms(self) -> Mapping[str, int]:
        progress = None if self._query is None else self._query.lastProgress
        return {} if progress is None else progress.durationMs

    def _write_status(self) -> None:
        """Now and then, to the pipeline's directory."""
        if time.monotonic() - self._status_written_at >= STATUS_EVERY_S:
            self._status_written_at = time.monotonic()
            self.last_status = self.status()
            try:
                self.directory.write_status(self.last_status)
            except SmileError as problem:
                if str(problem) != self._status_problem:
                    self.on_warning(str(problem))
                self._status_problem = str(problem)

    # ── delivering ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver_batch(self, frame: DataFrame, _: int) -> None:
        rows = frame.toArrow()  # here the tasks run, and may fail
        try:
            batch, headers = self._decode_batch(rows)
            with self.delivery_lock:
                self.deliver(batch)
                self.directory.write_delivered(batch.end)
                self.offset, self._restarts = batch.end, 0
            self.metrics.record_batch(headers, sum(map(len, batch.deltas.values())))
            with self._batch_delivered:
                self._batch_delivered.notify_all()
        except BaseException as failure:
            self._failure = failure
            raise

    def _decode_batch(self, rows: pa.Table) -> tuple[PipelineBatch, list[Json]]:
        messages = [ExchangeMessage(value.as_buffer()) for chunk in rows.column("message").chunks for value in chunk]
        deltas: list[tuple[Any, Delta]] = []
        for message in messages:
            deltas += [(tuple(name), changes) for name, changes in message.deltas(self.job.layouts)]
        start, end = (Offset.from_json(messages[0].head[key]) for key in ("start", "end"))
        changes = {name[0].partition("/")[2]: delta for name, delta in merge_deltas(self.job.layouts, deltas).items()}
        return PipelineBatch(changes, end.horizons, self.job, start, end), [message.head for message in messages]


def pipeline_status(job: Job, offset: Offset, ui: str | None, metrics: Json) -> Json:
    backlog_events, backlog_bytes = job.log.backlog(offset.position)
    return {
        "at": time.time(),
        "views": [view for generation in job.generations for view in generation.views],
        "partitions": job.partitions,
        "number": offset.number,
        "horizons": offset.horizons,
        "waiting_events": backlog_events,
        "waiting_bytes": backlog_bytes,
        "ui": ui,
        **metrics,
    }


def _map_in_arrow(frame: DataFrame, stage: Callable[[Any], Any]) -> DataFrame:
    """`mapInArrow`, whose own front asks for pandas, though neither it nor we have a use for that."""
    function = vectorized_udf(stage, SCHEMA, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    return type(frame)(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _stage_function(job: Job, number: int) -> Callable[[Any], Any]:
    """Stages two and later: what Spark calls in its workers, and shows by the names of its views."""

    pickled = job.pickled_job()

    def stage(batches: Any) -> Any:
        with encode_errors():
            columns = ((b.column(0).to_pylist(), b.column(1).to_pylist(), b.column(2)) for b in batches)
            rows = (
                (target, stage_number, message.as_buffer())
                for targets, stages, messages in columns
                for target, stage_number, message in zip(targets, stages, messages, strict=True)
            )
            yield from record_batches(run_later_stage(pickled.load(), number, rows))

    stage.__name__ = f"stage {number}: " + ", ".join(
        view for executable in job.stages_by_generation(number).values() for view in executable.views
    )
    return stage


def _cause(problem: BaseException) -> str:
    """In one line: what Python said last, or Spark first."""
    lines = str(problem).strip().splitlines()
    error_lines = [line for line in lines if re.match(r"[A-Z]\w*(Error|Exception|Interrupt)\b", line)]
    return (error_lines[-1] if error_lines else lines[0]).strip()
