"""Batches are published once, without Spark: random batches, parts and crashes, on a broker over HTTP."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from smile.client.address import BrokerAddress
from smile.client.connection import http_request
from smile.errors import SmileError
from smile.spark import stream_writers
from smile.spark.options import SourceOptions
from smile.spark.stream_writers import divide_rows, publish_rows
from tests.brokers import InProcessBroker

SEEDS = [int(seed) for seed in os.environ.get("SMILE_SEEDS", "").split(",") if seed] or range(2)
PROGRAM = "CREATE STREAM Bids (t: time -> price: int, note: string);"


class Killed(Exception):
    """The driver's process is gone."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM) as running:
        yield running


def options(broker: InProcessBroker, bytes_max: int) -> SourceOptions:
    return SourceOptions(BrokerAddress.resolve(broker.url), stream="Bids", message_bytes_max=bytes_max)


def table(prices: list[int]) -> pa.Table:
    return pa.table({"price": pa.array(prices, pa.int64()), "note": pa.array(["x" * 50] * len(prices))})


def logged(broker: InProcessBroker) -> list[int]:
    with broker.http() as client:
        newest = client.get("/streams/Bids", params={"newest": "1000"}).json()["newest"]
    assert len(newest) < 1000
    return [event["event"]["price"] for event in reversed(newest)]


class Crashes:
    """Kills the driver before or after some requests that publish."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.count = 0

    async def request(self, address: BrokerAddress, method: str, path: str, *content: object) -> bytes:
        if method == "POST" and self.chance.random() < 0.25:
            self.count += 1
            raise Killed
        answer = await http_request(address, method, path, *content)  # type: ignore[arg-type]
        if method == "POST" and self.chance.random() < 0.25:
            self.count += 1
            raise Killed
        return answer


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bytes_max", [2_000, 2**20])
def test_batches_are_logged_once(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, seed: int, bytes_max: int
) -> None:
    """A batch of several publications has the same rows each time. If it is one publication, a repetition may have any
    rows: the first attempt that was logged counts."""
    chance = random.Random(seed)
    crashes, expected = Crashes(chance), list[int]()
    monkeypatch.setattr(stream_writers, "http_request", crashes.request)
    repeat = f"SMILE_SEEDS={seed} .venv/bin/python -m pytest {__file__}"
    for batch in range(12):
        prices = [1000 * batch + i for i in range(chance.randrange(40))]
        attempts = [prices]
        while True:
            try:
                publish_rows(options(broker, bytes_max), table(attempts[-1]) if attempts[-1] else None, "p", batch)
                break
            except Killed:
                other = [1000 * batch + chance.randrange(1000) for _ in range(chance.randrange(1, 40))]
                attempts.append(prices if bytes_max < 2**20 else other)
        present = logged(broker)
        assert present[: len(expected)] == expected, repeat
        assert present[len(expected) :] in attempts, repeat
        assert bytes_max == 2**20 or present[len(expected) :] == prices, repeat
        expected = present
    assert crashes.count > 2


def test_a_batch_in_parts_that_changes_is_refused(broker: InProcessBroker) -> None:
    publish_rows(options(broker, 2_000), table(list(range(100))), "p", 3)
    for other in (list(range(100))[::-1], list(range(99)), list(range(101))):
        with pytest.raises(SmileError, match="now has other rows") as caught:
            publish_rows(options(broker, 2_000), table(other), "p", 3)
        assert caught.value.code == "E172"
    assert logged(broker) == list(range(100))


def test_a_row_that_is_too_large(broker: InProcessBroker) -> None:
    with pytest.raises(SmileError, match=r"a row takes .* bytes; 300 are allowed"):
        publish_rows(options(broker, 300), table([1]), "p", 0)


def test_parts_are_all_rows_in_order() -> None:
    rows = table(list(range(777)))
    parts = divide_rows(rows, 3_000)
    tables = [pa.ipc.open_stream(part.body).read_all() for part in parts]
    assert pa.concat_tables(tables) == rows
    assert [part.first for part in parts] == [sum(t.num_rows for t in tables[:i]) for i in range(len(tables))]
    assert all(len(part.body) <= 3_000 for part in parts) and len(parts) > 10
