"""The commits of a durable log that no batch divides: a table of their numbers. Each is written in the transaction of
its commit."""

import sqlite3
from typing import Final

from smile.log.storage.database import checksum
from smile.log.storage.piece_log import damaged_error

CREATE_TABLE: Final = "CREATE TABLE IF NOT EXISTS whole_commits (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL)"
"""Logs without such commits do not have it."""
_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'whole_commits'"


def insert(db: sqlite3.Connection, commit: int) -> None:
    """Within the transaction of the commit."""
    db.execute(CREATE_TABLE)
    db.execute("INSERT INTO whole_commits VALUES (?, ?)", (commit, checksum(commit)))


def delete_up_to(db: sqlite3.Connection, commit: int) -> None:
    """Forgets the commits that were removed from the log, within a transaction."""
    if db.execute(_EXISTS).fetchone() is not None:
        db.execute("DELETE FROM whole_commits WHERE seq <= ?", (commit,))


def contains(db: sqlite3.Connection, path: str, commit: int) -> bool:
    if db.execute(_EXISTS).fetchone() is None:
        return False
    row = db.execute("SELECT crc FROM whole_commits WHERE seq = ?", (commit,)).fetchone()
    if row is not None and row[0] != checksum(commit):
        raise damaged_error(path, f"what is noted of commit {commit}")
    return row is not None
