"""The source of a pipeline: a Python data source of Structured Streaming. It plans batches over the log, and its tasks
run the first stage as they read.
"""

import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from smile.engine.generation import Json
from smile.engine.spark.job import Job, Offset, Sealed
from smile.engine.spark.task import SCHEMA, batches_of, first_stage
from smile.engine.spark.trouble import told
from smile.log.position import Limit

FORMAT = "smile"
PATIENCE_S = 0.1
"""So long the source waits for something new before it says that there is nothing."""
NAP_S = 0.001


@dataclass
class Task(InputPartition):
    """A partition of the first stage, and the offsets of its batch."""

    partition: int
    start: Json
    end: Json


class SmileSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.job = Sealed.from_text(options["job"])

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "SmileReader":  # noqa: N802  # Spark's name
        return SmileReader(self.job)


class SmileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls the planning half of it in a process of its own, and `read` in its workers."""

    def __init__(self, sealed: Sealed) -> None:
        self.sealed = sealed
        self.until: int | None = None

    @property
    def job(self) -> Job:
        return self.sealed.opened()

    # ── planning ────────────────────────────────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> Json:  # noqa: N802
        return self.job.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.job.limit
        if limit.commits is not None:
            return ReadMaxFiles(limit.commits)
        return ReadAllAvailable() if limit.rows is None else ReadMaxRows(limit.rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with told():
            self.until = self.job.log.newest().commit

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """As far as a batch may go; where nothing is new it waits a little, which costs less than to be asked again."""
        with told():
            before = Offset.from_json(start)
            if not before.number:
                # What is shown before anything has happened comes first.
                return Offset(1, before.position).to_json()
            allowed = self._allowed(limit)
            patient_until = time.monotonic() + (PATIENCE_S if allowed.last is None else 0)
            while True:
                position = self.job.log.after(before.position, allowed)
                if position != before.position:
                    return Offset(before.number + 1, position).to_json()
                if time.monotonic() >= patient_until:
                    break
                time.sleep(NAP_S)
            return start

    def _allowed(self, limit: ReadLimit) -> Limit:
        """Spark's limit, and never more bytes than a batch may have, nor a commit too many. What Spark calls a file is
        a commit."""
        size, last = self.job.limit.bytes, self.until if self.job.until is None else self.job.until
        match limit:
            case ReadMaxRows(max_rows=most):
                return Limit(rows=most, bytes=size, last=last)
            case ReadMaxFiles(max_files=most):
                return Limit(bytes=size, commits=most, last=last)
        return Limit(bytes=size, last=last)

    def partitions(self, start: Json, end: Json) -> Sequence[Task]:
        return [Task(p, start, end) for p in range(self.job.partitions)]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        with told():
            start, end = Offset.from_json(partition.start), Offset.from_json(partition.end)
            yield from batches_of(first_stage(self.job, partition.partition, start, end))
