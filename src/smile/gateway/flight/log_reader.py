"""Serves the log over Arrow Flight: every answer is that of a local `DurableLog` with the requested streams."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from smile import limits
from smile.errors import error
from smile.horizons import END, HORIZON_MIN
from smile.log.position import Position
from smile.log.storage.durable import DurableLog
from smile.log.storage.remote import LogRangeRequest, LogRequest, streams_digest

ACTIONS = {
    "log/start": "the position before all events",
    "log/newest": "the position after all events",
    "log/after": "the end of a batch that starts at a position",
    "log/resumed": "the position at which state with these horizons resumes",
    "log/waiting": "rows and bytes after a position",
}
_LOGS_MAX = 8
"""Logs are opened for one program, and for the previous and the next one while it changes."""


class FlightLogReader:
    """Calls run in short-lived threads; a few long-lived threads read the log, each with its own open files."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(limits.flight_log_threads, "flight-log")
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, tuple[str, ...], str], DurableLog] = {}

    def answer(self, log: DurableLog, action: str, request: LogRequest) -> bytes:
        """Answers from the log as it is now; it may have more streams than before."""
        reader = self._reader(log, request.streams, request.digest)
        query: Callable[[], Position | tuple[int, int]]
        if action == "log/start":
            query = reader.start
        elif action == "log/newest":
            query = reader.newest
        elif action == "log/resumed":
            _check_ticks(request.horizons.values())
            query = partial(reader.resume_position, request.horizons)
        else:
            position = _check_position(request.position, request.streams)
            if request.limit.last is not None:
                _check_position(request.limit.last, request.streams)
            is_after = action == "log/after"
            query = partial(reader.after, position, request.limit) if is_after else partial(reader.backlog, position)
        return msgspec.json.encode(self._threads.submit(query).result())

    def read(self, log: DurableLog, request: LogRangeRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        if request.stream not in request.streams:
            raise error("E093", f"{request.stream[:100]} is not one of the requested streams")
        start, end = _check_position(request.start, request.streams), _check_position(request.end, request.streams)
        reader = self._reader(log, request.streams, request.digest)
        events = self._threads.submit(reader.read, request.stream, start, end).result()
        return events.schema, _slice_events(events)

    def close(self) -> None:
        """Call it when no call is in progress."""
        self._threads.shutdown()
        for log in self._logs.values():
            log.close()

    def _reader(self, log: DurableLog, streams: tuple[str, ...], digest: str) -> DurableLog:
        """A log of exactly these streams."""
        with self._lock:
            cached = self._logs.get((log.path, streams, digest))
            if cached is not None:
                return cached
            definitions = [log.schemas[name].stream for name in streams if name in log.schemas]
            if len(definitions) != len(streams) or streams_digest(definitions) != digest:
                hint = f"It has {', '.join(log.schemas)}."
                raise error("E087", "the broker's log has other streams, or other definitions of them", hint=hint)
            while len(self._logs) >= _LOGS_MAX:
                del self._logs[next(iter(self._logs))]  # a call that still reads it has its own reference
            return self._logs.setdefault((log.path, streams, digest), DurableLog(log.path, definitions))


def _check_position(position: Position | None, streams: Sequence[str]) -> Position:
    """The start of a truncated log does not have the streams of which something was removed."""
    if position is None or not set(position.horizons) <= set(streams):
        raise error("E093", "a position in the requested streams is needed")
    if not 0 <= position.commit <= END:
        raise error("E093", f"{position.commit} is not the number of a commit")
    for origins in position.horizons.values():
        _check_ticks(origins.values())
    return position


def _check_ticks(ticks: Any) -> None:
    if not all(HORIZON_MIN <= tick <= END for tick in ticks):
        raise error("E093", "a horizon is not a tick")


def _slice_events(events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Splits events into messages of bounded size."""
    rows = max(1, events.num_rows * limits.flight_batch_bytes // max(1, events.nbytes))
    for first in range(0, events.num_rows, rows):
        yield events.slice(first, rows)
