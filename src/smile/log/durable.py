"""A durable log: one SQLite file. A commit is there wholly or not at all, and what is read of it is what was appended.

Of each stream and origin the pieces continue one another exactly. What is known already is dropped, so that appending
twice is harmless; what leaves a gap is refused. One process writes, any number of them read meanwhile.
"""

import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from smile.algebra import mmpl
from smile.errors import error
from smile.log.database import checksum, connected, created, reading, writing
from smile.log.frame import NOTHING, Frame
from smile.log.pieces import StreamPiece, checked, gap, merged, parts, refuse_joining
from smile.log.position import UNNAMED, Position
from smile.log.ranges import Entry, Origins, Ranges, Walk, damaged

COMMIT_ROWS_MAX = 50_000
COMMIT_BYTES_MAX = 2**26
"""A batch has whole commits, so that they must not be large; and a blob of SQLite's ends at a billion bytes."""

_ENTRY = "seq, stream, origin, lo, hi, rows, bytes, events_crc, crc"
_OF_ORIGIN = "FROM pieces WHERE stream = ? AND origin = ?"


class DurableLog(Ranges):
    """The log in the file at `path`. With `flush`, what is appended is on the disk before `append` returns; without, a
    failure of the machine may take the last commits with it, though never a part of one.

    Threads do not share it: each opens its own.
    """

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> None:
        super().__init__(path, streams)
        self._flush = flush
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None

    @staticmethod
    def at(path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> "DurableLog":
        """The log is made if there is none."""
        log = DurableLog(path, streams, flush)
        log._writer = created(path, streams, flush)
        return log

    def __reduce__(self) -> tuple[Any, ...]:
        return DurableLog, (self.path, self._definitions, self._flush)

    def verify(self) -> None:
        """An error if this is not a log, or of other streams."""
        self._db()

    def close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    @property
    def _definitions(self) -> list[mmpl.StreamDef]:
        return [shape.stream for shape in self.shapes.values()]

    # ── appending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, pieces: Iterable[StreamPiece]) -> int:
        """One commit, or several if there is much: all of them or none. Gives the number of the newest."""
        told = merged([checked(piece, self.shapes) for piece in pieces])
        with writing(self.path):
            if self._writer is None:
                self._writer = created(self.path, self._definitions, self._flush)
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                seq = _append(self._writer, told)
                self._writer.execute("COMMIT")
            except BaseException:
                # What is not committed goes with the connection, and the next append has another.
                self._writer.close()
                self._writer = None
                raise
        return seq

    def append_frame(self, frame: Frame, origin: str = UNNAMED) -> int:
        """All that a frame tells. It continues what the origin told before."""
        told = frame.horizons.items()
        return self.append(StreamPiece(s, origin, NOTHING, horizon, frame.events.get(s)) for s, horizon in told)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def waiting(self, position: Position) -> tuple[int, int]:
        # A sum of commits, less what the position covers of them: nothing, unless a state was resumed there.
        origins = self._origins()
        walk = Walk(position, origins)
        counted = "SELECT coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM commits WHERE seq > ?"
        ((rows, size),) = self._select(counted, position.commit)
        for stream, origin in origins:
            horizon = walk.horizon(stream, origin)
            for entry in self._covered(stream, origin, horizon, position.commit):
                above_rows, above_size = self._above(entry, horizon)
                rows, size = rows - entry.rows + above_rows, size - entry.bytes + above_size
        return rows, size

    def _covered(self, stream: str, origin: str, tick: int, after: int) -> Iterator[Entry]:
        """The pieces of commits after that one that have ticks up to this one."""
        nearest = [f"SELECT {_ENTRY} {_OF_ORIGIN} AND hi > ? ORDER BY hi LIMIT 1"]
        nearest += [f"SELECT {_ENTRY} {_OF_ORIGIN} AND hi <= ? ORDER BY hi DESC"]
        for query in nearest:
            with reading(self.path), closing(self._db().execute(query, (stream, origin, tick))) as found:
                for row in found:
                    entry = self._entry(row)
                    if entry.commit <= after or entry.lo >= tick:
                        break
                    yield entry

    def _commits(self, after: int) -> Generator[tuple[int, Sequence[Entry]], None, None]:
        commits = "SELECT seq, last_piece, rows, bytes, crc FROM commits WHERE seq >= ? ORDER BY seq"
        pieces = f"SELECT {_ENTRY} FROM pieces WHERE id > ? AND id <= ? ORDER BY id"
        with reading(self.path), closing(self._db().execute(commits, (after,))) as found:
            seen, passed = after - 1, 0
            for seq, last_piece, rows, size, crc in found:
                if crc != checksum(seq, last_piece, rows, size) or seq != seen + 1:
                    raise damaged(self.path, f"commit {seen + 1}")
                if seq > after:
                    entries = [self._entry(row) for row in self._db().execute(pieces, (passed, last_piece))]
                    if not _is_whole(entries, seq, last_piece - passed, rows, size):
                        raise damaged(self.path, f"commit {seq}")
                    yield seq, entries
                seen, passed = seq, last_piece
        if seen < after:
            message = f"{self.path} has no commit {after}, though it was read"
            raise error("E089", message, hint="The log was put back to an older one; forget what was computed from it.")

    def _pieces(self, stream: str, origin: str, lo: int, hi: int) -> Iterator[tuple[Entry, pa.RecordBatch | None]]:
        query = f"SELECT {_ENTRY}, events {_OF_ORIGIN} AND hi > ? ORDER BY hi"
        with reading(self.path), closing(self._db().execute(query, (stream, origin, lo))) as found:
            for row in found:
                entry = self._entry(row[:-1])
                if entry.lo >= hi:
                    break
                yield entry, self._events(entry, row[-3], row[-1])
                if entry.hi >= hi:
                    break

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        *told, _, crc = row
        if crc != checksum(*row[:-1]):
            raise damaged(self.path, f"a piece of {row[1]}, ticks above {row[3]} up to {row[4]}")
        return Entry(*told)

    def _events(self, entry: Entry, crc: int | None, events: bytes | None) -> pa.RecordBatch | None:
        if crc is None and events is None:
            return None
        if events is None or zlib.crc32(events) != crc:
            raise damaged(self.path, f"the events of {entry.stream}, ticks above {entry.lo} up to {entry.hi}")
        return pa.ipc.read_record_batch(pa.py_buffer(events), self.shapes[entry.stream].schema)

    def _origins(self) -> Origins:
        found = {}
        for stream, origin, seq, lo, crc in self._select("SELECT stream, origin, seq, lo, crc FROM origins"):
            if crc != checksum(stream, origin, seq, lo):
                raise damaged(self.path, f"an origin of {stream}")
            found[stream, origin] = seq, lo
        return found

    def _last(self) -> int:
        ((seq,),) = self._select("SELECT max(seq) FROM commits")
        return int(seq)

    def _horizon(self, stream: str, origin: str) -> int:
        found = self._select(f"SELECT {_ENTRY} {_OF_ORIGIN} ORDER BY hi DESC LIMIT 1", stream, origin)
        if not found:
            raise damaged(self.path, f"nothing is told of {stream} by origin {origin}")
        return self._entry(found[0]).hi

    def _uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        query = f"SELECT {_ENTRY} {_OF_ORIGIN} AND hi > ? ORDER BY hi LIMIT 1"
        return next((self._entry(row).commit for row in self._select(query, stream, origin, tick)), None)

    def _select(self, query: str, *values: int | str) -> list[tuple[Any, ...]]:
        with reading(self.path):
            return self._db().execute(query, values).fetchall()

    def _db(self) -> sqlite3.Connection:
        if self._reader is None:
            self._reader = connected(self.path, self._definitions)
        return self._reader


def _is_whole(entries: Sequence[Entry], seq: int, count: int, rows: int, size: int) -> bool:
    return (
        len(entries) == count
        and all(entry.commit == seq for entry in entries)
        and sum(entry.rows for entry in entries) == rows
        and sum(entry.bytes for entry in entries) == size
    )


def _append(db: sqlite3.Connection, told: Sequence[StreamPiece]) -> int:
    seq, last_piece = db.execute("SELECT seq, last_piece FROM commits ORDER BY seq DESC LIMIT 1").fetchone()
    new = []
    for piece in told:
        horizon = _known(db, piece)
        if piece.lo > horizon:
            raise gap(piece, horizon)
        if piece.hi > horizon:
            new.append(piece.above(horizon))
    for part in parts(new, COMMIT_ROWS_MAX, COMMIT_BYTES_MAX):
        seq, rows, size = int(seq) + 1, 0, 0
        for piece in part:
            origin = (piece.stream, piece.origin, seq, piece.lo)
            db.execute("INSERT OR IGNORE INTO origins VALUES (?, ?, ?, ?, ?)", (*origin, checksum(*origin)))
            blob = piece.events.serialize() if piece.events is not None and piece.events.num_rows else None
            crc = None if blob is None else zlib.crc32(blob)
            row = (
                seq,
                piece.stream,
                piece.origin,
                piece.lo,
                piece.hi,
                piece.rows,
                0 if blob is None else blob.size,
                crc,
            )
            last_piece += 1
            places = ", ".join("?" * (len(row) + 3))
            db.execute(f"INSERT INTO pieces VALUES ({places})", (last_piece, *row, checksum(*row), blob))
            rows, size = rows + row[5], size + row[6]
        commit = (seq, last_piece, rows, size)
        db.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?)", (*commit, checksum(*commit)))
    return int(seq)


def _known(db: sqlite3.Connection, piece: StreamPiece) -> int:
    """Up to where nothing new can be told; of an origin that joins, that is its stream's horizon."""
    horizon = _horizon(db, piece.stream, piece.origin)
    if horizon is not None:
        return horizon
    origins = db.execute("SELECT origin FROM origins WHERE stream = ?", (piece.stream,)).fetchall()
    others = [_horizon(db, piece.stream, origin) for (origin,) in origins]
    stream = min((other for other in others if other is not None), default=NOTHING)
    refuse_joining(piece, stream)
    return stream


def _horizon(db: sqlite3.Connection, stream: str, origin: str) -> int | None:
    ((horizon,),) = db.execute(f"SELECT max(hi) {_OF_ORIGIN}", (stream, origin)).fetchall()
    return None if horizon is None else int(horizon)
