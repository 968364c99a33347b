"""Trade-Floor with simulated users: bidders keep a number of bids open, matchers match what can be matched.

They communicate only through the broker, or through the four brokers of a network. Each issue belongs to one matcher,
so no bid is traded beyond its shares.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from smile.client import AsyncClient, Frame
from smile.client.ticks import TICKS_PER_SECOND

LOT = 100
LOTS_MAX = 10
PRICE_CENTS_MIN = 10_000
PRICE_CENTS_STEP = 25
BATCH_MAX = 2_000
"""Bids or matches in one message."""
PAUSE_S = 0.005
LATENCIES_MAX = 10_000
"""Number of pairs whose latency is stored: the latest ones."""


@dataclass
class FloorMetrics:
    """Totals so far. A pair's latency is from the tick of its later bid until a matcher sees it."""

    started_at: float = field(default_factory=time.time)
    bids: int = 0
    matches: int = 0
    shares: int = 0
    latencies: "deque[float]" = field(default_factory=lambda: deque(maxlen=LATENCIES_MAX))

    @property
    def events(self) -> int:
        return self.bids + self.matches

    @property
    def seconds(self) -> float:
        return max(time.time() - self.started_at, 1e-9)

    def latency_quantile(self, quantile: float) -> float | None:
        """The latency, in seconds, that this share of the pairs did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)] if ordered else None


@dataclass(frozen=True)
class FloorSettings:
    """At most `open_max` bids are open on each side. `rate` is bids a second; None is as many as possible."""

    issues: int = 200
    prices: int = 20
    open_max: int = 10_000
    rate: float | None = None
    seed: int = 1
    first_issue: int = 0
    """The number of the first issue: brokers that share the load have different ones."""

    def issue_name(self, number: int) -> str:
        return f"S{self.first_issue + number:03}"


@dataclass(frozen=True)
class FloorClients:
    """Clients of the brokers that have the bids to buy, the bids to sell, the matches, and what can be matched."""

    buys: AsyncClient
    sells: AsyncClient
    matches: AsyncClient
    floor: AsyncClient

    @classmethod
    def of_one_broker(cls, client: AsyncClient) -> "FloorClients":
        return cls(client, client, client, client)


Event = dict[str, Any]


@dataclass
class Bidders:
    """Publish bids of both sides. If there are more shares to buy than to sell at a price, the next bid sells, so that
    most bids are matched."""

    clients: FloorClients
    settings: FloorSettings
    metrics: FloorMetrics
    _excess_shares: dict[tuple[int, int], int] = field(default_factory=dict)
    """Shares bid to buy minus shares bid to sell, by issue and price."""

    async def run(self) -> None:
        random, published_count, start = Random(self.settings.seed), 0, time.monotonic()
        tables = [await self.clients.buys.table("RemainingBuy"), await self.clients.sells.table("RemainingSell")]
        publishers = {"BuyBids": self.clients.buys, "SellBids": self.clients.sells}
        while True:
            elapsed = time.monotonic() - start
            allowed = BATCH_MAX if self.settings.rate is None else int(elapsed * self.settings.rate) - published_count
            count = min(allowed, self.settings.open_max - max(map(len, tables)), BATCH_MAX)
            if count < 1:
                await asyncio.sleep(PAUSE_S)
                continue
            bids = self._make_bids(random, count)
            publications = await asyncio.gather(
                *(
                    publishers[stream].publish(stream, stream_bids)
                    for stream, stream_bids in bids.items()
                    if stream_bids
                )
            )
            published_count += count
            self.metrics.bids += count
            # The number of open bids is right only when the tables include them.
            await asyncio.gather(*(table.wait_for(ticks) for table in tables for ticks in publications))

    def _make_bids(self, random: Random, count: int) -> dict[str, list[Event]]:
        bids: dict[str, list[Event]] = {"BuyBids": [], "SellBids": []}
        for _ in range(count):
            issue, price = random.randrange(self.settings.issues), random.randrange(self.settings.prices)
            shares, excess = LOT * random.randint(1, LOTS_MAX), self._excess_shares.get((issue, price), 0)
            sells = excess > 0 or (not excess and random.random() < 0.5)
            self._excess_shares[issue, price] = excess - shares if sells else excess + shares
            bid = {
                "issue": self.settings.issue_name(issue),
                "price": PRICE_CENTS_MIN + PRICE_CENTS_STEP * price,
                "#bid": shares,
            }
            bids["SellBids" if sells else "BuyBids"].append(bid)
        return bids


@dataclass
class Bid:
    """`remaining` is what the matcher first saw, minus what it has traded since. `pair_count` counts its pairs."""

    remaining: int
    pair_count: int = 0


@dataclass
class Matcher:
    """Matches the bids of its issues, `pause_s` seconds after it has seen them."""

    clients: FloorClients
    issues: Sequence[str]
    metrics: FloorMetrics
    pause_s: float = 0.0
    _bids: dict[int, Bid] = field(default_factory=dict)
    _pairs: set[tuple[int, int]] = field(default_factory=set)

    async def run(self) -> None:
        await asyncio.gather(*(self._match_issue(issue) for issue in self.issues))

    async def _match_issue(self, issue: str) -> None:
        subscription = await self.clients.floor.subscribe("Matchable", where={"issue": issue})
        async for frame in subscription.frames():
            matches = self._make_matches(frame)
            if matches and self.pause_s:
                await asyncio.sleep(self.pause_s)
            for start in range(0, len(matches), BATCH_MAX):
                part = matches[start : start + BATCH_MAX]
                await self.clients.matches.publish("Matches", part)
                self.metrics.matches += len(part)
                self.metrics.shares += sum(match["#traded"] for match in part)

    def _make_matches(self, frame: Frame) -> list[dict[str, int]]:
        matches = []
        now = time.time()
        for change in frame.changes:
            pair = change.key["buyid"], change.key["sellid"]
            if change.deleted:
                self._remove_pair(pair)
                continue
            for bid_id, column in zip(pair, ("buyremaining", "sellremaining"), strict=True):
                self._bids.setdefault(bid_id, Bid(int(change.row[column]))).pair_count += pair not in self._pairs
            if pair not in self._pairs:
                self._pairs.add(pair)
                self.metrics.latencies.append(now - max(pair) / TICKS_PER_SECOND)
            buy, sell = (self._bids[bid_id] for bid_id in pair)
            shares = min(buy.remaining, sell.remaining)
            if shares > 0:
                buy.remaining -= shares
                sell.remaining -= shares
                matches.append({"buyid": pair[0], "sellid": pair[1], "#traded": shares})
        return matches

    def _remove_pair(self, pair: tuple[int, int]) -> None:
        """Deletes bids that are used up and in no row any more."""
        if pair not in self._pairs:
            return
        self._pairs.remove(pair)
        for bid_id in pair:
            bid = self._bids[bid_id]
            bid.pair_count -= 1
            if not bid.pair_count and not bid.remaining:
                del self._bids[bid_id]
