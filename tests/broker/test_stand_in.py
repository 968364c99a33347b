"""The stand-in: the views of a broker on Spark are right before Spark is ready, if it fails to start, and while it takes
over; and nothing that was delivered is withdrawn. The rows are compared with those of a fresh run over the log."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.broker.maintenance.spark_executor import SparkExecutor
from smile.engine.spark.session import PySparkSession
from smile.errors import SmileError, error
from tests.broker.maintenance import MaintainedProgram, differences, is_unsupported_join, sums_and_pairs
from tests.processes import wait_until
from tests.random_programs import SEED_ID, random_program, seeds


class HeldSession:
    """Spark's session, which an executor gets when the test allows it, or an error instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_open, self.errors, self.attempts = Event(), list[SmileError](), 0
        original = SparkExecutor._open_session

        def open_session(executor: SparkExecutor) -> PySparkSession:
            self.attempts += 1
            if self.errors:
                raise self.errors.pop(0)
            while not self.may_open.wait(0.01):
                if executor._is_interrupted:
                    raise error("E098", "the maintainer is stopping")
            return original(executor)

        monkeypatch.setattr(SparkExecutor, "_open_session", open_session)

    def await_attempt(self, start: Callable[[], None]) -> None:
        """Starts a maintainer. Returns when it opens a session: its stand-in was started before."""
        attempts = self.attempts
        start()
        wait_until(lambda: self.attempts > attempts, "Spark was not started")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldSession:
    return HeldSession(monkeypatch)


def make_maintained(folder: Path, program: mmpl.Program, seed: int = 1) -> MaintainedProgram:
    return MaintainedProgram(folder, program, executor_with(2, folder), seed=seed)


def executor_with(partitions: int, folder: Path) -> Callable[[Path], SparkExecutor]:
    return lambda state: SparkExecutor(state, "local[2]", partitions, folder / "spark.log")


def stands_in(maintained: MaintainedProgram) -> bool:
    return bool(maintained.maintainer.status()["stand_in"])


def check_before_spark(maintained: MaintainedProgram, held: HeldSession) -> None:
    """A stand-in ends at a join that cannot be maintained. Spark fails there too."""

    def is_known() -> bool:
        with suppress(AssertionError):
            assert differences(maintained.listener, maintained.expected()) == []
            return True
        return not stands_in(maintained)

    wait_until(is_known, "the views are not maintained")
    if not stands_in(maintained):
        held.may_open.set()
        maintained.check()
        raise AssertionError(f"the stand-in has ended: {maintained.listener.troubles}")
    maintained.check()


def await_spark(maintained: MaintainedProgram) -> None:
    """Until Spark has taken over. It does so after its first batches."""
    wait_until(lambda: maintained.maintainer.state == "running", "Spark has not taken over")
    assert not stands_in(maintained)


def test_views_are_maintained_before_spark_is_there(tmp_path: Path, held: HeldSession) -> None:
    maintained = make_maintained(tmp_path, sums_and_pairs())
    maintained.publishing.publish(5)
    maintained.start()
    maintained.check()
    maintained.publish(5)
    maintained.check()
    assert stands_in(maintained)
    assert maintained.maintainer.state == "starting"
    assert not held.may_open.is_set()
    maintained.maintainer.stop()
    assert not stands_in(maintained)


def test_spark_that_fails_to_start(tmp_path: Path, held: HeldSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it may yet start, the views are maintained; an error for good ends that too."""
    monkeypatch.setattr(limits, "maintainer_pause_s_min", 0.01)
    held.errors = [error("E064", "no room") for _ in range(3)]
    maintained = make_maintained(tmp_path, sums_and_pairs())
    maintained.start()
    maintained.publish(5)
    maintained.check()
    wait_until(lambda: held.attempts == 4, "Spark was not started again")
    maintained.publish(5)
    maintained.check()
    assert maintained.listener.troubles == ["no room"] * 3
    maintained.maintainer.stop()

    held.errors = [error("E085", "no Java")]
    maintained.start()
    wait_until(lambda: maintained.maintainer.state == "failed", "the error was not noticed")
    wait_until(lambda: not stands_in(maintained), "the stand-in continues")
    assert maintained.listener.failure is not None
    maintained.maintainer.stop()


@pytest.mark.parametrize("limit", ["stand_in_backlog_max", "stand_in_events_max", "stand_in_state_bytes_max"])
def test_a_stand_in_that_is_too_large_ends(
    limit: str, tmp_path: Path, held: HeldSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, 0)
    maintained = make_maintained(tmp_path, sums_and_pairs())
    maintained.publishing.publish(50)
    maintained.start()
    wait_until(lambda: held.attempts == 1, "Spark was not started")
    wait_until(lambda: not stands_in(maintained), "the stand-in continues")
    assert maintained.listener.troubles == []
    maintained.maintainer.stop()


def test_a_stand_in_that_fails_leaves_the_views_to_spark(tmp_path: Path, held: HeldSession) -> None:
    maintained = make_maintained(tmp_path, sums_and_pairs())
    maintained.publishing.publish(3)
    maintained.publishing.log.truncate(maintained.publishing.horizons)
    maintained.start()
    wait_until(lambda: not stands_in(maintained) and held.attempts == 1, "the stand-in continues")
    assert [trouble for trouble in maintained.listener.troubles if "the views wait for Spark" in trouble]
    assert maintained.listener.rows == {}
    maintained.maintainer.stop()


@pytest.mark.usefixtures("spark")
def test_spark_takes_over(tmp_path: Path, held: HeldSession) -> None:
    take_over_again_and_again(tmp_path, held, sums_and_pairs(), 1, lives=2)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds(20), ids=SEED_ID)
@pytest.mark.usefixtures("spark")
def test_spark_takes_over_random_programs(seed: int, tmp_path: Path, held: HeldSession) -> None:
    try:
        take_over_again_and_again(tmp_path, held, random_program(Random(seed), 4), seed, lives=4)
    except SmileError as problem:
        if not is_unsupported_join(problem):
            raise


def take_over_again_and_again(tmp_path: Path, held: HeldSession, program: mmpl.Program, seed: int, lives: int) -> None:
    """A broker is killed now and then: before Spark is there, while it takes over, and later. The stand-in continues
    from what Spark has stored, whatever its partitions."""
    random = Random(seed)
    maintained = make_maintained(tmp_path, program, seed)
    try:
        for life in range(lives):
            maintained.publishing.publish(random.randint(0, 5))
            held.may_open.clear()
            held.await_attempt(maintained.start)
            check_before_spark(maintained, held)
            maintained.publish(random.randint(1, 5))
            check_before_spark(maintained, held)
            held.may_open.set()
            if random.random() < 0.7 or life == 0:
                maintained.publish(random.randint(1, 5))
                await_spark(maintained)
                maintained.publish(random.randint(1, 5))
            maintained.check()
            _kill(maintained, tmp_path / f"left-{life}")
            maintained.create_executor = executor_with(random.randint(1, 3), tmp_path)
    finally:
        maintained.maintainer.stop()


def _kill(maintained: MaintainedProgram, left: Path) -> None:
    """The next maintainer continues with the state that is on the disk now."""

    def is_copied() -> bool:
        """A copy has files of different times if any was written or deleted meanwhile."""
        shutil.rmtree(left, ignore_errors=True)
        files = _files(maintained.state)
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(maintained.state, left)
        return files is not None and files == _files(maintained.state)

    wait_until(is_copied, "the state changes all the time")
    maintained.maintainer.stop()
    maintained.state = left


def _files(folder: Path) -> dict[Path, tuple[int, int]] | None:
    """The size of each file and when it was written; None if one was deleted meanwhile."""
    with suppress(FileNotFoundError):
        return {path: ((stat := path.stat()).st_size, stat.st_mtime_ns) for path in folder.rglob("*")}
    return None


@pytest.mark.usefixtures("spark")
def test_a_view_that_is_dropped_while_spark_takes_over(tmp_path: Path, held: HeldSession) -> None:
    maintained = make_maintained(tmp_path, sums_and_pairs())
    maintained.start()
    maintained.publish(5)
    maintained.check()
    held.may_open.set()
    maintained.drop(["Pairs"])
    assert not stands_in(maintained)
    maintained.publish(5)
    maintained.check()
    assert "Pairs" not in maintained.listener.rows
    maintained.maintainer.stop()
