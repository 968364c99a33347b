"""Producers' numbers: each number of a producer identifies at most one event, so that repeated events are detected.

A record maps a range of numbers to the ticks of their events. It is written in the same commit as the events, or later
if the events were already known.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import takewhile
from typing import NamedTuple

from msgspec import json

from smile.log.storage.database import checksum
from smile.log.storage.piece_log import damaged_error

_RECORD_COLUMNS = "producer, first, last, stream, origin, lo, hi, crc"
_INSERT_RECORDS = f"INSERT INTO producers SELECT {', '.join(f'value->>{n}' for n in range(9))} FROM json_each(?)"
"""One statement for all records of a commit, which may be hundreds: Python may switch threads between statements."""


class ProducerRecord(NamedTuple):
    """`producer` identifies a producer of a principal. Its events with the numbers `first` to `last` are the events of
    the stream and origin with the ticks `lo` to `hi`. No other events of that origin lie between them."""

    producer: str
    first: int
    last: int
    stream: str
    origin: str
    lo: int
    hi: int


def insert_records(db: sqlite3.Connection, records: Sequence[ProducerRecord]) -> int:
    """Inserts records within a transaction. Returns the id of the last one. The last record is never deleted, so no id
    is used twice."""
    ((last_record,),) = db.execute("SELECT coalesce(max(id), 0) FROM producers")
    if records:
        rows = [(last_record + n, *record, checksum(*record)) for n, record in enumerate(records, 1)]
        db.execute(_INSERT_RECORDS, (json.encode(rows).decode(),))
    return int(last_record) + len(records)


def last_number(db: sqlite3.Connection, path: str, producer: str) -> int | None:
    """The greatest number that the producer has used; None if the log does not know the producer."""
    query = f"SELECT {_RECORD_COLUMNS} FROM producers WHERE producer = ? ORDER BY last DESC LIMIT 1"
    records = [_parse_record(path, row) for row in db.execute(query, (producer,))]
    return records[0].last if records else None


def records_between(db: sqlite3.Connection, path: str, producer: str, first: int, last: int) -> list[ProducerRecord]:
    """The records that have any of the numbers `first` to `last`, in order."""
    query = f"SELECT {_RECORD_COLUMNS} FROM producers WHERE producer = ? AND last >= ? ORDER BY last"
    with closing(db.execute(query, (producer, first))) as rows:
        return list(takewhile(lambda record: record.first <= last, (_parse_record(path, row) for row in rows)))


def delete_records(db: sqlite3.Connection, last_record: int) -> None:
    """Deletes the records up to this one, within a transaction, except for the last record of each producer."""
    older = "SELECT 1 FROM producers AS later WHERE later.producer = producers.producer AND later.last > producers.last"
    db.execute(f"DELETE FROM producers WHERE id <= ? AND EXISTS ({older})", (last_record,))


def _parse_record(path: str, row: tuple[int | str, ...]) -> ProducerRecord:
    *fields, crc = row
    if crc != checksum(*fields):
        raise damaged_error(path, "the numbers of a producer")
    return ProducerRecord(*fields)  # type: ignore[arg-type]  # the checksum verifies the types of the columns
