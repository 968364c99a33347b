"""Connections to a database, whose errors are raised as `SmileError`."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from smile.errors import CATALOGUE, SmileError, error


@contextmanager
def open_database(url: str, autocommit: bool = False) -> Iterator[Connection[TupleRow]]:
    try:
        with psycopg.connect(url, autocommit=autocommit, application_name="smile") as connection:
            yield connection
    except psycopg.Error as problem:
        raise database_error(problem) from problem


def database_error(problem: psycopg.Error) -> SmileError:
    """The error of a function of the schema, which has SQLSTATE SMnnn for Ennn. Any other error is E157."""
    message = problem.diag.message_primary or next(iter(str(problem).strip().splitlines()), "it cannot be reached")
    hint = problem.diag.message_hint
    state = problem.sqlstate or ""
    code = f"E{state[2:]}"
    if state.startswith("SM") and code in CATALOGUE:
        return error(code, message, hint=hint)
    return error("E157", f"the database: {message}", hint=hint)
