"""Random programs maintained in this process: published to, views added and dropped, stopped, killed and started again."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.local_executor import LocalExecutor
from smile.broker.maintenance.maintainer import Maintainer
from smile.engine.generation import Generation, remaining_generations
from smile.engine.view_error import ViewError
from smile.errors import Diagnostic, SmileError, error
from smile.horizons import select_streams
from smile.log.storage.durable import DurableLog
from smile.state.store import StateStore
from tests.broker.maintenance import (
    MaintainedProgram,
    Publishing,
    RecordingListener,
    differences,
    expected,
    generation,
    inputs_of,
    is_unsupported_join,
    over,
    reads,
    sums_and_pairs,
)
from tests.engine.invariants import small
from tests.processes import WAIT_S
from tests.random_programs import SEED_ID, random_program, seeds

STEPS = 12


@dataclass
class Life:
    """A maintainer's life. What it maintains at any time is `generations`."""

    program: mmpl.Program
    random: Random
    folder: Path
    publishing: Publishing = field(init=False)
    generations: list[Generation] = field(default_factory=list)
    listener: RecordingListener = field(default_factory=RecordingListener)
    maintainer: Maintainer = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        first = self.random.sample([s.name for s in self.program.streams], self.random.randint(1, 3))
        log = DurableLog.open_or_create(
            str(self.folder / "log"), [s for s in self.program.streams if s.name in first], flush=False
        )
        self.publishing = Publishing(self.program, self.random, log)
        self._add_some()
        self._begin()

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.deeds)()
        self.await_all()
        self.maintainer.stop()

    @property
    def deeds(self) -> list[Callable[[], None]]:
        return [
            self.publish, self.publish, self.publish, self.await_all, self.add, self.add_stream, self.drop,
            self.pause, self.resume, self.checkpoint, self.stop, self.kill,
        ]  # fmt: skip

    # ── what may happen ─────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self) -> None:
        self.publishing.publish(self.random.randint(1, 4))
        self.maintainer.wake()

    def pause(self) -> None:
        """As if some views could not be computed, or not be filled."""
        views = self.random.sample(self.views, min(len(self.views), self.random.randint(1, 2)))
        failure = ViewError(views, [Diagnostic("E052", "a view cannot be computed")], is_temporary=False)
        self.maintainer._commands.call(lambda: self.maintainer._pause_views(failure))
        self.generations = list(self.maintainer._generations)

    def resume(self) -> None:
        for one in self.generations:
            if one.name in self.listener.pauses and self.random.random() < 0.7:
                self.maintainer.resume(self.random.choice(one.views))

    def await_all(self) -> None:
        for one in self.generations:
            self.maintainer.resume(one.views[0])
        for view in self.views:
            used = reads(self.program, view)
            self.listener.await_([view], select_streams(self.publishing.horizons, used))

    def add(self) -> None:
        for one in self._add_some():
            self.listener.inputs |= one.inputs()
            self.maintainer.add(one, self.publishing.log)
            self.listener.await_(one.views, {})

    def add_stream(self) -> None:
        missing = [s for s in self.program.streams if s.name not in self.publishing.log.streams]
        if missing:
            self.publishing.log.add_streams([self.random.choice(missing)])
            if self.random.random() < 0.5:
                self.publish()
            self.add()

    def drop(self) -> None:
        views = self.random.sample(self.views, self.random.randint(0, len(self.views)))
        self.maintainer.drop(views)
        self._drop(views)
        self.listener.forget(views)

    def checkpoint(self) -> None:
        checkpoint = self.maintainer.checkpoint()
        if checkpoint is not None:
            assert all(tick <= self.publishing.horizons[stream] for stream, tick in checkpoint.items())

    def stop(self) -> None:
        self.maintainer.stop()
        self._change_meanwhile()
        self._begin()

    def kill(self) -> None:
        """What is on the disk now is all that is left."""
        if self.random.random() < 0.5:
            self.await_all()
        place = self.folder / f"state-{self.lives}"
        with suppress(shutil.Error):  # files that went meanwhile
            shutil.copytree(place, self.folder / f"state-{self.lives + 1}")
        self.maintainer.stop()
        self.lives += 1
        self._begin()

    # ── how ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def views(self) -> list[str]:
        return [view for one in self.generations for view in one.views]

    def _add_some(self) -> list[Generation]:
        """Some of the views that the log's streams allow, and that are not maintained."""
        possible = over(self.program, self.publishing.log.streams)
        left = [view for view in possible.subscriptions if view not in self.views]
        chosen = self.random.sample(left, self.random.randint(0, len(left)))
        added = [generation(f"{self.random.random()}", possible, chosen)] if chosen else []
        self.generations += added
        return added

    def _drop(self, views: list[str]) -> None:
        self.generations = list(remaining_generations(self.generations, views))

    def _change_meanwhile(self) -> None:
        """What is asked for at the next start may be less than was maintained, or more."""
        if self.random.random() < 0.3:
            views = self.random.sample(self.views, self.random.randint(0, len(self.views)))
            self._drop(views)
            self.listener.forget(views)
        if self.random.random() < 0.3:
            self._add_some()

    def _begin(self) -> None:
        # A subscriber may know more than was saved: it receives nothing until the maintainer knows as much again.
        pauses = self.listener.pauses
        self.listener = RecordingListener(inputs_of(self.generations))
        names = {one.name for one in self.generations}
        self.listener.pauses = {name: pause for name, pause in pauses.items() if name in names}
        executor = LocalExecutor(self.folder / f"state-{self.lives}")
        self.maintainer = Maintainer(
            executor, self.publishing.log, self.generations, self.listener, dict(self.listener.pauses)
        )
        self.maintainer.start()


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_whatever_happens_the_truth_is_told(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    program = random_program(random, 5)
    monkeypatch.setattr(limits, "checkpoint_s_max", random.choice((0.0, 0.01, 60.0)))
    monkeypatch.setattr(limits, "batch_rows_max", random.choice((1, 3, 20_000)))
    with small(random):
        try:
            life = Life(program, random, tmp_path)
            life.run()
        except SmileError as problem:
            if is_unsupported_join(problem):
                return
            raise
    assert differences(life.listener, expected(program_of(life), life.views, life.publishing.log)) == []


def program_of(life: Life) -> mmpl.Program:
    return over(life.program, life.publishing.log.streams)


# ── what may go wrong ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def maintained(tmp_path: Path) -> Iterator[MaintainedProgram]:
    program = MaintainedProgram(tmp_path, sums_and_pairs(), LocalExecutor)
    program.start()
    yield program
    program.maintainer.stop()
    program.log.close()


def test_the_log_is_cut_below_hard_checkpoints(maintained: MaintainedProgram) -> None:
    """Whatever is lost of what was written after one, what is left and the rest of the log are enough."""
    reached: list[Horizons] = []
    for number in range(4):
        maintained.publish_and_wait(20)
        reached.append(maintained.publishing.horizons)
        checkpoint = maintained.maintainer.checkpoint()
        assert checkpoint == reached[max(0, number - 1)]
    (folder,) = (maintained.state / "in-process").iterdir()
    hard = sorted(path.stem for path in folder.glob("*.hard"))
    assert len(hard) == 2
    wanted = maintained.expected()
    maintained.log.truncate(reached[-2])
    assert maintained.log.truncated_to("A") == reached[-2]["A"]
    maintained.maintainer.stop()
    for path in folder.glob("*.state"):
        if path.name.rpartition("-")[0] > hard[0]:
            path.write_bytes(path.read_bytes()[:100])
    maintained.start()
    maintained.wait()
    assert differences(maintained.listener, wanted) == []
    assert maintained.listener.troubles


def test_state_that_is_cut_off_from_its_log_is_refused(maintained: MaintainedProgram) -> None:
    maintained.publish_and_wait(20)
    assert maintained.maintainer.checkpoint() is not None
    maintained.log.truncate(maintained.publishing.horizons)
    maintained.maintainer.stop()
    shutil.rmtree(maintained.state)
    maintained.start()
    with pytest.raises(SmileError) as refused:
        maintained.wait()
    assert refused.value.diagnostics[0].code == "E097"


def test_a_damaged_log_ends_it(maintained: MaintainedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    maintained.publish_and_wait(5)

    def damaged(*_: object) -> None:
        raise error("E085", "the log is damaged")

    monkeypatch.setattr(maintained.log, "after", damaged)
    maintained.maintainer.wake()
    with maintained.listener.moved:
        assert maintained.listener.moved.wait_for(lambda: maintained.listener.failure is not None, WAIT_S)
    assert maintained.maintainer.state == "failed"
    with pytest.raises(SmileError, match="damaged"):
        maintained.maintainer.drop(["Sums"])
    maintained.maintainer.stop()
    assert maintained.maintainer.state == "failed"
    maintained.listener.failure = None


def test_a_disk_that_is_full_is_told_of_and_gets_over(
    maintained: MaintainedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "checkpoint_s_max", 0.0)
    full = [True]
    save = StateStore.save

    def failing(store: StateStore, *given: Any) -> int:
        if full:
            raise error("E064", "no space left on device")
        return save(store, *given)

    monkeypatch.setattr(StateStore, "save", failing)
    maintained.publish_and_wait(5)
    with maintained.listener.moved:
        assert maintained.listener.moved.wait_for(lambda: bool(maintained.listener.troubles), WAIT_S)
    full.clear()
    maintained.publish_and_wait(5)
    assert maintained.maintainer.state == "running"
    maintained.maintainer.stop()
    maintained.start()
    assert maintained.listener.restores == len(maintained.views)
    maintained.check()


def test_a_drop_that_is_cut_short_loses_no_state(
    maintained: MaintainedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining views have a new directory then, but no state in it."""
    maintained.publish_and_wait(5)
    assert maintained.maintainer.checkpoint() is not None
    maintained.log.truncate(maintained.publishing.horizons)
    with monkeypatch.context() as full:

        def fails(*_: object) -> None:
            raise error("E064", "no space left on device")

        full.setattr(StateStore, "save", fails)
        with pytest.raises(SmileError, match="no space"):
            maintained.drop(["Pairs"])
    maintained.maintainer.stop()
    maintained.generations = list(remaining_generations(maintained.generations, ["Pairs"]))
    maintained.start()
    assert list(maintained.listener.rows) == ["Sums"]
    maintained.publish_and_wait(5)


def test_checkpoints_are_few_and_follow_the_changes(
    maintained: MaintainedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    save = StateStore.save

    def counting(store: StateStore, *given: Any) -> int:
        written.append(save(store, *given))
        return written[-1]

    monkeypatch.setattr(StateStore, "save", counting)
    for _ in range(20):
        maintained.publish_and_wait(3)
    assert written == []
    monkeypatch.setattr(limits, "checkpoint_events_max", 10)
    for _ in range(6):
        maintained.publish_and_wait(4)
    assert 1 <= len(written) <= 3
