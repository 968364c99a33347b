"""The pieces of a log as they are stored in its SQLite file: what `PieceLog` asks for, from checked rows of tables."""

import sqlite3
import threading
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from smile.algebra import mmpl
from smile.decoding.stream_schema import with_added_columns
from smile.errors import error
from smile.horizons import END, HORIZON_MIN
from smile.log.storage import database, whole_commits
from smile.log.storage.database import checksum, translate_read_errors
from smile.log.storage.piece_log import Origins, PieceEntry, PieceLog, damaged_error, log_truncated_error

_ENTRY_COLUMNS = "seq, stream, origin, lo, hi, rows, bytes, events_crc, crc"
_FROM_ORIGIN = "FROM pieces WHERE stream = ? AND origin = ?"


class StoredPieces(PieceLog):
    """Reads the file at `path`. Each thread has its own connection."""

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef]) -> None:
        super().__init__(path, streams)
        self._readers: dict[int, sqlite3.Connection] = {}
        """By thread id. A new thread may reuse the id and connection of one that has ended."""

    @property
    def _definitions(self) -> list[mmpl.StreamDef]:
        return [schema.stream for schema in self.schemas.values()]

    # ── sums ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _count_after(self, commit: int) -> tuple[int, int]:
        """The rows and bytes of this log's streams after a commit."""
        stream_count_query = "SELECT count(*) FROM streams"
        if self._select(stream_count_query) == [(len(self.schemas),)]:
            sums_query = "SELECT coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM commits WHERE seq > ?"
            ((rows, size),) = self._select(sums_query, commit)
            return rows, size
        sums_query = "SELECT stream, sum(rows), sum(bytes) FROM pieces WHERE id > ? GROUP BY stream"
        ((last_piece,),) = self._select("SELECT coalesce(max(last_piece), 0) FROM commits WHERE seq <= ?", commit)
        sums = [(rows, size) for stream, rows, size in self._select(sums_query, last_piece) if stream in self.schemas]
        return sum(rows for rows, _ in sums), sum(size for _, size in sums)

    def _count_between(self, stream: str, origin: str, after: int, to: int) -> int:
        """The rows of an origin in pieces that end above `after` and at most at `to`."""
        query = f"SELECT coalesce(sum(rows), 0) {_FROM_ORIGIN} AND hi > ? AND hi <= ?"
        ((rows,),) = self._select(query, stream, origin, after, to)
        return int(rows)

    def _tick_before_newest(self, stream: str, origin: str, count: int) -> int | None:
        """A tick above which there are so many events of an origin, or all of them; None if there are none."""
        query = f"SELECT lo, rows {_FROM_ORIGIN} ORDER BY hi DESC"
        with translate_read_errors(self.path), closing(self._db().execute(query, (stream, origin))) as cursor:
            found, tick = 0, None
            for lo, rows in cursor:
                if rows:
                    found, tick = found + rows, int(lo)
                if found >= count:
                    break
            return tick

    # ── pieces and commits ────────────────────────────────────────────────────────────────────────────────────────────

    def _last_piece(self, stream: str, origin: str) -> PieceEntry | None:
        """None if there is none, or it was removed."""
        query = f"SELECT {_ENTRY_COLUMNS} {_FROM_ORIGIN} ORDER BY hi DESC LIMIT 1"
        return next((self._parse_entry(row) for row in self._select(query, stream, origin)), None)

    def _covered_pieces(self, stream: str, origin: str, tick: int, after: int) -> Iterator[PieceEntry]:
        """The pieces in commits after `after` that have ticks at or below `tick`."""
        queries = [f"SELECT {_ENTRY_COLUMNS} {_FROM_ORIGIN} AND hi > ? ORDER BY hi LIMIT 1"]
        queries += [f"SELECT {_ENTRY_COLUMNS} {_FROM_ORIGIN} AND hi <= ? ORDER BY hi DESC"]
        for query in queries:
            with translate_read_errors(self.path), closing(self._db().execute(query, (stream, origin, tick))) as cursor:
                for row in cursor:
                    entry = self._parse_entry(row)
                    if entry.commit <= after or entry.lo >= tick:
                        break
                    yield entry

    def _commits(self, after: int) -> Generator[tuple[int, Sequence[PieceEntry]], None, None]:
        with closing(self._all_commits(after)) as commits:
            for seq, entries in commits:
                yield seq, [entry for entry in entries if entry.stream in self.schemas]

    def _is_whole_commit(self, commit: int) -> bool:
        with translate_read_errors(self.path):
            return whole_commits.contains(self._db(), self.path, commit)

    def _all_commits(self, after: int) -> Generator[tuple[int, Sequence[PieceEntry]], None, None]:
        """Like `_commits`, with all streams of the file."""
        if after < (first := self._first_commit()):
            raise log_truncated_error(self.path, f"it begins after commit {first}, but was read up to {after}")
        # If the commit itself was replaced, the one before it has the last piece before its replacement.
        commits_query = (
            "SELECT seq, last_piece, last_record, rows, bytes, at, crc FROM commits "
            "WHERE seq >= (SELECT max(seq) FROM commits WHERE seq <= ?) ORDER BY seq"
        )
        pieces_query = f"SELECT {_ENTRY_COLUMNS} FROM pieces WHERE id > ? AND id <= ? ORDER BY id"
        with translate_read_errors(self.path), closing(self._db().execute(commits_query, (after,))) as cursor:
            previous_seq, previous_piece = -1, 0
            for seq, last_piece, last_record, rows, size, time_us, crc in cursor:
                if crc != checksum(seq, last_piece, last_record, rows, size, time_us):
                    raise damaged_error(self.path, f"commit {seq}")
                if seq > after:
                    entries = [
                        self._parse_entry(row) for row in self._db().execute(pieces_query, (previous_piece, last_piece))
                    ]
                    commits = range(previous_seq + 1, seq + 1)
                    if not _is_complete(entries, commits, last_piece - previous_piece, rows, size):
                        raise damaged_error(self.path, f"commit {commits[0]}")
                    yield seq, entries
                previous_seq, previous_piece = seq, last_piece
        if previous_seq < after:
            hint = "The log was replaced by an older one. Delete the state that was computed from the newer one."
            raise error("E089", f"{self.path} has no commit {after}, although it was read before", hint=hint)

    def _pieces(
        self, stream: str, origin: str, lo: int, hi: int
    ) -> Generator[tuple[PieceEntry, pa.RecordBatch | None], None, None]:
        query = f"SELECT {_ENTRY_COLUMNS}, events {_FROM_ORIGIN} AND hi > ? ORDER BY hi"
        with translate_read_errors(self.path), closing(self._db().execute(query, (stream, origin, lo))) as cursor:
            for row in cursor:
                entry = self._parse_entry(row[:-1])
                if entry.lo >= hi:
                    break
                yield entry, self._events(entry, row[-3], row[-1])
                if entry.hi >= hi:
                    break

    def _parse_entry(self, row: tuple[Any, ...]) -> PieceEntry:
        *fields, _, crc = row
        if crc != checksum(*row[:-1]):
            raise damaged_error(self.path, f"a piece of {row[1]}, ticks above {row[3]} up to {row[4]}")
        return PieceEntry(*fields)

    def _events(self, entry: PieceEntry, crc: int | None, events: bytes | None) -> pa.RecordBatch | None:
        if crc is None and events is None:
            return None
        if events is None or zlib.crc32(events) != crc:
            raise damaged_error(self.path, f"the events of {entry.stream}, ticks above {entry.lo} up to {entry.hi}")
        batch = _decode_events(events, self.schemas[entry.stream].arrow_schema)
        if batch is None:
            raise damaged_error(self.path, f"the events of {entry.stream}, ticks above {entry.lo} up to {entry.hi}")
        return batch

    # ── origins ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _origins(self, stream: str | None = None) -> Origins:
        # Truncated ticks count as silence here. Reading them is refused elsewhere.
        origins = self._known_origins(stream).items()
        return {key: (seq, max(lo, truncated_to)) for key, (seq, lo, truncated_to) in origins}

    def _truncated_ticks(self, stream: str | None = None) -> Mapping[tuple[str, str], int]:
        origins = self._known_origins(stream).items()
        return {key: truncated_to for key, (_, _, truncated_to) in origins if truncated_to > HORIZON_MIN}

    def _known_origins(self, stream: str | None = None) -> dict[tuple[str, str], tuple[int, int, int]]:
        origins = {}
        query = "SELECT stream, origin, seq, lo, cut, crc FROM origins"
        rows = self._select(query) if stream is None else self._select(f"{query} WHERE stream = ?", stream)
        for name, origin, seq, lo, truncated_to, crc in rows:
            if crc != checksum(name, origin, seq, lo, truncated_to):
                raise damaged_error(self.path, f"an origin of {name}")
            if name in self.schemas:
                origins[name, origin] = seq, lo, truncated_to
        return origins

    def _first_commit(self) -> int:
        """The commit that the log is truncated to."""
        ((seq,),) = self._select("SELECT min(seq) FROM commits")
        return 0 if seq is None else int(seq)

    def _last_commit(self) -> int:
        ((seq,),) = self._select("SELECT max(seq) FROM commits")
        return int(seq)

    def _horizon(self, stream: str, origin: str) -> int:
        return self._horizon_at(stream, origin, END)

    def _horizon_at(self, stream: str, origin: str, commit: int) -> int:
        query = f"SELECT {_ENTRY_COLUMNS} {_FROM_ORIGIN} AND seq <= ? ORDER BY hi DESC LIMIT 1"
        rows = self._select(query, stream, origin, commit)
        if rows:
            return self._parse_entry(rows[0]).hi
        if (stream, origin) not in self._truncated_ticks(stream):
            raise damaged_error(self.path, f"it has no piece of {stream} from origin {origin}")
        return self._truncated_ticks(stream)[stream, origin]

    def _first_uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        query = f"SELECT {_ENTRY_COLUMNS} {_FROM_ORIGIN} AND hi > ? ORDER BY hi LIMIT 1"
        return next((self._parse_entry(row).commit for row in self._select(query, stream, origin, tick)), None)

    # ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _select(self, query: str, *values: int | str) -> list[tuple[Any, ...]]:
        with translate_read_errors(self.path):
            return self._db().execute(query, values).fetchall()

    @contextmanager
    def _read_transaction(self) -> Iterator[None]:
        """All reads of this thread in the block see the same snapshot."""
        db = self._db()
        if db.in_transaction:
            yield
            return
        with translate_read_errors(self.path):
            db.execute("BEGIN")
            try:
                yield
            finally:
                db.execute("ROLLBACK")

    def _db(self) -> sqlite3.Connection:
        thread = threading.get_ident()
        connection = self._readers.get(thread)
        if connection is None:
            connection = self._readers[thread] = database.open_for_reading(self.path, self._definitions)
        return connection


def _is_complete(entries: Sequence[PieceEntry], commits: range, count: int, rows: int, size: int) -> bool:
    """`commits` are the numbers of a commit and of those that it has replaced."""
    return (
        len(entries) == count
        and all(entry.commit in commits for entry in entries)
        and sum(entry.rows for entry in entries) == rows
        and sum(entry.bytes for entry in entries) == size
    )


def _decode_events(data: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
    """The events with the columns of the schema; None if they are damaged. Arrow reads the first columns of a batch
    that has more, and raises an error if it has fewer: events from before columns were added have NULL there."""
    for width in range(len(schema), 0, -1):
        present = pa.schema([schema.field(i) for i in range(width)])
        try:
            return with_added_columns(pa.ipc.read_record_batch(pa.py_buffer(data), present), schema)
        except pa.ArrowInvalid:
            continue
    return None
