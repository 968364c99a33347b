"""IMMEDIATE events that leave their transaction as logical messages: they are read from a replication slot.

A message is published under its place in the write-ahead log, which increases, and the slot is advanced afterwards. So
a message that is read again after a crash is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from smile.postgres.capture.queued_events import QueuedEvent
from smile.postgres.database import Connection

PUBLICATION: Final = "smile"
"""A publication without tables, which the output plugin needs. The schema has it."""
PREFIX: Final = b"smile"
MESSAGES_MAX: Final = 2_000
CHECK_SLOT_S: Final = 2.0
"""How often it is looked for a slot that did not exist."""
ADVANCE_S: Final = 5.0
"""How often the slot is advanced while there are no messages."""


@dataclass(frozen=True)
class LogicalMessage:
    lsn: int
    prefix: bytes
    content: bytes


def parse_message(data: bytes) -> LogicalMessage | None:
    """A message of the plugin pgoutput; None if it is of another kind. Its fields are the kind M, flags (1 byte), LSN
    (8 bytes), prefix up to a zero byte, length (4 bytes), content."""
    if data[:1] != b"M":
        return None
    lsn = int.from_bytes(data[2:10], "big")
    end = data.index(b"\0", 10)
    length = int.from_bytes(data[end + 1 : end + 5], "big")
    return LogicalMessage(lsn, data[10:end], data[end + 5 : end + 5 + length])


class MessageSlot:
    """The slot of the database, if it has one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name: str | None = None
        self._checked_at = self._advanced_at = -1e9
        self._end: str | None = None

    @property
    def exists(self) -> bool:
        return self._name is not None

    def read(self, now_s: float) -> Sequence[QueuedEvent]:
        """The next messages, as events whose numbers are their places."""
        if self._name is None and now_s - self._checked_at >= CHECK_SLOT_S:
            self._checked_at, self._name = now_s, self._find_slot()
        if self._name is None:
            return ()
        (flushed,) = self._connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or (None,)
        rows = self._connection.execute(
            "SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, "
            "'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
            (self._name, flushed, MESSAGES_MAX, PUBLICATION),
        ).fetchall()
        self._end = flushed if len(rows) < MESSAGES_MAX else rows[-1][0]
        messages = (parse_message(bytes(data)) for _, data in rows)
        events = [self._check(m) for m in messages if m is not None and m.prefix == PREFIX]
        found = [event for event in events if event is not None]
        if not found and now_s - self._advanced_at >= ADVANCE_S:
            # The server keeps the write-ahead log of everything else too, until the slot has passed it.
            self._advanced_at = now_s
            self.advance()
        return found

    def advance(self) -> None:
        """What was read is in the log of the broker."""
        if self._end is not None:
            self._connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (self._name, self._end))
            self._end = None

    def _find_slot(self) -> str | None:
        row = self._connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE slot_name = smile.slot_name() "
            "AND database = current_database() AND plugin = 'pgoutput'"
        ).fetchone()
        if row is None:
            return None
        return str(row[0])

    def _check(self, message: LogicalMessage) -> QueuedEvent | None:
        """The event of a message, unless its signature is wrong: everybody may emit messages."""
        text = message.content.decode(errors="replace")
        row = self._connection.execute(
            "SELECT (c ->> 'type_id')::integer, (c -> 'event')::text FROM smile.message_content(%s) AS c "
            "WHERE c IS NOT NULL",
            (text,),
        ).fetchone()
        return None if row is None else QueuedEvent(message.lsn, message.lsn, row[0], row[1], message.lsn)
