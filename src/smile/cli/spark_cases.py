"""Test files on Spark: a pipeline for each, all in one session."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from smile.cli.options import MASTER_DEFAULT
from smile.cli.replay.output import print_message
from smile.cli.spark_process import exit_on_sigterm, start_spark
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit
from smile.log.storage.durable import DurableLog
from smile.temporary_folder import temporary_folder
from smile.testing.reader import CaseFile
from smile.testing.runs import OpenEngine, shown_messages


class SparkCaseEngine:
    """Runs the program of a case in a pipeline of its own, whose log and state are in `folder`."""

    def __init__(self, spark: SparkSession, case: CaseFile, folder: Path) -> None:
        program, self._views = case.rewritten, case.views
        self._log = DurableLog.open_or_create(str(folder / "log"), program.log_streams, flush=False)
        generation = Generation("0", program, self._views, self._views, self._views)
        directory = PipelineDirectory(str(folder / "state"))
        job = directory.open_job((generation,), 1, self._log, BatchLimit(commits=1), print_message)
        self._kernels = job.plans["0"].kernels
        self._delivered: list[BatchResult] = []
        self._pipeline = SparkPipeline(spark, directory, job, self._delivered.append, print_message)

    def start(self) -> None:
        self._pipeline.start()
        self._pipeline.wait_until_caught_up()

    def advance(self, batch: InputBatch) -> list[Json]:
        self._delivered.clear()
        self._log.append_batch(batch)
        self._pipeline.wait_until_caught_up()
        return [row for result in self._delivered for row in shown_messages(self._kernels, self._views, result)]

    def rows(self) -> list[Json]:
        rows = {view: self._pipeline.snapshot(view) for view in self._views}
        return shown_messages(self._kernels, self._views, BatchResult(rows, self._pipeline.offset.horizons))

    def close(self) -> None:
        self._pipeline.stop()
        self._log.close()


@contextmanager
def open_spark_engines() -> Iterator[OpenEngine]:
    """Starts Spark, and stops it at the end."""
    with exit_on_sigterm(), temporary_folder() as folder, start_spark(MASTER_DEFAULT, False, folder) as spark:
        yield lambda case: _open_engine(spark, case)


@contextmanager
def _open_engine(spark: "Future[SparkSession]", case: CaseFile) -> Iterator[SparkCaseEngine]:
    with TemporaryDirectory() as folder, closing(SparkCaseEngine(spark.result(), case, Path(folder))) as engine:
        yield engine
