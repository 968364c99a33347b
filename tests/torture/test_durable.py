"""A broker that is killed between deliveries and acknowledgements: a durable subscriber receives every event, those that
it has not acknowledged again, and none that it has."""

import threading
from pathlib import Path
from random import Random

import pytest

from smile.client import DurableSubscription, connect
from smile.errors import SmileError
from tests.brokers import PROGRAM, BrokerProcess, bid
from tests.processes import WAIT_S, wait_until

pytestmark = pytest.mark.slow

EVENTS = 300
KILLS = 2


class Accountant:
    """Books every event by its tick, and acknowledges now and then. A new one that takes its place knows only what is
    booked."""

    def __init__(self, url: str, random: Random) -> None:
        self._url, self._random = url, random
        self.booked: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        self.wrong: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                with connect(self._url, timeout=WAIT_S) as client:
                    self._book(client.durable("Bids", name="accounts"), self._random.randint(20, 200))
            except SmileError as problem:
                if problem.diagnostics[0].code not in ("E103", "E108", "E098"):
                    self.wrong.append(str(problem))
                    return

    def _book(self, events: DurableSubscription, count: int) -> None:
        """Books some events, and then leaves as if it had been killed: the last ones are not acknowledged."""
        last, unacknowledged = -1, list[int]()
        for _ in range(count):
            try:
                event = events.event(0.5)
            except SmileError as problem:
                if problem.diagnostics[0].code != "E108" or self.stopping.is_set():
                    raise
                continue
            if event.tick <= last:
                self.wrong.append(f"{event.tick} comes after {last}")
            if event.tick in self.acknowledged:
                self.wrong.append(f"{event.tick} was acknowledged, and comes again")
            last = event.tick
            self.booked[event.tick] = event["price"]
            unacknowledged.append(event.tick)
            if self._random.random() < 0.1:
                events.ack(WAIT_S)
                self.acknowledged.update(unacknowledged)
                unacknowledged.clear()


def test_killed_between_delivery_and_acknowledgement(tmp_path: Path) -> None:
    (tmp_path / "floor.smile").write_text(PROGRAM)
    random = Random(1)
    broker = BrokerProcess(tmp_path).start()
    accountant = Accountant(broker.url, random)
    accountant.thread.start()
    published: dict[int, int] = {}
    try:
        with connect(broker.url, timeout=WAIT_S) as client:
            for kill in range(KILLS + 1):
                for n in range(EVENTS // (KILLS + 1)):
                    price = 1000 * kill + n
                    published[client.publish("Bids", bid("IBM", price)).tick] = price
                    if n == random.randint(50, 100) and kill < KILLS:
                        broker.kill()
                        broker.start()
        wait_until(lambda: published.keys() <= accountant.booked.keys() or accountant.wrong, "events are missing", 120)
    finally:
        accountant.stopping.set()
        broker.kill()
    assert not accountant.wrong
    assert accountant.booked == published
    assert accountant.acknowledged
