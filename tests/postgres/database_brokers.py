"""Brokers that serve a database each, in this process, on real sockets: databases can link them with each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smile.postgres.service import PostgresService
from tests.brokers import InProcessBroker
from tests.postgres.services import PROGRAM, Connection, wait_for_value
from tests.processes import wait_until

NOTE = """
CREATE TABLE noted (id bigint GENERATED ALWAYS AS IDENTITY, subscription text, n bigint);
CREATE FUNCTION note(text, bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO noted (subscription, n) VALUES ($1, $2)';
"""


@contextmanager
def database_broker(
    folder: Path, name: str, url: str, program: str = PROGRAM, **settings: Any
) -> Iterator[InProcessBroker]:
    """A broker with this name that serves the database. Its directory is kept for the next one."""
    has_started = (folder / "smile-data" / "broker.json").exists()
    chosen = {"silence_ms": 10, "idle_ms": 50, **settings}
    with InProcessBroker(folder, None if has_started else program, broker_name=name, **chosen) as broker:
        service = PostgresService(broker.broker, url)
        broker.broker.attach(service)
        service.start()
        yield broker


def subscribe(connection: Connection, name: str, scope: str, condition: str | None = None, kind: str = "E") -> None:
    """A subscription that notes the column n of each event."""
    connection.execute(
        "SELECT smile.create_subscription(%s, %s, %s, %s, 'public.note', %s)",
        (name, kind, scope, condition, f"'{name}', n"),
    )


def noted(connection: Connection, subscription: str) -> list[int]:
    """What a subscription has received, in this order."""
    rows = connection.execute("SELECT n FROM public.noted WHERE subscription = %s ORDER BY id", (subscription,))
    return [n for (n,) in rows]


def wait_for_noted(connection: Connection, subscription: str, expected: list[int]) -> None:
    """Until it has received these, each once, in any order."""

    def has_all() -> bool:
        return len(noted(connection, subscription)) >= len(expected)

    try:
        wait_until(has_all, "events are missing")
    finally:
        assert sorted(noted(connection, subscription)) == sorted(expected)


def wait_until_advertised(broker: InProcessBroker, stream: str, host: str, is_expected: bool = True) -> None:
    def is_as_expected() -> bool:
        known = broker.broker.routing.advertised_by(stream)
        return any(entry.host == host and not entry.is_withdrawn for entry in known) == is_expected

    wait_for_value(is_as_expected, f"{stream} of {host} is not advertised, or still is")
