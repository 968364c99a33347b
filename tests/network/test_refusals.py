"""What can be wrong between two brokers: each is a clear error or a state in the status, and the rest goes on."""

import json
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.server import ServerConnection, serve

from smile import limits
from smile.errors import SmileError
from smile.gateway.access import Grant, Right
from smile.gateway.links.close_reason import close_reason, closed_error
from smile.gateway.links.description_client import DescriptionClient
from smile.links.messages import VERSION, Heartbeat, Hello, decode_message, encode_message
from smile.settings import NeighbourSettings
from tests.brokers import InProcessBroker
from tests.network.test_two_brokers import BIDS, EXPORTING
from tests.processes import WAIT_S, free_port, invoke_smile, make_certificate, wait_until

IMPORTING = BIDS.replace("Bids", "Own") + (
    "IMPORT Sums FROM buys;\nCREATE VIEW Large AS SELECT issue, total FROM Sums WHERE total >= 10;\n"
    "CREATE VIEW OwnSums AS SELECT issue, SUM(shares) AS total FROM Own GROUP BY issue;\nSUBSCRIBE Large, OwnSums;\n"
)
Json = dict[str, Any]


def neighbours(url: str, **more: str) -> Mapping[str, NeighbourSettings]:
    return {"buys": NeighbourSettings(url=(url,), **more)}


def import_of(broker: InProcessBroker, name: str = "Sums") -> Json:
    status: Json = broker.broker.status()["imports"][name]
    return status


def wait_for_problem(broker: InProcessBroker, code: str, state: str) -> Json:
    """Waits until the import shows the error."""

    def find() -> Json | None:
        status = import_of(broker)
        problem = status["problem"]
        return problem if problem and problem["code"] == code and status["state"] == state else None

    try:
        problem = wait_until(find, f"{code} does not appear")
    except AssertionError as failure:
        raise AssertionError(f"{failure}: {broker.broker.status()['imports']}") from None
    assert problem is not None
    return problem


def assert_goes_on(broker: InProcessBroker) -> None:
    """What has nothing to do with the import works."""
    (tick,) = broker.publish("Own", {"issue": "IBM", "shares": 3})
    (row,) = broker.rows("OwnSums", Own=tick)
    assert row["row"]["total"] % 3 == 0
    with broker.http() as client:
        assert client.get("/ready").status_code == 200


# ── descriptions ────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch_error(brokers: Mapping[str, NeighbourSettings], broker: str = "buys", relation: str = "Sums") -> str:
    with pytest.raises(SmileError) as failure:
        DescriptionClient(brokers).fetch(broker, relation)
    (first,) = failure.value.diagnostics
    return f"{first.code}: {first.message} / {first.hint}"


def test_descriptions(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, EXPORTING, broker_name="buys") as buys:
        known = neighbours(buys.url)
        assert json.loads(DescriptionClient(known).fetch("buys", "Sums"))["history"]
        text = fetch_error(known, relation="Sumz")
        assert text.startswith("E021: buys: there is no stream or view Sumz") and "Did you mean Sums?" in text
        assert fetch_error(known, "buyz").startswith("E100: the settings have no broker buyz") and "Did you mean buys?"
        assert "no address of buys" in fetch_error({"buys": NeighbourSettings()})
        types = tmp_path / "types.json"
        types.write_text('{"buys": {"Sums": {"format": 1}}}')
        only_types = {"buys": NeighbourSettings(types=str(types))}
        assert json.loads(DescriptionClient(only_types).fetch("buys", "Sums")) == {"format": 1}
        assert "has no type of Sumz at buys" in fetch_error(only_types, relation="Sumz")
        text = fetch_error(neighbours(buys.url.replace("http", "https")))
        assert text.startswith("E103: buys cannot be reached at https://") and "there is no TLS" in text
        assert "write http:// in [brokers.buys] url" in text
        # The second address of a neighbour is asked if the first one does not answer.
        both = {"buys": NeighbourSettings(url=(f"http://127.0.0.1:{free_port()}", buys.url))}
        assert DescriptionClient(both).fetch("buys", "Sums")
    assert "Connection refused" in fetch_error(known)


def test_a_neighbour_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "neighbour_answer_s_max", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = fetch_error(neighbours(f"http://127.0.0.1:{listener.getsockname()[1]}"))
    assert text.startswith("E103: buys cannot be reached") and "no answer within 0 s" in text


@contextmanager
def endless_server(part: bytes, pause_s: float) -> Iterator[str]:
    """Answers each request with the same bytes again and again."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
            while not ended.wait(pause_s):
                connection.sendall(part)

    def accept() -> None:
        with suppress(OSError):
            while True:
                answer(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)


def test_descriptions_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with endless_server(b"x" * 2**20, 0.0) as url:
        assert fetch_error(neighbours(url)).startswith("E027: buys has sent more than 16,777,216 bytes")
    monkeypatch.setattr(limits, "neighbour_answer_s_max", 0.5)
    with endless_server(b" ", 0.1) as url:
        assert "no answer within" in fetch_error(neighbours(url))


def test_a_neighbour_that_is_no_broker(tmp_path: Path) -> None:
    with nonsense_server(lambda _: None) as url:
        text = fetch_error(neighbours(url))
    assert "it has answered with status 426" in text and "is that a SMILE broker" in text


def test_descriptions_need_a_token_and_a_grant(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with InProcessBroker(
        tmp_path, EXPORTING, broker_name="buys", auth=True, tls_cert=str(certificate), tls_key=str(key)
    ) as buys:
        accounts = buys.accounts()
        token = accounts.add_token("floor")
        assert "its certificate is not trusted: self" in fetch_error(neighbours(buys.url, token=token))
        assert fetch_error(neighbours(buys.url, ca=str(certificate))).startswith("E091: buys: a token is needed")
        wrong = fetch_error(neighbours(buys.url, token="smile_x", ca=str(certificate)))
        assert wrong.startswith("E091: buys: the token is not known") and "[brokers.buys] token" in wrong
        right = neighbours(buys.url, token=token, ca=str(certificate))
        assert fetch_error(right).startswith("E090: buys: floor has no right to SUBSCRIBE ON Sums")
        accounts.grant(Grant(Right.subscribe, "Sums", "floor"))
        accounts.close()
        wait_until(lambda: buys.access.is_allowed("floor", Right.subscribe, "Sums"), "there is no grant")
        assert json.loads(DescriptionClient(right).fetch("buys", "Sums"))["history"]


def test_the_first_start_waits_for_the_neighbour_and_later_ones_do_not(tmp_path: Path) -> None:
    port = free_port()
    brokers = neighbours(f"http://127.0.0.1:{port}")
    with InProcessBroker(tmp_path / "floor", IMPORTING, broker_name="floor", brokers=brokers) as floor:
        (entry,) = floor.broker.status()["waiting"]
        assert (entry["relation"], entry["brokers"], entry["code"]) == ("Sums", ["buys"], "E103")
        assert_goes_on(floor)
        with floor.http() as client:
            answer = client.get("/views/Large")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "E138")
            answer = client.get("/exports/Large")
            assert answer.json() == {"waiting": True, "sources": [["floor", "Large", "buys", "Sums"]]}
        text = invoke_smile("status", "--url", floor.url).stdout
        assert "for the description of Sums from buys: E103: buys cannot be reached" in text
        with InProcessBroker(tmp_path / "buys0", EXPORTING, broker_name="buys", listen=f"127.0.0.1:{port}") as buys:
            buys.publish("Bids", {"issue": "SUN", "shares": 20})
            wait_until(lambda: "Large" in floor.broker.views and floor.rows("Large"), "it does not continue")
    with InProcessBroker(tmp_path / "buys", EXPORTING, broker_name="buys") as buys:
        brokers = neighbours(buys.url)
        with InProcessBroker(tmp_path / "floor2", IMPORTING, broker_name="floor", brokers=brokers) as floor:
            buys.publish("Bids", {"issue": "SUN", "shares": 20})
            wait_until(lambda: floor.rows("Large"), "nothing is imported")
    with InProcessBroker(tmp_path / "floor2", None, broker_name="floor", brokers=brokers) as floor:
        problem = wait_for_problem(floor, "E103", "waiting")
        assert "Connection refused" in problem["message"]
        assert [row["row"]["total"] for row in floor.rows("Large")] == [20]
        assert_goes_on(floor)
        text = invoke_smile("status", "--url", floor.url).stdout
        assert "link buys" in text and "absent for" in text and "opened 0 times: E103: buys cannot be reached" in text
        assert "view Sums of buys: waiting" in text


# ── tokens and TLS on links ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_tokens_tls_and_grants_on_links(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    secure: Json = {"auth": True, "tls_cert": str(certificate), "tls_key": str(key)}
    with InProcessBroker(tmp_path / "buys", EXPORTING, broker_name="buys", **secure) as buys:
        accounts = buys.accounts()
        accounts.grant(Grant(Right.subscribe, "Sums", "floor"))
        accounts.grant(Grant(Right.subscribe, "Sums", "somebody"))
        accounts.grant(Grant(Right.publish, "Bids", "publisher"))
        token, publisher, somebody = (accounts.add_token(name) for name in ("floor", "publisher", "somebody"))
        context = ssl.create_default_context(cafile=str(certificate))

        def publish(shares: int) -> None:
            with buys.http(publisher, verify=context) as client:
                assert client.post("/streams/Bids/events", json={"issue": "IBM", "shares": shares}).status_code == 200

        def start(folder: str, token: str, ca: str = str(certificate)) -> InProcessBroker:
            brokers = neighbours(buys.url, token=token, ca=ca)
            return InProcessBroker(tmp_path / folder, IMPORTING, broker_name="floor", brokers=brokers)

        publish(10)
        with start("floor", token) as floor:
            wait_until(lambda: [r["row"]["total"] for r in floor.rows("Large")] == [10], "nothing is imported")
            accounts.revoke(Grant(Right.subscribe, "Sums", "floor"))
            wait_for_problem(floor, "E090", "refused")
            publish(5)
            assert_goes_on(floor)
            wait_until(
                lambda: [t["subject"] for t in floor.broker.status()["troubles"] if t["kind"] == "import"] == ["Sums"],
                "there is no trouble",
            )
            accounts.grant(Grant(Right.subscribe, "Sums", "floor"))
            accounts.revoke_tokens("floor")
            problem = wait_for_problem(floor, "E091", "waiting")
            assert "token" in problem["message"]
            assert [r["row"]["total"] for r in floor.rows("Large")] == [10]
        # A principal that is not named as the broker may ask for descriptions, but is no neighbour.
        with start("floor2", somebody) as floor:
            problem = wait_for_problem(floor, "E090", "waiting")
            assert "somebody may not act as the broker floor" in problem["message"]
        accounts.close()
        with InProcessBroker(
            tmp_path / "floor", None, broker_name="floor", brokers=neighbours(buys.url, token=token)
        ) as floor:
            assert "certificate is not trusted" in wait_for_problem(floor, "E103", "waiting")["message"]
            assert_goes_on(floor)


def test_callers_are_checked_like_all_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with InProcessBroker(tmp_path, EXPORTING, broker_name="buys", auth=True) as buys:
        with pytest.raises(InvalidStatus) as refusal, buys.websocket(path="/link"):
            pass
        assert refusal.value.response.status_code == 401
        token = buys.accounts().add_token("floor")
        refused = buys.websocket(token, "/link", origin="https://evil.example")
        with pytest.raises(ConnectionClosed) as closed, refused:
            refused.receive()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        with buys.http(token) as client:
            assert client.get("/link").status_code == 426
    # A neighbour with a wrong token calls again and again.
    assert [record.message for record in caplog.records if record.name.startswith("uvicorn")] == []


# ── nonsense ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def nonsense_server(handle: Callable[[ServerConnection], None]) -> Iterator[str]:
    """A WebSocket server that is no broker."""
    with serve(handle, "127.0.0.1", 0, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join(WAIT_S)


def hello(version: int = VERSION, broker: str = "buys") -> bytes:
    return encode_message(Hello(version, version, broker, "run", has_heard=True))


@pytest.mark.parametrize(
    ("messages", "code", "text"),
    [
        ([b"\xff" * 100], "E120", "not a message of a link"),
        ([os.urandom(2**20)], "E120", "not a message of a link"),
        ([hello(), b"\0\0\0\x02{}"], "E120", "wrong message"),
        (["text"], "E120", "sent text"),
        ([hello(VERSION + 7)], "E122", f"knows versions {VERSION + 7} to {VERSION + 7} of the link protocol"),
        ([hello(broker="sells")], "E126", "buys was called, but sells has answered"),
        ([hello(broker="floor")], "E126", "both brokers of the link are named floor"),
        ([hello(), hello(broker="sells")], "E120", "now calls itself sells"),
    ],
    ids=["bytes", "megabyte", "object", "text", "version", "other name", "same name", "new name"],
)
def test_a_neighbour_that_speaks_nonsense(tmp_path: Path, messages: list[str | bytes], code: str, text: str) -> None:
    reasons: list[str] = []

    def speak(connection: ServerConnection) -> None:
        for message in messages:
            connection.send(message)
        try:
            while True:
                connection.recv(WAIT_S)
        except ConnectionClosed as closed:
            reasons.append(closed.rcvd.reason if closed.rcvd else "")

    with InProcessBroker(tmp_path / "buys", EXPORTING, broker_name="buys") as buys:
        brokers = neighbours(buys.url)
        InProcessBroker(tmp_path / "floor", IMPORTING, broker_name="floor", brokers=brokers).stop()
    with (
        nonsense_server(speak) as url,
        InProcessBroker(tmp_path / "floor", None, broker_name="floor", brokers=neighbours(url)) as floor,
    ):
        problem = wait_for_problem(floor, code, "waiting")
        assert text in problem["message"]
        assert_goes_on(floor)
        wait_until(lambda: reasons, "the neighbour is not told why")
        assert reasons[0].startswith(f"{code}: ")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\0" * 9, "E120"),
        ("{}", "E120"),
        (encode_message(Hello(9, 9, "floor", "run")), "E122"),
        (encode_message(Hello(VERSION, VERSION, "buys", "run")), "E126"),
    ],
    ids=["bytes", "text", "version", "name"],
)
def test_a_caller_that_speaks_nonsense(tmp_path: Path, message: str | bytes, code: str) -> None:
    with InProcessBroker(tmp_path, EXPORTING, broker_name="buys") as buys, buys.websocket(path="/link") as neighbour:
        packet = neighbour.connection.recv(WAIT_S)
        assert isinstance(packet, bytes)
        greeting, _ = decode_message(packet)
        assert isinstance(greeting, Hello) and greeting.broker == "buys"
        neighbour.send(message)
        closed: ConnectionClosed | None = None
        while closed is None:
            try:
                neighbour.connection.recv(WAIT_S)
            except ConnectionClosed as ending:
                closed = ending
        assert closed.rcvd is not None
        assert (closed.rcvd.code, closed.rcvd.reason[:5]) == (1008, f"{code}:")
        buys.publish("Bids", {"issue": "IBM", "shares": 7})
        wait_until(lambda: not buys.broker.status()["links"], "a link is left")


def test_large_messages_of_a_caller_that_nothing_is_imported_from(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, EXPORTING, broker_name="buys") as buys, buys.websocket(path="/link") as neighbour:
        neighbour.send(hello(broker="floor"))
        with suppress(ConnectionClosed):  # perhaps while the message is still being sent
            neighbour.send(encode_message(Heartbeat(1), b"x" * limits.link_request_bytes_max))
        with pytest.raises(ConnectionClosed):
            deque(neighbour.connection, 0)
        wait_until(lambda: not buys.broker.status()["links"], "a link is left")


def test_reasons_survive_the_close_of_a_connection() -> None:
    problem = closed_error("x", *close_reason(closed_error("buys", 1008, f"E126: {'ä' * 100}")))
    assert problem.diagnostics[0].code == "E126"
    assert problem.diagnostics[0].message.startswith("x has closed the link: buys has closed the link: ää")
    assert "has stopped" in str(closed_error("x", *close_reason(None)))
    assert "was lost" in str(closed_error("x", 1008, "E999: no such code"))
