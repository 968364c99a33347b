"""Subscribers who read nothing for long: they cost bounded memory, delay nobody, and catch up with what is so now.

Time is compressed: what counts is how much changes meanwhile, and some hundred thousand changes are many minutes' worth.
"""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.random_programs import SEED_ID, seeds
from tests.torture.process import Victim

pytestmark = pytest.mark.slow

STALLED = 20
BATCH = 500
WARM_UP = 50
BATCHES = 200
GROWTH_BYTES_MAX = 48 * 2**20
"""What is kept of so many changes if nothing is: allocators do not give back all that they were given."""
LATENCY_S_MAX = 5.0
WAIT_S = 60.0

PROGRAM = """\
CREATE STREAM Prices (t: time -> issue: string, price: int);
CREATE VIEW Latest AS SELECT issue, LATEST(price) AS last, COUNT(*) AS n FROM Prices GROUP BY issue;
"""
ISSUES = 2_000


async def socket_to(victim: Victim, stack: AsyncExitStack) -> ClientConnection:
    url = f"ws://127.0.0.1:{victim.port}/ws"
    quiet = connect(url, compression=None, ping_interval=None, close_timeout=1, max_queue=1, max_size=2**26)
    return await stack.enter_async_context(quiet)


class Reader:
    """The rows it has been told, and how far it knows."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.counts: dict[str, int] = {}
        self.frames = self.known = 0

    async def subscribe(self) -> None:
        await self.socket.send(json.dumps({"subscribe": "Latest", "id": 1}))
        assert "subscribed" in json.loads(await self.socket.recv())

    async def hear(self) -> None:
        told: dict[str, Any] = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT_S))
        self.frames += 1
        for row in told["rows"]:
            issue, n = row["key"]["issue"], row["row"]["n"]
            assert n >= self.counts.get(issue, 0)
            self.counts[issue] = n
        if "progress" in told:
            self.known = int(told["progress"]["Prices"])

    async def until(self, tick: int) -> None:
        while self.known < tick:
            await self.hear()


async def publish(socket: ClientConnection, random: Random) -> int:
    events = [{"issue": f"i{random.randrange(ISSUES)}", "price": random.randrange(1000)} for _ in range(BATCH)]
    await socket.send(json.dumps({"publish": "Prices", "id": 1, "events": events}))
    told = json.loads(await asyncio.wait_for(socket.recv(), WAIT_S))
    return int(told["published"][-1])


async def stalled(victim: Victim, seed: int) -> None:
    random = Random(seed)
    async with AsyncExitStack() as stack, asyncio.timeout(300):
        publisher = await socket_to(victim, stack)
        reader, *others = [Reader(await socket_to(victim, stack)) for _ in range(1 + STALLED)]
        for one in (reader, *others):
            await one.subscribe()
        rss, latencies = list[int](), list[float]()
        for n in range(BATCHES):
            if n in (WARM_UP, BATCHES - 1):
                rss.append(victim.rss)
            begin = time.monotonic()
            tick = await publish(publisher, random)
            await reader.until(tick)
            latencies.append(time.monotonic() - begin)
        for one in others:
            # It was sent what TCP holds, and is told the rest as it is now.
            assert one.frames == 0
            await one.until(tick)
            assert one.counts == reader.counts
        assert sum(reader.counts.values()) == BATCHES * BATCH
        told = max(one.frames for one in others)
        assert told < reader.frames / 2, f"{told} of {reader.frames} frames were told to one who did not listen"
        assert rss[1] - rss[0] < GROWTH_BYTES_MAX, f"{(rss[1] - rss[0]) / 2**20:.0f} MiB more"
        assert sorted(latencies)[-2] < LATENCY_S_MAX, sorted(latencies)[-5:]


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
def test_who_does_not_listen_delays_nobody_and_costs_little(tmp_path: Path, seed: int) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "prices.smile").write_text(PROGRAM)
    victim = Victim(tmp_path / "prices.smile", tmp_path / "data")
    victim.start()
    try:
        asyncio.run(stalled(victim, seed))
    finally:
        assert victim.stop() == 0
