"""Malformed and hostile input on every entry: each answer is an error of the catalogue, and the broker works afterwards."""

import json
import socket
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from websockets.frames import Frame, Opcode

from smile import limits
from smile.errors import CATALOGUE
from tests.brokers import InProcessBroker, bid
from tests.processes import wait_until

BOUNDED = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("hostile"), message_bytes_max=50_000) as broker:
        yield broker
        with broker.http() as http:
            tick = http.post("/streams/Bids/events", json=bid("last", 5)).json()["ticks"][0]
            rows = http.get("/views/Totals", params={"after.Bids": tick, "where.issue": "last"}).json()["rows"]
            assert rows[0]["row"] == {"total": 5, "bids": 1}


def answers(raw: socket.socket) -> list[tuple[int, bytes]]:
    """What comes back, to the end: status and body of each answer."""
    data = b""
    try:
        while part := raw.recv(65_536):
            data += part
    except ConnectionResetError:
        pass
    responses = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0].startswith(b"HTTP/1.1 "), data[:200]
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        size = int(headers.get(b"content-length", b"0"))
        responses.append((int(lines[0].split()[1]), rest[:size]))
        data = rest[size:]
    return responses


def check(status: int, body: bytes) -> None:
    assert status != 500, body
    if status >= 400 and body:
        problem = json.loads(body)["error"]
        assert problem["code"] in CATALOGUE
        assert problem["message"]


def sent(served: InProcessBroker, data: bytes) -> list[tuple[int, bytes]]:
    with served.raw_socket() as raw:
        try:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
        except (ConnectionResetError, BrokenPipeError, OSError):
            pass
        return answers(raw)


@BOUNDED
@given(st.binary(max_size=300))
def test_bytes_that_are_no_request(served: InProcessBroker, data: bytes) -> None:
    for answer in sent(served, data):
        check(*answer)


paths = st.sampled_from(
    """/ /ws /health /status /metrics /program /openapi.json /views /views/Totals /views/Totals/changes/x /views/%00 /views/ /views/..
    /streams/Bids/events /streams/Bids/silence /streams/%ff/events /streams/Bids%2Fevents /streams//events /views/%F0%9F%98%80
    /views/Dear?format=csv /views/Dear?where.issue= * http://x/views /views/Totals?after.Bids=9&wait_ms=1 //health ?""".split()
) | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40).map(lambda t: "/" + t)
values = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60)
headers = st.lists(
    st.tuples(
        st.sampled_from(
            """Host Content-Type Content-Length Authorization Origin Accept Smile-Producer Smile-Sequence Last-Event-ID
            Transfer-Encoding Expect Upgrade Connection Sec-WebSocket-Key Sec-WebSocket-Version Cookie""".split()
        )
        | st.text(string.ascii_letters, min_size=1, max_size=10),
        values
        | st.sampled_from(
            """application/json application/x-ndjson application/vnd.apache.arrow.stream chunked close 100-continue
            websocket Upgrade 13 0 -1 99999999999 localhost Bearer null""".split()
        ),
    ),
    max_size=6,
)
methods = st.sampled_from("GET HEAD POST PUT DELETE OPTIONS PATCH TRACE CONNECT BREW".split())
bodies = st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["issue", "price", "big", "weight", "bidid", "to", "x"]), inner, max_size=4)
    ),
    max_leaves=10,
).map(lambda value: json.dumps(value).encode())


@BOUNDED
@given(methods, paths, headers, bodies, st.booleans())
def test_requests_of_any_kind(
    served: InProcessBroker, method: str, path: str, given_: list[tuple[str, str]], body: bytes, fits: bool
) -> None:
    if path.startswith("/views/Totals/changes"):
        path += "/x"
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    if fits:
        given_ = [(k, v) for k, v in given_ if k in ("Content-Type", "Accept", "Smile-Producer", "Smile-Sequence")]
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in given_]
    responses = sent(served, "\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    for status, answer in responses:
        check(status, b"" if method == "HEAD" else answer)
    assert responses or not fits


ids = st.integers(0, 3) | st.integers() | st.none() | st.text(max_size=3)
names = st.sampled_from(["Bids", "Trades", "Totals", "Dear", "Inner1", "", "x" * 300, "\ud800", "\x00"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
events = st.lists(st.fixed_dictionaries({"issue": st.text(max_size=5), "price": st.integers(-5, 200)}), max_size=3)
fields = st.fixed_dictionaries(
    {},
    optional={
        "publish": names | anything, "events": events | anything, "id": ids, "producer": names | anything,
        "seq": st.integers(-1, 5) | anything, "silence": names, "to": anything, "subscribe": names | anything,
        "where": st.dictionaries(st.sampled_from(["issue", "total", "price", "x"]), anything, max_size=2) | anything,
        "resume": st.text(max_size=40) | anything, "after": anything, "window": ids, "ack": ids, "n": ids,
        "unsubscribe": ids, "ping": anything, "other": anything,
    },
)  # fmt: skip
likely = st.one_of(
    st.fixed_dictionaries({"publish": names, "events": events, "id": ids}),
    st.fixed_dictionaries({"subscribe": names, "id": ids}, optional={"window": st.integers(1, 3), "where": anything}),
    st.fixed_dictionaries({"ack": ids, "n": ids}),
    st.fixed_dictionaries({"unsubscribe": ids}),
)
messages = (fields | likely | anything).map(json.dumps) | st.text(max_size=100) | st.binary(max_size=100)


@BOUNDED
@given(st.lists(messages, max_size=15))
def test_messages_of_any_shape_in_any_order(served: InProcessBroker, given_: list[str | bytes]) -> None:
    with served.websocket() as connection:
        for message in given_:
            connection.send(message.encode(errors="replace").decode() if isinstance(message, str) else message)
        connection.send({"ping": "the last"})
        while (answer := connection.receive()) != {"pong": "the last"}:
            assert answer.keys() & {"error", "published", "silent", "subscribed", "unsubscribed", "n", "pong", "ended"}
            if "error" in answer:
                assert answer["error"]["code"] in CATALOGUE


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def framed(opcode: int, data: bytes) -> bytes:
    return Frame(Opcode(opcode), data).serialize(mask=True)


@BOUNDED
@given(
    st.lists(
        st.binary(max_size=60) | st.builds(framed, st.sampled_from([0, 1, 2, 8, 9, 10]), st.binary(max_size=100)),
        max_size=6,
    )
)
def test_frames_that_are_none(served: InProcessBroker, frames: list[bytes]) -> None:
    with served.raw_socket() as raw:
        raw.sendall(UPGRADE)
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        try:
            for frame in frames:
                raw.sendall(frame)
        except (ConnectionResetError, BrokenPipeError):
            pass


@pytest.mark.parametrize(
    "begun",
    [
        b"GET",
        b"GET /health HTTP/1.1\r\nHost: loc",
        b"POST /streams/Bids/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"POST /streams/Bids/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        UPGRADE + framed(1, b"x" * 100)[:50],
        UPGRADE[:-2],
        b"",
    ],
    ids=range(7),
)
def test_what_is_half_sent_is_dropped(served: InProcessBroker, begun: bytes) -> None:
    before = _events(served)
    with served.raw_socket() as raw:
        raw.sendall(begun)
    assert _events(served) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /health HT", b"POST /streams/Bids/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"],
    ids=range(3),
)
def test_what_takes_too_long_to_come(served: InProcessBroker, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(limits, "request_s_max", 0)
    with served.raw_socket() as raw:
        raw.sendall(begun)
        ((status, body),) = answers(raw)
    assert (status, json.loads(body)["error"]["code"]) == (408, "E108")


def test_headers_without_end(served: InProcessBroker) -> None:
    ((status, body),) = sent(
        served, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2 * limits.head_bytes_max
    )
    assert (status, json.loads(body)["error"]["code"]) == (431, "E092")
    many = b"".join(b"x%d: y\r\n" % i for i in range(20_000))
    ((status, body),) = sent(served, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + many)
    assert (status, json.loads(body)["error"]["code"]) == (431, "E092")


def test_requests_that_follow_each_other_are_answered_in_order(served: InProcessBroker) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    two = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with served.raw_socket() as raw:
        raw.sendall(one * 3 + two)
        assert [status for status, _ in answers(raw)] == [200, 200, 200, 404]


@pytest.mark.parametrize(
    "twice",
    ["Host: evil", "Authorization: Bearer a\r\nAuthorization: Bearer b", "Origin: null\r\nOrigin: http://localhost"],
)
def test_a_header_that_is_there_twice(served: InProcessBroker, twice: str) -> None:
    responses = sent(
        served, f"GET /program HTTP/1.1\r\nHost: localhost\r\n{twice}\r\nConnection: close\r\n\r\n".encode()
    )
    assert [status for status, _ in responses] == [400]


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"])
def test_bodies_that_are_something_else(served: InProcessBroker, kind: str) -> None:
    with served.http() as http:

        @BOUNDED
        @given(st.binary(max_size=400) | bodies)
        def one(body: bytes) -> None:
            response = http.post("/streams/Bids/events", content=body, headers={"content-type": kind})
            check(response.status_code, response.content)

        one()


def _events(served: InProcessBroker) -> Any:
    """How many events were published, once nothing is being published any more."""
    gateway = served.server.gateway
    assert gateway is not None
    wait_until(lambda: gateway.pending_publications.count == 0, "publications are not answered")
    with served.http() as http:
        assert http.get("/health").status_code == 200
        return http.get("/status").json()["gateway"]["events"]
