"""Many producers at few brokers: what a step and a change cost is counted, not timed. Nothing is compared again unless it
has changed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from smile.algebra import parser
from smile.registry import boxes
from tests.broker.network.cables import BrokerNetwork, network_in, publish
from tests.broker.network.test_global_streams import ALL, NTP, latencies, plan_of, republisher


class Work:
    """How often conditions were parsed and compared."""

    def __init__(self) -> None:
        self.parsed = self.compared = 0

    def take(self) -> tuple[int, int]:
        taken = self.parsed, self.compared
        self.parsed = self.compared = 0
        return taken


@contextmanager
def counted_work(patch: pytest.MonkeyPatch) -> Iterator[Work]:
    work = Work()

    def count(module: object, name: str, attribute: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        def counting(*arguments: Any) -> Any:
            setattr(work, attribute, getattr(work, attribute) + 1)
            return function(*arguments)

        patch.setattr(module, name, counting)

    count(parser, "_parse", "parsed")
    count(boxes, "is_disjoint", "compared")
    count(boxes, "is_subset", "compared")
    yield work


def advertised(host: str, count: int) -> str:
    return NTP + "".join(
        f"ADVERTISE ntp WHERE \"from\" = '{host}' AND tool = 'tool{n}' AS S{n};\n" for n in range(count)
    )


def check_work(network: BrokerNetwork, work: Work, count: int) -> None:
    """a → R1 (from a) → c; b, d → c."""
    hosts = {name: network.start(name, advertised(name, count), origin=n) for n, name in enumerate("abd", 2)}
    network.start("r1", republisher("R1", "\"from\" = 'a'"))
    network.start("c", ALL)
    for caller, called in (("a", "r1"), ("r1", "c"), ("a", "c"), ("b", "c"), ("d", "c")):
        network.connect(caller, called)
    plan, sent = {("r1", "R1"), ("b", "ntp"), ("d", "ntp")}, 0
    network.run_until(lambda: plan_of(network, "c") == plan, "c does not know all producers", 300.0)

    def send(host: str, tool: str) -> None:
        nonlocal sent
        publish(hosts[host], "ntp", (tool, host, sent))
        sent += 1
        network.run_until(lambda: latencies(network, "c") == list(range(sent)), "the event does not come")

    for host in hosts:
        send(host, "tool1")
    network.brokers["c"].global_imports.report()

    def is_quiet() -> bool:
        network.run(1.5)
        return work.take() == (0, 0)

    network.run_until(is_quiet, "work goes on although nothing changes")
    for host in hosts:
        send(host, f"tool{count - 1}")
    network.run(1.0)
    network.brokers["c"].global_imports.report()
    assert work.take() == (0, 0), "events, pulses and reports compare no conditions"
    hosts["b"].routing.add_producer("New", "ntp", "\"from\" = 'b' AND tool = 'new'")
    send("b", "new")
    network.run(2.0)
    parsed, compared = work.take()
    assert parsed <= 20, "each broker reads the condition that is new"
    assert compared <= 50 + 3 * count, "the plan of c is made again, and nothing else"


@pytest.mark.slow
def test_producers_are_compared_only_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with network_in(tmp_path) as network, counted_work(monkeypatch) as work:
        check_work(network, work, 100)


@pytest.mark.nightly
@pytest.mark.slow
def test_ten_thousand_producers_at_three_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with network_in(tmp_path) as network, counted_work(monkeypatch) as work:
        check_work(network, work, 3_334)
