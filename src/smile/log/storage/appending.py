"""Appends pieces to the tables of a durable log, within one transaction.

Only what is new is written. The pieces of each stream and origin continue one another without a gap.
"""

import sqlite3
import zlib
from collections.abc import Mapping, Sequence

from smile.decoding.stream_schema import StreamSchema
from smile.errors import error
from smile.horizons import HORIZON_MIN
from smile.log.storage import producers, unique_values
from smile.log.storage.database import checksum
from smile.log.storage.pieces import StreamPiece, check_joining, gap_error, split_into_commits
from smile.log.storage.producers import ProducerRecord

_INSERT_PIECE = "INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


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
    new, joining_origins = list[StreamPiece](), set[tuple[str, str]]()
    for piece in pieces:
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
    for n, commit_pieces in enumerate(commits, 1):
        seq += 1
        rows = [_piece_row(seq, piece) for piece in commit_pieces]
        db.executemany(_INSERT_PIECE, [(last_piece + i, *row) for i, row in enumerate(rows, 1)])
        last_piece += len(rows)
        record = last_record if n == len(commits) else last_record - len(records)
        commit_row = (seq, last_piece, record, sum(row[5] for row in rows), sum(row[6] for row in rows), time_us)
        db.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)", (*commit_row, checksum(*commit_row)))
    if joining_origins:
        _insert_origins(db, joining_origins, commits, int(seq) - len(commits))
    return int(seq)


def _piece_row(seq: int, piece: StreamPiece) -> tuple[int, str, str, int, int, int, int, int | None, int, object]:
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
