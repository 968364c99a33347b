"""Installation: idempotent, versioned, safe while running, and removed without losing events."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from smile.cli.main import app
from smile.errors import SmileError
from smile.postgres.connection import database_error
from smile.postgres.schema import install as install_module
from smile.postgres.schema.install import install, uninstall
from smile.postgres.schema.version import SchemaVersion, SqlFile, installed_version, packaged_version, sql_files
from tests.postgres.helpers import capture, create_quotes, deliver, delivery, rows, value
from tests.postgres.server import Connection
from tests.postgres.services import count_rows, create_type, serving, wait_for_events
from tests.processes import wait_until


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["postgres", *arguments])
    return result.exit_code, result.output


@contextmanager
def smile_error(code: str, text: str = "") -> Iterator[None]:
    with pytest.raises(SmileError) as caught:
        yield
    assert (caught.value.diagnostics[0].code, text in caught.value.diagnostics[0].message) == (code, True)


def test_the_command(empty_database: str) -> None:
    number = packaged_version().migration
    assert run("install", empty_database, "--check") == (1, "not installed\n")
    assert run("status", empty_database) == (0, "the schema is not installed\n")
    assert run("install", empty_database) == (0, f"version {number} is installed\n")
    assert run("install", empty_database) == (0, f"version {number} was already installed\n")
    assert run("install", empty_database, "--check") == (0, f"version {number} is installed\n")
    with psycopg.connect(empty_database) as connection:
        create_quotes(connection)
        connection.execute("SELECT smile.publish_quotes('a', 1)")
    code, text = run("status", empty_database, "--json")
    status = json.loads(text)
    assert (code, status["current"], status["event_types"], status["undelivered"]) == (0, True, 1, {"in": 1})
    assert "undelivered events: 1 in in" in run("status", empty_database)[1]
    code, text = run("uninstall", empty_database)
    assert (code, "E157" in text, "1 in the queue in" in text, "--force" in text) == (1, True, True, True)
    assert run("uninstall", empty_database, "--force") == (0, "the schema is removed\n")
    code, text = run("uninstall", empty_database)
    assert (code, "not installed" in text) == (1, True)


def test_errors_of_the_database_have_codes(empty_database: str) -> None:
    code, text = run("install", empty_database.replace("postgres@", "nobody@"))
    assert (code, "E157" in text) == (1, True)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA smile")
        with smile_error("E157", "is not SMILE's"):
            install(connection)
        connection.execute("DROP SCHEMA smile")
        install(connection)
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT smile.advertise('Nothing')")
    problem = database_error(caught.value).diagnostics[0]
    assert (problem.code, problem.message) == ("E154", "there is no event type Nothing")


def test_a_role_that_may_not_create_schemas(empty_database: str, roles: None) -> None:
    code, text = run("install", empty_database.replace("postgres@", "alice@"))
    assert (code, "E157" in text, "permission denied" in text) == (1, True, True)


def test_a_newer_schema_is_refused(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.execute("UPDATE smile.setting SET value = '99' WHERE name = 'migration'")
    with smile_error("E157", "newer"):
        install(connection)


def test_an_upgrade_keeps_everything(connection: Connection, roles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    create_quotes(connection)
    connection.execute("CREATE TABLE stock (symbol text); CREATE TABLE seen (symbol text)")
    connection.execute(
        "CREATE FUNCTION see(symbol text) RETURNS void LANGUAGE sql AS 'INSERT INTO seen VALUES (symbol)'"
    )
    connection.execute("SELECT smile.create_rule('r', 'insert', 'stock', NULL, 'Quotes', 'NEW.symbol, 1')")
    connection.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
    connection.execute("SELECT smile.create_subscription('s', 'Quotes', 'local', NULL, 'see', 'symbol')")
    connection.execute("SELECT smile.grant('publish', 'Quotes', 'alice'), smile.grant('subscribe', 'Quotes', 'alice')")
    connection.execute("SELECT smile.publish_quotes('before', 1)")
    # A function of an earlier version, with the types of the columns.
    connection.execute("SELECT smile.create_event_type('Counts', 'n integer, visibility text')")
    connection.execute("SELECT smile.advertise('Counts'), smile.grant('publish', 'Counts', 'public')")
    connection.execute("SELECT smile.grant('publish', 'Counts', 'alice')")
    connection.execute(
        "DROP FUNCTION smile.publish_counts; CREATE FUNCTION smile.publish_counts(n integer, visibility text, "
        "text DEFAULT 'deferred', reliability text DEFAULT 'guaranteed') RETURNS void LANGUAGE sql AS ''; "
        "REVOKE EXECUTE ON FUNCTION smile.publish_counts FROM PUBLIC; "
        "GRANT EXECUTE ON FUNCTION smile.publish_counts TO alice, PUBLIC"
    )
    newer = replace(packaged_version(), digest="0123456789abcdef")
    monkeypatch.setattr(install_module, "packaged_version", lambda: newer)
    before = rows(connection, "SELECT * FROM smile.privileges ORDER BY 1, 2, 3")
    assert install(connection)
    assert installed_version(connection) == newer
    assert rows(connection, "SELECT * FROM smile.privileges ORDER BY 1, 2, 3") == before
    assert value(connection, "SELECT count(*) FROM pg_proc WHERE proname = 'publish_counts'") == 1
    with connection.transaction(force_rollback=True):
        connection.execute("SET ROLE alice; SELECT smile.publish_counts((SELECT count(*) FROM smile.queues), 'a')")
    connection.execute("INSERT INTO stock VALUES ('x')")
    connection.execute("SET ROLE alice")
    connection.execute("SELECT smile.publish_quotes('after', 1)")
    connection.execute("RESET ROLE")
    assert len(capture(connection)) == 4
    deliver(connection, [delivery(1, 1, symbol="x")])
    assert rows(connection, "SELECT * FROM seen") == [("x",)]
    connection.execute("DROP OWNED BY alice")


def test_a_failed_upgrade_changes_nothing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    create_quotes(connection)
    newer = replace(packaged_version(), digest="x")
    monkeypatch.setattr(install_module, "packaged_version", lambda: newer)
    connection.execute(
        "CREATE OR REPLACE FUNCTION smile.define_publish(id integer) RETURNS void LANGUAGE sql AS 'SELECT 1 / 0'"
    )
    monkeypatch.setattr(install_module, "sql_files", lambda folder: sql_files(folder) if folder == "migrations" else [])
    with pytest.raises(psycopg.errors.DivisionByZero):
        install(connection)
    assert installed_version(connection) == packaged_version()
    connection.execute("SELECT smile.publish_quotes('a', 1)")


@pytest.mark.slow
def test_installing_while_others_publish_and_receive(
    connection: Connection, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service captures and delivers meanwhile. Each event takes effect once, in its order."""
    create_type(connection, "E", "n bigint")
    prepare_subscription(connection)
    stopping, published = threading.Event(), list[int]()

    def publish() -> None:
        with psycopg.connect(database, autocommit=True) as own:
            while not stopping.is_set():
                own.execute("SELECT smile.publish_e(%s)", [len(published)])
                published.append(1)

    thread = threading.Thread(target=publish)
    with serving(database, tmp_path) as broker:
        thread.start()
        for n in range(3):
            newer = replace(packaged_version(), digest=f"{n}")
            monkeypatch.setattr(install_module, "packaged_version", lambda newer=newer: newer)
            before = len(published), count_rows(connection, "public.received")
            assert install(connection)
            wait_until(lambda before=before: len(published) > before[0] + 5, "nothing is published")  # type: ignore[misc]
            wait_until(lambda before=before: count_rows(connection, "public.received") > before[1], "nothing arrives")  # type: ignore[misc]
        stopping.set()
        thread.join()
        expected = list(range(len(published)))
        assert [event["n"] for event in wait_for_events(broker, "E", len(expected))] == expected
        wait_until(lambda: count_rows(connection, "public.received") >= len(expected), "events are not delivered")
    assert [n for (n,) in rows(connection, "SELECT n FROM public.received ORDER BY id")] == expected


def prepare_subscription(connection: Connection) -> None:
    connection.execute("CREATE TABLE public.received (id serial, n bigint)")
    connection.execute(
        "CREATE FUNCTION public.receive(bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO public.received (n) VALUES ($1)'"
    )
    connection.execute("SELECT smile.create_subscription('s', 'E', 'local', NULL, 'public.receive', 'n')")


def install_first_version(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first migration, with functions that do not need later ones."""

    def first_files(folder: str) -> list[SqlFile]:
        files = sql_files(folder)
        if folder == "migrations":
            return files[:1]
        return [replace(file, text=file.text.replace(b", v.horizons, v.refresh_time", b"")) for file in files]

    with monkeypatch.context() as patch:
        patch.setattr(install_module, "sql_files", first_files)
        patch.setattr(install_module, "packaged_version", lambda: SchemaVersion(1, "first"))
        assert install(connection)
    connection.execute("DELETE FROM smile.setting WHERE name = 'server_identifier'")


@pytest.mark.slow
def test_an_upgrade_from_the_first_version(
    empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that is there stays, and events that wait are captured and delivered once."""
    with psycopg.connect(empty_database, autocommit=True) as connection:
        install_first_version(connection, monkeypatch)
        create_type(connection, "E", "n bigint")
        prepare_subscription(connection)
        connection.execute("CREATE TABLE public.stock (n bigint); INSERT INTO public.stock VALUES (10)")
        connection.execute("SELECT smile.create_rule('r', 'insert', 'public.stock', NULL, 'E', 'NEW.n')")
        connection.execute("SELECT smile.create_table_stream('Stock', 'public.stock')")
        connection.execute(
            "SELECT smile.create_view_table('public.t', 'v'), smile.create_link('l', 'host', 1, 'u', 'p')"
        )
        connection.execute("SELECT smile.publish_e(1)")
        names = ("event_types", "advertisements", "subscriptions", "rules", "links", "queues", "privileges")
        before = {name: rows(connection, f"SELECT * FROM smile.{name} ORDER BY 1, 2, 3") for name in names}
        assert install(connection)
        assert installed_version(connection) == packaged_version()
        assert {name: rows(connection, f"SELECT * FROM smile.{name} ORDER BY 1, 2, 3") for name in names} == before
        assert rows(connection, "SELECT view, horizons FROM smile.view_tables") == [("v", None)]
        connection.execute("SELECT smile.drop_view_table('public.t'), smile.drop_link('l')")
        with serving(empty_database, tmp_path) as broker:
            connection.execute("INSERT INTO public.stock VALUES (2)")
            connection.execute("SELECT smile.publish_e(3)")
            assert [event["n"] for event in wait_for_events(broker, "E", 3)] == [1, 2, 3]
            assert [event["n"] for event in wait_for_events(broker, "Stock", 2)] == [10, 2]
            wait_until(lambda: count_rows(connection, "public.received") >= 3, "events are not delivered")
        assert rows(connection, "SELECT n FROM public.received ORDER BY id") == [(1,), (2,), (3,)]


def test_two_installations_at_once(empty_database: str) -> None:
    results: list[bool] = []

    def run_install() -> None:
        with psycopg.connect(empty_database) as connection:
            results.append(install(connection))

    threads = [threading.Thread(target=run_install) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, True]


def test_uninstalling_removes_rules_streams_and_subscriptions(connection: Connection, roles: None) -> None:
    create_quotes(connection)
    connection.execute(
        "CREATE TABLE stock (symbol text); CREATE FUNCTION see(symbol text) RETURNS void LANGUAGE sql AS ''"
    )
    connection.execute("SELECT smile.create_rule('r', 'insert', 'stock', NULL, 'Quotes', 'NEW.symbol, 1')")
    connection.execute("SELECT smile.create_table_stream('Stocks', 'stock')")
    connection.execute(
        "SELECT smile.grant('subscribe', 'Quotes', 'alice'); GRANT CREATE ON SCHEMA public TO alice; SET ROLE alice"
    )
    connection.execute("SELECT smile.create_subscription('s', 'Quotes', 'local', NULL, 'see', 'symbol'); RESET ROLE")
    connection.execute("INSERT INTO stock VALUES ('a')")
    with smile_error("E157", "not delivered"):
        uninstall(connection)
    capture(connection)
    uninstall(connection)
    assert value(connection, "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == 0
    connection.execute("INSERT INTO stock VALUES ('b')")
    connection.execute("DROP OWNED BY alice")
    install(connection)
