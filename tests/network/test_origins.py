"""A stream that three broker processes publish to and a fourth one imports: one is killed, fenced, another leaves, and one
joins while all run. Everything is done with the commands of a user, as docs/running.md says."""

import json
from pathlib import Path
from typing import Any

import pytest

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.horizons import END
from tests.broker.network.test_origins import COUNTS, HOME, HOST
from tests.brokers import BrokerProcess
from tests.network.processes import Json, NetworkProcesses, status
from tests.network.proxy import TcpProxy
from tests.processes import invoke_smile, wait_until

pytestmark = pytest.mark.slow


def smile(*words: str, broker: BrokerProcess, stdin: str | None = None) -> str:
    """The output of a command that succeeds."""
    done = invoke_smile(*words, "--url", broker.url, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def refusal(*words: str, broker: BrokerProcess, stdin: str | None = None) -> str:
    """The errors of a command that is refused."""
    done = invoke_smile(*words, "--url", broker.url, stdin=stdin)
    assert done.exit_code == 1, done.output
    return done.stderr


def bid(broker: BrokerProcess, issue: str) -> int:
    """Publishes an event, and returns its tick."""
    with broker.http() as client:
        answer = client.post("/streams/Bids/events", json={"issue": issue, "shares": 1})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["ticks"][0])


def origins(broker: BrokerProcess) -> dict[str, Json]:
    """What the broker knows of the origins, by broker; of one that has joined again, the last."""
    report = json.loads(smile("origins", "Bids", "--json", broker=broker))
    return {entry["broker"]: entry for entry in report["origins"]}


def final_up_to(broker: BrokerProcess) -> int:
    """The horizon of the view: what is up to there does not change any more."""
    return int(status(broker)["views"]["Counts"]["horizons"]["Bids"])


def wait_for_events(broker: BrokerProcess, events: dict[int, str], final: bool = False) -> None:
    """Waits until exactly these events are shown, and it is final that there are no others, if it is to be."""
    shown: list[Any] = []

    def is_reached() -> bool:
        is_final = final_up_to(broker) > max(events)
        shown[:] = [{int(row["key"]["t"]): row["row"]["issue"] for row in broker.rows("Counts")}]
        return bool(shown[0] == events) and (is_final or not final)

    try:
        wait_until(is_reached, f"the events do not become {events}")
    except AssertionError as problem:
        raise AssertionError(f"{problem}: {shown}; {status(broker)['hosted']} {status(broker)['imports']}") from None


def test_origins_fail_leave_and_join(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network, TcpProxy(network.port("buys")) as proxy:
        calls_home = {"buys": network.url("buys")}
        buys = network.start("buys", HOME + COUNTS)
        buys2 = network.start("buys2", HOST + COUNTS, calls_home)
        buys3 = network.start("buys3", HOST, {"buys": proxy.url})
        hosts = {"buys": buys, "buys2": buys2, "buys3": buys3}
        for broker in hosts.values():
            wait_until(lambda broker=broker: len(origins(broker)) == 3, "not all have joined")  # type: ignore[misc]
        floor = network.start(
            "floor", "IMPORT Bids FROM buys, buys2, buys3; " + COUNTS, {name: network.url(name) for name in hosts}
        )
        # No event gets another tick on its way, and each tick has the number of its origin.
        events = {bid(broker, name): name for name, broker in hosts.items()}
        numbers = {name: entry["origin"] for name, entry in origins(buys).items()}
        assert {str(tick % TICKS_PER_MICROSECOND): name for tick, name in events.items()} == {
            number: name for name, number in numbers.items()
        }
        for broker in (floor, buys, buys2):
            wait_for_events(broker, events, final=True)

        # One is killed. Rows flow, and what is final waits.
        buys3.kill()
        for name in ("buys", "buys2"):
            events[bid(hosts[name], f"{name} without buys3")] = f"{name} without buys3"
        for broker in (floor, buys, buys2):
            wait_for_events(broker, events)
            assert final_up_to(broker) < min(tick for tick, issue in events.items() if "without" in issue)
        wait_until(lambda: origins(floor)["buys3"]["holds_back"], "nothing is held back")
        assert "buys3  member, known up to tick" in smile("origins", "Bids", broker=floor)
        assert "holds back what is final" in smile("origins", "Bids", broker=floor)

        # It is fenced at the home, at the greatest tick that anybody has.
        text = refusal("origin", "fence", "Bids", numbers["buys3"], broker=buys2)
        assert "E135" in text and "Run it at buys." in text
        text = refusal("origin", "fence", "Bids", numbers["buys3"], broker=buys)
        assert "E137" in text and "Give the greatest with --at" in text
        end = max(int(origins(broker)["buys3"]["horizon"]) for broker in (floor, buys, buys2))
        smile("origin", "fence", "Bids", numbers["buys3"], "--at", str(end), broker=buys)
        for broker in (floor, buys, buys2):
            wait_for_events(broker, events, final=True)
        assert origins(floor)["buys3"]["state"] == "fenced"

        # It comes back, and has not heard of the fence: what it acknowledges now is shown nowhere else.
        proxy.is_cut = True
        buys3.start()
        bid(buys3, "lost")
        proxy.is_cut = False
        event = json.dumps({"issue": "refused", "shares": 1})
        wait_until(lambda: origins(buys3)["buys3"]["state"] == "fenced", "it does not hear of the fence")
        text = refusal("publish", "Bids", broker=buys3, stdin=event)
        assert f"E135: this broker was fenced as an origin of Bids at tick {end}" in text
        assert "smile origin join Bids" in text

        # Another one leaves.
        text = refusal("origin", "leave", "Bids", numbers["buys2"], broker=buys)
        assert "E135" in text and "Run it at buys2." in text
        smile("origin", "leave", "Bids", numbers["buys2"], broker=buys2)
        assert "E135: this broker has left Bids" in refusal("publish", "Bids", broker=buys2, stdin=event)
        events[bid(buys, "alone")] = "alone"
        for broker in (floor, buys, buys2):
            wait_for_events(broker, events, final=True)
        assert origins(floor)["buys2"]["horizon"] == str(END)

        # A new one joins while all run. The importer does not name it: its events come through the home.
        buys4 = network.start("buys4", HOST + COUNTS, calls_home)
        wait_until(lambda: origins(buys4).get("buys4"), "it does not join")
        events[bid(buys4, "buys4")] = "buys4"
        for broker in (floor, buys, buys2, buys4):
            wait_for_events(broker, events, final=True)

        # The one that has left joins again, with another number, and the one that was fenced too.
        for broker, name in ((buys2, "buys2"), (buys3, "buys3")):
            smile("origin", "join", "Bids", broker=broker)
            wait_until(lambda name=name: origins(buys)[name]["state"] == "member", "it does not join again")  # type: ignore[misc]
            wait_until(
                lambda broker=broker: json.loads(smile("origins", "Bids", "--json", broker=broker))["origin"],  # type: ignore[misc]
                "it does not hear that it has joined",
            )
            events[bid(broker, f"{name} again")] = f"{name} again"
        for broker in (floor, buys, buys2, buys4):
            wait_for_events(broker, events, final=True)
        final_numbers = [int(entry["origin"]) for entry in origins(floor).values()]
        assert sorted(final_numbers) == [1, 4, 5, 6]
