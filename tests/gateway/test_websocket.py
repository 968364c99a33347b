"""Publishing and subscribing on one WebSocket: the frames together give the rows of the view."""

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from smile import limits
from tests.brokers import InProcessBroker, WebSocketClient, apply_frame, bid
from tests.processes import WAIT_S, wait_until
from tests.repeatable import scaled


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("ws")) as broker:
        yield broker


@pytest.fixture
def connection(served: InProcessBroker) -> Iterator[WebSocketClient]:
    with served.websocket() as client:
        yield client


def test_publish_is_answered_with_ticks(connection: WebSocketClient) -> None:
    answer = connection.ask({"publish": "Bids", "events": [bid(), bid()], "id": 7})
    assert answer["id"] == 7
    assert len(answer["published"]) == 2
    assert answer["repeated"] == 0
    assert "id" not in connection.ask({"publish": "Bids", "events": bid()})


def test_absent_columns_are_warned_of(connection: WebSocketClient) -> None:
    answer = connection.ask({"publish": "Bids", "events": [{"issue": "absent", "price": 3}], "id": 7})
    assert {w["column"]: w["events"] for w in answer["warnings"]} == {"big": 1, "weight": 1}


def test_publications_are_answered_though_more_come_before(connection: WebSocketClient) -> None:
    for i in range(200):
        connection.send({"publish": "Bids", "events": bid(f"many{i}"), "id": i})
    ticks = {answer["id"]: int(answer["published"][0]) for answer in (connection.receive() for _ in range(200))}
    assert [ticks[i] for i in range(200)] == sorted(ticks.values())


def test_repeats_are_known_by_producer_and_number(connection: WebSocketClient) -> None:
    message = {"publish": "Bids", "events": bid("rep"), "id": 1, "producer": "ws", "seq": 5}
    first, again = connection.ask(message), connection.ask(message)
    assert first["published"] == again["published"]
    assert again["repeated"] == 1
    assert connection.ask({**message, "events": bid("rep", 3)})["error"]["code"] == "E096"


def test_a_subscription_tells_all_and_then_what_changes(served: InProcessBroker, connection: WebSocketClient) -> None:
    before = connection.ask({"publish": "Bids", "events": bid("sub", 10), "id": 1})["published"][0]
    answer = connection.ask({"subscribe": "Totals", "id": 3, "where": {"issue": "sub"}, "after": {"Bids": before}})
    assert answer["subscribed"] == "Totals"
    assert answer["key"] == ["issue"]
    assert list(answer["columns"]) == ["issue", "total", "bids"]
    assert set(answer["streams"]) >= {"Bids"}
    first = connection.receive()
    assert (first["id"], first["n"], first["reset"]) == (3, 1, True)
    assert [row["row"] for row in first["rows"]] == [{"total": 10, "bids": 1}]
    assert first["rows"][0]["knowledge"]["bids"] == {"at_least": 1}
    assert int(first["progress"]["Bids"]) >= int(before)

    with served.websocket() as other:
        other.ask({"publish": "Bids", "events": bid("sub", 5), "id": 2})
    frame = connection.receive_until(lambda m: bool(m.get("rows")))
    assert "reset" not in frame
    assert [row["row"] for row in frame["rows"]] == [{"total": 15, "bids": 2}]
    assert connection.ask({"unsubscribe": 3}) == {"id": 3, "unsubscribed": True}
    assert connection.ask({"unsubscribe": 3})["error"]["code"] == "E093"


def test_a_token_brings_what_is_new_only(served: InProcessBroker, connection: WebSocketClient) -> None:
    tick = connection.ask({"publish": "Bids", "events": bid("res", 1), "id": 1})["published"][0]
    connection.ask({"subscribe": "Totals", "id": 1, "after": {"Bids": tick}})
    token = connection.receive_until(lambda m: "resume" in m)["resume"]
    with served.websocket() as other:
        tick = other.ask({"publish": "Bids", "events": bid("res", 2), "id": 1})["published"][0]
        other.ask({"subscribe": "Totals", "id": 1, "resume": token, "after": {"Bids": tick}})
        frame = other.receive()
        assert "reset" not in frame
        assert [row["key"] for row in frame["rows"]] == [{"issue": "res"}]
        assert other.ask({"subscribe": "Totals", "id": 2, "resume": "nonsense"})["error"]["code"] == "E094"


def test_a_window_holds_frames_back(tmp_path: Path) -> None:
    """On a broker of its own: the rows of other tests would need several frames."""
    with InProcessBroker(tmp_path) as served, served.websocket() as connection:
        connection.ask({"subscribe": "Totals", "id": 1, "window": 1})
        assert connection.receive()["n"] == 1
        for i in range(20):
            connection.ask({"publish": "Bids", "events": bid(f"win{i}"), "id": 9})
        (tick,) = served.publish("Bids", bid("win"))
        served.rows("Totals", Bids=tick)  # everything has been taken in by then
        assert connection.ask({"ping": [1, {"a": None}]}) == {"pong": [1, {"a": None}]}
        connection.send({"ack": 1, "n": 1})
        frame = connection.receive()
        assert frame["n"] == 2
        assert {row["key"]["issue"] for row in frame["rows"]} == {"win", *(f"win{i}" for i in range(20))}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("", "E093"),
        ("[", "E093"),
        ("[]", "E093"),
        ("17", "E093"),
        ("null", "E093"),
        ("{}", "E093"),
        (b"\x00\x01", "E093"),
        ('{"id":1}', "E093"),
        ('{"publish":"Bids"}', "E093"),
        ('{"publish":5,"events":{}}', "E093"),
        ('{"publish":"Bids","events":{},"subscribe":"Totals","id":1}', "E093"),
        ('{"publish":"Bids","events":{},"window":1}', "E093"),
        ('{"publish":"Bids","events":{},"more":1}', "E093"),
        ('{"publish":"Bids","events":{},"producer":"p"}', "E093"),
        ('{"publish":"Bids","events":{},"producer":"","seq":1}', "E093"),
        ('{"publish":"Bids","events":{},"producer":"p","seq":-1}', "E093"),
        ('{"publish":"Nope","events":{}}', "E076"),
        ('{"publish":"Bids","events":[{"price":-5}]}', "E080"),
        ('{"publish":"Bids","events":"text"}', "E074"),
        ('{"publish":"Bids","events":null}', "E074"),
        ('{"silence":"Bids","to":5}', "E079"),
        ('{"silence":"Bids","to":1e99}', "E093"),
        ('{"subscribe":"Totals"}', "E093"),
        ('{"subscribe":"Totals","id":"one"}', "E093"),
        ('{"subscribe":"Totals","id":99999999999999999999}', "E093"),
        ('{"subscribe":"Nope","id":1}', "E021"),
        ('{"subscribe":"Inner1","id":1}', "E021"),
        ('{"subscribe":"Totals","id":1,"where":{"total":5}}', "E099"),
        ('{"subscribe":"Totals","id":1,"where":{"nope":5}}', "E099"),
        ('{"subscribe":"Totals","id":1,"where":{"issue":[]}}', "E093"),
        ('{"subscribe":"Totals","id":1,"where":5}', "E093"),
        ('{"subscribe":"Totals","id":1,"after":{"Nope":5}}', "E076"),
        ('{"subscribe":"Totals","id":1,"after":{"Bids":-5}}', "E093"),
        ('{"subscribe":"Totals","id":1,"after":{"Bids":"x"}}', "E093"),
        ('{"subscribe":"Totals","id":1,"window":0}', "E093"),
        ('{"subscribe":"Totals","id":1,"resume":"x.y"}', "E094"),
        ('{"ack":1,"n":1}', "E093"),
        ('{"unsubscribe":1}', "E093"),
        ('{"subscribe":"Totals","id":1,"where":{"issue":"\\ud800"}}', "E093 E099"),
        ("[" * 50_000, "E093"),
        ('{"ping":' + "[" * 50_000 + "]" * 50_000 + "}", "E093"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_message_is_answered_and_the_connection_goes_on(
    connection: WebSocketClient, message: str | bytes, code: str
) -> None:
    answer = connection.ask(message)
    assert answer["error"]["code"] in code
    assert answer["error"]["message"]
    assert connection.ask({"ping": 1}) == {"pong": 1}


def test_an_error_says_whose_it_is(connection: WebSocketClient) -> None:
    assert connection.ask({"publish": "Nope", "events": {}, "id": 4})["id"] == 4
    assert connection.ask({"ack": 6, "n": 1})["id"] == 6
    connection.ask({"subscribe": "Totals", "id": 5})
    assert connection.ask({"subscribe": "Dear", "id": 5})["error"]["code"] == "E093"


def test_text_that_is_no_text(connection: WebSocketClient) -> None:
    connection.connection.send(b"\xff\xfe", text=True)
    assert connection.receive()["error"]["code"] == "E093"
    assert connection.ask({"ping": 1}) == {"pong": 1}


def test_a_message_beyond_the_limit_ends_the_connection(served: InProcessBroker, connection: WebSocketClient) -> None:
    connection.send(" " * (served.settings.message_bytes_max + 1))
    with pytest.raises(ConnectionClosed) as closed:
        connection.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    with served.websocket() as other:
        assert other.ask({"ping": 1}) == {"pong": 1}


def test_a_message_in_pieces(connection: WebSocketClient) -> None:
    connection.connection.send(iter(['{"pi', 'ng":', "5}"]))
    assert connection.receive() == {"pong": 5}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(4)))
def test_what_frames_come_to_is_what_the_view_shows(served: InProcessBroker, seed: int) -> None:
    """Several subscribers, some slow, some with conditions, some who come again."""
    random_ = random.Random(seed)
    issues = [f"s{seed}-{i}" for i in range(5)]
    with served.websocket() as publisher, served.websocket() as reader:
        chosen = [None, *issues[:3]]
        tables: dict[int, dict[str, object]] = {i: {} for i in range(len(chosen))}
        for i, issue in enumerate(chosen):
            reader.ask({"subscribe": "Totals", "id": i, **({"where": {"issue": issue}} if issue else {})})
        tokens: dict[int, str] = {}
        for _ in range(30):
            events = [bid(random_.choice(issues), random_.randrange(50)) for _ in range(random_.randrange(1, 8))]
            tick = publisher.ask({"publish": "Bids", "events": events, "id": 1})["published"][-1]
            if random_.random() < 0.2:
                i = random_.randrange(len(chosen))
                reader.send({"unsubscribe": i})
                while (message := reader.receive()).get("unsubscribed") is None:
                    _take(tables, tokens, message)
                where = {"where": {"issue": chosen[i]}} if chosen[i] else {}
                again = {"resume": tokens[i]} if i in tokens and random_.random() < 0.7 else {}
                reader.send({"subscribe": "Totals", "id": i, **where, **again})
        reached: set[int] = set()
        while len(reached) < len(chosen):
            message = reader.receive()
            _take(tables, tokens, message)
            if "progress" in message and int(message["progress"]["Bids"]) >= int(tick):
                reached.add(message["id"])
    with served.http() as http:
        for i, issue in enumerate(chosen):
            query = {"after.Bids": tick, **({"where.issue": issue} if issue else {})}
            shown = http.get("/views/Totals", params=query).json()["rows"]
            assert {k: v["row"] for k, v in tables[i].items()} == {json.dumps(r["key"]): r["row"] for r in shown}  # type: ignore[index]


def _take(tables: dict[int, dict[str, object]], tokens: dict[int, str], message: dict[str, object]) -> None:
    if "n" in message:
        i = message["id"]
        assert isinstance(i, int)
        apply_frame(tables[i], message)
        if isinstance(message.get("resume"), str):
            tokens[i] = str(message["resume"])


@pytest.mark.slow
def test_a_subscriber_that_stalls_delays_nobody_and_catches_up(served: InProcessBroker) -> None:
    """While its socket is full, nothing is taken from its subscription. Later it receives the present rows."""
    count, rounds = 2_000, 30
    with served.websocket(max_queue=1) as stalled, served.websocket() as publisher, served.websocket() as other:
        stalled.ask({"subscribe": "Totals", "id": 1})
        other.ask({"subscribe": "Totals", "id": 1})
        for _ in range(rounds):
            events = [bid(f"stall{i}", 1) for i in range(count)]
            tick = publisher.ask({"publish": "Bids", "events": events, "id": 1})["published"][-1]
        other.receive_until(lambda m: int(m.get("progress", {}).get("Bids", 0)) >= int(tick))
        table: dict[str, object] = {}
        row_count = 0
        while True:
            frame = stalled.receive()
            row_count += len(frame.get("rows", ()))
            assert len(frame.get("rows", ())) <= limits.frame_rows_max
            apply_frame(table, frame)
            if int(frame.get("progress", {}).get("Bids", 0)) >= int(tick):
                break
        mine = {k: v for k, v in table.items() if "stall" in k}
        assert len(mine) == count
        assert {json.dumps(v["row"]) for v in mine.values()} == {json.dumps({"total": rounds, "bids": rounds})}  # type: ignore[index]
        assert row_count < count * rounds / 2


@pytest.mark.slow
def test_one_who_does_not_read_his_answers_is_not_read_from(served: InProcessBroker) -> None:
    """Otherwise answers would fill the broker's memory."""
    with served.raw_socket() as raw:
        raw.sendall(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        payload = b'{"ping":"' + b"x" * 60_000 + b'"}'
        frame = b"\x81\xfe" + len(payload).to_bytes(2, "big") + b"\0\0\0\0" + payload
        data, sent = memoryview(frame * 2_000), 0
        raw.settimeout(1.0)
        try:
            while sent < len(data):
                sent += raw.send(data[sent:])
        except TimeoutError:
            pass
        assert sent < len(data)
    with served.websocket() as connection:
        assert connection.ask({"ping": 1}) == {"pong": 1}


def test_clients_that_vanish_leave_nothing(served: InProcessBroker) -> None:
    def vanish() -> None:
        connection = served.websocket()
        for i in range(20):
            connection.send({"subscribe": "Totals", "id": i})
            connection.send({"publish": "Bids", "events": [bid()] * 10})
        connection.connection.socket.close()

    threads = [threading.Thread(target=vanish) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    gateway = served.server.gateway
    assert gateway is not None
    with served.websocket() as connection:
        wait_until(
            lambda: not gateway.subscribers and gateway.pending_publications.count == 0, "something is left of them"
        )
        assert served.broker.view("Totals").subscriber_count == 0
        assert connection.ask({"ping": 1}) == {"pong": 1}


def test_browsers_give_the_token_as_a_protocol(served: InProcessBroker) -> None:
    with connect(f"ws://127.0.0.1:{served.port}/ws", subprotocols=["smile", "smile.token.x"], proxy=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "smile"
