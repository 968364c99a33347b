"""A republisher that is killed: a view that reads a global stream loses no event, and counts none twice."""

from pathlib import Path

import pytest

from tests.broker.network.test_global_streams import NTP, producer, republisher
from tests.brokers import BrokerProcess
from tests.network.processes import Json, NetworkProcesses
from tests.processes import wait_until

pytestmark = pytest.mark.slow

COUNTS = NTP + "CREATE VIEW v AS SELECT tool, COUNT(*) AS n, SUM(latency) AS total FROM ntp GROUP BY tool; SUBSCRIBE v;"
EVENTS = 40


def publish_event(broker: BrokerProcess, latency: int) -> None:
    with broker.http() as client:
        answer = client.post("/streams/ntp/events", json={"tool": "ping", "from": "hw", "latency": latency})
    assert answer.status_code == 200, answer.text


def republisher_in_use(broker: BrokerProcess) -> str | None:
    """The broker whose republisher the plan of `v` uses."""
    with broker.http() as client:
        report: Json = client.get("/registry").json()
    hosts = {source["broker"] for plan in report["plans"] for source in plan["sources"]}
    return hosts.pop() if len(hosts) == 1 and hosts <= {"r1", "r2"} else None


def test_a_republisher_is_killed(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network:
        home = {"hw": network.url("hw")}
        hw = network.start("hw", producer("hw"), origin=2)
        relays = {name: network.start(name, republisher(name.upper()), home) for name in ("r1", "r2")}
        c = network.start("c", COUNTS, {name: network.url(name) for name in relays})
        publish_event(hw, 0)
        used = wait_until(lambda: republisher_in_use(c), "no republisher is used")
        assert used is not None
        for latency in range(1, EVENTS):
            publish_event(hw, latency)
            if latency == EVENTS // 2:
                relays[used].kill()
        expected = [{"n": EVENTS, "total": sum(range(EVENTS))}]
        wait_until(lambda: [row["row"] for row in c.rows("v")] == expected, "events are lost or counted twice")
        wait_until(lambda: republisher_in_use(c) not in (None, used), "the other republisher is not used")
