"""Appends pieces to the tables of a durable log, within one transaction.

Only what is new is written. The pieces of each stream and origin continue one another without a gap.

A commit of silence that follows another one replaces it, with the pieces of both: silence does not make the log larger.
A position after the replaced commit is then one after a part of its replacement. So each piece has the number of the
last commit that has extended it, and no number is used twice.
"""

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smile.decoding.stream_schema import StreamSchema
from smile.errors import error
from smile.horizons import END, HORIZON_MIN
from smile.log.storage import producers, unique_values, whole_commits
from smile.log.storage.database import checksum
from smile.log.storage.pieces import StreamPiece, check_joining, gap_error, split_into_commits
from smile.log.storage.producers import ProducerRecord

_INSERT_PIECE = "INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PIECE_COLUMNS = "seq, stream, origin, lo, hi, rows, bytes, events_crc, crc, events"

PieceRow = tuple[Any, ...]
"""A row of the table `pieces`, without its id."""


@dataclass(frozen=True)
class NewestSilence:
    """The newest commit, if it has nothing but silence: the last piece before it, and its rows by stream and origin."""

    previous_piece: int
    rows: Mapping[tuple[str, str], PieceRow]

    def horizon(self, piece: StreamPiece) -> int | None:
        row = self.rows.get((piece.stream, piece.origin))
        return None if row is None else int(row[4])


def append(
    db: sqlite3.Connection,
    streams: Mapping[str, StreamSchema],
    pieces: Sequence[StreamPiece],
    records: Sequence[ProducerRecord],
    time_us: int,
    rows_max: int,
    bytes_max: int,
    whole: bool = False,
) -> int:
    """Appends what is new in the pieces, in one or more commits within the limits. If `whole`, it is one commit of as
    many pieces as needed. Returns the newest commit's number.

    The records belong to the last commit. Records of events that are already known need no commit, and belong to the
    next one."""
    newest_query = "SELECT seq, last_piece FROM commits ORDER BY seq DESC LIMIT 1"
    seq, last_piece = db.execute(newest_query).fetchone()
    silence = _newest_silence(db)
    new, joining_origins = list[StreamPiece](), set[tuple[str, str]]()
    for piece in pieces:
        horizon = None if silence is None else silence.horizon(piece)
        if horizon is None:
            horizon = _horizon(db, piece.stream, piece.origin)
        # Of an origin that joins, also the beginning is new: from there on, it holds the stream's horizon back.
        is_new = horizon is None and streams[piece.stream].stream.many_origins
        if horizon is None:
            joining_origins.add((piece.stream, piece.origin))
            horizon = _joining_horizon(db, streams, piece)
        if piece.lo > horizon:
            raise gap_error(piece, horizon)
        if piece.hi > horizon or is_new:
            new.append(piece.above(horizon))
            unique_values.insert_keys(db, streams[piece.stream].stream, new[-1])
    last_record = producers.insert_records(db, records)
    commits = split_into_commits(new, rows_max, bytes_max)
    if whole and commits:
        commits = [[piece for commit_pieces in commits for piece in commit_pieces]]
    replaced = silence if _is_silence(new) and not (records or joining_origins) else None
    for n, commit_pieces in enumerate(commits, 1):
        seq += 1
        rows = [_piece_row(seq, piece) for piece in commit_pieces]
        if replaced is not None:
            rows = _merge_silence(replaced, rows)
            last_piece = replaced.previous_piece
            db.execute("DELETE FROM pieces WHERE id > ?", (last_piece,))
            db.execute("DELETE FROM commits WHERE seq = ?", (seq - 1,))
        db.executemany(_INSERT_PIECE, [(last_piece + i, *row) for i, row in enumerate(rows, 1)])
        last_piece += len(rows)
        record = last_record if n == len(commits) else last_record - len(records)
        commit_row = (seq, last_piece, record, sum(row[5] for row in rows), sum(row[6] for row in rows), time_us)
        db.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)", (*commit_row, checksum(*commit_row)))
    if whole and any(p.rows for p in new) and not any(streams[p.stream].stream.whole_commits for p in new):
        whole_commits.insert(db, int(seq))
    if joining_origins:
        _insert_origins(db, joining_origins, commits, int(seq) - len(commits))
    return int(seq)


def _newest_silence(db: sqlite3.Connection) -> NewestSilence | None:
    """None if the newest commit has events, or must stay: it is the commit that the log is truncated to, an origin has
    joined in it, or it is damaged, which its readers report."""
    commits = db.execute("SELECT seq, last_piece, rows FROM commits ORDER BY seq DESC LIMIT 2").fetchall()
    if len(commits) < 2 or commits[0][2]:
        return None
    (seq, last_piece, _), (previous_seq, previous_piece, _) = commits
    if db.execute("SELECT 1 FROM origins WHERE seq = ? LIMIT 1", (seq,)).fetchone() is not None:
        return None
    rows = db.execute(f"SELECT {_PIECE_COLUMNS} FROM pieces WHERE id > ? ORDER BY id", (previous_piece,)).fetchall()
    rows_by_origin = {(row[1], row[2]): row for row in rows}
    is_intact = len(rows_by_origin) == len(rows) == last_piece - previous_piece and all(
        previous_seq < row[0] <= seq and row[8] == checksum(*row[:8]) for row in rows
    )
    return NewestSilence(previous_piece, rows_by_origin) if is_intact else None


def _is_silence(pieces: Sequence[StreamPiece]) -> bool:
    """Whether it is silence that may go on: no events, and no stream ends."""
    return all(not piece.rows and piece.hi < END for piece in pieces)


def _merge_silence(replaced: NewestSilence, rows: Sequence[PieceRow]) -> list[PieceRow]:
    """The rows of a commit of silence that replaces another one. Those that were not extended come first, unchanged:
    the newest piece has the number of its commit."""
    extended_rows = []
    for row in rows:
        earlier = replaced.rows.get((row[1], row[2]))
        fields = row[:8] if earlier is None else (*row[:3], earlier[3], *row[4:8])
        extended_rows.append((*fields, checksum(*fields), None))
    extended = {(row[1], row[2]) for row in rows}
    return [*(row for key, row in replaced.rows.items() if key not in extended), *extended_rows]


def _piece_row(seq: int, piece: StreamPiece) -> PieceRow:
    blob = piece.events.serialize() if piece.events is not None and piece.events.num_rows else None
    size, crc = (0, None) if blob is None else (int(blob.size), zlib.crc32(blob))
    row = (seq, piece.stream, piece.origin, piece.lo, piece.hi, piece.rows, size, crc)
    return *row, checksum(*row), blob


def _insert_origins(
    db: sqlite3.Connection, joining: set[tuple[str, str]], commits: Sequence[Sequence[StreamPiece]], last_commit: int
) -> None:
    """Inserts the origins that appear for the first time."""
    first_seen: dict[tuple[str, str], tuple[int, int]] = {}
    for n, commit_pieces in enumerate(commits, 1):
        for piece in commit_pieces:
            first_seen.setdefault((piece.stream, piece.origin), (last_commit + n, piece.lo))
    rows = [(*origin, *seen, HORIZON_MIN) for origin, seen in first_seen.items() if origin in joining]
    db.executemany("INSERT INTO origins VALUES (?, ?, ?, ?, ?, ?)", [(*row, checksum(*row)) for row in rows])


def _joining_horizon(db: sqlite3.Connection, streams: Mapping[str, StreamSchema], piece: StreamPiece) -> int:
    """The horizon of a new origin: its stream's horizon, up to which the stream is already known."""
    origins = db.execute("SELECT origin FROM origins WHERE stream = ?", (piece.stream,)).fetchall()
    horizons = [_horizon(db, piece.stream, origin) for (origin,) in origins]
    if origins and streams[piece.stream].stream.unique:
        hint = "One broker enforces UNIQUE. Publish to the stream there, or give each broker a stream of its own."
        raise error("E088", f"{piece.stream} has UNIQUE columns, and so only one origin", hint=hint)
    stream_horizon = min((horizon for horizon in horizons if horizon is not None), default=HORIZON_MIN)
    check_joining(piece, stream_horizon, streams[piece.stream].stream.many_origins)
    return stream_horizon


def _horizon(db: sqlite3.Connection, stream: str, origin: str) -> int | None:
    """None for an origin that the log does not have."""
    newest_query = "SELECT max(hi) FROM pieces WHERE stream = ?1 AND origin = ?2"
    truncated_query = "SELECT cut FROM origins WHERE stream = ?1 AND origin = ?2"
    ((horizon,),) = db.execute(f"SELECT coalesce(({newest_query}), ({truncated_query}))", (stream, origin)).fetchall()
    return None if horizon is None else int(horizon)
