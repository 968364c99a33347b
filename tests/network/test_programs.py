"""The example networks in programs/network: checked offline against recorded types, and run as brokers with the settings
files that they come with."""

import tomllib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from smile.demo.tcp_proxy import TcpProxy
from smile.settings import read_settings
from tests.brokers import BrokerProcess
from tests.docs import ROOT
from tests.network.processes import import_status, shown_rows, wait_for_import, wait_for_rows
from tests.processes import free_port, invoke_smile, wait_until

FOLDER = ROOT / "programs" / "network"
TABLE_LINES = {
    line.split("`")[1]: line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| `")
}
NETWORKS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def brokers_of(network: str) -> dict[str, dict[str, Any]]:
    """The settings of each broker, those that it imports from before it, and with the name of its program."""
    brokers: dict[str, dict[str, Any]] = {}
    for path in (FOLDER / network).glob("*.toml"):
        words = path.read_text().splitlines()[0].split()
        assert words[:3] == ["#", "smile", "serve"] and words[4:] == ["--config", path.name]
        brokers[path.stem] = {**tomllib.loads(path.read_text()), "program": FOLDER / network / words[3], "file": path}
    ordered: dict[str, dict[str, Any]] = {}
    while brokers:
        able = [name for name, settings in brokers.items() if settings.get("brokers", {}).keys() <= ordered.keys()]
        assert able, f"{list(brokers)} wait for each other"
        ordered |= {name: brokers.pop(name) for name in sorted(able)}
    return ordered


@pytest.mark.parametrize("network", NETWORKS)
def test_programs_fit_each_other_and_the_settings(network: str, tmp_path: Path) -> None:
    brokers = brokers_of(network)
    recorded: dict[str, Path] = {}
    for name, settings in brokers.items():
        read_settings(str(settings["file"]), {}, {})
        neighbours = settings.get("brokers", {})
        assert settings["name"] == name
        assert {n: t["url"] for n, t in neighbours.items()} == {n: f"http://{brokers[n]['listen']}" for n in neighbours}
        imports = [word for n in neighbours for word in ("--imports", str(recorded[n]))]
        checked = invoke_smile("check", str(settings["program"]), *imports)
        assert checked.exit_code == 0, checked.stderr
        options = ("--as", "exports", "--broker", name)
        recorded[name] = tmp_path / f"{name}.json"
        recorded[name].write_text(invoke_smile("explain", str(settings["program"]), *imports, *options).stdout)
    assert all(f"`{name}`" in TABLE_LINES[network] for name in brokers)
    assert set((FOLDER / network).glob("*.smile")) == {s["program"] for s in brokers.values()}
    ports = {s["listen"] for n in NETWORKS for s in brokers_of(n).values()}
    assert len(ports) == sum(len(brokers_of(n)) for n in NETWORKS), "all networks may run at the same time"


# ── as brokers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def running(
    network: str, folder: Path, proxied: Collection[tuple[str, str]] = ()
) -> Iterator[tuple[dict[str, BrokerProcess], dict[tuple[str, str], TcpProxy]]]:
    """The brokers of a network, and proxies on the links of these two brokers, the caller first."""
    brokers: dict[str, BrokerProcess] = {}
    proxies: dict[tuple[str, str], TcpProxy] = {}
    with ExitStack() as stack:
        for name, settings in brokers_of(network).items():
            (folder / name).mkdir()
            variables = {"SMILE_IDLE_MS": "50", "SMILE_SILENCE_MS": "10"}
            for neighbour in settings.get("brokers", {}):
                url = brokers[neighbour].url
                if (name, neighbour) in proxied:
                    proxies[name, neighbour] = stack.enter_context(TcpProxy(brokers[neighbour].port))
                    url = proxies[name, neighbour].url
                variables[f"SMILE_BROKERS_{neighbour.upper()}_URL"] = url
            brokers[name] = BrokerProcess(
                folder / name,
                str(settings["program"]),
                ("--config", str(settings["file"])),
                port_given=free_port(),
                variables=variables,
            )
            stack.enter_context(brokers[name])
        yield brokers, proxies


@pytest.mark.slow
def test_a_tree_of_brokers(tmp_path: Path) -> None:
    with running("tree", tmp_path) as (brokers, _):
        exchange, hub, london, tokyo = brokers.values()
        first = exchange.publish(
            "Quotes",
            {"issue": "SONY", "price": 90, "volume": 400},
            {"issue": "IBM", "price": 120, "volume": 1000},
            {"issue": "SONY", "price": 95, "volume": 300},
        )
        wait_for_rows(london, "Prices", {"SONY": (95, 700), "IBM": (120, 1000)})
        wait_for_rows(london, "Busy", {"IBM": (120, 1000)})
        wait_until(lambda: [row[1:] for row in minutes(tokyo)] == [(90, 95, 700)], "tokyo does not see the minute")
        assert import_status(tokyo, "SonyQuotes")["broker"] == "hub"
        exchange.kill()  # what it has published is in the tree, and the leaves do not need it
        assert shown_rows(hub, "Prices") == shown_rows(london, "Prices")
        exchange.start()
        wait_for_import(hub, "Quotes")
        exchange.publish("Quotes", {"issue": "SONY", "price": 85, "volume": 300})
        wait_for_rows(london, "Busy", {"IBM": (120, 1000), "SONY": (85, 1000)})
        wait_until(lambda: sum(row[3] for row in minutes(tokyo)) == 1000, "tokyo does not see the last quote")
        ticks = [row["row"]["price"] for row in exchange.rows("Quotes", Quotes=first[-1]) if row["key"]["t"] in first]
        assert sorted(ticks) == [90, 95, 120], "the ticks are those of the exchange"


def minutes(tokyo: BrokerProcess) -> list[tuple[Any, ...]]:
    return [(*row["key"].values(), *row["row"].values()) for row in tokyo.rows("Minutes")]


@pytest.mark.slow
def test_scoreboards_may_disagree_and_are_never_false(tmp_path: Path) -> None:
    def score(broker: BrokerProcess, view: str = "Board") -> dict[str, tuple[int, int]]:
        rows = [row["row"] for row in broker.rows(view)]
        return {row["game"]: (row["homegoals"], row["awaygoals"]) for row in rows}

    def wait_for_score(broker: BrokerProcess, view: str = "Board", **expected: tuple[int, int]) -> None:
        wait_until(lambda: score(broker, view) == expected, f"{expected} is not shown")

    with running("scoreboards", tmp_path, [("boston", "newyork")]) as (brokers, proxies):
        newyork, chicago = brokers["newyork"], brokers["chicago"]
        detroit, boston = brokers["detroit"], brokers["boston"]

        def goals(broker: BrokerProcess, game: str, *teams: str) -> None:
            broker.publish("Goals", *({"game": game, "team": team, "period": 1} for team in teams))

        newyork.publish("Games", {"game": "NYD", "home": "New York", "away": "Detroit"})
        chicago.publish("Games", {"game": "CB", "home": "Chicago", "away": "Boston"})
        goals(newyork, "NYD", "New York", "Detroit")
        for board in (detroit, boston):
            wait_for_score(board, NYD=(1, 1), CB=(0, 0))

        proxies["boston", "newyork"].cut()
        goals(newyork, "NYD", "New York", "New York", "New York", "Detroit")
        newyork.publish("Ends", {"game": "NYD"})
        goals(chicago, "CB", "Boston")
        wait_for_score(detroit, NYD=(4, 2), CB=(0, 1))
        wait_for_score(detroit, "Results", NYD=(4, 2))
        wait_for_score(boston, NYD=(1, 1), CB=(0, 1))  # the boards disagree about one game, and the other one goes on
        (row,) = [row for row in boston.rows("Board") if row["row"]["game"] == "NYD"]
        assert row["knowledge"]["homegoals"] == {"at_least": 1}, "at least one goal: that is true"
        assert not row["final"] and score(boston, "Results") == {}, "nothing says that the game is over"

        proxies["boston", "newyork"].heal()
        wait_for_score(boston, NYD=(4, 2), CB=(0, 1))
        wait_until(lambda: [row["final"] for row in boston.rows("Results")] == [True], "the result is not final")
        wait_for_score(boston, "Results", NYD=(4, 2))
