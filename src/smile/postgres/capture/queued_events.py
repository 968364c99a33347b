"""Events in the queues of the database, in the order in which they are published: transactions are never divided."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from smile.postgres.database import Connection

PAGE_EVENTS = 5_000
"""Events that are read from a queue at once."""


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """`event` is JSON. `number` counts the events of all batches; None if an event needs no number."""

    xid: int
    seq: int
    type_id: int
    event: str
    number: int | None = None


@dataclass(frozen=True)
class CaptureBatch:
    """Everything that is visible in one snapshot and not in the one before."""

    number: int
    snapshot_from: str
    snapshot_to: str
    first_number: int


def begin_batch(connection: Connection) -> CaptureBatch:
    """The batch that was begun and not finished, or a new one. It is committed when this returns."""
    row = connection.execute(
        "SELECT batch, snapshot_from::text, snapshot_to::text, first_number FROM smile.begin_capture_batch()"
    ).fetchone()
    assert row is not None
    return CaptureBatch(*row)


def finish_batch(connection: Connection, batch: CaptureBatch, events: int) -> None:
    connection.execute("SELECT smile.finish_capture_batch(%s, %s)", (batch.number, events))


def read_batch(connection: Connection, batch: CaptureBatch) -> Iterator[QueuedEvent]:
    """The events of a batch in their order, numbered. Between two pages the connection can be used."""
    number, after = batch.first_number, (0, 0)
    while True:
        page = _read_page(connection, batch, after)
        for xid, seq, type_id, event in page:
            yield QueuedEvent(xid, seq, type_id, event, number)
            number += 1
        if len(page) < PAGE_EVENTS:
            return
        after = page[-1][0], page[-1][1]


def _read_page(connection: Connection, batch: CaptureBatch, after: tuple[int, int]) -> list[tuple[int, int, int, str]]:
    query = sql.SQL(
        "COPY (SELECT q.xid::text::bigint, q.seq, q.type_id, q.event::text FROM smile.in_queue AS q "
        "WHERE q.xid >= pg_snapshot_xmin({before}::pg_snapshot) AND q.xid < pg_snapshot_xmax({to}::pg_snapshot) "
        "AND (q.xid, q.seq) > ({xid}::xid8, {seq}) "
        "AND pg_visible_in_snapshot(q.xid, {to}::pg_snapshot) "
        "AND NOT pg_visible_in_snapshot(q.xid, {before}::pg_snapshot) "
        "ORDER BY q.xid, q.seq LIMIT {count}) TO STDOUT (FORMAT BINARY)"
    ).format(
        before=sql.Literal(batch.snapshot_from),
        to=sql.Literal(batch.snapshot_to),
        xid=sql.Literal(str(after[0])),
        seq=sql.Literal(after[1]),
        count=sql.Literal(PAGE_EVENTS),
    )
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(["int8", "int8", "int4", "text"])
        return list(copy.rows())


def take_unlogged(connection: Connection) -> list[QueuedEvent]:
    """Takes NON-GUARANTEED events out of their queue. That is committed when this returns: from then on they are lost
    unless they are published."""
    rows = connection.execute(
        "SELECT xid::text::bigint, seq, type_id, event::text FROM smile.take_unlogged_events(%s)", (PAGE_EVENTS,)
    )
    return [QueuedEvent(*row) for row in rows]


def group_transactions(events: Iterable[QueuedEvent]) -> Iterator[Sequence[QueuedEvent]]:
    """The events of each transaction."""
    group: list[QueuedEvent] = []
    for event in events:
        if group and group[-1].xid != event.xid:
            yield group
            group = []
        group.append(event)
    if group:
        yield group
