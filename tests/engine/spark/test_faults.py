"""Faults: whatever fails, all messages arrive in the end, and none was false.

Here a commit is a batch. So a batch that is repeated must give the same messages as before, and as the local engine.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import sleep

import pytest
from pyspark.sql import SparkSession

from smile.engine.spark.pipeline import PipelineBatch, SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.planning import Offset
from tests.engine.spark import workload
from tests.engine.spark.comparison import (
    COMMIT_PER_BATCH,
    BatchMessages,
    batch_messages,
    make_pipeline,
    recorded,
    rows_of,
    run_locally,
)
from tests.engine.spark.faulty import FailingJob
from tests.shared_spark import python_pids

EXPECTED, ROWS = run_locally(workload.program(), workload.frames())
DRIVER = Path(__file__).parent / "driver.py"


def begun(
    spark: SparkSession, folder: Path, outputs: dict[int, BatchMessages], trouble: list[str], partitions: int = 2
) -> SparkPipeline:
    """A pipeline that puts the messages of each batch into `outputs`. If a batch is repeated, they must be the same."""
    log = folder / "log"
    shared = recorded(workload.program(), workload.frames() if not log.exists() else [], log)
    pipeline = make_pipeline(
        spark, workload.program(), shared, folder / "state", partitions, COMMIT_PER_BATCH, [], trouble.append
    )
    views, kernels = workload.program().subscriptions, pipeline.job.plans["0"].kernels

    def deliver(batch: PipelineBatch) -> None:
        now = batch_messages(kernels, views, batch)
        number = pipeline.offset.number
        assert outputs.setdefault(number, now) == now == EXPECTED[number]

    pipeline.deliver = deliver
    return pipeline


def ended(pipeline: SparkPipeline) -> None:
    while not pipeline.wait():
        pass


def check(pipeline: SparkPipeline, outputs: dict[int, BatchMessages]) -> None:
    assert [outputs[n] for n in sorted(outputs)] == EXPECTED
    assert rows_of(pipeline, workload.program().subscriptions) == ROWS


def test_workers_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    outputs: dict[int, BatchMessages] = {}
    pipeline = begun(spark, tmp_path, outputs, [])
    deliver = pipeline.deliver
    over = Event()
    killed: list[int] = []

    def kill_between_batches(batch: PipelineBatch) -> None:
        deliver(batch)
        if len(outputs) == 3:
            killed.append(_kill_workers())

    def kill_at_any_moment() -> None:
        while not over.wait(0.7):
            if sum(killed) < 6:
                killed.append(_kill_workers())

    pipeline.deliver = kill_between_batches
    thread = Thread(target=kill_at_any_moment)
    thread.start()
    try:
        pipeline.start(available_now=True)
        ended(pipeline)
    finally:
        over.set()
        thread.join()
    assert sum(killed)
    check(pipeline, outputs)


def _kill_workers() -> int:
    """Kills the Python processes in which tasks of the session run. Returns how many there were."""
    count = 0
    for pid in python_pids("smile.engine.spark.daemon"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def test_tasks_fail_after_they_wrote_their_state(spark: SparkSession, tmp_path: Path) -> None:
    outputs: dict[int, BatchMessages] = {}
    pipeline = begun(spark, tmp_path, outputs, [])
    notes = tmp_path / "notes"
    notes.mkdir()
    same = {field.name: getattr(pipeline.job, field.name) for field in fields(pipeline.job)}
    pipeline.job = FailingJob(**same, notes=str(notes), failures=12)
    pipeline.start(available_now=True)
    ended(pipeline)
    assert len(list(notes.iterdir())) > 3
    check(pipeline, outputs)


def test_the_checkpoint_is_deleted(spark: SparkSession, tmp_path: Path) -> None:
    outputs: dict[int, BatchMessages] = {}
    trouble: list[str] = []
    pipeline = begun(spark, tmp_path, outputs, trouble)
    deliver = pipeline.deliver

    def delete(batch: PipelineBatch) -> None:
        deliver(batch)
        if len(outputs) == 5 and not trouble:
            assert pipeline._checkpoint is not None
            shutil.rmtree(pipeline._checkpoint)

    pipeline.deliver = delete
    pipeline.start()
    pipeline.wait_until_caught_up()
    pipeline.stop()
    check(pipeline, outputs)


def test_state_is_damaged_while_it_is_used(spark: SparkSession, tmp_path: Path) -> None:
    """Two workers share a partition, so that what one has written the other reads; what is damaged is made again."""
    outputs: dict[int, BatchMessages] = {}
    trouble: list[str] = []
    pipeline = begun(spark, tmp_path, outputs, trouble)
    deliver, random = pipeline.deliver, Random(3)

    def damage(batch: PipelineBatch) -> None:
        deliver(batch)
        if len(outputs) in (4, 8) and len(trouble) < 4:
            newest = sorted((tmp_path / "state").glob(f"state-1/*/*/{pipeline.offset.number + 1:012}-*.state"))
            path = random.choice(newest)
            path.write_bytes(path.read_bytes()[: random.randrange(200)])
            _kill_workers()

    pipeline.deliver = damage
    pipeline.start(available_now=True)
    ended(pipeline)
    assert any("damaged" in warning for warning in trouble)
    check(pipeline, outputs)


@pytest.mark.parametrize("partitions", [(2, 3), (3, 1), (1, 2)])
def test_stopped_and_started_with_other_partitions(
    spark: SparkSession, tmp_path: Path, partitions: tuple[int, int]
) -> None:
    outputs: dict[int, BatchMessages] = {}
    pipeline = begun(spark, tmp_path, outputs, [], partitions[0])
    deliver = pipeline.deliver
    enough = Event()

    def stop_soon(batch: PipelineBatch) -> None:
        deliver(batch)
        if len(outputs) > 5:
            enough.set()
            sleep(0.5)  # so that it is stopped before it has come to the end

    pipeline.deliver = stop_soon
    pipeline.start()
    assert enough.wait(600)
    pipeline.stop()
    assert len(outputs) < len(EXPECTED)
    pipeline = begun(spark, tmp_path, outputs, [], partitions[1])
    assert pipeline.offset.number > 1
    pipeline.start(available_now=True)
    ended(pipeline)
    check(pipeline, outputs)


@pytest.mark.parametrize("step", ["before delivery", "after delivery", "after the note"])
def test_the_driver_fails_between_two_steps(spark: SparkSession, tmp_path: Path, step: str) -> None:
    """The next one goes on from the files. `test_the_driver_is_killed` does the same with processes that are killed."""
    outputs: dict[int, BatchMessages] = {}
    pipeline = begun(spark, tmp_path, outputs, [])
    deliver = pipeline.deliver

    def fail_at(now: str) -> None:
        if now == step and pipeline.offset.number == 2:
            raise Failure

    def deliver_or_fail(batch: PipelineBatch) -> None:
        fail_at("before delivery")
        deliver(batch)
        fail_at("after delivery")

    class FailingDirectory(PipelineDirectory):
        def write_delivered(self, offset: Offset, hard: bool = False) -> None:
            super().write_delivered(offset, hard)
            fail_at("after the note")

    pipeline.deliver = deliver_or_fail
    pipeline.directory = FailingDirectory(str(tmp_path / "state"))
    pipeline.start(available_now=True)
    with pytest.raises(Failure):
        ended(pipeline)
    assert len(outputs) < len(EXPECTED)
    pipeline = begun(spark, tmp_path, outputs, [])
    pipeline.start(available_now=True)
    ended(pipeline)
    check(pipeline, outputs)


class Failure(Exception):
    """The driver ends at this step."""


@pytest.mark.nightly
def test_the_driver_is_killed(tmp_path: Path) -> None:
    """The driver kills itself between any two of its steps, with a signal that cannot be caught. The last run reaches
    the end."""
    recorded(workload.program(), workload.frames(), tmp_path / "log")
    out = tmp_path / "messages"
    env = {**os.environ, "PYTHONPATH": str(workload.ROOT)}
    for step in ("before delivery", "after delivery", "after the note", "never"):
        done = subprocess.run(
            [sys.executable, DRIVER, str(tmp_path), step], env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == (0 if step == "never" else -signal.SIGKILL), done.stderr[-3000:]
    outputs: dict[int, BatchMessages] = {}
    for line in out.read_text().splitlines():
        number, now = json.loads(line)
        assert outputs.setdefault(number, now) == now == EXPECTED[number]
    assert [outputs[n] for n in sorted(outputs)] == EXPECTED
