"""The dead letters of connectors, in an SQLite database: events that a stream has refused, and rows that a receiver has
refused. Each stays until somebody retries or drops it. What a webhook has delivered is beside them.

A dead letter is on the disk before its source or its view goes on.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from smile.broker.dead_letters import DeadLetter
from smile.errors import Diagnostic, error

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS dead_letters (
  id INTEGER PRIMARY KEY AUTOINCREMENT, connector TEXT NOT NULL, subject TEXT NOT NULL, format TEXT NOT NULL,
  body TEXT NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL, at INTEGER NOT NULL, UNIQUE (connector, subject)
);
CREATE TABLE IF NOT EXISTS delivered (
  connector TEXT NOT NULL, row TEXT NOT NULL, content BLOB NOT NULL, message TEXT NOT NULL,
  PRIMARY KEY (connector, row)
) WITHOUT ROWID;
"""
_COLUMNS: Final = "id, connector, subject, format, CAST(body AS BLOB), code, message, at"


def _stored(body: str | bytes) -> str | bytes:
    """As text if it is one, for whoever reads the database."""
    try:
        return body if isinstance(body, str) else body.decode()
    except UnicodeDecodeError:
        return body


@dataclass(frozen=True)
class RowDelivery:
    """What was delivered last of a row: the digest of its content, and the identifier of the message."""

    content: bytes
    message: str


class DeadLetters:
    """Thread-safe. `clock` returns microseconds since 1970."""

    def __init__(self, path: Path, flush: bool, clock: Callable[[], int]) -> None:
        self._path, self._clock, self._lock = path, clock, Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.executescript(
            f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {'FULL' if flush else 'OFF'}; {_CREATE}"
        )
        self._counts: dict[str, int] = {}
        """Dead letters of each connector: the status has them also if the file cannot be used."""
        with self._transaction() as db:
            self._count_again(db)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    # ── dead letters ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self,
        connector: str,
        subject: str,
        body: str | bytes,
        problem: Diagnostic,
        format_: str = "json",
        row_delivery: RowDelivery | None = None,
    ) -> None:
        """A later letter of the same subject replaces the earlier one. With `row_delivery`, the subject is a row, and
        that message is not sent again."""
        row = (connector, subject, format_, _stored(body), problem.code, problem.message, self._clock())
        names = ("format", "body", "code", "message", "at")
        update = ", ".join(f"{name} = excluded.{name}" for name in names)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO dead_letters (connector, subject, format, body, code, message, at) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (connector, subject) DO UPDATE SET {update}",
                row,
            )
            if row_delivery is not None:
                delivered = (connector, subject, row_delivery.content, row_delivery.message)
                db.execute("INSERT OR REPLACE INTO delivered VALUES (?, ?, ?, ?)", delivered)
            self._count_again(db)

    def find(self, id_: int) -> DeadLetter:
        with self._transaction() as db:
            row = db.execute(f"SELECT {_COLUMNS} FROM dead_letters WHERE id = ?", (id_,)).fetchone()
        if row is None:
            raise error("E208", f"there is no dead letter {id_}", hint="`smile dead-letters` lists them.")
        return DeadLetter(*row)

    def list(self, connector: str | None = None, after: int = 0, letters_max: int = 1_000) -> Sequence[DeadLetter]:
        """The oldest first, after the one with an id."""
        with self._transaction() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM dead_letters WHERE id > ?1 AND (?2 IS NULL OR connector = ?2) "
                "ORDER BY id LIMIT ?3",
                (after, connector, letters_max),
            ).fetchall()
        return [DeadLetter(*row) for row in rows]

    def count(self, connector: str) -> int:
        return self._counts.get(connector, 0)

    def _count_again(self, db: sqlite3.Connection) -> None:
        self._counts = dict(db.execute("SELECT connector, count(*) FROM dead_letters GROUP BY connector"))

    def _delete(self, db: sqlite3.Connection, condition: str, *values: int | str) -> None:
        if db.execute(f"DELETE FROM dead_letters WHERE {condition}", values).rowcount:
            self._count_again(db)

    def drop(self, letter: DeadLetter, is_retried: bool = False) -> None:
        """If it `is_retried` and a row, the row counts as not delivered from now on."""
        with self._transaction() as db:
            self._delete(db, "id = ?", letter.id)
            if is_retried:
                update = "UPDATE delivered SET content = ? WHERE connector = ? AND row = ?"
                db.execute(update, (b"", letter.connector, letter.subject))

    # ── what was delivered ──────────────────────────────────────────────────────────────────────────────────────────

    def delivered(self, connector: str, row: str) -> RowDelivery | None:
        """What was delivered last of a row; None if nothing was."""
        query = "SELECT content, message FROM delivered WHERE connector = ? AND row = ?"
        with self._transaction() as db:
            found = db.execute(query, (connector, row)).fetchone()
        return None if found is None else RowDelivery(bytes(found[0]), str(found[1]))

    def record_delivery(self, connector: str, row: str, delivery: RowDelivery) -> None:
        """Also forgets a dead letter of the row: newer knowledge of it was delivered."""
        values = (connector, row, delivery.content, delivery.message)
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO delivered VALUES (?, ?, ?, ?)", values)
            self._delete(db, "connector = ? AND subject = ?", connector, row)

    def forget_row(self, connector: str, row: str) -> None:
        """The row is deleted for good."""
        with self._transaction() as db:
            db.execute("DELETE FROM delivered WHERE connector = ? AND row = ?", (connector, row))
            self._delete(db, "connector = ? AND subject = ?", connector, row)

    def delivered_rows(self, connector: str) -> set[str]:
        with self._transaction() as db:
            return {row for (row,) in db.execute("SELECT row FROM delivered WHERE connector = ?", (connector,))}

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                self._database.execute("BEGIN")
                try:
                    yield self._database
                    self._database.execute("COMMIT")
                except BaseException:
                    self._database.execute("ROLLBACK")
                    raise
        except sqlite3.Error as problem:
            raise error("E209", f"{self._path} cannot be used: {problem}") from None
