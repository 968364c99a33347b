"""The source of a pipeline: a Python data source of Structured Streaming. It plans batches over the log, and its tasks
run the first stage as they read.

Spark loads this in every process that it plans with, each for a small part of it: what a part needs, it loads itself.
"""

import sys
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from smile.engine.spark.sealed import Sealed
from smile.engine.spark.trouble import told

if TYPE_CHECKING:
    import pyarrow as pa

    from smile.engine.spark.planning import Planning

FORMAT = "smile"
SCHEMA = "target int, stage int, message binary"
Json = dict[str, Any]


@dataclass
class Task(InputPartition):
    """A partition of the first stage, and the offsets of its batch."""

    partition: int
    start: Json
    end: Json


class SmileSource(DataSource):
    """Made in processes of Spark's own only."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        without_pandas()
        super().__init__(options)
        self.job, self.planning = Sealed.from_text(options["job"]), Sealed.from_text(options["planning"])

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "SmileReader":  # noqa: N802  # Spark's name
        without_pandas()
        return SmileReader(self.job, self.planning)


class _NoPandas:
    """Finds no pandas, and leaves all else to others."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not for Spark's own processes", name=name)


def without_pandas() -> None:
    """Arrow would load it wherever it is installed, which takes a second, and nothing here has a use for it."""
    if _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


class SmileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls the planning half of it in a process of its own, and `read` in its workers."""

    def __init__(self, job: Sealed, planning: Sealed) -> None:
        self._job, self._planning = job, planning
        self.until: int | None = None

    # ── planning ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def planning(self) -> "Planning":
        found: Planning = self._planning.opened()
        return found

    def initialOffset(self) -> Json:  # noqa: N802
        return self.planning.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.planning.limit
        if limit.commits is not None:
            return ReadMaxFiles(limit.commits)
        return ReadAllAvailable() if limit.rows is None else ReadMaxRows(limit.rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with told():
            self.until = self.planning.log.newest().commit

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """What Spark calls a file is a commit."""
        from smile.engine.spark.planning import Offset  # noqa: PLC0415

        with told():
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            commits = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            allowed = self.planning.allowed(rows, commits, self.until)
            return self.planning.latest(Offset.from_json(start), allowed).to_json()

    def partitions(self, start: Json, end: Json) -> Sequence[Task]:
        return [Task(p, start, end) for p in range(self.planning.partitions)]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from smile.engine.spark.planning import Offset  # noqa: PLC0415
        from smile.engine.spark.task import batches_of, first_stage  # noqa: PLC0415

        assert isinstance(partition, Task)
        with told():
            start, end = Offset.from_json(partition.start), Offset.from_json(partition.end)
            yield from batches_of(first_stage(self._job.opened(), partition.partition, start, end))
