"""The used values of UNIQUE columns, in a table with an index.

Values are written in the same transaction as their events. They stay used when the events are truncated from the log:
views rely on it that no later event has them.
"""

import sqlite3
from collections.abc import Mapping, Sequence

import pyarrow as pa

from smile.algebra import mmpl
from smile.decoding.unique_keys import unique_keys
from smile.errors import SmileError, error
from smile.log.storage.pieces import StreamPiece

CREATE_TABLE = """CREATE TABLE IF NOT EXISTS unique_values (
  stream TEXT NOT NULL, columns TEXT NOT NULL, key BLOB NOT NULL, tick INTEGER NOT NULL,
  PRIMARY KEY (stream, columns, key)
) WITHOUT ROWID"""
_LOOKUP_MAX = 500
"""Keys of one query: SQLite limits the number of its parameters."""

UsedKeys = Mapping[bytes, int]
"""Used keys, with the ticks of their events."""


def used_keys(db: sqlite3.Connection, stream: str, columns: Sequence[str], keys: Sequence[bytes]) -> UsedKeys:
    """Those of the keys that are used."""
    used: dict[bytes, int] = {}
    for start in range(0, len(keys), _LOOKUP_MAX):
        part = keys[start : start + _LOOKUP_MAX]
        marks = ", ".join("?" * len(part))
        query = f"SELECT key, tick FROM unique_values WHERE stream = ? AND columns = ? AND key IN ({marks})"
        used.update(db.execute(query, (stream, _column_list(columns), *part)).fetchall())
    return used


def insert_keys(db: sqlite3.Connection, stream: mmpl.StreamDef, piece: StreamPiece) -> None:
    """Inserts the values of a piece's events, within the transaction that appends the piece."""
    if piece.events is None or not stream.unique:
        return
    ticks = piece.events.column(0).to_pylist()
    for columns, keys in unique_keys(stream, piece.events).items():
        rows = [(stream.name, _column_list(columns), k, t) for k, t in zip(keys, ticks, strict=True) if k is not None]
        try:
            db.executemany("INSERT INTO unique_values VALUES (?, ?, ?, ?)", rows)
        except sqlite3.IntegrityError:
            raise used_error(stream.name, columns) from None


class UsedValues:
    """The used values of recorded events. They are in a temporary file, so that memory stays bounded."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute(CREATE_TABLE)
        self._db.execute("BEGIN")

    def add(self, stream: mmpl.StreamDef, events: pa.RecordBatch) -> None:
        """Adds the values of events. Raises an error at the first event with a used value."""
        keys_by_columns = unique_keys(stream, events)
        for row, tick in enumerate(events.column(0).to_pylist()):
            row_keys = [(columns, key) for columns, keys in keys_by_columns.items() if (key := keys[row]) is not None]
            for columns, key in row_keys:
                for used_tick in used_keys(self._db, stream.name, columns, [key]).values():
                    raise used_error(stream.name, columns, used_tick)
            rows = [(stream.name, _column_list(columns), key, tick) for columns, key in row_keys]
            self._db.executemany("INSERT INTO unique_values VALUES (?, ?, ?, ?)", rows)


def used_error(stream: str, columns: Sequence[str], tick: int | None = None, event: str = "") -> SmileError:
    names = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
    where = "" if tick is None else f": the event at tick {tick} has it"
    return error(
        "E110",
        f"{event}{stream} has this {names} already{where}",
        hint=f"{names} is declared UNIQUE. Send an event again with the same sequence number, and it is logged once.",
    )


def _column_list(columns: Sequence[str]) -> str:
    return "\0".join(columns)
