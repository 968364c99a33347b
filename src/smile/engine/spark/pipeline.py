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
from smile.engine.local import Batch
from smile.engine.spark.figures import Figures
from smile.engine.spark.job import Job, Json, Offset
from smile.engine.spark.source import FORMAT
from smile.engine.spark.standing import Standing
from smile.engine.spark.task import SCHEMA, batches_of, later_stage
from smile.engine.spark.trouble import heard, told
from smile.errors import SmileError, error
from smile.kernels.changes import Changes, concat
from smile.kernels.compile import shown
from smile.kernels.shown import Shown
from smile.kernels.transform import Input
from smile.log.position import Limit
from smile.state.store import Mark

STATUS_EVERY_S = 1.0
RESTARTS_MAX = 3
"""Failures in a row, without a batch between them, before a pipeline gives up."""


@dataclass
class Pipeline:
    """`deliver` is given what each batch changed. It runs in a thread of its own, and the next batch waits for it."""

    spark: SparkSession
    standing: Standing
    job: Job
    deliver: Callable[[Batch], None]
    on_trouble: Callable[[str], None]
    turn: Lock = field(default_factory=Lock)
    """Held while something is delivered: pipelines that deliver to one place take turns."""
    offset: Offset = field(init=False)
    """How far it has come."""
    figures: Figures = field(default_factory=Figures)
    _query: StreamingQuery | None = None
    _checkpoint: str | None = None
    _failure: BaseException | None = None
    _available_now: bool = False
    _restarts: int = 0
    _moved: Condition = field(default_factory=Condition)
    _told_status: float = -math.inf

    def __post_init__(self) -> None:
        self.offset = self.job.start

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, available_now: bool = False) -> None:
        """From where it is; with `available_now` only to where the log ends now."""
        self.job = replace(self.job, start=self.offset, run=uuid4().hex)
        self._failure, self._available_now = None, available_now
        self._checkpoint = tempfile.mkdtemp(prefix="smile-")
        frame = self.spark.readStream.format(FORMAT).option("job", self.job.sealed().to_text()).load()
        for number in range(2, self.job.stages + 1):
            frame = _mapped(frame.repartitionById(self.job.partitions, frame.target), _stage_of(self.job, number))
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", f"file://{self._checkpoint}")
        if available_now:
            writer = writer.trigger(availableNow=True)
        self._query = writer.queryName(f"{', '.join(self.views)} ({self.job.run[:6]})").start()

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
            pass
        return True

    @property
    def is_running(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def look(self) -> None:
        """Whether it is still at work; trouble is met as in `wait`."""
        if not self.is_running:
            self.wait()

    def finish(self) -> None:
        """Until all that the log has is delivered."""
        while not self._is_done():
            with self._moved:
                self._moved.wait(0.2)
            if not self.is_running and self.wait() and not self._is_done():
                raise error("E069", "the pipeline was stopped before it had taken all in")

    def _is_done(self) -> bool:
        position = self.offset.position
        return bool(self.offset.number) and self.job.log.after(position, Limit(commits=1)) == position

    def stop(self) -> None:
        """After the batch that is under way, of which nothing may be delivered any more."""
        if self._query is not None:
            self._query.stop()
        self._clean()
        self.standing.note_status(self.status())

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
        name, plan = next((g.name, self.job.plans[g.name]) for g in self.job.generations if view in g.kept)
        work = plan.place_of(view)
        kept = work.kernels.transforms[shown(view)]
        assert isinstance(kept, Shown)
        offset = self.offset
        mark = Mark.of(offset.number, offset.horizons)
        found = []
        for partition in range(self.job.partitions):
            saved = self.job.store(work.number, partition).read(mark, self.job.shapes(work.number), whole=False)
            found.append(kept.rows({table: saved.tables[f"{name}/{shown(view)}/{table}"] for table in kept.shapes}))
        return concat(work.kernels.inputs[view].layout, found)

    @property
    def views(self) -> list[str]:
        return [view for plan in self.job.plans.values() for view in plan.views]

    def inputs(self, view: str) -> Input:
        """What is known of a view before anything has happened."""
        return next(p.kernels.inputs[view] for p in self.job.plans.values() if view in p.views)

    def status(self) -> Json:
        """How it fares."""
        waiting, waiting_bytes = self.job.log.waiting(self.offset.position)
        return {
            "at": time.time(),
            "views": self.views,
            "partitions": self.job.partitions,
            "number": self.offset.number,
            "horizons": self.offset.horizons,
            "waiting_events": waiting,
            "waiting_bytes": waiting_bytes,
            "ui": self.spark.sparkContext.uiWebUrl,
            **self.figures.status(self._progress()),
        }

    def _progress(self) -> Mapping[str, int]:
        progress = None if self._query is None else self._query.lastProgress
        return {} if progress is None else progress.durationMs

    def _tell_status(self) -> None:
        """Now and then, to the pipeline's directory."""
        if time.monotonic() - self._told_status >= STATUS_EVERY_S:
            self._told_status = time.monotonic()
            try:
                self.standing.note_status(self.status())
            except SmileError as problem:
                self.on_trouble(str(problem))

    # ── delivering ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _batch(self, frame: DataFrame, _: int) -> None:
        rows = frame.toArrow()  # here the tasks run, and may fail
        try:
            batch, offset, heads = self._told(rows)
            with self.turn:
                self.deliver(batch)
            self.figures.take(heads, sum(map(len, batch.changes.values())))
            self.standing.note_delivered(offset)
            with self._moved:
                self.offset, self._restarts = offset, 0
                self._moved.notify_all()
            self._tell_status()
        except BaseException as failure:
            self._failure = failure
            raise

    def _told(self, rows: pa.Table) -> tuple[Batch, Offset, list[Json]]:
        messages = [Incoming(value.as_buffer()) for chunk in rows.column("message").chunks for value in chunk]
        found: list[tuple[Any, Changes]] = []
        for message in messages:
            found += [(tuple(name), changes) for name, changes in message.changes(self.job.layouts)]
        offset = Offset.from_json(messages[0].head["end"])
        changes = {name[0].partition("/")[2]: of for name, of in gathered(self.job.layouts, found).items()}
        return Batch(changes, offset.horizons), offset, [message.head for message in messages]


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
