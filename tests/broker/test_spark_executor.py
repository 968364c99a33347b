"""Views maintained on Spark: published to, added and dropped, stopped and started again, with Java killed meanwhile. What is
told ends as a fresh run over the log ends, and on the way nothing is taken back."""

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
from tests.broker.maintenance import MaintainedProgram, generation, over
from tests.random_programs import SEED_ID, STREAMS, random_program, seeds
from tests.shared_spark import python_pids


def maintained(folder: Path, program: mmpl.Program, streams: list[str], seed: int) -> MaintainedProgram:
    return MaintainedProgram(folder, program, executor_with(2, folder), streams, seed)


def executor_with(partitions: int, folder: Path) -> Callable[[Path], SparkExecutor]:
    return lambda state: SparkExecutor(state, "local[2]", partitions, folder / "spark.log")


def of_streams(seed: int, *streams: str) -> mmpl.Program:
    """A random program that has views of the first stream alone, and of others."""
    random = Random(seed)
    while True:
        program = random_program(random, 5)
        first = over(program, streams[:1]).subscriptions
        if first and len(first) < len(program.subscriptions):
            return program


@pytest.mark.parametrize("seed", seeds(2), ids=SEED_ID)
@pytest.mark.usefixtures("spark")
def test_streams_and_views_come_and_go(seed: int, tmp_path: Path) -> None:
    program = of_streams(seed, "A")
    kept = maintained(tmp_path, program, ["A"], seed)
    first = kept.views
    try:
        kept.start()
        kept.publish(6)
        kept.wait()
        kept.log.add_streams(STREAMS)
        kept.publish(6)
        kept.add(generation("1", program, [view for view in program.subscriptions if view not in first]))
        kept.publish(5)
        kept.check()
        assert kept.maintainer.checkpoint() is not None

        kept.drop(first)
        kept.publish(5)
        kept.check()
        kept.maintainer.stop()
        assert kept.maintainer.status()["state"] == "stopped"

        kept.create_executor = executor_with(1, tmp_path)
        kept.start()
        assert kept.listener.restores == len(kept.views)
        kept.check()
        kept.publish(4)
        kept.check()
    except NotImplementedError:
        return  # an outer join whose rows would share a key: refused, and said so
    finally:
        kept.maintainer.stop()


def test_a_broker_that_is_killed_and_then_its_java(tmp_path: Path, java_to_kill: JavaProcess) -> None:
    """What is on the disk is enough, though the file that says what it is has a wrong bit; and without Java the next
    one takes over."""
    program = of_streams(7, "A")
    kept = maintained(tmp_path, program, [s.name for s in program.streams], 7)
    try:
        kept.start()
        kept.publish(8)
        kept.check()
        assert kept.maintainer.checkpoint() is not None
        loaded = _loaded()
        assert loaded
        assert not any("pandas" in maps for maps in loaded)
        with suppress(shutil.Error):  # files that went meanwhile
            shutil.copytree(kept.state, tmp_path / "left")
        kept.maintainer.stop()

        kept.state = tmp_path / "left"
        described = kept.state / "on-spark" / "pipeline.json"
        described.write_bytes(described.read_bytes().replace(b"partitions", b"partitionz"))
        kept.start()
        assert kept.listener.restores == len(kept.views)
        assert any("created again" in told for told in kept.listener.troubles)
        kept.publish(4)
        kept.check()

        java_to_kill.process.send_signal(signal.SIGKILL)
        kept.publish(4)
        kept.check()
        assert any("was killed" in told for told in kept.listener.troubles)
        own = current_java()
        assert own is not None
        assert own is not java_to_kill
    finally:
        kept.maintainer.stop()
    assert own.process.poll() is not None
    assert current_java() is None


def _loaded() -> list[str]:
    """The libraries of each Python process of Spark."""
    found = []
    for pid in python_pids():
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/maps").read_text())
    return found
