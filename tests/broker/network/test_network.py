"""Brokers that import from each other: whatever happens to links, caches and programs, each shows what is true."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smile.broker.broker import Broker
from smile.broker.publishing.publication import SilencePublication
from smile.broker.views.condition import ViewCondition
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, shown_horizons
from smile.links.exports import EventsRange
from smile.source import Source
from tests.broker.network.cables import BrokerNetwork, CableFaults, messages_of, network_in, publish, rows_of
from tests.processes import WAIT_S, wait_until

BIDS = "CREATE STREAM Bids (t: time -> issue: string, shares: int CHECK (shares >= 0));\n"
SUMS = "CREATE VIEW Sums AS SELECT issue, SUM(shares) AS total FROM Bids GROUP BY issue;\n"
SUBSCRIBE = "SUBSCRIBE Sums;\n"
EXPORTING = BIDS + SUMS + SUBSCRIBE
IMPORT_VIEW = """
IMPORT Sums FROM buys;
CREATE VIEW Large AS SELECT issue, total FROM Sums WHERE total >= 10;
SUBSCRIBE Large;
"""
IMPORT_STREAM = """
IMPORT Bids FROM buys;
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;
SUBSCRIBE Counts;
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def test_an_imported_view_follows(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW)
    assert network.import_status("floor", "Sums")["state"] == "waiting"
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 7), ("SUN", 20))
    network.wait_for_rows("floor", "Large", {"SUN": 20})
    publish(buys, "Bids", ("IBM", 7), ("SUN", 1))
    network.wait_for_rows("floor", "Large", {"IBM": 14, "SUN": 21})
    assert network.import_status("floor", "Sums")["state"] == "live"


def test_a_view_is_known_as_far_as_what_it_reads(network: BrokerNetwork) -> None:
    """An import that it does not read may stand still, or be gone: its own progress says nothing of it."""
    own = "CREATE STREAM Own (t: time -> x: int); CREATE VIEW Mine AS SELECT t, x FROM Own; SUBSCRIBE Mine;"
    network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORT_VIEW + own)
    (tick,) = publish(floor, "Own", (1,))
    network.wait_for_tick("floor", "Mine", {"Own": tick})
    mine = floor.view("Mine")
    assert mine.horizons.keys() == {"Own"}
    assert mine.is_reached({"Own": tick, "Sums/Bids": END}), "it waits for a stream that it does not read"
    assert not floor.view("Large").is_reached({"Sums/Bids": END})
    progress = mine.snapshot(ViewCondition()).progress
    assert progress is not None
    assert progress.keys() == {"Own"}
    network.apply("floor", own)
    assert floor.view("Mine").horizons.keys() == {"Own"}


def test_an_imported_view_without_rows_is_not_behind(network: BrokerNetwork) -> None:
    network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORT_VIEW)
    network.connect("floor", "buys")
    network.run_until(lambda: network.import_status("floor", "Sums")["horizons"]["Bids"] > 0, "nothing has come")
    horizons = floor.log_horizons
    assert horizons["Sums/Bids"] > 0
    network.wait_for_tick("floor", "Large", dict(horizons))


def test_an_imported_stream_follows(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORT_STREAM)
    publish(buys, "Bids", ("IBM", 7), ("SUN", 20))
    network.connect("buys", "floor")  # either side may call
    ticks = publish(buys, "Bids", ("IBM", 1))
    network.wait_for_rows("floor", "Counts", {"IBM": 2, "SUN": 1})
    network.wait_for_tick("floor", "Counts", {"Bids": ticks[-1]})
    events = floor.log.read("Bids", floor.log.start(), floor.log.newest())
    assert events.column(0).to_pylist()[-1] == ticks[-1]


def test_a_stream_with_subscribers_is_imported_as_a_stream(network: BrokerNetwork) -> None:
    buys = network.start("buys", BIDS + "SUBSCRIBE Bids;\n")
    network.start("floor", IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 7))
    network.wait_for_rows("floor", "Counts", {"IBM": 1})


def test_a_stream_that_is_subscribed_to_is_exported_as_a_stream(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("middle", "IMPORT Bids FROM buys;\nSUBSCRIBE Bids;\n")
    network.start("floor", IMPORT_STREAM.replace("FROM buys", "FROM middle"))
    network.connect("middle", "buys")
    network.connect("floor", "middle")
    publish(buys, "Bids", ("IBM", 7))
    network.wait_for_rows("floor", "Counts", {"IBM": 1})


def test_a_condition_and_another_name(network: BrokerNetwork) -> None:
    per_tick = (
        "CREATE VIEW PerTick AS SELECT t, issue, SUM(shares) AS n FROM Bids GROUP BY t, issue; SUBSCRIBE PerTick;"
    )
    buys = network.start("buys", EXPORTING + per_tick)
    program = """
    IMPORT Bids FROM buys WHERE shares > 5 AS LargeBids;
    IMPORT Sums FROM buys WHERE issue = 'IBM' AS SumOfIbm;
    IMPORT PerTick FROM buys WHERE n > 6 AND n < 10;
    CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM LargeBids GROUP BY issue;
    CREATE VIEW Ibm AS SELECT issue, total FROM SumOfIbm;
    CREATE VIEW Sevens AS SELECT issue, SUM(n) AS total FROM PerTick GROUP BY issue;
    SUBSCRIBE Counts, Ibm, Sevens;
    """
    network.start("floor", program)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 7), ("SUN", 20), ("IBM", 5))
    network.wait_for_rows("floor", "Counts", {"IBM": 1, "SUN": 1})
    network.wait_for_rows("floor", "Ibm", {"IBM": 12})
    network.wait_for_rows("floor", "Sevens", {"IBM": 7})  # the sum of a tick never changes


def test_what_is_final_upstream_is_final_downstream(network: BrokerNetwork) -> None:
    exporting = (
        "CREATE STREAM S (t: time -> k: string, v: int) WITH (TICKS = PUBLISHER);\n"
        "CREATE VIEW Sums AS SELECT k, SUM(v) AS total FROM S GROUP BY k;\n"
    )
    buys = network.start("buys", exporting)
    network.start("floor", "IMPORT Sums FROM buys;\nCREATE VIEW All2 AS SELECT k, total FROM Sums;\n")
    network.connect("floor", "buys")
    publish(buys, "S", (5, "a", 1), (9, "a", 2))
    network.wait_for_rows("floor", "All2", {"a": 3})
    assert not messages_of(network.brokers["floor"], "All2")[0]["final"]
    buys.publish(SilencePublication("S", END)).result(WAIT_S)
    network.wait_for_tick("floor", "All2", {"Sums/S": END})
    assert messages_of(network.brokers["floor"], "All2")[0]["final"]


def test_an_imported_stream_takes_no_publications(network: BrokerNetwork) -> None:
    network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORT_STREAM)
    with pytest.raises(SmileError, match="imported from buys") as refusal:
        publish(floor, "Bids", ("IBM", 1))
    assert refusal.value.diagnostics[0].code == "E128"
    with pytest.raises(SmileError, match="imported from buys"):
        floor.decoder.decode_json("Bids", b'{"issue": "IBM", "shares": 1}')


# ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_messages_that_are_lost_repeated_and_swapped(tmp_path: Path, seed: int) -> None:
    with network_in(tmp_path, seed) as network:
        buys = network.start("buys", EXPORTING)
        network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
        cable = network.connect("floor", "buys", CableFaults(0.2, 0.2, 0.3))
        for n in range(30):
            publish(buys, "Bids", ("IBM", n), ("SUN", 1))
            network.run(0.02)
        cable.faults = CableFaults()
        network.wait_for_rows("floor", "Large", {"IBM": sum(range(30)), "SUN": 30})
        network.wait_for_rows("floor", "Counts", {"IBM": 30, "SUN": 30})


def test_the_status_says_what_is_missing(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW)
    cable = network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 20))
    network.wait_for_rows("floor", "Large", {"IBM": 20})

    def curious() -> Any:
        (link,) = network.brokers["floor"].network.status(time.monotonic())["links"]
        return link["curious"]

    network.run_until(lambda: not curious(), "something is missed already")
    cable.faults.lost = 1.0
    network.run_until(curious, "nothing is missed")
    assert curious()["Sums"]["missing"] == "horizon"
    assert curious()["Sums"]["for_s"] >= 1.0
    cable.faults.lost = 0.0
    network.run_until(lambda: not curious(), "it is still missed")


def test_both_sides_restart(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 7), ("SUN", 20))
    network.wait_for_rows("floor", "Large", {"SUN": 20})
    network.wait_for_rows("floor", "Counts", {"IBM": 1, "SUN": 1})
    network.stop("floor")
    publish(buys, "Bids", ("IBM", 7))
    network.stop("buys")
    floor = network.start("floor", None)  # its neighbour is away
    assert rows_of(floor, "Large") == {"SUN": 20}
    assert network.import_status("floor", "Sums")["state"] == "waiting"
    buys = network.start("buys", None)
    network.connect("floor", "buys")
    network.wait_for_rows("floor", "Large", {"IBM": 14, "SUN": 20})
    network.wait_for_rows("floor", "Counts", {"IBM": 2, "SUN": 1})
    publish(buys, "Bids", ("SUN", 1))
    network.wait_for_rows("floor", "Large", {"IBM": 14, "SUN": 21})


def test_a_row_that_vanishes_while_the_exporting_broker_restarts(network: BrokerNetwork) -> None:
    """What the importing broker has is older than everything that the restarted broker knows."""
    small = EXPORTING.replace("GROUP BY issue", "GROUP BY issue HAVING COUNT(*) < 2")
    buys = network.start("buys", small)
    network.start("floor", IMPORT_VIEW)
    cable = network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10), ("SUN", 20))
    network.wait_for_rows("floor", "Large", {"IBM": 10, "SUN": 20})
    network.cut(cable)
    ticks = publish(buys, "Bids", ("IBM", 10))
    wait_until(lambda: buys.view("Sums").is_reached({"Bids": ticks[-1]}), "the view does not follow")
    network.stop("buys")
    network.start("buys", None)
    network.connect("floor", "buys")
    network.wait_for_rows("floor", "Large", {"SUN": 20})


def test_a_lost_cache_is_imported_again(network: BrokerNetwork, tmp_path: Path) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 70), ("SUN", 20))
    network.wait_for_rows("floor", "Large", {"IBM": 70, "SUN": 20})
    network.stop("floor")
    shutil.rmtree(tmp_path / "floor")
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    network.wait_for_rows("floor", "Large", {"IBM": 70, "SUN": 20})
    network.wait_for_rows("floor", "Counts", {"IBM": 1, "SUN": 1})


def test_two_links_carry_one_import_without_duplicates(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    cables = [network.connect("floor", "buys"), network.connect("buys", "floor")]
    publish(buys, "Bids", ("IBM", 10))
    network.wait_for_rows("floor", "Large", {"IBM": 10})
    network.wait_for_rows("floor", "Counts", {"IBM": 1})
    assert network.import_status("floor", "Sums")["links"] == 2
    network.cut(cables[0])
    publish(buys, "Bids", ("IBM", 10))
    network.wait_for_rows("floor", "Large", {"IBM": 20})
    network.wait_for_rows("floor", "Counts", {"IBM": 2})
    network.cut(cables[1])
    assert network.import_status("floor", "Sums")["state"] == "waiting"


def test_after_a_failed_commit_it_is_asked_for_again(network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10))
    network.wait_for_rows("floor", "Counts", {"IBM": 1})
    append = floor.log.append

    def fail(*_: Any) -> int:
        raise error("E084", "the disk is full")

    monkeypatch.setattr(floor.log, "append", fail)
    publish(buys, "Bids", ("IBM", 20))
    network.run_until(lambda: network.problems, "the link does not end")
    assert "the disk is full" in str(network.problems[0])
    status = network.import_status("floor", "Sums")
    assert (status["state"], status["problem"]["code"]) == ("waiting", "E084")
    monkeypatch.setattr(floor.log, "append", append)
    network.connect("floor", "buys")
    network.wait_for_rows("floor", "Large", {"IBM": 30})
    network.wait_for_rows("floor", "Counts", {"IBM": 2})


def test_after_a_short_outage_only_what_is_new_is_sent(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW)
    cable = network.connect("floor", "buys")
    publish(buys, "Bids", *((f"issue {n}", 20) for n in range(4000)))
    network.run_until(lambda: len(rows_of(network.brokers["floor"], "Large")) == 4000, "rows are missing")
    first_bytes = cable.bytes
    network.cut(cable)
    publish(buys, "Bids", ("IBM", 30))
    cable = network.connect("floor", "buys")
    network.run_until(lambda: rows_of(network.brokers["floor"], "Large").get("IBM") == 30, "a row is missing")
    assert cable.bytes < first_bytes / 10


# ── changed programs ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_type_that_changes_stops_the_import_until_the_program_is_applied_again(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10), ("IBM", 20))
    network.wait_for_rows("floor", "Large", {"IBM": 30})
    network.apply("buys", EXPORTING.replace("SUM(", "MAX("))
    status = network.wait_for_state("floor", "Sums", "refused")
    assert status["problem"]["code"] == "E124"
    assert "apply" in status["problem"]["hint"].casefold()
    publish(buys, "Bids", ("SUN", 40))
    network.wait_for_rows("floor", "Counts", {"IBM": 2, "SUN": 1})  # the other import goes on
    assert rows_of(network.brokers["floor"], "Large") == {"IBM": 30}
    network.apply("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.wait_for_rows("floor", "Large", {"IBM": 20, "SUN": 40})
    assert network.import_status("floor", "Sums")["edition"] == 2
    views = network.brokers["floor"].views
    assert shown_horizons(views["Large"].horizons).keys() == {"Sums@2/Bids"}, "the first edition is still counted"
    assert shown_horizons(views["Counts"].horizons).keys() == {"Bids"}
    network.apply("buys", EXPORTING)
    network.apply("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.wait_for_rows("floor", "Large", {"IBM": 30, "SUN": 40})
    assert network.import_status("floor", "Sums")["edition"] == 1


def test_another_history_is_refused(network: BrokerNetwork, tmp_path: Path) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10))
    network.wait_for_rows("floor", "Large", {"IBM": 10})
    network.stop("buys")
    shutil.rmtree(tmp_path / "buys")
    buys = network.start("buys", EXPORTING)
    publish(buys, "Bids", ("SUN", 50))
    network.connect("floor", "buys")
    for name in ("Sums", "Bids"):
        assert "history" in network.wait_for_state("floor", name, "refused")["problem"]["message"]
    assert rows_of(network.brokers["floor"], "Large") == {"IBM": 10}
    network.apply("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.wait_for_rows("floor", "Large", {"SUN": 50})


def test_an_import_that_is_added_and_dropped(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10))
    network.wait_for_rows("floor", "Large", {"IBM": 10})
    network.apply("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.wait_for_rows("floor", "Counts", {"IBM": 1})
    assert buys.network.neighbours.status() == {"floor": {"Bids": -1}}
    network.apply("floor", IMPORT_VIEW)
    network.run_until(lambda: buys.network.neighbours.status() == {"floor": {}}, "the stream is not released")
    (link,) = network.status()["buys"]["links"]
    assert link["exports"] == ["Sums"]


def test_a_relation_that_is_not_there(network: BrokerNetwork) -> None:
    network.start("buys", EXPORTING)
    with pytest.raises(SmileError, match="there is no stream or view Nope"):
        network.start("floor", "IMPORT Nope FROM buys;\nCREATE VIEW V AS SELECT issue FROM Nope;\n")
    floor = network.start("floor", IMPORT_VIEW)
    with pytest.raises(SmileError, match="elsewhere cannot be reached") as problem:
        floor.apply(Source("floor.smile", IMPORT_VIEW.replace("FROM buys", "FROM elsewhere")))
    assert problem.value.diagnostics[0].span is not None


# ── access ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Grants:
    """Rights that can be taken away."""

    def __init__(self) -> None:
        self.revoked: set[tuple[str, str]] = set()
        self.revoked_imports: set[tuple[str, str]] = set()
        self.names: dict[str, str] = {}

    def can_import(self, principal: str, relation: str) -> bool:
        return (principal, relation) not in self.revoked | self.revoked_imports

    def can_publish(self, principal: str, stream: str) -> bool:
        return (principal, stream) not in self.revoked

    def can_act_as(self, principal: str, broker: str) -> bool:
        return self.names.get(principal, principal) == broker


def test_nothing_is_sent_after_a_revocation(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    grants = buys.network.access = Grants()
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10))
    network.wait_for_rows("floor", "Large", {"IBM": 10})
    network.wait_for_rows("floor", "Counts", {"IBM": 1})
    grants.revoked = {("floor", "Sums"), ("floor", "Bids")}
    publish(buys, "Bids", ("IBM", 10))
    for name in ("Sums", "Bids"):
        assert network.wait_for_state("floor", name, "refused")["problem"]["code"] == "E090"
    assert rows_of(network.brokers["floor"], "Large") == {"IBM": 10}
    assert rows_of(network.brokers["floor"], "Counts") == {"IBM": 1}
    assert network.status()["buys"]["links"][0]["exports"] == []


def test_nobody_pretends_to_be_another_broker(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORT_VIEW)
    floor.network.access = Grants()
    floor.network.access.names = {"buys": "mallory"}
    network.connect("buys", "floor")
    network.run_until(lambda: network.problems, "the link does not end")
    assert network.problems[0].diagnostics[0].code == "E090"
    network.problems.clear()
    buys.network.identity = type(buys.network.identity)("sells", "x")
    network.connect("floor", "buys")
    network.run_until(lambda: network.problems, "the link does not end")
    assert "buys was called, but sells has answered" in str(network.problems[0])


# ── chains ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_intermediate_broker(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    middle = network.start("middle", IMPORT_VIEW + IMPORT_STREAM)
    program = """
    IMPORT Large FROM middle;
    IMPORT Bids FROM middle;
    CREATE VIEW Largest AS SELECT issue, total FROM Large;
    CREATE VIEW Shares AS SELECT issue, MAX(shares) AS most FROM Bids GROUP BY issue;
    SUBSCRIBE Largest, Shares;
    """
    end = network.start("end", program)
    network.connect("end", "middle")
    cable = network.connect("middle", "buys")
    ticks = publish(buys, "Bids", ("IBM", 10), ("SUN", 3))
    network.wait_for_rows("end", "Largest", {"IBM": 10})
    network.wait_for_rows("end", "Shares", {"IBM": 10, "SUN": 3})
    assert end.log.read("Bids", end.log.start(), end.log.newest()).column(0).to_pylist() == ticks
    network.cut(cable)
    publish(buys, "Bids", ("SUN", 9))
    network.connect("middle", "buys")
    network.wait_for_rows("end", "Largest", {"IBM": 10, "SUN": 12})
    network.wait_for_tick("end", "Largest", {"Large/Sums/Bids": middle.view("Large").horizons["Sums/Bids"]})


@pytest.mark.slow
def test_a_broker_without_views_passes_streams_on(tmp_path: Path) -> None:
    with network_in(tmp_path) as network:
        buys = network.start("buys", EXPORTING, keep="1 second")
        middle = network.start("middle", "IMPORT Bids FROM buys;\n")
        end = network.start("end", IMPORT_STREAM.replace("FROM buys", "FROM middle"))
        network.connect("end", "middle")
        network.connect("middle", "buys")
        ticks = publish(buys, "Bids", ("IBM", 10), ("SUN", 3))
        network.wait_for_rows("end", "Counts", {"IBM": 1, "SUN": 1})
        middle.truncate_log()
        network.run(0.2)
        assert buys.network.neighbours.status() == {"middle": {"Bids": -1}}  # end has not acknowledged anything
        truncate(end, network)
        network.run_until(
            lambda: middle.network.neighbours.status()["end"]["Bids"] >= ticks[-1], "nothing is acknowledged"
        )
        middle.truncate_log()
        network.run_until(
            lambda: buys.network.neighbours.status()["middle"]["Bids"] >= ticks[-1], "nothing is passed on"
        )


def test_imports_that_go_in_a_circle_are_refused_with_the_path(network: BrokerNetwork) -> None:
    network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW)
    problem = _refusal(
        network, "buys", BIDS + "IMPORT Large FROM floor;\nCREATE VIEW Sums AS SELECT issue, total FROM Large;\n"
    )
    assert "Sums at buys → Large at floor → Sums at buys" in problem
    # What is computed elsewhere from another relation of this broker is no circle.
    program = EXPORTING.replace("SUBSCRIBE Sums", "SUBSCRIBE Sums, Again")
    network.apply("buys", program + "IMPORT Large FROM floor;\nCREATE VIEW Again AS SELECT issue, total FROM Large;\n")
    network.connect("floor", "buys")
    publish(network.brokers["buys"], "Bids", ("IBM", 10))
    network.wait_for_rows("buys", "Again", {"IBM": 10})


def test_a_stream_does_not_come_from_itself(network: BrokerNetwork) -> None:
    network.start("buys", EXPORTING)
    network.start("middle", IMPORT_STREAM)
    program = IMPORT_STREAM.replace("FROM buys", "FROM middle")
    assert "Bids at buys → Bids at middle → Bids at buys" in _refusal(network, "buys", program)


def _refusal(network: BrokerNetwork, name: str, program: str) -> str:
    with pytest.raises(SmileError) as problem:
        network.brokers[name].apply(Source(f"{name}.smile", program))
    return problem.value.message


# ── retention ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_log_keeps_what_a_neighbour_needs(tmp_path: Path) -> None:
    times = {"now": 10**15}
    with network_in(tmp_path) as network:
        clock = lambda: times["now"]  # noqa: E731
        buys = network.start("buys", EXPORTING, clock, keep="1 second", away_max="1 hour")
        floor = network.start("floor", IMPORT_STREAM, clock)
        cable = network.connect("floor", "buys")
        ticks = publish(buys, "Bids", ("IBM", 1), ("IBM", 2))
        network.wait_for_rows("floor", "Counts", {"IBM": 2})
        times["now"] += 10**7
        truncate(buys, network)
        assert buys.log.truncated_to("Bids") is None  # floor has not acknowledged anything
        truncate(floor, network)
        network.run_until(
            lambda: buys.network.neighbours.status()["floor"]["Bids"] >= ticks[-1], "nothing is acknowledged"
        )
        publish(buys, "Bids", ("IBM", 3))
        network.wait_for_rows("floor", "Counts", {"IBM": 3})
        network.cut(cable)
        times["now"] += 10**7
        last = publish(buys, "Bids", ("IBM", 4))
        times["now"] += 10**7
        truncate(buys, network)
        truncated = buys.log.truncated_to("Bids")
        assert truncated is not None and ticks[-1] <= truncated < last[0]  # floor was away for a short time only
        network.stop("buys")
        buys = network.start("buys", None, clock, keep="1 second", away_max="1 hour")
        times["now"] += 2 * 3600 * 10**6

        def is_cut() -> bool:  # as soon as the views of the broker that was started again have a checkpoint
            buys.truncate_log()
            return (buys.log.truncated_to("Bids") or 0) >= last[0]

        network.run_until(is_cut, "the log is not truncated")
        network.connect("floor", "buys")
        status = network.wait_for_state("floor", "Bids", "gone")
        assert status["problem"]["code"] == "E097"
        assert rows_of(floor, "Counts") == {"IBM": 3}


def test_of_a_stream_that_is_imported_twice_the_log_keeps_what_either_needs(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    twice = IMPORT_STREAM + "IMPORT Bids FROM buys AS Again;\nSUBSCRIBE Counts, Again;\n"
    floor = network.start("floor", twice)
    network.connect("floor", "buys")
    (tick,) = publish(buys, "Bids", ("IBM", 1))
    network.wait_for_rows("floor", "Counts", {"IBM": 1})
    network.wait_for_tick("floor", "Again", {"Again": tick})
    truncate(floor, network)
    relations = {r.import_.name: r for r in floor.network._relations.values()}
    ids = {name: relation.import_id for name, relation in relations.items()}
    assert min(floor.network._acknowledged(ids["Bids"])["Bids"].values()) >= tick
    relations["Again"].cache.horizons = {}
    assert max(floor.network._acknowledged(ids["Bids"])["Bids"].values()) == HORIZON_MIN
    network.apply("floor", IMPORT_STREAM)
    network.run(0.2)
    assert "Bids" in buys.network.neighbours.status()["floor"]  # only one of the two imports is gone


def truncate(broker: Broker, network: BrokerNetwork) -> None:
    """Takes a hard checkpoint once the views have the log, and truncates the log."""

    def is_current() -> bool:
        horizons = broker.log.newest().stream_horizons()
        return all(view.is_reached({"Bids": horizons["Bids"]}) for view in broker.views.values())

    network.run(0.1)
    network.run_until(is_current, "the views do not advance")
    broker.truncate_log()


# ── nonsense ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_cannot_be_used_stop_one_import(network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    monkeypatch.setattr("smile.broker.imports.exported_view.encode_block", lambda *_: b"nonsense")
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10))
    assert network.wait_for_state("floor", "Sums", "refused")["problem"]["code"] == "E125"
    network.wait_for_rows("floor", "Counts", {"IBM": 1})


@pytest.mark.parametrize("body", [b"nonsense", b"\xff\xff\xff\xff" + bytes(100)])
def test_events_that_cannot_be_used_stop_one_import(
    network: BrokerNetwork, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("floor", IMPORT_VIEW + IMPORT_STREAM)
    monkeypatch.setattr(
        "smile.broker.network.stream_source.LoggedStreamSource.read", lambda _s, _o, _lo, hi: EventsRange(hi, body, 1)
    )
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 10))
    assert network.wait_for_state("floor", "Bids", "refused")["problem"]["code"] == "E125"
    network.wait_for_rows("floor", "Large", {"IBM": 10})
