"""Databases with a broker each, linked by a statement in one of them: global subscriptions, advertisements, links."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from smile.broker.network.link_catalogue import LinkCatalogue
from smile.broker.network.routing import Routing
from smile.postgres.catalogue import Catalogue
from smile.postgres.database_network import DatabaseNetwork, link_url
from smile.settings import NeighbourSettings
from tests.brokers import InProcessBroker
from tests.network.processes import NetworkProcesses, link_status, status
from tests.postgres.database_brokers import (
    NOTE,
    database_broker,
    noted,
    subscribe,
    wait_for_noted,
    wait_until_advertised,
)
from tests.postgres.helpers import rows
from tests.postgres.server import TEMPLATE, Server
from tests.postgres.services import PROGRAM, Connection, connect, create_type, publish
from tests.processes import wait_until


@dataclass(frozen=True)
class Site:
    """A database, and its broker."""

    url: str
    connection: Connection
    broker: InProcessBroker

    def link(self, name: str, other: InProcessBroker) -> None:
        self.connection.execute("SELECT smile.create_link(%s, '127.0.0.1', %s, 'user', 'password')", (name, other.port))

    def publish(self, *numbers: int) -> None:
        with self.connection.transaction():
            for n in numbers:
                publish(self.connection, "E", {"n": n})


@contextmanager
def site(server: Server, folder: Path, name: str, **settings: Any) -> Iterator[Site]:
    """A new database with the event type E."""
    url = server.create_database(TEMPLATE)
    with connect(url) as connection:
        connection.execute(NOTE)
        create_type(connection, "E", "n bigint")
        with database_broker(folder / name, name, url, **settings) as broker:
            wait_until(lambda: broker.broker.routing.is_advertised("E"), "the broker does not have the type")
            yield Site(url, connection, broker)
    server.drop_database(url)


@pytest.fixture
def east(server: Server, tmp_path: Path) -> Iterator[Site]:
    with site(server, tmp_path, "east") as opened:
        yield opened


@pytest.fixture
def west(server: Server, tmp_path: Path) -> Iterator[Site]:
    with site(server, tmp_path, "west") as opened:
        yield opened


def has_link(here: Site, name: str) -> bool:
    return any(link["state"] == "open" for link in link_status(here.broker, name))


def test_a_global_subscription_receives_the_events_of_both_databases(east: Site, west: Site) -> None:
    west.link("east", east.broker)
    wait_until(lambda: has_link(west, "east"), "the link is not open")
    wait_until_advertised(west.broker, "E", "east")
    subscribe(west.connection, "all_events", "global")
    subscribe(west.connection, "own_events", "local")
    subscribe(east.connection, "own_events", "local")
    west.publish(1, 2, 3)
    wait_for_noted(west.connection, "all_events", [1, 2, 3])
    east.publish(101, 102)
    east.publish(103)
    west.publish(4)
    wait_for_noted(west.connection, "all_events", [1, 2, 3, 4, 101, 102, 103])
    received = noted(west.connection, "all_events")
    assert [n for n in received if n > 100] == [101, 102, 103], "in the order of their ticks"
    assert [n for n in received if n < 100] == [1, 2, 3, 4]
    assert noted(west.connection, "own_events") == [1, 2, 3, 4]
    wait_for_noted(east.connection, "own_events", [101, 102, 103])

    # A second one receives what is published after it, of both databases.
    subscribe(west.connection, "later_events", "global")
    west.publish(5)
    wait_for_noted(west.connection, "later_events", [5])
    east.publish(104)
    wait_for_noted(west.connection, "later_events", [5, 104])
    wait_for_noted(west.connection, "all_events", [1, 2, 3, 4, 5, 101, 102, 103, 104])


def test_a_broker_that_is_linked_later_sends_what_its_log_has_kept(east: Site, west: Site) -> None:
    subscribe(west.connection, "all_events", "global")
    subscribe(west.connection, "own_events", "local")
    west.publish(1)
    wait_for_noted(west.connection, "all_events", [1])
    east.publish(101)
    west.link("east", east.broker)
    wait_for_noted(west.connection, "all_events", [1, 101])
    east.publish(102)
    wait_for_noted(west.connection, "all_events", [1, 101, 102])
    # A later subscription begins after what is here.
    subscribe(west.connection, "later_events", "global")
    west.publish(2)
    wait_for_noted(west.connection, "later_events", [2])
    east.publish(103)
    wait_for_noted(west.connection, "later_events", [2, 103])
    assert noted(west.connection, "own_events") == [1, 2]


def test_an_advertisement_that_is_taken_back(east: Site, west: Site) -> None:
    west.link("east", east.broker)
    wait_until_advertised(west.broker, "E", "east")
    with east.connection.transaction(force_rollback=True):
        east.connection.execute("SELECT smile.unadvertise('E')")
    subscribe(west.connection, "all_events", "global")
    west.publish(1)
    wait_for_noted(west.connection, "all_events", [1])
    east.publish(101)
    wait_for_noted(west.connection, "all_events", [1, 101])
    east.connection.execute("SELECT smile.unadvertise('E')")
    wait_until_advertised(west.broker, "E", "east", is_expected=False)
    west.publish(2)
    wait_for_noted(west.connection, "all_events", [1, 2, 101])
    east.connection.execute("SELECT smile.advertise('E', 'n > 200')")
    wait_until_advertised(west.broker, "E", "east")
    east.publish(201)
    wait_for_noted(west.connection, "all_events", [1, 2, 101, 201])


def test_a_type_that_is_dropped_is_not_advertised(east: Site, west: Site) -> None:
    west.link("east", east.broker)
    create_type(east.connection, "F")
    wait_until_advertised(west.broker, "F", "east")
    east.connection.execute("SELECT smile.drop_event_type('F')")
    wait_until_advertised(west.broker, "F", "east", is_expected=False)
    create_type(east.connection, "F")
    wait_until_advertised(west.broker, "F", "east")


def test_a_condition_that_only_the_database_understands(east: Site, west: Site) -> None:
    east.connection.execute("SELECT smile.unadvertise('E')")
    wait_until(lambda: not east.broker.broker.routing.is_advertised("E"), "it is still advertised")
    east.connection.execute("SELECT smile.advertise('E', 'num_nulls(n) = 0')")
    west.link("east", east.broker)
    wait_until_advertised(west.broker, "E", "east")
    assert status(east.broker)["troubles"] == []


def test_links_are_dropped(east: Site, west: Site) -> None:
    with west.connection.transaction(force_rollback=True):
        west.link("north", east.broker)
    west.link("east", east.broker)
    wait_until(lambda: has_link(west, "east"), "the link is not open")
    assert set(west.broker.broker.links.added) == {"east"}
    subscribe(west.connection, "all_events", "global")
    west.publish(1)
    wait_for_noted(west.connection, "all_events", [1])
    west.connection.execute("SELECT smile.drop_link('east')")
    wait_until(lambda: link_status(west.broker, "east") == [], "the link is still there")
    assert west.broker.broker.links.added == {}

    # A link that is added by a command later is not the dropped one.
    wait_until(lambda: rows(west.connection, "SELECT FROM smile.link") == [], "the dropped link is still recorded")
    west.broker.broker.links.add("east", east.broker.url)
    create_type(west.connection, "F")
    wait_until(lambda: west.broker.broker.routing.is_advertised("F"), "the catalogue is not read")
    assert set(west.broker.broker.links.added) == {"east"}
    wait_until(lambda: has_link(west, "east"), "the link is not open")
    east.publish(101)
    wait_for_noted(west.connection, "all_events", [1, 101])


def test_a_link_of_the_settings_is_read_only(server: Server, east: Site, tmp_path: Path) -> None:
    brokers = {"east": NeighbourSettings(url=(east.broker.url,))}
    with site(server, tmp_path, "west", brokers=brokers) as west:
        west.connection.execute("SELECT smile.create_link('east', '127.0.0.1', 1, 'user', 'password')")
        (trouble,) = wait_until(lambda: status(west.broker)["troubles"], "the problem is not reported")
        assert (trouble["kind"], trouble["subject"], trouble["code"]) == ("database", "link east", "E131")
        wait_until(lambda: has_link(west, "east"), "the link of the settings is not used")
        subscribe(west.connection, "all_events", "global")
        west.publish(1)
        east.publish(101)
        wait_for_noted(west.connection, "all_events", [1, 101])
        west.connection.execute("SELECT smile.drop_link('east')")
        wait_until(lambda: status(west.broker)["troubles"] == [], "the problem is still reported")
        assert has_link(west, "east")


def test_a_filter_on_a_table(east: Site, west: Site) -> None:
    """The table is in one database; the events are of both."""
    west.connection.execute("CREATE TABLE wanted (n bigint); INSERT INTO wanted VALUES (1), (101)")
    west.link("east", east.broker)
    wait_until_advertised(west.broker, "E", "east")
    subscribe(west.connection, "some_events", "global", "n IN (SELECT n FROM wanted)")
    west.publish(1, 2)
    wait_for_noted(west.connection, "some_events", [1])
    east.publish(101, 102)
    wait_for_noted(west.connection, "some_events", [1, 101])
    evaluation = west.connection.execute("SELECT filter_evaluation FROM smile.subscriptions").fetchone()
    assert evaluation == ("broker",)
    west.connection.execute("UPDATE wanted SET n = n + 1")
    west.publish(1, 2)
    wait_for_noted(west.connection, "some_events", [1, 2, 101])
    east.publish(101, 102)
    wait_for_noted(west.connection, "some_events", [1, 2, 101, 102])
    # The stream of the table stays here.
    assert not west.broker.broker.routing.is_advertised("wanted")
    assert not east.broker.broker.routing.advertised_by("wanted")


def test_a_link_that_is_dropped_after_the_settings_have_its_name(tmp_path: Path) -> None:
    """It was added when the settings did not have it."""
    path = tmp_path / "links.json"
    LinkCatalogue("west", {}, path).add("east", "http://127.0.0.1:1")
    links = LinkCatalogue("west", {"east": NeighbourSettings(url=("http://127.0.0.1:2",))}, path)
    routing = Routing("west", None, lambda: 0, True, lambda: pytest.fail("no neighbour asks"))
    network = DatabaseNetwork(routing, links)
    network.set_catalogue(Catalogue(dropped_links=frozenset({"east", "north"})), {})
    assert [problem.diagnostics[0].code for problem in network.problems.values()] == ["E131"]
    network.set_catalogue(Catalogue(), {})
    assert network.problems == {}


@pytest.mark.slow
@pytest.mark.nightly
def test_brokers_that_are_killed(server: Server, tmp_path: Path) -> None:
    """Links, advertisements and positions survive, and every event is received once."""
    urls = {name: server.create_database(TEMPLATE) for name in ("east", "west")}
    with NetworkProcesses(tmp_path) as network, connect(urls["east"]) as east, connect(urls["west"]) as west:
        for connection in (east, west):
            connection.execute(NOTE)
            create_type(connection, "E", "n bigint")
        for name, url in urls.items():
            network.start(name, PROGRAM, variables={"SMILE_POSTGRES_URL": url})
        west.execute("SELECT smile.create_link('east', '127.0.0.1', %s, 'u', 'p')", (network.port("east"),))
        subscribe(west, "all_events", "global")
        subscribe(west, "own_events", "local")
        publish(west, "E", {"n": 0})
        wait_for_noted(west, "all_events", [0])
        expected, own = [0], [0]

        def publish_in_both(start: int) -> None:
            for n in range(start, start + 20):
                publish(west, "E", {"n": n})
                publish(east, "E", {"n": 1000 + n})
            own.extend(range(start, start + 20))
            expected.extend([*range(start, start + 20), *range(1000 + start, 1020 + start)])

        publish_in_both(1)
        for start, name in ((100, "west"), (200, "east"), (300, "west")):
            publish_in_both(start)
            network.brokers[name].kill()
            publish_in_both(start + 20)
            network.brokers[name].start()
            publish_in_both(start + 40)
            wait_for_noted(west, "all_events", expected)
        wait_for_noted(west, "own_events", own)
        assert noted(west, "own_events") == own
        received = noted(west, "all_events")
        assert [n for n in received if n >= 1000] == [n for n in expected if n >= 1000]
        # Neither of them needs the other one, or the statements, to start again.
        network.brokers["east"].kill()
        network.brokers["west"].kill()
        network.brokers["west"].start()
        publish(west, "E", {"n": 900})
        wait_for_noted(west, "all_events", [*expected, 900])
        publish(east, "E", {"n": 1900})
        network.brokers["east"].start()
        wait_for_noted(west, "all_events", [*expected, 900, 1900])
    for url in urls.values():
        server.drop_database(url)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:7400"),
        ("127.9.9.9", "http://127.9.9.9:7400"),
        ("localhost", "http://localhost:7400"),
        ("::1", "http://[::1]:7400"),
        ("2001:db8::1", "https://[2001:db8::1]:7400"),
        ("10.0.0.1", "https://10.0.0.1:7400"),
        ("db2.example.org", "https://db2.example.org:7400"),
        ("http://db2.example.org", "http://db2.example.org:7400"),
        ("https://localhost", "https://localhost:7400"),
    ],
)
def test_the_url_of_a_link(address: str, url: str) -> None:
    assert link_url(address, 7400) == url
