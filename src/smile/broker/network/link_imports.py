"""The imports of one link: what this broker receives from the neighbour at its other end."""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Lock
from typing import Any

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


class LogQueue:
    """What one link has received and the log does not have yet. Thread-safe. `wake` is called when more of it is in the
    log, or something could not be appended."""

    def __init__(self, host: NetworkHost, wake: Callable[[], None]) -> None:
        self._host, self._wake = host, wake
        self._lock = Lock()
        self._submitted = self._finished = 0
        """How many appends were submitted, and have finished. They finish in order, except within a commit."""
        self._received: deque[tuple[int, int]] = deque()
        """Numbers of messages, each with the number of appends that were submitted before."""
        self.stored_number = 0
        """The log has everything up to this message."""
        self.problem: SmileError | None = None
        """Why something could not be appended. The link then ends, and the next one asks for it again."""

    def append(self, append: CacheAppend) -> None:
        with self._lock:
            self._submitted += 1
        try:
            future = self._host.append_imported(append)
        except BaseException:
            self._finish()
            raise
        future.add_done_callback(self._appended)

    def note_received(self, number: int) -> None:
        """Everything up to this message was submitted."""
        with self._lock:
            self._received.append((number, self._submitted))
            self._update_stored_number()

    def _appended(self, future: "Future[Any]") -> None:
        problem = future.exception()
        if problem is not None:
            self.problem = problem if isinstance(problem, SmileError) else error("E084", f"{problem!r}")
        if self._finish() or problem is not None:
            self._wake()

    def _finish(self) -> bool:
        """Returns whether more messages are stored."""
        with self._lock:
            self._finished += 1
            return self._update_stored_number()

    def _update_stored_number(self) -> bool:
        stored_number = self.stored_number
        while self._received and self._received[0][1] <= self._finished:
            self.stored_number, _ = self._received.popleft()
        return self.stored_number > stored_number


class StreamImportSink:
    """Takes in an imported stream. `relay` has the questions of other brokers about it, None if they are not passed
    on."""

    def __init__(self, cache: StreamCache, queue: LogQueue, relay: RangeRelay | None = None) -> None:
        self._cache, self._queue, self._relay = cache, queue, relay

    def horizons(self) -> Mapping[str, int]:
        return self._cache.horizons

    def start(self) -> int:
        return HORIZON_MIN

    def append(self, origin: str, lo: int, hi: int, body: bytes, members: int) -> None:
        piece = self._cache.decode(origin, lo, hi, body)
        data = StreamRange(piece, members)
        self._queue.append(CacheAppend(self._cache.name, self._cache, data, piece.rows, len(body)))

    def members(self) -> int:
        return 0 if self._cache.membership is None else self._cache.membership.version

    def append_members(self, version: int, body: bytes) -> None:
        membership = self._cache.decode_membership(version, body)
        self._queue.append(CacheAppend(self._cache.name, self._cache, membership, 0, len(body)))

    def questions(self, now: float) -> list[OriginRange]:
        return [] if self._relay is None else self._relay.questions(self._queue, now)

    def receive_answer(self, origin: str, lo: int, hi: int, body: bytes) -> None:
        if self._relay is not None and self._relay.is_waiting_for(origin, lo):
            self._relay.receive(self._cache.decode(origin, lo, hi, body))

    def receive_gone(self, origin: str, lo: int, hi: int) -> None:
        if self._relay is not None:
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

    def note_received(self, number: int) -> None:
        self.queue.note_received(number)

    def stored_number(self) -> int:
        return self.queue.stored_number
