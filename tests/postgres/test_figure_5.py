"""Figure 5 of the PostgreSQL-PS paper with databases: six of them, each with its broker, on real sockets.

DB1 and DB2 are linked with DB3, which is linked with DB4, which is linked with DB5 and DB6. App1 at DB1 and the database
DB2 publish; App3 at DB3 and the database DB6 subscribe.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from smile.client import connect as connect_client
from tests.brokers import InProcessBroker
from tests.postgres.database_brokers import NOTE, database_broker, noted, subscribe, wait_for_noted
from tests.postgres.server import TEMPLATE, Server
from tests.postgres.services import Connection, connect, create_type, logged, publish
from tests.processes import wait_until

pytestmark = pytest.mark.slow

LINKS = [("DB3", "DB1"), ("DB3", "DB2"), ("DB3", "DB4"), ("DB4", "DB5"), ("DB4", "DB6")]
NAMES = [f"DB{i}" for i in range(1, 7)]


class Network:
    def __init__(self, stack: ExitStack, server: Server, folder: Path) -> None:
        self.databases: dict[str, Connection] = {}
        self.brokers: dict[str, InProcessBroker] = {}
        for name in NAMES:
            url = server.create_database(TEMPLATE)
            stack.callback(server.drop_database, url)
            self.databases[name] = stack.enter_context(connect(url))
            self.databases[name].execute(NOTE)
            self.brokers[name] = stack.enter_context(database_broker(folder / name, name, url))
        for here, there in LINKS:
            self.databases[here].execute(
                "SELECT smile.create_link(%s, '127.0.0.1', %s, 'user', 'password')", (there, self.brokers[there].port)
            )

    def _routing(self, name: str, part: str) -> list[dict[str, Any]]:
        routing: list[dict[str, Any]] = self.brokers[name].broker.routing.status()[part]
        return [entry for entry in routing if entry["stream"] == "E"]

    def advertised(self) -> dict[str, set[str]]:
        """From where each database has an advertisement of E, besides its own."""
        paths = {name: {e["from"] for e in self._routing(name, "advertisements")} - {None} for name in NAMES}
        return {name: sources for name, sources in paths.items() if sources}

    def subscribed(self) -> dict[str, set[str]]:
        """From where each database has a subscription to E, besides its own."""
        parts = {name: self._routing(name, "routed_subscriptions") for name in NAMES}
        paths = {name: {source for e in entries for source in e["from"]} - {""} for name, entries in parts.items()}
        return {name: sources for name, sources in paths.items() if sources}


@pytest.fixture
def network(server: Server, tmp_path: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(stack, server, tmp_path)


def test_figure_5_with_databases(network: Network) -> None:
    databases, brokers = network.databases, network.brokers

    # a1: App1 advertises at DB1. All others store it.
    create_type(databases["DB1"], "E", "n bigint")
    a1 = {"DB2": {"DB3"}, "DB3": {"DB1"}, "DB4": {"DB3"}, "DB5": {"DB4"}, "DB6": {"DB4"}}
    wait_until(lambda: network.advertised() == a1, "a1 is not stored by DB2 to DB6")

    # a2: DB2 advertises. Only DB3 stores it: the others have this filter from there already.
    create_type(databases["DB2"], "E", "n bigint")
    del a1["DB2"]
    a2 = {**a1, "DB3": {"DB1", "DB2"}}
    wait_until(lambda: network.advertised() == a2, "a2 is not stored by DB3 only")

    # s6: DB6 subscribes. DB1 to DB4 store it.
    databases["DB6"].execute("SELECT smile.create_event_type('E', 'n bigint')")
    subscribe(databases["DB6"], "s6", "global")
    s6 = {"DB4": {"DB6"}, "DB3": {"DB4"}, "DB1": {"DB3"}, "DB2": {"DB3"}}
    wait_until(lambda: network.subscribed() == s6, "s6 is not stored by DB1 to DB4")

    # s3: App3 subscribes at DB3. DB1 and DB2 have this filter already.
    databases["DB3"].execute("SELECT smile.create_event_type('E', 'n bigint')")
    wait_until(lambda: "E" in brokers["DB3"].broker.log.schemas, "DB3 does not have the stream")
    received: list[tuple[str, int]] = []
    with (
        connect_client(brokers["DB3"].url) as app3,
        app3.durable(
            "E", name="s3", scope="global", callback=lambda event: received.append((event.origin, event["n"]))
        ),
    ):
        assert network.subscribed() == s6

        # e1 of App1, and an event of DB2, come to App3 and to DB6, once, and to nobody else.
        with connect_client(brokers["DB1"].url) as app1:
            app1.publish("E", [{"n": 1}])
        publish(databases["DB2"], "E", {"n": 101})
        publish(databases["DB1"], "E", {"n": 2})
        wait_for_noted(databases["DB6"], "s6", [1, 2, 101])
        wait_until(lambda: len(received) >= 3, "App3 does not receive the events")
        assert sorted(n for _, n in received) == [1, 2, 101]
        assert [n for n in noted(databases["DB6"], "s6") if n < 100] == [1, 2]
        assert len({origin for origin, _ in received}) == 2
    assert [event["n"] for event in logged(brokers["DB1"].broker, "E")] == [1, 2]
    assert [event["n"] for event in logged(brokers["DB2"].broker, "E")] == [101]
    assert "E" not in brokers["DB5"].broker.log.schemas
    assert network.advertised() == a2
    assert network.subscribed() == s6
