"""The SQLite database of a durable log. Every row has a checksum of its columns, and a piece also one of its events.

Errors of SQLite are translated to errors of the catalogue. After such an error, nothing uncommitted is in the log.
"""

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.algebra.stream_extension import is_extension
from smile.errors import SmileError, error
from smile.log.storage import unique_values
from smile.log.storage.piece_log import damaged_error
from smile.source import Source

FORMAT: Final = 3
HEADER: Final = b"SQLite format 3\0"
BUSY_S: Final = 5.0
"""A writer needs milliseconds. One that locks the log for longer than this is another broker, or hangs."""

_APPLICATION: Final = int.from_bytes(b"SMIL", "big")
_CREATE_TABLES: Final = """
CREATE TABLE streams (name TEXT PRIMARY KEY, definition TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE origins (
  stream TEXT NOT NULL, origin TEXT NOT NULL, seq INTEGER NOT NULL, lo INTEGER NOT NULL, cut INTEGER NOT NULL,
  crc INTEGER NOT NULL, PRIMARY KEY (stream, origin)
);
CREATE TABLE commits (
  seq INTEGER PRIMARY KEY, last_piece INTEGER NOT NULL, last_record INTEGER NOT NULL, rows INTEGER NOT NULL,
  bytes INTEGER NOT NULL, at INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE pieces (
  id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, stream TEXT NOT NULL, origin TEXT NOT NULL, lo INTEGER NOT NULL,
  hi INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, events_crc INTEGER, crc INTEGER NOT NULL,
  events BLOB
);
CREATE UNIQUE INDEX ticks ON pieces (stream, origin, hi);
CREATE TABLE producers (
  id INTEGER PRIMARY KEY, producer TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, stream TEXT NOT NULL,
  origin TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX numbers ON producers (producer, last);
"""
"""The first row of `commits` is the commit that the log is truncated to, 0 in a new log. The pieces of this commit and
of all earlier commits are removed. `origins.cut` is the tick up to which an origin's pieces are removed."""

_ENDS_QUERY: Final = """
SELECT c.seq, c.last_piece, p.seq, p.id, (SELECT min(seq) FROM commits)
FROM (SELECT seq, last_piece FROM commits ORDER BY seq DESC LIMIT 1) AS c
LEFT JOIN (SELECT seq, id FROM pieces ORDER BY id DESC LIMIT 1) AS p
"""
"""One statement, because another process could commit between two."""

_STRAY_QUERY: Final = """
SELECT stream FROM (
  SELECT stream, origin, max(id) AS id, hi FROM (SELECT id, stream, origin, hi FROM pieces ORDER BY id DESC LIMIT 100)
  GROUP BY stream, origin
) AS last WHERE (id, hi) IS NOT (
  SELECT id, hi FROM pieces WHERE stream = last.stream AND origin = last.origin ORDER BY hi DESC LIMIT 1
)
"""
"""Streams whose newest piece is not the last in the index, so that a lookup would miss published events."""

_SQLITE_PROBLEMS: Final = (sqlite3.Error, OSError, UnicodeError)
"""What SQLite raises. Damaged text may not even be valid Unicode."""

_ENVIRONMENT_PROBLEMS: Final = (
    "SQLITE_BUSY",
    "SQLITE_FULL",
    "SQLITE_READONLY",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_PERM",
    "SQLITE_TOOBIG",
    "SQLITE_NOMEM",
)
"""Errors that do not mean that the file is damaged."""


def checksum(*values: int | str | None) -> int:
    return zlib.crc32(repr(values).encode())


def definition_text(stream: mmpl.StreamDef) -> str:
    return print_program(mmpl.Program((stream,), (), ()))


def open_for_reading(path: str, streams: Sequence[mmpl.StreamDef], may_be_empty: bool = False) -> sqlite3.Connection:
    """Opens an existing log, and verifies it. An empty database is refused unless `may_be_empty` is given."""
    with translate_read_errors(path):
        if not Path(path).is_file():
            raise error("E070", f"there is no log at {path}")
        _roll_back(path)
        db = _connect(path, "ro")
        try:
            if _is_log(db, path):
                _verify(db, path, streams)
            elif not may_be_empty:
                raise not_a_log_error(path)
        except BaseException:
            db.close()
            raise
        return db


def _roll_back(path: str) -> None:
    """Undoes what a process has left that was killed while it created the log. Reading alone cannot do that."""
    if Path(f"{path}-journal").exists():
        with closing(_connect(path, "rw")) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()


def open_for_writing(path: str, streams: Sequence[mmpl.StreamDef], flush: bool) -> sqlite3.Connection:
    """Opens a log, or creates it if there is none."""
    with translate_write_errors(path):
        db = _connect(path, "rwc")
        try:
            is_log = _is_log(db, path)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
            # Pages of removed rows are reused, so overwriting them with zeros would be wasted.
            db.execute("PRAGMA secure_delete = OFF")
            if not is_log:
                _create(db, path, streams)
            elif flush:
                _flush_last_commits(path)
            if any(stream.unique for stream in streams):
                db.execute(unique_values.CREATE_TABLE)
            _verify(db, path, streams)
        except BaseException:
            db.close()
            raise
        return db


def _flush_last_commits(path: str) -> None:
    """A process that was killed may have left commits that are not on the disk yet. They are read from now on, and so a
    loss of power must not take them."""
    try:
        descriptor = os.open(f"{path}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(path: str, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(Path(path).absolute()))}?mode={mode}"
    return sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=True)


def _is_log(db: sqlite3.Connection, path: str) -> bool:
    """False if the database is empty."""
    (application,), (version,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application == _APPLICATION:
        if version > FORMAT:
            raise error("E086", f"{path} was written by a newer SMILE (format {version}, not {FORMAT})")
        if version == FORMAT:
            return True
        hint = "Its producers have no principals yet. Read it with the SMILE that wrote it, or start a new log."
        raise error("E086", f"{path} was written by an earlier SMILE (format {version}, not {FORMAT})", hint=hint)
    if application or version or db.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
        raise not_a_log_error(path)
    return False


def _create(db: sqlite3.Connection, path: str, streams: Sequence[mmpl.StreamDef]) -> None:
    db.execute("BEGIN IMMEDIATE")
    if not _is_log(db, path):  # another process may have created it meanwhile
        for statement in _CREATE_TABLES.split(";\n"):
            db.execute(statement)
        _insert_streams(db, streams)
        db.execute("INSERT INTO commits VALUES (0, 0, 0, 0, 0, 0, ?)", (checksum(0, 0, 0, 0, 0, 0),))
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")


def _insert_streams(db: sqlite3.Connection, streams: Iterable[mmpl.StreamDef]) -> None:
    rows = [(stream.name, definition_text(stream)) for stream in streams]
    db.executemany("INSERT INTO streams VALUES (?, ?, ?)", [(*row, checksum(*row)) for row in rows])


def _definitions(db: sqlite3.Connection, path: str) -> dict[str, str]:
    """The definitions of the log's streams, in the order in which they were added."""
    rows = db.execute("SELECT name, definition, crc FROM streams ORDER BY rowid").fetchall()
    for name, text, crc in rows:
        if crc != checksum(name, text):
            raise damaged_error(path, f"the definition of {name}")
    return {name: text for name, text, _ in rows}


def read_definitions(path: str) -> list[mmpl.StreamDef]:
    """The streams that a log has: none if the process that was creating it has been killed meanwhile."""
    db = open_for_reading(path, (), may_be_empty=True)
    try:
        with translate_read_errors(path):
            text = "".join(_definitions(db, path).values()) if _is_log(db, path) else ""
    finally:
        db.close()
    return list(parse_program(Source(path, text)).streams) if text else []


def add_streams(db: sqlite3.Connection, path: str, streams: Sequence[mmpl.StreamDef]) -> None:
    """Adds streams, within a transaction. Streams that exist may get further columns."""
    log_definitions = _definitions(db, path)
    _insert_streams(db, [stream for stream in streams if stream.name not in log_definitions])
    for stream in streams:
        text, logged = definition_text(stream), log_definitions.get(stream.name)
        if logged not in (None, text) and is_extension(stream, _parse_definition(path, logged or "")):
            row = (stream.name, text)
            db.execute("UPDATE streams SET definition = ?, crc = ? WHERE name = ?", (text, checksum(*row), stream.name))
    if any(stream.unique for stream in streams):
        db.execute(unique_values.CREATE_TABLE)
    _verify(db, path, streams)


def _parse_definition(path: str, text: str) -> mmpl.StreamDef:
    return parse_program(Source(path, text)).streams[0]


def _verify(db: sqlite3.Connection, path: str, streams: Sequence[mmpl.StreamDef]) -> None:
    """Checks that the log has these streams, and that the newest rows of its tables agree. It may have more streams,
    and further columns of them."""
    log_definitions = _definitions(db, path)
    for stream in streams:
        if stream.name not in log_definitions:
            raise _other_streams_error(path, f"it has no stream {stream.name}", f"It has {', '.join(log_definitions)}.")
        logged = log_definitions[stream.name]
        if definition_text(stream) != logged and not is_extension(_parse_definition(path, logged), stream):
            raise _other_streams_error(
                path, f"its {stream.name} is defined otherwise", f"In the log: {log_definitions[stream.name].strip()}"
            )
    seq, last_piece, piece_seq, piece, first = db.execute(_ENDS_QUERY).fetchone() or (0, 0, 0, 0, None)
    if (seq, last_piece) != (piece_seq, piece) and (piece is not None or seq != first):
        raise damaged_error(path, "its newest commits are missing")
    for (stream,) in db.execute(_STRAY_QUERY).fetchall():
        raise damaged_error(path, f"the newest events of {stream} are missing in the index")


def _other_streams_error(path: str, difference: str, hint: str) -> SmileError:
    return error("E087", f"{path} is the log of other streams: {difference}", hint=hint)


def not_a_log_error(path: str) -> SmileError:
    return error(
        "E070", f"{path} is not a log", hint="Give the file of a durable log, or a directory of Parquet files."
    )


@contextmanager
def translate_read_errors(path: str) -> Iterator[None]:
    """Translates SQLite's errors in the block to errors of the catalogue."""
    try:
        yield
    except _SQLITE_PROBLEMS as problem:
        raise _catalogue_error(path, problem, "E070", "read") from None


@contextmanager
def translate_write_errors(path: str) -> Iterator[None]:
    try:
        yield
    except _SQLITE_PROBLEMS as problem:
        raise _catalogue_error(path, problem, "E084", "written") from None


def _catalogue_error(path: str, problem: Exception, code: str, action: str) -> SmileError:
    name = getattr(problem, "sqlite_errorname", "")
    if isinstance(problem, sqlite3.ProgrammingError):
        return error(code, f"{path} cannot be {action}: it has been closed")
    if name.startswith("SQLITE_BUSY"):
        return error(
            code, f"{path} cannot be {action}: another process is writing it", hint="A log has one writer at a time."
        )
    if name == "SQLITE_NOTADB":
        return not_a_log_error(path)
    if isinstance(problem, OSError) or name.startswith(_ENVIRONMENT_PROBLEMS):
        return error(code, f"{path} cannot be {action}: {problem}")
    return damaged_error(path, str(problem))
