"""A broker with the service of a database, in this process."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from smile.broker.broker import Broker
from smile.log.position import BatchLimit
from smile.postgres.service import PostgresService
from smile.settings import Settings
from smile.source import Source
from tests.processes import wait_until

PROGRAM = "CREATE STREAM Own (t: time -> a: int);\n"

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def serving(url: str, data: Path, program: str = PROGRAM, **settings: Any) -> Iterator[Broker]:
    """A broker that serves the database. Its directory is kept for the next one."""
    source = None if (data / "broker.json").exists() else Source("p.smile", program)
    chosen = {"engine": "local", "flush": False, "silence_ms": 20, "idle_ms": 100, **settings}
    broker = Broker.open(data, source, Settings(**chosen))
    service = PostgresService(broker, url)
    broker.attach(service)
    service.start()
    try:
        yield broker
    finally:
        broker.stop()


def connect(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True)


def create_type(connection: Connection, name: str, columns: str = "n bigint, who text") -> None:
    connection.execute("SELECT smile.create_event_type(%s, %s)", (name, columns))
    connection.execute("SELECT smile.advertise(%s)", (name,))


def publish(connection: Connection, name: str, event: Any, *modes: str) -> None:
    connection.execute(
        sql.SQL("SELECT smile.publish(%s, %s::json{})").format(sql.SQL("".join(", %s" for _ in modes))),
        (name, json.dumps(event), *modes),
    )


def wait_for_value(find: Callable[[], T | None], what: str, seconds: float = 60) -> T:
    """Polls until there is a value that is true, and returns it."""
    found = wait_until(find, what, seconds)
    assert found is not None
    return found


def logged(broker: Broker, stream: str) -> list[dict[str, Any]]:
    """All events of a stream in the order of their ticks."""
    log = broker.log
    if stream not in log.schemas:
        return []
    rows, position = list[dict[str, Any]](), log.start()
    while (end := log.after(position, BatchLimit(commits=100))) != position:
        rows += log.read(stream, position, end).to_pylist()
        position = end
    return rows


def wait_for_events(broker: Broker, stream: str, count: int) -> list[dict[str, Any]]:
    """The events of a stream, once there are so many."""

    def events() -> list[dict[str, Any]] | None:
        found = logged(broker, stream)
        return found if len(found) >= count else None

    return wait_for_value(events, f"{stream} does not have {count} events: {len(logged(broker, stream))}")


def count_rows(connection: Connection, table: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.SQL(table))).fetchone()
    assert row is not None
    return int(row[0])
