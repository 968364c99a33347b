"""Trade-Floor with simulated people: bidders see to it that so many bids are open, matchers match what can be matched.

Each knows of the others only what the broker tells. A bid is matched by one matcher alone, whose issue it is, so that
no more is traded of it than is left.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from smile.client import AsyncClient, Frame

LOT = 100
LOTS_MAX = 10
CENTS_LEAST = 10_000
CENTS_APART = 25
TICKS_PER_SECOND = 1_000_000 * 1024
BATCH_MAX = 2_000
"""Bids or matches in one message."""
PAUSE_S = 0.005
RECENT = 10_000
"""Latencies of so many pairs are kept."""


@dataclass
class Figures:
    """What has been done so far. A pair's latency is from the tick of its later bid until a matcher sees it."""

    began: float = field(default_factory=time.time)
    bids: int = 0
    matches: int = 0
    shares: int = 0
    latencies: "deque[float]" = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def events(self) -> int:
        return self.bids + self.matches

    @property
    def seconds(self) -> float:
        return max(time.time() - self.began, 1e-9)

    def latency(self, share: float) -> float | None:
        """In seconds; of so large a share of the pairs it was no longer than this."""
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


@dataclass(frozen=True)
class Floor:
    """`open_max` bids may be open at a time, on each side; `rate` of them are made a second, or as many as can be."""

    issues: int = 200
    prices: int = 20
    open_max: int = 10_000
    rate: float | None = None
    seed: int = 1

    def issue(self, number: int) -> str:
        return f"S{number:03}"


Event = dict[str, Any]


@dataclass
class Bidders:
    """Of both sides. What is offered in plenty finds takers: where more shares were bid to buy than to sell, the next
    bid sells."""

    client: AsyncClient
    floor: Floor
    figures: Figures
    _excess: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of shares to buy, by issue and price."""

    async def run(self) -> None:
        random, published, began = Random(self.floor.seed), 0, time.monotonic()
        tables = [await self.client.table(view) for view in ("RemainingBuy", "RemainingSell")]
        while True:
            elapsed = time.monotonic() - began
            allowed = BATCH_MAX if self.floor.rate is None else int(elapsed * self.floor.rate) - published
            count = min(allowed, self.floor.open_max - max(map(len, tables)), BATCH_MAX)
            if count < 1:
                await asyncio.sleep(PAUSE_S)
                continue
            bids = self._bids(random, count)
            told = await asyncio.gather(*(self.client.publish(stream, some) for stream, some in bids.items() if some))
            published += count
            self.figures.bids += count
            # What is not seen yet is not counted as open.
            await asyncio.gather(*(table.wait_for(ticks) for table in tables for ticks in told))

    def _bids(self, random: Random, count: int) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {"BuyBids": [], "SellBids": []}
        for _ in range(count):
            issue, price = random.randrange(self.floor.issues), random.randrange(self.floor.prices)
            shares, excess = LOT * random.randint(1, LOTS_MAX), self._excess.get((issue, price), 0)
            sells = excess > 0 or (not excess and random.random() < 0.5)
            self._excess[issue, price] = excess - shares if sells else excess + shares
            bid = {"issue": self.floor.issue(issue), "price": CENTS_LEAST + CENTS_APART * price, "#bid": shares}
            found["SellBids" if sells else "BuyBids"].append(bid)
        return found


@dataclass
class Bid:
    """`left` is what a matcher saw of it at first, less what it has traded since; `pairs` how many rows it is in."""

    left: int
    pairs: int = 0


@dataclass
class Matcher:
    """Matches the bids of its issues."""

    client: AsyncClient
    issues: Sequence[str]
    figures: Figures
    _bids: dict[int, Bid] = field(default_factory=dict)
    _pairs: set[tuple[int, int]] = field(default_factory=set)

    async def run(self) -> None:
        await asyncio.gather(*(self._follow(issue) for issue in self.issues))

    async def _follow(self, issue: str) -> None:
        subscription = await self.client.subscribe("Matchable", where={"issue": issue})
        async for frame in subscription.frames():
            matches = self._matches(frame)
            for begin in range(0, len(matches), BATCH_MAX):
                part = matches[begin : begin + BATCH_MAX]
                await self.client.publish("Matches", part)
                self.figures.matches += len(part)
                self.figures.shares += sum(match["#traded"] for match in part)

    def _matches(self, frame: Frame) -> list[dict[str, int]]:
        found = []
        now = time.time()
        for change in frame.changes:
            pair = change.key["buyid"], change.key["sellid"]
            if change.deleted:
                self._gone(pair)
                continue
            for bid, column in zip(pair, ("buyremaining", "sellremaining"), strict=True):
                self._bids.setdefault(bid, Bid(int(change.row[column]))).pairs += pair not in self._pairs
            if pair not in self._pairs:
                self._pairs.add(pair)
                self.figures.latencies.append(now - max(pair) / TICKS_PER_SECOND)
            buy, sell = (self._bids[bid] for bid in pair)
            shares = min(buy.left, sell.left)
            if shares > 0:
                buy.left -= shares
                sell.left -= shares
                found.append({"buyid": pair[0], "sellid": pair[1], "#traded": shares})
        return found

    def _gone(self, pair: tuple[int, int]) -> None:
        """What is used up, and in no row any more, need not be remembered."""
        if pair not in self._pairs:
            return
        self._pairs.remove(pair)
        for number in pair:
            bid = self._bids[number]
            bid.pairs -= 1
            if not bid.pairs and not bid.left:
                del self._bids[number]
