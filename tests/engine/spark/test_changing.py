"""Views are added to a running pipeline and dropped from it, while events go on coming."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from time import sleep

from pyspark.sql import SparkSession

from smile.algebra.types import TICK_MAX
from smile.encoding.json_changes import json_changes
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.reconfiguration import Backfill, drop_views
from smile.horizons import HORIZON_MIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from tests.engine.spark import workload
from tests.engine.spark.comparison import COMMIT_PER_BATCH, run_locally
from tests.messages import key_text

FIRST, SECOND = ("RemainingBuy",), ("Matchable", "RemainingSell")


def generation(name: str, views: Sequence[str]) -> Generation:
    return Generation(name, workload.program(), tuple(views), tuple(views), tuple(views))


def add_views(pipeline: SparkPipeline, views: Sequence[str]) -> None:
    """Returns when they have caught up and are part of the pipeline."""
    backfill = Backfill.prepare(pipeline, generation("1", views))
    backfill.backfill_pipeline.start()
    while not backfill.is_caught_up:
        backfill.backfill_pipeline.wait_for_batch(0.2)
        backfill.backfill_pipeline.poll()
    backfill.merge()


def shown(pipeline: SparkPipeline, view: str) -> dict[str, object]:
    """The rows of a view that is kept, by their keys."""
    source = pipeline.view_input(view)
    messages = json_changes(source, pipeline.snapshot(view), pipeline.offset.horizons)
    return {key_text(m): m for m in messages}


def expected(view: str) -> dict[str, object]:
    _, rows = run_locally(workload.program(), workload.frames())
    messages = [json.loads(row) for row in rows]
    return {key_text(m): m for m in messages if m["view"] == view}


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
    add_views(pipeline, SECOND)
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


def test_views_are_added_while_silence_replaces_silence(spark: SparkSession, tmp_path: Path) -> None:
    """The commit at which one pipeline has stopped is replaced before the other gets there."""
    batches: list[BatchResult] = []
    pipeline, log = begun(spark, tmp_path, batches)
    streams = [stream.name for stream in workload.program().streams]
    log.append_batch(replace(workload.frames()[0], horizons=dict.fromkeys(streams, TICK_MAX // 2)))
    stopping, last_horizon = Event(), TICK_MAX // 2

    def publish_silence() -> None:
        nonlocal last_horizon
        while not stopping.wait(0.005):
            last_horizon += 1
            log.append([StreamPiece(stream, "0", HORIZON_MIN, last_horizon) for stream in streams])

    publisher = Thread(target=publish_silence)
    publisher.start()
    try:
        pipeline.start()
        while pipeline.offset.position.commit < 2:  # the first commit has events, and is not replaced
            pipeline.wait_for_batch(0.2)
            pipeline.poll()
        add_views(pipeline, SECOND)
    finally:
        stopping.set()
        publisher.join()
    pipeline.wait_until_caught_up()
    pipeline.stop()
    assert pipeline.offset.horizons == dict.fromkeys(streams, last_horizon)
    assert log.newest().commit > 100
    with sqlite3.connect(log.path) as connection:
        assert connection.execute("SELECT count(*) FROM commits").fetchone() < (5,)
    assert [g.views for g in pipeline.job.generations] == [FIRST, SECOND]
    assert {view for batch in batches for view in batch.deltas} == {*FIRST, *SECOND}
