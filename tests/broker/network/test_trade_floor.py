"""The Trade-Floor of the paper on four brokers: bids, matches and what can be matched are each elsewhere. Whatever
happens on the way, the floor ends with exactly the pairs that a plain program computes."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.broker.network.cables import BrokerNetwork, CableFaults, messages_of, network_in, publish

MATCHES = """
CREATE STREAM Matches (t: time -> buyid: time, sellid: time, #traded: shares);
"""
BUYS = """
CREATE STREAM BuyBids (buyid: time -> issue: string, price: centspershare, #bid: shares);
IMPORT Matches FROM matches;
CREATE VIEW BuySatisfied AS SELECT buyid, SUM(#traded) AS total FROM Matches GROUP BY buyid;
CREATE VIEW RemainingBuy AS
  SELECT buyid, issue, price, (#bid - total) AS buyremaining FROM BuyBids JOIN BuySatisfied USING (buyid)
  WHERE buyremaining > 0;
SUBSCRIBE RemainingBuy;
"""
SELLS = BUYS.replace("Buy", "Sell").replace("buy", "sell")
FLOOR = """
IMPORT RemainingBuy FROM buys;
IMPORT RemainingSell FROM sells;
CREATE VIEW Matchable AS SELECT * FROM RemainingBuy JOIN RemainingSell USING (issue, price);
SUBSCRIBE Matchable;
"""
PROGRAMS = {"matches": MATCHES, "buys": BUYS, "sells": SELLS, "floor": FLOOR}
CABLES = [("buys", "matches"), ("sells", "matches"), ("floor", "buys"), ("floor", "sells")]

Bid = tuple[str, int, int]


class TradeFloor:
    """Publishes bids and matches, and knows what can be matched."""

    def __init__(self, network: BrokerNetwork, random: Random) -> None:
        self.network, self.random = network, random
        self.bids: dict[str, dict[int, Bid]] = {"buys": {}, "sells": {}}
        self.traded: dict[str, Counter[int]] = {"buys": Counter(), "sells": Counter()}

    def publish_bid(self, broker: str) -> None:
        bid = (self.random.choice("AB"), self.random.choice([10, 11]), self.random.randint(1, 5))
        stream = {"buys": "BuyBids", "sells": "SellBids"}[broker]
        (tick,) = publish(self.network.brokers[broker], stream, bid)
        self.bids[broker][tick] = bid

    def publish_match(self) -> None:
        pairs = list(self.matchable())
        if not pairs:
            return
        buy, sell = self.random.choice(pairs)
        shares = min(self.matchable()[buy, sell])
        publish(self.network.brokers["matches"], "Matches", (buy, sell, shares))
        self.traded["buys"][buy] += shares
        self.traded["sells"][sell] += shares

    def matchable(self) -> dict[tuple[int, int], tuple[int, int]]:
        remaining = {
            side: {
                tick: (bid[:2], left) for tick, bid in bids.items() if (left := bid[2] - self.traded[side][tick]) > 0
            }
            for side, bids in self.bids.items()
        }
        return {
            (buy, sell): (buy_left, sell_left)
            for buy, (buy_key, buy_left) in remaining["buys"].items()
            for sell, (sell_key, sell_left) in remaining["sells"].items()
            if buy_key == sell_key
        }

    def shown(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {
            (int(m["key"]["buyid"]), int(m["key"]["sellid"])): (m["row"]["buyremaining"], m["row"]["sellremaining"])
            for m in messages_of(self.network.brokers["floor"], "Matchable")
        }

    def step(self) -> None:
        action = self.random.random()
        if action < 0.35:
            self.publish_bid("buys")
        elif action < 0.7:
            self.publish_bid("sells")
        else:
            self.publish_match()

    def wait_for_truth(self) -> None:
        self.network.run_until(lambda: self.shown() == self.matchable(), "the floor does not show the truth", 120.0)


def start(network: BrokerNetwork, **settings: Any) -> None:
    for name, program in PROGRAMS.items():
        network.start(name, program, **settings)


@pytest.mark.parametrize("seed", range(2))
def test_every_broker_restarts_while_links_fail(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with network_in(tmp_path, seed) as network:
        start(network)
        floor = TradeFloor(network, random)
        for restarted in (*PROGRAMS, ""):
            for cable in CABLES:
                network.connect(*cable, CableFaults(0.1, 0.1, 0.2))
            for _ in range(10):
                floor.step()
                network.run(0.02)
            if restarted:
                network.stop(restarted)
                network.start(restarted, None)
            for left in list(network.cables):
                network.cut(left)
        for cable in CABLES:
            network.connect(*cable)
        floor.wait_for_truth()


@pytest.mark.slow
def test_a_floor_on_spark(tmp_path: Path) -> None:
    with network_in(tmp_path) as network:
        for name in ("matches", "buys", "sells"):
            network.start(name, PROGRAMS[name])
        network.start("floor", FLOOR, engine="spark", master="local[1]", partitions=2, flight="")
        for cable in CABLES:
            network.connect(*cable)
        floor = TradeFloor(network, Random(1))
        for _ in range(12):
            floor.step()
        floor.wait_for_truth()
        network.stop("floor")
        for _ in range(6):
            floor.step()
        network.start("floor", None, engine="spark", master="local[1]", partitions=2, flight="")
        network.connect("floor", "buys")
        network.connect("floor", "sells")
        floor.wait_for_truth()
