"""The Trade-Floor of the paper on four brokers as processes: each is killed under load while links are cut, stalled and
delayed, and messages are lost, repeated and reordered above TCP. In the end the floor shows exactly what can be matched,
and no bid or match is lost or doubled. Bids and matches are compared by their ticks: none gets another one."""

import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.client import connect
from tests.broker.network.test_trade_floor import PROGRAMS
from tests.network.processes import Json, NetworkProcesses, status
from tests.network.proxy import TcpProxy
from tests.processes import WAIT_S, wait_until

CALLS = {"buys": ["matches"], "sells": ["matches"], "floor": ["buys", "sells"], "matches": []}
FAULTS = {"SMILE_LINK_FAULTS": "lost=0.02,repeated=0.1,swapped=0.3,seed=11"}
Bid = tuple[str, int, int]


class FloorOfProcesses:
    """The four brokers, with a proxy for each of them through which its neighbours call it."""

    def __init__(self, folder: Path, stack: ExitStack, engines: dict[str, str], **settings: Any) -> None:
        self.network = stack.enter_context(NetworkProcesses(folder))
        self.proxies = {n: stack.enter_context(TcpProxy(self.network.port(n))) for n in ("matches", "buys", "sells")}
        for name in ("matches", "buys", "sells", "floor"):
            neighbours = {n: self.proxies[n].url for n in CALLS[name]}
            engine = engines.get(name, "local")
            spark = {"master": "local[1]", "partitions": 1} if engine == "spark" else {}
            self.network.start(name, PROGRAMS[name], neighbours, engine=engine, **spark, **settings)
        self.bids: dict[str, dict[int, Bid]] = {"buys": {}, "sells": {}}
        self.matches: dict[int, tuple[int, int, int]] = {}
        self.problems: list[BaseException] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(self._publish_bids, "buys", "BuyBids", 1)),
            threading.Thread(target=self._run, args=(self._publish_bids, "sells", "SellBids", 2)),
            threading.Thread(target=self._run, args=(self._publish_matches,)),
        ]

    def start_load(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop_load(self) -> None:
        """Returns when everything published is acknowledged."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a publisher does not end"
        assert self.problems == []

    def _run(self, publish: Any, *arguments: Any) -> None:
        try:
            publish(*arguments)
        except BaseException as problem:  # noqa: BLE001  # the test shows it
            self.problems.append(problem)

    def _publish_bids(self, broker: str, stream: str, seed: int) -> None:
        random = Random(seed)
        with connect(self.network.brokers[broker].url) as client:
            while not self._stop.wait(0.05):
                bids = [(random.choice("AB"), random.choice([10, 11]), random.randint(1, 5)) for _ in range(2)]
                events = [{"issue": issue, "price": price, "#bid": shares} for issue, price, shares in bids]
                ticks = client.publish(stream, events)
                with self._lock:
                    self.bids[broker].update({int(tick): bid for tick, bid in zip(ticks, bids, strict=True)})

    def _publish_matches(self) -> None:
        """Matches what is really there, so that the truth is known whatever the floor shows meanwhile."""
        random = Random(3)
        with connect(self.network.brokers["matches"].url) as client:
            while not self._stop.wait(0.05):
                with self._lock:
                    pairs = list(self.matchable().items())
                if not pairs:
                    continue
                (buy, sell), remaining = random.choice(pairs)
                event = {"buyid": buy, "sellid": sell, "#traded": min(remaining)}
                (tick,) = client.publish("Matches", [event])
                with self._lock:
                    self.matches[int(tick)] = (buy, sell, min(remaining))

    def remaining(self) -> dict[str, dict[int, tuple[str, int, int]]]:
        """The truth: of each side, the bids that are not satisfied, with what remains."""
        traded: dict[str, Counter[int]] = {"buys": Counter(), "sells": Counter()}
        for buy, sell, shares in self.matches.values():
            traded["buys"][buy] += shares
            traded["sells"][sell] += shares
        return {
            side: {t: (bid[0], bid[1], left) for t, bid in bids.items() if (left := bid[2] - traded[side][t]) > 0}
            for side, bids in self.bids.items()
        }

    def matchable(self) -> dict[tuple[int, int], tuple[int, int]]:
        remaining = self.remaining()
        return {
            (buy, sell): (bought[2], sold[2])
            for buy, bought in remaining["buys"].items()
            for sell, sold in remaining["sells"].items()
            if bought[:2] == sold[:2]
        }

    def shown(self) -> dict[tuple[int, int], tuple[int, int]]:
        rows = self.network.brokers["floor"].rows("Matchable")
        return {
            (int(r["key"]["buyid"]), int(r["key"]["sellid"])): (r["row"]["buyremaining"], r["row"]["sellremaining"])
            for r in rows
        }

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.is_cut = proxy.is_stalled = False
            proxy.delay_s = 0.0

    def wait_for_truth(self, seconds: float = 120.0) -> None:
        expected = self.matchable()
        assert expected, "nothing can be matched"
        try:
            wait_until(lambda: self.shown() == expected, "the floor does not show the truth", seconds)
        except AssertionError as problem:
            states: Json = {n: status(b)["imports"] for n, b in self.network.brokers.items()}
            raise AssertionError(f"{problem}: {states}") from None
        for broker, view in (("buys", "RemainingBuy"), ("sells", "RemainingSell")):
            rows = self.network.brokers[broker].rows(view)
            shown = {int(tick): tuple(row["row"].values()) for row in rows for tick in row["key"].values()}
            assert shown == self.remaining()[broker]


def disturb(floor: FloorOfProcesses, random: Random) -> None:
    """Something happens to each link for a moment."""
    for proxy in floor.proxies.values():
        action = random.choice(["cut", "stall", "delay", "nothing"])
        if action == "cut":
            proxy.cut()
        proxy.is_stalled = action == "stall"
        proxy.delay_s = 0.01 if action == "delay" else 0.0


@pytest.mark.slow
def test_every_broker_is_killed_under_load(tmp_path: Path) -> None:
    random = Random(5)
    with ExitStack() as stack:
        floor = FloorOfProcesses(tmp_path, stack, {}, variables=FAULTS)
        floor.start_load()
        for name in ("matches", "buys", "sells", "floor"):
            disturb(floor, random)
            time.sleep(0.5)  # under load
            broker = floor.network.brokers[name]
            broker.kill()
            broker.start()
            floor.heal()
        floor.stop_load()
        floor.heal()
        floor.wait_for_truth()


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("engines", [{"floor": "spark"}, dict.fromkeys(PROGRAMS, "spark")], ids=["one", "all"])
def test_brokers_on_spark_are_killed_under_load(tmp_path: Path, engines: dict[str, str]) -> None:
    random = Random(7)
    with ExitStack() as stack:
        floor = FloorOfProcesses(tmp_path, stack, engines)
        for broker in floor.network.brokers.values():
            broker.wait_until_ready()
        floor.start_load()
        for name in ("matches", "buys", "sells", "floor"):
            disturb(floor, random)
            time.sleep(2)  # under load
            broker = floor.network.brokers[name]
            broker.kill()
            broker.start()
            floor.heal()
        floor.stop_load()
        floor.wait_for_truth(WAIT_S)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_broker_on_spark_among_others(tmp_path: Path) -> None:
    with ExitStack() as stack:
        floor = FloorOfProcesses(tmp_path, stack, {"floor": "spark"})
        floor.start_load()
        floor.network.brokers["floor"].wait_until_ready()
        floor.proxies["buys"].cut()
        floor.stop_load()
        floor.wait_for_truth(WAIT_S)
