"""Event types: their columns and types, the JSON of their events, their queues."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from smile.decoding.event_decoder import EventDecoder
from smile.program import compile_program
from smile.source import Source
from tests.postgres.helpers import QUOTES, capture, create_quotes, refused, rows, value
from tests.postgres.server import Connection


def decoder_of(connection: Connection) -> EventDecoder:
    """The decoder of the streams that the catalogue describes."""
    statements = []
    for name, columns in rows(connection, "SELECT name, columns FROM smile.event_types"):
        texts = [f'"{c["name"]}" {c["type"]}{" NOT NULL" * c["not_null"]}' for c in columns]
        statements.append(f"CREATE STREAM {name} (tick TIME KEY, {', '.join(texts)});")
    program = compile_program(Source("catalogue", "\n".join(statements)))
    return EventDecoder(program.original.streams)


TYPES = [
    ("boolean", "bool"),
    ("smallint", "int"),
    ("integer", "int"),
    ("bigint", "int"),
    ("real", "float"),
    ("double precision", "float"),
    ("numeric(10, 2)", "decimal(10, 2)"),
    ("numeric(38, 38)", "decimal(38, 38)"),
    ("numeric", "decimal(38, 18)"),
    ("text", "string"),
    ("varchar(5)", "string"),
    ("char(5)", "string"),
    ("uuid", "string"),
    ("json", "json"),
    ("jsonb", "json"),
    ("timestamp", "timestamp"),
    ("timestamptz", "timestamp"),
    ("timestamp(3)", "timestamp"),
    ("date", "date"),
    ("interval", "interval"),
    ("bytea", "bytes"),
]


def test_types_are_mapped(connection: Connection) -> None:
    columns = ", ".join(f"c{i} {name}" for i, (name, _) in enumerate(TYPES))
    connection.execute("SELECT smile.create_event_type('All_Types', %s)", [columns])
    found = value(connection, "SELECT columns FROM smile.event_types")
    assert [c["type"] for c in found] == [smile_type for _, smile_type in TYPES]
    assert decoder_of(connection).schemas.keys() == {"All_Types"}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("a integer[]", "integer[]"),
        ("a point", "point"),
        ("a numeric(39, 2)", "numeric(39,2)"),
        ("a numeric(5, -2)", "numeric(5,-2)"),
        ("a int, A int", "a"),
        ('a int, "A" int', "two columns"),
        ("tick int", "tick"),
        ("queue_time int", "queue_time"),
        ("a int DEFAULT 1", "defaults"),
        ("a int CHECK (a > 1)", "constraints"),
        ("a int GENERATED ALWAYS AS IDENTITY", "defaults"),
        ("a int PRIMARY KEY", "constraints"),
        ("a nothing", "nothing"),
        ("a int,", "syntax"),
        ("", "0 columns"),
        (", ".join(f"c{i} int" for i in range(99)), "99 columns"),
    ],
)
def test_wrong_columns_are_refused(transaction: Connection, columns: str, text: str) -> None:
    with refused("E150", text), transaction.transaction():
        transaction.execute("SELECT smile.create_event_type('T', %s)", [columns])
    assert rows(transaction, "SELECT * FROM smile.event_type") == []


def test_a_domain_is_refused(connection: Connection) -> None:
    """Its CHECK would run with the rights of the installer."""
    connection.execute("CREATE DOMAIN cents AS integer CHECK (VALUE > 0)")
    with refused("E150", "cents"):
        connection.execute("SELECT smile.create_event_type('T', 'a cents')")


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"b', "a" * 51, "é"])
def test_wrong_names_are_refused(transaction: Connection, name: str) -> None:
    with refused("E150", "is not a name"), transaction.transaction():
        transaction.execute("SELECT smile.create_event_type(%s, 'a int')", [name])


def test_names_ignore_the_case_and_keep_it(connection: Connection) -> None:
    create_quotes(connection)
    with refused("E155", "QUOTES"):
        connection.execute("SELECT smile.create_event_type('QUOTES', 'a int')")
    assert value(connection, "SELECT name FROM smile.event_types") == "Quotes"
    connection.execute("SELECT smile.publish('qUOTES', '{\"symbol\": \"IBM\"}')")
    assert rows(connection, "SELECT symbol, price FROM smile.Quotes_In") == [("IBM", None)]


VALUES: list[tuple[str, Any, Any]] = [
    ("boolean", True, True),
    ("smallint", -5, -5),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("bigint", -(2**63), -(2**63)),
    ("real", 0.5, 0.5),
    ("double precision", 0.1, 0.1),
    ("double precision", 1.7976931348623157e308, 1.7976931348623157e308),
    ("double precision", 5e-324, 5e-324),
    ("numeric(10, 2)", Decimal("-99999999.995") + Decimal("0.01"), Decimal("-99999999.99")),
    ("numeric(38, 0)", Decimal(10**38 - 1), Decimal(10**38 - 1)),
    ("numeric", Decimal("12345678901234567890.123456789012345678"), Decimal("12345678901234567890.123456789012345678")),
    ("text", 'a "\\ü\n☃', 'a "\\ü\n☃'),
    ("varchar(3)", "äöü", "äöü"),
    ("char(3)", "a", "a"),
    ("timestamp", datetime(1, 1, 1), -62135596800000000),
    ("timestamp", datetime(9999, 12, 31, 23, 59, 59, 999999), 253402300799999999),
    ("timestamptz", datetime(2024, 5, 31, 12, tzinfo=UTC), 1717156800000000),
    ("timestamp(0)", datetime(1970, 1, 1, 0, 0, 0, 600000), 1000000),
    ("date", date(1970, 1, 2), 1),
    ("interval", timedelta(days=-1, microseconds=1), (-86_400_000_000 + 1) * 1024),
    ("interval", timedelta(days=100_000), 100_000 * 86_400_000_000 * 1024),
    ("bytea", b"\x00\xff", b"\x00\xff"),
    (
        "jsonb",
        '{"bb": [1, "ä", null], "a": 12345678901234567890.5}',
        '{"a": 12345678901234567890.5, "bb": [1, "ä", null]}',
    ),
    ("jsonb", '"text"', '"text"'),
    ("jsonb", "true", "true"),
]


@pytest.mark.parametrize(("postgres_type", "given", "expected"), VALUES, ids=lambda v: str(v)[:20])
@pytest.mark.parametrize("settings", ["", "SET timezone = 'Asia/Tokyo'; SET extra_float_digits = -15; SET bytea_output = escape; SET datestyle = german; SET intervalstyle = iso_8601"], ids=["defaults", "odd settings"])  # fmt: skip
def test_an_event_is_what_the_decoder_reads(
    transaction: Connection, postgres_type: str, given: Any, expected: Any, settings: str
) -> None:
    transaction.execute(settings.encode())
    transaction.execute("SELECT smile.create_event_type('T', %s)", [f"v {postgres_type}, n {postgres_type}"])
    transaction.execute("SELECT smile.advertise('T')")
    call = f"SELECT smile.publish_t(%s::{postgres_type.partition('(')[0]}, NULL)"
    transaction.execute(call.encode(), [given])
    text = value(transaction, "SELECT event::text FROM smile.in_queue")
    assert decoder_of(transaction).decode_json("T", text.encode()) == [(expected, None)]
    # The view shows what was published, and a function gets the same from the JSON that SMILE delivers.
    same = f"SELECT e.v IS NOT DISTINCT FROM %s::{postgres_type}, e.n IS NULL FROM smile.t_in AS e"
    assert transaction.execute(same.encode(), [given]).fetchall() == [(True, True)]
    if isinstance(expected, int) and not isinstance(expected, bool):
        as_number = f"SELECT (smile.t_row(json_build_object('v', %s))).v = %s::{postgres_type}"
        assert transaction.execute(as_number.encode(), [expected, given]).fetchone() == (True,)


@pytest.mark.parametrize(
    ("postgres_type", "given"),
    [
        ("double precision", "NaN"),
        ("double precision", "-Infinity"),
        ("real", "Infinity"),
        ("numeric", "NaN"),
        ("numeric", "Infinity"),
        ("numeric", "1e20"),
        ("numeric", "1e-19"),
        ("numeric(10, 2)", "NaN"),
        ("numeric(10, 2)", "99999999.995"),
        ("varchar(3)", "abcd"),
        ("bpchar(3)", "abcd"),
        ("timestamp", "infinity"),
        ("timestamp", "0001-12-31 00:00:00 BC"),
        ("timestamptz", "10000-01-01 00:00:00+00"),
        ("date", "-infinity"),
        ("interval", "1 month"),
        ("interval", "10000000000 seconds"),
    ],
)
def test_values_that_smile_does_not_have_are_refused(transaction: Connection, postgres_type: str, given: str) -> None:
    transaction.execute("SELECT smile.create_event_type('T', %s)", [f"v {postgres_type}"])
    transaction.execute("SELECT smile.advertise('T')")
    with refused("E078", "T.v"), transaction.transaction():
        transaction.execute(f"SELECT smile.publish_t(%s::{postgres_type.partition('(')[0]})".encode(), [given])
    assert rows(transaction, "SELECT * FROM smile.in_queue") == []


INSERTED: list[tuple[str, str]] = [
    ("smallint", "5"),
    ("smallint", "32767.4"),
    ("smallint", "'7'"),
    ("smallint", "(SELECT count(*) FROM generate_series(1, 9))"),
    ("integer", "2.5"),
    ("integer", "-2147483648.4"),
    ("bigint", "(SELECT sum(n) FROM (VALUES (9223372036854775807::bigint)) AS t(n))"),
    ("real", "0.1"),
    ("real", "1e-45::float8"),
    ("real", "3.4028235677973362e38::float8"),
    ("real", "7::bigint"),
    ("numeric(10, 2)", "7"),
    ("numeric(10, 2)", "1.005"),
    ("double precision", "0.1::real"),
    ("varchar(3)", "'abc'::text"),
    ("char(3)", "'ab'::text"),
    ("timestamptz", "date '2024-02-29'"),
    ("smallint", "32767.5"),
    ("integer", "2147483647.5"),
    ("bigint", "9223372036854775808"),
    ("real", "3.4028235677973366e38::float8"),
    ("real", "7.006492321624085e-46::float8"),
    ("varchar(3)", "'abcd'::text"),
]


@pytest.mark.parametrize(("postgres_type", "given"), INSERTED)
def test_values_are_converted_as_by_insert(transaction: Connection, postgres_type: str, given: str) -> None:
    """Or refused, if INSERT refuses them."""
    transaction.execute("SELECT smile.create_event_type('T', %s)", [f"v {postgres_type} NOT NULL"])
    transaction.execute("SELECT smile.advertise('T', 'v IS NOT NULL')")
    transaction.execute(f"CREATE TEMPORARY TABLE inserted (v {postgres_type})".encode())
    try:
        with transaction.transaction():
            transaction.execute(f"INSERT INTO inserted VALUES ({given})".encode())
    except psycopg.errors.DataError:
        with refused("E078", "T.v"):
            transaction.execute(f"SELECT smile.publish_t({given})".encode())
        return
    transaction.execute(f"SELECT smile.publish_t({given})".encode())
    assert value(transaction, "SELECT e.v = i.v FROM smile.t_in AS e, inserted AS i")


def test_an_event_that_is_too_large_is_refused(connection: Connection) -> None:
    create_quotes(connection)
    with refused("E092", "1048576"):
        connection.execute("SELECT smile.publish_quotes(repeat('x', 1048576), 1)")


def test_a_type_with_the_names_of_modes(connection: Connection) -> None:
    create_quotes(connection, "visibility text, reliability int, price int")
    connection.execute("SELECT smile.publish_quotes('a', 1, 2, 'deferred', 'non-guaranteed')")
    found = rows(connection, "SELECT visibility, reliability, price, queue_reliability FROM smile.quotes_in")
    assert found == [("a", 1, 2, "non-guaranteed")]


def test_enumerations_are_strings(connection: Connection) -> None:
    connection.execute("CREATE TYPE public.mood AS ENUM ('sad', 'glad')")
    create_quotes(connection, "mood public.mood")
    connection.execute("SELECT smile.publish_quotes('glad')")
    assert decoder_of(connection).decode_json("Quotes", value(connection, "SELECT event::text FROM smile.in_queue").encode()) == [("glad",)]  # fmt: skip


@pytest.mark.parametrize("queue", ["in", "out", "exception"])
@pytest.mark.parametrize("statement", ["INSERT INTO smile.quotes_{} (symbol) VALUES ('x')", "UPDATE smile.quotes_{} SET symbol = 'x'", "DELETE FROM smile.quotes_{}"])  # fmt: skip
def test_nobody_writes_to_a_queue(transaction: Connection, queue: str, statement: str) -> None:
    create_quotes(transaction)
    with refused("55000"), transaction.transaction():  # not even a superuser
        transaction.execute(statement.format(queue).encode())


def test_a_type_is_dropped(connection: Connection) -> None:
    create_quotes(connection)
    with connection.transaction(force_rollback=True):
        connection.execute("SELECT smile.drop_event_type('quotes')")
        with refused("E154"), connection.transaction():
            connection.execute("SELECT smile.publish('quotes', '{}')")
    connection.execute("SELECT smile.publish_quotes('IBM', 1)")
    connection.execute("SELECT smile.drop_event_type('quotes')")
    connection.execute("SELECT smile.create_event_type('quotes', 'other int')")
    assert value(connection, "SELECT count(*) FROM smile.quotes_in") == 0
    # What was published before is still captured, with its own type. Then nothing of it is left.
    assert capture(connection) == [(1, {"symbol": "IBM", "price": 1.0})]
    assert rows(connection, "SELECT name FROM smile.event_type") == [("quotes",)]
    assert rows(connection, "SELECT * FROM smile.advertisement") == []


def test_everything_rolls_back(connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        create_quotes(connection)
        connection.execute("SELECT smile.publish_quotes('IBM', 1)")
    for relation in ("event_type", "event_column", "advertisement", "in_queue"):
        assert connection.execute(f"SELECT count(*) FROM smile.{relation}".encode()).fetchone() == (0,)
    create_quotes(connection, QUOTES)


def test_auditable_queues_keep_events(connection: Connection) -> None:
    create_quotes(connection)
    connection.execute("SELECT smile.alter_queue('Quotes_in', true)")
    connection.execute(
        "SELECT smile.publish_quotes('a', 1), smile.publish_quotes('b', 2, reliability => 'non-guaranteed')"
    )
    assert len(capture(connection)) == 1
    assert len(rows(connection, "SELECT * FROM smile.take_unlogged_events(10)")) == 1
    assert (capture(connection), rows(connection, "SELECT * FROM smile.take_unlogged_events(10)")) == ([], [])
    connection.execute("SELECT smile.publish_quotes('c', 3)")
    assert rows(connection, "SELECT symbol FROM smile.quotes_in ORDER BY 1") == [("a",), ("b",), ("c",)]
    assert ("quotes_in", "Quotes", "in", True) in rows(connection, "SELECT * FROM smile.queues")
    connection.execute("SELECT smile.alter_queue('Quotes_in', false)")
    assert rows(connection, "SELECT symbol FROM smile.quotes_in") == [("c",)]  # it is not captured yet
    with refused("E154", "no queue"):
        connection.execute("SELECT smile.alter_queue('Quotes', true)")
