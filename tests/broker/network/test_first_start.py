"""Brokers that are started for the first time while their neighbours are not there: each runs what it can, and continues
by itself."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from smile.analysis.recorded_types import MissingImport
from smile.errors import SmileError, error
from smile.program import compile_program
from smile.source import Source
from tests.broker.network.cables import BrokerNetwork, network_in, publish
from tests.brokers import InProcessBroker
from tests.processes import wait_until

BUYS = """
CREATE STREAM Bids (t: time -> issue: string, shares: int CHECK (shares >= 0));
CREATE VIEW Sums AS SELECT issue, SUM(shares) AS total FROM Bids GROUP BY issue;
IMPORT Prices FROM sells;
CREATE VIEW Values AS SELECT s.issue, s.total, p.price FROM Sums s JOIN Prices p ON s.issue = p.issue;
CREATE VIEW Large AS SELECT issue, total, price FROM Values WHERE total >= 10;
SUBSCRIBE Sums, Values, Large;
"""
SELLS = """
CREATE STREAM Offers (t: time -> issue: string, price: int CHECK (price >= 0));
CREATE VIEW Prices AS SELECT issue, MAX(price) AS price FROM Offers GROUP BY issue;
IMPORT Sums FROM buys;
CREATE VIEW Wanted AS SELECT issue, total FROM Sums WHERE total >= 10;
SUBSCRIBE Prices, Wanted;
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def wait_until_whole(network: BrokerNetwork, *brokers: str) -> None:
    for name in brokers:
        wait_until(lambda name=name: not network.brokers[name].descriptions.is_waiting, f"{name} waits")  # type: ignore[misc]


def problem_of(network: BrokerNetwork, broker: str) -> dict[str, Any]:
    entry: dict[str, Any]
    (entry,) = network.brokers[broker].status()["waiting"]
    return entry


def test_two_brokers_that_import_from_each_other(network: BrokerNetwork) -> None:
    buys = network.start("buys", BUYS)
    assert set(buys.views) == {"Sums"}
    entry = problem_of(network, "buys")
    assert (entry["relation"], entry["brokers"], entry["code"]) == ("Prices", ["sells"], "E103")
    publish(buys, "Bids", ("IBM", 20))  # what needs no neighbour works
    with pytest.raises(
        SmileError, match="Large is not there yet: it needs the description of Prices from sells"
    ) as refusal:
        buys.view("Large")
    assert refusal.value.diagnostics[0].code == "E138"
    buys.health_watch.check()
    assert buys.health == "degraded"
    (trouble,) = [t for t in buys.status()["troubles"] if t["kind"] == "import"]
    assert (trouble["subject"], trouble["code"]) == ("Prices", "E103")
    sells = network.start("sells", SELLS)
    assert not sells.descriptions.is_waiting
    wait_until_whole(network, "buys")
    assert set(buys.views) == {"Sums", "Values", "Large"}
    network.connect("buys", "sells")
    publish(sells, "Offers", ("IBM", 7))
    network.wait_for_rows("buys", "Large", {"IBM": (20, 7)})
    network.wait_for_rows("sells", "Wanted", {"IBM": 20})
    assert buys.status()["waiting"] == []


def test_a_restart_while_it_waits(network: BrokerNetwork) -> None:
    buys = network.start("buys", BUYS)
    publish(buys, "Bids", ("IBM", 20))
    network.stop("buys")
    buys = network.start("buys", None)
    assert set(buys.views) == {"Sums"}
    network.start("sells", SELLS)
    wait_until_whole(network, "buys", "sells")
    network.stop("sells")
    network.stop("buys")
    assert set(network.start("buys", None).views) == {"Sums", "Values", "Large"}  # the neighbour is not needed any more


def test_a_program_that_needs_its_neighbour_for_everything(network: BrokerNetwork) -> None:
    floor = network.start("floor", "IMPORT Sums FROM buys; CREATE VIEW Large AS SELECT * FROM Sums; SUBSCRIBE Large;")
    assert not floor.views
    assert problem_of(network, "floor")["code"] == "E103"
    buys = network.start("buys", BUYS)
    wait_until_whole(network, "floor")
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 20))
    network.wait_for_rows("floor", "Large", {"IBM": 20})


def test_a_chain_of_brokers_that_wait(network: BrokerNetwork) -> None:
    """The last one is told that its neighbour waits too."""
    link = "IMPORT V{} FROM b{}; CREATE VIEW V{} AS SELECT * FROM V{}; SUBSCRIBE V{};"
    network.start("b3", link.format(2, 2, 3, 2, 3))
    network.start("b2", link.format(1, 1, 2, 1, 2))
    wait_until(lambda: problem_of(network, "b3")["code"] == "E138", "b3 is not told")
    assert "b2 does not know the type of V2 yet: it waits for V1 from b1" in problem_of(network, "b3")["message"]
    network.start("b1", "CREATE STREAM S (t: time -> a: int); CREATE VIEW V1 AS SELECT t, a FROM S; SUBSCRIBE V1;")
    wait_until_whole(network, "b2", "b3")
    network.connect("b2", "b1")
    network.connect("b3", "b2")
    (tick,) = publish(network.brokers["b1"], "S", (5,))
    network.wait_for_rows("b3", "V3", {str(tick): 5})


def test_brokers_that_wait_for_each_other_in_a_circle(network: BrokerNetwork) -> None:
    """A relation that needs itself is refused, with the path."""
    a, b = (
        f"IMPORT {theirs} FROM {other}; CREATE VIEW {own} AS SELECT issue, total FROM {theirs}; SUBSCRIBE {own};"
        for own, theirs, other in (("V", "W", "b"), ("W", "V", "a"))
    )
    own = "CREATE STREAM S (t: time -> x: int); CREATE VIEW {0} AS SELECT t, x FROM S; SUBSCRIBE {0};"
    network.start("a", a + own.format("A"))
    network.start("b", b + own.format("B"))
    for broker, path in (("a", "V at a → W at b → V at a"), ("b", "W at b → V at a → W at b")):
        wait_until(lambda broker=broker: problem_of(network, broker)["code"] == "E127", f"{broker} is not told")  # type: ignore[misc]
        assert path in problem_of(network, broker)["message"]
        assert len(network.brokers[broker].views) == 1, "the rest does not run"


def test_a_type_that_does_not_fit_when_it_arrives(network: BrokerNetwork) -> None:
    buys = network.start("buys", BUYS)
    network.start("sells", SELLS.replace("MAX(price) AS price", "MAX(price) AS cents"))
    wait_until(lambda: problem_of(network, "buys")["code"] == "E022", "it is not told")
    assert set(buys.views) == {"Sums"}
    network.apply("sells", SELLS)
    wait_until_whole(network, "buys")


def test_an_error_that_is_seen_later_stops_only_what_needs_it(network: BrokerNetwork) -> None:
    """It can be seen when the descriptions are there. Then the right views run, and the error has its position."""
    program = """
IMPORT Bids FROM home; IMPORT Sums FROM home; IMPORT Costs FROM home;
CREATE VIEW Good AS SELECT issue, total FROM Sums;
CREATE VIEW Wrong AS
  SELECT issue, totl FROM Sums;
CREATE VIEW OfWrong AS SELECT issue FROM Wrong;
SUBSCRIBE Good, Wrong, OfWrong;
"""
    office = network.start("office", program)
    exporting = BUYS[: BUYS.index("IMPORT")] + "SUBSCRIBE Sums;"
    home = network.start("home", exporting)
    wait_until(lambda: set(office.views) == {"Good"}, "the right view does not run")
    network.connect("office", "home")
    publish(home, "Bids", ("IBM", 20))
    network.wait_for_rows("office", "Good", {"IBM": 20})
    entries = {e["of"]: e for e in office.status()["waiting"]}
    assert set(entries) == {"Costs from home", "Wrong"}
    assert entries["Costs from home"]["code"] == "E021", "it has the reason of another one"
    assert (entries["Wrong"]["code"], "office.smile:5:17: " in entries["Wrong"]["message"]) == ("E022", True)
    for view, code in (("Wrong", "E022"), ("OfWrong", "E138")):
        with pytest.raises(SmileError) as refusal:
            office.view(view)
        assert refusal.value.diagnostics[0].code == code
    network.stop("office")
    office = network.start("office", None)
    assert set(office.views) == {"Good"}
    office.apply(Source("office.smile", program.replace("totl", "total").replace("IMPORT Costs FROM home;", "")))
    assert set(office.views) == {"Good", "Wrong", "OfWrong"}
    assert not office.descriptions.is_waiting


def test_another_program_ends_the_wait(network: BrokerNetwork) -> None:
    buys = network.start("buys", BUYS)
    buys.apply(Source("buys.smile", BUYS[: BUYS.index("IMPORT")] + "SUBSCRIBE Sums;"))
    assert not buys.descriptions.is_waiting
    with pytest.raises(SmileError, match="cannot be reached"):  # a command is refused instead
        buys.apply(Source("buys.smile", BUYS))


def test_a_refusal_stops_the_first_start(network: BrokerNetwork) -> None:
    network.start("sells", SELLS.replace("Prices", "Costs"))
    with pytest.raises(SmileError, match="there is no stream or view Prices"):
        network.start("buys", BUYS)


def test_a_neighbour_without_an_address_stops_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(SmileError, match="the settings have no broker sells") as problem:
        InProcessBroker(tmp_path, BUYS, broker_name="buys")
    assert problem.value.diagnostics[0].code == "E100"


def test_it_stops_while_a_neighbour_does_not_answer(tmp_path: Path) -> None:
    released = Event()
    with network_in(tmp_path) as network:
        calls: list[str] = []

        def fetch(broker: str, relation: str) -> str:
            calls.append(relation)
            if len(calls) > 1:
                released.wait(60)
            raise error("E103", f"{broker} cannot be reached")

        network.fetch_description = fetch  # type: ignore[method-assign]
        network.start("buys", BUYS)
        wait_until(lambda: len(calls) > 1, "it does not ask again")
        network.stop("buys")
        released.set()


OWN_MMPL = """
STREAM Bids (t: time -> issue: string, shares: int);
VIEW Sums := Bids WHERE shares > 0;
IMPORT Prices FROM sells;
VIEW Values := Prices;
VIEW Large := Values;
SUBSCRIBE Sums, Large;
"""


@pytest.mark.parametrize(("name", "text"), [("p.smile", BUYS), ("p.mmpl", OWN_MMPL)], ids=["sql", "mmpl"])
def test_what_is_left_out(name: str, text: str) -> None:
    compiled = compile_program(Source(name, text), leaves_out_missing=True)
    prices = MissingImport("Prices", ("sells",))
    assert compiled.missing_imports == (prices,)
    assert compiled.left_out == {"Prices": (prices,), "Values": (prices,), "Large": (prices,)}
    assert [view.name for view in compiled.original.views] == ["Sums"]
    assert compiled.original.subscriptions == ("Sums",)
    with pytest.raises(SmileError, match="no types of the broker sells are recorded"):
        compile_program(Source(name, text))
    unsubscribed = compile_program(
        Source(name, text.replace("Sums, ", "").replace("SUBSCRIBE Values, ", "SUBSCRIBE ")), leaves_out_missing=True
    )
    assert unsubscribed.original.views == ()  # and not all that is left


def test_errors_in_what_is_left_out_are_found_later_and_others_at_once() -> None:
    wrong = BUYS.replace("SUM(shares)", "SUM(share)").replace("p.price FROM", "p.prise FROM")
    with pytest.raises(SmileError) as problem:
        compile_program(Source("p.smile", wrong), leaves_out_missing=True)
    assert ["share" in d.message for d in problem.value.diagnostics] == [True]
