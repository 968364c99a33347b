"""Connections to the database, and what their errors mean. The connection string is never part of a message: it may
have a password.
"""

from typing import Any, Final, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from smile.errors import SmileError, error

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_S_MAX: Final = 10
KEEPALIVE: Final = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A server that has vanished is noticed within half a minute."""
_HIDDEN: Final = ("password", "passfile", "sslpassword")
_CONNECTION_LOST: Final = "08"
_SERVER_ENDS: Final = ("57P01", "57P02", "57P03")
"""The server is stopped, has crashed, or cannot accept connections yet."""

_SESSION: Final[tuple[LiteralString, ...]] = (
    "SET search_path = pg_catalog, pg_temp",
    "SET TIME ZONE 'UTC'",
    "SET DateStyle = ISO",
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET default_transaction_isolation = 'read committed'",
    "SET default_transaction_read_only = off",
)
"""What the service relies on, whatever is set for its role."""


class Database:
    """`url` is a connection string of PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._secrets = [str(v) for k, v in conninfo_to_dict(url).items() if k in _HIDDEN and v]
        except psycopg.ProgrammingError:
            raise error("E162", "the connection string of the database cannot be parsed") from None

    def connect(self, purpose: str) -> Connection:
        """A connection that commits after each statement, unless it is told otherwise."""
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                application_name=f"smile {purpose}",
                connect_timeout=CONNECT_S_MAX,
                **KEEPALIVE,  # type: ignore[arg-type]  # all are parameters of the connection
            )
        except psycopg.Error as problem:
            raise self.error(problem) from None
        try:
            for statement in _SESSION:
                connection.execute(statement)
            self._check_schema(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_schema(self, connection: Connection) -> None:
        row = connection.execute(
            "SELECT to_regclass('smile.capture_batch') IS NOT NULL, pg_is_in_recovery()"
        ).fetchone()
        assert row is not None
        if row[1]:
            hint = "Connect to the primary server: the service writes to the database."
            raise error("E162", "the server is a replica", hint=hint)
        if not row[0]:
            hint = "Run smile postgres install URL first."
            raise error("E162", "the schema smile is not installed in the database", hint=hint)
        (may_read,) = connection.execute("SELECT has_table_privilege('smile.capture_batch', 'INSERT')").fetchone() or (
            0,
        )
        if not may_read:
            hint = "Connect as the role that has installed it."
            raise error("E162", "this role may not use the tables of the schema smile", hint=hint)

    def error(self, problem: psycopg.Error) -> SmileError:
        """The error of a connection that failed or was lost, or of a statement of the service."""
        state = problem.sqlstate
        if state is None or state[:2] == _CONNECTION_LOST or state in _SERVER_ENDS:
            return error("E166", f"no connection to the database: {self.safe_text(str(problem))}")
        return error("E166", f"the database refuses a statement: {state} {self.safe_text(str(problem))}")

    def unexpected_error(self, problem: Exception) -> SmileError:
        return error("E166", f"the service of the database has failed: {self.safe_text(repr(problem))}")

    def safe_text(self, text: str) -> str:
        """One line, without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())[:500]
