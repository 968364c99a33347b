"""The memberships of streams with many origins, in a table of a durable log. A membership is written in the transaction
of the pieces that need it."""

import sqlite3
from collections.abc import Iterable
from typing import Final

from smile.log.membership import StreamMembership
from smile.log.storage.database import checksum
from smile.log.storage.piece_log import damaged_error

CREATE_TABLE: Final = """
CREATE TABLE IF NOT EXISTS memberships (
  stream TEXT PRIMARY KEY, version INTEGER NOT NULL, members TEXT NOT NULL, crc INTEGER NOT NULL
)
"""
"""Logs without such streams do not have it."""


def write(db: sqlite3.Connection, memberships: Iterable[StreamMembership]) -> None:
    """Replaces older versions, within a transaction."""
    for membership in memberships:
        row = (membership.stream, membership.version, membership.encode().decode())
        update = "UPDATE SET version = excluded.version, members = excluded.members, crc = excluded.crc"
        db.execute(
            f"INSERT INTO memberships VALUES (?, ?, ?, ?) ON CONFLICT (stream) DO {update} "
            "WHERE excluded.version > version",
            (*row, checksum(*row)),
        )


def read(db: sqlite3.Connection, path: str, stream: str) -> StreamMembership | None:
    """None if it is not known who the origins of the stream are."""
    query = "SELECT version, members, crc FROM memberships WHERE stream = ?"
    for version, text, crc in db.execute(query, (stream,)).fetchall():
        if crc != checksum(stream, version, text):
            raise damaged_error(path, f"the membership of {stream}")
        return StreamMembership.decode(stream, version, text.encode())
    return None
