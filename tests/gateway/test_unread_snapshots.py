"""Snapshots that nobody reads: they are encoded in parts, bounded in number and in bytes, and their clients are
disconnected."""

import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from smile import limits
from smile.gateway import frames
from smile.gateway.gateway import Gateway
from smile.gateway.http import snapshots
from tests.brokers import InProcessBroker, bid
from tests.processes import wait_until

ROWS = 6_000
LONG = "x" * 2_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("floor")) as broker:
        for begin in range(0, ROWS, 300):
            ticks = broker.publish("Bids", *(bid(f"{n}{LONG}", 200) for n in range(begin, begin + 300)))
        broker.rows("Dear", Bids=ticks[-1])
        yield broker


def ask_without_reading(broker: InProcessBroker, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(("127.0.0.1", broker.port))
    client.sendall(b"GET /views/Dear?format=ndjson HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return client


def test_unread_snapshots_are_encoded_in_parts_and_bounded(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = list[int]()
    encode_part = frames.row_messages

    def counted(frame: Any) -> list[bytes]:
        encoded.append(frame.row_count)
        return encode_part(frame)

    monkeypatch.setattr(snapshots, "row_messages", counted)
    monkeypatch.setattr(limits, "snapshots_max", 5)
    monkeypatch.setattr(limits, "snapshot_part_rows_max", 500)
    gateway = served.server.gateway
    assert gateway is not None
    with ExitStack() as stack:
        for _ in range(5):
            ask_without_reading(served, stack)
        wait_until(lambda: gateway.snapshots.count == 5, "all snapshots have begun")
        with served.http() as client:
            refused = client.get("/views/Dear")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "E092")
            served.publish("Bids", bid())  # nobody else waits
        # Each has parts in the buffers of the system, which hold some megabytes, but not all of its 12 MB.
        assert sum(encoded) < 5 * ROWS
        monkeypatch.setattr(limits, "unread_s_max", 0.5)
        wait_until(lambda: gateway.snapshots.count == 0, "their clients are disconnected")
    with served.http() as client:
        assert client.get("/views/Dear").status_code == 200


@pytest.mark.parametrize("chosen", ["json", "ndjson", "csv", "arrow"])
def test_parts_make_up_the_whole(served: InProcessBroker, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> httpx.Response:
        with served.http() as client:
            answer = client.get("/views/Dear", params={"format": chosen})
        assert answer.status_code == 200
        return answer

    in_parts = body()
    assert "content-length" not in in_parts.headers
    for limit in ("snapshot_part_rows_max", "snapshot_part_bytes", "snapshot_bytes_small"):
        monkeypatch.setattr(limits, limit, 10**9)
    whole = body()
    assert "content-length" in whole.headers
    if chosen == "arrow":
        tables = [pa.ipc.open_stream(answer.content).read_all() for answer in (in_parts, whole)]
        assert tables[0].combine_chunks().equals(tables[1].combine_chunks()) and tables[0].num_rows >= ROWS
    elif chosen == "csv":
        assert in_parts.content == whole.content
    else:
        assert in_parts.content.partition(b'"progress"')[0] == whole.content.partition(b'"progress"')[0]


def test_a_slow_reader_gets_everything(
    tmp_path: Path, served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "snapshot_part_rows_max", 500)
    with ExitStack() as stack:
        client = ask_without_reading(served, stack)
        client.settimeout(30)
        received = b""
        while b'"resume"' not in received[-2_000:]:
            received += client.recv(2**16)
        assert received.count(LONG.encode()) >= ROWS


def part_bytes(broker: InProcessBroker, view: str, monkeypatch: pytest.MonkeyPatch, chosen: str) -> list[int]:
    """The sizes of the parts in which a snapshot is sent."""
    sizes = list[int]()
    all_parts = snapshots.SnapshotResponse._all_parts

    async def measured(response: snapshots.SnapshotResponse, *parts: Any) -> AsyncIterator[bytes]:
        async for part in all_parts(response, *parts):
            sizes.append(len(part))
            yield part

    monkeypatch.setattr(snapshots.SnapshotResponse, "_all_parts", measured)
    with broker.http() as client:
        assert client.get(f"/views/{view}", params={"format": chosen}).status_code == 200
    return sizes


@pytest.mark.parametrize("chosen", ["json", "ndjson", "csv", "arrow"])
def test_parts_of_large_rows_have_few_rows(tmp_path: Path, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand small rows, then few large ones: no part has many large rows."""
    large = 200_000
    with InProcessBroker(tmp_path) as broker:
        broker.publish("Bids", *(bid(f"{n}") for n in range(1_000)))
        for n in range(20):
            ticks = broker.publish("Bids", bid(f"{n}" + "y" * large))
        broker.rows("Dear", Bids=ticks[-1])
        sizes = part_bytes(broker, "Dear", monkeypatch, chosen)
    assert sum(sizes) > 20 * large
    assert max(sizes) < 2 * limits.snapshot_part_bytes, sizes


def test_few_large_rows_are_counted_as_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "snapshots_max", 3)
    with InProcessBroker(tmp_path) as broker, ExitStack() as stack:
        for n in range(16):
            ticks = broker.publish("Bids", bid(f"{n}" + "y" * 500_000))
        broker.rows("Dear", Bids=ticks[-1])
        gateway = broker.server.gateway
        assert gateway is not None
        for _ in range(3):
            ask_without_reading(broker, stack)
        wait_until(lambda: gateway.snapshots.count == 3, "all snapshots have begun")
        with broker.http() as client:
            assert client.get("/views/Dear").status_code == 503
            assert client.get("/views/Totals", params={"where.issue": "none"}).status_code == 200


def have_answered(gateway: Gateway, count: int) -> bool:
    """Whether more than so many snapshots have begun or were refused."""
    return gateway.snapshots.count + gateway.refusals["E092"] > count


def wait_until_shown(broker: InProcessBroker, tick: str) -> None:
    """Waits with a snapshot that is small, and so is never refused."""
    with broker.http() as client:
        where = {"where.k": "-1", "after.Words": tick}
        assert client.get("/views/Last", params=where).status_code == 200


def test_replaced_rows_that_snapshots_keep_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each snapshot is begun after all rows were replaced. The bytes of the replaced ones are limited."""
    monkeypatch.setattr(limits, "snapshots_bytes_max", 20_000_000)
    monkeypatch.setattr(limits, "deleted_rows_max", 0)
    program = """
    CREATE STREAM Words (t: time -> k: int, word: string);
    CREATE VIEW Last AS SELECT k, MAX(word) AS word FROM Words GROUP BY k;
    SUBSCRIBE Last;
    """
    with InProcessBroker(tmp_path, program) as broker, ExitStack() as stack, broker.http() as client:
        gateway = broker.server.gateway
        assert gateway is not None
        held = list[int]()
        for number in range(20):
            for part in range(6):
                words = [{"k": part * 10 + k, "word": f"{number:03}" + "z" * 90_000} for k in range(10)]
                ticks = broker.publish("Words", *words)
            wait_until_shown(broker, ticks[-1])
            unread = stack.enter_context(socket.socket())
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            unread.connect(("127.0.0.1", broker.port))
            unread.sendall(b"GET /views/Last HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            wait_until(partial(have_answered, gateway, number), "it begins or is refused")
            held.append(gateway.snapshots.bytes_held())
            if gateway.refusals["E092"]:
                break
        assert 1 < gateway.snapshots.count < 20, held
        assert client.get("/views/Last").status_code == 503
        # One more than the limit allows, and what the view has now. Each has the texts twice, as value and as bound.
        assert max(held) < 20_000_000 + 3 * 11_000_000, held


def test_a_client_that_reads_a_trickle_is_disconnected(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads all the time, but would take a minute for everything."""
    monkeypatch.setattr(limits, "snapshot_s_max", 1.0)
    gateway = served.server.gateway
    assert gateway is not None
    with ExitStack() as stack:
        client = ask_without_reading(served, stack)
        client.settimeout(30)
        received = len(client.recv(8_192))
        assert gateway.snapshots.count == 1

        def read_slowly() -> bool:
            nonlocal received
            received += len(client.recv(8_192))
            return gateway.snapshots.count == 0

        wait_until(read_slowly, "the snapshot is released")
        assert received < ROWS * len(LONG)


def test_other_responses_on_a_connection_have_no_deadline(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of a snapshot ends with it: server-sent events on the same connection continue."""
    monkeypatch.setattr(limits, "snapshot_s_max", 1.0)
    monkeypatch.setattr(limits, "heartbeat_s", 0.5)
    with served.http() as client:
        assert client.get("/views/Dear").status_code == 200
        with client.stream("GET", "/views/Totals/changes") as events:
            begin = time.monotonic()
            for _ in events.iter_bytes():
                if time.monotonic() - begin > 3:
                    break
            assert time.monotonic() - begin > 3
