"""The lifecycle of a maintainer: each rule with a scripted executor, and some with the real executors."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

import pytest

from smile import limits
from smile.algebra import mmpl
from smile.broker.maintenance.command_queue import CommandQueue
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import BatchDelivery, Horizons, ViewPause
from smile.broker.maintenance.local_executor import LocalExecutor
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, Json, remaining_generations
from smile.engine.view_error import ViewError
from smile.errors import Diagnostic, SmileError, error
from smile.log.position import Log
from smile.log.storage.durable import DurableLog
from tests.broker.maintenance import MaintainedProgram, RecordingListener, generation, sums_and_pairs
from tests.processes import WAIT_S, wait_until

EMPTY = mmpl.Program((), (), ())
PERMANENT, TEMPORARY = "E097", "E064"


class ScriptedExecutor(Executor):
    """Has no views to compute. Each method is recorded, and raises the next of its `errors`."""

    def __init__(self, *stored: Generation) -> None:
        self.stored = list(stored)
        self.called: list[str] = []
        self.errors: dict[str, list[Exception]] = defaultdict(list)
        self.may_start, self.may_finish_fill, self.may_advance = Event(), Event(), Event()
        self.may_start.set()
        self.may_advance.set()
        self.has_advanced = False
        self.sizes: dict[str, int] = {}

    def _call(self, name: str) -> None:
        self.called.append(name)
        if self.errors[name]:
            raise self.errors[name].pop(0)

    def open(
        self, generations: Sequence[Generation], paused: Sequence[Generation], log: Log, delivery: OrderedDelivery
    ) -> None:
        self._call("open")

    def start(self) -> None:
        self._call("start")
        assert self.may_start.wait(WAIT_S)
        self._call("started")

    def suspend(self) -> None:
        self._call("suspend")

    def close(self) -> None:
        self._call("close")

    def interrupt(self, is_overdue: bool) -> None:
        self._call("interrupt, overdue" if is_overdue else "interrupt")
        if is_overdue:
            self.may_advance.set()

    @property
    def generations(self) -> Sequence[Generation]:
        return self.stored

    def restore_views(self) -> None:
        self._call("restore")

    def advance(self) -> bool:
        self._call("advance")
        if not self.may_advance.is_set():
            self._call("advance waits")
            assert self.may_advance.wait(WAIT_S)
        return self.has_advanced

    def fill(self, generation: Generation, log: Log) -> bool:
        self._call(f"fill {generation.name} {' '.join(generation.views)}")
        self._call("fill")
        if self.may_finish_fill.is_set():
            self.stored.append(generation)
        return False

    def pause_fill(self, generation: Generation) -> None:
        self._call(f"pause fill {generation.name}")

    def separate(self, views: Sequence[str], separated: Generation) -> None:
        self._call(f"separate {' '.join(views)}")
        self.stored = list(remaining_generations(self.stored, views))

    def abandon_fill(self, generation: Generation) -> None:
        self._call(f"abandon {generation.name}")

    def drop(self, views: Sequence[str]) -> None:
        self._call(f"drop {' '.join(views)}")
        self.stored = list(remaining_generations(self.stored, views))

    def begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        self._call("checkpoint")
        return lambda: {"A": 1}

    def state_bytes_by_view(self) -> Mapping[str, int]:
        return self.sizes

    def status(self) -> Json:
        return {}


OLD, NEW = generation("old", EMPTY, ("a",)), generation("new", EMPTY, ("b", "c"))


class Scripted:
    """A maintainer with a scripted executor, and callers in other threads."""

    def __init__(self, folder: Path) -> None:
        self.log = DurableLog.open_or_create(str(folder / "log"), [], flush=False)
        self.executor, self.listener = ScriptedExecutor(OLD), RecordingListener()
        self._callers = ThreadPoolExecutor()

    def start(self, *wanted: Generation, paused: Mapping[str, ViewPause] = MappingProxyType({})) -> None:
        self.listener.pauses |= paused
        self.maintainer = Maintainer(self.executor, self.log, wanted, self.listener, paused, view_bytes_max=1000)
        self.maintainer.start()

    def add(self, added: Generation = NEW) -> "Future[None]":
        return self._callers.submit(self.maintainer.add, added, self.log)

    def drop(self, *views: str) -> "Future[None]":
        return self._callers.submit(self.maintainer.drop, views)

    def await_call(self, *names: str) -> None:
        """Until these were called, in this order, since the last time."""
        for name in names:
            wait_until(partial(self.executor.called.__contains__, name), f"{name} was not called")
            del self.executor.called[: self.executor.called.index(name) + 1]

    def close(self) -> None:
        self.executor.may_start.set()
        self.maintainer.stop()
        self._callers.shutdown()
        self.log.close()


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setattr(limits, "maintainer_poll_s", 0.01)
    monkeypatch.setattr(limits, "maintainer_pause_s_min", 0.01)
    maintenance = Scripted(tmp_path)
    yield maintenance
    maintenance.close()


def code(future: "Future[Any]") -> str:
    problem = future.exception(WAIT_S)
    assert isinstance(problem, SmileError)
    return problem.diagnostics[0].code


def test_a_caller_waits_until_its_views_are_filled_and_restored(scripted: Scripted) -> None:
    scripted.start(OLD)
    caller = scripted.add()
    scripted.await_call("fill", "advance", "fill")
    assert not caller.done()
    assert scripted.maintainer.checkpoint() is None  # what is filled reads the log from the beginning
    scripted.executor.errors["restore"].append(MemoryError("no room"))
    scripted.executor.may_finish_fill.set()
    assert caller.result(WAIT_S) is None
    scripted.await_call("restore", "suspend", "open", "start", "restore")
    assert scripted.listener.troubles == ["no room"]
    wait_until(lambda: scripted.maintainer.state == "running", "it does not run")
    assert scripted.maintainer.checkpoint() == {"A": 1}


def test_what_is_missing_at_the_start_is_filled(scripted: Scripted) -> None:
    other = generation("other", EMPTY, ("d",))
    scripted.executor.may_finish_fill.set()
    scripted.start(NEW, OLD, other)
    scripted.await_call("fill new b c", "restore", "fill other d", "restore")
    assert scripted.listener.failure is None


def test_a_fill_that_fails_for_good_ends_for_its_caller_only(scripted: Scripted) -> None:
    scripted.start(OLD)
    caller = scripted.add()
    scripted.await_call("fill")
    scripted.executor.errors["fill"] += [error(TEMPORARY, "no space"), error(PERMANENT, "truncated")]
    assert code(caller) == PERMANENT
    scripted.await_call("suspend", "open", "start", "restore", "fill", "abandon new", "advance")
    assert len(scripted.listener.troubles) == 1
    scripted.executor.may_finish_fill.set()
    assert scripted.add().result(WAIT_S) is None
    assert scripted.listener.failure is None


def test_a_fill_that_cannot_begin_disturbs_nothing_else(scripted: Scripted) -> None:
    scripted.start(OLD)
    scripted.executor.errors["fill"].append(error(TEMPORARY, "no space"))
    assert code(scripted.add()) == TEMPORARY
    scripted.await_call("fill", "abandon new", "advance")
    assert "suspend" not in scripted.executor.called
    assert scripted.listener.troubles == []
    scripted.executor.may_finish_fill.set()
    assert scripted.add().result(WAIT_S) is None


def test_a_fill_that_nobody_waits_for_ends_everything_if_it_fails_for_good(scripted: Scripted) -> None:
    scripted.executor.errors["fill"].append(error(PERMANENT, "truncated"))
    scripted.start(OLD, NEW)
    scripted.await_call("fill", "close")
    assert scripted.listener.failure is not None
    assert scripted.maintainer.state == "failed"
    assert code(scripted.drop("a")) == PERMANENT


def test_a_drop_abandons_the_fill_of_its_views(scripted: Scripted) -> None:
    scripted.start(OLD)
    caller = scripted.add()
    scripted.await_call("fill")
    assert scripted.drop("b", "a").result(WAIT_S) is None
    assert code(caller) == "E021"
    scripted.await_call("abandon new", "drop a", "fill new c")
    assert code(scripted.drop("a")) == "E021"
    scripted.executor.may_finish_fill.set()
    scripted.await_call("restore")
    assert code(scripted.add(generation("other", EMPTY, ("c",)))) == "E020"
    assert code(scripted.add(generation("new", EMPTY, ("e",)))) == "E020"


def view_error(*views: str, is_temporary: bool = False) -> ViewError:
    return ViewError(views, [Diagnostic("E052", "it cannot be computed")], is_temporary)


def test_a_view_that_cannot_be_computed_is_separated_and_filled_when_it_is_resumed(scripted: Scripted) -> None:
    old = generation("old", EMPTY, ("a", "b"))
    scripted.executor.stored = [old]
    scripted.executor.errors["advance"].append(view_error("b"))
    scripted.start(old)
    scripted.await_call("advance", "separate b", "advance")
    separated = old.separate(["b"])
    assert scripted.listener.pauses[separated.name].message == "it cannot be computed"
    assert "suspend" not in scripted.executor.called
    assert scripted.maintainer.checkpoint() is None  # it still needs the log
    scripted.executor.errors["fill"].append(view_error("b"))
    scripted.maintainer.resume("b")
    scripted.await_call(f"fill {separated.name} b", f"pause fill {separated.name}", "advance", "advance")
    assert not any(name.startswith("fill") for name in scripted.executor.called)
    scripted.executor.may_finish_fill.set()
    scripted.maintainer.resume("b")
    scripted.await_call(f"fill {separated.name} b", "restore")
    wait_until(lambda: not scripted.listener.pauses, "it is not resumed")
    assert scripted.maintainer.checkpoint() == {"A": 1}


def test_a_view_without_memory_is_resumed_by_itself_with_longer_and_longer_pauses(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "view_pause_s_min", 0.05)
    monkeypatch.setattr(limits, "view_pause_s_max", 0.15)
    scripted.executor.errors["advance"].append(view_error("a", is_temporary=True))
    scripted.executor.errors["fill"] += [view_error("a", is_temporary=True)] * 3
    scripted.start(OLD)
    scripted.await_call("separate a")
    pauses = list[float]()
    for _ in range(3):
        scripted.await_call("pause fill old")
        wait_until(lambda: "old" in scripted.maintainer._paused, "it is not paused")
        pauses.append(scripted.maintainer._paused["old"].pause_s)
    assert pauses == [0.1, 0.15, 0.15]
    scripted.executor.may_finish_fill.set()
    wait_until(lambda: not scripted.listener.pauses, "it is not resumed")


def test_a_view_whose_state_is_too_large_is_paused(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "view_size_check_s", 0.0)
    scripted.executor.stored = [NEW]
    scripted.executor.sizes = {"b": 1000, "c": 10}
    scripted.start(NEW)
    scripted.await_call("advance", "advance")
    assert scripted.listener.pauses == {}
    scripted.executor.sizes["b"] = 1001
    scripted.await_call("separate b", "advance")
    (pause,) = scripted.listener.pauses.values()
    assert (pause.code, pause.is_temporary) == ("E053", False)
    assert "1,001 bytes" in pause.message


def test_a_paused_view_is_not_run_after_a_restart_and_can_be_dropped(scripted: Scripted) -> None:
    scripted.executor.stored = []
    pause = ViewPause("E052", "it cannot be computed", None, 0.0, is_temporary=False)
    scripted.start(NEW, paused={"new": pause})
    scripted.await_call("advance", "advance")
    assert not any(name.startswith("fill") for name in scripted.executor.called)
    assert scripted.drop("b").result(WAIT_S) is None
    scripted.await_call("drop b")
    scripted.executor.may_finish_fill.set()
    scripted.maintainer.resume("c")
    scripted.await_call("fill new c")


def test_views_that_somebody_waits_for_are_refused_if_they_cannot_be_computed(scripted: Scripted) -> None:
    scripted.start(OLD)
    caller = scripted.add()
    scripted.await_call("fill")
    scripted.executor.errors["fill"].append(view_error("b"))
    assert code(caller) == "E052"
    scripted.await_call("abandon new", "advance")
    assert scripted.listener.pauses == {}


def test_after_an_error_it_begins_again_with_longer_and_longer_pauses(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(CommandQueue, "pause", lambda _, seconds: pauses.append(seconds))
    monkeypatch.setattr(limits, "maintainer_pause_s_max", 0.05)
    scripted.start(OLD)
    scripted.await_call("advance")
    scripted.executor.errors["advance"] += [error(TEMPORARY, "no space"), OSError("gone")] * 2
    scripted.await_call(*(["suspend", "open", "start", "restore"] * 4))
    assert pauses == [0.01, 0.02, 0.04, 0.05]
    assert [str(what) for what in scripted.listener.troubles][1::2] == ["gone", "gone"]
    scripted.executor.has_advanced = True
    scripted.await_call("advance", "advance")
    scripted.executor.errors["advance"].append(OSError("gone"))
    scripted.await_call("suspend")
    assert pauses[4:] == [0.01]


def test_a_view_that_cannot_be_restored_can_be_dropped(scripted: Scripted) -> None:
    scripted.start(OLD)
    scripted.await_call("advance")
    scripted.executor.errors["restore"] += [OSError("unreadable")] * 1000
    scripted.executor.errors["advance"].append(OSError("gone"))
    scripted.await_call("restore", "suspend")
    assert scripted.drop("a").result(WAIT_S) is None
    assert scripted.maintainer.state == "recovering"


def test_it_is_running_when_its_executor_is(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    is_running = Event()
    monkeypatch.setattr(ScriptedExecutor, "is_running", property(lambda _: is_running.is_set()))
    scripted.start(OLD)
    scripted.await_call("advance", "advance")
    assert scripted.maintainer.state == "starting"
    assert scripted.maintainer.checkpoint() is None
    is_running.set()
    wait_until(lambda: scripted.maintainer.state == "running", "it does not run")


def test_it_can_be_stopped_while_it_starts(scripted: Scripted) -> None:
    scripted.executor.may_start.clear()
    scripted.executor.errors["started"].append(OSError("interrupted"))
    scripted.start(OLD, NEW)
    scripted.await_call("start")
    caller = scripted.drop("a")
    stopping = ThreadPoolExecutor().submit(scripted.maintainer.stop)
    scripted.await_call("interrupt")
    scripted.executor.may_start.set()
    assert stopping.result(WAIT_S) is None
    assert code(caller) == "E098"
    assert scripted.executor.called[-2:] == ["suspend", "close"]
    assert (scripted.maintainer.state, scripted.listener.troubles) == ("stopped", [])


def test_a_caller_whose_fill_is_cut_short_by_the_end_is_told(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.start(OLD)
    caller = scripted.add()
    scripted.await_call("fill")
    monkeypatch.setattr(limits, "maintainer_stop_s_max", 0.1)
    scripted.executor.may_advance.clear()
    scripted.await_call("advance waits")
    scripted.maintainer.stop()
    scripted.await_call("interrupt", "interrupt, overdue")
    assert code(caller) == "E098"
    assert code(scripted.add()) == "E098"


# ── the same with real executors ────────────────────────────────────────────────────────────────────────────────────


def spark_executor(state: Path) -> Executor:
    from smile.broker.maintenance.spark_executor import SparkExecutor  # noqa: PLC0415  # takes a second

    return SparkExecutor(state, "local[2]", 2, state.with_name("spark.log"))


@pytest.fixture(
    params=[
        pytest.param(LocalExecutor, id="local"),
        pytest.param(spark_executor, id="spark", marks=[pytest.mark.slow, pytest.mark.xdist_group("spark")]),
    ]
)
def maintained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MaintainedProgram]:
    if request.param is spark_executor:
        request.getfixturevalue("spark")
    program = MaintainedProgram(tmp_path, sums_and_pairs(), request.param)
    program.start()
    yield program
    program.maintainer.stop()
    program.log.close()


@pytest.mark.slow
def test_what_the_listener_could_not_take_is_delivered_again(maintained: MaintainedProgram) -> None:
    maintained.publish_and_wait(5)
    deliver, failures = maintained.listener.deliver, [1, 1]

    def failing(delivered: BatchDelivery) -> None:
        if failures:
            failures.pop()
            raise OSError("no room")
        deliver(delivered)

    maintained.listener.deliver = failing  # type: ignore[method-assign]
    maintained.publish_and_wait(5)
    maintained.publish_and_wait(5)
    maintained.check()
    assert maintained.listener.troubles == ["no room", "no room"]
    if maintained.create_executor is LocalExecutor:  # it continues from the state in memory
        assert maintained.listener.restores == 2 * len(maintained.views)


def test_nothing_is_told_once_it_is_stopped(maintained: MaintainedProgram) -> None:
    maintained.publish_and_wait(5)
    maintained.maintainer.stop()
    maintained.publish(5)
    before = dict(maintained.listener.horizons)
    with pytest.raises(SmileError, match="stopping"):
        maintained.maintainer.add(generation("1", maintained.program, ()), maintained.log)
    assert maintained.listener.horizons == before
    assert maintained.maintainer.status()["state"] == "stopped"


def test_views_that_cannot_be_added_leave_the_others_alone(maintained: MaintainedProgram) -> None:
    maintained.publish_and_wait(5)
    with pytest.raises(SmileError, match="Sums exists already"):
        maintained.add(generation("1", maintained.program, ("Sums",)))
    with pytest.raises(SmileError, match="no view Nothing"):
        maintained.drop(["Nothing"])
    reached = maintained.publishing.horizons
    maintained.drop(["Pairs"])
    maintained.publishing.publish(5)
    maintained.log.truncate(reached)
    with pytest.raises(SmileError) as refused:
        maintained.add(generation("1", maintained.program, ("Pairs",)))
    assert refused.value.diagnostics[0].code == "E097"
    maintained.maintainer.wake()
    maintained.wait()
    assert [*maintained.state.rglob("*.state")] != []
