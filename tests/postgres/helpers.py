"""Shared by the tests of the schema."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest

from tests.postgres.server import Connection

Row = tuple[Any, ...]

QUOTES = "symbol text NOT NULL, price numeric(10, 2)"


@contextmanager
def refused(code: str, text: str = "") -> Iterator[None]:
    """The statement fails with this error of SMILE, or with this SQLSTATE, and a message that has the text."""
    with pytest.raises(psycopg.Error) as caught:
        yield
    state = f"SM{code[1:]}" if code.startswith("E") else code
    message = caught.value.diag.message_primary or ""
    assert (caught.value.sqlstate, text in message) == (state, True), message


def rows(connection: Connection, statement: LiteralString, *values: Any) -> list[Row]:
    return connection.execute(statement, values).fetchall()


def value(connection: Connection, statement: LiteralString, *values: Any) -> Any:
    """The only value of the only row."""
    ((found,),) = rows(connection, statement, *values)
    return found


def create_quotes(connection: Connection, columns: str = QUOTES) -> None:
    """The event type Quotes, advertised."""
    connection.execute("SELECT smile.create_event_type('Quotes', %s)", [columns])
    connection.execute("SELECT smile.advertise('Quotes')")


def capture(connection: Connection) -> list[Row]:
    """The numbers and events of the next batch, which is finished."""
    batch = value(connection, "SELECT batch FROM smile.begin_capture_batch()")
    events = rows(connection, "SELECT number, event FROM smile.captured_events(%s)", batch)
    connection.execute("SELECT smile.finish_capture_batch(%s, %s)", [batch, len(events)])
    return events


def delivery(subscription: int, tick: int, **event: Any) -> dict[str, Any]:
    return {"subscription": subscription, "origin": "o", "tick": str(tick), "sequence": tick, "event": event}


def deliver(connection: Connection, deliveries: Sequence[dict[str, Any]]) -> None:
    numbers = list(range(1, len(deliveries) + 1))
    subscriptions = [d["subscription"] for d in deliveries]
    connection.execute(
        "CALL smile.deliver(%s, %s::integer[], %s::integer[])", [json.dumps(deliveries), numbers, subscriptions]
    )
