"""A PostgreSQL server for tests, with databases in which the schema is installed.

The server is the one of the wheel, or one of the machine that has dblink. It listens on a Unix socket in a temporary
folder. WAL is logical. What is committed is not flushed unless a test asks for it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from smile.demo.postgres_server import VERSION, PostgresServer, initialized_server
from smile.postgres.schema.install import install
from tests.brokers import descendants
from tests.processes import wait_until

Connection = psycopg.Connection[tuple[Any, ...]]
TEMPLATE = "smile_template"


def system_programs() -> Path | None:
    """The programs of a PostgreSQL that is installed on this machine with dblink."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/lib/dblink.so"), key=lambda p: int(p.parts[-3]))
    return folders[-1].parent.parent / "bin" if folders else None


@dataclass(frozen=True)
class Server(PostgresServer):
    """`kill` and `start` simulate a failure of the machine."""

    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def kill(self) -> None:
        """All processes of the server are killed. PostgreSQL does not start while one of them is listed, dead or not."""
        postmaster = int((self.data / "postmaster.pid").read_text().split("\n")[0])
        processes = [postmaster, *descendants(postmaster)]
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), f"{processes} are listed")

    def create_database(self, template: str = "template0", name: str | None = None) -> str:
        """A new database; its URL."""
        name = name or f"database_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
            connection.execute(statement)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            slots = connection.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE database = %s AND NOT active", [name]
            ).fetchall()
            for (slot,) in slots:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(str(name))))

    def create_template(self) -> None:
        """The database that the others are copies of, with the schema."""
        with psycopg.connect(self.create_database(name=TEMPLATE)) as connection:
            install(connection)


@contextmanager
def running_server(
    programs: Path | None = None, version: str = VERSION, flush: bool = False, connections: int = 60
) -> Iterator[Server]:
    """A server of its own; of the wheel unless `programs` is given."""
    options = (
        f"-c listen_addresses='' -c fsync={'on' if flush else 'off'} -c wal_level=logical "
        f"-c max_connections={connections} -c max_prepared_transactions={connections} "
        "-c shared_buffers=32MB -c max_replication_slots=20 -c jit=off"
    )
    with initialized_server(options, programs, version) as initialized:
        server = Server(initialized.folder, initialized.programs, initialized.options)
        with server.running():
            yield server
