"""A database that was dumped and restored in another server: its transactions have numbers of the old one there."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from smile.postgres.service import PostgresService
from tests.postgres.helpers import capture, create_quotes, refused, rows, value
from tests.postgres.server import TEMPLATE, Connection, Server, running_server
from tests.postgres.services import connect, create_type, logged, publish, serving, wait_for_events, wait_for_value
from tests.processes import wait_until


def use_numbers(connection: Connection, count: int) -> None:
    """Uses up numbers of transactions."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS public.used (n int); DO $$ BEGIN FOR i IN 1 .. %s LOOP BEGIN "
        "INSERT INTO public.used VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$".replace(
            "%s", str(count)
        ).encode()
    )


def test_what_waits_keeps_its_order(connection: Connection) -> None:
    """Also in the server itself: what was captured is not captured again, and numbers go on."""
    create_quotes(connection)
    connection.execute("SELECT smile.alter_queue('Quotes_in', true)")
    publish_quotes = "SELECT smile.publish_quotes(%s, 1), smile.publish_quotes(%s, 2)"
    connection.execute(publish_quotes, ["a", "a"])
    assert [number for number, _ in capture(connection)] == [1, 2]
    for symbol in "bcd":
        connection.execute(publish_quotes, [symbol, symbol])
    connection.execute("SELECT smile.publish_quotes('e', 1, reliability => 'non-guaranteed')")
    before = rows(connection, "SELECT DISTINCT xid FROM smile.in_queue")
    connection.execute("SELECT smile.restart_capture()")
    assert len(rows(connection, "SELECT DISTINCT xid FROM smile.in_queue")) == len(before) == 4
    connection.execute(publish_quotes, ["f", "f"])
    assert [(n, e["symbol"]) for n, e in capture(connection)] == list(enumerate("bbccddff", 3))
    assert capture(connection) == []
    assert value(connection, "SELECT count(*) FROM smile.take_unlogged_events(10)") == 1
    assert value(connection, "SELECT count(*) FROM smile.quotes_in") == 11


def test_a_batch_that_was_begun_keeps_its_numbers(connection: Connection, database: str) -> None:
    """The log may have some of its events: they are ordered by the numbers of their transactions, others as they came."""
    create_quotes(connection)
    with psycopg.connect(database) as first, psycopg.connect(database) as second:
        first.execute("SELECT pg_current_xact_id()")
        second.execute("SELECT smile.publish_quotes('later', 1)")
        first.execute("SELECT smile.publish_quotes('earlier', 1)")
        first.commit()
        second.commit()
    batch = value(connection, "SELECT batch FROM smile.begin_capture_batch()")
    begun = rows(connection, "SELECT number, event ->> 'symbol' FROM smile.captured_events(%s)", batch)
    assert begun == [(1, "earlier"), (2, "later")]
    connection.execute("SELECT smile.publish_quotes('last', 1)")
    connection.execute("SELECT smile.restart_capture()")
    assert [(n, e["symbol"]) for n, e in capture(connection)] == [*begun, (3, "last")]


def test_the_capture_is_not_restarted_under_a_service(connection: Connection, database: str) -> None:
    with psycopg.connect(database) as service:
        service.execute("SELECT pg_advisory_lock(1936550252, 3)")
        with refused("E162"):
            connection.execute("SELECT smile.restart_capture()")


def test_a_role_that_may_not_identify_the_server(connection: Connection, roles: None) -> None:
    """For it, only numbers that are too large show that the database was copied."""
    with connection.transaction(force_rollback=True):
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        connection.execute(
            "GRANT USAGE ON SCHEMA smile TO alice; GRANT EXECUTE ON FUNCTION smile.server_identifier() TO alice"
        )
        connection.execute("SET LOCAL ROLE alice")
        assert value(connection, "SELECT smile.server_identifier()") == ""


@contextmanager
def copied(server: Server, url: str) -> Iterator[tuple[Server, str]]:
    """The database, restored in a new server by the programs of PostgreSQL."""
    with running_server(server.programs) as other:
        target = other.create_database()
        dump = subprocess.run([server.programs / "pg_dump", url], check=True, capture_output=True, timeout=60)
        command: list[str | Path] = [server.programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", target]
        subprocess.run(command, input=dump.stdout, check=True, capture_output=True, timeout=60)
        yield other, target


def prepare(connection: Connection) -> None:
    use_numbers(connection, 3_000)
    create_type(connection, "E", "n bigint")
    connection.execute("CREATE TABLE public.received (id serial, subscription text, n bigint)")
    connection.execute(
        "CREATE FUNCTION public.receive(text, bigint) RETURNS void LANGUAGE sql AS "
        "'INSERT INTO public.received (subscription, n) VALUES ($1, $2)'"
    )


def subscribe(connection: Connection, name: str) -> None:
    connection.execute(
        "SELECT smile.create_subscription(%s, 'E', 'local', NULL, 'public.receive', %s)", (name, f"'{name}', n")
    )


def received(connection: Connection, name: str) -> list[int]:
    found = rows(connection, "SELECT n FROM public.received WHERE subscription = %s ORDER BY id", name)
    return [n for (n,) in found]


@pytest.mark.slow
def test_a_service_goes_on_after_a_dump_was_restored(server: Server, tmp_path: Path) -> None:
    url = server.create_database(TEMPLATE)
    with connect(url) as connection:
        prepare(connection)
        subscribe(connection, "early")
        with serving(url, tmp_path) as broker:
            for n in (1, 2, 3):
                publish(connection, "E", {"n": n})
            wait_for_events(broker, "E", 3)
            wait_until(lambda: received(connection, "early") == [1, 2, 3], "events are not delivered")
        publish(connection, "E", {"n": 4})
        subscribe(connection, "late")
        publish(connection, "E", {"n": 5})
        publish(connection, "E", {"n": 6})
    with copied(server, url) as (_, target), connect(target) as connection:
        publish(connection, "E", {"n": 7})
        with serving(target, tmp_path) as broker:
            (service,) = (s for s in broker.attached if isinstance(s, PostgresService))
            problem = wait_for_value(
                lambda: service.status()["connections"]["capture"]["problem"], "nothing is refused"
            )
            assert problem["code"] == "E164"
            assert len(logged(broker, "E")) == 3
        connection.execute("SELECT smile.restart_capture()")
        with serving(target, tmp_path) as broker:
            publish(connection, "E", {"n": 8})
            events = wait_for_events(broker, "E", 8)
            assert [event["n"] for event in events] == list(range(1, 9))
            wait_until(lambda: received(connection, "early") == list(range(1, 9)), "events are missing")
            wait_until(lambda: received(connection, "late") == [5, 6, 7, 8], "events are missing")
    server.drop_database(url)


@pytest.mark.slow
def test_a_copy_is_noticed_later_too(server: Server, connection: Connection, database: str) -> None:
    """When the numbers of the new server have passed those of the old one."""
    use_numbers(connection, 100)
    create_quotes(connection)
    capture(connection)
    with copied(server, database) as (_, target), connect(target) as copy:
        assert value(copy, "SELECT smile.is_copied()") is True
        use_numbers(copy, 20_000)
        assert value(copy, "SELECT smile.is_copied()") is True
        copy.execute("SELECT smile.restart_capture()")
        assert value(copy, "SELECT smile.is_copied()") is False
    assert value(connection, "SELECT smile.is_copied()") is False
