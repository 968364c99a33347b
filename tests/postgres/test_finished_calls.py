"""What a function defers to the end of its transaction belongs to its call: it has the rights of the subscription's owner, and
its failure concerns this event only."""

from collections.abc import Iterator

import pytest

from tests.postgres.helpers import create_quotes, deliver, delivery, refused, rows, value
from tests.postgres.server import Connection

TABLES = """
    CREATE TABLE seen (symbol text, who name DEFAULT current_user, n serial);
    GRANT ALL ON SCHEMA public TO alice; GRANT ALL ON seen, seen_n_seq TO alice;
"""


@pytest.fixture
def shop(connection: Connection, roles: None) -> Iterator[Connection]:
    """alice may subscribe to Quotes, and create what she needs. The connection is hers."""
    create_quotes(connection)
    connection.execute(TABLES.encode())
    connection.execute("SELECT smile.grant('subscribe', 'Quotes', 'alice')")
    connection.execute("SET ROLE alice")
    yield connection
    connection.execute("RESET ROLE")
    connection.execute("DROP OWNED BY alice, bob CASCADE")


def subscribe(connection: Connection, name: str, body: str) -> None:
    connection.execute(
        f"CREATE FUNCTION {name}(text) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN {body} END $f$".encode()
    )
    connection.execute("SELECT smile.create_subscription(%s, 'Quotes', 'local', NULL, %s, 'symbol')", [name, name])


def deliver_as_installer(connection: Connection, *symbols: str, subscriptions: int = 1) -> None:
    connection.execute("RESET ROLE")
    ticks = enumerate(symbols, 1)
    deliver(connection, [delivery(s, t, symbol=x) for t, x in ticks for s in range(1, subscriptions + 1)])


def exceptions(connection: Connection) -> list[tuple[str, str, str]]:
    return rows(connection, "SELECT symbol, queue_subscription, queue_sqlstate FROM smile.quotes_exception ORDER BY queue_id")  # fmt: skip


def seen(connection: Connection) -> list[tuple[str, str]]:
    return rows(connection, "SELECT symbol, who FROM seen ORDER BY n")


def test_a_deferred_constraint_concerns_its_event_only(shop: Connection) -> None:
    shop.execute("CREATE TABLE symbols (symbol text PRIMARY KEY); INSERT INTO symbols VALUES ('a'), ('c')")
    shop.execute("CREATE TABLE known (symbol text REFERENCES symbols DEFERRABLE INITIALLY DEFERRED)")
    subscribe(shop, "strict", "INSERT INTO known VALUES ($1);")
    subscribe(shop, "other", "INSERT INTO seen VALUES ($1);")
    deliver_as_installer(shop, "a", "b", "c", subscriptions=2)
    assert rows(shop, "SELECT symbol FROM known ORDER BY 1") == [("a",), ("c",)]
    assert exceptions(shop) == [("b", "strict", "23503")]
    assert seen(shop) == [(symbol, "alice") for symbol in "abc"]
    id_ = value(shop, "SELECT queue_id FROM smile.quotes_exception")
    assert value(shop, "SELECT smile.retry_exception(%s)", id_) is False
    shop.execute("INSERT INTO symbols VALUES ('b')")
    assert value(shop, "SELECT smile.retry_exception(%s)", id_) is True
    assert exceptions(shop) == []


NOTE = """
    CREATE TABLE noted (symbol text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO seen VALUES (NEW.symbol); {} RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER t AFTER INSERT ON noted DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION note();
"""


def test_a_deferred_trigger_has_the_rights_of_the_owner(shop: Connection) -> None:
    shop.execute(NOTE.format("").encode())
    subscribe(shop, "s", "INSERT INTO noted VALUES ($1);")
    deliver_as_installer(shop, "a", "b")
    assert seen(shop) == [("a", "alice"), ("b", "alice")]
    assert exceptions(shop) == []


def test_a_trigger_that_is_deferred_again(shop: Connection) -> None:
    """It runs at the commit: with the rights of the role that has caused it, or, before PostgreSQL 18, not at all."""
    again = "IF length(NEW.symbol) < 4 AND NEW.symbol LIKE 'a%' THEN SET CONSTRAINTS ALL DEFERRED; INSERT INTO noted VALUES (NEW.symbol || 'a'); END IF;"
    shop.execute(NOTE.format(again).encode())
    subscribe(shop, "s", "INSERT INTO noted VALUES ($1);")
    deliver_as_installer(shop, "a", "b")
    if shop.info.server_version >= 180_000:
        assert seen(shop) == [(symbol, "alice") for symbol in ("a", "aa", "aaa", "aaaa", "b")]
        return
    assert exceptions(shop) == [("a", "s", "SM147")]
    assert seen(shop) == [("b", "alice")]
    id_ = value(shop, "SELECT queue_id FROM smile.quotes_exception")
    assert value(shop, "SELECT smile.retry_exception(%s)", id_) is False
    assert seen(shop) == [("b", "alice")]


@pytest.mark.parametrize("hold", ["WITH HOLD", "WITHOUT HOLD"])
def test_a_cursor_with_hold_is_refused(shop: Connection, hold: str) -> None:
    """Its query would run at the commit, as the installer."""
    shop.execute(
        "CREATE FUNCTION evil() RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO seen VALUES (''evil''); RETURN 1; END'"
    )
    subscribe(shop, "s", f"EXECUTE 'DECLARE c CURSOR {hold} FOR SELECT evil()';")
    deliver_as_installer(shop, "a")
    assert exceptions(shop) == ([("a", "s", "SM147")] if hold == "WITH HOLD" else [])
    assert rows(shop, "SELECT * FROM pg_cursors WHERE is_holdable") == []
    assert seen(shop) == []


def test_a_retry_checks_the_constraints_of_its_transaction_before(shop: Connection) -> None:
    """With the rights of the caller, who sees their error."""
    shop.execute("CREATE TABLE own (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    subscribe(shop, "s", "PERFORM 1 / (CASE $1 WHEN 'a' THEN 0 ELSE 1 END);")
    deliver_as_installer(shop, "a")
    id_ = value(shop, "SELECT queue_id FROM smile.quotes_exception")
    with refused("23505"), shop.transaction():
        shop.execute("INSERT INTO own VALUES (1), (1)")
        shop.execute("SELECT smile.retry_exception(%s)", [id_])
    assert value(shop, "SELECT queue_attempts FROM smile.quotes_exception") == 1
