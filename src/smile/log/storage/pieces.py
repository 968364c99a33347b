"""Prepares pieces for a log: checks them, merges those of the same stream and origin, and splits them into commits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from smile.algebra.types import TICK_MAX
from smile.decoding.stream_schema import StreamSchema, with_added_columns
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import END, HORIZON_MIN
from smile.log.storage.piece_log import slice_events, ticks_of


@dataclass(frozen=True)
class StreamPiece:
    """All events of one stream and origin in (lo, hi], in tick order. A piece without events declares silence."""

    stream: str
    origin: str
    lo: int
    hi: int
    events: pa.RecordBatch | None = None

    def above(self, tick: int) -> "StreamPiece":
        """The events and the silence of the piece after `tick`."""
        if tick <= self.lo:
            return self
        events = None if self.events is None else slice_events(self.events, tick, self.hi)
        return replace(self, lo=tick, events=events)

    @property
    def rows(self) -> int:
        return 0 if self.events is None else int(self.events.num_rows)

    @property
    def bytes(self) -> int:
        return 0 if self.events is None else int(self.events.nbytes)


def check_piece(piece: StreamPiece, schemas: Mapping[str, StreamSchema]) -> StreamPiece:
    """Returns the piece, or raises an error if it is malformed."""
    if piece.stream not in schemas:
        hint = did_you_mean(piece.stream, schemas) or f"There are {', '.join(schemas)}."
        raise error("E076", f"there is no stream {piece.stream}", hint=hint)
    if not HORIZON_MIN <= piece.lo <= piece.hi <= END:
        raise _piece_error(piece, "the ticks are out of order or out of range")
    if piece.events is None:
        return piece
    schema = schemas[piece.stream].arrow_schema
    piece = replace(piece, events=with_added_columns(piece.events, schema))
    assert piece.events is not None
    if not schema.equals(piece.events.schema):
        raise _piece_error(piece, "it does not have the columns of its stream")
    if piece.events.column(0).null_count:
        raise _piece_error(piece, "it has an event without a tick")
    ticks = ticks_of(piece.events)
    if len(ticks) and not (piece.lo < ticks.min() and ticks.max() <= min(piece.hi, TICK_MAX)):
        raise _piece_error(piece, "it has an event outside them")
    if not bool((ticks[1:] > ticks[:-1]).all()):
        raise _piece_error(piece, "its events are not in order of ticks")
    return piece


def merge_pieces(pieces: Iterable[StreamPiece]) -> list[StreamPiece]:
    """One piece for each stream and origin."""
    merged_pieces: dict[tuple[str, str], StreamPiece] = {}
    for piece in pieces:
        earlier = merged_pieces.get((piece.stream, piece.origin))
        if earlier is None:
            merged_pieces[piece.stream, piece.origin] = piece
        elif piece.lo > earlier.hi:
            raise gap_error(piece, earlier.hi)
        elif piece.hi > earlier.hi:
            batches = [b for b in (earlier.events, piece.above(earlier.hi).events) if b is not None]
            events = pa.concat_batches(batches) if batches else None
            merged_pieces[piece.stream, piece.origin] = replace(earlier, hi=piece.hi, events=events)
    return list(merged_pieces.values())


def check_joining(piece: StreamPiece, horizon: int, is_member: bool) -> None:
    """Raises an error if a new origin's first piece has an event at or below its stream's horizon, where everything is
    already known. If the origin becomes a member of a stream with many origins, it must begin above every horizon of
    the stream that was announced."""
    if is_member and (piece.hi < max(0, horizon) or horizon == END):
        known_to = "its end" if horizon == END else f"tick {horizon}"
        raise _piece_error(piece, f"its origin cannot join there: the stream is known up to {known_to}")
    if piece.rows and (tick := int(ticks_of(piece.events)[0])) <= horizon:
        problem = f"the first event of its origin is at tick {tick}, but the stream is known up to {horizon}"
        raise _piece_error(piece, problem)


def gap_error(piece: StreamPiece, horizon: int) -> SmileError:
    message = f"nothing is known of ticks above {horizon} up to {piece.lo}"
    return _piece_error(piece, message, f"First append the events above {horizon}, or declare silence.")


def split_into_commits(pieces: Sequence[StreamPiece], rows_max: int, bytes_max: int) -> list[list[StreamPiece]]:
    """Splits the pieces into as many commits as needed, so that none is too large. Each piece is split evenly, so that
    the streams advance together. Each begins in the first commit, so that no stream passes an origin that joins."""
    rows, size = sum(piece.rows for piece in pieces), sum(piece.bytes for piece in pieces)
    count = 1
    if rows > rows_max or size > bytes_max:
        # Rounding may add one row for each piece.
        count = max(-(-rows // max(1, rows_max - len(pieces))), -(-size // bytes_max))
    commits: list[list[StreamPiece]] = [[] for _ in range(count)]
    for piece in pieces:
        for commit, slice_ in zip(commits, _split_evenly(piece, count), strict=False):
            commit.append(slice_)
    return [commit for commit in commits if commit]


def _split_evenly(piece: StreamPiece, count: int) -> list[StreamPiece]:
    """At most `count` consecutive pieces. If the piece has events, each of them has some."""
    events = piece.events
    if events is None or count == 1:
        return [piece]
    ends = np.unique([-(-n * piece.rows // count) for n in range(1, count + 1)]).tolist()
    ticks = ticks_of(events)
    slices, lo, begin = [], piece.lo, 0
    for end in ends:
        hi = piece.hi if end == piece.rows else int(ticks[end - 1])
        slices.append(replace(piece, lo=lo, hi=hi, events=events.slice(begin, end - begin)))
        lo, begin = hi, end
    return slices


def _piece_error(piece: StreamPiece, problem: str, hint: str | None = None) -> SmileError:
    location = f"{piece.stream} from origin {piece.origin}, ticks above {piece.lo} up to {piece.hi}"
    return error("E088", f"{location}: {problem}", hint=hint)
