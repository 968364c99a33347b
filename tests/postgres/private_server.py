"""A private PostgreSQL that listens on a port of this machine and on a Unix socket, with users of each authentication."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from smile.demo.postgres_server import PostgresServer, initialized_server
from tests.processes import free_port

SUPERUSER = "smile"
PASSWORD = "open sesame"
SCRAM_USER, MD5_USER = "scram_user", "md5_user"


@dataclass(frozen=True)
class PrivateServer:
    """`started` also listens on this port."""

    port: int
    started: PostgresServer

    @property
    def folder(self) -> Path:
        """It has the Unix socket."""
        return self.started.folder

    @property
    def programs(self) -> Path:
        """psql and the others are here."""
        return self.started.programs

    @property
    def url(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}"

    def connect(self, port: int | None = None, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        settings: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port or self.port,
            "user": SUPERUSER,
            "dbname": "postgres",
        }
        return psycopg.connect(**{"autocommit": True, **settings, **options})

    def restart(self) -> None:
        self.started.stop()
        self.started.start()


@contextmanager
def private_server(
    programs: Path | None = None, certificate: tuple[Path, Path] | None = None
) -> Iterator[PrivateServer]:
    """A server of the wheel unless `programs` is given. With a certificate and its key, it has TLS."""
    port = free_port()
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c fsync=off -c autovacuum=off"
    if certificate is not None:
        options += " -c ssl=on -c ssl_cert_file=cert.pem -c ssl_key_file=key.pem"
    with initialized_server(options, programs, user=SUPERUSER) as server:
        rules = server.data / "pg_hba.conf"
        methods = f"host all {SCRAM_USER} all scram-sha-256\nhost all {MD5_USER} all md5\n"
        rules.write_text(methods + rules.read_text() + "local replication all trust\n")
        for source, name in zip(certificate or (), ("cert.pem", "key.pem"), strict=False):
            copied = server.data / name
            shutil.copyfile(source, copied)
            copied.chmod(0o600)
            shutil.chown(copied, server.data.owner(), server.data.group())
        with server.running():
            private = PrivateServer(port, server)
            with private.connect() as connection:
                connection.execute(f"CREATE ROLE {SCRAM_USER} LOGIN PASSWORD '{PASSWORD}'")
                connection.execute("SET password_encryption = md5")
                connection.execute(f"CREATE ROLE {MD5_USER} LOGIN PASSWORD '{PASSWORD}'")
            yield private


@pytest.fixture(scope="session", name="server")
def fixture_server() -> Iterator[PrivateServer]:
    with private_server() as server:
        yield server
