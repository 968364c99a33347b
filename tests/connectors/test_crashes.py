"""The broker is killed at random moments while files grow, messages arrive, and tables and a webhook follow. Afterwards
each event is in the log once, each table equals its view, and the receiver has each final row."""

import json
import re
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.brokers import BrokerProcess
from tests.connectors.mosquitto import PROGRAM as MOSQUITTO, Mosquitto, running_mosquitto
from tests.connectors.receiver import Receiver, receiving
from tests.processes import wait_until

PROGRAM = """
CREATE STREAM Orders (t TIME KEY, item string, n int CHECK (n >= 0));
CREATE VIEW Totals AS SELECT item, COUNT(*) AS orders, SUM(n) AS total FROM Orders GROUP BY item;
CREATE VIEW Large AS SELECT item, n FROM Orders WHERE n % 10 = 0;
CREATE VIEW Everything AS SELECT item, n FROM Orders;
SUBSCRIBE Totals, Large, Everything;
"""


class Outside:
    """What writes files and messages until it is stopped; every event has a number of its own."""

    def __init__(self, folder: Path, mosquitto: Mosquitto | None, random: Random) -> None:
        self._folder, self._mosquitto, self._random = folder, mosquitto, random
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written: dict[str, list[int]] = {}
        self._number = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _take(self, item: str, count: int) -> list[dict[str, object]]:
        numbers = range(self._number, self._number + count)
        self._number += count
        self.written.setdefault(item, []).extend(numbers)
        return [{"item": item, "n": n} for n in numbers]

    def _run(self) -> None:
        step = 0
        while not self._stopping.wait(self._random.random() / 10):
            step += 1
            count, kind = self._random.randrange(1, 40), self._random.choice(["csv", "ndjson", "parquet", "mqtt"])
            if kind == "parquet":
                rows = self._take(f"{step}.parquet", count)
                pq.write_table(pa.Table.from_pylist(rows), self._folder / ".new")
                (self._folder / ".new").rename(self._folder / f"{step}.parquet")
            elif kind == "mqtt":
                if self._mosquitto is not None:
                    qos = self._random.choice([1, 2])
                    self._mosquitto.publish("orders", *map(json.dumps, self._take("mqtt", count)), qos=qos)
            else:
                name = f"{step % 4}.{kind}"
                lines = [
                    f"{r['item']},{r['n']}\n" if kind == "csv" else json.dumps(r) + "\n"
                    for r in self._take(name, count)
                ]
                file = self._folder / name
                text = "".join(["item,n\n"] * (kind == "csv" and not file.exists()) + lines)
                cut = self._random.randrange(len(text))
                for part in (text[:cut], text[cut:]):  # a line is written in two parts
                    with file.open("a") as opened:
                        opened.write(part)
                    time.sleep(0.01)


def settings(folder: Path, mosquitto: Mosquitto | None, receiver: Receiver) -> str:
    text = f"""
        [sources.files]
        kind = "directory"
        url = "{folder}/in"
        stream = "Orders"
        [sinks.file]
        kind = "parquet"
        url = "{folder}/totals.parquet"
        view = "Totals"
        [sinks.table]
        kind = "delta"
        url = "{folder}/totals"
        view = "Totals"
        [sinks.hook]
        kind = "webhook"
        url = "{receiver.url}"
        view = "Large"
    """
    if mosquitto is not None:
        text += f"""
        [sources.messages]
        kind = "mqtt"
        url = "{mosquitto.url}"
        topic = "orders"
        stream = "Orders"
        """
    return re.sub(r"^ +", "", text, flags=re.MULTILINE)


def run(folder: Path, seed: int, kills: int, engine: str = "local") -> None:
    random = Random(seed)
    (folder / "in").mkdir()
    (folder / "p.smile").write_text(PROGRAM)
    with ExitStack() as stack:
        mosquitto = stack.enter_context(running_mosquitto(folder / "mosquitto")) if MOSQUITTO else None
        receiver = stack.enter_context(receiving())
        (folder / "s.toml").write_text(settings(folder, mosquitto, receiver))
        broker = BrokerProcess(folder, "p.smile", ["--config", "s.toml", "--no-flush"], engine=engine)
        outside = Outside(folder / "in", mosquitto, random)
        stack.callback(broker.kill)
        broker.start()
        wait_until(lambda: has_started(broker), "the sources do not work")
        outside.start()
        for _ in range(kills):
            time.sleep(0.3 + random.random())
            broker.kill()
            broker.start()
        time.sleep(0.5)
        outside.stop()
        expected = Counter((item, n) for item, numbers in outside.written.items() for n in numbers)
        assert len(expected) > 50

        def rows(view: str) -> list[dict[str, Any]]:
            return [row["row"] for row in get(broker, f"/views/{view}")["rows"]]

        def found() -> Counter[tuple[str, int]]:
            return Counter((row["item"], row["n"]) for row in rows("Everything"))

        wait_until(
            lambda: found() >= expected, f"seed {seed}: events are missing: {list((expected - found()).items())[:9]}"
        )
        assert found() == expected, f"seed {seed}: events are doubled: {list((found() - expected).items())[:9]}"
        for item, numbers in outside.written.items():
            logged = [row["n"] for row in rows("Everything") if row["item"] == item]
            assert sorted(logged) == numbers
        totals = {(item, len(numbers), sum(numbers)) for item, numbers in outside.written.items()}

        def of_table(table: pa.Table) -> set[tuple[object, ...]]:
            return {tuple(row.values()) for row in table.to_pylist()}

        wait_until(
            lambda: of_table(pq.ParquetFile(folder / "totals.parquet").read()) == totals,
            f"seed {seed}: the file differs",
        )
        wait_until(
            lambda: of_table(DeltaTable(str(folder / "totals")).to_pyarrow_table()) == totals,
            f"seed {seed}: the table differs",
        )
        large = {n for item, n in expected if n % 10 == 0}
        wait_until(lambda: {b["row"]["n"] for b in receiver.taken()} == large, f"seed {seed}: rows were not delivered")
        assert len(receiver.taken()) == len(large), f"seed {seed}: a row has two identifiers"
        assert get(broker, "/status")["connectors"]["sources"]["files"]["dead_letters"] == 0


def get(broker: BrokerProcess, path: str) -> Any:
    with broker.http() as client:
        return client.get(path, timeout=60).raise_for_status().json()


def has_started(broker: BrokerProcess) -> bool:
    sources = get(broker, "/status").get("connectors", {}).get("sources", {})
    return bool(sources) and all(source["state"] == "working" for source in sources.values())


@pytest.mark.slow
def test_kills_neither_lose_nor_double(tmp_path: Path) -> None:
    run(tmp_path, seed=1, kills=1)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, kills=8)


@pytest.mark.nightly
@pytest.mark.slow
def test_kills_with_spark(tmp_path: Path) -> None:
    run(tmp_path, seed=7, kills=1, engine="spark")
