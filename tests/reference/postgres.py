"""A private PostgreSQL: one server in a temporary directory, reached through a Unix socket there, gone with its user.

Its operators are PostgreSQL's own but for what SMILE rules otherwise: where PostgreSQL fails because a number is too
large or is divided by zero, the result is NULL. Times and intervals are counts of ticks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.types.datetime import TimestampLoader

from smile.algebra.arrays import decode_array
from smile.algebra.heading import Heading
from smile.algebra.types import TICKS_PER_MICROSECOND, DataType, Value
from smile.demo.postgres_server import initialized_server

FLOAT = "double precision"

Connection = psycopg.Connection[tuple[Any, ...]]

TYPES = {
    "bool": "boolean",
    "int": "bigint",
    "float": FLOAT,
    "string": "text",
    "time": "bigint",
    "interval": "bigint",
    "timestamp": "timestamp",
    "date": "date",
    "bytes": "bytea",
}
"""What PostgreSQL calls each type; decimals have digits besides."""

READ_AS = {
    "bool": {"bool"},
    "int": {"int4", "int8"},
    "float": {"float8"},
    "decimal": {"numeric"},
    "string": {"text"},
    "time": {"int8"},
    "interval": {"int4", "int8"},
    "timestamp": {"timestamp"},
    "date": {"date"},
    "bytes": {"bytea"},
}
"""What a column of each type may be in PostgreSQL, whose literals and lengths are ints of 32 bits."""

EPOCH = datetime(1970, 1, 1)


def type_name(data: DataType) -> str:
    if data.name == "array":
        return f"{type_name(data.element)}[]"
    return f"numeric({data.digits}, {data.scale})" if data.name == "decimal" else TYPES[data.name]


# ── the server ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _SinceYear1(TimestampLoader):
    """Reads NULL where PostgreSQL has a timestamp before the year 1, as SMILE rules."""

    def load(self, data: Buffer) -> datetime:
        return None if bytes(data).endswith(b"BC") else super().load(data)  # type: ignore[return-value]


@contextmanager
def running(flush: bool = False) -> Iterator[Connection]:
    """A connection to a server of its own. With `flush`, what is committed is on the disk."""
    options = f"-c listen_addresses='' -c fsync={'on' if flush else 'off'} -c autovacuum=off -c max_connections=9"
    locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    with (
        initialized_server(options, user="smile", locale=locale) as server,
        server.running(),
        psycopg.connect(server.url(user="smile"), autocommit=True) as connection,
    ):
        connection.adapters.register_loader("timestamp", _SinceYear1)
        for statement in _departures():
            connection.execute(statement)
        connection.execute("SET search_path = smile, pg_catalog, public")
        connection.execute("SET timezone = 'UTC'")
        yield connection


def _departures() -> Iterator[str]:
    """Operators and functions that come before PostgreSQL's own: of ints of any length, of floats, of decimals."""
    yield "CREATE SCHEMA smile"
    names = {"+": "plus", "-": "minus", "*": "times", "/": "divided", "%": "modulo"}
    whole = [(a, b, "bigint") for a in ("bigint", "integer") for b in ("bigint", "integer")]
    other = [(t, t, t) for t in (FLOAT, "numeric")]
    for operator, name in names.items():
        for left, right, result in whole + other:
            if (operator, result) != ("%", FLOAT):
                computed = f"CAST($1 AS {result}) OPERATOR(pg_catalog.{operator}) CAST($2 AS {result})"
                yield _function(name, (left, right), result, computed)
                arguments = f"LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = smile.{name}"
                yield f"CREATE OPERATOR smile.{operator} ({arguments})"
    yield _function("negated", ("bigint",), "bigint", "OPERATOR(pg_catalog.-) $1")
    yield "CREATE OPERATOR smile.- (RIGHTARG = bigint, FUNCTION = smile.negated)"
    yield _function("abs", ("bigint",), "bigint", "pg_catalog.abs($1)")
    yield _function("mod", ("bigint", "bigint"), "bigint", "pg_catalog.mod($1, $2)")
    for name in ("sqrt", "exp", "ln", "log10"):
        yield _function(name, (FLOAT,), FLOAT, f"pg_catalog.{name}($1)")
    for name in ("pow", "power"):
        yield _function(name, (FLOAT, FLOAT), FLOAT, f"pg_catalog.{name}($1, $2)")
    yield from _moments()
    for to in ("bigint", FLOAT, "numeric", "boolean", "timestamp", "date"):
        function = f"smile.read_{to.replace(' ', '_')}"
        yield (
            f"CREATE FUNCTION {function}(text) RETURNS {to} STABLE STRICT LANGUAGE plpgsql AS $$ BEGIN RETURN "
            f"CASE WHEN pg_input_is_valid($1, '{to}') THEN CAST(CAST($1 AS varchar) AS {to}) END; END $$"
        )
        yield f"CREATE CAST (text AS {to}) WITH FUNCTION {function}(text)"


def _function(name: str, arguments: Sequence[str], result: str, computed: str) -> str:
    failures = "numeric_value_out_of_range OR division_by_zero"
    failures += " OR invalid_argument_for_logarithm OR invalid_argument_for_power_function"
    return (
        f"CREATE FUNCTION smile.{name}({', '.join(arguments)}) RETURNS {result} IMMUTABLE STRICT LANGUAGE plpgsql "
        f"AS $$ BEGIN RETURN {computed}; EXCEPTION WHEN {failures} THEN RETURN NULL; END $$"
    )


def _moments() -> Iterator[str]:
    """Ticks and timestamps meet as ticks; an interval is a count of ticks."""
    epoch, microsecond = "TIMESTAMP '1970-01-01'", "INTERVAL '1 microsecond'"
    to_ticks = f"CAST(EXTRACT(EPOCH FROM $1) * 1000000 AS bigint) * {TICKS_PER_MICROSECOND}"
    to_interval = f"{microsecond} * floor($2 / {TICKS_PER_MICROSECOND}.0)"
    for name, arguments, result, body in (
        ("ticks", "timestamp", "bigint", to_ticks),
        ("moment", "bigint", "timestamp", f"{epoch} + {microsecond} * floor($1 / {TICKS_PER_MICROSECOND}.0)"),
        ("later", "timestamp, bigint", "timestamp", f"$1 + {to_interval}"),
        ("earlier", "timestamp, bigint", "timestamp", f"$1 - {to_interval}"),
        ("between", "timestamp, timestamp", "bigint", "smile.ticks($1) - smile.ticks($2)"),
    ):
        yield (
            f"CREATE FUNCTION smile.{name}({arguments}) RETURNS {result} IMMUTABLE STRICT LANGUAGE sql AS "
            f"$$ SELECT {body} $$"
        )
    yield "CREATE CAST (timestamp AS bigint) WITH FUNCTION smile.ticks(timestamp) AS IMPLICIT"
    yield "CREATE CAST (bigint AS timestamp) WITH FUNCTION smile.moment(bigint)"
    for operator, name, right in (("+", "later", "bigint"), ("-", "earlier", "bigint"), ("-", "between", "timestamp")):
        yield f"CREATE OPERATOR smile.{operator} (LEFTARG = timestamp, RIGHTARG = {right}, FUNCTION = smile.{name})"


# ── relations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def name_of(name: str) -> str:
    """A name's one spelling: in PostgreSQL it is quoted, and case matters."""
    return name.casefold()


def create_table(connection: Connection, name: str, heading: Heading) -> None:
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(name_of(c)), sql.SQL(type_name(data)))
        for c, data in heading.columns.items()
    ]
    table = sql.Identifier("public", name_of(name))
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(columns)))


def insert(connection: Connection, name: str, heading: Heading, rows: Sequence[Mapping[str, Value]]) -> None:
    if not rows:
        return
    row = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(heading.columns)))
    table = sql.Identifier("public", name_of(name))
    statement = sql.SQL("INSERT INTO {} VALUES {}").format(table, sql.SQL(", ").join([row] * len(rows)))
    connection.execute(statement, [_given(row[c], data) for row in rows for c, data in heading.columns.items()])


def read(connection: Connection, name: str, heading: Heading) -> list[tuple[Value, ...]]:
    """The rows of a view, whose columns must have the types of the heading."""
    cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("public", name_of(name))))
    types = [heading.columns[c] for c in heading.visible]
    assert cursor.description is not None
    type_names = [connection.adapters.types[column.type_code].name for column in cursor.description]
    assert len(type_names) == len(types), f"{name} has {len(type_names)} columns, not {len(types)}"
    for column, data, own in zip(heading.visible, types, type_names, strict=True):
        element = data.element if data.name == "array" else data
        assert data.name == "null" or own in READ_AS[element.name], f"{name}.{column} is {own}, not {data}"
    return [tuple(map(_taken, row)) for row in cursor]


def _given(value: Value, data: DataType) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if data.name == "array" and isinstance(value, bytes):
        return [_given(element, data.element) for element in decode_array(value, data.element)]
    if isinstance(value, int) and data.name == "timestamp":
        return EPOCH + timedelta(microseconds=value)
    if isinstance(value, int) and data.name == "date":
        return EPOCH.date() + timedelta(days=value)
    return value


def _taken(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(map(_taken, value))  # type: ignore[return-value]  # an array
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return value  # type: ignore[no-any-return]
