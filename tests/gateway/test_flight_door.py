"""The door of Arrow Flight: it knows the length of every message whatever pieces it comes in, and lets in no more than
may be."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyarrow import flight

from smile import limits
from smile.gateway.flight.proxy import (
    DATA,
    END_STREAM,
    PADDED,
    PREFACE_BYTES,
    RST_STREAM,
    BufferedBytes,
    ConnectionRefused,
    GrpcMessageParser,
)
from tests.gateway.test_flight import Floor, bids, floor, memory, until
from tests.processes import WAIT_S, wait_until
from tests.repeatable import scaled

HEADERS, WINDOW = 1, 8


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def message(length: int, compressed: bool = False) -> bytes:
    return bytes([compressed]) + length.to_bytes(4, "big") + bytes(length)


def sent(random: Random, streams: dict[int, bytes], ending: set[int]) -> bytes:
    """What the streams say, in frames of any size and order, with others in between. Those that are ending say so."""
    parts = [bytes(PREFACE_BYTES)]
    left = dict(streams)
    while left:
        stream = random.choice(list(left))
        size = random.choice([0, 1, 3, 5, 100, 5000])
        data, left[stream] = left[stream][:size], left[stream][size:]
        flags = END_STREAM if not left[stream] and stream in ending else 0
        if not left[stream]:
            del left[stream]
        if random.random() < 0.3:
            padding = random.randrange(200)
            parts.append(frame(DATA, flags | PADDED, stream, bytes([padding]) + data + bytes(padding)))
        else:
            parts.append(frame(DATA, flags, stream, data))
        if random.random() < 0.2:
            parts.append(
                frame(random.choice([HEADERS, WINDOW, 4, 9]), random.randrange(256), stream, random.randbytes(9))
            )
    return b"".join(parts)


def feed(random: Random, messages: GrpcMessageParser, data: bytes) -> None:
    while data:
        size = random.choice([1, 2, 9, 50, 1000, 100_000])
        messages.feed(data[:size])
        data = data[size:]


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_lengths_are_known_whatever_pieces_they_come_in(seed: int) -> None:
    random, held = Random(seed), BufferedBytes()
    sent_messages = {stream: whole(random) for stream in (1, 3, 5)}
    come = random.randrange(1000)  # of a message that does not end
    sent_messages[5] += message(1000)[: 5 + come]
    messages = GrpcMessageParser(3000, held)
    feed(random, messages, sent(random, sent_messages, {1}))
    assert held.total == come
    if random.random() < 0.5:
        messages.feed(frame(RST_STREAM, 0, 5, bytes(4)))
    else:
        messages.close()
    assert held.total == 0


def whole(random: Random) -> bytes:
    return b"".join(message(random.choice([0, 1, 50, 3000])) for _ in range(random.randrange(1, 6)))


@pytest.mark.parametrize("seed", range(scaled(60)))
@pytest.mark.parametrize("wrong", ["long", "compressed"])
def test_what_is_wrong_is_noticed_wherever_it_is(seed: int, wrong: str) -> None:
    random = Random(seed)
    good = b"".join(message(random.randrange(300)) for _ in range(random.randrange(5)))
    bad = message(301) if wrong == "long" else message(20, compressed=True)
    streams = {1: good + bad + good, 3: good}
    with pytest.raises(
        ConnectionRefused, match="at most 300 are allowed" if wrong == "long" else "must not be compressed"
    ):
        feed(random, GrpcMessageParser(300, BufferedBytes()), sent(random, streams, {1, 3}))


def test_padding_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConnectionRefused, match="more padding"):
        GrpcMessageParser(300, BufferedBytes()).feed(bytes(PREFACE_BYTES) + frame(DATA, PADDED, 1, bytes([9, 0, 0])))


def test_what_waits_is_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "flight_waiting_bytes_max", 5000)
    held = BufferedBytes()
    begun = frame(DATA, 0, 1, message(3000)[:2005])
    first, second, third = (GrpcMessageParser(3000, held) for _ in range(3))
    for one in (first, second):
        one.feed(bytes(PREFACE_BYTES) + begun)
    with pytest.raises(ConnectionRefused, match="receiving too much data"):
        third.feed(bytes(PREFACE_BYTES) + begun)
    third.close()
    first.feed(frame(DATA, 0, 1, bytes(1000)))
    assert held.total == 2000
    second.close()
    assert held.total == 0


# ── with gRPC behind it ─────────────────────────────────────────────────────────────────────────────────────────────

HUGE = """
import sys
from pyarrow import flight
client = flight.FlightClient(sys.argv[1])
try:
    list(client.do_action(flight.Action("silence", b" " * 200_000_000)))
except Exception as problem:
    print(problem)
"""


@pytest.mark.slow
def test_a_message_of_any_length_from_anybody_costs_nothing(tmp_path: Path) -> None:
    with floor(tmp_path, auth=True, bulk_bytes_max=2**20) as here:
        before = memory()
        process = subprocess.run(
            [sys.executable, "-c", HUGE, here.server.location], capture_output=True, text=True, timeout=WAIT_S
        )
        assert "E092: a message has 200,000" in process.stdout
        assert memory() - before < 50 * 2**20
        assert here.server.proxy.buffered.total == 0


def test_connections_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with floor(tmp_path, connections_max=2) as here:
        here.publish(bids(("IBM", 1)))
        with flight.FlightClient(here.server.location) as second:
            list(second.list_flights())
            third = flight.FlightClient(here.server.location)
            with pytest.raises((flight.FlightError, pa.ArrowException)):
                list(third.list_flights(options=flight.FlightCallOptions(timeout=WAIT_S)))
            third.close()
            assert wait_until(
                lambda: "E092: there are 2 connections already" in caplog.text, "the refusal is not logged"
            )
            here.publish(bids(("IBM", 1)))
        until(lambda: len(here.server.proxy.clients) == 1)
        with flight.FlightClient(here.server.location) as another:
            assert list(another.list_flights())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with floor(tmp_path_factory.mktemp("door")) as made:
        yield made


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_whatever_comes_in_it_goes_on(seed: int, shared: Floor) -> None:
    random = Random(seed)
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    said = random.choice(
        [
            random.randbytes(random.randrange(2000)),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            start + random.randbytes(random.randrange(2000)),
            start + frame(HEADERS, 4, 1, random.randbytes(100)) + frame(DATA, 0, 1, message(10)),
            start + frame(DATA, 0, 1, message(2**20)[:500]),
            start + frame(DATA, END_STREAM, 1, b"\1\0\0\0\1x"),
            b"",
        ]
    )
    with socket.create_connection(("127.0.0.1", shared.server.proxy.port), WAIT_S) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(WAIT_S)
        while connection.recv(4096):
            pass
    until(lambda: shared.server.proxy.buffered.total == 0)
    shared.publish(bids(("IBM", 1)))
    until(lambda: len(shared.server.proxy.clients) == 1)
