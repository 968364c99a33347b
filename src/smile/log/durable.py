"""A durable log: one SQLite file. A commit is there wholly or not at all, and what is read of it is what was appended.

Of each stream and origin the pieces continue one another exactly. What is known already is dropped, so that appending
twice is harmless; what leaves a gap is refused. One process writes, any number of them read meanwhile. The oldest
commits may be cut away, and the log then knows up to where.
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
from smile.errors import error
from smile.log import appending, database, producers, retention
from smile.log.database import checksum, connected, created, reading, writing
from smile.log.frame import END, NOTHING, Frame
from smile.log.pieces import StreamPiece, checked, merged
from smile.log.position import UNNAMED, Limit, Position
from smile.log.producers import Record
from smile.log.ranges import Entry, Origins, Ranges, Ticks, damaged, places_between, ticks_of, was_cut
from smile.log.shape import Shape

COMMIT_ROWS_MAX = 50_000
COMMIT_BYTES_MAX = 2**26
"""A batch has whole commits, so that they must not be large; and a blob of SQLite's ends at a billion bytes."""

_ENTRY = "seq, stream, origin, lo, hi, rows, bytes, events_crc, crc"
_OF_ORIGIN = "FROM pieces WHERE stream = ? AND origin = ?"
T = TypeVar("T")


class DurableLog(Ranges):
    """The log in the file at `path`. With `flush`, what is appended is on the disk before `append` returns; without, a
    failure of the machine may take the last commits with it, though never a part of one.

    Threads may share it. Each reads by a connection of its own, as of one moment in each call, and they write one
    after the other.
    """

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> None:
        super().__init__(path, streams)
        self._flush = flush
        self._readers: dict[int, sqlite3.Connection] = {}
        """By thread; a thread that has ended leaves its own to the next of its number."""
        self._writer: sqlite3.Connection | None = None
        self._writing = threading.Lock()
        self._cutting = threading.Lock()

    @staticmethod
    def at(path: str, streams: Sequence[mmpl.StreamDef], flush: bool = True) -> "DurableLog":
        """The log is made if there is none. One that is there must have these streams, and may have more."""
        log = DurableLog(path, streams, flush)
        log._writer = created(path, streams, flush)
        return log

    @staticmethod
    def definitions_at(path: str) -> list[mmpl.StreamDef]:
        """The streams of the log that is there, in the order in which they came to it."""
        return database.definitions_at(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return DurableLog, (self.path, self._definitions, self._flush)

    def verify(self) -> None:
        """An error if this is not a log, or of other streams."""
        self._db()

    def close(self) -> None:
        """Once no thread uses it any more."""
        with self._writing:
            readers, self._readers = self._readers, {}
            for connection in [*readers.values(), *([self._writer] if self._writer else [])]:
                connection.close()
            self._writer = None

    @property
    def _definitions(self) -> list[mmpl.StreamDef]:
        return [shape.stream for shape in self.shapes.values()]

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, pieces: Iterable[StreamPiece], records: Sequence[Record] = (), at: int = 0) -> int:
        """One commit, or several if there is much: all of them or none, and the producers' numbers with them. `at` is
        when that is, in microseconds since 1970. Gives the number of the newest."""
        told = merged([checked(piece, self.shapes) for piece in pieces])
        return self._write(lambda db: appending.append(db, told, records, at, COMMIT_ROWS_MAX, COMMIT_BYTES_MAX))

    def append_frame(self, frame: Frame, origin: str = UNNAMED) -> int:
        """All that a frame tells. It continues what the origin told before."""
        told = frame.horizons.items()
        return self.append(StreamPiece(s, origin, NOTHING, horizon, frame.events.get(s)) for s, horizon in told)

    def add_streams(self, streams: Sequence[mmpl.StreamDef]) -> None:
        """From now on it has these too. Those that it has already must be the same."""
        self._write(lambda db: database.add_streams(db, self.path, streams))
        self.shapes = {**self.shapes, **{stream.name: Shape(stream) for stream in streams}}

    def cut(self, horizons: Mapping[str, int], before: int | None = None) -> int:
        """The oldest commits are removed, as long as all that they have lies at or below the horizons, and if `before`
        is given, only those that were appended before that time. A stream that is left out is needed from its
        beginning, one whose horizon is the end is not needed at all. Gives the commit up to which the log is cut.

        The room is used again by what is appended later; the file does not become smaller."""
        with self._cutting:
            last = END
            if before is not None:
                query = "SELECT seq FROM commits WHERE seq > ? AND at >= ? ORDER BY seq LIMIT 1"
                last = next((seq - 1 for (seq,) in self._select(query, self._first(), before)), END)
            while old := self._oldest(horizons, last):
                self._write(lambda db, old=old: retention.remove(db, old))  # type: ignore[misc]  # mypy sees no default
                time.sleep(retention.PAUSE_S)
            ((first, record),) = self._select("SELECT seq, last_record FROM commits ORDER BY seq LIMIT 1")
            self._write(lambda db: producers.forget(db, record))
            return int(first)

    def _oldest(self, horizons: Mapping[str, int], last: int) -> list[retention.Commit]:
        with self._snapshot(), closing(self._whole_commits(self._first())) as commits:
            return retention.oldest(commits, horizons, last)

    def _write(self, done: Callable[[sqlite3.Connection], T]) -> T:
        """All of it, in one transaction, or nothing."""
        with self._writing, writing(self.path):
            if self._writer is None:
                self._writer = created(self.path, self._definitions, self._flush)
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                result = done(self._writer)
                self._writer.execute("COMMIT")
            except BaseException:
                # What is not committed goes with the connection, and the next one to write has another.
                self._writer.close()
                self._writer = None
                raise
        return result

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut_to(self, stream: str) -> int | None:
        """The tick up to which events of a stream are gone; None if it has all."""
        return max((tick for (name, _), tick in self._cuts().items() if name == stream), default=None)

    def newest(self) -> Position:
        with self._snapshot():
            return super().newest()

    def resumed(self, horizons: Mapping[str, int]) -> Position:
        with self._snapshot():
            return super().resumed(horizons)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        with self._snapshot():
            return super().read(stream, start, end)

    def waiting(self, position: Position) -> tuple[int, int]:
        # A sum of pieces, less what the position covers of them: nothing, unless a state was resumed there.
        with self._snapshot():
            origins, walk = self._origins(), self._walk(position)
            rows, size = self._told_after(position.commit)
            for stream, origin in origins:
                horizon = walk.horizon(stream, origin)
                for entry in self._covered(stream, origin, horizon, position.commit):
                    above_rows, above_size = self._above(entry, horizon)
                    rows, size = rows - entry.rows + above_rows, size - entry.bytes + above_size
            return rows, size

    def told(self, stream: str, origin: str, lows: Ticks, highs: Ticks) -> tuple[pa.RecordBatch, list[int]]:
        """All that one origin tells of the ticks in these ranges, each above its low up to its high, in order and apart
        from each other. And the places in it at which a run begins: between events of a run nothing happened.

        Each piece that has anything of a range is read once, and no other."""
        with self._snapshot():
            if len(lows) and lows[0] < (cut := self._cuts().get((stream, origin), NOTHING)):
                raise was_cut(self.path, f"{stream} has nothing up to tick {cut}")
            joined = self._origins().get((stream, origin))
            found, runs, rows = [pa.RecordBatch.from_pylist([], self.shapes[stream].schema)], list[int](), 0
            for events, begins, ends in [] if joined is None else self._within(stream, origin, joined[1], lows, highs):
                places = places_between(begins, ends)
                if len(places):
                    found.append(events.take(pa.array(places)))
                    runs += [rows, *(rows + 1 + np.flatnonzero(np.diff(places) != 1)).tolist()]
                    rows += len(places)
        return pa.concat_batches(found), runs

    def _within(
        self, stream: str, origin: str, silent: int, lows: Ticks, highs: Ticks
    ) -> Iterator[tuple[pa.RecordBatch, Ticks, Ticks]]:
        """Pieces, with the places in them at which what lies in the ranges begins and ends."""
        n, lows = 0, np.maximum(lows, silent)
        while n < len(lows):
            lo, hi = int(lows[n]), int(highs[n])
            if hi <= lo:
                n += 1
                continue
            with closing(self._pieces(stream, origin, lo, hi)) as pieces:
                entry, events = next(pieces, (None, None))
            if entry is None or entry.lo > lo:
                missing = hi if entry is None else entry.lo
                raise damaged(self.path, f"nothing is told of {stream}, ticks above {lo} up to {missing}")
            end = n + int(np.searchsorted(lows[n:], entry.hi))
            if events is not None:
                ticks = ticks_of(events)
                yield events, *(np.searchsorted(ticks, bound[n:end], side="right") for bound in (lows, highs))
            n = end
            if highs[end - 1] > entry.hi:
                n, lows[end - 1] = end - 1, entry.hi

    def last_number(self, producer: str) -> int | None:
        """The greatest that the producer has used; None if it is not known."""
        with reading(self.path):
            return producers.last_number(self._db(), self.path, producer)

    def records(self, producer: str, first: int, last: int) -> list[Record]:
        """What became of these numbers of a producer, in order, as far as it is remembered."""
        with reading(self.path):
            return producers.between(self._db(), self.path, producer, first, last)

    def _told_after(self, commit: int) -> tuple[int, int]:
        """Rows and bytes of these streams."""
        theirs = "SELECT count(*) FROM streams"
        if self._select(theirs) == [(len(self.shapes),)]:
            counted = "SELECT coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM commits WHERE seq > ?"
            ((rows, size),) = self._select(counted, commit)
            return rows, size
        counted = "SELECT stream, sum(rows), sum(bytes) FROM pieces WHERE id > ? GROUP BY stream"
        ((last_piece,),) = self._select("SELECT coalesce(max(last_piece), 0) FROM commits WHERE seq <= ?", commit)
        found = [(rows, size) for stream, rows, size in self._select(counted, last_piece) if stream in self.shapes]
        return sum(rows for rows, _ in found), sum(size for _, size in found)

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

    def after(self, position: Position, limit: Limit) -> Position:
        with self._snapshot():
            return super().after(position, limit)

    def _commits(self, after: int) -> Generator[tuple[int, Sequence[Entry]], None, None]:
        with closing(self._whole_commits(after)) as commits:
            for seq, entries in commits:
                yield seq, [entry for entry in entries if entry.stream in self.shapes]

    def _whole_commits(self, after: int) -> Generator[tuple[int, Sequence[Entry]], None, None]:
        """With streams that nobody asks for."""
        if after < (first := self._first()):
            raise was_cut(self.path, f"it begins after commit {first}, and was read up to {after}")
        commits = "SELECT seq, last_piece, last_record, rows, bytes, at, crc FROM commits WHERE seq >= ? ORDER BY seq"
        pieces = f"SELECT {_ENTRY} FROM pieces WHERE id > ? AND id <= ? ORDER BY id"
        with reading(self.path), closing(self._db().execute(commits, (after,))) as found:
            seen, passed = after - 1, 0
            for seq, last_piece, last_record, rows, size, at, crc in found:
                if crc != checksum(seq, last_piece, last_record, rows, size, at) or seq != seen + 1:
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

    def _pieces(
        self, stream: str, origin: str, lo: int, hi: int
    ) -> Generator[tuple[Entry, pa.RecordBatch | None], None, None]:
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
        # Nothing is told of what was cut away, as of silence; whoever asks for it is refused before.
        return {of: (seq, max(lo, cut)) for of, (seq, lo, cut) in self._known_origins().items()}

    def _cuts(self) -> Mapping[tuple[str, str], int]:
        return {of: cut for of, (_, _, cut) in self._known_origins().items() if cut > NOTHING}

    def _known_origins(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        found = {}
        for stream, origin, seq, lo, cut, crc in self._select("SELECT stream, origin, seq, lo, cut, crc FROM origins"):
            if crc != checksum(stream, origin, seq, lo, cut):
                raise damaged(self.path, f"an origin of {stream}")
            if stream in self.shapes:
                found[stream, origin] = seq, lo, cut
        return found

    def _first(self) -> int:
        """The commit that the log was cut at."""
        ((seq,),) = self._select("SELECT min(seq) FROM commits")
        return 0 if seq is None else int(seq)

    def _last(self) -> int:
        ((seq,),) = self._select("SELECT max(seq) FROM commits")
        return int(seq)

    def _horizon(self, stream: str, origin: str) -> int:
        return self._horizon_at(stream, origin, END)

    def _horizon_at(self, stream: str, origin: str, commit: int) -> int:
        query = f"SELECT {_ENTRY} {_OF_ORIGIN} AND seq <= ? ORDER BY hi DESC LIMIT 1"
        found = self._select(query, stream, origin, commit)
        if found:
            return self._entry(found[0]).hi
        if (stream, origin) not in self._cuts():
            raise damaged(self.path, f"nothing is told of {stream} by origin {origin}")
        return self._cuts()[stream, origin]

    def _uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        query = f"SELECT {_ENTRY} {_OF_ORIGIN} AND hi > ? ORDER BY hi LIMIT 1"
        return next((self._entry(row).commit for row in self._select(query, stream, origin, tick)), None)

    def _select(self, query: str, *values: int | str) -> list[tuple[Any, ...]]:
        with reading(self.path):
            return self._db().execute(query, values).fetchall()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """All that this thread reads meanwhile is of one moment."""
        db = self._db()
        if db.in_transaction:
            yield
            return
        with reading(self.path):
            db.execute("BEGIN")
            try:
                yield
            finally:
                db.execute("ROLLBACK")

    def _db(self) -> sqlite3.Connection:
        thread = threading.get_ident()
        found = self._readers.get(thread)
        if found is None:
            found = self._readers[thread] = connected(self.path, self._definitions)
        return found


def _is_whole(entries: Sequence[Entry], seq: int, count: int, rows: int, size: int) -> bool:
    return (
        len(entries) == count
        and all(entry.commit == seq for entry in entries)
        and sum(entry.rows for entry in entries) == rows
        and sum(entry.bytes for entry in entries) == size
    )
