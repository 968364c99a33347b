"""One server for the tests of a process, and a new database with the schema for each test.

SMILE_TEST_POSTGRES may name the folder of another server's programs, to run the tests with another version.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres.server import TEMPLATE, Connection, Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    programs = os.environ.get("SMILE_TEST_POSTGRES")
    with running_server(Path(programs) if programs else None) as running:
        running.create_template()
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The URL of a new database, in which the schema is installed."""
    url = server.create_database(TEMPLATE)
    yield url
    server.drop_database(url)


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """A connection of a superuser to a new database, in which each statement is a transaction."""
    with psycopg.connect(database, autocommit=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_database(server: Server) -> str:
    return server.create_database(TEMPLATE)


@pytest.fixture
def transaction(shared_database: str) -> Iterator[Connection]:
    """A connection of a superuser in a transaction that is rolled back: faster than a new database."""
    with psycopg.connect(shared_database) as opened, opened.transaction(force_rollback=True):
        yield opened


@pytest.fixture
def roles(server: Server) -> Iterator[None]:
    """The roles alice and bob, without any privileges."""
    with psycopg.connect(server.url(), autocommit=True) as opened:
        opened.execute("CREATE ROLE alice LOGIN")
        opened.execute("CREATE ROLE bob LOGIN")
    yield
    with psycopg.connect(server.url(), autocommit=True) as opened:
        opened.execute("DROP ROLE IF EXISTS alice, bob")


@pytest.fixture
def empty_database(server: Server) -> Iterator[str]:
    """The URL of a new database without the schema."""
    url = server.create_database()
    yield url
    server.drop_database(url)
