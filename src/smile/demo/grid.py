"""A grid of sites, whose sensors measure how long packets take from one to another."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from smile.client import AsyncClient

RELATION = "ntp"
SENSORS = ("hw", "ral", "cern")
"""Sites, which are the brokers of their sensors as well."""
TOOLS = ("ping", "udpmon")
PACKET_SIZES = (64, 1024)
PERIOD_S = 0.2
"""How often a site publishes what its sensors have measured."""

Event = dict[str, Any]


@dataclass
class SensorTotals:
    """How many events each site has published."""

    started_at: float = field(default_factory=time.time)
    published: Counter[str] = field(default_factory=Counter)


@dataclass
class Sensors:
    """The sensors of all sites. `rate` is events a second of all together. They end when `has_ended` is set: what was
    published then was acknowledged."""

    clients: Mapping[str, AsyncClient]
    rate: float
    totals: SensorTotals
    has_ended: asyncio.Event
    seed: int = 1

    async def run(self) -> None:
        await asyncio.gather(*(self._measure(site, Random(f"{self.seed} {site}")) for site in SENSORS))

    async def _measure(self, site: str, random: Random) -> None:
        start = time.monotonic()
        while not self.has_ended.is_set():
            due = int((time.monotonic() - start) * self.rate / len(SENSORS)) - self.totals.published[site]
            if due > 0:
                await self.clients[site].publish(RELATION, [_measurement(site, random) for _ in range(due)])
                self.totals.published[site] += due
            await asyncio.sleep(PERIOD_S)


def _measurement(site: str, random: Random) -> Event:
    size = random.choice(PACKET_SIZES)
    to = random.choice([other for other in SENSORS if other != site])
    latency = round(random.lognormvariate(3.0, 0.4) + size / 200, 1)
    return {"from": site, "to": to, "tool": random.choice(TOOLS), "psize": size, "latency": latency}
