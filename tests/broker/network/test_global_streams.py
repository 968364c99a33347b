"""Global streams: views receive the events of all producers in the network by plans that follow the registrations, each
event once and in order, whatever becomes of republishers and links."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.broker.global_streams.global_import import GlobalImport
from smile.broker.network.routing import coarse_load
from smile.errors import SmileError
from tests.broker.network.cables import BrokerNetwork, CableFaults, messages_of, network_in, publish

NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
ALL = NTP + "CREATE VIEW v AS SELECT * FROM ntp; SUBSCRIBE v;"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def producer(host: str, name: str = "S") -> str:
    return NTP + f"ADVERTISE ntp WHERE \"from\" = '{host}' AS {name};\n"


def latencies(network: BrokerNetwork, broker: str, view: str = "v") -> list[int]:
    rows = [m["row"] | m["key"] for m in messages_of(network.brokers[broker], view)]
    return [row["latency"] for row in sorted(rows, key=lambda row: int(row["t"]))]


def test_a_view_receives_the_events_of_all_producers(network: BrokerNetwork) -> None:
    hw = network.start("hw", producer("hw"), origin=2)
    ral = network.start("ral", producer("ral"), origin=3)
    network.start("c", ALL)
    network.connect("hw", "c")
    network.connect("ral", "c")
    publish(hw, "ntp", ("ping", "hw", 1))
    publish(ral, "ntp", ("ping", "ral", 2))
    publish(hw, "ntp", ("ping", "hw", 3))
    network.run_until(lambda: latencies(network, "c") == [1, 2, 3], "the events do not come")


def test_an_unexpected_error_is_reported_and_the_step_repeated(
    network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw = network.start("hw", producer("hw"), origin=2)
    consumer = network.start("c", ALL)
    network.connect("hw", "c")
    original, failures = GlobalImport.step, 2

    def step(self: GlobalImport) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise ValueError("planted")
        original(self)

    monkeypatch.setattr(GlobalImport, "step", step)
    consumer.global_imports.step()
    (import_,) = consumer.global_imports.imports.values()
    assert import_.problem is not None and "planted" in import_.problem.message
    publish(hw, "ntp", ("ping", "hw", 1))
    network.run_until(lambda: latencies(network, "c") == [1], "the event does not come")
    assert import_.problem is None


def test_an_import_that_cannot_be_planned_does_not_stop_the_others(
    network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw = network.start("hw", producer("hw"), origin=2)
    network.start("q", republisher("Q", HW))
    # As a program of an earlier release could have it: now it is refused with a position.
    monkeypatch.setattr("smile.translate.program.check_republisher", lambda *_: None)
    view = "CREATE VIEW v AS SELECT * FROM ntp; SUBSCRIBE v;"
    c = network.start("c", republisher("R", f"{HW} OR latency > 5") + view)
    network.connect("hw", "c")
    network.connect("q", "c")
    publish(hw, "ntp", ("ping", "hw", 1))
    network.run_until(lambda: latencies(network, "c") == [1], "the event does not come")
    network.run_until(lambda: c.routing.advertised_by("Q"), "Q is not known")
    ral = network.start("ral", producer("ral"), origin=3)
    network.connect("ral", "c")
    publish(ral, "ntp", ("ping", "ral", 2))
    network.run_until(lambda: latencies(network, "c") == [1, 2], "the event does not come")
    problems = {plan["name"]: plan["problem"] for plan in c.global_imports.report()["plans"]}
    assert problems.keys() == {"R", "ntp.global"} and problems["ntp.global"] is None
    assert "depend on each other" in problems["R"]
    assert [plan["name"] for plan in c.global_imports.explain()["plans"]] == ["ntp.global"]


def republisher(name: str, where: str = "") -> str:
    return NTP + f"CREATE REPUBLISHER {name} AS SELECT * FROM ntp" + (f" WHERE {where}" if where else "") + ";\n"


def plan_of(network: BrokerNetwork, broker: str, name: str = "ntp.global") -> set[tuple[str, str]]:
    """The publishers of the plan that runs."""
    return {(source.host, source.stream) for source in network.brokers[broker].global_imports.imports[name].plan}


def test_two_layers_and_a_republisher_that_dies(network: BrokerNetwork) -> None:
    """hw, ral → r1 (from hw), r2 (from ral) → top (all) → c."""
    hw = network.start("hw", producer("hw"), origin=2)
    ral = network.start("ral", producer("ral"), origin=3)
    network.start("r1", republisher("R1", "\"from\" = 'hw'"))
    network.start("r2", republisher("R2", "\"from\" = 'ral'"))
    network.start("top", republisher("R3"))
    network.start("c", ALL)
    for caller, called in (
        ("hw", "r1"),
        ("ral", "r2"),
        ("r1", "top"),
        ("r2", "top"),
        ("top", "c"),
        ("r1", "c"),
        ("r2", "c"),
    ):
        network.connect(caller, called)
    sent = 0

    def send() -> None:
        nonlocal sent
        publish(hw, "ntp", ("ping", "hw", sent), ("ping", "hw", sent + 1))
        publish(ral, "ntp", ("ping", "ral", sent + 2))
        sent += 3

    send()
    network.run_until(lambda: plan_of(network, "c") == {("top", "R3")}, "c does not use R3")
    network.run_until(
        lambda: plan_of(network, "top", "R3") == {("r1", "R1"), ("r2", "R2")}, "R3 does not use R1 and R2"
    )
    network.run_until(lambda: plan_of(network, "r1", "R1") == {("hw", "ntp")}, "R1 does not use its producer")
    network.run_until(lambda: latencies(network, "c") == list(range(sent)), "the events do not come")
    # Of what comes from a republisher, only the producers are origins: who they are is open, and holds nothing back.
    (imported,) = (i for i in network.brokers["c"].status()["imports"].values() if i["relation"].startswith("R3@top"))
    assert {o["broker"]: o["origin"] for o in imported["origins"]} == {"hw": "2", "ral": "3"}
    assert imported["horizons"].keys() == {"2", "3"} and imported["behind_s"] < 3600
    send()
    network.run_until(lambda: latencies(network, "c") == list(range(sent)), "the events do not come")
    send()
    network.stop("top")
    send()
    network.run_until(lambda: latencies(network, "c") == list(range(sent)), "the events do not come")
    assert plan_of(network, "c") == {("r1", "R1"), ("r2", "R2")}


HW = "\"from\" = 'hw'"
TOOLS = "".join(f"ADVERTISE ntp WHERE {HW} AND tool = '{tool}' AS {tool};\n" for tool in ("ping", "udp"))
TOTALS = "CREATE VIEW sums AS SELECT tool, SUM(latency) AS total FROM v GROUP BY tool; SUBSCRIBE sums;"


def run_three_layers(network: BrokerNetwork, **consumer: Any) -> None:
    """hw → R1 (from hw, ping) → R2 (from hw) → R3 (all) → c, from registrations alone. ral → R3. The republisher in the
    middle dies, then the one at the top."""
    hw = network.start("hw", NTP + TOOLS, origin=2)
    ral = network.start("ral", producer("ral"), origin=3)
    network.start("r1", republisher("R1", f"{HW} AND tool = 'ping'"))
    network.start("r2", republisher("R2", HW))
    network.start("r3", republisher("R3"))
    network.start("c", ALL + TOTALS, **consumer)
    names = ["hw", "ral", "r1", "r2", "r3", "c"]
    for number, called in enumerate(names):
        for caller in names[:number]:
            network.connect(caller, called)
    sent = 0

    def send() -> None:
        nonlocal sent
        publish(hw, "ntp", ("ping", "hw", sent), ("udp", "hw", sent + 1))
        publish(ral, "ntp", ("ping", "ral", sent + 2))
        sent += 3

    def wait_for_all() -> None:
        totals = {"ping": sum(n for n in range(sent) if n % 3 != 1), "udp": sum(range(1, sent, 3))}

        def is_reached() -> bool:
            sums = {m["key"]["tool"]: m["row"]["total"] for m in messages_of(network.brokers["c"], "sums")}
            return latencies(network, "c") == list(range(sent)) and sums == totals

        network.run_until(is_reached, "the events do not come")

    def wait_for_plans(**expected: set[tuple[str, str]]) -> None:
        imports = {"r1": "R1", "r2": "R2", "r3": "R3", "c": "ntp.global"}
        for broker, plan in expected.items():
            network.run_until(
                lambda broker=broker, plan=plan: plan_of(network, broker, imports[broker]) == plan,  # type: ignore[misc]
                f"the plan of {broker} is not {plan}",
            )

    producers = {("hw", "ntp")}
    send()
    wait_for_plans(r1=producers, r2={("r1", "R1"), *producers}, r3={("r2", "R2"), ("ral", "ntp")}, c={("r3", "R3")})
    wait_for_all()
    send()
    wait_for_all()
    send()
    network.stop("r2")
    send()
    wait_for_plans(r3={("r1", "R1"), *producers, ("ral", "ntp")}, c={("r3", "R3")})
    wait_for_all()
    send()
    network.stop("r3")
    send()
    wait_for_plans(c={("r1", "R1"), *producers, ("ral", "ntp")})
    wait_for_all()


@pytest.mark.slow
def test_three_layers_of_republishers(network: BrokerNetwork) -> None:
    run_three_layers(network)


@pytest.mark.nightly
@pytest.mark.slow
def test_three_layers_of_republishers_with_a_consumer_on_spark(network: BrokerNetwork) -> None:
    run_three_layers(network, engine="spark", master="local[1]", partitions=2, flight="")


@pytest.mark.parametrize("has_second", [False, True], ids=["from the producer", "from another republisher"])
def test_a_republisher_changes_its_view(network: BrokerNetwork, has_second: bool) -> None:
    """What R1 does not have any more comes from its producer, or from R2, whose name was in the plan before."""
    hw = network.start("hw", NTP + TOOLS, origin=2)
    network.start("r1", republisher("R1", HW))
    network.start("c", ALL)
    network.connect("hw", "r1")
    network.connect("r1", "c")
    network.connect("hw", "c")
    if has_second:
        network.start("r2", republisher("R2", "tool = 'udp' OR \"from\" = 'ral'"))
        network.connect("hw", "r2")
        network.connect("r2", "c")
    sent = 0

    def send(times: int) -> None:
        nonlocal sent
        for _ in range(times):
            publish(hw, "ntp", ("ping", "hw", sent), ("udp", "hw", sent + 1))
            sent += 2
            network.run(0.05)

    send(2)
    relays = {("r1", "R1"), ("r2", "R2")} if has_second else {("r1", "R1")}
    network.run_until(lambda: plan_of(network, "c") == relays, "c does not use its republishers")
    network.run_until(lambda: latencies(network, "c") == list(range(sent)), "the events do not come")
    for where in (f"{HW} AND tool = 'ping'", HW, "tool = 'udp'"):
        network.apply("r1", republisher("R1", where))
        send(10)
        network.run_until(lambda: latencies(network, "c") == list(range(sent)), f"events are lost at {where}")


@pytest.mark.slow
def test_consumers_are_spread_over_equivalent_republishers(network: BrokerNetwork) -> None:
    """Each one chooses the republisher with the least load, and stays with it when loads change."""
    network.start("hw", producer("hw"), origin=2)
    for name in ("r1", "r2"):
        network.start(name, republisher(name.upper()))
        network.connect("hw", name)

    def have_loads(loads: dict[str, int]) -> bool:
        found = (b.global_imports.known.find("ntp").publishers for n, b in network.brokers.items() if n[0] == "c")
        return all({p.name: p.load for p in publishers if p.role == "republisher"} == loads for publishers in found)

    chosen: dict[str, set[tuple[str, str]]] = {}
    for n, loads in enumerate([{"R1": 1, "R2": 0}, {"R1": 1, "R2": 1}, {"R1": 2, "R2": 1}, {"R1": 2, "R2": 2}]):
        network.start(f"c{n}", ALL)
        network.connect("r1", f"c{n}")
        network.connect("r2", f"c{n}")
        network.run_until(partial(have_loads, loads), f"loads are not {loads}")
        chosen[f"c{n}"] = plan_of(network, f"c{n}")
    assert list(chosen.values()) == [{("r1", "R1")}, {("r2", "R2")}] * 2
    network.run(0.6)
    assert {name: plan_of(network, name) for name in chosen} == chosen


def test_an_advertisement_declares_a_missing_stream(network: BrokerNetwork) -> None:
    declared = 'ADVERTISE ntp (t: time, tool: string, "from": string -> latency: int)'
    hw = network.start("hw", f"{declared} WHERE {HW} AS S;", origin=2)
    network.start("c", ALL)
    network.connect("hw", "c")
    publish(hw, "ntp", ("ping", "hw", 1))
    network.run_until(lambda: latencies(network, "c") == [1], "the event does not come")


@pytest.mark.parametrize(
    "columns",
    [
        't: time, tool: string, "from": string -> latency: float',
        't: time, tool: string -> "from": string, latency: int',
        't: time, tool: string, "from": string -> latency: int, size: int',
    ],
    ids=["another type", "another channel", "more columns"],
)
def test_brokers_that_declare_a_stream_differently(network: BrokerNetwork, columns: str) -> None:
    """Those who declare it otherwise are left out, and named; the others are not disturbed."""
    hw = network.start("hw", NTP + "ADVERTISE ntp WHERE tool = 'ping' AS S;", origin=2)
    other = network.start("x", f"ADVERTISE ntp ({columns}) WHERE tool = 'x' AS X;\n", origin=3)
    network.start("r", f"CREATE GLOBAL STREAM ntp ({columns}); CREATE REPUBLISHER R AS SELECT * FROM ntp;")
    c = network.start("c", ALL)
    for name in ("hw", "x", "r"):
        network.connect(name, "c")
    rows: dict[int, tuple[Any, ...]] = {3: ("x", "x", 5), 4: ("x", "x", 5, 6)}
    publish(other, "ntp", rows[columns.count(":") - 1])
    publish(hw, "ntp", ("ping", "hw", 1))

    def problems() -> dict[str, str | None]:
        (stream,) = c.global_imports.report()["global_streams"]
        return {p["name"]: p["problem"] for p in stream["publishers"]}

    network.run_until(lambda: problems().keys() == {"S", "X", "R"}, "c does not know all publishers")
    network.run_until(lambda: latencies(network, "c") == [1], "the event does not come")
    expected = f"ntp at x is declared as ({columns.replace(chr(34), '')})"
    assert problems() == {"S": None, "X": expected, "R": expected.replace("at x", "at r")}
    publish(other, "ntp", rows[columns.count(":") - 1])
    publish(hw, "ntp", ("ping", "hw", 2))
    network.run_until(lambda: latencies(network, "c") == [1, 2], "the event does not come")


def test_loads_are_told_when_they_double() -> None:
    told, load = [], 0
    for count in (0, 1, 2, 3, 4, 3, 4, 3, 7, 8, 5, 9, 15, 16, 9, 8, 1, 0):
        load = coarse_load(count, load)
        told.append(load)
    assert told == [0, 1, 2, 2, 4, 4, 4, 4, 4, 8, 8, 8, 8, 16, 16, 8, 1, 0]


def test_only_what_is_advertised_is_published(network: BrokerNetwork) -> None:
    hw = network.start("hw", producer("hw"), origin=2)
    with pytest.raises(SmileError, match=r"event 2: no producer at this broker is advertised .* from is 'ral'"):
        publish(hw, "ntp", ("ping", "hw", 1), ("ping", "ral", 2))
    hw.routing.add_producer("S2", "ntp", "\"from\" LIKE 'ra%' OR tool IS NULL")
    publish(hw, "ntp", ("ping", "ral", 2), (None, "x", 3))
    with pytest.raises(SmileError, match="another producer"):
        hw.routing.add_producer("S2", "ntp", "tool = 'x'")
    hw.routing.remove_producer("S2")
    with pytest.raises(SmileError, match="no producer"):
        publish(hw, "ntp", ("ping", "ral", 2))
    with pytest.raises(SmileError, match="no key column"):
        hw.routing.add_producer("S3", "ntp", "latency > 3")
    for name in ("S 3", "S@3", ""):
        with pytest.raises(SmileError, match="not a name of a producer"):
            hw.routing.add_producer(name, "ntp", "tool = 'x'")
    with pytest.raises(SmileError, match="number of its own"):
        network.start("x", producer("x"))


def test_conditions_of_producers_are_smilesql(network: BrokerNetwork) -> None:
    hw = network.start("hw", NTP, origin=2)
    hw.routing.add_producer("S1", "ntp", "tool IN ('a', 'b') AND from LIKE 'h%' AND from IS DISTINCT FROM 'hx'")
    publish(hw, "ntp", ("b", "hw", 1))
    for event in (("c", "hw", 1), ("a", "hx", 1), ("a", "ral", 1)):
        with pytest.raises(SmileError, match="no producer"):
            publish(hw, "ntp", event)
    for wrong, message in (
        ("tool = ", "expected|unexpected"),
        ("latency > 5.0", "no key column"),
        ("size = 1", "size"),
    ):
        with pytest.raises(SmileError, match=message):
            hw.routing.add_producer("S2", "ntp", wrong)
    with pytest.raises(SmileError, match="characters") as caught:
        hw.routing.add_producer("S2", "ntp", f"tool IN ('{'x' * 20_000}')")
    assert caught.value.diagnostics[0].code == "E175"


class GrantedRelations(set[str]):
    """What neighbours may import."""

    def can_import(self, principal: str, relation: str) -> bool:
        return relation in self

    def can_publish(self, principal: str, stream: str) -> bool:
        return True

    def can_act_as(self, principal: str, broker: str) -> bool:
        return True


def test_a_view_that_is_granted_releases_nothing_of_a_global_stream(network: BrokerNetwork) -> None:
    """The neighbour would take the events of the view for all events of the producer."""
    pings = "CREATE VIEW pings AS SELECT * FROM ntp WHERE tool = 'ping'; SUBSCRIBE pings;"
    hw = network.start("hw", producer("hw") + pings, origin=2)
    granted = hw.network.access = GrantedRelations({"pings"})
    c = network.start("c", ALL)
    network.connect("hw", "c")
    publish(hw, "ntp", ("ping", "hw", 1), ("udp", "hw", 2))
    network.run(0.5)
    assert (c.routing.advertised_by("ntp"), latencies(network, "c")) == ([], [])
    granted.add("ntp")
    network.run_until(lambda: latencies(network, "c") == [1, 2], "the events do not come")


def test_nothing_of_a_global_stream_is_withheld(network: BrokerNetwork) -> None:
    """Those who import it take what comes for all events. A choice that was stored by an earlier release is ignored."""
    hw = network.start("hw", producer("hw") + "CREATE REPUBLISHER R AS SELECT * FROM ntp;\n", origin=2)
    for stream in ("ntp", "R"):
        for change in (partial(hw.routing.advertise, stream, "tool = 'udp'"), partial(hw.routing.unadvertise, stream)):
            with pytest.raises(SmileError) as caught:
                change()
            assert caught.value.diagnostics[0].code == "E180"
    with pytest.raises(SmileError) as caught:
        publish(hw, "R", ("ping", "hw", 1))
    assert caught.value.diagnostics[0].hint == "Publish to ntp, at a broker that has a producer of it."
    network.stop("hw")
    choice = {"is_advertised": True, "condition": "tool = 'udp'"}
    (network.folder / "hw" / "routing.json").write_text(json.dumps({"choices": {"ntp": choice, "R": choice}}))
    hw = network.start("hw", None, origin=2)
    c = network.start("c", ALL)
    network.connect("hw", "c")
    publish(hw, "ntp", ("ping", "hw", 1), ("udp", "hw", 2))
    network.run_until(lambda: latencies(network, "c") == [1, 2], "the events do not come")
    assert {e.condition for e in c.routing.advertised_by("R")} == {"TRUE"}


def test_a_producer_joins_in_channels_that_come_from_elsewhere(network: BrokerNetwork) -> None:
    """c receives hw directly, and what is from ral by R2. Then hw begins to publish from ral: nothing is lost."""
    hw = network.start("hw", producer("hw"), origin=2)
    ral = network.start("ral", NTP + "ADVERTISE ntp WHERE \"from\" = 'ral' AND tool = 'ping' AS S;\n", origin=3)
    network.start("r2", republisher("R2", "\"from\" = 'ral'"))
    network.start("c", ALL)
    for caller, called in (("hw", "r2"), ("ral", "r2"), ("r2", "c"), ("hw", "c")):
        network.connect(caller, called)
    publish(hw, "ntp", ("ping", "hw", 0))
    publish(ral, "ntp", ("ping", "ral", 1))
    network.run_until(lambda: plan_of(network, "c") == {("r2", "R2"), ("hw", "ntp")}, "the plan is another one")
    network.run_until(lambda: latencies(network, "c") == [0, 1], "the events do not come")
    count = 2
    for n in range(5):
        hw.routing.add_producer(f"T{n}", "ntp", f"\"from\" = 'ral' AND tool = 'tool{n}'")
        publish(hw, "ntp", (f"tool{n}", "ral", count), ("ping", "hw", count + 1))
        count += 2
        network.run(0.1)
    network.run_until(lambda: latencies(network, "c") == list(range(count)), "the events do not come")


def test_restarts_continue(network: BrokerNetwork) -> None:
    hw = network.start("hw", producer("hw"), origin=2)
    hw.routing.add_producer("S9", "ntp", "\"from\" = 'x'")
    network.start("r1", republisher("R1"))
    network.start("c", ALL)
    network.connect("hw", "r1")
    network.connect("r1", "c")
    publish(hw, "ntp", ("ping", "hw", 0), ("ping", "x", 1))
    network.run_until(lambda: latencies(network, "c") == [0, 1], "the events do not come")
    network.stop("c")
    network.stop("r1")
    publish(hw, "ntp", ("ping", "hw", 2))
    network.stop("hw")
    hw = network.start("hw", None, origin=2)
    network.start("r1", None)
    network.start("c", None)
    assert plan_of(network, "c") == {("r1", "R1")}, "the plan is stored"
    publish(hw, "ntp", ("ping", "x", 3))
    network.connect("hw", "r1")
    network.connect("r1", "c")
    network.run_until(lambda: latencies(network, "c") == [0, 1, 2, 3], "the events do not come")


@pytest.mark.parametrize("seed", range(2))
def test_histories_of_producers_and_republishers(tmp_path: Path, seed: int) -> None:
    """Producers join and leave, republishers die and come back, links lose, repeat and reorder messages: views show
    the union of what was published, and every channel is complete."""
    random = Random(seed)
    with network_in(tmp_path, seed) as network:
        hosts = {name: network.start(name, NTP, origin=n) for n, name in enumerate(("h2", "h3"), 2)}
        programs = {
            "r1": republisher("R1", "\"from\" = 'a'"),
            "r2": republisher("R2", "\"from\" = 'b' OR tool = 'x'"),
            "r3": republisher("R3"),
        }
        for name, program in programs.items():
            network.start(name, program)
        view = "CREATE VIEW v AS SELECT * FROM ntp WHERE tool <> 'hidden'; SUBSCRIBE v;"
        network.start("c", NTP + view)
        names = ["h2", "h3", "r1", "r2", "r3", "c"]

        def connect(name: str) -> None:
            for other in network.brokers:
                if other != name:
                    first, second = sorted((name, other), key=names.index)
                    network.connect(first, second, CableFaults(0.05, 0.05, 0.2))

        for n, name in enumerate(names):
            for other in names[:n]:
                network.connect(other, name, CableFaults(0.05, 0.05, 0.2))
        advertised: dict[str, tuple[str, str, str]] = {}
        published: list[int] = []
        for step in range(12):
            if len(advertised) < 2 or random.random() < 0.4:
                name, host = f"P{step}", random.choice(sorted(hosts))
                channel = random.choice("ab"), random.choice("xyz") + str(step)
                hosts[host].routing.add_producer(name, "ntp", f"\"from\" = '{channel[0]}' AND tool = '{channel[1]}'")
                advertised[name] = (host, *channel)
            for host, place, tool in random.choices(list(advertised.values()), k=3):
                published.append(len(published))
                publish(hosts[host], "ntp", (tool, place, published[-1]))
            if random.random() < 0.3 and len(advertised) > 1:
                name = random.choice(sorted(advertised))
                hosts[advertised.pop(name)[0]].routing.remove_producer(name)
            if random.random() < 0.5:
                name = random.choice(sorted(programs))
                if name in network.brokers:
                    network.stop(name)
                else:
                    network.start(name, None)
                    connect(name)
            network.run(random.random() * 0.4)
        network.run_until(lambda: latencies(network, "c") == published, "the view is not the union")


@pytest.mark.slow
def test_a_consumer_on_spark(tmp_path: Path) -> None:
    """A broker on Spark receives the stream from a republisher, and goes on with its producers when that dies."""
    with network_in(tmp_path) as network:
        hw = network.start("hw", producer("hw"), origin=2)
        ral = network.start("ral", producer("ral"), origin=3)
        network.start("r1", republisher("R1"))
        totals = "CREATE VIEW v AS SELECT * FROM ntp; CREATE VIEW Sums AS SELECT tool, SUM(latency) AS total FROM v GROUP BY tool;"
        spark: dict[str, Any] = {"engine": "spark", "master": "local[1]", "partitions": 2, "flight": ""}
        network.start("c", NTP + totals + "SUBSCRIBE v; SUBSCRIBE Sums;", **spark)
        for caller, called in (("hw", "r1"), ("ral", "r1"), ("r1", "c"), ("hw", "c"), ("ral", "c")):
            network.connect(caller, called)

        def wait_for_sum(count: int) -> None:
            expected = [{"total": sum(range(count))}]

            def is_reached() -> bool:
                sums = [m["row"] for m in messages_of(network.brokers["c"], "Sums")]
                return latencies(network, "c") == list(range(count)) and sums == expected

            network.run_until(is_reached, f"{count} events do not come")

        publish(hw, "ntp", ("ping", "hw", 0))
        publish(ral, "ntp", ("ping", "ral", 1))
        wait_for_sum(2)
        network.run_until(lambda: plan_of(network, "c") == {("r1", "R1")}, "c does not use R1")
        publish(hw, "ntp", ("ping", "hw", 2))
        network.stop("r1")
        publish(ral, "ntp", ("ping", "ral", 3))
        wait_for_sum(4)
        assert plan_of(network, "c") == {("hw", "ntp"), ("ral", "ntp")}
