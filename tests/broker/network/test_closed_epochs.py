"""Global streams whose membership is closed: what depends on them becomes final, with respect to the epoch, and nothing
that was final changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.broker.broker import Broker
from smile.errors import SmileError
from smile.horizons import END
from tests.broker.network.cables import BrokerNetwork, messages_of, network_in, publish

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
SUMS = NTP + 'CREATE VIEW sums AS SELECT "from", SUM(latency) AS total FROM ntp GROUP BY "from"; SUBSCRIBE sums;'


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def producer(host: str) -> str:
    return NTP + f"ADVERTISE ntp WHERE \"from\" = '{host}' AS S;\n"


def horizon(broker: Broker, name: str = "ntp.global") -> int:
    """Up to where everything of a global import is known."""
    (import_,) = (i for i in broker.program.imports if i.name == name)
    assert import_.stream is not None
    return min(broker.log.stream_horizons(import_.stream.name).values())


def epoch_of(broker: Broker) -> str:
    return broker.global_imports.imports["ntp.global"].epoch


def last_tick(broker: Broker) -> int:
    return max(broker.log.stream_horizons("ntp").values())


def start_two_producers(network: BrokerNetwork) -> tuple[Broker, Broker, Broker]:
    hw = network.start("hw", producer("hw"), origin=2)
    ral = network.start("ral", producer("ral"), origin=3)
    c = network.start("c", SUMS)
    network.connect("hw", "c")
    network.connect("ral", "c")
    network.run_until(lambda: set(c.global_imports.known.find("ntp").origins) == {"2", "3"}, "c knows nobody")
    return hw, ral, c


def test_a_closed_stream_becomes_final(network: BrokerNetwork) -> None:
    hw, ral, c = start_two_producers(network)
    publish(hw, "ntp", ("ping", "hw", 1))
    network.run_until(lambda: len(messages_of(c, "sums")) == 1, "the event does not come")
    assert horizon(c) == 0, "others may still come"
    epoch = c.global_imports.close("ntp", END)
    assert [m.host for m in epoch.members] == ["hw", "ral"]
    network.run_until(lambda: epoch_of(c) == epoch.digest, "the epoch is not adopted")
    publish(ral, "ntp", ("ping", "ral", 2))
    tick = last_tick(hw)
    network.run_until(lambda: horizon(c) > tick, "nothing becomes final")
    with pytest.raises(SmileError, match="comes too late"):
        hw.routing.add_producer("Late", "ntp", "\"from\" = 'x'")
    with pytest.raises(SmileError, match="closed for good already"):
        hw.global_imports.close("ntp", END)


def test_finality_names_the_epoch(network: BrokerNetwork) -> None:
    hw, _, c = start_two_producers(network)
    publish(hw, "ntp", ("ping", "hw", 1))
    network.run_until(lambda: len(messages_of(c, "sums")) == 1, "the event does not come")
    context = c.catalogue.finality_context("sums", c.view("sums").horizons)
    assert context.obstacles["ntp.global:1"].text == "ntp is open: another producer may come until it is closed"
    network.stop("ral")
    epoch = c.close_global_stream("ntp", None)

    def obstacle() -> str:
        return c.catalogue.finality_context("sums", c.view("sums").horizons).obstacles["ntp.global:1"].text

    text = f"closed as epoch {epoch.digest}; not confirmed by ral"
    network.run_until(lambda: obstacle().endswith(text), "hw does not confirm the epoch")
    (reported,) = c.global_imports.report()["global_streams"]
    assert (reported["closed"], reported["closing"][0]["waiting"]) == (None, ["ral"])
    assert c.status()["views"]["sums"]["epochs"] == {}
    network.start("ral", None, origin=3)
    network.connect("ral", "c")
    network.run_until(lambda: epoch_of(c) == epoch.digest, "the epoch is not adopted")
    network.run_until(lambda: horizon(c) == epoch.closed_to, "nothing becomes final")
    assert c.status()["views"]["sums"]["epochs"] == {"ntp.global": epoch.digest}
    assert c.catalogue.finality_context("sums", {}).epochs == {"ntp.global": epoch.digest}
