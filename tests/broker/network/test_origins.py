"""A stream that several brokers publish to: they join at its home, importers merge them, and what is final waits for
all of them and never changes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.broker import Broker
from smile.broker.imports.stream_cache import StreamCache
from smile.broker.network.hosted_stream import HostedStream
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.links.messages import LinkMessage
from smile.log.membership import StreamMember, StreamMembership
from smile.log.storage.pieces import StreamPiece
from smile.source import Source
from tests.broker.network.cables import BrokerNetwork, CableFaults, messages_of, network_in, publish, rows_of
from tests.broker.network.test_network import Grants
from tests.processes import WAIT_S

BIDS = "CREATE STREAM Bids (t: time -> issue: string, shares: int CHECK (shares >= 0)) WITH (ORIGINS = MANY{}); "
HOME = BIDS.format("")
HOST = BIDS.format(", HOME = buys")
COUNTS = "CREATE VIEW Counts AS SELECT t, issue, shares FROM Bids; SUBSCRIBE Counts; "
IMPORT = "IMPORT Bids FROM buys, buys2, buys3; "
HOSTS = ("buys", "buys2", "buys3")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def start_hosts(network: BrokerNetwork, hosts: tuple[str, ...] = HOSTS) -> None:
    network.start("buys", HOME)
    for name in hosts[1:]:
        network.start(name, HOST)
        network.connect(name, "buys")
    wait_for_origins(network, hosts)


def wait_for_origins(network: BrokerNetwork, hosts: tuple[str, ...]) -> None:
    def have_joined() -> bool:
        return all(network.brokers[name].network.hosted_streams["Bids"].origin is not None for name in hosts)

    network.run_until(have_joined, "a broker does not join")


def issues_of(network: BrokerNetwork, broker: str) -> list[str]:
    return sorted(issue for issue, _ in rows_of(network.brokers[broker], "Counts").values())


def wait_for_issues(network: BrokerNetwork, broker: str, *issues: str) -> None:
    expected = sorted(issues)
    network.run_until(
        lambda: issues_of(network, broker) == expected, f"{broker} has {issues_of(network, broker)}, not {expected}"
    )


def bid(network: BrokerNetwork, broker: str, issue: str) -> int:
    (tick,) = publish(network.brokers[broker], "Bids", (issue, 1))
    return tick


def horizon_at(network: BrokerNetwork, broker: str) -> int:
    return network.brokers[broker].log.newest().stream_horizons()["Bids"]


def origin_report(network: BrokerNetwork, broker: str) -> dict[str, Any]:
    return {entry["broker"]: entry for entry in network.brokers[broker].origins.report("Bids")["origins"]}


# ── joining ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_brokers_join_and_importers_merge_them(network: BrokerNetwork) -> None:
    start_hosts(network)
    origins = {name: network.brokers[name].network.hosted_streams["Bids"].origin for name in HOSTS}
    assert origins["buys"] == "1"
    assert sorted(origins.values(), key=str) == ["1", "2", "3"]
    network.start("floor", IMPORT + COUNTS)
    for name in HOSTS:
        network.connect("floor", name)
    ticks = {name: bid(network, name, f"at {name}") for name in HOSTS}
    wait_for_issues(network, "floor", *(f"at {name}" for name in HOSTS))
    for name, tick in ticks.items():
        assert str(tick % TICKS_PER_MICROSECOND) == origins[name]
    network.run_until(lambda: horizon_at(network, "floor") > max(ticks.values()), "nothing becomes final")
    floor = network.brokers["floor"]
    logged = floor.log.read("Bids", floor.log.start(), floor.log.newest()).column(0).to_pylist()
    assert sorted(logged) == sorted(ticks.values())
    assert {entry["state"] for entry in origin_report(network, "floor").values()} == {"member"}


def test_before_it_has_joined_a_broker_takes_no_publications(network: BrokerNetwork) -> None:
    network.start("buys2", HOST)
    with pytest.raises(SmileError, match="has not joined Bids yet") as problem:
        bid(network, "buys2", "early")
    assert problem.value.diagnostics[0].code == "E135"
    network.start("buys", HOME)
    cable = network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    network.cut(cable)
    network.stop("buys")
    network.stop("buys2")
    network.start("buys2", None)  # it needs its home no more
    bid(network, "buys2", "late")


def test_a_join_while_running_changes_nothing_that_is_final(network: BrokerNetwork) -> None:
    start_hosts(network, ("buys", "buys2"))
    network.start("floor", IMPORT + COUNTS)
    for name in ("buys", "buys2"):
        network.connect("floor", name)
    first = bid(network, "buys", "first")
    network.run_until(lambda: horizon_at(network, "floor") > first, "nothing becomes final")
    network.start("buys3", HOST)
    cable = network.connect("buys3", "buys")
    horizon = 0

    def check() -> bool:
        nonlocal horizon
        horizon = max(horizon, horizon_at(network, "floor"))
        return network.brokers["buys3"].network.hosted_streams["Bids"].origin is not None

    network.run_until(check, "buys3 does not join")
    network.cut(cable)
    late = bid(network, "buys3", "late")
    for _ in range(20):
        network.run(0.01)
        assert horizon_at(network, "floor") < late  # nobody has a link to buys3: nothing passes its start
    assert horizon_at(network, "floor") >= horizon
    assert origin_report(network, "floor")["buys3"]["holds_back"]
    network.connect("floor", "buys3")
    wait_for_issues(network, "floor", "first", "late")
    network.run_until(lambda: horizon_at(network, "floor") > late, "nothing becomes final")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_joins_with_messages_that_are_lost_repeated_and_swapped(tmp_path: Path, seed: int) -> None:
    faults = CableFaults(0.2, 0.2, 0.3)
    with network_in(tmp_path, seed) as network:
        network.start("buys", HOME)
        network.start("floor", IMPORT + COUNTS)
        cables = [network.connect("floor", "buys", faults)]
        expected = []
        for number, name in enumerate(("buys2", "buys3")):
            network.start(name, HOST)
            cables.append(network.connect(name, "buys", faults))
            cables.append(network.connect("floor", name, faults))
            wait_for_origins(network, HOSTS[: number + 2])
            for n in range(10):
                for host in HOSTS[: number + 2]:
                    expected.append(f"{host} {number} {n}")
                    tick = bid(network, host, expected[-1])
                    assert horizon_at(network, "floor") < tick
                network.run(0.02)
        for cable in cables:
            cable.faults = CableFaults()
        wait_for_issues(network, "floor", *expected)


# ── one origin fails ────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_origin_is_dead_and_rows_flow(network: BrokerNetwork) -> None:
    """Two importers, one of them behind an intermediate broker."""
    start_hosts(network)
    network.start("relay", IMPORT)
    network.start("floor", IMPORT + COUNTS)
    network.start("end", IMPORT.replace("buys, buys2, buys3", "relay") + COUNTS)
    network.connect("end", "relay")
    for name in HOSTS:
        network.connect("floor", name)
        network.connect("relay", name)
    first = [bid(network, name, f"first of {name}") for name in HOSTS]
    importers = ("floor", "end")
    for broker in importers:
        wait_for_issues(network, broker, *(f"first of {name}" for name in HOSTS))
        network.run_until(lambda b=broker: horizon_at(network, b) > max(first), "nothing becomes final")  # type: ignore[misc]
    network.stop("buys3")
    later = [bid(network, name, f"later of {name}") for name in ("buys", "buys2")]
    rows = [*(f"first of {name}" for name in HOSTS), "later of buys", "later of buys2"]
    for broker in importers:
        wait_for_issues(network, broker, *rows)
        assert horizon_at(network, broker) < min(later)
        assert [name for name, entry in origin_report(network, broker).items() if entry["holds_back"]] == ["buys3"]
        final = {m["row"]["issue"]: m["final"] for m in messages_of(network.brokers[broker], "Counts")}
        assert final["first of buys3"]
    # Both have the events up to this tick.
    end = min(origin_report(network, broker)["buys3"]["horizon"] for broker in importers)
    with pytest.raises(SmileError, match="not known here which events") as problem:
        network.brokers["buys"].origins.fence("Bids", "3", None)
    assert "--at" in (problem.value.diagnostics[0].hint or "")
    network.brokers["buys"].origins.fence("Bids", origin_of(network, "buys3"), end)
    for broker in importers:
        network.run_until(
            lambda b=broker: horizon_at(network, b) > max(later),  # type: ignore[misc]
            f"nothing becomes final at {broker} after the fence",
        )
        network.run_until(
            lambda b=broker: origin_report(network, b)["buys3"]["state"] == "fenced",  # type: ignore[misc]
            f"{broker} does not know of the fence",
        )
    network.start("buys3", None)
    bid(network, "buys3", "does not know")  # it has not heard of the fence yet
    network.connect("buys3", "buys")
    network.run_until(lambda: hosted(network, "buys3").origin is None, "the fenced broker does not learn it")
    with pytest.raises(SmileError, match="was fenced") as problem:
        bid(network, "buys3", "refused")
    network.connect("floor", "buys3")
    network.run(0.3)
    assert issues_of(network, "floor") == sorted(rows)
    network.brokers["buys3"].origins.join("Bids")
    network.run_until(lambda: hosted(network, "buys3").origin == "4", "it does not join again")
    bid(network, "buys3", "again")
    wait_for_issues(network, "floor", *rows, "again")


def hosted(network: BrokerNetwork, broker: str) -> HostedStream:
    return network.brokers[broker].network.hosted_streams["Bids"]


def origin_of(network: BrokerNetwork, broker: str) -> str:
    membership = hosted(network, "buys").membership
    assert membership is not None
    return next(o for o, member in membership.members.items() if member.broker == broker)


def test_an_origin_leaves_and_rows_become_final(network: BrokerNetwork) -> None:
    start_hosts(network, ("buys", "buys2"))
    network.start("floor", IMPORT + COUNTS)
    cables = {name: network.connect("floor", name) for name in ("buys", "buys2")}
    bid(network, "buys2", "last")
    wait_for_issues(network, "floor", "last")
    with pytest.raises(SmileError, match="this broker is origin 1 of Bids, not origin 2"):
        network.brokers["buys"].origins.leave("Bids", "2")
    network.cut(cables["buys2"])  # floor hears of it from the home
    network.brokers["buys2"].origins.leave("Bids", "2")
    with pytest.raises(SmileError, match="has left Bids"):
        bid(network, "buys2", "too late")
    network.run_until(lambda: origin_report(network, "buys")["buys2"]["state"] == "left", "the home does not learn it")
    network.connect("floor", "buys2")
    tick = bid(network, "buys", "alone")
    network.run_until(lambda: horizon_at(network, "floor") > tick, "nothing becomes final")
    assert origin_report(network, "floor")["buys2"]["horizon"] == END
    network.brokers["buys2"].origins.join("Bids")
    network.run_until(lambda: hosted(network, "buys2").origin == "3", "it does not join again")
    bid(network, "buys2", "again")
    wait_for_issues(network, "floor", "last", "alone", "again")


def test_a_broker_asks_to_join_again_before_it_hears_that_it_has_left(network: BrokerNetwork) -> None:
    start_hosts(network, ("buys", "buys2"))
    network.brokers["buys2"].origins.leave("Bids", "2")
    network.brokers["buys2"].origins.join("Bids")
    network.run_until(lambda: hosted(network, "buys2").origin == "3", "it does not join again")
    bid(network, "buys2", "again")


def test_a_fence_that_is_too_early_stops_those_who_have_more(network: BrokerNetwork) -> None:
    network.start("buys", HOME)
    network.start("buys2", HOST)
    cable = network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    for name in ("floor", "hall"):
        network.start(name, "IMPORT Bids FROM buys, buys2; " + COUNTS)
        network.connect(name, "buys")
    network.connect("floor", "buys2")
    network.cut(cable)  # the home must not have the event, or it refuses the fence
    bid(network, "buys2", "seen")
    wait_for_issues(network, "floor", "seen")
    network.stop("buys2")
    start = origin_report(network, "buys")["buys2"]["start"]
    network.brokers["buys"].origins.fence("Bids", "2", start)
    assert network.wait_for_state("floor", "Bids", "refused")["problem"]["code"] == "E137"
    assert issues_of(network, "floor") == ["seen"]
    tick = bid(network, "buys", "later")
    network.run_until(lambda: horizon_at(network, "hall") > tick, "nothing becomes final")  # it has nothing of buys2
    assert horizon_at(network, "floor") < tick


def test_a_fence_that_the_fenced_broker_has_not_heard_of(network: BrokerNetwork) -> None:
    """Others may ask it for what follows the end of its events. It has not lost anything."""
    network.start("buys", HOME)
    network.start("buys2", HOST)
    cable = network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    network.cut(cable)
    floor = network.start("floor", "IMPORT Bids FROM buys, buys2; " + COUNTS)
    network.connect("floor", "buys")
    bid(network, "buys", "first")
    wait_for_issues(network, "floor", "first")
    network.brokers["buys"].origins.fence("Bids", "2", origin_report(network, "buys")["buys2"]["start"])
    network.run_until(
        lambda: origin_report(network, "floor")["buys2"]["horizon"] == END, "floor does not know of the fence"
    )
    token = acknowledged_token(floor)
    cable = network.connect("floor", "buys2")
    bid(network, "buys2", "does not know")
    network.run(0.3)
    assert [i.figures.state for i in cable.links[0]._imports.values()] == ["live"]
    assert issues_of(network, "floor") == ["first"]
    open_events(network.brokers["buys2"], token)


def open_events(broker: Broker, token: str | None) -> SubscriptionClaim:
    request = DurableRequest(SubscriptionKey("somebody", "s"), "Bids", {}, token)
    return broker.subscriptions.open_events(request, lambda: None, lambda _: None)


def acknowledged_token(broker: Broker) -> str:
    """That of a subscriber that has everything."""
    claim = open_events(broker, None)
    assert claim.events is not None
    frame = claim.events.next_frame(100)
    assert frame is not None
    acknowledged = claim.acknowledge_events(dict(zip(frame.origins, frame.ticks, strict=True)))
    broker.commit()
    token = acknowledged.result(WAIT_S)
    claim.release()
    return token


def test_a_broker_that_is_fenced_before_it_knows_that_it_is_an_origin(network: BrokerNetwork) -> None:
    network.start("buys2", HOST)
    cache = hosted(network, "buys2")
    member = StreamMember("buys2", cache.log_id, 1, end=5, is_fenced=True)
    membership = StreamMembership("Bids", "h", 2, {"1": StreamMember("buys", "x", 0), "2": member})
    _, entries = cache.take(membership)
    ends = {piece.origin: piece.hi for piece in entries if isinstance(piece, StreamPiece)}
    assert ends == {"1": 0, "2": END}  # otherwise it would show what follows as final without the origin


def test_the_home_leaves_and_nobody_can_join_any_more(network: BrokerNetwork) -> None:
    start_hosts(network, ("buys", "buys2"))
    network.brokers["buys"].origins.leave("Bids", "1")
    network.start("buys3", HOST)
    network.connect("buys3", "buys")
    network.run_until(lambda: network.status()["buys3"]["hosted"]["Bids"]["problem"], "it is not refused")
    assert network.status()["buys3"]["hosted"]["Bids"]["problem"]["code"] == "E135"
    bid(network, "buys2", "goes on")


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def refusal_of(network: BrokerNetwork, broker: str) -> dict[str, Any]:
    network.connect(broker, "buys")
    network.run_until(lambda: network.status()[broker]["hosted"]["Bids"]["problem"], f"{broker} is not refused")
    problem: dict[str, Any] = network.status()[broker]["hosted"]["Bids"]["problem"]
    return problem


def test_a_stream_with_other_types_does_not_join(network: BrokerNetwork) -> None:
    network.start("buys", HOME)
    network.start("buys2", HOST.replace("shares: int", "shares: float"))
    assert refusal_of(network, "buys2")["code"] == "E124"
    network.start("floor", "IMPORT Bids FROM buys; " + COUNTS)
    with pytest.raises(SmileError, match="is defined otherwise at buys than at buys2") as problem:
        network.brokers["floor"].apply(Source("floor.smile", "IMPORT Bids FROM buys, buys2; " + COUNTS))
    assert problem.value.diagnostics[0].code == "E124"


def test_a_broker_that_is_not_the_home(network: BrokerNetwork) -> None:
    network.start("buys", BIDS.format(", HOME = elsewhere"))
    network.start("buys2", HOST)
    problem = refusal_of(network, "buys2")
    assert problem["code"] == "E135"
    assert "that is elsewhere" in problem["message"]
    network.stop("buys")
    network.start("buys", HOME.replace("ORIGINS = MANY", "ORIGINS = ONE"), data=str(network.folder / "other"))
    assert refusal_of(network, "buys2")["code"] in ("E124", "E135")


def test_two_brokers_do_not_claim_one_origin(network: BrokerNetwork, tmp_path: Path) -> None:
    start_hosts(network, ("buys", "buys2"))
    network.stop("buys2")
    shutil.copytree(tmp_path / "buys2", tmp_path / "copy")
    network.start("buys3", None, data=str(tmp_path / "copy"))  # a copy of the directory under another name
    with pytest.raises(SmileError, match="has not joined Bids yet"):
        bid(network, "buys3", "as buys2")
    problem = refusal_of(network, "buys3")
    assert (problem["code"], "copy of the log of buys2" in problem["message"]) == ("E137", True)
    shutil.rmtree(tmp_path / "buys2")
    network.start("buys2", HOST)  # it has lost its directory
    problem = refusal_of(network, "buys2")
    assert (problem["code"], "with another log" in problem["message"]) == ("E137", True)
    start = origin_report(network, "buys")["buys2"]["start"]
    with pytest.raises(SmileError, match="has begun at tick"):
        network.brokers["buys"].origins.fence("Bids", "2", start - 1)
    network.brokers["buys"].origins.fence("Bids", "2", start)
    network.stop("buys2")
    network.start("buys2", None)
    network.connect("buys2", "buys")
    wait_for_origins(network, ("buys", "buys2"))
    assert hosted(network, "buys2").origin == "3"


def test_streams_of_one_name_with_different_homes_are_not_mixed(network: BrokerNetwork) -> None:
    network.start("buys", HOME)
    network.start("buys2", HOME)
    with pytest.raises(SmileError, match="are different streams") as problem:
        network.start("floor", "IMPORT Bids FROM buys, buys2; " + COUNTS)
    assert problem.value.diagnostics[0].code == "E124"


def test_joining_needs_the_right_to_publish(network: BrokerNetwork) -> None:
    buys = network.start("buys", HOME)
    grants = buys.network.access = Grants()
    grants.revoked = {("buys2", "Bids")}
    network.start("buys2", HOST)
    assert refusal_of(network, "buys2")["code"] == "E090"


def test_events_of_an_origin_that_is_not_a_member(network: BrokerNetwork) -> None:
    start_hosts(network, ("buys", "buys2"))
    floor = network.start("floor", "IMPORT Bids FROM buys, buys2; " + COUNTS)
    network.connect("floor", "buys")
    bid(network, "buys", "here")
    wait_for_issues(network, "floor", "here")
    cache = floor.network.find_stream_cache("Bids")
    assert isinstance(cache, StreamCache) and cache.membership is not None
    assert cache.decode("2", 5, 10, b"").rows == 0
    with pytest.raises(SmileError, match="not a member of Bids") as refusal:
        cache.decode("7", 5, 10, b"")
    assert refusal.value.diagnostics[0].code == "E136"
    other = StreamMember("mallory", "x", cache.membership.members["2"].start)
    false = StreamMembership("Bids", cache.membership.history, 9, {**cache.membership.members, "2": other})
    with pytest.raises(SmileError, match="origin 2 of Bids is buys2, and not mallory") as refusal:
        cache.decode_membership(9, false.encode())
    assert refusal.value.diagnostics[0].code == "E137"


# ── redundant paths and intermediate brokers ────────────────────────────────────────────────────────────────────────


def test_redundant_paths_with_one_cut(network: BrokerNetwork) -> None:
    start_hosts(network, ("buys", "buys2"))
    for relay in ("west", "east"):
        network.start(relay, "IMPORT Bids FROM buys, buys2;\n")
        for name in ("buys", "buys2"):
            network.connect(relay, name)
    floor = network.start("floor", "IMPORT Bids FROM west, east; " + COUNTS)
    cables = [network.connect("floor", relay) for relay in ("west", "east")]
    bid(network, "buys", "a")
    wait_for_issues(network, "floor", "a")
    network.cut(cables[0])
    bid(network, "buys2", "b")
    wait_for_issues(network, "floor", "a", "b")
    network.cut(cables[1])
    tick = bid(network, "buys", "c")
    network.run(0.1)
    assert issues_of(network, "floor") == ["a", "b"]
    network.connect("floor", "west")
    wait_for_issues(network, "floor", "a", "b", "c")
    network.run_until(lambda: horizon_at(network, "floor") > tick, "nothing becomes final")
    logged = floor.log.read("Bids", floor.log.start(), floor.log.newest())
    assert logged.num_rows == 3
    network.apply("floor", "IMPORT Bids FROM west, buys, buys2; " + COUNTS)  # another path, and the same stream
    assert network.import_status("floor", "Bids")["edition"] == 1
    assert issues_of(network, "floor") == ["a", "b", "c"]


def test_an_intermediate_broker_passes_questions_on(tmp_path: Path) -> None:
    """Its log was cut. What a new importer needs comes from the origin, and not into the intermediate broker's log."""
    times = {"now": 10**15}
    with network_in(tmp_path) as network:
        clock = lambda: times["now"]  # noqa: E731
        buys = network.start("buys", HOME, clock)
        relay = network.start("relay", "IMPORT Bids FROM buys;\n", clock, keep="1 second")
        cable = network.connect("relay", "buys")
        early = [bid(network, "buys", f"early {n}") for n in range(20)]
        times["now"] += 10**7
        network.run_until(lambda: horizon_at(network, "relay") > early[-1], "nothing arrives")
        times["now"] += 10**7
        network.run_until(
            lambda: bid(network, "buys", "pulse") and cut_log(network, "relay") >= early[-1], "nothing is cut"
        )
        cut = relay.log.truncated_to("Bids")
        for name in ("floor", "hall"):
            network.start(name, "IMPORT Bids FROM relay; " + COUNTS, clock)
            network.connect(name, "relay")
        asked: list[Any] = []
        link = network.cables[0].links[0]
        send = link._send

        def record(message: LinkMessage, now: float) -> None:
            asked.append(message)
            send(message, now)

        link._send = record  # type: ignore[method-assign]
        for name in ("floor", "hall"):
            network.run_until(
                lambda name=name: {f"early {n}" for n in range(20)} <= set(issues_of(network, name)),  # type: ignore[misc]
                f"{name} does not get what was cut",
            )
        passed_on = [m.ranges for m in asked if getattr(m, "is_passed_on", False)]
        assert passed_on and len({r for ranges in passed_on for r in ranges}) == sum(map(len, passed_on)), passed_on
        assert relay.log.truncated_to("Bids") == cut
        assert buys.log.truncated_to("Bids") is None
        assert network.import_status("relay", "Bids")["state"] == "live"
        network.cut(cable)


def cut_log(network: BrokerNetwork, broker: str) -> int:
    """Cuts the log. Returns up to which tick it is cut."""
    network.brokers[broker].truncate_log()
    tick = network.brokers[broker].log.truncated_to("Bids")
    return HORIZON_MIN if tick is None else tick


@pytest.mark.slow
def test_what_nobody_has_is_gone_for_one_import_only(tmp_path: Path) -> None:
    times = {"now": 10**15}
    with network_in(tmp_path) as network:
        clock = lambda: times["now"]  # noqa: E731
        network.start("buys", HOME, clock, keep="1 second", away_max="1 second")
        network.start("relay", "IMPORT Bids FROM buys;\n", clock, keep="1 second")
        network.connect("relay", "buys")
        early = bid(network, "buys", "early")
        network.run_until(lambda: horizon_at(network, "relay") >= early, "nothing arrives")
        for name in ("relay", "buys"):
            times["now"] += 10**7
            network.run_until(
                lambda name=name: bid(network, "buys", "pulse") and cut_log(network, name) >= early,  # type: ignore[misc]
                f"nothing is cut at {name}",
            )
            times["now"] += 10**7
        network.start("floor", "IMPORT Bids FROM relay; " + COUNTS, clock)
        network.connect("floor", "relay")
        assert network.wait_for_state("floor", "Bids", "gone")["problem"]["code"] == "E097"
        assert network.import_status("relay", "Bids")["state"] == "live"


# ── restarts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_everybody_restarts_and_a_cache_is_lost(network: BrokerNetwork, tmp_path: Path) -> None:
    start_hosts(network, ("buys", "buys2"))
    network.start("floor", "IMPORT Bids FROM buys, buys2; " + COUNTS)
    for name in ("buys", "buys2"):
        network.connect("floor", name)
    for name in ("buys", "buys2"):
        bid(network, name, name)
    wait_for_issues(network, "floor", "buys", "buys2")
    for name in ("buys", "buys2", "floor"):
        network.stop(name)
    shutil.rmtree(tmp_path / "floor")
    for name in ("buys", "buys2"):
        network.start(name, None)
    assert hosted(network, "buys2").origin == "2"
    bid(network, "buys2", "later")  # without its home
    network.start("floor", "IMPORT Bids FROM buys, buys2; " + COUNTS)
    for name in ("buys", "buys2"):
        network.connect("floor", name)
    wait_for_issues(network, "floor", "buys", "buys2", "later")
    assert sorted(origin_report(network, "floor")) == ["buys", "buys2"]


@pytest.mark.slow
def test_an_importer_on_spark(tmp_path: Path) -> None:
    """One origin is dead: rows flow on Spark too, and become final when it is fenced."""
    with network_in(tmp_path) as network:
        start_hosts(network)
        network.start("floor", IMPORT + COUNTS, engine="spark", master="local[1]", partitions=2, flight="")
        for name in HOSTS:
            network.connect("floor", name)
        first = [bid(network, name, f"first of {name}") for name in HOSTS]
        wait_for_issues(network, "floor", *(f"first of {name}" for name in HOSTS))
        network.run_until(lambda: horizon_at(network, "floor") > max(first), "nothing becomes final")
        network.stop("buys3")
        later = bid(network, "buys", "later")
        rows = [*(f"first of {name}" for name in HOSTS), "later"]
        wait_for_issues(network, "floor", *rows)
        assert horizon_at(network, "floor") < later
        end = origin_report(network, "floor")["buys3"]["horizon"]
        network.brokers["buys"].origins.fence("Bids", origin_of(network, "buys3"), end)
        network.wait_for_tick("floor", "Counts", {"Bids": later})
        assert {m["row"]["issue"]: m["final"] for m in messages_of(network.brokers["floor"], "Counts")}["later"]
