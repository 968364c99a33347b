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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.decoding.stream_schema import StreamSchema
from smile.horizons import END, HORIZON_MIN, split_name
from smile.log.input_batch import InputBatch
from smile.log.membership import StreamMembership
from smile.log.position import DEFAULT_ORIGIN, BatchLimit, Position
from smile.log.storage import (
    appending,
    database,
    memberships as membership_table,
    producer_notes,
    producers,
    retention,
    unique_values,
)
from smile.log.storage.database import translate_read_errors, translate_write_errors
from smile.log.storage.piece_log import (
    TickArray,
    log_truncated_error,
    missing_error,
    range_indices,
    slice_events,
    ticks_of,
)
from smile.log.storage.pieces import StreamPiece, check_piece, merge_pieces
from smile.log.storage.producers import ProducerRecord
from smile.log.storage.stored_pieces import StoredPieces

COMMIT_ROWS_MAX = 50_000
COMMIT_BYTES_MAX = 2**26
"""Commits must be small: a batch with a part of a commit reads all of it. Besides, SQLite limits a blob to a billion
bytes."""

T = TypeVar("T")


class DurableLog(StoredPieces):
    """The log in the file at `path`. With `flush`, commits are on disk before `append` returns. Without it, a machine
    failure may lose the last commits, but never a part of one.

    Threads may share it. Each thread has its own connection and reads one snapshot per call. Writes are serialized.
    """

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> None:
        super().__init__(path, streams)
        self._flush = flush
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

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(
        self,
        pieces: Iterable[StreamPiece],
        records: Sequence[ProducerRecord] = (),
        time_us: int = 0,
        whole: bool = False,
        memberships: Sequence[StreamMembership] = (),
        notes: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Appends the pieces, the memberships of streams with many origins, and the producers' numbers and notes
        atomically, in one commit, or several if they are large.
        `time_us` is the commit time in microseconds since 1970. If `whole`, it is one commit in any case, and so no
        batch ends within it. Returns the number of the newest commit."""
        merged_pieces = merge_pieces([check_piece(piece, self.schemas) for piece in pieces])

        def append(db: sqlite3.Connection) -> int:
            if memberships:
                db.execute(membership_table.CREATE_TABLE)
                membership_table.write(db, memberships)
            if notes:
                producer_notes.write(db, notes)
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
        """Adds streams. Streams that exist may get further columns, which earlier events do not have."""
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

    def count_rows(self, stream: str, origin: str, after: int, to: int = END) -> int:
        """The number of events of one origin after a tick, up to another one. If `after` is within a commit, all of its
        events count; if `to` is, none of them does."""
        return self._count_between(stream, origin, after, to)

    def newest_events(self, stream: str, count: int) -> Mapping[str, pa.RecordBatch]:
        """The newest events of each origin of a stream, at most so many of each, in order of ticks."""
        newest: dict[str, pa.RecordBatch] = {}
        with self._read_transaction():
            for _, origin in self._origins(stream):
                if (lo := self._tick_before_newest(stream, origin, count)) is not None:
                    with closing(self._pieces(stream, origin, lo, END)) as pieces:
                        batches = [events for _, events in pieces if events is not None]
                    events = pa.concat_batches(batches)
                    newest[origin] = events.slice(max(0, events.num_rows - count))
        return newest

    def start(self) -> Position:
        """If the log was truncated, the position before everything that is left. It does not have the streams of which
        something was removed: reading them from there is refused."""
        with self._read_transaction():
            start, first = super().start(), self._first_commit()
            truncated = {stream for stream, _ in self._truncated_ticks()} if first else set[str]()
            horizons = {stream: h for stream, h in start.horizons.items() if stream not in truncated}
            return Position(first, horizons, self.many_origins)

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
            if (entry := self._last_piece(stream, origin)) is not None:
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
        """What follows tick `after` of one origin: whole pieces up to this size, at least one, and all pieces of a
        commit that no batch divides; None if nothing does. Raises E097 if events above `after` were removed."""
        with self._read_transaction():
            truncated_tick = self._truncated_ticks(stream).get((stream, origin), HORIZON_MIN)
            origin_start = self._origins(stream).get((stream, origin))
            if origin_start is None:
                return None
            if after < truncated_tick:
                raise log_truncated_error(self.path, f"events of {stream} up to tick {truncated_tick} were removed")
            batches, hi, size, commit = list[pa.RecordBatch](), max(after, origin_start[1]), 0, -1
            with closing(self._pieces(stream, origin, after, END)) as pieces:
                for entry, events in pieces:
                    # Only a commit that no batch divides has several pieces of an origin.
                    if size and size + entry.bytes > bytes_max and entry.commit != commit:
                        break
                    commit = entry.commit
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

    def producer_note(self, producer: str) -> str:
        """What the producer has noted with its last events; empty if it has noted nothing."""
        with translate_read_errors(self.path):
            return producer_notes.read(self._db(), self.path, producer)

    def used_keys(self, stream: str, columns: Sequence[str], keys: Sequence[bytes]) -> unique_values.UsedKeys:
        """Those of the keys of UNIQUE columns that are used."""
        with translate_read_errors(self.path):
            return unique_values.used_keys(self._db(), stream, columns, keys)

    def records(self, producer: str, first: int, last: int) -> list[ProducerRecord]:
        """The records of a producer's numbers from `first` to `last`, in order. Old records may be deleted."""
        with translate_read_errors(self.path):
            return producers.records_between(self._db(), self.path, producer, first, last)

    def after(self, position: Position, limit: BatchLimit) -> Position:
        with self._read_transaction():
            return super().after(position, limit)
