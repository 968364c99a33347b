"""Views over a global stream say with respect to which closed epoch their rows are final, wherever they say how far they
are."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from smile.client import connect
from tests.brokers import InProcessBroker
from tests.processes import WAIT_S, wait_until

PROGRAM = """
CREATE GLOBAL STREAM ntp (t: time, tool: string -> latency: int);
CREATE STREAM Other (t: time -> a: int);
ADVERTISE ntp WHERE tool = 'ping' AS S;
CREATE VIEW Sums AS SELECT tool, SUM(latency) AS total FROM ntp GROUP BY tool;
CREATE VIEW Plain AS SELECT COUNT(*) AS n FROM Other;
SUBSCRIBE Sums, Plain;
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("epochs"), PROGRAM, broker_name="hw", origin=2) as broker:
        yield broker


def snapshot(served: InProcessBroker, view: str) -> dict[str, Any]:
    with served.http() as http:
        answer: dict[str, Any] = http.get(f"/views/{view}").json()
        return answer


def progress_event(served: InProcessBroker, view: str) -> dict[str, Any]:
    with served.http() as http, http.stream("GET", f"/views/{view}/changes") as answer:
        lines = answer.iter_lines()
        for line in lines:
            if line == "event: progress":
                data = next(data for data in lines if data.startswith("data: "))
                event: dict[str, Any] = json.loads(data.removeprefix("data: "))
                return event
    raise AssertionError("there is no progress")


def frame_of(served: InProcessBroker, view: str) -> dict[str, Any]:
    with served.websocket() as connection:
        connection.ask({"subscribe": view, "id": 1})
        while "progress" not in (frame := connection.receive()):
            pass
        return dict(frame)


def test_progress_names_the_closed_epoch(served: InProcessBroker) -> None:
    with served.http() as http:
        assert http.post("/streams/ntp/events", json={"tool": "ping", "latency": 7}).status_code == 200
        wait_until(lambda: snapshot(served, "Sums")["rows"], "the event does not come")
        assert "epochs" not in snapshot(served, "Sums")
        closed = http.put("/registry/ntp/epoch", json={"to": None})
        assert closed.status_code == 200, closed.text
        wait_until(lambda: "epochs" in snapshot(served, "Sums"), "the epoch is not adopted")
        (stream,) = http.get("/registry").json()["global_streams"]
        csv = http.get("/views/Sums?format=csv")
    epochs = {"ntp.global": stream["closed"]["epoch"]}
    assert snapshot(served, "Sums")["epochs"] == epochs
    assert progress_event(served, "Sums")["epochs"] == epochs
    assert frame_of(served, "Sums")["epochs"] == epochs
    assert json.loads(csv.headers["smile-epochs"]) == epochs
    with connect(served.url, timeout=WAIT_S) as client:
        assert client.table("Sums").epochs == epochs
        assert client.table("Plain").epochs == {}
        frame = next(frame for frame in client.subscribe("Sums").frames() if frame.progress is not None)
        assert frame.progress_json()["epochs"] == frame.epochs == epochs
    assert "epochs" not in snapshot(served, "Plain")
