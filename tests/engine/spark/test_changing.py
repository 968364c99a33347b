"""Views are added to a running pipeline and dropped from it, while events go on coming."""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from time import sleep

from pyspark.sql import SparkSession

from smile.encoding.json_changes import json_changes
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.reconfiguration import Backfill, drop_views
from smile.log.storage.durable import DurableLog
from tests.engine.spark import workload
from tests.engine.spark.comparison import COMMIT_PER_BATCH, run_locally

FIRST, SECOND = ("RemainingBuy",), ("Matchable", "RemainingSell")


def generation(name: str, views: Sequence[str]) -> Generation:
    return Generation(name, workload.program(), tuple(views), tuple(views), tuple(views))


def shown(pipeline: SparkPipeline, view: str) -> dict[str, object]:
    """The rows of a view that is kept, by their keys."""
    source = pipeline.view_input(view)
    messages = json_changes(source, pipeline.snapshot(view), pipeline.offset.horizons)
    return {str(m["key"]): m for m in messages}


def expected(view: str) -> dict[str, object]:
    _, rows = run_locally(workload.program(), workload.frames())
    messages = [json.loads(row) for row in rows]
    return {str(m["key"]): m for m in messages if m["view"] == view}


def begun(spark: SparkSession, folder: Path, batches: list[BatchResult]) -> tuple[SparkPipeline, DurableLog]:
    log = DurableLog.open_or_create(str(folder / "log"), workload.program().streams, flush=False)
    directory = PipelineDirectory(str(folder / "state"))
    job = directory.open_job((generation("0", FIRST),), 2, log, COMMIT_PER_BATCH, print)
    return SparkPipeline(spark, directory, job, batches.append, print), log


def test_views_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[BatchResult] = []
    pipeline, log = begun(spark, tmp_path, batches)
    frames = workload.frames()
    for frame in frames[:4]:
        log.append_batch(frame)
    pipeline.start()

    def publish() -> None:
        own = DurableLog.open_or_create(str(tmp_path / "log"), workload.program().streams, flush=False)
        for frame in frames[4:]:
            sleep(0.1)
            own.append_batch(frame)
        own.close()

    log.close()
    publisher = Thread(target=publish)
    publisher.start()
    backfill = Backfill.prepare(pipeline, generation("1", SECOND))
    backfill.backfill_pipeline.start()
    while not backfill.is_caught_up:
        backfill.backfill_pipeline.wait_for_batch(0.2)
        backfill.backfill_pipeline.poll()
    backfill.merge()
    publisher.join()
    pipeline.wait_until_caught_up()
    assert all(shown(pipeline, view) == expected(view) for view in (*FIRST, *SECOND))
    assert {view for batch in batches for view in batch.deltas} == {*FIRST, *SECOND}
    pipeline.stop()
    # The same generations again, from what is written.
    directory = PipelineDirectory(str(tmp_path / "state"))
    generations = directory.generations()
    assert generations is not None
    again = SparkPipeline(
        spark, directory, directory.open_job(generations, 3, log, COMMIT_PER_BATCH, print), batches.append, print
    )
    assert again.offset.number == pipeline.offset.number
    assert all(shown(again, view) == expected(view) for view in (*FIRST, *SECOND))
    again.start()
    drop_views(again, ["Matchable", "RemainingBuy"])
    again.wait_until_caught_up()
    assert [g.views for g in again.job.generations] == [("RemainingSell",)]
    assert shown(again, "RemainingSell") == expected("RemainingSell")
    again.stop()
