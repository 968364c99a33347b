"""The workload of the benchmark of databases: stock quotes, portfolios, and counters that processes share."""

import json
import mmap
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

SYMBOLS = [f"S{number:03}" for number in range(50)]
PORTFOLIOS = 100
PUBLISHERS = 20
WINDOW = 10
"""Publications that are not acknowledged, for each publisher."""
BACKLOG_MAX = 5_000
"""Publishers pause while more events than this were published and not received by all subscribers."""

System = Literal["smile", "rabbitmq", "nats"]
Consumption = Literal["filtered", "guaranteed", "inbox", "two_phase"]
"""How events are consumed: filtered by stored data and not acknowledged; acknowledged; in a transaction with an inbox
table; or in a transaction that is prepared before the message is acknowledged."""


@dataclass(frozen=True)
class Load:
    """`portfolios` has one for each subscriber. `counters` is the path of the shared counters. If `is_transactional`,
    publishers call the function of the event type in transactions of the database."""

    system: System
    consumption: Consumption
    port: int
    portfolios: Sequence[int]
    database: str
    counters: str
    is_transactional: bool = False

    @property
    def subscribers(self) -> int:
        return len(self.portfolios)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Load":
        return Load(**json.loads(text))


def choose_portfolios(subscribers: int, equal_share: float) -> list[int]:
    """The portfolio of each subscriber; `equal_share` of the subscribers have the same one."""
    equal = round(subscribers * equal_share)
    return [0] * equal + [1 + number % (PORTFOLIOS - 1) for number in range(subscribers - equal)]


def quote(number: int) -> dict[str, object]:
    return {"symbol": SYMBOLS[number % len(SYMBOLS)], "price": 10_000 + number % 977, "volume": number}


class SharedCounters:
    """Published events, and received events over all subscribers. Each is written by one process only."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 16)

    @staticmethod
    def create(path: Path) -> "SharedCounters":
        path.write_bytes(bytes(16))
        return SharedCounters(path)

    @property
    def published(self) -> int:
        return int(struct.unpack_from("=q", self._memory, 0)[0])

    @published.setter
    def published(self, count: int) -> None:
        struct.pack_into("=q", self._memory, 0, count)

    @property
    def received(self) -> int:
        return int(struct.unpack_from("=q", self._memory, 8)[0])

    @received.setter
    def received(self, count: int) -> None:
        struct.pack_into("=q", self._memory, 8, count)
