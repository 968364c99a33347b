"""Views maintained on Spark: they are added and dropped, the maintainer is stopped and started again, and Java is
killed. In the end the rows are those of a fresh run over the log, and nothing that was delivered is withdrawn."""

import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from smile.algebra import mmpl
from smile.broker.maintenance.spark_executor import SparkExecutor
from smile.engine.spark.session import JavaProcess, current_java
from smile.errors import SmileError
from tests.broker.maintenance import MaintainedProgram, generation, is_unsupported_join, over
from tests.processes import wait_until
from tests.random_programs import SEED_ID, random_program, seeds
from tests.shared_spark import python_pids


def make_maintained(folder: Path, program: mmpl.Program, streams: list[str], seed: int) -> MaintainedProgram:
    return MaintainedProgram(folder, program, executor_with(2, folder), streams, seed)


def executor_with(partitions: int, folder: Path) -> Callable[[Path], SparkExecutor]:
    return lambda state: SparkExecutor(state, "local[2]", partitions, folder / "spark.log")


def of_streams(seed: int, *streams: str) -> mmpl.Program:
    """A random program that has views of the first stream alone, and of others. These are added to the log later, when
    the history may have told of origins that can then not join any more: they have one origin."""
    random = Random(seed)
    while True:
        program = random_program(random, 5)
        first = over(program, streams[:1]).subscriptions
        others_have_one_origin = not any(s.many_origins for s in program.streams if s.name not in streams)
        if first and len(first) < len(program.subscriptions) and others_have_one_origin:
            return program


@pytest.mark.parametrize("seed", seeds(2), ids=SEED_ID)
@pytest.mark.usefixtures("spark")
def test_streams_and_views_come_and_go(seed: int, tmp_path: Path) -> None:
    program = of_streams(seed, "A")
    maintained = make_maintained(tmp_path, program, ["A"], seed)
    first = maintained.views
    try:
        maintained.start()
        maintained.publish(6)
        maintained.wait()
        maintained.log.add_streams(program.streams)
        maintained.publish(6)
        maintained.add(generation("1", program, [view for view in program.subscriptions if view not in first]))
        maintained.publish(5)
        maintained.check()
        # The first batch may be delivered before the maintainer has noticed that the pipeline runs.
        wait_until(maintained.maintainer.checkpoint, "there is no hard checkpoint")

        maintained.drop(first)
        maintained.publish(5)
        maintained.check()
        maintained.maintainer.stop()
        assert maintained.maintainer.status()["state"] == "stopped"

        maintained.create_executor = executor_with(1, tmp_path)
        maintained.start()
        assert maintained.listener.restores == len(maintained.views)
        maintained.check()
        maintained.publish(4)
        maintained.check()
    except SmileError as problem:
        if not is_unsupported_join(problem):
            raise
    finally:
        maintained.maintainer.stop()


def test_a_broker_that_is_killed_and_then_its_java(tmp_path: Path, java_to_kill: JavaProcess) -> None:
    """What is on the disk is enough, though the file that says what it is has a wrong bit; and without Java the next
    one takes over."""
    program = of_streams(7, "A")
    maintained = make_maintained(tmp_path, program, [s.name for s in program.streams], 7)
    try:
        maintained.start()
        maintained.publish(8)
        maintained.check()
        # The first batch may be delivered before the maintainer has noticed that the pipeline runs.
        wait_until(maintained.maintainer.checkpoint, "there is no hard checkpoint")
        loaded = _loaded()
        assert loaded
        assert not any("pandas" in maps for maps in loaded)
        with suppress(shutil.Error):  # files that went meanwhile
            shutil.copytree(maintained.state, tmp_path / "left")
        maintained.maintainer.stop()

        maintained.state = tmp_path / "left"
        described = maintained.state / "on-spark" / "pipeline.json"
        described.write_bytes(described.read_bytes().replace(b"partitions", b"partitionz"))
        maintained.start()
        assert maintained.listener.restores == len(maintained.views)
        assert any("created again" in warning for warning in maintained.listener.troubles)
        maintained.publish(4)
        maintained.check()

        java_to_kill.process.send_signal(signal.SIGKILL)
        maintained.publish(4)
        maintained.check()
        assert any("was killed" in warning for warning in maintained.listener.troubles)
        own = current_java()
        assert own is not None
        assert own is not java_to_kill
    finally:
        maintained.maintainer.stop()
    assert own.process.poll() is not None
    assert current_java() is None


def _loaded() -> list[str]:
    """The libraries of each Python process of Spark."""
    loaded = []
    for pid in python_pids():
        with suppress(OSError):
            loaded.append(Path(f"/proc/{pid}/maps").read_text())
    return loaded
