"""Attacks on Arrow Flight: what a client can take of the broker's memory and threads is bounded, with a token and
without."""

import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

import grpc
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

from smile import limits
from smile.errors import SmileError
from smile.gateway.access import AccessDatabase, Grant
from smile.gateway.flight.protocol import SERVICE, encode_batch, encode_put_result, encode_schema, parse_flight_data
from smile.gateway.flight.published_batches import ByteBudget
from tests.brokers import PROGRAM, BrokerProcess, InProcessBroker
from tests.gateway.test_flight import STREAM, Floor, bids, floor, refused, until
from tests.gateway.test_flight_door import HEADERS, WINDOW, frame
from tests.processes import WAIT_S, free_port
from tests.repeatable import scaled

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = 4
END_STREAM, END_HEADERS = 1, 4


# ── without a token ─────────────────────────────────────────────────────────────────────────────────────────────────


def header_block(method: str) -> bytes:
    """The headers of a call without a token, each as a literal."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": f"{SERVICE}{method}".encode(),
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    return b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in fields.items())


@contextmanager
def unread_calls(
    port: int, method: str, connections: int, calls: int, request: bytes = b""
) -> Iterator[list[socket.socket]]:
    """Connections that begin calls, allow answers of any size, and read nothing."""
    headers, body = header_block(method), b"\0" + len(request).to_bytes(4, "big") + request
    window = (2**31 - 1).to_bytes(4, "big")
    start = frame(SETTINGS, 0, 0, b"\0\4" + window) + frame(WINDOW, 0, 0, (2**31 - 2**16).to_bytes(4, "big"))
    sockets = []
    try:
        for _ in range(connections):
            sockets.append(connection := socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.settimeout(1)
            connection.sendall(PREFACE + start)
        accepting = list(sockets)
        for first in range(0, calls, 100):
            data = b"".join(
                frame(HEADERS, END_HEADERS, stream, headers) + frame(0, END_STREAM, stream, body)
                for stream in range(2 * first + 1, 2 * min(calls, first + 100), 2)
            )
            for connection in list(accepting):
                try:
                    connection.sendall(data)
                except OSError:  # the broker does not read any more, or has closed it
                    accepting.remove(connection)
        yield sockets
    finally:
        for connection in sockets:
            connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["DoGet", "DoPut", "ListFlights"])
def test_unread_answers_take_neither_threads_nor_memory(tmp_path: Path, method: str) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    port = free_port()
    with BrokerProcess(tmp_path, options=["--flight", f"127.0.0.1:{port}", "--auth"]) as broker:
        broker.wait_for_line("Arrow Flight on ")
        before = broker.memory_bytes
        with unread_calls(port, method, 4, 10_000):
            time.sleep(1)
            assert broker.thread_count < 300
            assert broker.memory_bytes - before < 60 * 2**20
            with broker.http() as client:
                assert client.get("/health").status_code == 200
                assert client.get("/status").status_code == 401


def test_clients_that_do_not_read_are_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with floor(tmp_path) as here:
        for number in range(10):  # more than sockets take in
            here.publish(bids(*[(f"{number} {row}" * 100, 1) for row in range(5_000)]))
        here.client.close()
        monkeypatch.setattr(limits, "unread_s_max", 0.5)
        ticket = flight.Ticket(b'{"view":"Counts","follow":true}').serialize()
        with unread_calls(here.server.proxy.port, "DoGet", 2, 1, ticket):
            until(lambda: here.server.calls.count == 2)
            until(lambda: len(here.server.proxy.clients) == 0)
            until(lambda: here.server.calls.count == 0)


def test_connections_of_an_address_are_bounded(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, flight="127.0.0.1:0", connections_per_address_max=3) as served:
        assert served.server.flight is not None
        counts, port = served.server.counts, served.server.flight.proxy.port
        with served.http() as client, socket.create_connection(("127.0.0.1", port)), served.websocket():
            assert client.get("/health").status_code == 200
            until(lambda: counts.total == 3)
            with served.http() as another:
                answer = another.get("/health")
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "E092")
                assert "from this address" in answer.json()["error"]["message"]
            with suppress(ConnectionResetError), socket.create_connection(("127.0.0.1", port), WAIT_S) as over_limit:
                assert over_limit.recv(1) == b""
        until(lambda: counts.total == 0)


# ── with a token ────────────────────────────────────────────────────────────────────────────────────────────────────


def channel(here: Floor) -> grpc.Channel:
    options = [("grpc.max_receive_message_length", -1)]
    return grpc.insecure_channel(f"127.0.0.1:{here.server.proxy.port}", options)


def nothing_until(done: Event) -> Iterator[bytes]:
    """The requests of a client that sends none."""
    done.wait(WAIT_S)
    yield from ()


def test_calls_that_wait_for_their_client_end(here: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is never asked anything, and a subscriber that never reads."""
    random = Random(1)
    for _ in range(4):
        here.publish(bids(*[(f"{random.random()}" * 20, 1) for _ in range(5_000)]))
    done = Event()
    with channel(here) as raw:
        call = raw.stream_stream(f"{SERVICE}DoGet")(nothing_until(done))
        ticket = flight.Ticket(b'{"view":"Counts","follow":true}').serialize()
        unread = raw.unary_stream(f"{SERVICE}DoGet")(ticket)
        until(lambda: here.server.calls.count == 2)
        # The deadlines of these calls were set before.
        monkeypatch.setattr(limits, "request_s_max", 0.5)
        monkeypatch.setattr(limits, "unread_s_max", 0.5)
        for active in here.server.calls._active:
            if active.waits_until is not None:
                active.waits_until = 0
        until(lambda: here.server.calls.count == 0)
        done.set()
        for ended in (call, unread):
            with pytest.raises(grpc.RpcError):
                list(ended)
            assert ended.code() == grpc.StatusCode.CANCELLED
    assert here.broker.view("Counts").subscriber_count == 0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Floor]:
    with floor(tmp_path) as made:
        yield made


@contextmanager
def principals(here: Floor, *names: str) -> Iterator[tuple[AccessDatabase, list[str]]]:
    """Tokens of principals that may publish to Bids and subscribe to all views."""
    accounts = AccessDatabase(here.accounts)
    try:
        for name in names:
            accounts.grant(Grant("PUBLISH", "Bids", name))
            accounts.grant(Grant("SUBSCRIBE", "*", name))
        tokens = [accounts.add_token(name) for name in names]
        here.access._refreshed_at = -limits.access_age_s_max
        yield accounts, tokens
    finally:
        accounts.close()


def test_one_principal_does_not_use_up_all_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "flight_calls_per_principal_max", 2)
    with floor(tmp_path, auth=True) as here, principals(here, "anna", "bert") as (_, (anna, bert)):
        readers = [here.get(anna, view="Counts", follow=True) for _ in range(2)]
        for reader in readers:
            reader.read_chunk()
        with refused("E092", "anna has 2 calls in progress"):
            here.snapshot("Counts", anna)
        assert here.snapshot("Counts", bert) == []
        readers[0].cancel()
        until(lambda: here.server.calls.count == 1)
        assert here.snapshot("Counts", anna) == []
        readers[1].cancel()


def test_an_idle_publication_ends_with_its_token(tmp_path: Path) -> None:
    with floor(tmp_path, auth=True) as here, principals(here, "anna") as (accounts, (token,)):
        writer, answers = here.client.do_put(STREAM, bids(("IBM", 1)).schema, here.options(token))
        writer.write_batch(bids(("IBM", 1)))
        assert answers.read() is not None
        assert here.server.calls.count == 1
        accounts.revoke_tokens("anna")
        until(lambda: here.server.calls.count == 0)
        with suppress(flight.FlightError):
            writer.close()


# ── compression ─────────────────────────────────────────────────────────────────────────────────────────────────────


def publish_compressed(client: flight.FlightClient, batch: pa.RecordBatch, codec: str) -> None:
    write_options = pa.ipc.IpcWriteOptions(compression=codec)
    options = flight.FlightCallOptions(timeout=WAIT_S, write_options=write_options)
    writer, answers = client.do_put(STREAM, batch.schema, options)
    with writer:
        writer.write_batch(batch)
        assert answers.read() is not None
        writer.done_writing()


@pytest.mark.slow
def test_a_compressed_batch_is_refused_before_it_is_decompressed(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path, options=["--flight", address, "--bulk-bytes-max", "1000000"]) as broker:
        broker.wait_for_line("Arrow Flight on ")
        zeros = pa.RecordBatch.from_arrays([pa.array(np.zeros(40_000_000, np.int64))], names=["price"])
        with flight.FlightClient(f"grpc://{address}") as client:
            for codec in ("lz4", "zstd"):
                publish_compressed(client, zeros.slice(0, 1_000), codec)
                before = broker.memory_peak_bytes
                with refused("E092", r"batch 1: it has 320,000,\d+ bytes; at most 1,000,000 are allowed"):
                    publish_compressed(client, zeros, codec)
                assert broker.memory_peak_bytes - before < 20 * 2**20
                publish_compressed(client, zeros.slice(0, 100_000), codec)


def test_a_batch_in_the_format_before_arrow_1_is_refused(here: Floor) -> None:
    """Its compression is declared elsewhere."""
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, bids(("IBM", 1)).schema, options=options) as stream:
        stream.write_batch(bids(("IBM", 1)), custom_metadata={"ARROW:experimental_compression": "lz4"})
    schema, batch = pa.ipc.MessageReader.open_stream(sink.getvalue())
    first = encode_schema(bids().schema)
    assert schema is not None
    second = b"".join(
        [b"\x12", _varint(len(batch.metadata)), batch.metadata, b"\xc2\x3e", _varint(len(batch.body)), batch.body]
    )
    descriptor = STREAM.serialize()
    with channel(here) as raw:
        call = raw.stream_stream(f"{SERVICE}DoPut")(
            iter([b"\x0a" + _varint(len(descriptor)) + descriptor + first, second])
        )
        with pytest.raises(grpc.RpcError) as failure:
            list(call)
    assert "E074: batch 1: the events are not Arrow: the format is older" in failure.value.details()


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def test_bytes_of_all_publications_are_bounded() -> None:
    budget, order = ByteBudget(10), list[str]()
    budget.acquire(8, lambda: None)

    def second() -> None:
        budget.acquire(5, lambda: None)
        order.append("acquired")

    thread = Thread(target=second)
    thread.start()
    time.sleep(0.05)
    order.append("released")
    budget.release(8)
    thread.join(WAIT_S)
    assert order == ["released", "acquired"]
    assert budget.used == 5
    budget.release(5)
    budget.acquire(100, lambda: None)  # alone, it may be larger

    def fail() -> None:
        raise SmileError([])

    with pytest.raises(SmileError):
        budget.acquire(1, fail)
    assert budget.used == 100


# ── the wire format ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_is_parsed_as_it_was_encoded() -> None:
    batch = bids(("IBM", 1), ("DEC", 2))
    message = parse_flight_data(encode_batch(batch, b"about"))
    assert (bytes(message.metadata), bytes(message.descriptor)) == (b"about", b"")
    encapsulated = struct.pack("<iI", -1, len(message.header)) + bytes(message.header) + bytes(message.body)
    assert pa.ipc.read_record_batch(pa.ipc.read_message(encapsulated), batch.schema).equals(batch)
    assert parse_flight_data(encode_put_result(b"x" * 1000)).descriptor == b"x" * 1000


@pytest.mark.parametrize("seed", range(scaled(200)))
def test_any_bytes_are_a_message_or_refused(seed: int) -> None:
    random = Random(seed)
    data = bytearray(encode_batch(bids(("IBM", 1)), b"about") if random.random() < 0.5 else random.randbytes(50))
    for _ in range(random.randrange(4)):
        data[random.randrange(len(data))] = random.randrange(256)
    codes = list[str]()
    try:
        parse_flight_data(bytes(data[: random.choice([None, random.randrange(len(data))])]))
    except SmileError as problem:
        codes = [diagnostic.code for diagnostic in problem.diagnostics]
    assert codes in ([], ["E093"])


@pytest.mark.parametrize("seed", range(scaled(100)))
def test_damaged_messages_are_refused(seed: int, shared: Floor) -> None:
    random = Random(seed)
    descriptor = STREAM.serialize()
    messages = [
        bytearray(b"\x0a" + _varint(len(descriptor)) + descriptor + encode_schema(bids().schema)),
        bytearray(encode_batch(bids(("IBM", 1)), b"")),
    ]
    for _ in range(random.randrange(1, 5)):
        message = random.choice(messages)
        message[random.randrange(len(message))] = random.randrange(256)
    details = "E093"
    with channel(shared) as raw:
        call = raw.stream_stream(f"{SERVICE}DoPut")(iter(map(bytes, messages)), timeout=WAIT_S)
        try:
            list(call)
        except grpc.RpcError as failure:
            details = failure.details()
    assert re.match("E0[79]", details), details
    until(lambda: shared.server.calls.count == 0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with floor(tmp_path_factory.mktemp("attacks")) as made:
        yield made
