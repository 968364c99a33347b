"""The lives of table streams. CREATE STREAM begins a life, with the rows of the table as its first events; DROP STREAM,
or the end of the table, ends it. The stream of the log is the same in all lives of the same name.

So two things are done when a life begins, each once, whatever crashes. First the rows that an earlier life has left are
removed: until then `life_tick` is NULL, and nothing of the new life is published. Then the events of the transaction
that created the stream are published: until then `life_tick` is END. From then on it is the last tick that the log had
at that moment: filters may consult the table for later events. Those of earlier ones are evaluated in the database.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from smile.errors import SmileError
from smile.horizons import END
from smile.postgres.capture.event_publisher import EventPublisher
from smile.postgres.capture.queued_events import CaptureBatch
from smile.postgres.catalogue import EventType
from smile.postgres.database import Connection

XID_MAX: Final = 2**63 - 1

_PLACES: Final = """
SELECT pg_visible_in_snapshot(%(xid)s::text::xid8, %(to)s::pg_snapshot),
    pg_visible_in_snapshot(%(xid)s::text::xid8, %(from)s::pg_snapshot),
    (SELECT min(q.xid::text::bigint) FROM smile.in_queue AS q
        WHERE q.type_id = %(type)s AND smile.is_between(q.xid, %(from)s::pg_snapshot, %(to)s::pg_snapshot))
"""
_BEGIN: Final = """
UPDATE smile.event_type AS t SET life_tick = %s WHERE t.id = %s AND NOT EXISTS (
    SELECT FROM smile.exception_queue AS x WHERE x.type_id = t.id AND x.subscription_id = 0 AND x.resolution IS NULL)
"""

_log = logging.getLogger("smile.postgres")


class TableContents(Protocol):
    """What the log has of tables."""

    def find_last_tick(self, streams: Collection[str], /) -> int: ...

    def emptying_changes(self, stream: str, /) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class StartingLife:
    """A life that begins in a batch. `first_xid` is the first transaction with an event of it; the first rows are there
    after `last_xid`."""

    type_id: int
    stream: str
    first_xid: int
    last_xid: int
    is_empty: bool
    """Whether the rows of earlier lives are removed."""


def find_starting_lives(
    connection: Connection, batch: CaptureBatch, types: Iterable[EventType], streams: Mapping[int, str | SmileError]
) -> list[StartingLife]:
    lives = list[StartingLife]()
    for type_ in types:
        stream = streams.get(type_.id)
        if not (type_.is_table and isinstance(stream, str) and type_.life_tick in (None, END)):
            continue
        places = {"xid": str(type_.xid), "from": batch.snapshot_from, "to": batch.snapshot_to, "type": type_.id}
        is_in_batch, is_older, event_xid = connection.execute(_PLACES, places).fetchone() or (False, False, None)
        if is_in_batch:
            # An event of an older one was refused, and comes now.
            last_xid = XID_MAX if is_older else type_.xid
            first_xid = min(type_.xid, XID_MAX if event_xid is None else event_xid)
            lives.append(StartingLife(type_.id, stream, first_xid, last_xid, type_.life_tick == END))
    return lives


def find_ended_lives(types: Iterable[EventType], streams: Mapping[int, str | SmileError]) -> frozenset[int]:
    """The types whose events belong to an earlier life of a stream in which another one has begun."""
    newest = {stream: t.id for t in types if t.life_tick is not None and isinstance(stream := streams.get(t.id), str)}
    return frozenset(t.id for t in types if t.is_table and t.id < newest.get(str(streams.get(t.id)), 0))


def remove_rows(connection: Connection, publisher: EventPublisher, contents: TableContents, life: StartingLife) -> None:
    """Removes the rows of earlier lives from the stream. After a crash it is repeated with what is left."""
    try:
        changes = contents.emptying_changes(life.stream)
        publisher.publish_changes(life.stream, changes)
    except SmileError as problem:
        # If what the table had is not known (E146), no filter is evaluated with it either.
        _log.error("rows of a table are not removed", extra={"stream": life.stream, "what": problem.message})
    connection.execute("UPDATE smile.event_type SET life_tick = %s WHERE id = %s", (END, life.type_id))


def begin_life(connection: Connection, contents: TableContents, life: StartingLife, streams: Sequence[str]) -> None:
    """The stream has the contents of its table now, unless some of its events were refused: then it is tried again with
    the next batch."""
    connection.execute(_BEGIN, (contents.find_last_tick(streams), life.type_id))
