"""Random programs kept in this process: published to, views added and dropped, stopped, killed and started again."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from threading import Event

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.broker.in_process import InProcess
from smile.broker.keeper import Delivered
from smile.engine.generation import Generation
from smile.errors import SmileError
from smile.log.durable import DurableLog
from tests.broker.keeping import Heard, Publishing, differences, expected, generation, over, reads
from tests.engine.invariants import small
from tests.random_programs import SEED_ID, STREAMS, random_program, seeds

STEPS = 12


@dataclass
class Life:
    """A keeper's life. What is kept at any time is `generations`; whoever hears of it hears on after a restart."""

    program: mmpl.Program
    random: Random
    folder: Path
    publishing: Publishing = field(init=False)
    generations: list[Generation] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)
    keeper: InProcess = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        first = self.random.sample([s.name for s in STREAMS], self.random.randint(1, 3))
        log = DurableLog.at(str(self.folder / "log"), [s for s in STREAMS if s.name in first], flush=False)
        self.publishing = Publishing(self.program, self.random, log)
        self._add_some()
        self._begin()

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.deeds)()
        self.await_all()
        self.keeper.stop()

    @property
    def deeds(self) -> list[Callable[[], None]]:
        return [
            self.publish, self.publish, self.publish, self.await_all, self.add, self.add_stream, self.drop,
            self.checkpoint, self.stop, self.kill,
        ]  # fmt: skip

    # ── what may happen ─────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self) -> None:
        self.publishing.publish(self.random.randint(1, 4))
        self.keeper.wake()

    def await_all(self) -> None:
        for view in self.views:
            used = reads(self.program, view)
            self.heard.await_([view], {s: tick for s, tick in self.publishing.horizons.items() if s in used})

    def add(self) -> None:
        for one in self._add_some():
            self.keeper.add(one, self.publishing.log)
            self.heard.await_(one.wanted, {})

    def add_stream(self) -> None:
        missing = [s for s in STREAMS if s.name not in self.publishing.log.streams]
        if missing:
            self.publishing.log.add_streams([self.random.choice(missing)])
            if self.random.random() < 0.5:
                self.publish()
            self.add()

    def drop(self) -> None:
        views = self.random.sample(self.views, self.random.randint(0, len(self.views)))
        self.keeper.drop(views)
        self._drop(views)
        self.heard.forget(views)

    def checkpoint(self) -> None:
        found = self.keeper.checkpoint()
        if found is not None:
            assert all(tick <= self.publishing.horizons[stream] for stream, tick in found.items())

    def stop(self) -> None:
        self.keeper.stop()
        self._change_meanwhile()
        self._begin()

    def kill(self) -> None:
        """What is on the disk now is all that is left."""
        if self.random.random() < 0.5:
            self.await_all()
        place = self.folder / f"state-{self.lives}"
        with suppress(shutil.Error):  # files that went meanwhile
            shutil.copytree(place, self.folder / f"state-{self.lives + 1}")
        self.keeper.stop()
        self.lives += 1
        self._begin()

    # ── how ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def views(self) -> list[str]:
        return [view for one in self.generations for view in one.wanted]

    def _add_some(self) -> list[Generation]:
        """Some of the views that the log's streams allow, and that are not kept."""
        possible = over(self.program, self.publishing.log.streams)
        left = [view for view in possible.subscriptions if view not in self.views]
        chosen = self.random.sample(left, self.random.randint(0, len(left)))
        found = [generation(f"{self.random.random()}", possible, chosen)] if chosen else []
        self.generations += found
        return found

    def _drop(self, views: list[str]) -> None:
        smaller = []
        for one in self.generations:
            wanted = tuple(view for view in one.wanted if view not in views)
            if wanted:
                smaller.append(replace(one, wanted=wanted, kept=wanted))
        self.generations = smaller

    def _change_meanwhile(self) -> None:
        """What is asked for at the next start may be less than was kept, or more."""
        if self.random.random() < 0.3:
            views = self.random.sample(self.views, self.random.randint(0, len(self.views)))
            self._drop(views)
            self.heard.forget(views)
        if self.random.random() < 0.3:
            self._add_some()

    def _begin(self) -> None:
        # A subscriber may know more than was saved: he hears nothing until the keeper knows as much again.
        self.heard = Heard()
        state = self.folder / f"state-{self.lives}"
        self.keeper = InProcess(state, self.publishing.log, self.generations, self.heard)
        self.heard.keeper = self.keeper
        self.keeper.start()


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
        except NotImplementedError:
            return  # an outer join whose rows would share a key: refused, and said so
    assert differences(life.heard, expected(program_of(life), life.views, life.publishing.log)) == []


def program_of(life: Life) -> mmpl.Program:
    return over(life.program, life.publishing.log.streams)
