"""Snapshots and server-sent events: all formats say the same."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.brokers import InProcessBroker, bid
from tests.processes import wait_until

BIDS = [bid("IBM", 110, True, 1.5), bid('HP, "x"\nline', 120, None, None), bid("IBM", 90), bid("é ü", 130, False, 2.0)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("views")) as broker, broker.http() as http:
        tick = http.post("/streams/Bids/events", json=BIDS).json()["ticks"][-1]
        assert http.get("/views/Dear", params={"after.Bids": tick}).status_code == 200
        yield broker


@pytest.fixture
def http(served: InProcessBroker) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def test_all_formats_say_the_same(http: httpx.Client) -> None:
    snapshot = http.get("/views/Dear").json()
    assert snapshot["view"] == "Dear"
    assert [row["row"] for row in snapshot["rows"]] == [b for b in BIDS if b["price"] > 100]
    lines = [json.loads(line) for line in http.get("/views/Dear?format=ndjson").text.splitlines()]
    assert lines[:-1] == snapshot["rows"]
    assert lines[-1].keys() == {"progress", "resume"}

    answer = http.get("/views/Dear", headers={"accept": "text/csv"})
    table = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [(row["bidid"], row["issue"], int(row["price"])) for row in table] == [
        (str(row["key"]["bidid"]), row["row"]["issue"], row["row"]["price"]) for row in snapshot["rows"]
    ]
    assert json.loads(answer.headers["smile-progress"]).keys() == snapshot["progress"].keys()

    accept = {"accept": "text/html;q=0.9, application/vnd.apache.arrow.stream;q=0.8, */*;q=0.1"}
    answer = http.get("/views/Dear", headers=accept)
    batch = pa.ipc.open_stream(answer.content).read_all()
    assert batch.column("price").to_pylist() == [row["row"]["price"] for row in snapshot["rows"]]
    assert batch.column("deleted").to_pylist() == [False] * len(snapshot["rows"])


def test_the_snapshots_token_goes_on_from_there(served: InProcessBroker, http: httpx.Client) -> None:
    token = http.get("/views/Totals").json()["resume"]
    tick = http.post("/streams/Bids/events", json=bid("new", 7)).json()["ticks"][0]
    with served.websocket() as connection:
        connection.ask({"subscribe": "Totals", "id": 1, "resume": token, "after": {"Bids": tick}})
        assert [row["key"] for row in connection.receive()["rows"]] == [{"issue": "new"}]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("format=xml", 400, "E093"),
        ("formt=json", 400, "E093"),
        ("format=json&format=csv", 400, "E093"),
        ("where.nope=1", 400, "E099"),
        ("where.=1", 400, "E093"),
        ("where.price=x", 400, "E099"),
        ("where.big=maybe", 400, "E099"),
        ("where.weight=heavy", 400, "E099"),
        ("where.weight=nan", 400, "E099"),
        ("after.Nope=1", 404, "E076"),
        ("after.Bids=-2", 400, "E093"),
        ("after.Bids=99999999999999999999", 400, "E093"),
        ("after.Bids=9000000000000000000&wait_ms=50", 504, "E108"),
        ("after.Bids=9000000000000000000&wait_ms=0", 504, "E108"),
        ("wait_ms=99999999", 400, "E093"),
        ("format=csv&times=yes", 400, "E093"),
        ("format=json&times=true", 400, "E093"),
        ("where.issue=%ff", 400, "E093"),
        ("&".join(f"where.x{i}=1" for i in range(200)), 400, "E093"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_refused(http: httpx.Client, query: str, status: int, code: str) -> None:
    response = http.get(f"/views/Dear?{query}")
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_no_such_view_and_no_such_format(http: httpx.Client) -> None:
    assert http.get("/views/Deer").json()["error"] == {
        "code": "E021",
        "message": "there is no view Deer",
        "hint": "Did you mean Dear?",
    }
    response = http.get("/views/Dear", headers={"accept": "image/png"})
    assert (response.status_code, response.json()["error"]["code"]) == (406, "E093")


def test_a_snapshot_beyond_the_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    with InProcessBroker(tmp_path_factory.mktemp("small"), snapshot_rows_max=2) as small, small.http() as http:
        tick = http.post("/streams/Bids/events", json=[bid("a"), bid("a"), bid("b")]).json()["ticks"][-1]
        response = http.get("/views/Dear", params={"after.Bids": tick})
        assert (response.status_code, response.json()["error"]["code"]) == (413, "E092")
        assert len(http.get("/views/Dear", params={"where.issue": "a"}).json()["rows"]) == 2


def test_moments_in_csv_are_those_of_json(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = """
    CREATE STREAM Days (t: time -> day: date, at: timestamp, raw: bytes);
    CREATE VIEW Seen AS SELECT day, at, raw, COUNT(*) AS n FROM Days GROUP BY day, at, raw;
    """
    days = [
        {"day": "2024-02-29", "at": "1969-12-31 23:59:59.5", "raw": "\\x00ff"},
        {"day": None, "at": None, "raw": None},
        {"day": "1066-10-14", "at": "2024-02-29 12:00:00", "raw": "\\x"},
    ]
    with InProcessBroker(tmp_path_factory.mktemp("days"), program) as served, served.http() as http:
        tick = http.post("/streams/Days/events", json=days).json()["ticks"][-1]
        rows = http.get("/views/Seen", params={"after.Days": tick}).json()["rows"]
        table = list(csv.DictReader(io.StringIO(http.get("/views/Seen?format=csv").text, newline="")))
    assert len(table) == 3
    assert [{c: row[c] or None for c in ("day", "at", "raw")} for row in table] == [row["key"] for row in rows]


def test_ticks_in_csv_are_times_on_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = """
    CREATE STREAM Runs (t: time -> host: string, since: time) WITH (TICKS = PUBLISHER);
    CREATE VIEW Seen AS SELECT host, MAX(since) AS since, GROUP(t) AS ticks FROM Runs GROUP BY host;
    """
    tick = 1_700_000_000_000_250 << 10
    with InProcessBroker(tmp_path_factory.mktemp("runs"), program) as served, served.http() as http:
        http.post("/streams/Runs/events", json=[{"t": str(tick + 3), "host": "a", "since": None}])
        text = http.get("/views/Seen", params={"after.Runs": tick + 3, "format": "csv", "times": "true"}).text
        (row,) = csv.DictReader(io.StringIO(text, newline=""))
        assert row == {"host": "a", "since": "", "ticks": '[{"t":"2023-11-14 22:13:20.00025"}]'}
        (row,) = csv.DictReader(io.StringIO(http.get("/views/Seen?format=csv&times=false").text, newline=""))
        assert row["ticks"] == f'[{{"t":"{tick + 3}"}}]'


class Events:
    """Server-sent events, as they come."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def next(self) -> tuple[str, str | None, Any]:
        event: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                continue
            if not line and event:
                return event.get("event", "message"), event.get("id"), json.loads(event["data"])
            name, _, value = line.partition(": ")
            if name:
                event[name] = value
        raise AssertionError("the stream has ended")

    def until(self, kind: str) -> tuple[str, str | None, Any]:
        while (event := self.next())[0] != kind:
            pass
        return event


def test_changes_as_they_happen(served: InProcessBroker, http: httpx.Client) -> None:
    tick = http.post("/streams/Bids/events", json=bid("sse", 1)).json()["ticks"][0]
    query = {"where.issue": "sse", "after.Bids": tick}
    with http.stream("GET", "/views/Totals/changes", params=query) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        events = Events(answer.iter_lines())
        assert events.next()[0] == "reset"
        kind, _, row = events.next()
        assert (kind, row["row"]) == ("change", {"total": 1, "bids": 1})
        kind, token, progress = events.next()
        assert kind == "progress"
        assert int(progress["progress"]["Bids"]) >= int(tick)
        with served.http() as other:
            other.post("/streams/Bids/events", json=bid("sse", 2))
        assert events.until("change")[2]["row"] == {"total": 3, "bids": 2}
    assert token
    with http.stream("GET", "/views/Totals/changes?where.issue=sse", headers={"last-event-id": token}) as answer:
        kind, _, row = Events(answer.iter_lines()).next()
        assert (kind, row["row"]) == ("change", {"total": 3, "bids": 2})
    response = http.get("/views/Totals/changes?resume=wrong")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "E094")


def test_a_reader_who_leaves_is_forgotten(served: InProcessBroker) -> None:
    gateway = served.server.gateway
    assert gateway is not None
    for _ in range(5):
        with served.http() as http, http.stream("GET", "/views/Totals/changes") as answer:
            Events(answer.iter_lines()).next()
    wait_until(lambda: not gateway.subscribers, "readers who left are still followers")
