"""Numbers of producers: each number of a producer stands for at most one event, and the log knows which.

A record says what became of a row of numbers. It is written with the events themselves, in the same commit, or later
if it is of events that were known.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import takewhile
from typing import NamedTuple

from msgspec import json

from smile.log.database import checksum
from smile.log.piece_log import damaged_error

_RECORD_COLUMNS = "producer, first, last, stream, origin, lo, hi, crc"
_INSERT_RECORDS = f"INSERT INTO producers SELECT {', '.join(f'value->>{n}' for n in range(9))} FROM json_each(?)"
"""One statement for all of a commit's, which may be hundreds: between two, other threads may take their turn."""


class ProducerRecord(NamedTuple):
    """The events of a producer from one number to another are those of an origin of a stream from one tick to another.
    No other events of that origin lie between them."""

    producer: str
    first: int
    last: int
    stream: str
    origin: str
    lo: int
    hi: int


def insert_records(db: sqlite3.Connection, records: Sequence[ProducerRecord]) -> int:
    """Within a transaction; gives the number of the last. The last that there is is never forgotten, so that no number
    is given twice."""
    ((last_record,),) = db.execute("SELECT coalesce(max(id), 0) FROM producers")
    if records:
        rows = [(last_record + n, *record, checksum(*record)) for n, record in enumerate(records, 1)]
        db.execute(_INSERT_RECORDS, (json.encode(rows).decode(),))
    return int(last_record) + len(records)


def last_number(db: sqlite3.Connection, path: str, producer: str) -> int | None:
    """The greatest that the producer has used; None if it is not known."""
    query = f"SELECT {_RECORD_COLUMNS} FROM producers WHERE producer = ? ORDER BY last DESC LIMIT 1"
    records = [_parse_record(path, row) for row in db.execute(query, (producer,))]
    return records[0].last if records else None


def records_between(db: sqlite3.Connection, path: str, producer: str, first: int, last: int) -> list[ProducerRecord]:
    """The records that have any of these numbers, in order."""
    query = f"SELECT {_RECORD_COLUMNS} FROM producers WHERE producer = ? AND last >= ? ORDER BY last"
    with closing(db.execute(query, (producer, first))) as rows:
        return list(takewhile(lambda record: record.first <= last, (_parse_record(path, row) for row in rows)))


def delete_records(db: sqlite3.Connection, last_record: int) -> None:
    """Within a transaction: the records up to that one, but for the last of each producer."""
    older = "SELECT 1 FROM producers AS later WHERE later.producer = producers.producer AND later.last > producers.last"
    db.execute(f"DELETE FROM producers WHERE id <= ? AND EXISTS ({older})", (last_record,))


def _parse_record(path: str, row: tuple[int | str, ...]) -> ProducerRecord:
    *fields, crc = row
    if crc != checksum(*fields):
        raise damaged_error(path, "the numbers of a producer")
    return ProducerRecord(*fields)  # type: ignore[arg-type]  # as the table's columns are, which the checksum has seen
