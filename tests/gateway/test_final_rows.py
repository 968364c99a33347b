"""Subscriptions to final rows: every way in delivers a row when it is final, once, also after a resumption."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from smile.client import Client, SmileError, Subscription, connect
from tests.brokers import InProcessBroker
from tests.processes import WAIT_S, invoke_smile

Json = dict[str, Any]

SECOND = 1_000_000 * 1024
PROGRAM = """
CREATE STREAM Errors (t: time -> host: string NOT NULL) WITH (TICKS = PUBLISHER);
CREATE VIEW PerSecond AS SELECT window_end, host, COUNT(*) AS n FROM TUMBLE(Errors, t, INTERVAL '1' SECOND)
  GROUP BY window_end, host;
CREATE VIEW Alarm AS SELECT window_end, host FROM PerSecond WHERE n >= 3;
SUBSCRIBE PerSecond, Alarm;
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM, flight="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[Client]:
    with connect(broker.url, timeout=WAIT_S) as connected:
        yield connected


def errors(*ticks: int, host: str = "a") -> list[Json]:
    return [{"t": tick, "host": host} for tick in ticks]


def received(subscription: Subscription, client: Client, to: int) -> list[str]:
    """The hosts of the changes up to a tick."""
    client.silence("Errors", to)
    hosts = list[str]()
    while True:
        frame = subscription.frame(WAIT_S)
        assert all(change.final and not change.deleted for change in frame.changes)
        hosts += [change.key["host"] for change in frame.changes]
        if frame.progress is not None and frame.progress["Errors"] >= to:
            return hosts


def test_a_row_comes_once_when_it_is_final(client: Client) -> None:
    rows, alarms = client.subscribe("PerSecond", final=True), client.subscribe("Alarm", final=True)
    client.publish("Errors", [*errors(1, 2, 3), *errors(4, 5, host="b")])
    assert received(alarms, client, 5) == ["a"], "final before its second is over"
    assert received(rows, client, 6) == []
    client.publish("Errors", errors(7, 8))
    assert received(alarms, client, 9) == [], "only its steps have grown"
    assert sorted(received(rows, client, SECOND)) == ["a", "b"]
    client.publish("Errors", errors(SECOND + 1, host="c"))
    assert received(rows, client, SECOND + 1) == []
    assert [row.key["host"] for row in client.table("PerSecond", final=True)] == ["a", "b"]
    assert [str(row["n"]) for row in client.snapshot("PerSecond", {"host": "a"}, final=True)] == ["=5"]
    assert len(client.snapshot("PerSecond")) == 3
    with pytest.raises(SmileError, match="may change"):
        client.subscribe("PerSecond", {"n": 5}, final=True)


def test_over_http(broker: InProcessBroker, client: Client) -> None:
    client.publish("Errors", errors(1, 2))
    client.silence("Errors", SECOND)
    published = client.publish("Errors", errors(SECOND + 1))
    client.table("PerSecond").wait_for(published, WAIT_S)
    with broker.http() as http:
        rows = http.get("/views/PerSecond?final=true").json()["rows"]
        assert [row["row"]["n"] for row in rows] == [2]
        assert len(http.get("/views/PerSecond?final=false").json()["rows"]) == 2
        refused = http.get("/views/PerSecond?final=yes")
        assert (refused.status_code, refused.json()["error"]["message"]) == (400, "final is true or false, not 'yes'")
        query: dict[str, str] = {"final": "true"}
        for expected in ([("a", SECOND)], [("a", 2 * SECOND)]):
            with http.stream("GET", "/views/PerSecond/changes", params=query) as answer:
                changes = list[Json]()
                for line in answer.iter_lines():
                    if line.startswith("data: ") and "row" in (message := json.loads(line[6:])):
                        changes.append(message)
                    if line.startswith("id: "):
                        query["resume"] = line[4:]
                    if "resume" in query and changes:
                        break
            assert [(c["key"]["host"], int(c["key"]["window_end"])) for c in changes] == expected
            client.silence("Errors", 2 * SECOND)


def test_over_flight_and_the_command_line(broker: InProcessBroker, client: Client) -> None:
    published = client.publish("Errors", [*errors(1, 2, 3), *errors(4, host="b")])
    client.table("Alarm").wait_for(published, WAIT_S)
    assert broker.server.flight is not None
    flight_client = flight.connect(broker.server.flight.location)
    ticket: Json = {"view": "Alarm", "final": True, "after": {"Errors": 4}}
    table = flight_client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()
    assert table.column("host").to_pylist() == ["a"]
    ticket["view"] = "PerSecond"
    assert flight_client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all().num_rows == 0
    for view, expected in (("Alarm", ["a"]), ("PerSecond", [])):
        printed = invoke_smile("subscribe", view, "--final", "--once", "--url", broker.url)
        assert [json.loads(line)["key"]["host"] for line in printed.stdout.splitlines()] == expected


def test_it_continues_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    """The rows that come again in the snapshot after it are left out."""
    with InProcessBroker(tmp_path, PROGRAM) as broker:
        port = broker.port
        client = connect(broker.url, timeout=WAIT_S)
        alarms = client.subscribe("Alarm", final=True)
        named = client.subscribe("Alarm", final=True, name="pager")
        client.publish("Errors", errors(1, 2, 3))
        assert received(alarms, client, 4) == received(named, client, 4) == ["a"]
        named.ack()
        named.close()
    with client, InProcessBroker(tmp_path, None, listen=f"127.0.0.1:{port}"):
        client.publish("Errors", errors(5, 6, 7, host="b"))
        assert received(alarms, client, 8) == ["b"]
        assert set(received(client.subscribe("Alarm", final=True, name="pager"), client, 9)) >= {"b"}


def test_a_changed_view_is_subscribed_to_again(broker: InProcessBroker, client: Client) -> None:
    alarms, table = client.subscribe("Alarm", final=True), client.table("Alarm")
    published = client.publish("Errors", [*errors(1, 2, 3), *errors(4, 5, host="b")])
    table.wait_for(published, WAIT_S)
    assert received(alarms, client, 5) == ["a"]
    with broker.http() as http:
        assert http.put("/program", content=PROGRAM.replace("n >= 3", "n >= 2")).status_code == 200
        assert sorted(received(alarms, client, 6)) == ["a", "b"], "by the new definition"
        table.wait_for({"Errors": 6}, WAIT_S)
        assert sorted(row.key["host"] for row in table) == ["a", "b"]
        changed = PROGRAM.replace("window_end, host FROM PerSecond WHERE", "window_end, host, n FROM PerSecond WHERE")
        assert http.put("/program", content=changed).status_code == 200
    with pytest.raises(SmileError, match="was changed"):
        received(alarms, client, 7)
    with pytest.raises(SmileError, match="was changed"):
        table.wait_for({"Errors": 7}, WAIT_S)
