"""Views are added to a running pipeline and dropped from it, while events go on coming."""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from time import sleep

import pytest
from pyspark.sql import SparkSession

from smile.engine.generation import Generation
from smile.engine.local import Batch
from smile.engine.messages import messages
from smile.engine.spark.changing import added, dropped
from smile.engine.spark.pipeline import Pipeline
from smile.engine.spark.standing import Standing
from smile.errors import SmileError
from smile.log.durable import DurableLog
from tests.engine.spark import workload
from tests.engine.spark.beside import ONE, locally

FIRST, SECOND = ("RemainingBuy",), ("Matchable", "RemainingSell")


def generation(name: str, views: Sequence[str]) -> Generation:
    return Generation(name, workload.program(), tuple(views), tuple(views), tuple(views))


def shown(pipeline: Pipeline, view: str) -> dict[str, object]:
    """The rows of a view that is kept, by their keys."""
    source = pipeline.inputs(view)
    told = messages(view, source.type, source.layout, pipeline.rows(view), pipeline.offset.horizons)
    return {str(m["key"]): m for m in told}


def expected(view: str) -> dict[str, object]:
    _, rows = locally(workload.program(), workload.frames())
    found = [json.loads(row) for row in rows]
    return {str(m["key"]): m for m in found if m["view"] == view}


def begun(spark: SparkSession, folder: Path, told: list[Batch]) -> tuple[Pipeline, DurableLog]:
    log = DurableLog.at(str(folder / "log"), workload.program().streams, flush=False)
    standing = Standing(str(folder / "state"))
    job = standing.job((generation("0", FIRST),), 2, log, ONE, print)
    return Pipeline(spark, standing, job, told.append, print), log


def test_views_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    told: list[Batch] = []
    pipeline, log = begun(spark, tmp_path, told)
    frames = workload.frames()
    for frame in frames[:4]:
        log.append_frame(frame)
    pipeline.start()

    def publish() -> None:
        own = DurableLog.at(str(tmp_path / "log"), workload.program().streams, flush=False)
        for frame in frames[4:]:
            sleep(0.4)
            own.append_frame(frame)
        own.close()

    log.close()
    publisher = Thread(target=publish)
    publisher.start()
    added(pipeline, generation("1", SECOND))
    publisher.join()
    pipeline.finish()
    assert all(shown(pipeline, view) == expected(view) for view in (*FIRST, *SECOND))
    assert {view for batch in told for view in batch.changes} == {*FIRST, *SECOND}
    pipeline.stop()
    # The same generations again, from what is written.
    standing = Standing(str(tmp_path / "state"))
    generations = standing.generations()
    assert generations is not None
    again = Pipeline(spark, standing, standing.job(generations, 3, log, ONE, print), told.append, print)
    assert again.offset.number == pipeline.offset.number
    assert all(shown(again, view) == expected(view) for view in (*FIRST, *SECOND))
    again.start()
    with pytest.raises(SmileError, match="Matchable already"):
        added(again, generation("2", ("Matchable",)))
    with pytest.raises(SmileError, match="no view Nothing"):
        dropped(again, ["Nothing"])
    dropped(again, ["Matchable", "RemainingBuy"])
    again.finish()
    assert [g.wanted for g in again.job.generations] == [("RemainingSell",)]
    assert shown(again, "RemainingSell") == expected("RemainingSell")
    again.stop()
