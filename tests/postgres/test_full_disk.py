"""The disk of the database is full: nothing is lost, no event is taken for a failure, and all goes on when there is room.

The disk is a small file system in memory, with a tablespace. To mount it, the tests must run as root.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.postgres.server import TEMPLATE, Server
from tests.postgres.services import (
    Connection,
    connect,
    count_rows,
    create_type,
    logged,
    publish,
    serving,
    wait_for_value,
)
from tests.processes import wait_until

pytestmark = pytest.mark.slow
EVENTS = 300
SMALL, LARGE = "1m", "64m"


@dataclass(frozen=True)
class Disk:
    tablespace: str
    folder: Path

    def make_room(self) -> None:
        subprocess.run(["mount", "-o", f"remount,size={LARGE}", self.folder], check=True)


@contextmanager
def small_disk(server: Server, database: str) -> Iterator[Disk]:
    """It is unmounted when the database was dropped."""
    owner = server.data.stat()
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    disk = Disk(f"small_{name}", server.folder / f"small_{name}")
    disk.folder.mkdir()
    options = f"size={SMALL},mode=700,uid={owner.st_uid},gid={owner.st_gid}"
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk.folder], check=True, capture_output=True)
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"no file system can be mounted: {problem.stderr.decode().strip()}")
    try:
        with connect(server.url()) as connection:
            location = sql.Literal(str(disk.folder))
            connection.execute(
                sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(sql.Identifier(disk.tablespace), location)
            )
            yield disk
            server.drop_database(database)
            connection.execute(sql.SQL("DROP TABLESPACE {}").format(sql.Identifier(disk.tablespace)))
    finally:
        subprocess.run(["umount", "--lazy", disk.folder], check=True)


@pytest.fixture
def small_database(server: Server) -> str:
    return server.create_database(TEMPLATE)


@pytest.fixture
def disk(server: Server, small_database: str) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    with small_disk(server, small_database) as opened:
        yield opened


def large_text(size: int = 8_000) -> str:
    """It cannot be compressed much."""
    return os.urandom(size // 2).hex()


def test_functions_wait_for_room(disk: Disk, small_database: str, tmp_path: Path) -> None:
    with serving(small_database, tmp_path) as broker, connect(small_database) as connection:
        create_type(connection, "E")
        space = sql.Identifier(disk.tablespace)
        columns = "id bigint GENERATED ALWAYS AS IDENTITY, n bigint, who text"
        connection.execute(sql.SQL(f"CREATE TABLE public.received ({columns}) TABLESPACE {{}}").format(space))
        connection.execute(
            "CREATE FUNCTION public.receive(n bigint, who text) RETURNS void LANGUAGE sql AS "
            "'INSERT INTO public.received (n, who) VALUES ($1, $2)'"
        )
        connection.execute("SELECT smile.create_subscription('s', 'E', 'local', NULL, 'public.receive', 'n, who', 0)")
        for n in range(EVENTS):
            publish(connection, "E", {"n": n, "who": large_text()})
        problem = wait_for_value(
            lambda: broker.status()["postgres"]["connections"]["delivery"]["problem"], "the disk does not become full"
        )
        assert "refuses a statement: 53100" in problem["message"]
        assert 0 < count_rows(connection, "public.received") < EVENTS
        disk.make_room()
        wait_until(lambda: count_rows(connection, "public.received") >= EVENTS, "not everything is delivered", 120)
        assert connection.execute("SELECT n FROM public.received ORDER BY id").fetchall() == [
            (n,) for n in range(EVENTS)
        ]
        assert count_rows(connection, "smile.e_exception") == 0


def publish_while_there_is_room(connection: Connection, first: int) -> list[int]:
    """What was committed."""
    committed = list[int]()
    for n in range(first, first + EVENTS):
        try:
            publish(connection, "E", {"n": n, "who": large_text()})
        except psycopg.errors.DiskFull:
            return committed
        committed.append(n)
    return committed


def test_publishers_are_refused_and_nothing_else_is_lost(disk: Disk, small_database: str, tmp_path: Path) -> None:
    with connect(small_database) as connection:
        create_type(connection, "E")
        space = sql.Identifier(disk.tablespace)
        connection.execute(sql.SQL("ALTER TABLE smile.in_queue SET TABLESPACE {}").format(space))
        committed = publish_while_there_is_room(connection, 0)
        assert 0 < len(committed) < EVENTS
        with serving(small_database, tmp_path) as broker:
            wait_until(lambda: len(logged(broker, "E")) == len(committed), "the full queue is not captured")
            disk.make_room()
            more = publish_while_there_is_room(connection, EVENTS)
            assert len(more) == EVENTS
            wait_until(lambda: len(logged(broker, "E")) == len(committed) + EVENTS, "events are missing")
            assert [e["n"] for e in logged(broker, "E")] == [*committed, *more]
