"""A view that cannot be computed is paused, with those that are computed from it. All others go on, and it can be resumed
from the state that it had."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from smile import limits
from smile.broker.broker import Broker
from smile.broker.maintenance.listener import ViewPause
from smile.broker.maintenance.local_executor import LocalExecutor
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import View
from smile.errors import SmileError
from smile.kernels.groups.summarize import MultiMemberGroups
from smile.source import Source
from tests.broker.test_broker import code_of, publish, rows_of
from tests.brokers import open_broker
from tests.processes import WAIT_S, wait_until

STREAMS = """
CREATE STREAM A (t: time -> v: int);
CREATE STREAM B (u: time -> k: string, v: int);
"""
BAD = """
CREATE VIEW Lasts AS SELECT k, LATEST(v) AS last FROM B GROUP BY k;
CREATE VIEW Bad AS SELECT A.t AS t, Lasts.k AS k FROM A LEFT JOIN Lasts ON A.v = Lasts.last;
CREATE VIEW OnBad AS SELECT k, COUNT(*) AS n FROM Bad GROUP BY k;
"""
"""An event of B whose k is NULL shares its key with the rows of A that have no match, once there is a match (E051)."""
GOOD = """
CREATE VIEW Sums AS SELECT k, SUM(v) AS total FROM B GROUP BY k;
CREATE VIEW Counts AS SELECT COUNT(*) AS n FROM A;
"""
SUBSCRIBE = "SUBSCRIBE Bad, OnBad, Sums, Counts;"
PROGRAM = Source("floor.smile", STREAMS + BAD + GOOD + SUBSCRIBE)
CORRECTED = Source("floor.smile", STREAMS + BAD.replace("FROM B ", "FROM B WHERE k IS NOT NULL ") + GOOD + SUBSCRIBE)

Open = Callable[..., AbstractContextManager[Broker]]


@pytest.fixture(
    params=[
        ("local", 1),
        pytest.param(("spark", 1), marks=[pytest.mark.nightly, pytest.mark.xdist_group("spark")]),
        pytest.param(("spark", 2), marks=[pytest.mark.slow, pytest.mark.xdist_group("spark")]),
    ],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    engine, partitions = request.param
    if engine == "spark":
        request.getfixturevalue("spark")

    def open_(program: Source | None = None, **settings: Any) -> AbstractContextManager[Broker]:
        fixed: dict[str, Any] = {"engine": engine, "partitions": partitions, "flight": "", "flush": False}
        return open_broker(tmp_path, program, idle_ms=20, silence_ms=10, **fixed, **settings)

    return open_


def totals(broker: Broker, after: dict[str, int]) -> dict[str | None, int]:
    return {row["key"]["k"]: row["row"]["total"] for row in rows_of(broker, "Sums", after)}


def wait_for_pause(broker: Broker, view: str) -> ViewPause:
    pause = wait_until(lambda: broker.views[view].pause, f"{view} is not paused")
    assert pause is not None
    return pause


def test_a_view_that_cannot_be_computed_is_paused_and_the_others_go_on(opened: Open) -> None:
    with opened(PROGRAM) as broker:
        after = publish(broker, "A", (1,), (2,)) | publish(broker, "B", ("x", 1))
        matched = {(row["key"]["k"], row["row"]["n"]) for row in rows_of(broker, "OnBad", after)}
        assert matched == {("x", 1), (None, 1)}
        woken = Event()
        subscription = broker.view("Bad").subscribe(ViewCondition(), woken.set)
        assert not subscription.take_pause_change()

        after |= publish(broker, "B", (None, 2))
        pause = wait_for_pause(broker, "Bad")
        assert (pause.code, pause.is_temporary) == ("E051", False)
        assert wait_for_pause(broker, "OnBad") == pause
        assert woken.wait(WAIT_S)
        assert subscription.take_pause_change()
        assert {name for name, view in broker.views.items() if view.pause} == {"Bad", "OnBad"}
        after |= publish(broker, "B", ("x", 5)) | publish(broker, "A", (7,))
        assert totals(broker, after) == {"x": 6, None: 2}
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 3}
        # The rows that it had are still shown, and only as far as they are known.
        assert {row["key"]["k"] for row in rows_of(broker, "OnBad", {})} == {"x", None}
        assert not broker.view("Bad").is_reached(after)
        assert broker.status()["views"]["Bad"]["paused"]["code"] == "E051"

    with opened() as broker:  # a restart does not run it again
        assert broker.view("Bad").pause == pause
        assert {row["key"]["k"] for row in rows_of(broker, "OnBad", {})} == {"x", None}
        after |= publish(broker, "B", ("y", 9))
        assert totals(broker, after) == {"x": 6, None: 2, "y": 9}

        broker.resume("Bad")  # the cause has not gone
        wait_until(lambda: broker.view("Bad").pause != pause, "it is not tried again")
        assert wait_for_pause(broker, "OnBad").code == "E051"

        broker.apply(CORRECTED)
        assert [view.pause for view in broker.views.values()] == [None] * 4
        after |= publish(broker, "B", ("y", 7))
        matched = {(row["key"]["k"], row["row"]["n"]) for row in rows_of(broker, "OnBad", after)}
        assert matched == {("y", 1), (None, 2)}
        assert totals(broker, after) == {"x": 6, None: 2, "y": 16}


def test_a_view_whose_rows_find_no_room_is_resumed_by_itself(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "view_pause_s_min", 0.2)
    deliver, failures = View.deliver, [1, 1]

    def failing(view: View, *arguments: Any) -> None:
        if view.name == "Sums" and failures and view.horizons["B"] > 0 and arguments[0] is not None:
            failures.pop()
            raise MemoryError
        deliver(view, *arguments)

    with opened(PROGRAM) as broker:
        after = publish(broker, "B", ("x", 1))
        assert totals(broker, after) == {"x": 1}
        monkeypatch.setattr(View, "deliver", failing)
        after |= publish(broker, "B", ("x", 2))
        assert wait_for_pause(broker, "Sums").code == "E053"
        after |= publish(broker, "B", ("x", 4)) | publish(broker, "A", (7,))
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 1}
        assert totals(broker, after) == {"x": 7}
        wait_until(lambda: broker.view("Sums").pause is None, "it is not resumed")
        assert not failures or broker.view("Bad").pause is None
        after |= publish(broker, "B", ("x", 8))
        assert totals(broker, after) == {"x": 15}


# ── in this process ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """As long as it has names of columns, there is no memory for aggregates with these."""
    columns, step = set[str](), MultiMemberGroups.step

    def failing(self: MultiMemberGroups, *arguments: Any) -> Any:
        if columns & {*self.layout.types} and arguments[1][0] is not None:
            raise MemoryError
        return step(self, *arguments)

    monkeypatch.setattr(MultiMemberGroups, "step", failing)
    return columns


def open_local(folder: Path, program: Source | None = None, **settings: Any) -> AbstractContextManager[Broker]:
    return open_broker(folder, program, idle_ms=20, silence_ms=10, flight="", flush=False, **settings)


def test_a_resumed_view_continues_from_its_state(
    tmp_path: Path, exhausted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log no longer has what it was computed from; and while it is paused, the log is not truncated further."""
    with open_local(tmp_path, PROGRAM) as broker:
        after = publish(broker, "B", ("x", 1))
        assert totals(broker, after) == {"x": 1}
        reached = broker._maintainer.checkpoint()
        assert reached is not None
        broker.log.truncate(reached)
        assert (truncated_to := broker.log.truncated_to("B")) is not None
        exhausted.add("total")
        after |= publish(broker, "B", ("x", 2))
        assert wait_for_pause(broker, "Sums").code == "E053"
        after |= publish(broker, "A", (1,))
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 1}
        assert broker._maintainer.checkpoint() is None
        assert broker.log.truncated_to("B") == truncated_to
    monkeypatch.setattr(limits, "view_pause_s_min", 0.1)
    with open_local(tmp_path) as broker:  # it tries by itself, and fails
        pause = wait_for_pause(broker, "Sums")
        wait_until(lambda: broker.view("Sums").pause != pause, "it is not tried again")
        exhausted.clear()
        assert totals(broker, after) == {"x": 3}
        wait_until(lambda: broker.view("Sums").pause is None, "it is not resumed")
        assert broker._maintainer.checkpoint() is not None


def test_a_separation_that_is_cut_short_is_completed_at_the_next_start(
    tmp_path: Path, exhausted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_local(tmp_path, PROGRAM) as broker:
        after = publish(broker, "B", ("x", 1))
        assert totals(broker, after) == {"x": 1}
        exhausted.add("total")
        with monkeypatch.context() as broken:
            broken.setattr(LocalExecutor, "separate", lambda *_: 1 // 0)
            after |= publish(broker, "B", ("x", 2))
            wait_until(lambda: broker.warnings, "it does not fail")
            broker.stop()
    exhausted.clear()
    with open_local(tmp_path) as broker:
        assert broker.view("Sums").pause is not None
        after |= publish(broker, "A", (1,))
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 1}
        broker.resume("Sums")
        assert totals(broker, after) == {"x": 3}


def test_paused_views_can_be_dropped_one_by_one(tmp_path: Path) -> None:
    def program(*views: str) -> Source:
        return Source("floor.smile", f"{STREAMS}{BAD}{GOOD}SUBSCRIBE {', '.join(views)};")

    with open_local(tmp_path, PROGRAM) as broker:
        after = publish(broker, "A", (1,), (2,)) | publish(broker, "B", ("x", 1))
        rows_of(broker, "OnBad", after)
        after |= publish(broker, "B", (None, 2))
        wait_for_pause(broker, "OnBad")
        broker.apply(program("OnBad", "Sums", "Counts"))
        assert broker.view("OnBad").pause is not None
        assert totals(broker, after) == {"x": 1, None: 2}
    with open_local(tmp_path) as broker:
        assert {row["key"]["k"] for row in rows_of(broker, "OnBad", {})} == {"x", None}
        broker.apply(program("Sums", "Counts"))
        assert set(broker.views) == {"Sums", "Counts"}
        assert broker._maintainer.checkpoint() is not None
    assert len(directories(tmp_path)) == 1


def directories(data: Path) -> Sequence[Path]:
    return [path for path in (data / "state" / "in-process").iterdir() if path.is_dir()]


def test_a_new_view_that_cannot_be_computed_is_refused(tmp_path: Path) -> None:
    with open_local(tmp_path, Source("floor.smile", STREAMS + GOOD)) as broker:
        after = publish(broker, "A", (1,), (2,)) | publish(broker, "B", ("x", 1), (None, 2))
        with pytest.raises(SmileError) as refused:
            broker.apply(PROGRAM)
        assert code_of(refused) == "E051"
        assert set(broker.views) == {"Sums", "Counts"}
        assert totals(broker, after) == {"x": 1, None: 2}


def test_when_all_views_are_paused_the_broker_still_takes_events(tmp_path: Path, exhausted: set[str]) -> None:
    program = Source("floor.smile", STREAMS + "CREATE VIEW Sums AS SELECT k, SUM(v) AS total FROM B GROUP BY k;")
    with open_local(tmp_path, program) as broker:
        exhausted.add("total")
        after = publish(broker, "B", ("x", 1))
        wait_for_pause(broker, "Sums")
        after |= publish(broker, "B", ("x", 2))
    exhausted.clear()
    with open_local(tmp_path) as broker:
        broker.resume("Sums")
        assert totals(broker, after) == {"x": 3}
