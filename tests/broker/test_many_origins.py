"""A stream with three origins at a broker, one of them dead: rows flow, and what is final waits until it leaves.

This broker is the home of the stream, and one of its origins. What the others publish arrives as it would from a link.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.broker import Broker
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.imports.receipt import Receipt
from smile.broker.views.condition import ViewCondition
from smile.broker.views.resume_token import parse_resume_token
from smile.gateway.frames import progress_json, row_messages
from smile.horizons import END, HORIZON_MIN, with_origins
from smile.log.clock import wall_clock
from smile.log.membership import HOME_ORIGIN
from smile.log.storage.pieces import StreamPiece
from smile.source import Source
from tests.broker.test_broker import publish
from tests.brokers import open_broker
from tests.processes import wait_until

PROGRAM = Source(
    "sales.smile",
    """
CREATE STREAM Sales (t: time -> cents: int NOT NULL CHECK (cents >= 0)) WITH (ORIGINS = MANY);
CREATE VIEW PerSecond AS
  SELECT window_end, COUNT(*) AS n, SUM(cents) AS cents FROM TUMBLE(Sales, t, INTERVAL '1' SECOND) GROUP BY window_end;
CREATE VIEW Total AS SELECT COUNT(*) AS n, SUM(cents) AS cents FROM Sales;
SUBSCRIBE PerSecond, Total;
""",
)
SECOND: Final = 1_000_000 * TICKS_PER_MICROSECOND
Open = Callable[[Source | None], AbstractContextManager[Broker]]


class OtherOrigins:
    """The other origins of Sales, as the cache of an import has them."""

    has_whole_commits: Final = False

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.horizons = dict(broker.log.newest().horizons["Sales"])
        self.horizons.pop(HOME_ORIGIN, None)

    def append(self, origin: str, hi: int, *events: tuple[int, int]) -> None:
        schema = stream_schema(self.broker.log.schemas["Sales"].stream)
        rows = pa.RecordBatch.from_pylist([{"t": t, "cents": cents} for t, cents in events], schema) if events else None
        piece = StreamPiece("Sales", origin, self.horizons.get(origin, HORIZON_MIN), hi, rows)
        self.broker.append_imported(CacheAppend("Sales", self, piece, len(events), 0)).result(20)

    def take(self, piece: StreamPiece) -> tuple[Receipt, list[StreamPiece]]:
        self.horizons[piece.origin] = piece.hi
        return Receipt.APPENDED, [piece]

    @property
    def log_horizons(self) -> Mapping[str, int]:
        return with_origins("Sales", self.horizons)

    def record_commit(self) -> None:
        pass

    def discard_taken(self) -> None:
        raise AssertionError("the log was not written")


def now(origin: int) -> int:
    return wall_clock() * TICKS_PER_MICROSECOND + origin


@pytest.fixture(
    params=["local", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.xdist_group("spark")])],
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "spark":
        request.getfixturevalue("spark")
    fixed: dict[str, Any] = {"engine": request.param, "partitions": 2, "flight": "", "flush": False}
    return lambda program: open_broker(tmp_path, program, idle_ms=20, silence_ms=10, **fixed)


def rows(broker: Broker, view: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in row_messages(broker.view(view).snapshot(ViewCondition()))]


def total(broker: Broker) -> tuple[int, int]:
    ((n, cents),) = [(row["row"]["n"], int(row["row"]["cents"])) for row in rows(broker, "Total")]
    return n, cents


def test_rows_flow_while_an_origin_is_dead_and_are_final_when_it_has_left(opened: Open) -> None:
    with opened(PROGRAM) as broker:
        others = OtherOrigins(broker)
        start = now(0) + SECOND // 10
        others.append("2", start)
        others.append("3", start)
        wait_until(lambda: broker.log.newest().horizons["Sales"].get(HOME_ORIGIN, 0) > start, "the clock stands still")

        mine = publish(broker, "Sales", (100,))
        theirs = now(2)
        others.append("2", theirs, (theirs, 50))
        per_second, sum_view = broker.view("PerSecond"), broker.view("Total")
        for view in (per_second, sum_view):
            wait_until(lambda view=view: view.is_reached(mine) and view.is_reached({"Sales": theirs}), "rows wait")  # type: ignore[misc]  # mypy sees no default
        assert total(broker) == (2, 150)
        assert per_second.horizons["Sales"] == start < min(mine["Sales"], theirs)
        assert not any(row["final"] for row in rows(broker, "PerSecond"))

        # A token says how far each origin is; people see the horizon of the stream.
        frame = sum_view.snapshot(ViewCondition())
        assert frame.resume is not None
        _, horizons = parse_resume_token(frame.resume)
        assert horizons["Sales:2"] == theirs and horizons["Sales:3"] == start
        assert json.loads(progress_json(frame)) == {"Sales": str(start)}

        later = now(2)
        others.append("2", later, (later, 7))
        with_more = sum_view.subscribe(ViewCondition(), lambda: None, frame.resume, {"Sales": later})
        wait_until(lambda: sum_view.is_reached({"Sales": later}), "the row waits")
        update = with_more.next_frame(10)
        assert update is not None and not update.reset and update.row_count == 1
        assert total(broker) == (3, 157)

    # After a restart, every event counts once.
    with opened(None) as broker:
        others, view = OtherOrigins(broker), broker.view("Total")
        wait_until(lambda: broker.view("Total").is_reached({"Sales": later}), "the view is not restored")
        assert total(broker) == (3, 157)
        assert broker.view("PerSecond").horizons["Sales"] == start

        # The dead origin leaves, and the other goes on.
        others.append("3", END)
        others.append("2", now(2) + 60 * SECOND)
        wait_until(lambda: all(row["final"] for row in rows(broker, "PerSecond")), "the rows are not final")
        assert sum(row["row"]["n"] for row in rows(broker, "PerSecond")) == 3
        last = publish(broker, "Sales", (1,))
        wait_until(lambda: view.is_reached(last), "the row waits")
        assert total(broker) == (4, 158)


def test_the_log_is_cut_only_where_each_origin_was_read(opened: Open) -> None:
    with opened(PROGRAM) as broker:
        others = OtherOrigins(broker)
        start = now(0) + SECOND // 10
        others.append("2", start)
        wait_until(lambda: broker.log.newest().horizons["Sales"].get(HOME_ORIGIN, 0) > start, "the clock stands still")
        theirs = now(2)
        others.append("2", theirs, (theirs, 50))
        wait_until(lambda: broker.view("Total").is_reached({"Sales": theirs}), "the row waits")

        def checkpoint_with_row() -> Mapping[str, int]:
            horizons = broker._maintainer.checkpoint() or {}
            return horizons if horizons.get("Sales:2", HORIZON_MIN) >= theirs else {}

        broker.log.truncate(wait_until(checkpoint_with_row, "there is no hard checkpoint"))
        assert broker.log.truncated_to("Sales") is not None
        later = now(2)
        others.append("2", later, (later, 7))
    with opened(None) as broker:
        wait_until(lambda: broker.view("Total").is_reached({"Sales": later}), "the row waits")
        assert total(broker) == (2, 57)
