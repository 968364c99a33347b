"""What producers note beside their numbers: for each producer one text, which is replaced in the transaction of the
commit that has its events. A source that reads from elsewhere notes its position, which is then that of the logged
events.
"""

import sqlite3
from collections.abc import Mapping
from typing import Final

from smile.log.storage.database import checksum
from smile.log.storage.piece_log import damaged_error

_CREATE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS producer_notes (producer TEXT PRIMARY KEY, note TEXT NOT NULL, crc INTEGER NOT NULL)"
)
"""Logs without notes do not have it."""
_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'producer_notes'"


def write(db: sqlite3.Connection, notes: Mapping[str, str]) -> None:
    """Within the transaction of the commit."""
    db.execute(_CREATE_TABLE)
    rows = [(producer, note, checksum(producer, note)) for producer, note in notes.items()]
    db.executemany("INSERT OR REPLACE INTO producer_notes VALUES (?, ?, ?)", rows)


def read(db: sqlite3.Connection, path: str, producer: str) -> str:
    """Empty if the producer has noted nothing."""
    if db.execute(_EXISTS).fetchone() is None:
        return ""
    row = db.execute("SELECT note, crc FROM producer_notes WHERE producer = ?", (producer,)).fetchone()
    if row is None:
        return ""
    if row[1] != checksum(producer, row[0]):
        raise damaged_error(path, "the note of a producer")
    return str(row[0])
