"""How pieces come to be rows of a log's tables: within a transaction, commit after commit, each with what it tells."""

import sqlite3
import zlib
from collections.abc import Sequence

from smile.log import producers
from smile.log.database import checksum
from smile.log.frame import NOTHING
from smile.log.pieces import StreamPiece, gap, parts, refuse_joining
from smile.log.producers import Record

_PIECE = "INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def append(
    db: sqlite3.Connection,
    told: Sequence[StreamPiece],
    records: Sequence[Record],
    at: int,
    rows_max: int,
    bytes_max: int,
) -> int:
    """What is new in the pieces, in commits that are not larger; the records belong to the last of them. Records of
    events that are known already need no commit, and belong to the next."""
    newest = "SELECT seq, last_piece FROM commits ORDER BY seq DESC LIMIT 1"
    seq, last_piece = db.execute(newest).fetchone()
    new, joining = list[StreamPiece](), set[tuple[str, str]]()
    for piece in told:
        horizon = _horizon(db, piece.stream, piece.origin)
        if horizon is None:
            joining.add((piece.stream, piece.origin))
            horizon = _joined(db, piece)
        if piece.lo > horizon:
            raise gap(piece, horizon)
        if piece.hi > horizon:
            new.append(piece.above(horizon))
    last_record = producers.put(db, records)
    cut = parts(new, rows_max, bytes_max)
    for n, part in enumerate(cut, 1):
        seq += 1
        rows = [_row(seq, piece) for piece in part]
        db.executemany(_PIECE, [(last_piece + i, *row) for i, row in enumerate(rows, 1)])
        last_piece += len(rows)
        record = last_record if n == len(cut) else last_record - len(records)
        commit = (seq, last_piece, record, sum(row[5] for row in rows), sum(row[6] for row in rows), at)
        db.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)", (*commit, checksum(*commit)))
    if joining:
        _join(db, joining, cut, int(seq) - len(cut))
    return int(seq)


def _row(seq: int, piece: StreamPiece) -> tuple[int, str, str, int, int, int, int, int | None, int, object]:
    blob = piece.events.serialize() if piece.events is not None and piece.events.num_rows else None
    size, crc = (0, None) if blob is None else (int(blob.size), zlib.crc32(blob))
    row = (seq, piece.stream, piece.origin, piece.lo, piece.hi, piece.rows, size, crc)
    return *row, checksum(*row), blob


def _join(
    db: sqlite3.Connection, joining: set[tuple[str, str]], cut: Sequence[Sequence[StreamPiece]], before: int
) -> None:
    """Origins that were not heard of before."""
    first: dict[tuple[str, str], tuple[int, int]] = {}
    for n, part in enumerate(cut, 1):
        for piece in part:
            first.setdefault((piece.stream, piece.origin), (before + n, piece.lo))
    rows = [(*of, *joined, NOTHING) for of, joined in first.items() if of in joining]
    db.executemany("INSERT INTO origins VALUES (?, ?, ?, ?, ?, ?)", [(*row, checksum(*row)) for row in rows])


def _joined(db: sqlite3.Connection, piece: StreamPiece) -> int:
    """Up to where an origin that joins can tell nothing new: its stream's horizon."""
    origins = db.execute("SELECT origin FROM origins WHERE stream = ?", (piece.stream,)).fetchall()
    others = [_horizon(db, piece.stream, origin) for (origin,) in origins]
    stream = min((other for other in others if other is not None), default=NOTHING)
    refuse_joining(piece, stream)
    return stream


def _horizon(db: sqlite3.Connection, stream: str, origin: str) -> int | None:
    """None of an origin that was not heard of."""
    newest = "SELECT max(hi) FROM pieces WHERE stream = ?1 AND origin = ?2"
    cut = "SELECT cut FROM origins WHERE stream = ?1 AND origin = ?2"
    ((horizon,),) = db.execute(f"SELECT coalesce(({newest}), ({cut}))", (stream, origin)).fetchall()
    return None if horizon is None else int(horizon)
