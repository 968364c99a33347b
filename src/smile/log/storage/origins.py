"""Who the origins of a stream are. Origins join a stream with many origins, and leave it, by pieces of its log.

The first piece of an origin makes it a member: from then on, its horizon holds back the horizon of the stream. So an
origin that is to come joins with silence, before the others go on. An origin leaves with silence to the end of time,
and holds nothing back any more. It cannot return: a broker that joins again takes another number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from smile.errors import error
from smile.horizons import END, HORIZON_MIN
from smile.log.storage.pieces import StreamPiece


@dataclass(frozen=True)
class StreamOrigin:
    """`start` is the tick up to which it has no events, because it joined there."""

    start: int
    horizon: int

    @property
    def has_left(self) -> bool:
        return self.horizon == END


def joining_piece(stream: str, origin: str, start: int) -> StreamPiece:
    """With this piece, the origin joins: all its events are above `start`, which must not be below the horizon of the
    stream."""
    return StreamPiece(stream, origin, HORIZON_MIN, max(0, start))


def leaving_piece(stream: str, origin: str, origins: Mapping[str, StreamOrigin]) -> StreamPiece:
    """With this piece, the origin leaves: it has no events above its horizon. `origins` are those of the stream. The
    last one cannot leave: the stream would be finished, and nobody could join any more."""
    if origin not in origins:
        raise error("E088", f"{stream} has no origin {origin}", hint=f"It has {', '.join(origins) or 'none'}.")
    if all(other == origin or state.has_left for other, state in origins.items()):
        raise error("E088", f"{origin} is the last origin of {stream}", hint="Let another origin join first.")
    return StreamPiece(stream, origin, origins[origin].horizon, END)
