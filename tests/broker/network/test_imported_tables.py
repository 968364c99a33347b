"""A table that is imported is the table that it is at home: with each kind of join, its importers show what home shows."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from smile.analysis.export_description import describe_exports
from smile.broker.broker import Broker
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source
from tests.broker.network.cables import BrokerNetwork, messages_of, network_in, publish

TABLES = """
CREATE TABLE Prices (issue string PRIMARY KEY, price int CHECK (price > 0)) AS VALUES ('IBM', 1), ('HP', 2);
CREATE TABLE Names (code string PRIMARY KEY, name string) STATIC AS VALUES ('a', 'Alpha'), ('b', 'Beta');
CREATE STREAM Orders (t: time -> issue: string, code: string);
"""
VIEWS = """
CREATE VIEW Now AS SELECT o.t, o.issue, p.price, n.name FROM Orders o JOIN Prices p USING (issue) JOIN Names n USING (code);
CREATE VIEW AtThatTime AS SELECT o.t, o.issue, p.price FROM Orders o ASOF JOIN Prices p ON o.issue = p.issue;
CREATE VIEW Known AS SELECT issue, price FROM Prices;
SUBSCRIBE Now, AtThatTime, Known;
"""
IMPORTS = "IMPORT Prices FROM {0}; IMPORT Names FROM {0}; IMPORT Orders FROM {0};"
SPARK = {"engine": "spark", "master": "local[1]", "partitions": 2, "flight": ""}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def shown(broker: Broker, view: str) -> list[Any]:
    """The rows with everything that is known of them."""
    return sorted(messages_of(broker, view), key=str)


def wait_until_equal(network: BrokerNetwork, importer: str, count: int) -> None:
    home, other = network.brokers["home"], network.brokers[importer]
    network.run_until(lambda: len(shown(home, "AtThatTime")) == count, "home does not show everything")
    for view in ("Now", "AtThatTime", "Known"):
        difference = f"{view} at {importer} is not that of home"
        network.run_until(partial(is_equal, home, other, view), difference)


def is_equal(home: Broker, other: Broker, view: str) -> bool:
    return shown(home, view) == shown(other, view)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, pytest.param(SPARK, marks=pytest.mark.nightly)], ids=["local", "spark"])
def test_joins_with_an_imported_table_are_those_of_home(network: BrokerNetwork, settings: dict[str, Any]) -> None:
    home = network.start("home", TABLES + VIEWS)
    network.start("middle", IMPORTS.format("home") + VIEWS)
    network.start("far", IMPORTS.format("middle") + VIEWS, **settings)
    network.connect("middle", "home")
    network.connect("far", "middle")
    publish(home, "Orders", ("IBM", "a"), ("SUN", "a"), ("HP", "b"))
    publish(home, "Prices", (None, "IBM", 5), (None, "SUN", 7))
    publish(home, "Orders", ("IBM", "a"), ("SUN", "b"))
    publish(home, "Prices", (None, "IBM", 6), ("delete", "HP", None))
    publish(home, "Orders", ("HP", "b"), ("IBM", "b"))
    expected = {"Now": 5, "AtThatTime": 5, "Known": 2}
    network.run_until(lambda: {v: len(shown(home, v)) for v in expected} == expected, "home has other rows")
    for broker in ("middle", "far"):
        wait_until_equal(network, broker, 5)


def test_rows_are_imported_by_their_keys(network: BrokerNetwork) -> None:
    home = network.start("home", TABLES + VIEWS)
    program = """
    IMPORT Prices FROM home WHERE issue <> 'HP' AS P;
    IMPORT Names FROM home WHERE name = 'Beta' AS N;
    CREATE VIEW V AS SELECT issue, price FROM P;
    CREATE VIEW W AS SELECT code, name FROM N;
    SUBSCRIBE V, W;
    """
    importer = network.start("importer", program)
    network.connect("importer", "home")
    publish(home, "Prices", (None, "HP", 9), (None, "SUN", 7), ("delete", "IBM", None))
    network.wait_for_rows("importer", "V", {"SUN": 7})
    network.wait_for_rows("importer", "W", {"b": "Beta"})
    assert [m["final"] for m in messages_of(importer, "W")] == [True], "nobody can change a static table"


@pytest.mark.parametrize(
    ("program", "code", "text"),
    [
        ("IMPORT Prices FROM home WHERE price > 3;", "E048", "Prices.price may change"),
        ("IMPORT Prices FROM home WHERE tick > 3;", "E022", "tick"),
        ("IMPORT Prices FROM home; SUBSCRIBE Prices;", "E210", "read through views"),
        ("IMPORT Names FROM home; SUBSCRIBE Names;", "E210", "read through views"),
        ("IMPORT Prices FROM home; CREATE VIEW V AS SELECT change FROM Prices;", "E022", "change"),
    ],
)
def test_what_a_table_cannot_do_an_imported_one_cannot(program: str, code: str, text: str) -> None:
    compiled = compile_program(Source("home.smile", TABLES))
    recorded = {"home": describe_exports(compiled.rewritten, compiled.tables, compiled.tables)}
    with pytest.raises(SmileError, match=text) as caught:
        compile_program(Source("importer.smile", program), recorded)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert caught.value.diagnostics[0].span is not None


def test_other_first_contents_are_another_definition(network: BrokerNetwork) -> None:
    network.start("home", TABLES)
    network.start("importer", "IMPORT Prices FROM home; CREATE VIEW V AS SELECT issue, price FROM Prices; SUBSCRIBE V;")
    network.connect("importer", "home")
    network.wait_for_rows("importer", "V", {"IBM": 1, "HP": 2})
    network.stop("home")
    network.start("home", TABLES.replace("('HP', 2)", "('HP', 3)"))
    network.connect("importer", "home")
    assert network.wait_for_state("importer", "Prices", "refused")["problem"]["code"] == "E124"
    network.apply("importer", "IMPORT Prices FROM home; CREATE VIEW V AS SELECT issue, price FROM Prices; SUBSCRIBE V;")
    network.wait_for_rows("importer", "V", {"IBM": 1, "HP": 3})
