"""Registrations are leases: producers that cannot be reached for too long are not asked, and come back without loss."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.broker.global_streams.known_publishers import KnownPublishers
from smile.links.messages import AdvertisementEntry
from smile.log.clock import wall_clock
from tests.broker.network.cables import BrokerNetwork, messages_of, network_in, publish

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
ALL = NTP + "CREATE VIEW v AS SELECT * FROM ntp; SUBSCRIBE v;"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def test_a_lease_ends_when_its_time_is_over() -> None:
    now, reachable = 0, {"a", "b"}

    def entries() -> list[tuple[AdvertisementEntry, bool]]:
        origins = {"a": "2", "b": "3"}
        claims = [AdvertisementEntry(h, "ntp", 1, relation="ntp", origin=origins[h]) for h in origins]
        producers = [
            AdvertisementEntry(h, f"S{h}", 1, condition="TRUE", role="producer", relation="ntp") for h in origins
        ]
        return [(entry, entry.host in reachable) for entry in (*claims, *producers)]

    known = KnownPublishers(entries, {}, lambda: now, lease_us=100)

    def absent_at(time: int) -> frozenset[str]:
        nonlocal now
        now = time
        known.update()
        return known.find("ntp").absent

    assert absent_at(10) == frozenset()
    reachable.remove("b")
    assert absent_at(20) == frozenset()
    assert absent_at(120) == frozenset()
    assert absent_at(121) == {"b"}
    assert len(known.find("ntp").publishers) == 2, "it is still known who has published"
    reachable.add("b")
    assert absent_at(122) == frozenset()
    reachable.remove("b")
    assert absent_at(200) == frozenset(), "the lease was renewed"


def test_who_is_absent_is_not_asked_and_comes_back(network: BrokerNetwork) -> None:
    later_us = 0
    hw = network.start("hw", NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AS S;", origin=2)
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" = 'ral' AS S;", origin=3)
    c = network.start("c", ALL, clock=lambda: wall_clock() + later_us, lease="10 minutes")
    network.connect("hw", "c")
    network.connect("ral", "c")

    def latencies() -> list[int]:
        return sorted((m["row"] | m["key"])["latency"] for m in messages_of(c, "v"))

    def asked() -> set[str]:
        (plan,) = c.global_imports.report()["plans"]
        return {source["broker"] for source in plan["sources"]}

    publish(hw, "ntp", ("ping", "hw", 1))
    publish(ral, "ntp", ("ping", "ral", 2))
    network.run_until(lambda: latencies() == [1, 2], "the events do not come")
    publish(ral, "ntp", ("ping", "ral", 3))
    network.stop("ral")
    network.run(0.5)
    assert asked() == {"hw", "ral"}, "the lease has not ended"
    later_us = 11 * 60 * 1_000_000
    network.run_until(lambda: asked() == {"hw"}, "the lease does not end")
    assert not any("ral" in relation for relation in c.routing.desired_imports())
    (stream,) = c.global_imports.report()["global_streams"]
    assert [p["problem"] for p in stream["publishers"]] == [None, "its lease has ended: it cannot be reached"]
    # While it is absent, the plan changes: the switch does not wait for it.
    network.start("r1", NTP + "CREATE REPUBLISHER R1 AS SELECT * FROM ntp WHERE \"from\" = 'hw';")
    network.connect("hw", "r1")
    network.connect("r1", "c")
    import_ = c.global_imports.imports["ntp.global"]
    network.run_until(lambda: asked() == {"r1"} and len(import_.running.plans) == 1, "c does not switch")
    publish(hw, "ntp", ("ping", "hw", 4))
    network.run_until(lambda: 4 in latencies(), "the event does not come")
    ral = network.start("ral", None, origin=3)
    publish(ral, "ntp", ("ping", "ral", 5))
    network.connect("ral", "c")
    network.run_until(lambda: latencies() == [1, 2, 3, 4, 5], "something was lost")
    assert asked() == {"r1", "ral"}


def test_a_switch_does_not_wait_for_what_only_the_absent_have(network: BrokerNetwork) -> None:
    """c has an event of ral that the republisher, which is new, has not."""
    later_us = 0
    hw = network.start("hw", NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AS S;", origin=2)
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" = 'ral' AS S;", origin=3)
    c = network.start("c", ALL, clock=lambda: wall_clock() + later_us, lease="10 minutes")
    network.connect("hw", "c")
    network.connect("ral", "c")
    publish(ral, "ntp", ("ping", "ral", 1))
    network.run_until(lambda: len(messages_of(c, "v")) == 1, "the event does not come")
    network.stop("ral")
    later_us = 11 * 60 * 1_000_000
    network.start("r1", NTP + "CREATE REPUBLISHER R1 AS SELECT * FROM ntp;")
    for caller, called in (("hw", "r1"), ("r1", "c")):
        network.connect(caller, called)
    import_ = c.global_imports.imports["ntp.global"]
    network.run_until(lambda: [s.host for s in import_.plan] == ["r1"], "c does not use R1")
    network.run_until(lambda: len(import_.running.plans) == 1, "the old plan does not end")
    publish(hw, "ntp", ("ping", "hw", 2))
    ral = network.start("ral", None, origin=3)
    publish(ral, "ntp", ("ping", "ral", 3))
    network.connect("ral", "r1")
    network.run_until(lambda: len(messages_of(c, "v")) == 3, "something was lost")
