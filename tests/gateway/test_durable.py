"""Durable subscriptions over WebSockets and HTTP."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from smile.gateway.access import Grant, Right
from tests.brokers import InProcessBroker, WebSocketClient, bid
from tests.processes import wait_until

Json = dict[str, Any]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path) as broker:
        yield broker


def publish(broker: InProcessBroker, *prices: int, issue: str = "IBM") -> list[int]:
    with broker.http() as http:
        answer = http.post("/streams/Bids/events", json=[bid(issue, price) for price in prices])
        return [int(tick) for tick in answer.json()["ticks"]]


def events_of(socket: WebSocketClient) -> Json:
    return socket.receive_until(lambda message: "events" in message or "ended" in message or "error" in message)


def prices(frame: Json) -> list[int]:
    return [event["event"]["price"] for event in frame["events"]]


def subscription(relation: str = "Bids", **fields: Any) -> Json:
    return {"subscribe": relation, "id": 1, "name": "billing", **fields}


def test_events_are_delivered_until_they_are_acknowledged(broker: InProcessBroker) -> None:
    ticks = publish(broker, 1, 2, 3)
    with broker.websocket() as socket:
        answer = socket.ask(subscription())
        assert answer["subscribed"] == "Bids" and answer["delivers"] == "events" and answer["position"] == {}
        assert answer["columns"] == {"issue": "string", "price": "int", "big": "bool", "weight": "float"}
        frame = events_of(socket)
        assert prices(frame) == [1, 2, 3] and [int(e["at"]) for e in frame["events"]] == ticks
        assert frame["events"][0] == {
            "stream": "Bids",
            "at": str(ticks[0]),
            "origin": "0",
            "event": {"issue": "IBM", "price": 1, "big": None, "weight": None},
        }
        acked = socket.ask({"ack": 1, "at": {"0": str(ticks[0])}})
        assert acked["acked"] == {"0": str(ticks[0])} and acked["resume"]
    with broker.websocket() as socket:
        assert socket.ask(subscription())["position"] == {"0": str(ticks[0])}
        frame = events_of(socket)
        assert prices(frame) == [2, 3]
        assert socket.ask({"ack": 1, "n": frame["n"]})["acked"] == frame["n"]
        publish(broker, 4)
        assert prices(events_of(socket)) == [4]


def test_a_selection_and_conditions(broker: InProcessBroker) -> None:
    publish(broker, 50, 150)
    publish(broker, 160, issue="SUN")
    with broker.websocket() as socket:
        assert socket.ask(subscription("Dear"))["delivers"] == "events"
        received: list[int] = []
        while len(received) < 2:
            received += prices(events_of(socket))
        assert received == [150, 160]
        socket.ask(subscription("Dear", id=2, name="b", where={"issue": "SUN"}))
        assert prices(events_of(socket)) == [160]


def test_a_name_of_a_view_stores_its_progress(broker: InProcessBroker) -> None:
    publish(broker, 1)
    with broker.websocket() as socket:
        answer = socket.ask(subscription("Totals"))
        assert answer["delivers"] == "rows"
        frame = socket.receive_until(lambda m: "progress" in m)
        assert frame["reset"]
        if not frame["rows"]:  # the view has not seen the event yet
            frame = socket.receive_until(lambda m: "n" in m and bool(m["rows"]))
        acked = socket.ask({"ack": 1, "n": frame["n"]})
        assert acked["acked"] == frame["n"] and acked["resume"] == frame["resume"]
    with broker.websocket() as socket:
        assert socket.ask(subscription("Totals"))["subscribed"] == "Totals"
        publish(broker, 5)
        frame = socket.receive_until(lambda m: "n" in m and bool(m["rows"]))
        assert "reset" not in frame and frame["rows"][0]["row"]["total"] == 6


def test_the_later_subscriber_takes_over(broker: InProcessBroker) -> None:
    publish(broker, 1)
    for relation in ("Bids", "Totals"):
        name = f"of {relation}".replace(" ", "-")
        with broker.websocket() as first, broker.websocket() as second:
            first.ask(subscription(relation, name=name))
            second.ask(subscription(relation, name=name))
            ended = first.receive_until(lambda m: "ended" in m)
            assert ended["ended"]["code"] == "E140" and ended["id"] == 1
            assert first.ask({"ack": 1, "n": 1})["error"]["code"] == "E093"
            assert second.receive_until(lambda m: "n" in m)["n"] == 1


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (subscription(name="a/b"), "E093"),
        (subscription("Nothing"), "E021"),
        (subscription("Totals", deliver="events"), "E142"),
        (subscription(resume="x"), "E094"),
        (subscription(where={"nothing": 1}), "E099"),
        ({"subscribe": "Totals", "id": 1, "start": "new"}, "E093"),
        ({"subscribe": "Bids", "id": 1}, "E021"),
    ],
)
def test_what_is_wrong_is_refused(broker: InProcessBroker, message: Json, code: str) -> None:
    with broker.websocket() as socket:
        assert socket.ask(message)["error"]["code"] == code
        assert "subscribed" in socket.ask({"subscribe": "Totals", "id": 1})


def test_rights(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, auth=True) as broker:
        with closing(broker.accounts()) as accounts:
            allowed, other = accounts.add_token("ann"), accounts.add_token("bob")
            accounts.grant(Grant(Right.subscribe, "Bids", "ann"))
        with broker.websocket(allowed) as socket, broker.websocket(other) as stranger:
            assert socket.ask(subscription())["delivers"] == "events"
            assert stranger.ask(subscription())["error"]["code"] == "E090"
            assert socket.ask(subscription("Dear", id=2, name="d"))["error"]["code"] == "E090"
        with broker.http(other) as http:
            assert http.get("/subscriptions").json() == {"subscriptions": []}
            assert http.get("/subscriptions?all=true").status_code == 403
            assert http.delete("/subscriptions/billing").status_code == 404
            assert http.delete("/subscriptions/billing?principal=ann").status_code == 403


# ── HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_sse(response: httpx.Response, count: int) -> list[tuple[str, Json]]:
    """Events with their ids."""
    received, id_ = [], ""
    for line in response.iter_lines():
        if line.startswith("id: "):
            id_ = line.removeprefix("id: ")
        elif line.startswith("data: "):
            received.append((id_, json.loads(line.removeprefix("data: "))))
            if len(received) == count:
                break
    return received


def test_server_sent_events_and_acknowledgements(broker: InProcessBroker) -> None:
    publish(broker, 1, 2, 3)
    with broker.http() as http:
        with http.stream("GET", "/streams/Bids/events?name=billing") as response:
            received = read_sse(response, 3)
            assert [event["event"]["price"] for _, event in received] == [1, 2, 3]
        answer = http.post("/subscriptions/billing/ack", json={"resume": received[1][0]})
        assert answer.json() == {"acknowledged": received[1][0]}
        with http.stream("GET", "/streams/Bids/events?name=billing") as response:
            assert [event["event"]["price"] for _, event in read_sse(response, 1)] == [3]
        wait_until(lambda: not http.get("/subscriptions").json()["subscriptions"][0]["connected"], "it stays connected")
        (entry,) = http.get("/subscriptions").json()["subscriptions"]
        assert entry["name"] == "billing" and entry["waiting_events"] >= 1 and entry["delivers"] == "events"
        assert http.post("/subscriptions/billing/ack", json={"resume": "x"}).json()["error"]["code"] == "E094"
        assert http.post("/subscriptions/nobody/ack", json={"resume": received[0][0]}).status_code == 404
        assert http.delete("/subscriptions/billing").json() == {"dropped": "billing"}
        assert http.get("/streams/Bids/events").json()["error"]["code"] == "E093"
        assert "smile_gateway_requests" in http.get("/metrics").text


def test_the_window_of_server_sent_events(broker: InProcessBroker) -> None:
    """A client that acknowledges nothing receives one event; an acknowledgement brings the next."""
    publish(broker, 1)
    path = "/streams/Bids/events?name=billing&window=1"
    with broker.http() as http, broker.http() as other, http.stream("GET", path) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
        publish(broker, 2)
        assert other.post("/subscriptions/billing/ack", json={"resume": first}).status_code == 200
        assert any('"price":2' in line for line in lines)


def test_a_view_over_server_sent_events(broker: InProcessBroker) -> None:
    publish(broker, 120)
    with broker.http() as http:
        with http.stream("GET", "/views/Dear/changes?name=dear&where.issue=IBM") as response:
            assert read_sse(response, 1)[0][1]["event"]["price"] == 120
        with http.stream("GET", "/views/Totals/changes?name=totals") as response:
            ids = [id_ for id_, data in read_sse(response, 3) if "progress" in data]
        assert http.post("/subscriptions/totals/ack", json={"resume": ids[0]}).status_code == 200
        assert http.get("/views/Dear/changes?name=totals").json()["error"]["code"] == "E141"


def test_unacknowledged_events_outlive_a_restart(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        publish(broker, 1, 2)
        with broker.websocket() as socket:
            socket.ask(subscription())
            frame = events_of(socket)
            socket.ask({"ack": 1, "at": {"0": frame["events"][0]["at"]}})
    with InProcessBroker(tmp_path) as broker, broker.websocket() as socket:
        socket.ask(subscription())
        assert prices(events_of(socket)) == [2]
