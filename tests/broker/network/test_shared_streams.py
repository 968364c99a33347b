"""A broker that publishes to a stream with many origins sees the whole stream: the other origins come from the hosts that
it has links to, once, and nothing goes in a circle."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smile.broker.network.troubles import network_troubles
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.links.messages import EventsMessage, LinkMessage
from smile.log.membership import HOME_ORIGIN
from tests.broker.network.cables import BrokerNetwork, Cable, CableFaults, messages_of, network_in, rows_of
from tests.broker.network.test_network import Grants
from tests.broker.network.test_origins import (
    COUNTS,
    HOME,
    HOST,
    HOSTS,
    bid,
    cut_log,
    horizon_at,
    hosted,
    issues_of,
    origin_of,
    origin_report,
    wait_for_issues,
    wait_for_origins,
)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def start_readers(network: BrokerNetwork, names: tuple[str, ...] = HOSTS, **settings: Any) -> None:
    """Hosts that also read the stream, each with a link to the home."""
    for name in names:
        network.start(name, (HOME if name == "buys" else HOST) + COUNTS, **settings)
        if name != "buys":
            network.connect(name, "buys")
    wait_for_origins(network, names)


def record_events(cable: Cable) -> list[tuple[int, EventsMessage]]:
    """The ranges that are sent over a cable from now on, each with the side that sends it."""
    sent: list[tuple[int, EventsMessage]] = []
    for side in (0, 1):
        receive = cable.links[1 - side]._dispatch

        def record(message: LinkMessage, body: bytes, now: float, side: int = side, receive: Any = receive) -> None:
            if isinstance(message, EventsMessage):
                sent.append((side, message))
            receive(message, body, now)

        cable.links[1 - side]._dispatch = record  # type: ignore[method-assign]
    return sent


def logged_ticks(network: BrokerNetwork, broker: str) -> list[int]:
    log = network.brokers[broker].log
    return sorted(log.read("Bids", log.start(), log.newest()).column(0).to_pylist())


def test_every_host_has_the_whole_stream(network: BrokerNetwork) -> None:
    """Only the home has links to all. What the others have reaches each of them through it, with its ticks, and becomes
    final."""
    start_readers(network)
    ticks = [bid(network, name, f"at {name}") for name in HOSTS]
    for name in HOSTS:
        wait_for_issues(network, name, *(f"at {name}" for name in HOSTS))
        network.run_until(lambda name=name: horizon_at(network, name) > max(ticks), "nothing becomes final")  # type: ignore[misc]
        assert logged_ticks(network, name) == sorted(ticks)
        assert all(message["final"] for message in messages_of(network.brokers[name], "Counts"))
    assert network.status()["buys"]["hosted"]["Bids"]["sources"].keys() == {"buys2", "buys3"}


def test_nothing_is_sent_back_over_the_link_that_it_came_from(network: BrokerNetwork) -> None:
    start_readers(network)
    network.run_until(lambda: min(horizon_at(network, name) for name in HOSTS) > HORIZON_MIN, "nothing arrives")
    cable = network.cables[0]  # buys2 has called buys
    sent = record_events(cable)
    for number in range(10):
        for name in HOSTS:
            bid(network, name, f"{number} at {name}")
    for name in HOSTS:
        network.run_until(lambda name=name: len(issues_of(network, name)) == 30, f"{name} has not all")  # type: ignore[misc]
    by_side = {side: {r.origin for s, m in sent if s == side for r in m.ranges} for side in (0, 1)}
    origins = {name: origin_of(network, name) for name in HOSTS}
    assert by_side[0] == {origins["buys2"]}
    assert by_side[1] == {origins["buys"], origins["buys3"]}
    for side in (0, 1):
        ticks = [(r.origin, r.lo) for s, m in sent if s == side for r in m.ranges if r.rows]
        assert len(ticks) == len(set(ticks))  # and nothing twice


def test_a_host_that_nobody_reads_receives_nothing(network: BrokerNetwork) -> None:
    network.start("buys", HOME + COUNTS)
    network.start("buys2", HOST)
    network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    bid(network, "buys2", "here")
    tick = bid(network, "buys", "there")
    wait_for_issues(network, "buys", "here", "there")
    network.run(0.3)
    assert network.status()["buys2"]["hosted"]["Bids"]["sources"] == {}
    assert origin_report(network, "buys2")["buys"]["horizon"] < tick
    assert not hosted(network, "buys2").is_read()
    buys = network.brokers["buys"].network
    network.apply("buys2", HOST + COUNTS)
    wait_for_issues(network, "buys2", "here", "there")
    assert buys.neighbours.importers("Bids") == {"buys2"}
    network.apply("buys2", HOST)
    network.run_until(lambda: not network.status()["buys2"]["hosted"]["Bids"]["sources"], "it still receives")
    network.run_until(lambda: not buys.neighbours.importers("Bids"), "the log is kept for it")
    bid(network, "buys2", "goes on")
    wait_for_issues(network, "buys", "here", "there", "goes on")


def test_the_home_passes_on_what_it_does_not_read_itself(network: BrokerNetwork) -> None:
    network.start("buys", HOME)
    for name in ("buys2", "buys3"):
        network.start(name, HOST + (COUNTS if name == "buys2" else ""))
        network.connect(name, "buys")
    wait_for_origins(network, HOSTS)
    ticks = [bid(network, name, name) for name in HOSTS]
    wait_for_issues(network, "buys2", *HOSTS)
    network.run_until(lambda: horizon_at(network, "buys2") > max(ticks), "nothing becomes final")
    assert not hosted(network, "buys3").is_read()


def test_an_importer_of_one_host_gets_all_origins(network: BrokerNetwork) -> None:
    network.start("buys", HOME)
    network.start("buys2", HOST)
    network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    ticks = [bid(network, name, name) for name in ("buys", "buys2")]
    network.start("floor", "IMPORT Bids FROM buys2; " + COUNTS)
    network.connect("floor", "buys2")
    wait_for_issues(network, "floor", "buys", "buys2")
    network.run_until(lambda: horizon_at(network, "floor") > max(ticks), "nothing becomes final")
    network.apply("floor", "CREATE STREAM Other (t: time -> a: int);")
    network.run_until(lambda: not hosted(network, "buys2").is_read(), "the import is not released")


def test_a_durable_subscription_at_a_host_gets_all_origins(network: BrokerNetwork) -> None:
    network.start("buys", HOME)
    buys2 = network.start("buys2", HOST)
    network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    request = DurableRequest(SubscriptionKey("", "audit"), "Bids", {})
    claim = buys2.subscriptions.open_events(request, lambda: None, lambda _: None)
    ticks = [bid(network, name, name) for name in ("buys", "buys2")]
    delivered: list[int] = []

    def are_delivered() -> bool:
        assert claim.events is not None
        frame = claim.events.next_frame(100)
        delivered.extend([] if frame is None else frame.ticks)
        return sorted(delivered) == sorted(ticks)

    network.run_until(are_delivered, "not all events are delivered")
    claim.release()


@pytest.mark.parametrize("seed", range(2))
def test_a_mesh_of_hosts_with_messages_that_are_lost_repeated_and_swapped(tmp_path: Path, seed: int) -> None:
    faults = CableFaults(0.1, 0.2, 0.3)
    with network_in(tmp_path, seed) as network:
        for name in HOSTS:
            network.start(name, (HOME if name == "buys" else HOST) + COUNTS)
        for caller, called in (("buys2", "buys"), ("buys3", "buys"), ("buys3", "buys2")):
            network.connect(caller, called, faults)
        wait_for_origins(network, HOSTS)
        ticks = []
        for number in range(10):
            ticks += [bid(network, name, f"{number} at {name}") for name in HOSTS]
            network.run(0.02)
        for name in HOSTS:
            network.run_until(lambda name=name: horizon_at(network, name) > max(ticks), "nothing becomes final")  # type: ignore[misc]
            assert logged_ticks(network, name) == sorted(ticks)
            network.run_until(lambda name=name: len(issues_of(network, name)) == 30, f"{name} has not all")  # type: ignore[misc]


def test_a_host_is_dead_and_the_others_have_all_that_one_of_them_has(network: BrokerNetwork) -> None:
    """The last events of buys3 have reached buys2 only. The home gets them from there, and then the fence is final."""
    start_readers(network)
    mesh = network.connect("buys3", "buys2")
    bid(network, "buys3", "for all")
    for name in HOSTS:
        wait_for_issues(network, name, "for all")
    for cable in [c for c in network.cables if c is not mesh]:
        network.cut(cable)
    last = bid(network, "buys3", "for buys2")
    wait_for_issues(network, "buys2", "for all", "for buys2")
    network.stop("buys3")
    network.connect("buys2", "buys")
    wait_for_issues(network, "buys", "for all", "for buys2")
    tick = bid(network, "buys", "later")
    wait_for_issues(network, "buys2", "for all", "for buys2", "later")
    assert horizon_at(network, "buys") < tick
    number = origin_of(network, "buys3")
    with pytest.raises(SmileError, match=f"origin {number} of Bids has events above tick {last - 1} here"):
        network.brokers["buys"].origins.fence("Bids", number, last - 1)
    with pytest.raises(SmileError) as problem:
        network.brokers["buys"].origins.fence("Bids", number, None)
    end = max(origin_report(network, name)["buys3"]["horizon"] for name in ("buys", "buys2"))
    assert str(origin_report(network, "buys")["buys3"]["horizon"]) in (problem.value.diagnostics[0].hint or "")
    network.brokers["buys"].origins.fence("Bids", number, end)
    for name in ("buys", "buys2"):
        network.run_until(lambda name=name: horizon_at(network, name) > tick, "nothing becomes final")  # type: ignore[misc]
    assert origin_report(network, "buys2")["buys3"]["horizon"] == END


@pytest.mark.parametrize("has_later_events", [False, True])
def test_a_broker_that_was_fenced_comes_back(network: BrokerNetwork, has_later_events: bool) -> None:
    """What it has published before it has heard of the fence is shown there only, and then nothing is final there any
    more. Without such events, it follows again."""
    start_readers(network, ("buys", "buys2"))
    bid(network, "buys2", "before")
    wait_for_issues(network, "buys", "before")
    number = origin_of(network, "buys2")
    network.stop("buys2")
    end = origin_report(network, "buys")["buys2"]["horizon"]
    network.brokers["buys"].origins.fence("Bids", number, end)
    buys2 = network.start("buys2", None)
    lost = [bid(network, "buys2", "lost")] if has_later_events else []  # it is acknowledged: it is on this disk
    network.connect("buys2", "buys")
    network.run_until(lambda: origin_report(network, "buys2")["buys2"]["state"] == "fenced", "it does not hear of it")
    with pytest.raises(SmileError, match=f"was fenced as an origin of Bids at tick {end}") as problem:
        bid(network, "buys2", "refused")
    assert problem.value.diagnostics[0].code == "E135"
    tick = bid(network, "buys", "after")
    wait_for_issues(network, "buys2", "before", "after", *(["lost"] if has_later_events else []))
    network.run_until(lambda: horizon_at(network, "buys") > tick, "nothing becomes final")
    assert issues_of(network, "buys") == ["after", "before"]
    if has_later_events:
        network.run(0.3)
        assert horizon_at(network, "buys2") < tick
        assert logged_ticks(network, "buys2") == sorted([*logged_ticks(network, "buys"), *lost])
    else:
        network.run_until(lambda: horizon_at(network, "buys2") > tick, "nothing becomes final")
        buys2.origins.join("Bids")
        network.run_until(lambda: hosted(network, "buys2").origin == "3", "it does not join again")
        again = bid(network, "buys2", "again")
        for name in ("buys", "buys2"):
            wait_for_issues(network, name, "before", "after", "again")
            network.run_until(lambda name=name: horizon_at(network, name) > again, "nothing becomes final")  # type: ignore[misc]


def test_a_new_host_gets_what_was_published_before_it_joined(network: BrokerNetwork) -> None:
    start_readers(network, ("buys", "buys2"))
    bid(network, "buys", "early")
    bid(network, "buys2", "early too")
    network.start("buys3", HOST + COUNTS)
    network.connect("buys3", "buys")
    wait_for_issues(network, "buys3", "early", "early too")


def test_restarts_ask_only_for_what_is_new(network: BrokerNetwork) -> None:
    start_readers(network, ("buys", "buys2"))
    first = bid(network, "buys", "first")
    wait_for_issues(network, "buys2", "first")
    network.run_until(lambda: horizon_at(network, "buys2") > first, "nothing becomes final")
    network.stop("buys2")
    bid(network, "buys", "meanwhile")
    network.start("buys2", None)
    assert issues_of(network, "buys2") == ["first"]
    sent = record_events(network.connect("buys2", "buys"))
    wait_for_issues(network, "buys2", "first", "meanwhile")
    assert sum(m.rows for _, m in sent) == 1


def test_the_logs_of_hosts_are_truncated(tmp_path: Path) -> None:
    """Hosts acknowledge each other. What one waits for does not depend on what it has acknowledged itself."""
    times = {"now": 10**15}
    with network_in(tmp_path) as network:
        for name in HOSTS:
            network.start(name, (HOME if name == "buys" else HOST) + COUNTS, lambda: times["now"], keep="1 second")
        for caller, called in (("buys2", "buys"), ("buys3", "buys"), ("buys3", "buys2")):
            network.connect(caller, called)
        wait_for_origins(network, HOSTS)
        early = [bid(network, name, f"early at {name}") for name in HOSTS]
        for name in HOSTS:
            network.run_until(lambda name=name: len(issues_of(network, name)) == 3, "not all events arrive")  # type: ignore[misc]

        def are_cut() -> bool:
            times["now"] += 10**6
            for name in HOSTS:
                bid(network, name, "pulse")
            cuts = [cut_log(network, name) for name in HOSTS]
            return min(cuts) >= max(early)

        network.run_until(are_cut, "the logs are not truncated")
        for name in HOSTS:
            assert {f"early at {name}" for name in HOSTS} <= set(issues_of(network, name))


def test_a_host_without_the_right_to_subscribe_publishes_all_the_same(network: BrokerNetwork) -> None:
    buys = network.start("buys", HOME + COUNTS)
    grants = buys.network.access = Grants()
    grants.revoked_imports = {("buys2", "Bids")}
    network.start("buys2", HOST + COUNTS)
    network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    bid(network, "buys2", "here")
    bid(network, "buys", "there")
    wait_for_issues(network, "buys", "here", "there")

    def refusal() -> Any:
        return network.status()["buys2"]["hosted"]["Bids"]["sources"].get("buys", {}).get("problem")

    network.run_until(refusal, "it is not refused")
    assert refusal()["code"] == "E090"
    (trouble,) = network_troubles(network.status()["buys2"])
    assert (trouble.subject, trouble.code, trouble.is_severe) == ("Bids", "E090", False)
    assert issues_of(network, "buys2") == ["here"]


def test_nobody_sends_a_host_events_of_its_own_origin(network: BrokerNetwork) -> None:
    start_readers(network, ("buys", "buys2"))
    own = hosted(network, "buys2").origin
    assert own is not None
    with pytest.raises(SmileError, match="is this broker, but its events have arrived") as problem:
        hosted(network, "buys2").decode(own, 5, 10, b"")
    assert problem.value.diagnostics[0].code == "E136"
    assert hosted(network, "buys2").decode(HOME_ORIGIN, 5, 10, b"").rows == 0


@pytest.mark.slow
def test_hosts_on_spark(tmp_path: Path) -> None:
    """A host on Spark sees the rows of the other origins, and they become final."""
    with network_in(tmp_path) as network:
        network.start("buys", HOME + COUNTS)
        network.start("buys2", HOST + COUNTS, engine="spark", master="local[1]", partitions=2, flight="")
        network.connect("buys2", "buys")
        wait_for_origins(network, ("buys", "buys2"))
        ticks = [bid(network, name, name) for name in ("buys", "buys2")]
        wait_for_issues(network, "buys2", "buys", "buys2")
        wait_for_issues(network, "buys", "buys", "buys2")
        network.wait_for_tick("buys2", "Counts", {"Bids": max(ticks)})
        assert all(message["final"] for message in messages_of(network.brokers["buys2"], "Counts"))
        assert rows_of(network.brokers["buys2"], "Counts") == rows_of(network.brokers["buys"], "Counts")
