"""Pieces on their way into a log: after these steps each is well-formed, there is one of each stream and origin, and it
has only what is new.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from smile.errors import SmileError, error, nearest
from smile.log.frame import END, NOTHING
from smile.log.ranges import cut, ticks_of
from smile.log.shape import TICK_MAX, Shape


@dataclass(frozen=True)
class StreamPiece:
    """All that happened on one stream of one origin in (lo, hi], in order of ticks. No events are silence."""

    stream: str
    origin: str
    lo: int
    hi: int
    events: pa.RecordBatch | None = None

    def above(self, tick: int) -> "StreamPiece":
        """What it says of ticks above one of its own."""
        if tick <= self.lo:
            return self
        events = None if self.events is None else cut(self.events, tick, self.hi)
        return replace(self, lo=tick, events=events)

    @property
    def rows(self) -> int:
        return 0 if self.events is None else int(self.events.num_rows)

    @property
    def bytes(self) -> int:
        return 0 if self.events is None else int(self.events.nbytes)


def checked(piece: StreamPiece, shapes: Mapping[str, Shape]) -> StreamPiece:
    """The same, if it can be a piece at all."""
    if piece.stream not in shapes:
        hint = nearest(piece.stream, shapes) or f"There are {', '.join(shapes)}."
        raise error("E076", f"there is no stream {piece.stream}", hint=hint)
    if not NOTHING <= piece.lo <= piece.hi <= END:
        raise _unfit(piece, "these are no ticks in order")
    if piece.events is None:
        return piece
    if not shapes[piece.stream].schema.equals(piece.events.schema):
        raise _unfit(piece, "it does not have the columns of its stream")
    if piece.events.column(0).null_count:
        raise _unfit(piece, "it has an event without a tick")
    ticks = ticks_of(piece.events)
    if len(ticks) and not (piece.lo < ticks.min() and ticks.max() <= min(piece.hi, TICK_MAX)):
        raise _unfit(piece, "it has an event outside them")
    if not bool((ticks[1:] > ticks[:-1]).all()):
        raise _unfit(piece, "its events are not in order of ticks")
    return piece


def merged(pieces: Iterable[StreamPiece]) -> list[StreamPiece]:
    """One of each stream and origin."""
    found: dict[tuple[str, str], StreamPiece] = {}
    for piece in pieces:
        before = found.get((piece.stream, piece.origin))
        if before is None:
            found[piece.stream, piece.origin] = piece
        elif piece.lo > before.hi:
            raise gap(piece, before.hi)
        elif piece.hi > before.hi:
            batches = [b for b in (before.events, piece.above(before.hi).events) if b is not None]
            events = pa.concat_batches(batches) if batches else None
            found[piece.stream, piece.origin] = replace(before, hi=piece.hi, events=events)
    return list(found.values())


def refuse_joining(piece: StreamPiece, horizon: int) -> None:
    """The first piece of an origin, unless it is silent up to its stream's horizon: all is known there already."""
    if piece.rows and (tick := int(ticks_of(piece.events)[0])) <= horizon:
        what = f"it is the first of its origin, with an event at tick {tick}, and all is known up to {horizon}"
        raise _unfit(piece, what)


def gap(piece: StreamPiece, horizon: int) -> SmileError:
    message = f"nothing is known of ticks above {horizon} up to {piece.lo}"
    return _unfit(piece, message, f"Append what happened from {horizon} on first, or say that it was silence.")


def parts(pieces: Sequence[StreamPiece], rows_max: int, bytes_max: int) -> list[list[StreamPiece]]:
    """The pieces cut into so many parts that none is too large. Each piece is cut evenly, so that streams advance
    together; each begins in the first part, so that no stream passes an origin that is about to join."""
    rows, size = sum(piece.rows for piece in pieces), sum(piece.bytes for piece in pieces)
    count = 1
    if rows > rows_max or size > bytes_max:
        # Rounding adds up to a row of each piece.
        count = max(-(-rows // max(1, rows_max - len(pieces))), -(-size // bytes_max))
    found: list[list[StreamPiece]] = [[] for _ in range(count)]
    for piece in pieces:
        for part, cut_out in zip(found, _evenly(piece, count), strict=False):
            part.append(cut_out)
    return [part for part in found if part]


def _evenly(piece: StreamPiece, count: int) -> list[StreamPiece]:
    """At most `count` pieces that follow one another; none of them is silence if it has events."""
    events = piece.events
    if events is None or count == 1:
        return [piece]
    ends = np.unique([-(-n * piece.rows // count) for n in range(1, count + 1)]).tolist()
    ticks = ticks_of(events)
    found, lo, begin = [], piece.lo, 0
    for end in ends:
        hi = piece.hi if end == piece.rows else int(ticks[end - 1])
        found.append(replace(piece, lo=lo, hi=hi, events=events.slice(begin, end - begin)))
        lo, begin = hi, end
    return found


def _unfit(piece: StreamPiece, what: str, hint: str | None = None) -> SmileError:
    place = f"{piece.stream} from origin {piece.origin}, ticks above {piece.lo} up to {piece.hi}"
    return error("E088", f"{place}: {what}", hint=hint)
