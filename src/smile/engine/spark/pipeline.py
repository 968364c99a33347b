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

from smile.engine.exchange import Incoming, gathered
from smile.engine.generation import Json
from smile.engine.local import Batch
from smile.engine.spark.figures import Figures
from smile.engine.spark.job import Job
from smile.engine.spark.planning import Offset
from smile.engine.spark.source import FORMAT, SCHEMA
from smile.engine.spark.standing import Standing, rows_at
from smile.engine.spark.task import batches_of, later_stage
from smile.engine.spark.trouble import heard, told
from smile.errors import SmileError, error
from smile.kernels.changes import Changes
from smile.kernels.transform import Input
from smile.log.position import Limit

STATUS_EVERY_S = 1.0
RESTARTS_MAX = 3
"""Failures in a row, without a batch between them, before a pipeline gives up."""


@dataclass(frozen=True)
class Taken(Batch):
    """A batch that a job has taken in, between two offsets. Its state is there as long as it is being delivered."""

    job: Job
    start: Offset
    end: Offset


@dataclass
class Pipeline:
    """`deliver` is given what each batch changed. It runs in a thread of its own, and the next batch waits for it."""

    spark: SparkSession
    standing: Standing
    job: Job
    deliver: Callable[[Taken], None]
    on_trouble: Callable[[str], None]
    turn: Lock = field(default_factory=Lock)
    """Held while something is delivered and noted: pipelines that deliver to one place take turns."""
    offset: Offset = field(init=False)
    """How far it has come."""
    figures: Figures = field(default_factory=Figures)
    _query: StreamingQuery | None = None
    _checkpoint: str | None = None
    _failure: BaseException | None = None
    _available_now: bool = False
    _restarts: int = 0
    _moved: Condition = field(default_factory=Condition)
    last_status: Json = field(default_factory=dict)
    _told_status: float = -math.inf
    _untold: str = ""
    """Why the status could not be told last."""

    def __post_init__(self) -> None:
        self.offset = self.job.start

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, available_now: bool = False) -> None:
        """From where it is; with `available_now` only to where the log ends now."""
        self.job = replace(self.job, start=self.offset, run=uuid4().hex)
        self._failure, self._available_now = None, available_now
        self._checkpoint = tempfile.mkdtemp(prefix="smile-")
        frame = self.spark.readStream.format(FORMAT).options(**self._told_to_source()).load()
        for number in range(2, self.job.stages + 1):
            frame = _mapped(frame.repartitionById(self.job.partitions, frame.target), _stage_of(self.job, number))
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", f"file://{self._checkpoint}")
        if available_now:
            writer = writer.trigger(availableNow=True)
        self._query = writer.queryName(f"{', '.join(self.views)} ({self.job.run[:6]})").start()

    def _told_to_source(self) -> dict[str, str]:
        return {"job": self.job.sealed().to_text(), "planning": self.job.planning().to_text()}

    def wait(self, seconds: int | None = None) -> bool:
        """Until it has ended, or so long; whether it has. Trouble that goes away by itself is only told of."""
        assert self._query is not None
        try:
            ended = self._query.awaitTermination(seconds) if seconds is not None else self._wait()
        except StreamingQueryException as problem:
            self._recover(problem)
            return False
        if ended:
            self._clean()
        return bool(ended)

    def _wait(self) -> bool:
        assert self._query is not None
        while not self._query.awaitTermination(1):
            self._tell_status()
        return True

    @property
    def is_running(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def look(self) -> None:
        """Whether it is still at work; trouble is met as in `wait`."""
        if not self.is_running:
            self.wait()
        self._tell_status()

    def finish(self) -> None:
        """Until all that the log has is delivered."""
        while not self.is_done:
            self.await_move(0.2)
            if not self.is_running and self.wait() and not self.is_done:
                raise error("E069", "the pipeline was stopped before it had taken all in")
            self._tell_status()

    def await_move(self, seconds: float) -> None:
        """Until the next batch was delivered, or so long."""
        with self._moved:
            self._moved.wait(seconds)

    @property
    def is_done(self) -> bool:
        """Whether all that the log has is delivered."""
        position = self.offset.position
        return bool(self.offset.number) and self.job.log.after(position, Limit(commits=1)) == position

    def stop(self) -> None:
        """After the batch that is under way, of which nothing may be delivered any more."""
        try:
            if self._query is not None:
                self._query.stop()
        finally:
            self._clean()
        self._told_status = -math.inf
        self._tell_status()

    def _clean(self) -> None:
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def _recover(self, problem: StreamingQueryException) -> None:
        self._clean()
        if self._failure is not None:
            raise self._failure
        known = heard(str(problem))
        if known is not None and known.diagnostics[0].code != "E061":
            raise known
        self._restarts += 1
        if self._restarts > RESTARTS_MAX:
            raise known or problem
        self.on_trouble(str(known) if known else _cause(problem))
        self.offset = self.standing.resumed(self.job, self.on_trouble)
        self.start(self._available_now)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, view: str) -> Changes:
        """All rows that a view that is kept shows now, as if all of them were new."""
        return rows_at(self.job, self.offset, view)

    @property
    def views(self) -> list[str]:
        return [view for plan in self.job.plans.values() for view in plan.views]

    def inputs(self, view: str) -> Input:
        """What is known of a view before anything has happened."""
        return next(p.kernels.inputs[view] for p in self.job.plans.values() if view in p.views)

    def status(self) -> Json:
        """How it fares."""
        ui = self.spark.sparkContext.uiWebUrl
        return status_of(self.job, self.offset, ui, self.figures.status(self._progress()))

    @property
    def has_begun(self) -> bool:
        """Whether Spark is at it, and not about to be."""
        return self._query is not None and not str(self._query.status["message"]).startswith("Initializing")

    def _progress(self) -> Mapping[str, int]:
        progress = None if self._query is None else self._query.lastProgress
        return {} if progress is None else progress.durationMs

    def _tell_status(self) -> None:
        """Now and then, to the pipeline's directory."""
        if time.monotonic() - self._told_status >= STATUS_EVERY_S:
            self._told_status = time.monotonic()
            self.last_status = self.status()
            try:
                self.standing.note_status(self.last_status)
            except SmileError as problem:
                if str(problem) != self._untold:
                    self.on_trouble(str(problem))
                self._untold = str(problem)

    # ── delivering ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _batch(self, frame: DataFrame, _: int) -> None:
        rows = frame.toArrow()  # here the tasks run, and may fail
        try:
            batch, heads = self._told(rows)
            with self.turn:
                self.deliver(batch)
                self.standing.note_delivered(batch.end)
                self.offset, self._restarts = batch.end, 0
            self.figures.take(heads, sum(map(len, batch.changes.values())))
            with self._moved:
                self._moved.notify_all()
        except BaseException as failure:
            self._failure = failure
            raise

    def _told(self, rows: pa.Table) -> tuple[Taken, list[Json]]:
        messages = [Incoming(value.as_buffer()) for chunk in rows.column("message").chunks for value in chunk]
        found: list[tuple[Any, Changes]] = []
        for message in messages:
            found += [(tuple(name), changes) for name, changes in message.changes(self.job.layouts)]
        start, end = (Offset.from_json(messages[0].head[which]) for which in ("start", "end"))
        changes = {name[0].partition("/")[2]: of for name, of in gathered(self.job.layouts, found).items()}
        return Taken(changes, end.horizons, self.job, start, end), [message.head for message in messages]


def status_of(job: Job, offset: Offset, ui: str | None, figures: Json) -> Json:
    waiting, waiting_bytes = job.log.waiting(offset.position)
    return {
        "at": time.time(),
        "views": [view for generation in job.generations for view in generation.wanted],
        "partitions": job.partitions,
        "number": offset.number,
        "horizons": offset.horizons,
        "waiting_events": waiting,
        "waiting_bytes": waiting_bytes,
        "ui": ui,
        **figures,
    }


def _mapped(frame: DataFrame, stage: Callable[[Any], Any]) -> DataFrame:
    """`mapInArrow`, whose own front asks for pandas, though neither it nor we have a use for that."""
    function = vectorized_udf(stage, SCHEMA, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    return type(frame)(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _stage_of(job: Job, number: int) -> Callable[[Any], Any]:
    """Stages two and later: what Spark calls in its workers, and shows by the names of its views."""

    sealed = job.sealed()

    def stage(batches: Any) -> Any:
        with told():
            columns = ((b.column(0).to_pylist(), b.column(1).to_pylist(), b.column(2)) for b in batches)
            rows = (
                (target, to, message.as_buffer())
                for targets, stages, messages in columns
                for target, to, message in zip(targets, stages, messages, strict=True)
            )
            yield from batches_of(later_stage(sealed.opened(), number, rows))

    stage.__name__ = f"stage {number}: " + ", ".join(view for w in job.works(number).values() for view in w.views)
    return stage


def _cause(problem: BaseException) -> str:
    """In one line: what Python said last, or Spark first."""
    lines = str(problem).strip().splitlines()
    said = [line for line in lines if re.match(r"[A-Z]\w*(Error|Exception|Interrupt)\b", line)]
    return (said[-1] if said else lines[0]).strip()
