"""Snapshots that nobody reads: they are encoded in parts, bounded in number, and their clients are disconnected."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from smile import limits
from smile.gateway import frames
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
    monkeypatch.setattr(limits, "snapshot_rows_small", 500)
    gateway = served.server.gateway
    assert gateway is not None
    with ExitStack() as stack:
        for _ in range(5):
            ask_without_reading(served, stack)
        wait_until(lambda: gateway.snapshots_in_progress == 5, "all snapshots have begun")
        with served.http() as client:
            refused = client.get("/views/Dear")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "E092")
            served.publish("Bids", bid())  # nobody else waits
        # Each has parts in the buffers of the system, which hold some megabytes, but not all of its 12 MB.
        assert sum(encoded) < 5 * ROWS
        monkeypatch.setattr(limits, "unread_s_max", 0.5)
        wait_until(lambda: gateway.snapshots_in_progress == 0, "their clients are disconnected")
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
    monkeypatch.setattr(limits, "snapshot_rows_small", 10**6)
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
    monkeypatch.setattr(limits, "snapshot_rows_small", 500)
    with ExitStack() as stack:
        client = ask_without_reading(served, stack)
        client.settimeout(30)
        received = b""
        while b'"resume"' not in received[-2_000:]:
            received += client.recv(2**16)
        assert received.count(LONG.encode()) >= ROWS
