"""Subscribers that read nothing for a long time cost bounded memory, delay nobody, and then receive the present rows.

Time is compressed: only the number of changes matters, and some hundred thousand changes stand for many minutes.
"""

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.brokers import BrokerProcess
from tests.processes import WAIT_S
from tests.random_programs import SEED_ID, seeds

pytestmark = pytest.mark.slow

BATCH = 500
WARM_UP = 50
GROWTH_BYTES_MAX = 48 * 2**20
"""What is kept of so many changes if nothing is: allocators do not give back all that they were given."""

PROGRAM = """\
CREATE STREAM Prices (t: time -> issue: string, price: int);
CREATE VIEW Latest AS SELECT issue, LATEST(price) AS last, COUNT(*) AS n FROM Prices GROUP BY issue;
"""
ISSUES = 2_000


async def connect_to(broker: BrokerProcess, stack: AsyncExitStack) -> ClientConnection:
    # A small buffer: what waits in it was sent, and a broker can do nothing about it.
    receiving = socket.socket()
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    receiving.setblocking(False)
    await asyncio.get_running_loop().sock_connect(receiving, ("127.0.0.1", broker.port))
    url = f"ws://127.0.0.1:{broker.port}/ws"
    quiet = connect(
        url, sock=receiving, compression=None, ping_interval=None, close_timeout=1, max_queue=1, max_size=2**26
    )
    return await stack.enter_async_context(quiet)


class Reader:
    """The rows that it has received, and its progress."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.counts: dict[str, int] = {}
        self.frames = self.known = 0

    async def subscribe(self) -> None:
        await self.connection.send(json.dumps({"subscribe": "Latest", "id": 1}))
        assert "subscribed" in json.loads(await self.connection.recv())

    async def hear(self) -> None:
        message: dict[str, Any] = json.loads(await asyncio.wait_for(self.connection.recv(), WAIT_S))
        self.frames += 1
        for row in message["rows"]:
            issue, n = row["key"]["issue"], row["row"]["n"]
            assert n >= self.counts.get(issue, 0)
            self.counts[issue] = n
        if "progress" in message:
            self.known = int(message["progress"]["Prices"])

    async def until(self, tick: int) -> None:
        while self.known < tick:
            await self.hear()


async def publish(connection: ClientConnection, random: Random) -> int:
    events = [{"issue": f"i{random.randrange(ISSUES)}", "price": random.randrange(1000)} for _ in range(BATCH)]
    await connection.send(json.dumps({"publish": "Prices", "id": 1, "events": events}))
    answer = json.loads(await asyncio.wait_for(connection.recv(), WAIT_S))
    return int(answer["published"][-1])


async def stalled(broker: BrokerProcess, seed: int, count: int, batches: int) -> None:
    """So many subscribers do not read while so many batches are published."""
    random = Random(seed)
    async with AsyncExitStack() as stack:
        publisher = await connect_to(broker, stack)
        reader, *others = [Reader(await connect_to(broker, stack)) for _ in range(1 + count)]
        for one in (reader, *others):
            await one.subscribe()
        memory = list[int]()
        for n in range(batches):
            if n in (WARM_UP, batches - 1):
                memory.append(broker.memory_bytes)
            tick = await publish(publisher, random)
            await reader.until(tick)
        for one in others:
            # It was sent what TCP holds, and is told the rest as it is now.
            assert one.frames == 0
            await one.until(tick)
            assert one.counts == reader.counts
        assert sum(reader.counts.values()) == batches * BATCH
        frame_count = max(one.frames for one in others)
        assert frame_count < reader.frames / 2, (
            f"{frame_count} of {reader.frames} frames were told to one who did not listen"
        )
        assert memory[1] - memory[0] < GROWTH_BYTES_MAX, f"{(memory[1] - memory[0]) / 2**20:.0f} MiB more"


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
@pytest.mark.parametrize(("count", "batches"), [(8, 150), pytest.param(20, 200, marks=pytest.mark.nightly)])
def test_who_does_not_listen_delays_nobody_and_costs_little(
    tmp_path: Path, seed: int, count: int, batches: int
) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    with BrokerProcess(tmp_path) as broker:
        asyncio.run(stalled(broker, seed, count, batches))
        assert broker.stop() == 0
