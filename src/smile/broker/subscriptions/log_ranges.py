"""Ranges of streams, read from the log for many subscriptions. Subscriptions that follow a stream closely read the same
ranges: each is read once. A subscription that is slow has no memory of its own here.
"""

from collections import deque
from collections.abc import Mapping
from threading import Lock

from smile import limits
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece

RANGE_BYTES = 2**20
"""The size of a range, unless a single piece of the log is larger."""


class LogRanges:
    """Thread-safe."""

    def __init__(self, log: DurableLog) -> None:
        self._log = log
        self._lock = Lock()
        self._recent: deque[StreamPiece] = deque()
        self._recent_bytes = 0
        self._horizons: dict[str, tuple[int, Mapping[str, int]]] = {}
        self.version = 0
        """Changes with every commit."""

    def advance(self) -> None:
        """There is a new commit in the log."""
        self.version += 1

    def horizons(self, stream: str) -> Mapping[str, int]:
        """The horizon of each origin."""
        version = self.version
        known_version, horizons = self._horizons.get(stream, (-1, {}))
        if known_version != version:
            horizons = self._log.stream_horizons(stream)
            self._horizons[stream] = version, horizons
        return horizons

    def read(self, stream: str, origin: str, after: int) -> StreamPiece | None:
        """A range that begins after this tick; None if nothing is known there. Raises E097 if it was removed."""
        with self._lock:
            for piece in reversed(self._recent):
                if piece.stream == stream and piece.origin == origin and piece.lo <= after < piece.hi:
                    return piece.above(after)
        piece_read = self._log.read_range(stream, origin, after, RANGE_BYTES)
        if piece_read is not None:
            with self._lock:
                self._recent.append(piece_read)
                self._recent_bytes += piece_read.bytes
                while len(self._recent) > 1 and (
                    self._recent_bytes > limits.ranges_cached_bytes_max or len(self._recent) > limits.ranges_cached_max
                ):
                    self._recent_bytes -= self._recent.popleft().bytes
        return piece_read
