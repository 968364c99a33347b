"""The source of a pipeline: a Python data source for Structured Streaming. It plans batches over the log, and its read
tasks run the first stage.

Spark imports this module in several planning processes, each of which uses a small part of it. So each part imports
what it needs inside its functions.
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

from smile.engine.spark.error_transport import encode_errors
from smile.engine.spark.pickled_job import PickledJob

if TYPE_CHECKING:
    import pyarrow as pa

    from smile.engine.spark.planning import BatchPlanner
    from smile.log.position import Position

FORMAT = "smile_log"
"""The data source for users is `smile` (`smile.spark`)."""
BLOCKS_PANDAS = "blocks_pandas"
"""An option: the process is SMILE's, so it need not load pandas."""
SCHEMA = "target int, stage int, message binary"
Json = dict[str, Any]


@dataclass
class SourcePartition(InputPartition):
    """A partition of the first stage, and the offsets of its batch."""

    partition: int
    start: Json
    end: Json


class SmileSource(DataSource):
    """Created only in Spark's Python processes, never in the driver."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._block_pandas()
        self.job, self.planner = PickledJob.from_text(options["job"]), PickledJob.from_text(options["planning"])

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "SmileReader":  # noqa: N802  # Spark's name
        self._block_pandas()
        return SmileReader(self.job, self.planner)

    def _block_pandas(self) -> None:
        if BLOCKS_PANDAS in self.options:
            block_pandas()


class _PandasBlocker:
    """An import hook that refuses pandas and leaves all other modules to the next hooks."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is blocked in Spark's Python processes", name=name)


def block_pandas() -> None:
    """Arrow imports pandas wherever it is installed. That takes a second, and nothing here needs it."""
    if _PandasBlocker not in sys.meta_path:
        sys.meta_path.insert(0, _PandasBlocker)


class SmileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls the planning methods in a separate process, and `read` in its workers."""

    def __init__(self, job: PickledJob, planner: PickledJob) -> None:
        self._job, self._planner = job, planner
        self.until: Position | None = None

    # ── planning ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def planner(self) -> "BatchPlanner":
        planner: BatchPlanner = self._planner.load()
        return planner

    def initialOffset(self) -> Json:  # noqa: N802
        return self.planner.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.planner.limit
        if limit.commits is not None:
            return ReadMaxFiles(limit.commits)
        return ReadAllAvailable() if limit.rows is None else ReadMaxRows(limit.rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with encode_errors():
            self.until = self.planner.log.newest()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Spark's limit of files is used as a limit of commits."""
        from smile.engine.spark.planning import Offset  # noqa: PLC0415

        with encode_errors():
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            commits = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            batch_limit = self.planner.batch_limit(rows, commits, self.until)
            return self.planner.latest_offset(Offset.from_json(start), batch_limit).to_json()

    def partitions(self, start: Json, end: Json) -> Sequence[SourcePartition]:
        return [SourcePartition(p, start, end) for p in range(self.planner.partitions)]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from smile.engine.spark.planning import Offset  # noqa: PLC0415
        from smile.engine.spark.task import record_batches, run_first_stage  # noqa: PLC0415

        assert isinstance(partition, SourcePartition)
        with encode_errors():
            start, end = Offset.from_json(partition.start), Offset.from_json(partition.end)
            yield from record_batches(run_first_stage(self._job.load(), partition.partition, start, end))
