"""What clients see of a view that is paused: its last rows, and that they are not kept up to date."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import flight

from smile.client import connect
from smile.errors import SmileError
from tests.brokers import InProcessBroker
from tests.processes import WAIT_S, Terminal, free_port, run_smile, wait_until

PROGRAM = """
CREATE STREAM A (t: time -> v: int);
CREATE STREAM B (u: time -> k: string, v: int);
CREATE VIEW Lasts AS SELECT k, LATEST(v) AS last FROM B GROUP BY k;
CREATE VIEW Bad AS SELECT A.t AS t, Lasts.k AS k FROM A LEFT JOIN Lasts ON A.v = Lasts.last;
CREATE VIEW Sums AS SELECT k, SUM(v) AS total FROM B GROUP BY k;
SUBSCRIBE Bad, Sums;
"""
"""Bad cannot be computed once an event of B without k matches an event of A (E051)."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM, flight=f"127.0.0.1:{free_port()}") as broker:
        broker.publish("A", {"v": 1})
        (tick,) = broker.publish("B", {"k": "x", "v": 1})
        assert [row["key"]["k"] for row in broker.rows("Bad", B=tick)] == ["x"]
        yield broker


def pause(served: InProcessBroker) -> str:
    """Returns the tick of the event that Bad cannot be computed from."""
    (tick,) = served.publish("B", {"k": None, "v": 1})
    wait_until(lambda: served.broker.views["Bad"].pause, "it is not paused")
    return tick


def test_over_http(served: InProcessBroker) -> None:
    with served.http() as http:
        assert "smile-paused" not in http.get("/views/Bad").headers
        tick = pause(served)
        answer = http.get("/views/Bad")
        assert answer.status_code == 200
        assert answer.headers["smile-paused"] == "E051"
        assert [row["key"]["k"] for row in answer.json()["rows"]] == ["x"]
        waiting = http.get("/views/Bad", params={"after.B": tick, "wait_ms": "60000"})  # it does not wait
        assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "E109")
        assert "smile resume Bad" in waiting.json()["error"]["hint"]
        assert {row["key"]["k"] for row in served.rows("Sums", B=tick)} == {"x", None}
        resumed = http.post("/views/Bad/resume")
        assert resumed.status_code == 202
        assert resumed.json()["paused"]["code"] == "E051"
        assert http.post("/views/Sums/resume").json() == {"view": "Sums", "paused": None}
        assert http.post("/views/Nothing/resume").status_code == 404


def test_over_websocket(served: InProcessBroker) -> None:
    with served.websocket() as before, served.websocket() as after:
        before.ask({"subscribe": "Bad", "id": 1})
        assert before.receive()["n"] == 1
        pause(served)
        notice = before.receive_until(lambda message: "n" not in message)
        assert (notice["id"], notice["paused"]["code"], notice["paused"]["temporary"]) == (1, "E051", False)
        after.ask({"subscribe": "Bad", "id": 2})
        assert after.receive_until(lambda message: "paused" in message)["paused"] == notice["paused"]
        assert len(after.receive_until(lambda message: "n" in message)["rows"]) == 1


def test_over_server_sent_events(served: InProcessBroker) -> None:
    with served.http() as http, http.stream("GET", "/views/Bad/changes") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: reset"
        pause(served)
        assert next(line for line in lines if line == "event: paused")
        assert json.loads(next(lines).removeprefix("data: "))["paused"]["code"] == "E051"


def test_over_flight(served: InProcessBroker) -> None:
    pause(served)
    assert served.server.flight is not None
    with flight.connect(served.server.flight.location) as client:
        ticket = flight.Ticket(json.dumps({"view": "Bad", "follow": True}).encode())
        reader = client.do_get(ticket)
        assert reader.read_chunk().data.num_rows == 1
        chunk = reader.read_chunk()
        assert chunk.data.num_rows == 0
        assert json.loads(chunk.app_metadata.to_pybytes())["paused"]["code"] == "E051"
        reader.cancel()


def test_in_the_python_client(served: InProcessBroker) -> None:
    with connect(served.url) as client:
        table = client.table("Bad")
        tick = int(pause(served))
        with pytest.raises(SmileError, match="is paused") as refused:
            table.wait_for({"B": tick}, timeout=WAIT_S)
        assert refused.value.diagnostics[0].code == "E109"
        assert table.paused is not None
        assert len(table.rows) == 1
        assert table.error is None
        client.resume("Bad")
        with pytest.raises(SmileError, match="no view Nothing"):
            client.resume("Nothing")


def test_in_the_commands(served: InProcessBroker, tmp_path: Path) -> None:
    with Terminal("subscribe", "Bad", "--url", served.url, columns=120) as terminal:
        terminal.read_until("1 row")
        pause(served)
        terminal.read_until("the view Bad is paused: a row of the outer join")
    shown = run_smile("status", "--url", served.url, cwd=tmp_path)
    assert re.search(
        r"view_paused Bad for \d+ s: E051: a row of the outer join has NULL", " ".join(shown.stdout.split())
    )
    assert run_smile("resume", "Bad", "--url", served.url, cwd=tmp_path).returncode == 0
    assert "E021" in run_smile("resume", "Nothing", "--url", served.url, cwd=tmp_path).stderr
