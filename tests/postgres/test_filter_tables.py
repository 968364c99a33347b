"""A filter that reads a table makes a stream of the table by itself. If that is impossible, the database evaluates it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres.helpers import create_quotes, rows, value
from tests.postgres.server import Connection
from tests.postgres.services import publish, serving, wait_for_value

HELD = "symbol IN (SELECT symbol FROM held)"
SUBSCRIBE = "SELECT smile.create_subscription('s', 'Quotes', 'local', %s, 'see', 'symbol')"
PREPARE = """
    CREATE TABLE seen (symbol text);
    CREATE FUNCTION see(text) RETURNS void LANGUAGE sql AS 'INSERT INTO public.seen VALUES ($1)';
"""
HELD_TABLE = "CREATE TABLE held (symbol text); INSERT INTO held VALUES ('IBM')"
STREAMS = "SELECT name, source_table::text FROM smile.event_types WHERE source_table IS NOT NULL"
TRIGGERS = "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgrelid IN ('held'::regclass, 'seen'::regclass)"


@pytest.fixture
def alice(shop: Connection, roles: None) -> Iterator[Connection]:
    """A role that may subscribe to Quotes, and read the table held of another role."""
    shop.execute(HELD_TABLE)
    shop.execute("GRANT SELECT ON held TO alice; GRANT INSERT ON seen TO alice")
    shop.execute("SELECT smile.grant('subscribe', 'Quotes', 'alice')")
    with psycopg.connect(shop.info.dsn, user="alice", autocommit=True) as connection:
        yield connection
    shop.execute("DROP OWNED BY alice CASCADE")


@pytest.fixture
def shop(connection: Connection) -> Connection:
    create_quotes(connection)
    connection.execute(PREPARE.encode())
    return connection


def notices(connection: Connection) -> list[str]:
    """The messages of notices that are received from now on."""
    received = list[str]()
    connection.add_notice_handler(lambda diagnostic: received.append(diagnostic.message_primary or ""))
    return received


def wait_for_evaluation(connection: Connection, data: Path, expected: str) -> None:
    """Publishes IBM and SUN, of which only IBM matches, and waits until it was delivered."""
    with serving(connection.info.dsn, data):
        for symbol in ("SUN", "IBM"):
            publish(connection, "Quotes", {"symbol": symbol})
        wait_for_value(lambda: rows(connection, "SELECT FROM seen"), "nothing is delivered")
        assert rows(connection, "SELECT symbol FROM seen") == [("IBM",)]
        assert value(connection, "SELECT filter_evaluation FROM smile.subscriptions") == expected


def test_a_table_of_the_same_role(shop: Connection, tmp_path: Path) -> None:
    received = notices(shop)
    shop.execute(HELD_TABLE)
    shop.execute(SUBSCRIBE, [HELD])
    assert (rows(shop, STREAMS), received) == ([("held", "held")], [])
    # Another filter on the same table needs nothing more.
    shop.execute("SELECT smile.create_subscription('t', 'Quotes', 'local', %s, 'see', 'symbol')", [f"{HELD} AND true"])
    assert rows(shop, STREAMS) == [("held", "held")]
    shop.execute("SELECT smile.drop_subscription('t')")
    wait_for_evaluation(shop, tmp_path, "broker")


def test_a_table_of_another_role(shop: Connection, alice: Connection, tmp_path: Path) -> None:
    received = notices(alice)
    alice.execute(SUBSCRIBE, [HELD])
    (notice,) = received
    assert notice.startswith("the filter is evaluated when an event is delivered: ")
    assert rows(shop, STREAMS) == rows(shop, TRIGGERS) == []
    wait_for_evaluation(shop, tmp_path, "database")
    # When the owner of the table makes a stream of it, the broker evaluates the filter.
    shop.execute("SELECT smile.create_table_stream('held', 'held'); TRUNCATE seen")
    wait_for_evaluation(shop, tmp_path, "broker")


def test_a_table_that_cannot_be_a_stream(shop: Connection, tmp_path: Path) -> None:
    received = notices(shop)
    shop.execute("CREATE TABLE held (symbol text, change int); INSERT INTO held VALUES ('IBM')")
    shop.execute(SUBSCRIBE, [HELD])
    (notice,) = received
    assert "held cannot be a stream: it has a column named change" in notice
    assert rows(shop, STREAMS) == rows(shop, TRIGGERS) == []
    wait_for_evaluation(shop, tmp_path, "database")


def test_a_filter_over_a_view(shop: Connection, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE owned (symbol text); INSERT INTO owned VALUES ('IBM')")
    shop.execute("CREATE VIEW held AS SELECT symbol FROM owned")
    shop.execute(SUBSCRIBE, [HELD])
    assert rows(shop, STREAMS) == rows(shop, TRIGGERS) == []
    wait_for_evaluation(shop, tmp_path, "database")


def test_a_filter_without_tables(shop: Connection) -> None:
    shop.execute(SUBSCRIBE, ["symbol = 'IBM'"])
    assert value(shop, "SELECT smile.filter_tables('Quotes', %s)", "symbol = 'IBM'") == []
    assert value(shop, "SELECT smile.filter_tables('Quotes', NULL)") == []
    assert rows(shop, STREAMS) == []


def test_a_rollback_leaves_nothing(shop: Connection) -> None:
    shop.execute(HELD_TABLE)
    with shop.transaction(force_rollback=True):
        shop.execute(SUBSCRIBE, [HELD])
        assert rows(shop, STREAMS) == [("held", "held")]
    assert rows(shop, STREAMS) == rows(shop, TRIGGERS) == rows(shop, "SELECT FROM smile.subscriptions") == []
    assert rows(shop, "SELECT relacl FROM pg_class WHERE relname = 'held' AND relacl IS NOT NULL") == []
    shop.execute(SUBSCRIBE, [HELD])
    assert rows(shop, "SELECT FROM pg_class WHERE relname = 'smile_filter'") == [], "the view is never kept"
    # A subscription that is refused makes no stream either.
    shop.execute("CREATE TABLE other (symbol text)")
    with pytest.raises(psycopg.Error, match="there is a subscription s already"):
        shop.execute(SUBSCRIBE, ["symbol IN (SELECT symbol FROM other)"])
    assert rows(shop, STREAMS) == [("held", "held")]
