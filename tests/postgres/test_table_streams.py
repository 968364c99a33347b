"""Streams of tables: the rows of the table and all its changes, none lost or doubled."""

import threading
from collections import Counter

import psycopg
import pytest

from tests.postgres.helpers import capture, refused, rows, value
from tests.postgres.server import Connection


@pytest.fixture
def stock(connection: Connection) -> Connection:
    connection.execute("CREATE TABLE stock (id serial PRIMARY KEY, symbol text, price numeric(10, 2))")
    connection.execute("INSERT INTO stock (symbol, price) VALUES ('a', 1), ('b', 2)")
    return connection


def changes(connection: Connection) -> list[tuple[str, str, float]]:
    return [(event["change"], event["symbol"], event["price"]) for _, event in capture(connection)]


def test_every_change_is_an_event(stock: Connection) -> None:
    stock.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
    assert changes(stock) == [("insert", "a", 1), ("insert", "b", 2)]
    stock.execute("INSERT INTO stock (symbol, price) VALUES ('c', 3)")
    stock.execute("UPDATE stock SET price = 4 WHERE symbol = 'a'")
    stock.execute("UPDATE stock SET price = 2 WHERE symbol = 'b'")  # the same
    stock.execute("DELETE FROM stock WHERE symbol = 'b'")
    with stock.transaction(force_rollback=True):
        stock.execute("TRUNCATE stock")
    expected = [("insert", "c", 3), ("delete", "a", 1), ("insert", "a", 4), ("delete", "b", 2)]
    assert changes(stock) == expected
    stock.execute("TRUNCATE stock")
    assert sorted(changes(stock)) == [("delete", "a", 4), ("delete", "c", 3)]
    columns = value(stock, "SELECT columns FROM smile.event_types")
    assert [(c["name"], c["type"], c["not_null"]) for c in columns] == [
        ("change", "string", True), ("id", "int", True), ("symbol", "string", False), ("price", "decimal(10, 2)", False)
    ]  # fmt: skip
    assert rows(stock, "SELECT event_type FROM smile.advertisements") == []


def test_changes_by_replication_are_events(stock: Connection) -> None:
    stock.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
    stock.execute("SET session_replication_role = replica")
    stock.execute("DELETE FROM stock")
    assert Counter(change for change, _, _ in changes(stock)) == {"insert": 2, "delete": 2}


def test_dropping_and_rolling_back(stock: Connection) -> None:
    with stock.transaction(force_rollback=True):
        stock.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
        stock.execute("DELETE FROM stock")
    assert changes(stock) == []
    stock.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
    for statement in ("smile.drop_event_type('Stocks')", "smile.create_event_type('stocks', 'a int')"):
        with refused("E155"):
            stock.execute(f"SELECT {statement}".encode())
    for statement in (
        "smile.publish('Stocks', '{}')",
        "smile.grant('publish', 'Stocks', 'public')",
        "smile.advertise('Stocks')",
    ):
        with refused("E151"):
            stock.execute(f"SELECT {statement}".encode())
    stock.execute("SELECT smile.drop_table_stream('stocks')")
    assert rows(stock, "SELECT tgname FROM pg_trigger WHERE tgrelid = 'stock'::regclass") == []
    stock.execute("DELETE FROM stock")
    assert len(changes(stock)) == 2
    stock.execute("SELECT smile.create_event_type('T', 'a int')")
    with refused("E154", "not the stream of a table"):
        stock.execute("SELECT smile.drop_table_stream('T')")


@pytest.mark.parametrize(
    ("definition", "code", "text"),
    [
        ("CREATE TABLE t (change int)", "E156", "change"),
        ('CREATE TABLE t ("Change" int)', "E156", "change"),
        ("CREATE UNLOGGED TABLE t (a int)", "E156", "unlogged"),
        ("CREATE TEMPORARY TABLE t (a int)", "E156", "temporary"),
        ("CREATE VIEW t AS SELECT 1 AS a", "E156", "not a table"),
        ("CREATE TABLE t (a int) PARTITION BY HASH (a)", "E156", "plain"),
        ("CREATE TABLE t (a point)", "E150", "point"),
        ("CREATE TABLE t (tick int)", "E150", "tick"),
        ("CREATE TABLE t (a int GENERATED ALWAYS AS (1) VIRTUAL)", "E156", "virtual"),
        ("CREATE TABLE t (a float8); INSERT INTO t VALUES (1), ('NaN')", "E078", "NaN"),
        ("CREATE TABLE other (a int)", "E021", "no table t"),
    ],
)
def test_tables_that_cannot_be_streams(transaction: Connection, definition: str, code: str, text: str) -> None:
    if "VIRTUAL" in definition and transaction.info.server_version < 180_000:
        pytest.skip("virtual columns are new in PostgreSQL 18")
    transaction.execute(definition.encode())
    with refused(code, text), transaction.transaction():
        transaction.execute("SELECT smile.create_table_stream('T', 't')")


def test_a_transaction_with_an_old_snapshot_is_refused(stock: Connection, database: str) -> None:
    with psycopg.connect(database) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with refused("E156", "does not see new rows"):
            other.execute("SELECT smile.create_table_stream('Stocks', 'stock')")


def test_values_that_events_cannot_have_are_refused(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (a float8, publisher text, event_ text)")
    connection.execute("SELECT smile.create_table_stream('T', 't')")
    with refused("E078", "NaN"):
        connection.execute("INSERT INTO t VALUES ('NaN')")
    connection.execute("INSERT INTO t VALUES (0.1, 'p', 'e')")
    events = [event for _, event in capture(connection)]
    assert events == [{"change": "insert", "a": 0.1, "publisher": "p", "event_": "e"}]


def test_nothing_is_lost_or_doubled_while_the_table_is_written(connection: Connection, database: str) -> None:
    connection.execute("CREATE TABLE t (n int)")
    stopping, started = threading.Event(), threading.Barrier(5)
    committed: list[int] = []

    def write(first: int) -> None:
        with psycopg.connect(database, autocommit=True) as own:
            for n in range(first, 10_000_000, 4):
                own.execute("INSERT INTO t VALUES (%s)", [n])
                committed.append(n)
                if n == first:
                    started.wait()
                if stopping.is_set():
                    return

    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    started.wait()
    connection.execute("SELECT smile.create_table_stream('T', 't')")
    written = len(committed)
    while len(committed) < written + 20:
        pass
    stopping.set()
    for writer in writers:
        writer.join()
    events = [(event["change"], event["n"]) for _, event in capture(connection)]
    assert Counter(events) == Counter(("insert", n) for n in committed)
