"""Stores the classes that Java loads for Spark, so that later starts map them instead of loading them."""

import time
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from smile.cli.replay.output import print_message
from smile.engine.generation import Generation
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.session import JavaProcess, class_archive
from smile.errors import error
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit
from smile.log.storage.durable import DurableLog
from smile.program import compile_program
from smile.source import Source
from smile.temporary_folder import temporary_folder

_PROGRAM = """
CREATE STREAM Bids (t: time -> issue: string, price: int);
CREATE VIEW Totals AS SELECT issue, SUM(price) AS total FROM Bids GROUP BY issue;
CREATE VIEW Largest AS SELECT MAX(total) AS total FROM Totals;
"""
_BATCHES = 3
_STORE_S_MAX = 120.0
"""How long Java may take to store the classes."""


def store_classes() -> float:
    """Returns how many seconds Spark needs to start afterwards. The archive is used only if it is complete."""
    path = class_archive()
    new_path = path.with_name(f"{path.name}.new")
    try:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder() as folder:
            _run_on_spark(folder / "storing", new_path)
            if not new_path.exists():
                hint = "This Java may not be able to store classes. Spark works without that."
                raise error("E179", "Java has not stored the classes of Spark", hint=hint)
            new_path.replace(path)
            return _run_on_spark(folder / "using", None)
    except OSError as problem:
        raise error("E179", f"cannot write {path}: {problem.strerror or problem}") from None
    finally:
        with suppress(OSError):
            new_path.unlink()


def _run_on_spark(folder: Path, new_archive: Path | None) -> float:
    """Runs the program on Spark, and returns how long Spark needed to start. At its end Java writes the
    classes to `new_archive`."""
    folder.mkdir()
    begin = time.monotonic()
    java = JavaProcess("local[2]", folder / "spark.log", new_archive=new_archive)
    try:
        spark = java.session("smile")
        start_s = time.monotonic() - begin
        _run_program(spark, folder)
    finally:
        java.stop(timeout_s=_STORE_S_MAX)
    return start_s


def _run_program(spark: SparkSession, folder: Path) -> None:
    """Java only transports bytes, so batches without events need the same classes."""
    program = compile_program(Source("prepare.smile", _PROGRAM)).rewritten
    log = DurableLog.open_or_create(f"{folder}/log", program.streams, flush=False)
    generation = Generation("0", program, ("Totals", "Largest"), ("Totals", "Largest"), ())
    directory = PipelineDirectory(f"{folder}/state")
    job = directory.open_job((generation,), 2, log, BatchLimit(commits=1), print_message)
    pipeline = SparkPipeline(spark, directory, job, lambda _: None, print_message)
    for number in range(_BATCHES):
        log.append_batch(InputBatch({}, {"Bids": number + 1}))
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    pipeline.stop()
    log.close()
