"""A durable log in one SQLite file. Commits are atomic, and checksums detect damage.

The pieces of each stream and origin continue one another exactly. What is already known is dropped, so appending twice
is harmless; a piece that leaves a gap is refused. One process writes while others read. The oldest commits may be
truncated; the log records up to which tick.

Of a stream with many origins, the first piece of an origin makes it a member: from then on, its horizon holds back
that of the stream. So an origin that is to come joins with silence, before the others go on. An origin leaves with
silence to the end of time, and holds nothing back any more. It cannot return: a broker that joins again is another one.
"""

import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.decoding.stream_schema import StreamSchema
from smile.errors import error
from smile.horizons import END, HORIZON_MIN, split_name
from smile.log.input_batch import InputBatch
from smile.log.membership import StreamMembership
from smile.log.position import DEFAULT_ORIGIN, BatchLimit, Position
from smile.log.storage import (
    appending,
    database,
    memberships as membership_table,
    producers,
    retention,
    unique_values,
)
from smile.log.storage.database import checksum, translate_read_errors, translate_write_errors
from smile.log.storage.piece_log import (
    Origins,
    PieceEntry,
    PieceLog,
    TickArray,
    damaged_error,
    log_truncated_error,
    missing_error,
    range_indices,
    slice_events,
    ticks_of,
)
from smile.log.storage.pieces import StreamPiece, check_piece, merge_pieces
from smile.log.storage.producers import ProducerRecord

COMMIT_ROWS_MAX = 50_000
COMMIT_BYTES_MAX = 2**26
"""Commits must be small: a batch with a part of a commit reads all of it. Besides, SQLite limits a blob to a billion
bytes."""

_ENTRY_COLUMNS = "seq, stream, origin, lo, hi, rows, bytes, events_crc, crc"
_FROM_ORIGIN = "FROM pieces WHERE stream = ? AND origin = ?"
T = TypeVar("T")


class DurableLog(PieceLog):
    """The log in the file at `path`. With `flush`, commits are on disk before `append` returns. Without it, a machine
    failure may lose the last commits, but never a part of one.

    Threads may share it. Each thread has its own connection and reads one snapshot per call. Writes are serialized.
    """

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> None:
        super().__init__(path, streams)
        self._flush = flush
        self._readers: dict[int, sqlite3.Connection] = {}
        """By thread id. A new thread may reuse the id and connection of one that has ended."""
        self._writer: sqlite3.Connection | None = None
        self._write_lock = threading.Lock()
        self._truncation_lock = threading.Lock()

    @staticmethod
    def open_or_create(path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> "DurableLog":
        """Creates the log if there is none. An existing log must have these streams, and may have more."""
        log = DurableLog(path, streams, flush)
        log._writer = database.open_for_writing(path, streams, flush)
        return log

    @staticmethod
    def read_definitions(path: str) -> list[mmpl.StreamDef]:
        """The streams of an existing log, in the order in which they were added."""
        return database.read_definitions(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return DurableLog, (self.path, self._definitions, self._flush)

    def verify(self) -> None:
        """Raises an error if this is not a log, or has other streams."""
        self._db()

    def close(self) -> None:
        """Must not be called while a thread uses the log."""
        with self._write_lock:
            readers, self._readers = self._readers, {}
            for connection in [*readers.values(), *([self._writer] if self._writer else [])]:
                connection.close()
            self._writer = None

    @property
    def _definitions(self) -> list[mmpl.StreamDef]:
        return [schema.stream for schema in self.schemas.values()]

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(
        self,
        pieces: Iterable[StreamPiece],
        records: Sequence[ProducerRecord] = (),
        time_us: int = 0,
        whole: bool = False,
        memberships: Sequence[StreamMembership] = (),
    ) -> int:
        """Appends the pieces, the memberships of streams with many origins, and the producers' numbers atomically, in
        one commit, or several if they are large.
        `time_us` is the commit time in microseconds since 1970. If `whole`, it is one commit in any case, and so no
        batch ends within it. Returns the number of the newest commit."""
        merged_pieces = merge_pieces([check_piece(piece, self.schemas) for piece in pieces])

        def append(db: sqlite3.Connection) -> int:
            if memberships:
                db.execute(membership_table.CREATE_TABLE)
                membership_table.write(db, memberships)
            limits = COMMIT_ROWS_MAX, COMMIT_BYTES_MAX
            return appending.append(db, self.schemas, merged_pieces, records, time_us, *limits, whole)

        return self._transact(append)

    def append_batch(self, batch: InputBatch, origin: str = DEFAULT_ORIGIN) -> int:
        """Appends an input batch. It continues what the origin has appended before. A stream with many origins has
        the origins that the batch names."""
        pieces = []
        names = [split_name(name, self.schemas) for name in batch.horizons]
        with_named_origins = {stream for stream, named_origin in names if named_origin is not None}
        for (stream, named_origin), (name, horizon) in zip(names, batch.horizons.items(), strict=True):
            if named_origin is not None or (stream not in with_named_origins and horizon > HORIZON_MIN):
                pieces.append(StreamPiece(stream, named_origin or origin, HORIZON_MIN, horizon, batch.events.get(name)))
        return self.append(pieces)

    def add_streams(self, streams: Sequence[mmpl.StreamDef]) -> None:
        """Adds streams. Streams that exist must have the same definition."""
        self._transact(lambda db: database.add_streams(db, self.path, streams))
        self.schemas = {**self.schemas, **{stream.name: StreamSchema(stream) for stream in streams}}

    def truncate(self, horizons: Mapping[str, int], before: int | None = None) -> int:
        """Removes the oldest commits, as long as all their ticks are at or below the horizons; with `before`, only
        those appended before that time. A stream that is missing from `horizons` is needed from its beginning, and so
        is an origin of a stream with many origins; a stream whose horizon is END is not needed at all. Returns the
        commit up to which the log is truncated.

        Later commits reuse the space; the file does not become smaller."""
        with self._truncation_lock:
            last_commit = END
            if before is not None:
                query = "SELECT seq FROM commits WHERE seq > ? AND at >= ? ORDER BY seq LIMIT 1"
                last_commit = next((seq - 1 for (seq,) in self._select(query, self._first_commit(), before)), END)
            while old := self._removable_commits(horizons, last_commit):
                self._transact(lambda db, old=old: retention.remove_commits(db, old))  # type: ignore[misc]  # mypy sees no default
                time.sleep(retention.PAUSE_S)
            ((first, record),) = self._select("SELECT seq, last_record FROM commits ORDER BY seq LIMIT 1")
            self._transact(lambda db: producers.delete_records(db, record))
            return int(first)

    def _removable_commits(self, horizons: Mapping[str, int], last: int) -> list[retention.CommitEntries]:
        with self._read_transaction(), closing(self._all_commits(self._first_commit())) as commits:
            return retention.removable_commits(commits, horizons, self.many_origins, last)

    def _transact(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Runs the action in one transaction."""
        with self._write_lock, translate_write_errors(self.path):
            if self._writer is None:
                self._writer = database.open_for_writing(self.path, self._definitions, self._flush)
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                result = action(self._writer)
                self._writer.execute("COMMIT")
            except BaseException:
                # Closing the connection rolls back. The next write opens a new one.
                self._writer.close()
                self._writer = None
                raise
        return result

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def truncated_to(self, stream: str) -> int | None:
        """The tick up to which events of a stream were removed; None if none were."""
        return max(self._truncated_ticks(stream).values(), default=None)

    def truncated_ticks(self, stream: str) -> Mapping[str, int]:
        """For each origin of which events were removed, the tick up to which they were."""
        return {origin: tick for (_, origin), tick in self._truncated_ticks(stream).items()}

    def count_rows(self, stream: str, origin: str, after: int) -> int:
        """The number of events after this tick of one origin. If the tick is within a commit, all of its events
        count."""
        ((rows,),) = self._select(f"SELECT coalesce(sum(rows), 0) {_FROM_ORIGIN} AND hi > ?", stream, origin, after)
        return int(rows)

    def newest(self) -> Position:
        with self._read_transaction():
            return super().newest()

    def membership(self, stream: str) -> StreamMembership | None:
        """The origins of a stream that has many; None if nothing is known of them."""
        with translate_read_errors(self.path):
            tables = self._select("SELECT name FROM sqlite_master WHERE name = 'memberships'")
            return membership_table.read(self._db(), self.path, stream) if tables else None

    def stream_horizons(self, stream: str) -> Mapping[str, int]:
        """The horizon of each origin of a stream."""
        with self._read_transaction():
            return {origin: self._horizon(stream, origin) for _, origin in self._origins(stream)}

    def last_tick(self, stream: str, origin: str) -> int:
        """A tick that no event of an origin which has finished is above. END if it is not known."""
        with self._read_transaction():
            query = f"SELECT {_ENTRY_COLUMNS} {_FROM_ORIGIN} ORDER BY hi DESC LIMIT 1"
            for row in self._select(query, stream, origin):
                entry = self._parse_entry(row)
                with closing(self._pieces(stream, origin, entry.lo, entry.hi)) as pieces:
                    events = next((events for _, events in pieces), None)
                return entry.lo if events is None else int(ticks_of(events)[-1])
        return END

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        with self._read_transaction():
            return super().resume_position(horizons)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        with self._read_transaction():
            return super().read(stream, start, end)

    def backlog(self, position: Position) -> tuple[int, int]:
        # The sum over all pieces after the commit, minus what the position already covers. It covers some of them only
        # if a state was resumed there.
        with self._read_transaction():
            origins, tracker = self._origins(), self._tracker_at(position)
            rows, size = self._count_after(position.commit)
            for stream, origin in origins:
                horizon = tracker.horizon(stream, origin)
                for entry in self._covered_pieces(stream, origin, horizon, position.commit):
                    above_rows, above_size = self._count_above(entry, horizon)
                    rows, size = rows - entry.rows + above_rows, size - entry.bytes + above_size
            return rows, size

    def read_ranges(
        self, stream: str, origin: str, lows: TickArray, highs: TickArray
    ) -> tuple[pa.RecordBatch, list[int]]:
        """The events of one origin in the ranges (low, high], which are in order and do not overlap; and the row
        numbers at which a run begins. The events of a run are consecutive events of the origin.

        Each piece that overlaps a range is read once, and no other piece."""
        with self._read_transaction():
            if len(lows) and lows[0] < (
                truncated_tick := self._truncated_ticks(stream).get((stream, origin), HORIZON_MIN)
            ):
                raise log_truncated_error(self.path, f"events of {stream} up to tick {truncated_tick} were removed")
            origin_start = self._origins(stream).get((stream, origin))
            batches = [pa.RecordBatch.from_pylist([], self.schemas[stream].arrow_schema)]
            run_starts, rows = list[int](), 0
            if origin_start is None:
                return batches[0], run_starts
            for events, begins, ends in self._pieces_in_ranges(stream, origin, origin_start[1], lows, highs):
                indices = range_indices(begins, ends)
                if len(indices):
                    batches.append(events.take(pa.array(indices)))
                    run_starts += [rows, *(rows + 1 + np.flatnonzero(np.diff(indices) != 1)).tolist()]
                    rows += len(indices)
        return pa.concat_batches(batches), run_starts

    def _pieces_in_ranges(
        self, stream: str, origin: str, silent_to: int, lows: TickArray, highs: TickArray
    ) -> Iterator[tuple[pa.RecordBatch, TickArray, TickArray]]:
        """The events of each piece that overlaps a range, with the rows at which the ranges begin and end."""
        range_index, lows = 0, np.maximum(lows, silent_to)
        while range_index < len(lows):
            lo, hi = int(lows[range_index]), int(highs[range_index])
            if hi <= lo:
                range_index += 1
                continue
            with closing(self._pieces(stream, origin, lo, hi)) as pieces:
                entry, events = next(pieces, (None, None))
            if entry is None or entry.lo > lo:
                raise missing_error(self.path, stream, lo, hi if entry is None else entry.lo)
            end = range_index + int(np.searchsorted(lows[range_index:], entry.hi))
            if events is not None:
                ticks = ticks_of(events)
                yield events, *(np.searchsorted(ticks, bound[range_index:end], side="right") for bound in (lows, highs))
            range_index = end
            if highs[end - 1] > entry.hi:
                range_index, lows[end - 1] = end - 1, entry.hi

    def read_range(self, stream: str, origin: str, after: int, bytes_max: int) -> StreamPiece | None:
        """What follows tick `after` of one origin: whole pieces up to this size, at least one; None if nothing does.
        Raises E097 if events above `after` were removed."""
        with self._read_transaction():
            truncated_tick = self._truncated_ticks(stream).get((stream, origin), HORIZON_MIN)
            origin_start = self._origins(stream).get((stream, origin))
            if origin_start is None:
                return None
            if after < truncated_tick:
                raise log_truncated_error(self.path, f"events of {stream} up to tick {truncated_tick} were removed")
            batches, hi, size = list[pa.RecordBatch](), max(after, origin_start[1]), 0
            with closing(self._pieces(stream, origin, after, END)) as pieces:
                for entry, events in pieces:
                    if size and size + entry.bytes > bytes_max:
                        break
                    if entry.lo > hi:
                        raise missing_error(self.path, stream, hi, entry.lo)
                    hi, size = entry.hi, size + entry.bytes
                    batches += [] if events is None else [slice_events(events, after, entry.hi)]
        if hi == after:
            return None
        events = pa.concat_batches(batches) if batches else None
        return StreamPiece(stream, origin, after, hi, events if events is not None and events.num_rows else None)

    def last_number(self, producer: str) -> int | None:
        """The greatest number that the producer has used; None if the log does not know the producer."""
        with translate_read_errors(self.path):
            return producers.last_number(self._db(), self.path, producer)

    def used_keys(self, stream: str, columns: Sequence[str], keys: Sequence[bytes]) -> unique_values.UsedKeys:
        """Those of the keys of UNIQUE columns that are used."""
        with translate_read_errors(self.path):
            return unique_values.used_keys(self._db(), stream, columns, keys)

    def records(self, producer: str, first: int, last: int) -> list[ProducerRecord]:
        """The records of a producer's numbers from `first` to `last`, in order. Old records may be deleted."""
        with translate_read_errors(self.path):
            return producers.records_between(self._db(), self.path, producer, first, last)

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

    def after(self, position: Position, limit: BatchLimit) -> Position:
        with self._read_transaction():
            return super().after(position, limit)

    def _commits(self, after: int) -> Generator[tuple[int, Sequence[PieceEntry]], None, None]:
        with closing(self._all_commits(after)) as commits:
            for seq, entries in commits:
                yield seq, [entry for entry in entries if entry.stream in self.schemas]

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
        return pa.ipc.read_record_batch(pa.py_buffer(events), self.schemas[entry.stream].arrow_schema)

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
