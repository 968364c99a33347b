"""Delivery: each event takes effect once, with its position. A failure concerns one event and one subscription."""

import threading
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from tests.postgres.helpers import create_quotes, deliver, delivery, refused, rows, value
from tests.postgres.server import TEMPLATE, Connection, Server, running_server

TABLES = """
    CREATE TABLE seen (subscription text, symbol text, n serial);
    CREATE FUNCTION see(subscription text, symbol text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO seen VALUES (subscription, symbol);
        IF symbol = 'bad' AND NOT EXISTS (SELECT FROM seen s WHERE s.symbol = 'repaired') THEN
            RAISE EXCEPTION 'bad symbol' USING DETAIL = 'it is bad', ERRCODE = 'P0042';
        END IF;
    END $$;
"""


@pytest.fixture
def subscribed(connection: Connection) -> Connection:
    """Two subscriptions, 1 and 2."""
    prepare(connection)
    return connection


def prepare(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute(TABLES.encode())
    for name in ("one", "two"):
        connection.execute(
            "SELECT smile.create_subscription(%s, 'Quotes', 'local', NULL, 'see', %s, 0)", [name, f"'{name}', symbol"]
        )


def seen(connection: Connection) -> list[tuple[str, str]]:
    return [(subscription, symbol) for subscription, symbol in rows(connection, "SELECT subscription, symbol FROM seen ORDER BY n")]  # fmt: skip


def test_in_order_and_once(subscribed: Connection) -> None:
    deliveries = [delivery(s, tick, symbol=str(tick)) for tick in (5, 6, 9) for s in (2, 1)]
    deliver(subscribed, deliveries[:4])
    deliver(subscribed, deliveries)  # again, as after a crash
    deliver(subscribed, deliveries)
    assert seen(subscribed) == [(s, str(tick)) for tick in (5, 6, 9) for s in ("two", "one")]
    positions = rows(subscribed, "SELECT * FROM smile.delivery_positions ORDER BY 1")
    assert positions == [(1, "one", "o", 9), (2, "two", "o", 9)]
    other = delivery(1, 3, symbol="of another origin") | {"origin": "p"}
    deliver(subscribed, [other])
    assert seen(subscribed)[-1] == ("one", "of another origin")


def test_each_delivery_is_a_transaction(subscribed: Connection) -> None:
    deliver(subscribed, [delivery(s, tick, symbol="x") for tick in (1, 2) for s in (1, 2)])
    assert value(subscribed, "SELECT count(DISTINCT xmin::text) FROM seen") == 4
    with refused("2D000"), subscribed.transaction():  # invalid transaction termination
        deliver(subscribed, [])


def test_a_failure_goes_to_the_exception_queue(subscribed: Connection) -> None:
    deliver(subscribed, [delivery(s, tick, symbol=symbol) for tick, symbol in ((1, "a"), (2, "bad"), (3, "c")) for s in (1, 2)])  # fmt: skip
    assert seen(subscribed) == [(s, symbol) for symbol in ("a", "c") for s in ("one", "two")]
    found = rows(
        subscribed,
        "SELECT symbol, queue_subscription, queue_origin, queue_tick, queue_sequence, queue_sqlstate, queue_message, "
        "queue_detail, queue_attempts FROM smile.quotes_exception ORDER BY queue_id",
    )
    assert found == [("bad", name, "o", 2, 2, "P0042", "bad symbol", "it is bad", 1) for name in ("one", "two")]
    assert "function see" in value(subscribed, "SELECT queue_context FROM smile.quotes_exception LIMIT 1")
    deliver(subscribed, [delivery(1, 2, symbol="bad")])  # it is not tried again
    assert value(subscribed, "SELECT count(*) FROM smile.quotes_exception") == 2


def test_an_exception_is_retried_or_dropped(subscribed: Connection) -> None:
    deliver(subscribed, [delivery(1, 1, symbol="bad"), delivery(2, 1, symbol="bad")])
    first, second = (i for (i,) in rows(subscribed, "SELECT queue_id FROM smile.quotes_exception ORDER BY 1"))
    assert value(subscribed, "SELECT smile.retry_exception(%s)", first) is False
    assert rows(subscribed, "SELECT queue_attempts FROM smile.quotes_exception ORDER BY queue_id") == [(2,), (1,)]
    assert seen(subscribed) == []
    subscribed.execute("INSERT INTO seen VALUES ('', 'repaired')")
    with subscribed.transaction(force_rollback=True):
        assert value(subscribed, "SELECT smile.retry_exception(%s)", first) is True
    assert seen(subscribed) == [("", "repaired")]  # the effect and the removal are one transaction
    assert value(subscribed, "SELECT smile.retry_exception(%s)", first) is True
    assert seen(subscribed)[-1] == ("one", "bad")
    subscribed.execute("SELECT smile.drop_exception(%s)", [second])
    assert rows(subscribed, "SELECT * FROM smile.quotes_exception") == []
    for call in ("SELECT smile.retry_exception(%s)", "SELECT smile.drop_exception(%s)"):
        with refused("E154"):
            subscribed.execute(call.encode(), [first])


def test_auditable_queues_keep_deliveries(subscribed: Connection) -> None:
    deliver(subscribed, [delivery(1, 1, symbol="a")])
    assert rows(subscribed, "SELECT * FROM smile.quotes_out") == []
    subscribed.execute("SELECT smile.alter_queue('quotes_out', true), smile.alter_queue('quotes_exception', true)")
    deliver(subscribed, [delivery(1, 2, symbol="b"), delivery(2, 2, symbol="bad"), delivery(1, 3, symbol="bad")])
    subscribed.execute("INSERT INTO seen VALUES ('', 'repaired')")
    first, second = (i for (i,) in rows(subscribed, "SELECT queue_id FROM smile.quotes_exception ORDER BY 1"))
    assert value(subscribed, "SELECT smile.retry_exception(%s)", first) is True
    subscribed.execute("SELECT smile.drop_exception(%s)", [second])
    found = rows(subscribed, "SELECT symbol, queue_subscription, queue_tick, queue_attempts, queue_delivery_time IS NOT NULL FROM smile.quotes_out ORDER BY 3, 2")  # fmt: skip
    assert found == [("b", "one", 2, 1, True), ("bad", "two", 2, 2, True)]
    resolutions = rows(subscribed, "SELECT queue_resolution FROM smile.quotes_exception ORDER BY queue_id")
    assert resolutions == [("delivered",), ("dropped",)]
    subscribed.execute("SELECT smile.alter_queue('quotes_out', false), smile.alter_queue('quotes_exception', false)")
    assert rows(subscribed, "SELECT symbol FROM smile.quotes_out") == []
    assert rows(subscribed, "SELECT symbol FROM smile.quotes_exception") == []


@pytest.fixture
def other(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as opened:
        yield opened


def test_the_out_queue_has_what_is_not_delivered_yet(subscribed: Connection, other: Connection) -> None:
    subscribed.execute("CREATE FUNCTION wait(text) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_lock(7), pg_advisory_unlock(7)'")  # fmt: skip
    subscribed.execute("SELECT smile.create_subscription('three', 'Quotes', 'local', NULL, 'wait', 'symbol', 0)")
    other.execute("SELECT pg_advisory_lock(7)")
    deliveries = [delivery(1, 1, symbol="a"), delivery(3, 1, symbol="a"), delivery(1, 2, symbol="b")]
    thread = threading.Thread(target=deliver, args=(subscribed, deliveries))
    thread.start()
    wait_for_a_lock(other, "locktype = 'advisory' AND objid = 7")
    waiting = "SELECT symbol, queue_subscription, queue_tick FROM smile.quotes_out ORDER BY 3, 2"
    assert rows(other, waiting) == [("a", "three", 1), ("b", "one", 2)]
    assert ("out", 2) in rows(other, "SELECT * FROM smile.undelivered()")
    other.execute("SELECT pg_advisory_unlock(7)")
    thread.join()
    assert rows(other, waiting) == []


def test_serialization_failures_are_retried(subscribed: Connection) -> None:
    subscribed.execute("CREATE SEQUENCE attempts")
    subscribed.execute(
        """CREATE FUNCTION clash(symbol text) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('attempts') < (CASE symbol WHEN 'a' THEN 3 ELSE 10 END) THEN
                RAISE serialization_failure;
            END IF;
            INSERT INTO seen VALUES ('clash', symbol);
        END $$"""
    )
    subscribed.execute("SELECT smile.create_subscription('three', 'Quotes', 'local', NULL, 'clash', 'symbol', 0)")
    deliver(subscribed, [delivery(3, 1, symbol="a"), delivery(3, 2, symbol="b")])
    assert seen(subscribed) == [("clash", "a")]
    found = rows(subscribed, "SELECT symbol, queue_sqlstate, queue_attempts FROM smile.quotes_exception")
    assert found == [("b", "40001", 5)]
    assert value(subscribed, "SELECT last_value FROM attempts") == 8


@pytest.mark.parametrize("state", ["53100", "58030", "57014"])
def test_an_event_is_not_to_blame_for_a_full_disk(subscribed: Connection, state: str) -> None:
    subscribed.execute(
        f"CREATE FUNCTION fails(text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE SQLSTATE ''{state}''; END'".encode()
    )
    subscribed.execute("SELECT smile.create_subscription('three', 'Quotes', 'local', NULL, 'fails', 'symbol', 0)")
    deliveries = [delivery(1, 1, symbol="a"), delivery(3, 1, symbol="a"), delivery(1, 2, symbol="b")]
    with refused(state):
        deliver(subscribed, deliveries)
    assert rows(subscribed, "SELECT * FROM smile.exception_queue") == []
    subscribed.execute("CREATE OR REPLACE FUNCTION fails(text) RETURNS void LANGUAGE sql AS ''")
    deliver(subscribed, deliveries)
    assert seen(subscribed) == [("one", "a"), ("one", "b")]
    assert value(subscribed, "SELECT count(*) FROM smile.delivery_positions") == 2


def test_a_dropped_subscription_gets_nothing(subscribed: Connection) -> None:
    deliver(subscribed, [delivery(1, 1, symbol="bad")])
    subscribed.execute("SELECT smile.drop_subscription('one')")
    deliver(subscribed, [delivery(1, 2, symbol="a"), delivery(2, 2, symbol="a"), delivery(99, 2, symbol="a")])
    assert seen(subscribed) == [("two", "a")]
    assert rows(subscribed, "SELECT * FROM smile.exception_queue") == []


def test_a_drop_waits_for_a_delivery(subscribed: Connection, other: Connection, database: str) -> None:
    """And takes effect before the next one."""
    subscribed.execute("CREATE FUNCTION wait(text) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_lock(7), pg_advisory_unlock(7), see(''three'', $1)'")  # fmt: skip
    subscribed.execute("SELECT smile.create_subscription('three', 'Quotes', 'local', NULL, 'wait', 'symbol', 0)")
    deliver(subscribed, [delivery(3, 1, symbol="a")])
    other.execute("SELECT pg_advisory_lock(7)")
    thread = threading.Thread(
        target=deliver, args=(subscribed, [delivery(3, 2, symbol="b"), delivery(3, 3, symbol="c")])
    )
    thread.start()
    wait_for_a_lock(other, "locktype = 'advisory' AND objid = 7")
    with psycopg.connect(database, autocommit=True) as third:
        drop = threading.Thread(target=third.execute, args=("SELECT smile.drop_subscription('three')",))
        drop.start()
        wait_for_a_lock(other, "locktype = 'transactionid'")
        other.execute("SELECT pg_advisory_unlock(7)")
        drop.join()
    thread.join()
    assert ("three", "b") in seen(other)
    assert rows(other, "SELECT name FROM smile.subscriptions ORDER BY 1") == [("one",), ("two",)]
    assert rows(other, "SELECT * FROM smile.exception_queue") == []


def test_a_delivery_waits_for_a_drop(subscribed: Connection, other: Connection) -> None:
    """Of a transaction that is open."""
    deliver(subscribed, [delivery(1, 1, symbol="a")])
    with other.transaction(force_rollback=True):
        other.execute("SELECT smile.drop_subscription('one')")
        thread = threading.Thread(target=deliver, args=(subscribed, [delivery(1, 2, symbol="b")]))
        thread.start()
        wait_for_a_lock(other, "locktype = 'transactionid'")
    thread.join()
    assert seen(other) == [("one", "a"), ("one", "b")]
    with other.transaction():
        other.execute("SELECT smile.drop_subscription('one')")
        thread = threading.Thread(target=deliver, args=(subscribed, [delivery(1, 3, symbol="c")]))
        thread.start()
        wait_for_a_lock(other, "locktype = 'transactionid'")
    thread.join()
    assert seen(other) == [("one", "a"), ("one", "b")]
    assert rows(other, "SELECT * FROM smile.exception_queue") == []
    assert rows(other, "SELECT * FROM smile.delivery_position") == []


def wait_for_a_lock(connection: Connection, condition: LiteralString) -> None:
    """Until a session waits for it."""
    while value(connection, f"SELECT count(*) FROM pg_locks WHERE {condition} AND NOT granted") == 0:
        pass


def test_an_event_is_sent_once_for_all_subscriptions(subscribed: Connection) -> None:
    events = '[{"origin": "o", "tick": "1", "event": {"symbol": "a"}}, {"origin": "o", "tick": "2", "event": {"symbol": "b"}}]'
    subscribed.execute("CALL smile.deliver(%s, '{1,1,2}', '{2,1,1}')", [events])
    assert seen(subscribed) == [("two", "a"), ("one", "a"), ("one", "b")]
    assert value(subscribed, "SELECT current_setting('synchronous_commit')") == "on"


def test_events_as_the_log_has_them(connection: Connection) -> None:
    """Times may be numbers, decimals text."""
    connection.execute(
        "SELECT smile.create_event_type('T', 'd date, t timestamptz, i interval, n numeric(5,2), b bytea')"
    )
    connection.execute("CREATE TABLE got (d date, t timestamptz, i interval, n numeric, b bytea)")
    connection.execute("CREATE FUNCTION take(date, timestamptz, interval, numeric, bytea) RETURNS void LANGUAGE sql AS 'INSERT INTO got VALUES ($1, $2, $3, $4, $5)'")  # fmt: skip
    connection.execute("SELECT smile.create_subscription('s', 'T', 'local', NULL, 'take', 'd, t, i, n, b')")
    numbers = delivery(1, 1, d=1, t=1_500_000, i="1024000000", n="1.50", b="\\x0a")
    texts = delivery(1, 2, d="1970-01-02", t="1970-01-01 00:00:01.5", i=1024000000, n=1.5, b="\\x0a")
    connection.execute("SET timezone = 'Asia/Tokyo'")
    deliver(connection, [numbers, texts])
    assert rows(connection, "SELECT * FROM smile.t_exception") == []
    same = "SELECT count(*) FROM got WHERE d = '1970-01-02' AND t = '1970-01-01 00:00:01.5Z' AND i = '1 second' AND n = 1.5"
    assert value(connection, same) == 2


@pytest.mark.slow
def test_what_is_delivered_survives_a_crash_of_the_server() -> None:
    with running_server(flush=True) as own:
        own.create_template()
        url = own.create_database(TEMPLATE)
        with psycopg.connect(url, autocommit=True) as connection:
            prepare(connection)
        for tick in range(1, 6):
            with psycopg.connect(url, autocommit=True) as connection:
                deliver(connection, [delivery(1, tick, symbol=str(tick)), delivery(2, tick, symbol=str(tick))])
                own.kill()
            own.start()
            with psycopg.connect(url, autocommit=True) as connection:
                assert len(seen(connection)) == 2 * tick
                deliver(connection, [delivery(1, tick, symbol=str(tick))])
                assert len(seen(connection)) == 2 * tick


def test_a_server_needs_no_cleaning(server: Server, subscribed: Connection, other: Connection) -> None:
    """A session that ends during a delivery leaves its batch; the next delivery removes it."""
    other.execute(
        "INSERT INTO smile.out_batch (pid, events, event_numbers, subscriptions) VALUES (1, %s, '{1}', '{1}')",
        ['[{"origin": "o", "tick": "9", "event": {"symbol": "x"}}]'],
    )
    assert rows(other, "SELECT symbol FROM smile.quotes_out") == [("x",)]
    deliver(subscribed, [])
    assert rows(other, "SELECT * FROM smile.out_batch") == []
