"""Random programs kept in this process: published to, views added and dropped, stopped, killed and started again."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.broker.maintenance.local_maintainer import LocalMaintainer
from smile.broker.maintenance.maintainer import BatchDelivery, Horizons
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.knowledge.values.json import Json
from smile.log.storage.durable import DurableLog
from smile.program import compile_program
from smile.source import Source
from smile.state.store import StateStore
from tests.broker.keeping import Heard, Publishing, differences, expected, generation, over, reads
from tests.engine.invariants import small
from tests.processes import WAIT_S
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
    keeper: LocalMaintainer = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        first = self.random.sample([s.name for s in STREAMS], self.random.randint(1, 3))
        log = DurableLog.open_or_create(str(self.folder / "log"), [s for s in STREAMS if s.name in first], flush=False)
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
            self.heard.await_(one.views, {})

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
        return [view for one in self.generations for view in one.views]

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
            wanted = tuple(view for view in one.views if view not in views)
            if wanted:
                smaller.append(replace(one, views=wanted, materialized_views=wanted))
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
        self.keeper = LocalMaintainer(state, self.publishing.log, self.generations, self.heard)
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


# ── what may go wrong ───────────────────────────────────────────────────────────────────────────────────────────────


def program() -> mmpl.Program:
    """One that keeps rows of every event, and sums of them."""
    source = """
        CREATE STREAM A (t: time -> k: string, v: int);
        CREATE STREAM B (t: time -> k: string, v: int);
        CREATE VIEW Sums AS SELECT k, SUM(v) AS total FROM A GROUP BY k;
        CREATE VIEW Pairs AS SELECT A.t AS a, B.t AS b FROM A JOIN B ON A.k = B.k;
        SUBSCRIBE Sums; SUBSCRIBE Pairs;
    """
    return compile_program(Source("test.smile", source)).rewritten


VIEWS = ("Sums", "Pairs")


class Kept:
    """One keeper after another over one log."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.program = folder, program()
        self.log = DurableLog.open_or_create(str(folder / "log"), self.program.streams, flush=False)
        self.publishing = Publishing(self.program, Random(1), self.log)
        self.begin()

    def begin(self, heard: Heard | None = None) -> None:
        self.heard = heard or Heard()
        generations = [generation("0", self.program, VIEWS)]
        self.keeper = LocalMaintainer(self.folder / "state", self.log, generations, self.heard)
        self.heard.keeper = self.keeper
        self.keeper.start()

    def publish(self, count: int) -> None:
        self.publishing.publish(count)
        self.keeper.wake()
        self.heard.await_(VIEWS, self.publishing.horizons)

    def differences(self, wanted: dict[str, dict[str, Json]]) -> list[str]:
        return differences(self.heard, wanted)

    def expected(self) -> dict[str, dict[str, Json]]:
        return expected(self.program, VIEWS, self.log)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    found = Kept(tmp_path)
    yield found
    found.keeper.stop()
    found.log.close()


def test_the_log_is_cut_below_hard_checkpoints(kept: Kept) -> None:
    """Whatever is lost of what was written after one, what is left and the rest of the log are enough."""
    reached: list[Horizons] = []
    for number in range(4):
        kept.publish(20)
        reached.append(kept.publishing.horizons)
        found = kept.keeper.checkpoint()
        assert found == reached[max(0, number - 1)]
    (folder,) = (kept.folder / "state" / "in-process").iterdir()
    hard = sorted(path.stem for path in folder.glob("*.hard"))
    assert len(hard) == 2
    wanted = kept.expected()
    kept.log.truncate(reached[-2])
    assert kept.log.truncated_to("A") == reached[-2]["A"]
    kept.keeper.stop()
    for path in folder.glob("*.state"):
        if path.name.rpartition("-")[0] > hard[0]:
            path.write_bytes(path.read_bytes()[:100])
    kept.begin()
    kept.heard.await_(VIEWS, kept.publishing.horizons)
    assert kept.differences(wanted) == []
    assert kept.heard.troubles


def test_state_that_is_cut_off_from_its_log_is_refused(kept: Kept) -> None:
    kept.publish(20)
    found = kept.keeper.checkpoint()
    assert found is not None
    kept.log.truncate(found)
    kept.keeper.stop()
    shutil.rmtree(kept.folder / "state")
    kept.begin()
    with pytest.raises(SmileError) as refused:
        kept.heard.await_(VIEWS, kept.publishing.horizons)
    assert refused.value.diagnostics[0].code == "E097"


@pytest.mark.slow
def test_what_the_listener_could_not_take_is_told_as_a_whole(kept: Kept) -> None:
    kept.publish(5)
    deliver, failures = kept.heard.deliver, [1, 1]

    def failing(delivered: BatchDelivery) -> None:
        if failures:
            failures.pop()
            raise MemoryError("no room")
        deliver(delivered)

    kept.heard.deliver = failing  # type: ignore[method-assign]
    kept.publish(5)
    kept.publish(5)
    assert kept.differences(kept.expected()) == []
    assert kept.heard.troubles == ["no room", "no room"]
    assert kept.heard.restores == 2 * len(VIEWS)


def test_a_damaged_log_ends_it(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.publish(5)

    def damaged(*_: object) -> None:
        raise error("E085", "the log is damaged")

    monkeypatch.setattr(kept.log, "after", damaged)
    kept.keeper.wake()
    with kept.heard.moved:
        assert kept.heard.moved.wait_for(lambda: kept.heard.failure is not None, WAIT_S)
    assert kept.keeper.state == "failed"
    with pytest.raises(SmileError, match="damaged"):
        kept.keeper.drop(["Sums"])
    kept.keeper.stop()
    assert kept.keeper.state == "failed"
    kept.heard.failure = None


def test_a_disk_that_is_full_is_told_of_and_gets_over(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "checkpoint_s_max", 0.0)
    full = [True]
    save = StateStore.save

    def failing(store: StateStore, *given: Any) -> int:
        if full:
            raise error("E064", "no space left on device")
        return save(store, *given)

    monkeypatch.setattr(StateStore, "save", failing)
    kept.publish(5)
    with kept.heard.moved:
        assert kept.heard.moved.wait_for(lambda: bool(kept.heard.troubles), WAIT_S)
    full.clear()
    kept.publish(5)
    assert kept.keeper.state == "running"
    kept.keeper.stop()
    kept.begin()
    assert kept.heard.restores == len(VIEWS)
    assert kept.differences(kept.expected()) == []


def test_nothing_is_told_once_it_is_stopped(kept: Kept) -> None:
    kept.publish(5)
    kept.keeper.stop()
    kept.publishing.publish(5)
    kept.keeper.wake()
    before = dict(kept.heard.horizons)
    with pytest.raises(SmileError, match="stopping"):
        kept.keeper.add(generation("1", kept.program, ()), kept.log)
    assert kept.heard.horizons == before
    assert kept.keeper.status()["state"] == "stopped"


def test_views_that_cannot_be_added_leave_the_others_alone(kept: Kept) -> None:
    kept.publish(5)
    with pytest.raises(SmileError, match="Sums exists already"):
        kept.keeper.add(generation("1", kept.program, ("Sums",)), kept.log)
    with pytest.raises(SmileError, match="no view Nothing"):
        kept.keeper.drop(["Nothing"])
    found = kept.keeper.checkpoint()
    assert found is not None
    kept.keeper.drop(["Pairs"])
    kept.publishing.publish(5)
    kept.log.truncate(found)
    with pytest.raises(SmileError) as refused:
        kept.keeper.add(generation("1", kept.program, ("Pairs",)), kept.log)
    assert refused.value.diagnostics[0].code == "E097"
    kept.keeper.wake()
    kept.heard.await_(["Sums"], kept.publishing.horizons)
    assert [path.name for path in (kept.folder / "state" / "in-process").iterdir()] != []


def test_checkpoints_are_few_and_follow_the_changes(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    save = StateStore.save

    def counting(store: StateStore, *given: Any) -> int:
        written.append(save(store, *given))
        return written[-1]

    monkeypatch.setattr(StateStore, "save", counting)
    for _ in range(20):
        kept.publish(3)
    assert written == []
    monkeypatch.setattr(limits, "checkpoint_events_max", 10)
    for _ in range(6):
        kept.publish(4)
    assert 1 <= len(written) <= 3
