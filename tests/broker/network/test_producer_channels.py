"""Producers at different brokers have different channels and numbers; those that do not are refused, and named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.broker.broker import Broker
from smile.errors import SmileError
from smile.horizons import HORIZON_MIN
from smile.registry.epochs import ClosedEpoch, EpochMember, number_order
from tests.broker.network.cables import BrokerNetwork, messages_of, network_in, publish

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
ALL = NTP + "CREATE VIEW v AS SELECT * FROM ntp; SUBSCRIBE v;"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def latencies(broker: Broker) -> list[int]:
    return sorted((m["row"] | m["key"])["latency"] for m in messages_of(broker, "v"))


def problem_codes(broker: Broker) -> dict[str, str]:
    return {name: problem["code"] for name, problem in broker.status()["routing_problems"].items()}


def test_a_producer_of_the_same_channels_is_refused(network: BrokerNetwork) -> None:
    network.start("hw", NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AND tool = 'ping' AS S1;", origin=2)
    ral = network.start("ral", NTP, origin=3)
    network.connect("hw", "ral")
    network.run_until(lambda: ral.routing.advertised_by("S1"), "ral does not know S1")
    network.run(0.5)
    with pytest.raises(SmileError, match="producer S2 has channels of ntp that S1 at hw has") as caught:
        ral.routing.add_producer("S2", "ntp", "\"from\" <> 'ral'")
    assert caught.value.diagnostics[0].code == "E188"
    ral.routing.add_producer("S3", "ntp", "\"from\" = 'hw' AND tool <> 'ping'")
    publish(ral, "ntp", ("udpmon", "hw", 1))


def test_the_later_one_is_held_back_after_a_partition(network: BrokerNetwork) -> None:
    """Both were registered without knowledge of each other. What was published until then is delivered."""
    hw = network.start("hw", NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AS S1;", origin=2)
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" IN ('hw', 'ral') AS S2;", origin=3)
    publish(hw, "ntp", ("ping", "hw", 1))
    publish(ral, "ntp", ("ping", "hw", 2))
    c = network.start("c", ALL)
    network.connect("hw", "c")
    network.connect("ral", "c")
    network.run_until(lambda: problem_codes(ral) == {"S2": "E188"}, "S2 is not held back")
    assert problem_codes(hw) == {}
    with pytest.raises(SmileError, match="no producer at this broker"):
        publish(ral, "ntp", ("ping", "ral", 3))
    publish(hw, "ntp", ("ping", "hw", 4))
    network.run_until(lambda: latencies(c) == [1, 2, 4], "something was lost")
    (stream,) = c.global_imports.report()["global_streams"]
    assert {p["name"]: p["problem"] for p in stream["publishers"]} == {
        "S1": None,
        "S2": "it has channels of S1 at hw, and is held back",
    }
    network.apply("hw", NTP)
    network.run_until(lambda: problem_codes(ral) == {}, "S2 is still held back")
    publish(ral, "ntp", ("ping", "ral", 5))
    network.run_until(lambda: latencies(c) == [1, 2, 4, 5], "the event does not come")


def test_a_newcomer_with_a_used_number_displaces_nobody(network: BrokerNetwork) -> None:
    """Whoever has published first has the number, and a member of a closed epoch in any case."""
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" = 'ral' AS S1;", origin=3)
    c = network.start("c", ALL)
    network.connect("ral", "c")
    publish(ral, "ntp", ("ping", "ral", 1))
    network.run_until(lambda: latencies(c) == [1], "the event does not come")
    # In the order of names, it comes before.
    dup = network.start("dup", NTP + "ADVERTISE ntp WHERE \"from\" = 'dup' AS S2;", origin=3)
    publish(dup, "ntp", ("ping", "dup", 2))
    network.connect("dup", "c")
    network.run_until(lambda: problem_codes(dup) == {"S2": "E183"}, "dup is not held back")
    assert problem_codes(ral) == {}
    publish(ral, "ntp", ("ping", "ral", 3))
    network.run_until(lambda: latencies(c) == [1, 3], "the event does not come")
    (stream,) = c.global_imports.report()["global_streams"]
    assert stream["held_back"] == ["dup"] and [p["name"] for p in stream["publishers"]] == ["S1"]
    with pytest.raises(
        SmileError, match="from is 'dup'; S2 is held back: this broker and ral are both origin 3 of ntp"
    ):
        publish(dup, "ntp", ("ping", "dup", 4))


def test_the_order_in_which_brokers_have_a_number() -> None:
    a, b = EpochMember("2", "a", "log a"), EpochMember("2", "b", "log b")
    epoch = ClosedEpoch.create("ntp", 50, [b])
    assert number_order(a, 7, []) < number_order(b, 8, [])
    assert number_order(b, 8, []) < number_order(a, HORIZON_MIN, []), "who has published nothing comes last"
    assert number_order(a, HORIZON_MIN, []) < number_order(b, HORIZON_MIN, [])
    assert number_order(b, 8, [epoch]) < number_order(a, 7, [epoch]), "a member of the epoch stays"


def test_what_an_import_has_of_a_displaced_broker_is_not_mixed_up(network: BrokerNetwork) -> None:
    """c knows only the later one of two brokers with one number at first. Nothing of the other one is missed without
    notice: c says that it takes no more."""
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" = 'ral' AS S1;", origin=3)
    publish(ral, "ntp", ("ping", "ral", 1))
    network.run(0.1)
    dup = network.start("dup", NTP + "ADVERTISE ntp WHERE \"from\" = 'dup' AS S2;", origin=3)
    c = network.start("c", ALL)
    network.connect("dup", "c")
    publish(dup, "ntp", ("ping", "dup", 2))
    network.run_until(lambda: latencies(c) == [2], "the event does not come")
    network.connect("ral", "c")
    network.run_until(lambda: problem_codes(dup) == {"S2": "E183"}, "dup is not held back")
    publish(ral, "ntp", ("ping", "ral", 3))

    def problem() -> str:
        (plan,) = c.global_imports.report()["plans"]
        return str(plan["problem"])

    expected = "ntp.global has events of dup, whose number 3 is that of ral"
    network.run_until(lambda: problem() == expected, "nothing is reported")
    assert latencies(c) == [2]


def test_equal_numbers_are_refused(network: BrokerNetwork) -> None:
    hw = network.start("hw", NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AS S1;", origin=2)
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" = 'ral' AS S2;", origin=2)
    c = network.start("c", ALL)
    network.connect("hw", "c")
    network.connect("ral", "c")
    network.run_until(lambda: problem_codes(ral) == {"S2": "E183"}, "ral is not held back")
    assert "both origin 2" in ral.status()["routing_problems"]["S2"]["message"]
    with pytest.raises(SmileError) as caught:
        ral.routing.add_producer("S3", "ntp", "tool = 'x'")
    assert caught.value.diagnostics[0].hint == "Set `origin` of this broker to 3, and give it a new directory."
    with pytest.raises(SmileError, match="no producer at this broker"):
        publish(ral, "ntp", ("ping", "ral", 1))
    publish(hw, "ntp", ("ping", "hw", 2))
    network.run_until(lambda: latencies(c) == [2], "the event does not come")
    (stream,) = c.global_imports.report()["global_streams"]
    assert stream["held_back"] == ["ral"]
    with pytest.raises(SmileError, match="hw and ral are both origin 2"):
        c.close_global_stream("ntp", None)
