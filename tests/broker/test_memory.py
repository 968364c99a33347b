"""Views that need much memory: their batches become smaller, and if that does not help, only they are paused."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from smile import limits
from smile.broker.broker import Broker
from smile.engine.local import LocalEngine
from smile.log.input_batch import InputBatch
from smile.source import Source
from tests.broker.test_broker import publish, rows_of
from tests.brokers import open_broker
from tests.processes import wait_until

PROGRAM = Source(
    "floor.smile",
    """
    CREATE STREAM A (t: time -> name: string, v: int);
    CREATE VIEW Counts AS SELECT COUNT(*) AS n FROM A;
    CREATE VIEW Windows AS SELECT window_start, COUNT(*) AS n FROM HOP(A, t, INTERVAL '1' SECOND, INTERVAL '9999' SECOND)
      GROUP BY window_start;
    CREATE VIEW Named AS SELECT window_start, MAX(name) AS name FROM HOP(A, t, INTERVAL '1' SECOND, INTERVAL '10000' SECOND)
      GROUP BY window_start;
    SUBSCRIBE Counts, Windows, Named;
    """,
)
"""Each event is in ten thousand windows. The two HOPs differ, so that they are computed apart."""

Open = Callable[..., AbstractContextManager[Broker]]


@pytest.fixture(
    params=["local", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.xdist_group("spark")])],
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "spark":
        request.getfixturevalue("spark")

    def open_(program: Source | None = None, **settings: Any) -> AbstractContextManager[Broker]:
        fixed: dict[str, Any] = {"engine": request.param, "flight": "", "flush": False}
        return open_broker(tmp_path, program, silence_ms=10, **fixed, **settings)

    return open_


def most_in_a_window(broker: Broker, after: dict[str, int]) -> int:
    counts: list[int] = [row["row"]["n"] for row in rows_of(broker, "Windows", after, rows_max=20_000)]
    return max(counts)


def test_an_event_whose_copies_are_too_large_pauses_one_view(opened: Open) -> None:
    """A name of 250 kB in 10,000 windows is more text than a column can have."""
    with opened(PROGRAM) as broker:
        after = publish(broker, "A", ("a", 1))
        assert most_in_a_window(broker, after) == 1
        after = publish(broker, "A", ("x" * 250_000, 2))
        pause = wait_until(lambda: broker.views["Named"].pause, "it is not paused")
        assert pause is not None
        assert (pause.code, pause.is_temporary) == ("E053", False)
        after = publish(broker, "A", ("b", 3))
        assert most_in_a_window(broker, after) == 3
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 3}
        assert [name for name, view in broker.views.items() if view.pause] == ["Named"]


@pytest.mark.slow
def test_a_batch_of_too_many_rows_is_repeated_with_fewer_events(opened: Open) -> None:
    """All of these events are in one commit."""
    count = limits.transform_rows_max // 9_999 + 1
    with opened(PROGRAM) as broker:
        after = publish(broker, "A", *[("a", n) for n in range(count)])
        assert most_in_a_window(broker, after) == count
        assert [view.pause for view in broker.views.values()] == [None] * 3


def test_batches_shrink_and_grow_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs memory for at most 10 events at a time gets there, and the others do not wait for it."""
    sizes, advance = list[int](), LocalEngine.advance

    def limited(engine: LocalEngine, batch: InputBatch) -> Any:
        rows = sum(events.num_rows for events in batch.events.values())
        engine.relation = "Counts"
        if rows > limit:
            raise MemoryError
        sizes.append(rows)
        return advance(engine, batch)

    program = Source("floor.smile", PROGRAM.text.replace("SUBSCRIBE Counts, Windows, Named", "SUBSCRIBE Counts"))
    with open_broker(tmp_path, program, silence_ms=10, flight="", flush=False) as broker:
        limit = 10
        monkeypatch.setattr(LocalEngine, "advance", limited)
        after = publish(broker, "A", *[("a", n) for n in range(100)])
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 100}
        assert max(sizes) <= 10
        assert sum(sizes) == 100
        limit = 1_000
        after = publish(broker, "A", *[("a", n) for n in range(200)])
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 300}
        assert max(sizes) > 50
        assert broker.view("Counts").pause is None


def test_the_state_of_a_view_is_limited(tmp_path: Path) -> None:
    program = Source(
        "floor.smile",
        """
        CREATE STREAM A (t: time -> name: string, v: int);
        CREATE VIEW Counts AS SELECT COUNT(*) AS n FROM A;
        CREATE VIEW Names AS SELECT name, SUM(v) AS total FROM A GROUP BY name;
        """,
    )
    with open_broker(tmp_path, program, silence_ms=10, flight="", flush=False, view_memory_max=100_000) as broker:
        after = publish(broker, "A", *[(f"name {n}", n) for n in range(100)])
        assert len(rows_of(broker, "Names", after)) == 100
        after = publish(broker, "A", *[(f"another name {n}", n) for n in range(10_000)])
        pause = wait_until(lambda: broker.views["Names"].pause, "it is not paused")
        assert pause is not None
        assert "view_memory_max" in pause.message
        assert rows_of(broker, "Counts", after)[0]["row"] == {"n": 10_100}
        sizes = {name: view["state_bytes"] for name, view in broker.status()["views"].items()}
        assert 0 < sizes["Counts"] < 100_000
    # With a higher limit it goes on from where it was.
    with open_broker(tmp_path, None, silence_ms=10, flight="", flush=False) as broker:
        broker.resume("Names")
        after = publish(broker, "A", ("name 1", 5))
        totals = {row["key"]["name"]: row["row"]["total"] for row in rows_of(broker, "Names", after, rows_max=20_000)}
        assert (len(totals), totals["name 1"]) == (10_100, 6)
