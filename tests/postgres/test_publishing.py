"""Publishing: what is advertised, the four modes, transactions, and events that are refused."""

import struct
from collections.abc import Iterator

import psycopg
import pytest

from smile.cli.shell.database import ShellDatabase
from smile.errors import SmileError
from smile.postgres.immediate_way import ImmediateWay
from smile.postgres.schema.install import install
from smile.postgres.statements.translation import EVENT_TYPES_HINT
from tests.postgres.helpers import capture, create_quotes, refused, rows, value
from tests.postgres.server import TEMPLATE, Connection, Server, running_server, system_programs


def test_publishing_needs_an_advertisement(connection: Connection) -> None:
    connection.execute("SELECT smile.create_event_type('Quotes', 'symbol text')")
    with refused("E151", "not advertised"):
        connection.execute("SELECT smile.publish_quotes('IBM')")
    with refused("E151", "not advertised"):
        connection.execute("SELECT smile.publish('Quotes', '{}')")
    with connection.transaction(force_rollback=True):
        connection.execute("SELECT smile.advertise('Quotes')")
        connection.execute("SELECT smile.publish_quotes('IBM')")
    with refused("E151"):
        connection.execute("SELECT smile.publish_quotes('IBM')")
    connection.execute("SELECT smile.advertise('Quotes'), smile.advertise('quotes')")
    connection.execute("SELECT smile.publish_quotes('IBM')")
    assert rows(connection, "SELECT event_type, owner, condition FROM smile.advertisements") == [("Quotes", "postgres", None)]  # fmt: skip
    connection.execute("SELECT smile.unadvertise('Quotes')")
    with refused("E151"):
        connection.execute("SELECT smile.publish_quotes('IBM')")
    with refused("E154"):
        connection.execute("SELECT smile.unadvertise('Quotes')")
    with refused("E154"):
        connection.execute("SELECT smile.advertise('Nothing')")


def test_the_shell_names_the_columns_if_values_do_not_fit(connection: Connection, database: str) -> None:
    create_quotes(connection)
    shell = ShellDatabase(database, print)
    for statement, message, hint in (
        ("PUBLISH quotes('a', 1::float8)", "(unknown, double precision)", "quotes has the columns symbol text, price numeric(10,2)."),
        ("PUBLISH Quota(1)", "no event type Quota with columns for the values (integer)", EVENT_TYPES_HINT),
    ):  # fmt: skip
        with pytest.raises(SmileError) as caught:
            shell.run(statement)
        (diagnostic,) = caught.value.diagnostics
        assert (diagnostic.code, message in diagnostic.message, diagnostic.hint) == ("E158", True, hint)
    assert shell.run("PUBLISH Quotes('a', 1.5)") == "PUBLISH"
    shell.close()


def test_an_advertisement_has_a_condition(connection: Connection) -> None:
    create_quotes(connection)
    with refused("E155", "another condition"):
        connection.execute("SELECT smile.advertise('Quotes', 'price > 0')")
    connection.execute("SELECT smile.unadvertise('Quotes')")
    connection.execute("SELECT smile.advertise('Quotes', 'price > 0 AND symbol IN (''IBM'', ''a)b'')')")
    connection.execute("SELECT smile.publish_quotes('a)b', 1)")
    for symbol, price in (("IBM", 0), ("X", 1), ("IBM", None)):
        with refused("E151", "not advertised"):
            connection.execute("SELECT smile.publish_quotes(%s, %s)", [symbol, price])
    assert len(capture(connection)) == 1


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("nothing > 0", "nothing"),
        ("price > 'x' || symbol", "operator does not exist"),
        ("price", "boolean"),
        ("price > random()", "immutable"),
        ("now() > '2020-01-01'", "immutable"),
        ("price > (SELECT 1)", "subquery"),
        ("public.own(price)", "not part of PostgreSQL"),
        ("price > 0) STORED; DROP TABLE smile.in_queue; SELECT (true", "unexpected )"),
        ("queue_time IS NULL", "queue_time"),
        ("price > 0 -- x", "comments"),
        ("symbol = $$x$$", "dollar"),
        (r"symbol = E'\'' OR symbol = ') STORED; DROP TABLE smile.in_queue; --'", "comments"),
        (r"symbol = E'\'", "backslashes"),
        ("price > 0; DROP TABLE smile.in_queue", "unexpected ;"),
    ],
)
def test_a_condition_that_is_not_safe_is_refused(transaction: Connection, condition: str, text: str) -> None:
    """It is evaluated with the rights of the installer."""
    transaction.execute("CREATE FUNCTION public.own(numeric) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'")
    transaction.execute("SELECT smile.create_event_type('Quotes', 'symbol text, price numeric')")
    with refused("E152", text), transaction.transaction():
        transaction.execute("SELECT smile.advertise('Quotes', %s)", [condition])


@pytest.mark.parametrize(
    ("event", "code", "text"),
    [
        ("[]", "E074", "object"),
        ("null", "E074", "object"),
        ('{"symbol": "a", "prise": 1}', "E077", "prise"),
        ('{"symbol": "a", "symbol": "b"}', "E075", "symbol"),
        ('{"symbol": "a", "price": "dear"}', "E078", "dear"),
        ('{"symbol": "a", "price": 1e8}', "E078", "overflow"),
        ('{"symbol": "a", "price": "NaN"}', "E078", "NaN"),
        ('{"price": 1}', "E080", "symbol"),
        ('{"symbol": null}', "E080", "symbol"),
    ],
)
def test_a_wrong_event_is_refused(transaction: Connection, event: str, code: str, text: str) -> None:
    create_quotes(transaction)
    with refused(code, text), transaction.transaction():
        transaction.execute("SELECT smile.publish('Quotes', %s)", [event])
    assert rows(transaction, "SELECT * FROM smile.quotes_in") == []


@pytest.mark.parametrize(
    "modes", [("later", "guaranteed"), ("deferred", "mostly"), (None, "guaranteed"), ("deferred", None)]
)
def test_a_wrong_mode_is_refused(transaction: Connection, modes: tuple[str | None, str | None]) -> None:
    create_quotes(transaction)
    with refused("E093"), transaction.transaction():
        transaction.execute("SELECT smile.publish('Quotes', '{\"symbol\": \"a\"}', %s, %s)", modes)


@pytest.mark.parametrize("reliability", ["guaranteed", "non-guaranteed"])
def test_deferred_rides_the_transaction(connection: Connection, reliability: str) -> None:
    create_quotes(connection)

    def publish(symbol: str) -> None:
        connection.execute("SELECT smile.publish_quotes(%s, 1, 'DEFERRED', %s)", [symbol, reliability.upper()])

    with connection.transaction():
        publish("kept")
        with connection.transaction(force_rollback=True):
            publish("rolled back to a savepoint")
        publish("kept too")
    with connection.transaction(force_rollback=True):
        publish("rolled back")
    with refused("22012"), connection.transaction():
        publish("failed")
        connection.execute("SELECT 1 / 0")
    if reliability == "guaranteed":
        events = [event for _, event in capture(connection)]
    else:
        events = [event for (event,) in rows(connection, "SELECT event FROM smile.take_unlogged_events(10)")]
    assert [event["symbol"] for event in events] == ["kept", "kept too"]


def test_one_transaction_has_one_number(connection: Connection) -> None:
    create_quotes(connection)
    with connection.transaction():
        connection.execute("SELECT smile.publish_quotes('a', 1)")
        with connection.transaction():  # a savepoint that is released
            connection.execute("SELECT smile.publish_quotes('b', 1)")
    found = rows(connection, "SELECT count(DISTINCT queue_xid), count(*), min(queue_publisher) FROM smile.quotes_in")
    assert found == [(1, 2, "postgres")]


def test_immediate_is_refused_where_there_is_no_way(connection: Connection) -> None:
    create_quotes(connection)
    assert value(connection, "SELECT smile.immediate_way()") is None
    with refused("E153"):
        connection.execute("SELECT smile.publish_quotes('a', 1, 'immediate')")


# ── logical messages ────────────────────────────────────────────────────────────────────────────────────────────────


def read_messages(connection: Connection) -> list[str]:
    """The messages in the slot that are flushed, as the service reads them."""
    connection.execute("SELECT pg_logical_emit_message(true, 'flush', '')")  # a commit, so that all before is flushed
    changes = rows(
        connection,
        "SELECT data FROM pg_logical_slot_get_binary_changes(smile.slot_name(), NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'smile', 'messages', 'true')",
    )
    messages = []
    for (data,) in changes:
        if data[:1] == b"M" and data[10:].startswith(b"smile\0"):
            (length,) = struct.unpack(">I", data[16:20])
            messages.append(data[20 : 20 + length].decode())
    return messages


@pytest.fixture
def logical(connection: Connection) -> Connection:
    if connection.info.server_version < 170_000:
        pytest.skip("guaranteed messages are new in PostgreSQL 17")
    install(connection, ImmediateWay.logical)
    create_quotes(connection)
    assert value(connection, "SELECT smile.immediate_way()") == "logical"
    return connection


@pytest.mark.parametrize("reliability", ["guaranteed", "non-guaranteed"])
def test_immediate_leaves_the_transaction_as_a_message(logical: Connection, reliability: str) -> None:
    with logical.transaction(force_rollback=True):
        logical.execute("SELECT smile.publish_quotes('a', 1.5, 'immediate', %s)", [reliability])
    (message,) = read_messages(logical)
    content = value(logical, "SELECT smile.message_content(%s)", message)
    assert content["event"] == {"symbol": "a", "price": 1.5}
    assert (content["publisher"], content["reliability"]) == ("postgres", reliability)
    assert content["type_id"] == value(logical, "SELECT id FROM smile.event_types")
    assert rows(logical, "SELECT * FROM smile.quotes_in") == []


def test_a_message_of_another_user_is_not_an_event(logical: Connection) -> None:
    logical.execute("SELECT smile.publish_quotes('a', 1, 'immediate')")
    (message,) = read_messages(logical)
    forged = message.replace('"a"', '"b"')
    assert value(logical, "SELECT smile.message_content(%s)", forged) is None
    assert value(logical, "SELECT smile.message_content('')") is None


def test_immediate_from_a_trigger(logical: Connection) -> None:
    logical.execute("CREATE TABLE stock (symbol text, price numeric)")
    logical.execute(
        "SELECT smile.create_rule('r', 'insert', 'stock', NULL, 'Quotes', 'NEW.symbol, NEW.price', 'immediate', 'guaranteed')"
    )
    with logical.transaction(force_rollback=True):
        logical.execute("INSERT INTO stock VALUES ('a', 1), ('b', 2)")
    contents = [value(logical, "SELECT smile.message_content(%s)", message) for message in read_messages(logical)]
    assert [content["event"]["symbol"] for content in contents] == ["a", "b"]


def test_without_its_slot_immediate_is_refused(logical: Connection) -> None:
    logical.execute("SELECT pg_drop_replication_slot(smile.slot_name())")
    with refused("E153"):
        logical.execute("SELECT smile.publish_quotes('a', 1, 'immediate', 'non-guaranteed')")


@pytest.mark.slow  # it starts a second server
def test_before_version_17_messages_are_not_guaranteed() -> None:
    with running_server(version="pginstall") as old:
        url = old.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.info.server_version < 170_000
            install(connection, ImmediateWay.logical)
            create_quotes(connection)
            with refused("E153", "17"):
                connection.execute("SELECT smile.publish_quotes('a', 1, 'immediate', 'guaranteed')")
            connection.execute("SELECT smile.publish_quotes('a', 1, 'immediate', 'non-guaranteed')")
            assert len(read_messages(connection)) == 1


# ── dblink ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def dblink_server() -> Iterator[Server]:
    programs = system_programs()
    if programs is None:
        pytest.skip("no PostgreSQL with dblink is installed on this machine")
    with running_server(programs) as running:
        running.create_template()
        yield running


@pytest.mark.slow  # it starts a second server
@pytest.mark.parametrize("reliability", ["guaranteed", "non-guaranteed"])
def test_immediate_through_a_second_connection(dblink_server: Server, reliability: str) -> None:
    with psycopg.connect(dblink_server.create_database(TEMPLATE), autocommit=True) as connection:
        install(connection, ImmediateWay.dblink)
        assert value(connection, "SELECT smile.immediate_way()") == "dblink"
        create_quotes(connection)
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT smile.publish_quotes('it''s', 1, 'immediate', %s)", [reliability])
            connection.execute("SELECT smile.publish_quotes('deferred', 1)")
        found = rows(connection, "SELECT symbol, queue_reliability, queue_publisher FROM smile.quotes_in")
        assert found == [("it's", reliability, "postgres")]
        assert not install(connection)  # the way stays
        assert value(connection, "SELECT smile.immediate_way()") == "dblink"
        install(connection, ImmediateWay.none)
        with refused("E153"):
            connection.execute("SELECT smile.publish_quotes('a', 1, 'immediate')")
