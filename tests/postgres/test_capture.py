"""Capture: every committed event is in one batch, in an order, whatever the order of commits and crashes."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import psycopg
import pytest

from tests.postgres.helpers import Row, capture, create_quotes, refused, rows, value
from tests.postgres.server import TEMPLATE, Connection, Server


def test_an_open_transaction_holds_up_nobody(connection: Connection, database: str) -> None:
    create_quotes(connection)
    with psycopg.connect(database) as slow:
        slow.execute("SELECT smile.publish_quotes('slow', 1)")
        connection.execute("SELECT smile.publish_quotes('fast', 2)")
        assert [event["symbol"] for _, event in capture(connection)] == ["fast"]
        connection.execute("SELECT smile.publish_quotes('fast again', 3)")
        slow.commit()
        # The transaction with the smaller number is captured later, and first in its batch.
        assert [event["symbol"] for _, event in capture(connection)] == ["slow", "fast again"]
    assert capture(connection) == []


def test_a_prepared_transaction_is_captured_after_its_commit(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute("BEGIN; SELECT smile.publish_quotes('a', 1); PREPARE TRANSACTION 'capture'")
    assert capture(connection) == []
    connection.execute("COMMIT PREPARED 'capture'")
    assert len(capture(connection)) == 1


def test_a_service_that_waits_is_notified(connection: Connection, database: str) -> None:
    create_quotes(connection)
    with psycopg.connect(database, autocommit=True) as service:
        service.execute("LISTEN smile")
        connection.execute("SELECT smile.publish_quotes('nobody waits', 1)")
        service.execute("SELECT pg_advisory_lock(1936550252, 1)")
        connection.execute("SELECT smile.publish_quotes('a', 1)")
        notified = service.notifies(timeout=60, stop_after=1)
        assert [notification.channel for notification in notified] == ["smile"]
        with refused("0A000"):
            connection.execute("BEGIN; SELECT smile.publish_quotes('b', 1); PREPARE TRANSACTION 'notified'")
        connection.execute("ROLLBACK")
        connection.execute("SET smile.notify = off")
        connection.execute("BEGIN; SELECT smile.publish_quotes('b', 1); PREPARE TRANSACTION 'notified'")
        connection.execute("COMMIT PREPARED 'notified'")
    assert [event["symbol"] for _, event in capture(connection)] == ["nobody waits", "a", "b"]


def test_a_batch_is_the_same_when_it_is_read_again(connection: Connection, database: str) -> None:
    create_quotes(connection)
    connection.execute("SELECT smile.publish_quotes('a', 1), smile.publish_quotes('b', 1)")
    begun = rows(connection, "SELECT * FROM smile.begin_capture_batch()")
    events = rows(connection, "SELECT * FROM smile.captured_events(%s)", begun[0][0])
    connection.execute("SELECT smile.publish_quotes('later', 1)")
    with psycopg.connect(database, autocommit=True) as restarted:
        assert rows(restarted, "SELECT * FROM smile.begin_capture_batch()") == begun
        assert rows(restarted, "SELECT * FROM smile.captured_events(%s)", begun[0][0]) == events
        for _ in range(2):  # the service may not know that it has finished
            restarted.execute("SELECT smile.finish_capture_batch(%s, 2)", [begun[0][0]])
        assert [(number, event["symbol"]) for number, event in capture(restarted)] == [(3, "later")]


def test_the_order_of_sessions(connection: Connection) -> None:
    create_quotes(connection)
    for i in range(5):
        with connection.transaction():
            connection.execute("SELECT smile.publish_quotes(%s, 1), smile.publish_quotes(%s, 2)", [f"{i}", f"{i}"])
    numbers = [(number, event["symbol"], event["price"]) for number, event in capture(connection)]
    assert numbers == [(2 * i + p, str(i), p) for i in range(5) for p in (1, 2)]


def test_changes_of_the_catalogue_have_their_place(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute("CREATE FUNCTION see(text) RETURNS void LANGUAGE sql AS ''")
    capture(connection)
    with connection.transaction():
        connection.execute("SELECT smile.publish_quotes('before', 1)")
        connection.execute("SELECT smile.create_subscription('s', 'Quotes', 'local', NULL, 'see', 'symbol', 0)")
        connection.execute("SELECT smile.publish_quotes('after', 1)")
    connection.execute("SELECT smile.drop_subscription('s')")
    ((batch, begin, end),) = rows(
        connection, "SELECT batch, snapshot_from, snapshot_to FROM smile.begin_capture_batch()"
    )
    order = rows(
        connection,
        """
        SELECT what FROM (
            SELECT xid, seq, event ->> 'symbol' FROM smile.captured_events(%(batch)s)
            UNION ALL SELECT created_xid, created_seq, 'created' FROM smile.subscription
                WHERE smile.is_between(created_xid, %(begin)s, %(end)s)
            UNION ALL SELECT dropped_xid, dropped_seq, 'dropped' FROM smile.subscription
                WHERE smile.is_between(dropped_xid, %(begin)s, %(end)s)) AS changes(xid, seq, what)
        ORDER BY xid, seq""".replace("%(batch)s", str(int(batch)))
        .replace("%(begin)s", f"'{begin}'")
        .replace("%(end)s", f"'{end}'"),
    )
    assert [what for (what,) in order] == ["before", "created", "after", "dropped"]
    connection.execute("SELECT smile.finish_capture_batch(%s, 2)", [batch])
    assert rows(connection, "SELECT * FROM smile.subscription") == []


def test_unlogged_events_are_taken_once_and_by_transaction(connection: Connection) -> None:
    create_quotes(connection)
    for i in range(3):
        with connection.transaction():
            for price in (1, 2):
                connection.execute(
                    "SELECT smile.publish_quotes(%s, %s, reliability => 'non-guaranteed')", [str(i), price]
                )
    taken = [rows(connection, "SELECT event ->> 'symbol' FROM smile.take_unlogged_events(3)") for _ in range(3)]
    assert taken == [[("0",), ("0",), ("1",), ("1",)], [("2",), ("2",)], []]
    assert rows(connection, "SELECT * FROM smile.in_queue_unlogged") == []


def test_ordinary_roles_cannot_capture(connection: Connection, roles: None) -> None:
    create_quotes(connection)
    connection.execute("SET ROLE alice")
    for statement in (
        "SELECT smile.begin_capture_batch()",
        "SELECT smile.finish_capture_batch(1, 0)",
        "SELECT smile.captured_events(1)",
        "SELECT smile.take_unlogged_events(1)",
        "CALL smile.deliver('[]', '{}', '{}')",
        "SELECT * FROM smile.in_queue",
        "SELECT * FROM smile.setting",
    ):
        with refused("42501"):
            connection.execute(statement.encode())


def publish_at_random(url: str, publisher: int, transactions: int) -> list[Row]:
    """Publishes transactions of several events; returns those that are committed."""
    random, committed = Random(publisher), []
    with psycopg.connect(url, autocommit=True) as connection:
        for i in range(transactions):
            events = [(f"{publisher}/{i}", n) for n in range(random.randint(1, 3))]
            commits = random.random() < 0.8
            with connection.transaction(force_rollback=not commits):
                for symbol, n in events:
                    connection.execute("SELECT smile.publish_quotes(%s, %s)", [symbol, n])
                if random.random() < 0.2:
                    connection.execute("SELECT pg_sleep(%s)", [random.random() / 50])
            if commits:
                committed += events
    return committed


@pytest.mark.parametrize("publishers", [20])
def test_concurrent_publishers_lose_and_double_nothing(server: Server, publishers: int) -> None:
    url = server.create_database(TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection, ThreadPoolExecutor(publishers) as threads:
        create_quotes(connection)
        running = [threads.submit(publish_at_random, url, n, 15) for n in range(publishers)]
        captured = []
        while not all(future.done() for future in running):
            captured += capture(connection)
        captured += capture(connection)
        assert value(connection, "SELECT count(*) FROM smile.in_queue") == 0
    committed = [event for future in running for event in future.result()]
    events = [(event["symbol"], int(event["price"])) for _, event in captured]
    assert Counter(events) == Counter(committed)
    assert [number for number, _ in captured] == list(range(1, len(captured) + 1))
    for n in range(publishers):  # the order of each session, and each transaction in one piece
        own = [event for event in events if event[0].startswith(f"{n}/")]
        assert own == [event for event in committed if event[0].startswith(f"{n}/")]
    starts = [i for i, event in enumerate(events) if i == 0 or event[0] != events[i - 1][0]]
    assert len(starts) == len({symbol for symbol, _ in events})


@pytest.mark.slow
def test_a_crash_of_the_server_loses_unlogged_events_only(server: Server) -> None:
    from tests.postgres.server import running_server  # noqa: PLC0415

    with running_server(flush=True) as own:
        own.create_template()
        url = own.create_database(TEMPLATE)
        with psycopg.connect(url, autocommit=True) as connection:
            create_quotes(connection)
            connection.execute("SELECT smile.publish_quotes('a', 1)")
            connection.execute("SELECT smile.publish_quotes('b', 1, reliability => 'non-guaranteed')")
            begun = rows(connection, "SELECT * FROM smile.begin_capture_batch()")
            own.kill()
        own.start()
        with psycopg.connect(url, autocommit=True) as connection:
            assert rows(connection, "SELECT * FROM smile.begin_capture_batch()") == begun
            assert [event["symbol"] for _, event in capture(connection)] == ["a"]
            assert rows(connection, "SELECT * FROM smile.take_unlogged_events(10)") == []
            connection.execute("SELECT smile.publish_quotes('c', 1)")
            assert [(number, event["symbol"]) for number, event in capture(connection)] == [(2, "c")]
