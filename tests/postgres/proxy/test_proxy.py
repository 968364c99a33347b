"""The publish/subscribe statements through the proxy, in both protocols, and the errors that clients see."""

import struct
from typing import Any

import psycopg
import pytest
from psycopg import sql

from smile.postgres.statements.translation import EVENT_TYPES_HINT
from tests.postgres.private_server import PrivateServer
from tests.postgres.proxy.raw_client import (
    SYNC,
    Message,
    RawClient,
    bind,
    close,
    describe,
    execute,
    fields,
    parse,
    query,
)
from tests.postgres.proxy.running_proxy import RunningProxy

pytestmark = pytest.mark.slow

Connection = psycopg.Connection[tuple[Any, ...]]


def calls(server: PrivateServer) -> list[tuple[str, list[str | None]]]:
    """The calls that were committed since the last time, in their order."""
    with server.connect() as connection:
        rows = connection.execute("DELETE FROM smile.call RETURNING id, function, arguments").fetchall()
        return [(function, arguments) for _, function, arguments in sorted(rows)]


@pytest.fixture
def through(server: PrivateServer, proxy: RunningProxy) -> Any:
    calls(server)
    with server.connect(proxy.port) as connection:
        yield connection


def test_every_statement(server: PrivateServer, through: Connection) -> None:
    for text, function, arguments, tag in [
        ("CREATE EVENT TYPE Quote AS (symbol text)", "create_event_type", ["Quote", "symbol text"], "CREATE EVENT TYPE"),
        ("DROP EVENT TYPE Quote", "drop_event_type", ["Quote"], "DROP EVENT TYPE"),
        ("ALTER QUEUE quote_in SET NON-AUDITABLE", "alter_queue", ["quote_in", "false"], "ALTER QUEUE"),
        ("ADVERTISE Quote", "advertise", ["Quote", None], "ADVERTISE"),
        ("DROP ADVERTISEMENT Quote", "unadvertise", ["Quote"], "DROP ADVERTISEMENT"),
        ("PUBLISH Quote('IBM', 1 + 2)", "publish_quote", ["IBM", "3", "deferred", "guaranteed"], "PUBLISH"),
        ("PUBLISH IMMEDIATE NON-GUARANTEED Quote(NULL, NULL)", "publish_quote", [None, None, "immediate", "non-guaranteed"],
         "PUBLISH"),
        ("CREATE RULE r AS ON INSERT TO numbers WHERE NEW.word = 'it''s \\' PUBLISH Quote(NEW.word, NEW.n)", "create_rule",
         ["r", "insert", "numbers", "NEW.word = 'it''s \\'", "Quote", "NEW.word, NEW.n", "deferred", "guaranteed"],
         "CREATE RULE"),
        ("DROP RULE r ON numbers PUBLISH", "drop_rule", ["r", "numbers"], "DROP RULE"),
        ("CREATE GLOBAL SUBSCRIPTION s ON Quote WHERE price > 3 EXECUTE f(symbol) WITH 2", "create_subscription",
         ["s", "Quote", "global", "price > 3", "f", "symbol", "2"], "CREATE SUBSCRIPTION"),
        ("DROP SUBSCRIPTION s ON Quote", "drop_subscription", ["s"], "DROP SUBSCRIPTION"),
        ("CREATE LINK l TO db2.example.org 5432 USING alice 'x'", "create_link",
         ["l", "db2.example.org", "5432", "alice", "x"], "CREATE LINK"),
        ("DROP LINK l", "drop_link", ["l"], "DROP LINK"),
        ("GRANT PUBLISH ON EVENT TYPE Quote TO Bob", "grant", ["publish", "Quote", "bob"], "GRANT"),
        ("REVOKE SUBSCRIBE ON EVENT TYPE Quote FROM Bob", "revoke", ["subscribe", "Quote", "bob"], "REVOKE"),
        ("CREATE STREAM s FROM TABLE numbers", "create_table_stream", ["s", "numbers"], "CREATE STREAM"),
        ("DROP STREAM s", "drop_table_stream", ["s"], "DROP STREAM"),
        ("CREATE TABLE t FROM VIEW v WITH KNOWLEDGE", "create_view_table", ["t", "v", "true"], "CREATE TABLE"),
        ("DROP TABLE t FROM VIEW", "drop_view_table", ["t"], "DROP TABLE"),
    ]:  # fmt: skip
        for cursor in (through.execute(sql.SQL(text), prepare=False), through.execute(sql.SQL(text), prepare=True)):
            assert (cursor.statusmessage, cursor.description) == (tag, None), text
        assert calls(server) == [(function, arguments)] * 2, text


def test_parameters(server: PrivateServer, through: Connection) -> None:
    for binary in (False, True):
        for _ in range(8):  # after five times, psycopg prepares the statement
            cursor = through.execute("PUBLISH Quote(%s, %s)", ("IBM", 7), binary=binary)
            assert (cursor.statusmessage, cursor.description, cursor.rowcount) == ("PUBLISH", None, -1)
    assert calls(server) == [("publish_quote", ["IBM", "7", "deferred", "guaranteed"])] * 16
    through.execute("CREATE LINK l TO host 5432 USING %s %s", ("alice", "it's"))
    assert calls(server) == [("create_link", ["l", "host", "5432", "alice", "it's"])]


def test_transactions(server: PrivateServer, through: Connection) -> None:
    with through.transaction(force_rollback=True):
        through.execute("PUBLISH Quote('lost', 1)")
    with through.transaction():
        through.execute("PUBLISH Quote('first', 1)")
        with through.transaction(force_rollback=True):
            through.execute("PUBLISH Quote('lost', 2)")
        through.execute("PUBLISH Quote('second', 3)")
        assert calls(server) == []
    assert [arguments[0] for _, arguments in calls(server)] == ["first", "second"]


def test_pipelines(server: PrivateServer, through: Connection) -> None:
    with through.pipeline():
        first = through.execute("SELECT n FROM numbers WHERE n = %s", (5,))
        second = through.execute("PUBLISH Quote(%s, 1)", ("IBM",))
        third = through.execute("SELECT word FROM numbers WHERE n = %s", (6,))
        assert (first.fetchall(), third.fetchall()) == ([(5,)], [("word 6",)])
    assert second.statusmessage == "PUBLISH"
    assert [function for function, _ in calls(server)] == ["publish_quote"]


def test_several_statements_are_one_transaction(server: PrivateServer, proxy: RunningProxy) -> None:
    calls(server)
    with RawClient(proxy.port) as client:
        client.start()
        client.send(query("SELECT 1; PUBLISH Quote('a', 1); SELECT 'x' AS y; ADVERTISE Quote; ; SELECT 2"))
        messages = client.receive_until(b"Z")
        assert [(kind, body) for kind, body in messages if kind in b"CIE"] == [
            (b"C", b"SELECT 1\0"), (b"C", b"PUBLISH\0"), (b"C", b"SELECT 1\0"), (b"C", b"ADVERTISE\0"), (b"C", b"SELECT 1\0"),
        ]  # fmt: skip
        assert b"".join(kind for kind, _ in messages) == b"TDCNCTDCNCTDCZ"
        assert len(calls(server)) == 2
        client.send(query("PUBLISH Quote('a', 1); SELECT 1/0; PUBLISH Quote('b', 1)"))
        assert b"".join(kind for kind, _ in client.receive_until(b"Z")) == b"NCEZ"
        assert calls(server) == []


def error_of(messages: list[Message]) -> dict[str, str]:
    (error,) = [fields(body) for kind, body in messages if kind == b"E"]
    return error


@pytest.mark.parametrize("is_extended", [False, True])
def test_positions_of_errors(server: PrivateServer, proxy: RunningProxy, is_extended: bool) -> None:
    with RawClient(proxy.port) as client:
        client.start()

        def fail(text: str) -> tuple[str, str, str, str]:
            client.send(parse(text) + bind() + execute() + SYNC if is_extended else query(text))
            error = error_of(client.receive_until(b"Z"))
            position = int(error.get("P", 0))
            return error["C"], error["M"], text[position - 1 :] if position else "", error.get("H", "")

        assert fail("/* é */ PUBLISH Quote('IBM', (SELECT nothing))") == (
            "42703", 'column "nothing" does not exist', "nothing))", "")  # fmt: skip
        assert fail("PUBLISH Quote('IBM', 'x')")[:3] == (
            "22P02", 'invalid input syntax for type integer: "x"', "'x')")  # fmt: skip
        missing = "there is no event type Quota with columns for the values (unknown, integer)"
        assert fail("PUBLISH Quota('IBM', 1)") == ("42883", missing, "Quota('IBM', 1)", EVENT_TYPES_HINT)
        assert fail("PUBLISH Quota()")[1] == "there is no event type Quota with columns for the values ()"
        assert fail("PUBLISH Quote('IBM')")[0] == "42883"
        assert fail("PUBLISH Quote('IBM', 1, 'immediate')")[0] == "42883"
        assert fail("ADVERTISE fail1") == ("SM154", "fail1 is refused", "", "Try another.")
        assert fail("PUBLISH Quote 'IBM'") == ("42601", "expected ( but found 'IBM'", "'IBM'", "")
        assert fail("CREATE STREAM s (a int)")[1] == "expected FROM TABLE but found ("
        assert fail("CREATE STREAM s (a int)")[3].startswith("A stream with columns is a statement of SmileSQL")
        assert fail("PUBLISH Quote('IBM', )")[1:3] == ('syntax error at or near ","', " )")
        assert fail("SELEC 1; PUBLISH") == ("42601", 'syntax error at or near "SELEC"', "SELEC 1; PUBLISH", "")
        if not is_extended:
            text = "PUBLISH Quote('é', 1);\nADVERTISE Quote; SELECT x; PUBLISH Quote('b', 2)"
            assert fail(text)[2] == "x; PUBLISH Quote('b', 2)"
    calls(server)


def test_an_error_aborts_the_transaction(server: PrivateServer, through: Connection) -> None:
    through.execute("BEGIN")
    with pytest.raises(psycopg.errors.SyntaxError, match="expected an event type"):
        through.execute("PUBLISH")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        through.execute("PUBLISH Quote('a', 1)")
    through.execute("ROLLBACK")
    assert calls(server) == []


def kinds(messages: list[Message]) -> bytes:
    return b"".join(kind for kind, _ in messages)


def test_descriptions_and_portals(server: PrivateServer, proxy: RunningProxy) -> None:
    first = b"".join([
        parse("PUBLISH Quote($1, $2)", "p"), describe(b"S", "p"), bind([b"a", b"1"], "p", "q"), describe(b"P", "q"),
        execute("q", rows_max=1), close(b"P", "q"), bind([b"b", b"2"], "p", result_format=1), execute(), SYNC,
    ])  # fmt: skip
    with RawClient(proxy.port) as client:
        client.start()
        client.send(query("SET client_min_messages = warning"))
        client.receive_until(b"Z")
        client.send(first)
        messages = client.receive_until(b"Z")
        assert kinds(messages) == b"1tn2nC32CZ"
        assert [body for kind, body in messages if kind == b"C"] == [b"PUBLISH\0"] * 2
        assert [body for kind, body in messages if kind == b"t"] == [struct.pack("!hii", 2, 25, 23)]
        # The statement goes on, and another with the same name replaces it only after it was closed.
        client.send(bind([b"c", b"3"], "p") + execute() + close(b"S", "p") + parse("SELECT 'rows'", "p") + SYNC)
        assert kinds(client.receive_until(b"Z")) == b"2C31Z"
        client.send(bind((), "p") + describe(b"P") + execute() + SYNC)
        assert kinds(client.receive_until(b"Z")) == b"2TDCZ"
    assert [arguments[0] for _, arguments in calls(server)] == ["a", "b", "c"]


def test_what_the_server_skips_changes_no_name(server: PrivateServer, proxy: RunningProxy) -> None:
    calls(server)  # forgets those of earlier tests
    with RawClient(proxy.port) as client:
        client.start()
        client.send(parse("SELECT 1", "p") + SYNC)
        client.send(parse("SELEC", "x") + close(b"S", "p") + parse("PUBLISH Quote('a', 1)", "p") + SYNC)
        client.send(bind((), "p") + execute() + SYNC)
        assert kinds(client.receive_until(b"Z", 3)) == b"1ZEZ2DCZ"
        # Here the error is known before the rest is sent.
        client.send(parse("SELEC", "x"))
        client.receive_until(b"E")
        client.send(close(b"S", "p") + parse("PUBLISH Quote('a', 1)", "p") + query("SELECT 1") + SYNC)
        client.send(bind((), "p") + execute() + SYNC)
        assert kinds(client.receive_until(b"Z", 2)) == b"Z2DCZ"
    assert calls(server) == []


def test_text_in_another_encoding(server: PrivateServer, through: Connection) -> None:
    through.execute("SET client_encoding = 'LATIN1'")
    through.execute("PUBLISH Quote('é', 1)")
    through.execute("SET client_encoding = 'SJIS'")
    through.execute("PUBLISH Quote('表', 1)")  # the second byte of this character is a backslash
    through.execute("SET client_encoding = 'UTF8'")
    through.execute("PUBLISH Quote('日本', 1)")
    assert [arguments[0] for _, arguments in calls(server)] == ["é", "表", "日本"]


def test_strings_with_backslashes(server: PrivateServer, proxy: RunningProxy) -> None:
    with RawClient(proxy.port) as client:
        client.start()
        client.send(query("SET standard_conforming_strings = off; SET escape_string_warning = off"))
        client.receive_until(b"Z")
        client.send(query(r"SELECT '\'; PUBLISH Quote(1)'; PUBLISH Quote('it\'s; \\', 1)"))
        assert kinds(client.receive_until(b"Z")) == b"TDCNCZ"
    assert calls(server) == [("publish_quote", ["it's; \\", "1", "deferred", "guaranteed"])]


def test_a_missing_schema_has_a_hint(server: PrivateServer, proxy: RunningProxy) -> None:
    with server.connect() as connection:
        connection.execute("DROP DATABASE IF EXISTS empty")
        connection.execute("CREATE DATABASE empty")
    with server.connect(proxy.port, dbname="empty") as connection:
        with pytest.raises(psycopg.errors.InvalidSchemaName) as caught:
            connection.execute("ADVERTISE q")
        assert caught.value.diag.message_hint == "Install it in this database: smile postgres install URL."


def test_long_texts_pass_untranslated(server: PrivateServer, through: Connection) -> None:
    word = "x" * 2**20
    (length,) = through.execute("SELECT length(%s) -- publish", (word,)).fetchone() or ()
    assert length == 2**20
    through.execute(sql.SQL("PUBLISH Quote({}, 1)").format("y" * 100_000))
    ((_, arguments),) = calls(server)
    assert arguments[0] == "y" * 100_000
    with pytest.raises(psycopg.errors.SyntaxError, match='at or near "PUBLISH"'):
        through.execute(sql.SQL("PUBLISH Quote({}, 1)").format(word))
