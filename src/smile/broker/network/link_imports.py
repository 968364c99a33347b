"""The imports of one link: what this broker receives from the neighbour at its other end."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Lock
from typing import Any

from smile import limits
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.imports.import_frame import ImportFrame
from smile.broker.imports.stream_cache import StreamCache, StreamRange
from smile.broker.imports.view_cache import ViewCache
from smile.broker.network.host import NetworkHost
from smile.broker.network.range_relay import RangeRelay
from smile.broker.network.view_cursor import from_link_horizons, to_link_horizons
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.links.imports import Import
from smile.links.messages import OriginRange, StreamHorizons

_PENDING_BYTES_MAX = limits.link_window_bytes // 2
"""While more than this waits for the log, the neighbour is not told that it may send more."""


class LogQueue:
    """What one link has received and the log does not have yet. Thread-safe. `wake` is called when it has become
    shorter, or has failed."""

    def __init__(self, host: NetworkHost, wake: Callable[[], None]) -> None:
        self._host, self._wake = host, wake
        self._bytes = 0
        self._lock = Lock()
        self.problem: SmileError | None = None
        """Why something could not be appended. The link then ends, and the next one asks for it again."""

    @property
    def has_room(self) -> bool:
        return self._bytes <= _PENDING_BYTES_MAX

    def append(self, append: CacheAppend) -> None:
        with self._lock:
            self._bytes += append.bytes
        try:
            future = self._host.append_imported(append)
        except BaseException:
            self._finish(append.bytes)
            raise
        future.add_done_callback(lambda done: self._appended(append.bytes, done))

    def _appended(self, size: int, future: "Future[Any]") -> None:
        was_full = not self.has_room
        self._finish(size)
        problem = future.exception()
        if problem is not None:
            self.problem = problem if isinstance(problem, SmileError) else error("E084", f"{problem!r}")
        if problem is not None or was_full:
            self._wake()

    def _finish(self, size: int) -> None:
        with self._lock:
            self._bytes -= size


class StreamImportSink:
    """Takes in an imported stream. `relay` has the questions of other brokers about it."""

    def __init__(self, cache: StreamCache, queue: LogQueue, relay: RangeRelay) -> None:
        self._cache, self._queue, self._relay = cache, queue, relay

    def horizons(self) -> Mapping[str, int]:
        return self._cache.horizons

    def start(self) -> int:
        return HORIZON_MIN

    def append(self, origin: str, lo: int, hi: int, body: bytes, members: int) -> None:
        piece = self._cache.decode(origin, lo, hi, body)
        data = StreamRange(piece, members)
        self._queue.append(CacheAppend(self._cache.import_.name, self._cache, data, piece.rows, len(body)))

    def members(self) -> int:
        return 0 if self._cache.membership is None else self._cache.membership.version

    def append_members(self, version: int, body: bytes) -> None:
        membership = self._cache.decode_membership(version, body)
        self._queue.append(CacheAppend(self._cache.import_.name, self._cache, membership, 0, len(body)))

    def questions(self, now: float) -> list[OriginRange]:
        return self._relay.questions(self._queue, now)

    def receive_answer(self, origin: str, lo: int, hi: int, body: bytes) -> None:
        if self._relay.is_waiting_for(origin, lo):
            self._relay.receive(self._cache.decode(origin, lo, hi, body))

    def receive_gone(self, origin: str, lo: int, hi: int) -> None:
        self._relay.receive_gone(self._queue, origin, lo)


class ViewImportSink:
    """Takes in an imported view."""

    def __init__(self, cache: ViewCache, queue: LogQueue) -> None:
        self._cache, self._queue = cache, queue

    def horizons(self) -> StreamHorizons:
        return to_link_horizons({s: tick for s, tick in self._cache.horizons.items() if tick > HORIZON_MIN})

    def append(self, start: StreamHorizons | None, bodies: list[bytes], end: StreamHorizons) -> None:
        many_origins = self._cache.import_.many_origins
        start_horizons = None if start is None else self._complete(from_link_horizons(start, many_origins))
        frame = ImportFrame(start_horizons, tuple(bodies), from_link_horizons(end, many_origins))
        rows = self._cache.check(frame)
        size = sum(map(len, bodies))
        self._queue.append(CacheAppend(self._cache.import_.name, self._cache, frame, rows, size))

    def _complete(self, horizons: Mapping[str, int]) -> Mapping[str, int]:
        return {**dict.fromkeys(self._cache.import_.base_streams, HORIZON_MIN), **horizons}


class LinkImports:
    """`find_imports` returns the present imports over this link, `on_greeting` is called with the neighbour's
    name, and `acknowledged` returns what may be acknowledged of an import."""

    def __init__(
        self,
        queue: LogQueue,
        on_greeting: Callable[[str], None],
        find_imports: Callable[[float], Mapping[int, Import]],
        acknowledged: Callable[[int], StreamHorizons],
    ) -> None:
        self.queue = queue
        self._on_greeting, self._find_imports, self._acknowledged = on_greeting, find_imports, acknowledged

    def greet(self, neighbour: str) -> None:
        self._on_greeting(neighbour)

    def imports(self, now: float) -> Mapping[int, Import]:
        if self.queue.problem is not None:
            raise self.queue.problem
        return self._find_imports(now)

    def acknowledged(self, import_id: int) -> StreamHorizons:
        return self._acknowledged(import_id)

    def can_receive(self) -> bool:
        return self.queue.has_room
