"""The latest state of a republisher, and its history: queries as of a tick, and what is refused because the log has not, or
not any more, what they need."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any

import pytest

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.broker import Broker
from smile.broker.queries import AdHocQuery
from smile.broker.views.condition import ViewCondition
from smile.errors import SmileError
from smile.gateway.frames import row_messages
from smile.gateway.http import program_edits
from tests.broker.network.cables import BrokerNetwork, messages_of, network_in, publish
from tests.broker.network.test_global_streams import NTP, producer, republisher

HOUR_US = 3_600_000_000


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def latest(broker: Broker, view: str = "R1_latest") -> dict[tuple[str, str], int]:
    rows = [m["key"] | m["row"] for m in messages_of(broker, view)]
    return {(row["tool"], row["from"]): row["latency"] for row in rows}


def open_query(broker: Broker, text: str, as_of: int | None) -> AdHocQuery:
    name = f"query_{token_hex(4)}"
    compiled = broker.check(program_edits.add_views(broker.compiled, f"CREATE VIEW {name} AS {text}"))
    return broker.queries.open(name, "ann", text, compiled, as_of)


def ask(broker: Broker, text: str, as_of: int) -> list[dict[str, Any]]:
    """The rows of a query as of a tick."""
    query = open_query(broker, text, as_of)
    try:
        return rows_of_query(query)
    finally:
        broker.queries.close(query.name)


def rows_of_query(query: AdHocQuery) -> list[dict[str, Any]]:
    messages = [json.loads(message) for message in row_messages(query.view.snapshot(ViewCondition()))]
    return [m["row"] | m["key"] for m in messages if not m.get("deleted")]


def code_of(broker: Broker, text: str, as_of: int | None) -> str:
    with pytest.raises(SmileError) as refused:
        open_query(broker, text, as_of)
    assert not len(broker.queries)
    return refused.value.diagnostics[0].code


def start_two_sites(network: BrokerNetwork) -> tuple[Broker, Broker, Broker]:
    hw = network.start("hw", producer("hw"), origin=2)
    ral = network.start("ral", producer("ral"), origin=3)
    r1 = network.start("r1", republisher("R1"))
    network.connect("hw", "r1")
    network.connect("ral", "r1")
    return hw, ral, r1


def test_the_latest_state_is_a_view(network: BrokerNetwork) -> None:
    hw, ral, r1 = start_two_sites(network)
    publish(hw, "ntp", ("ping", "hw", 1), ("udpmon", "hw", 2))
    publish(ral, "ntp", ("ping", "ral", 3), ("ping", "ral", 4))
    (last,) = publish(hw, "ntp", ("ping", "hw", 5))
    expected = {("ping", "hw"): 5, ("udpmon", "hw"): 2, ("ping", "ral"): 4}
    network.run_until(lambda: latest(r1) == expected, "the latest state is another one")
    ticks = {(m["key"]["tool"], m["key"]["from"]): int(m["row"]["t"]) for m in messages_of(r1, "R1_latest")}
    assert max(ticks.values()) == ticks["ping", "hw"] == last


def known_to(broker: Broker, stream: str = "R1") -> int:
    """Up to which tick all producers are known."""
    return min((t for origin, t in broker.log.stream_horizons(stream).items() if origin != "1"), default=-1)


@pytest.mark.parametrize("seed", range(2))
def test_as_of_every_tick_the_answer_is_that_of_what_was_published_until_then(
    network: BrokerNetwork, seed: int
) -> None:
    hw, ral, r1 = start_two_sites(network)
    random, events = Random(seed), list[tuple[int, str, str, int]]()
    for n in range(12):
        host, site = random.choice([(hw, "hw"), (ral, "ral")])
        tool = random.choice(["ping", "udpmon"])
        (tick,) = publish(host, "ntp", (tool, site, n))
        events.append((tick, tool, site, n))
        network.run(0.01)
    network.run_until(lambda: known_to(r1) >= max(events)[0], "the events do not come")
    for tick, *_ in events:
        for as_of in (tick, tick - 1):
            then = sorted(event for event in events if event[0] <= as_of)
            rows = ask(
                r1, 'SELECT tool, "from", COUNT(*) AS n, SUM(latency) AS total FROM R1 GROUP BY tool, "from"', as_of
            )
            channels = {(tool, site): [n for _, t, s, n in then if (t, s) == (tool, site)] for _, tool, site, _ in then}
            assert {(r["tool"], r["from"]): (r["n"], r["total"]) for r in rows} == {
                channel: (len(values), sum(values)) for channel, values in channels.items()
            }
            rows = ask(r1, "SELECT * FROM R1_latest", as_of)
            assert {(r["tool"], r["from"]): r["latency"] for r in rows} == {c: v[-1] for c, v in channels.items()}
    assert code_of(r1, "SELECT * FROM R1", known_to(r1) + 10 * HOUR_US * TICKS_PER_MICROSECOND) == "E205"


def test_a_history_is_kept_and_nothing_is_answered_from_a_part_of_it(tmp_path: Path) -> None:
    times = {"now": 10**15}
    with network_in(tmp_path) as network:
        clock = lambda: times["now"]  # noqa: E731
        hw = network.start("hw", producer("hw"), clock, origin=2)
        kept = republisher("R1", "latency >= 0").rstrip(";\n")
        programs = {
            "r1": f"{kept} WITH (HISTORY = INTERVAL '1' HOUR);\n",
            "r2": republisher("R2", "latency >= 0"),
        }
        relays = {name: network.start(name, text, clock, keep="1 second") for name, text in programs.items()}
        for name in relays:
            network.connect("hw", name)
        ticks = list[int]()

        def is_known() -> bool:
            return all(known_to(broker, name.upper()) >= ticks[-1] for name, broker in relays.items())

        for n in range(4):
            times["now"] += HOUR_US // 3
            ticks += publish(hw, "ntp", (f"tool{n}", "hw", n))
            network.run_until(is_known, "it does not come")
        times["now"] += 10**7

        def is_cut(name: str) -> bool:
            relays[name].truncate_log()
            return relays[name].log.truncated_to(name.upper()) is not None

        def advance(name: str) -> bool:
            times["now"] += 10**5
            return is_cut(name)

        # The log may be cut where the checkpoint of the latest state is, and not where it ends.
        assert not any("R1" in broker._exports.unread_streams() for broker in relays.values())
        network.run_until(lambda: advance("r2"), "without a history, nothing is cut")
        network.run_until(lambda: advance("r1"), "what is older than the history is not cut")
        r1, begin = relays["r1"], relays["r1"].log.truncated_to("R1")
        assert begin is not None and ticks[0] <= begin < ticks[1], "an hour is kept"
        total = "SELECT SUM(latency) AS total, COUNT(*) AS n FROM R1"
        assert code_of(r1, total, ticks[3]) == code_of(r1, total, None) == "E197"
        assert code_of(r1, f"{total} WHERE t > {begin - 1}", ticks[3]) == "E197"
        assert code_of(r1, f"{total} WHERE t > {begin} OR latency = 1", ticks[3]) == "E197"
        assert code_of(r1, "SELECT * FROM R1_latest", ticks[3]) == "E197"
        since = f"{total} WHERE t > {begin}"
        assert ask(r1, since, ticks[3]) == [{"total": 6, "n": 3}]
        assert ask(r1, since, ticks[2]) == [{"total": 3, "n": 2}]
        assert ask(r1, f"{total} WHERE latency > 1 AND t >= {begin + 1}", ticks[2]) == [{"total": 2, "n": 1}]
        query = open_query(r1, since, None)
        assert rows_of_query(query) == [{"total": 6, "n": 3}], "all of it is there when it is opened"
        ticks += publish(hw, "ntp", ("tool3", "hw", 4))
        network.run_until(lambda: rows_of_query(query) == [{"total": 10, "n": 4}], "it does not follow")
        expected = {("tool0", "hw"): 0, ("tool1", "hw"): 1, ("tool2", "hw"): 2, ("tool3", "hw"): 4}
        network.run_until(lambda: latest(r1) == expected, "the latest state lacks what was cut")
        network.stop("r1")
        r1 = network.start("r1", None, clock, keep="1 second")
        network.run_until(lambda: latest(r1) == expected, "the latest state is lost")
        assert ask(r1, since, ticks[3]) == [{"total": 6, "n": 3}]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_republisher_on_spark(tmp_path: Path) -> None:
    """The latest state is a view on Spark. Queries as of a tick have the engine in the broker's process."""
    with network_in(tmp_path) as network:
        hw = network.start("hw", producer("hw"), origin=2)
        spark: dict[str, Any] = {"engine": "spark", "master": "local[1]", "partitions": 2, "flight": ""}
        program = republisher("R1", "latency >= 0").rstrip(";\n") + " WITH (HISTORY = INTERVAL '1' HOUR);"
        r1 = network.start("r1", program, **spark)
        network.connect("hw", "r1")
        first, *_ = publish(hw, "ntp", ("ping", "hw", 1), ("udpmon", "hw", 2))
        publish(hw, "ntp", ("ping", "hw", 3))
        expected = {("ping", "hw"): 3, ("udpmon", "hw"): 2}
        network.run_until(lambda: latest(r1) == expected, "the latest state is another one", 120.0)
        network.run_until(lambda: known_to(r1) >= first, "nothing is known")
        assert [row["latency"] for row in ask(r1, "SELECT * FROM R1_latest", first)] == [1]


def test_options_of_a_republisher(network: BrokerNetwork) -> None:
    for options, code in (
        ("WITH (HISTORY = INTERVAL '1' HOUR)", ""),
        ("WITH (KEEP = INTERVAL '1' HOUR)", "E180"),
        ("WITH (HISTORY = 3)", "E046"),
        ("WITH (HISTORY = INTERVAL '1' HOUR) LIMIT 3", "E180"),
    ):
        program = NTP + f"CREATE REPUBLISHER R1 AS SELECT * FROM ntp {options};"
        if not code:
            network.start("ok", program)
            continue
        with pytest.raises(SmileError) as refused:
            network.start("refused", program)
        assert refused.value.diagnostics[0].code == code, options


def test_the_name_of_the_latest_state_is_taken(network: BrokerNetwork) -> None:
    with pytest.raises(SmileError, match="two relations named R1_latest"):
        network.start("r1", republisher("R1") + "CREATE VIEW R1_latest AS SELECT tool FROM R1;")
