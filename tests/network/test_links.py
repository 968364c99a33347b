"""Links between processes, with a proxy between them that delays, stalls and cuts: what changes is transferred once, and
a dead connection is noticed."""

from pathlib import Path

import pytest

from tests.network.processes import (
    NetworkProcesses,
    import_status,
    link_status,
    shown_rows,
    status,
    wait_for_import,
    wait_for_rows,
)
from tests.network.proxy import TcpProxy
from tests.network.test_two_brokers import EXPORTING, IMPORTING
from tests.processes import wait_until

pytestmark = pytest.mark.slow

ISSUES = 4_000
CHANGED = 200


def test_after_a_reconnect_only_changes_are_sent(tmp_path: Path) -> None:
    """Also when the importing broker is killed meanwhile."""
    with NetworkProcesses(tmp_path) as network, TcpProxy(network.port("buys")) as proxy:
        # Few messages that only advance horizons: they would count.
        buys = network.start("buys", EXPORTING, idle_ms=5_000, silence_ms=1_000)
        floor = network.start("floor", IMPORTING, {"buys": proxy.url})
        names = [f"issue {n}" for n in range(ISSUES)]
        buys.publish("Bids", *({"issue": name, "shares": 10} for name in names))
        wait_until(lambda: len(shown_rows(floor, "Counts")) == ISSUES, "the stream is not imported")
        wait_until(lambda: len(shown_rows(floor, "Large")) == ISSUES, "the view is not imported")
        whole = proxy.bytes_from_target

        def change_while_cut(shares: int) -> None:
            buys.publish("Bids", *({"issue": name, "shares": shares} for name in names[:CHANGED]))

        def wait_for_sum(total: int) -> None:
            expected = {name: total if n < CHANGED else 10 for n, name in enumerate(names)}
            wait_until(lambda: shown_rows(floor, "Large") == expected, f"the changed rows do not become {total}")
            wait_until(
                lambda: sum(shown_rows(floor, "Counts").values()) == ISSUES + (total - 10) * CHANGED, "no events"
            )

        # With the link: this is what the changes cost.
        before = proxy.bytes_from_target
        change_while_cut(1)
        wait_for_sum(11)
        cost = proxy.bytes_from_target - before
        # Without the link, and then again.
        proxy.is_cut = True
        proxy.cut()
        change_while_cut(1)
        before = proxy.bytes_from_target
        proxy.is_cut = False
        wait_for_sum(12)
        assert proxy.bytes_from_target - before <= 1.2 * cost + 2_000, "more was sent than has changed"
        assert cost < whole / 5
        floor.kill()
        change_while_cut(1)
        before = proxy.bytes_from_target
        floor.start()
        wait_for_sum(13)
        assert proxy.bytes_from_target - before <= 1.2 * cost + 2_000, "more was sent than has changed"


def test_a_half_open_connection_is_noticed(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network, TcpProxy(network.port("buys")) as proxy:
        buys = network.start_here("buys", EXPORTING)
        floor = network.start_here("floor", IMPORTING, {"buys": [proxy.url]})
        wait_for_import(floor, "Sums")
        proxy.is_stalled = True
        buys.publish("Bids", {"issue": "IBM", "shares": 70})
        wait_until(
            lambda: (import_status(floor, "Sums")["problem"] or {}).get("code") == "E121", "floor notices nothing"
        )
        wait_until(lambda: not link_status(buys, "floor"), "buys notices nothing")
        proxy.is_stalled = False
        wait_for_rows(floor, "Large", {"IBM": 70})
        (link,) = [link for link in link_status(floor, "buys") if link["state"] == "open"]
        assert link["opened"] >= 2


def test_redundant_links(tmp_path: Path) -> None:
    """Over two paths nothing is doubled, and when one fails, the import goes on."""
    with (
        NetworkProcesses(tmp_path) as network,
        TcpProxy(network.port("buys"), delay_s=0.005) as first,
        TcpProxy(network.port("buys")) as second,
    ):
        buys = network.start_here("buys", EXPORTING)
        floor = network.start_here("floor", IMPORTING, {"buys": [first.url, second.url]})
        wait_until(lambda: import_status(floor, "Bids")["links"] == 2, "there are not two links")
        for cut in (first, second):
            buys.publish("Bids", *({"issue": "IBM", "shares": 1} for _ in range(20)))
            cut.is_cut = True
            cut.cut()
            wait_until(lambda: import_status(floor, "Bids")["links"] == 1, "the link is not cut")
            buys.publish("Bids", *({"issue": "IBM", "shares": 1} for _ in range(20)))
            published = 40 if cut is first else 80
            wait_for_rows(floor, "Counts", {"IBM": published})
            wait_for_rows(floor, "Large", {"IBM": published})
            states = {link["address"]: link["state"] for link in link_status(floor, "buys")}
            assert states[cut.url] == "absent"
            cut.is_cut = False
            wait_until(lambda: import_status(floor, "Bids")["links"] == 2, "the link does not come back")


def test_a_link_that_flaps(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network, TcpProxy(network.port("buys")) as proxy:
        buys = network.start_here("buys", EXPORTING)
        floor = network.start_here("floor", IMPORTING, {"buys": [proxy.url]})
        for n in range(4):
            buys.publish("Bids", {"issue": "IBM", "shares": 10})
            wait_for_rows(floor, "Large", {"IBM": 10 * (n + 1)})
            proxy.cut()
        wait_until(lambda: any(link["opened"] >= 5 for link in link_status(floor, "buys")), "the links are not counted")
        assert proxy.connections < 12, "the neighbour is called too often"
        wait_for_rows(floor, "Counts", {"IBM": 4})


@pytest.mark.nightly
def test_a_neighbour_that_reads_nothing_costs_bounded_memory_and_delays_nobody(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network, TcpProxy(network.port("buys")) as proxy:
        buys = network.start("buys", EXPORTING, message_bytes_max=2**26)
        floor = network.start("floor", IMPORTING, {"buys": proxy.url})
        other = network.start("other", IMPORTING, {"buys": network.url("buys")})
        wait_for_import(floor, "Bids")
        wait_for_import(other, "Bids")
        buys.publish("Bids", {"issue": "x" * 100, "shares": 1})
        before = buys.memory_bytes
        proxy.is_stalled = True
        rounds, events = 6, [{"issue": "x" * 100, "shares": 1}] * 50_000  # 33 MB in all
        for n in range(rounds):
            buys.publish("Bids", *events)
            wait_for_rows(other, "Counts", {"x" * 100: 1 + (n + 1) * len(events)})
        assert buys.memory_bytes - before < 120e6
        proxy.is_stalled = False
        wait_for_rows(floor, "Counts", {"x" * 100: 1 + rounds * len(events)})


def test_messages_are_lost_repeated_and_reordered(tmp_path: Path) -> None:
    """Above TCP: curiosity brings what is missing."""
    faults = {"SMILE_LINK_FAULTS": "lost=0.2,repeated=0.2,swapped=0.3,seed=3"}
    with NetworkProcesses(tmp_path) as network:
        buys = network.start("buys", EXPORTING, variables=faults)
        floor = network.start("floor", IMPORTING, {"buys": network.url("buys")}, variables=faults)
        for n in range(60):
            buys.publish("Bids", {"issue": "IBM", "shares": n}, {"issue": f"SUN {n}", "shares": 10})
        sums = {"IBM": sum(range(60)), **{f"SUN {n}": 10 for n in range(60)}}
        wait_for_rows(floor, "Large", sums, 120.0)
        wait_for_rows(floor, "Counts", {"IBM": 60, **{f"SUN {n}": 1 for n in range(60)}}, 120.0)
        # The figures are those of the present connection, on which horizons are lost as well.
        wait_until(lambda: any(link["questions_asked"] for link in link_status(floor, "buys")), "nothing was asked")
        assert status(buys)["links"][0]["questions_answered"] > 0
