"""The positions of durable subscriptions, in an SQLite database. A position is on the disk before anybody is told so.

Writes of one moment are one transaction: many subscribers that acknowledge at once wait for one flush.
"""

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from smile.errors import SmileError, error

_APPLICATION: Final = int.from_bytes(b"SMIP", "big")
_FORMAT: Final = 2
_CREATE: Final = """
CREATE TABLE subscriptions (
  principal TEXT NOT NULL, name TEXT NOT NULL, relation TEXT NOT NULL, conditions TEXT NOT NULL, stream TEXT NOT NULL,
  history TEXT NOT NULL, ticks TEXT NOT NULL, resume TEXT NOT NULL, seen INTEGER NOT NULL, filter TEXT NOT NULL,
  crc INTEGER NOT NULL, PRIMARY KEY (principal, name)
)"""
_COLUMNS: Final = "principal, name, relation, conditions, stream, history, ticks, resume, seen, filter, crc"
_COLUMNS_1: Final = "principal, name, relation, conditions, stream, history, ticks, resume, seen, crc"
"""Those of format 1, which had no filters."""
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH", "SQLITE_CONSTRAINT")


class SubscriptionKey(NamedTuple):
    """Each principal has names of its own."""

    principal: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal}/{self.name}"


@dataclass(frozen=True)
class SubscriptionRecord:
    """What is known of a durable subscription. `conditions` is the JSON of its conditions, and `filter` the text of its
    filter, empty if it has none.

    If it receives events, `stream` is the stream in the log, `history` identifies the history that its ticks belong to,
    and `ticks` are acknowledged, by origin. Otherwise `stream` is empty, and `resume` is the token of the acknowledged
    progress, empty before the first. `seen_us` is when it was there last, in microseconds since 1970."""

    key: SubscriptionKey
    relation: str
    conditions: str
    stream: str
    history: str = ""
    ticks: Mapping[str, int] = field(default_factory=dict)
    resume: str = ""
    seen_us: int = 0
    filter: str = ""

    def _row(self) -> tuple[str | int, ...]:
        texts = (*self.key, self.relation, self.conditions, self.stream, self.history)
        row = (*texts, json.dumps(dict(self.ticks), sort_keys=True), self.resume, self.seen_us, self.filter)
        return (*row, _checksum(row))


def _checksum(row: Sequence[str | int]) -> int:
    return zlib.crc32(repr(tuple(row)).encode())


_Change = tuple[SubscriptionKey, SubscriptionRecord | None]


class PositionStore:
    """Thread-safe. With `flush`, a write is on the disk when its future is done. Without a thread, everything is
    written at once."""

    def __init__(self, path: Path, flush: bool, has_thread: bool = True) -> None:
        self._path, self._flush, self._has_thread = path, flush, has_thread
        self._changes: list[_Change] = []
        self._futures: list[Future[None]] = []
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._database: sqlite3.Connection | None = None

    def read(self) -> dict[SubscriptionKey, SubscriptionRecord]:
        """All records, as they are on the disk. Call it before anything is written."""
        if not self._path.exists():
            return {}
        with self._translate_errors():
            rows = self._open().execute(f"SELECT {_COLUMNS} FROM subscriptions").fetchall()
            records = {}
            for *row, crc in rows:
                principal, name, relation, conditions, stream, history, ticks, resume, seen_us, filter_text = row
                key = SubscriptionKey(principal, name)
                if crc != _checksum(row):
                    raise self._damage(f"the checksum of {key} is wrong")
                records[key] = SubscriptionRecord(
                    key, relation, conditions, stream, history, json.loads(ticks), resume, seen_us, filter_text
                )
        return records

    def write(self, record: SubscriptionRecord) -> "Future[None]":
        return self._submit((record.key, record))

    def delete(self, key: SubscriptionKey) -> "Future[None]":
        return self._submit((key, None))

    def close(self) -> None:
        """Returns when everything is written."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        if self._database is not None:
            self._database.close()
            self._database = None

    def _submit(self, change: _Change) -> "Future[None]":
        future: Future[None] = Future()
        with self._condition:
            if self._is_closed:
                future.set_exception(error("E098", "the broker is stopping"))
                return future
            if self._has_thread and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="positions", daemon=True)
                self._thread.start()
            self._changes.append(change)
            self._futures.append(future)
            self._condition.notify()
        if not self._has_thread:
            self._write_changes()
        return future

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._changes and not self._is_closed:
                    self._condition.wait()
            if not self._write_changes():
                return

    def _write_changes(self) -> bool:
        """Writes the changes that wait. Returns whether there were any."""
        with self._condition:
            changes, self._changes = self._changes, []
            futures, self._futures = self._futures, []
        if not changes:
            return False
        problem: SmileError | None = None
        try:
            # Of several changes of a record, only the last one matters.
            self._commit(dict(changes))
        except SmileError as refused:
            problem = refused
        for future in futures:
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)
        return True

    def _commit(self, changes: Mapping[SubscriptionKey, SubscriptionRecord | None]) -> None:
        with self._translate_errors():
            database = self._open()
            try:
                database.execute("BEGIN IMMEDIATE")
                for key, record in changes.items():
                    if record is None:
                        database.execute("DELETE FROM subscriptions WHERE principal = ? AND name = ?", key)
                    else:
                        marks = ", ".join("?" * 11)
                        database.execute(f"INSERT OR REPLACE INTO subscriptions VALUES ({marks})", record._row())
                database.execute("COMMIT")
            except BaseException:
                # Closing the connection rolls back. The next write opens a new one.
                database.close()
                self._database = None
                raise

    def _open(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        uri = f"file:{quote(str(self._path.absolute()))}?mode=rwc"
        database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {'FULL' if self._flush else 'NORMAL'}")
            (application,), (version,) = (
                database.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
            )
            if not application and not version:
                database.execute("BEGIN IMMEDIATE")
                database.execute(_CREATE)
                database.execute(f"PRAGMA application_id = {_APPLICATION}")
                database.execute(f"PRAGMA user_version = {_FORMAT}")
                database.execute("COMMIT")
            elif application != _APPLICATION:
                raise self._damage("it is something else than a database of positions")
            elif version == 1:
                self._add_filters(database)
            elif version != _FORMAT:
                raise error("E105", f"{self._path} was written by another version of SMILE")
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    def _add_filters(self, database: sqlite3.Connection) -> None:
        """Format 1 becomes format 2: all records get an empty filter. A wrong checksum stays wrong."""
        database.execute("BEGIN IMMEDIATE")
        rows = database.execute(f"SELECT {_COLUMNS_1} FROM subscriptions").fetchall()
        database.execute("DROP TABLE subscriptions")
        database.execute(_CREATE)
        for *row, crc in rows:
            new_crc = _checksum((*row, "")) ^ _checksum(row) ^ crc
            database.execute(f"INSERT INTO subscriptions VALUES ({', '.join('?' * 11)})", (*row, "", new_crc))
        database.execute(f"PRAGMA user_version = {_FORMAT}")
        database.execute("COMMIT")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError, ValueError) as problem:
            name = getattr(problem, "sqlite_errorname", "SQLITE_CORRUPT")
            if isinstance(problem, OSError) or not name.startswith(_DAMAGE):
                raise error("E105", f"{self._path} cannot be used: {problem}") from None
            raise self._damage(str(problem)) from None

    def _damage(self, reason: str) -> SmileError:
        hint = "Restore a backup, or delete it: durable subscriptions then begin anew, or with their tokens."
        return error("E105", f"{self._path} is damaged: {reason}", hint=hint)
