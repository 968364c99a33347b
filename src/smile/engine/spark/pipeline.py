"""A pipeline: a Spark streaming query that keeps a program's views up to date from a log.

Batches are delivered in order, each once; after a failure some may be delivered again. Spark's own checkpoint is not
used for recovery: a pipeline resumes from the newest state version that was delivered and is complete in every
partition.
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
from pyspark.sql.streaming.query import StreamingQuery

from smile.engine.exchange import ExchangeMessage, merge_deltas
from smile.engine.generation import Json
from smile.engine.local import BatchResult
from smile.engine.metrics import PipelineMetrics
from smile.engine.spark.error_transport import decode_error, encode_errors
from smile.engine.spark.job import Job
from smile.engine.spark.pipeline_directory import PipelineDirectory, read_snapshot
from smile.engine.spark.planning import Offset
from smile.engine.spark.pyspark_internals import map_in_arrow
from smile.engine.spark.session import DAEMON_MODULE, DAEMON_SETTING
from smile.engine.spark.source import BLOCKS_PANDAS, FORMAT, SCHEMA
from smile.engine.spark.task import record_batches, run_later_stage
from smile.errors import SmileError, error
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation
from smile.log.position import BatchLimit, refuse_truncated_start

STATUS_EVERY_S = 1.0
RESTARTS_MAX = 3
"""A pipeline fails after more consecutive failures than this, without a batch in between."""


@dataclass(frozen=True)
class PipelineBatch(BatchResult):
    """A batch that a job has processed, between two offsets. Its state version is not deleted during delivery."""

    job: Job
    start: Offset
    end: Offset


@dataclass
class SparkPipeline:
    """Calls `deliver` for each batch, in a thread of its own. The next batch waits until it returns."""

    spark: SparkSession
    directory: PipelineDirectory
    job: Job
    deliver: Callable[[PipelineBatch], None]
    on_warning: Callable[[str], None]
    delivery_lock: Lock = field(default_factory=Lock)
    """Held while a batch is delivered and recorded: pipelines with the same receiver share this lock."""
    offset: Offset = field(init=False)
    """The end of the last delivered batch."""
    metrics: PipelineMetrics = field(default_factory=PipelineMetrics)
    batches_at_start: int = 0
    """The number of batches when the query was started."""
    _query: StreamingQuery | None = None
    _checkpoint: str | None = None
    _failure: BaseException | None = None
    _available_now: bool = False
    _restarts: int = 0
    _batch_delivered: Condition = field(default_factory=Condition)
    last_status: Json = field(default_factory=dict)
    _status_written_at: float = -math.inf
    _status_problem: str = ""
    """The last error while writing the status, so that it is reported once."""

    def __post_init__(self) -> None:
        self.offset = self.job.start

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, available_now: bool = False) -> None:
        """Starts the query at the current offset. With `available_now` it ends at the current end of the log. Raises
        E097 if there is no state yet, and the log does not have all events any more."""
        if not self.offset.number:
            streams = [stream for plan in self.job.plans.values() for stream in plan.stages[0].streams]
            refuse_truncated_start(self.offset.position, streams)
        self.job = replace(self.job, start=self.offset, run_id=uuid4().hex)
        self._failure, self._available_now = None, available_now
        self.batches_at_start = self.metrics.batches
        self._checkpoint = tempfile.mkdtemp(prefix="smile-")
        dataframe = self.spark.readStream.format(FORMAT).options(**self._source_options()).load()
        for number in range(2, self.job.stage_count + 1):
            partitioned = dataframe.repartitionById(self.job.partitions, dataframe.target)
            dataframe = map_in_arrow(partitioned, _stage_function(self.job, number), SCHEMA)
        writer = dataframe.writeStream.foreachBatch(self._deliver_batch).option(
            "checkpointLocation", f"file://{self._checkpoint}"
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        self._query = writer.queryName(f"{', '.join(self.views)} ({self.job.run_id[:6]})").start()

    def _source_options(self) -> dict[str, str]:
        options = {"job": self.job.pickled_job().to_text(), "planning": self.job.pickled_planner().to_text()}
        return options | ({BLOCKS_PANDAS: "true"} if self._owns_processes else {})

    @property
    def _owns_processes(self) -> bool:
        """Whether Spark's Python processes are SMILE's: those of a user's session may need anything."""
        return self.spark.conf.get(DAEMON_SETTING, "") == DAEMON_MODULE

    def wait(self, seconds: int | None = None) -> bool:
        """Waits until the query has ended, or `seconds` have passed; returns whether it has ended. After a failure that
        may be temporary, it reports a warning, restarts the query and returns False."""
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
        """Handles a failure as `wait` does, without waiting, and writes the status."""
        if not self.is_running:
            self.wait()
        self._write_status()

    def wait_until_caught_up(self) -> None:
        """Waits until everything in the log is delivered."""
        while not self.is_caught_up:
            self.wait_for_batch(0.2)
            if not self.is_running and self.wait() and not self.is_caught_up:
                raise error("E069", "the pipeline was stopped before it had processed the whole log")
            self._write_status()

    def wait_for_batch(self, seconds: float) -> None:
        """Waits until the next batch is delivered, or `seconds` have passed."""
        with self._batch_delivered:
            self._batch_delivered.wait(seconds)

    @property
    def is_caught_up(self) -> bool:
        """Whether the results of everything in the log have been delivered to the driver."""
        position = self.offset.position
        return bool(self.offset.number) and self.job.log.after(position, BatchLimit(commits=1)) == position

    def stop(self) -> None:
        """Stops the query. The current batch may or may not be delivered."""
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

    # ── queries ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, view: str) -> Delta:
        """All rows that a stored view currently shows, as a delta in which all rows are new."""
        return read_snapshot(self.job, self.offset, view)

    @property
    def views(self) -> list[str]:
        return self.job.views

    def view_input(self, view: str) -> InputRelation:
        """The type and layout of a view."""
        return next(plan.kernels.inputs[view] for plan in self.job.plans.values() if view in plan.views)

    def status(self) -> Json:
        """The current status, as in `status.json`."""
        ui = self.spark.sparkContext.uiWebUrl
        return self.job.status(self.offset, ui, self.metrics.status(self._durations_ms()))

    @property
    def has_started(self) -> bool:
        """Whether Spark has finished initializing the query."""
        return self._query is not None and not str(self._query.status["message"]).startswith("Initializing")

    def _durations_ms(self) -> Mapping[str, int]:
        progress = None if self._query is None else self._query.lastProgress
        return {} if progress is None else progress.durationMs

    def _write_status(self) -> None:
        """Writes the status to the pipeline's directory, at most once per STATUS_EVERY_S."""
        if time.monotonic() - self._status_written_at >= STATUS_EVERY_S:
            self._status_written_at = time.monotonic()
            self.last_status = self.status()
            try:
                self.directory.write_status(self.last_status)
            except SmileError as problem:
                if problem.message != self._status_problem:
                    self.on_warning(problem.message)
                self._status_problem = problem.message

    # ── delivery ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver_batch(self, dataframe: DataFrame, _: int) -> None:
        self.spark.sparkContext.setJobDescription(self.job.description)
        rows = dataframe.toArrow()  # the tasks run here, and may fail
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
            deltas += [(tuple(name), delta) for name, delta in message.deltas(self.job.layouts)]
        start, end = (Offset.from_json(messages[0].header[key]) for key in ("start", "end"))
        merged_deltas = merge_deltas(self.job.layouts, deltas)
        view_deltas = {name[0].partition("/")[2]: delta for name, delta in merged_deltas.items()}
        return PipelineBatch(view_deltas, end.horizons, self.job, start, end), [message.header for message in messages]


def _stage_function(job: Job, number: int) -> Callable[[Any], Any]:
    """The function that Spark calls in its workers for a stage after the first. Its name appears in Spark's UI."""

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

    stage.__name__ = job.stage_name(number)
    return stage


def _cause(problem: BaseException) -> str:
    """One line: the last Python exception in the text, or else the first line of Spark's message."""
    lines = str(problem).strip().splitlines()
    error_lines = [line for line in lines if re.match(r"[A-Z]\w*(Error|Exception|Interrupt)\b", line)]
    return (error_lines[-1] if error_lines else lines[0]).strip()
