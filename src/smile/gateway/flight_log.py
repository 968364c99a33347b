"""The log as it is read over Arrow Flight: every answer is what a durable log of the streams asked for gives here."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from smile import limits
from smile.errors import error
from smile.gateway.flight_calls import decode_message
from smile.log.durable import DurableLog
from smile.log.input_batch import END, HORIZON_MIN
from smile.log.position import Position
from smile.log.remote import LogRangeRequest, LogRequest, streams_digest

ACTIONS = {
    "log/start": "where nothing of the log is read",
    "log/newest": "where all of the log is read",
    "log/after": "as far as a batch from a position may go",
    "log/resumed": "where a state with these horizons goes on",
    "log/waiting": "rows and bytes after a position",
}
_LOGS_MAX = 8
"""A broker's log is read for one program, and for the one before and after it while that changes."""


class FlightLogReader:
    """Calls come in threads that do not last; the log is read in a few that do, each with files of its own open."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(limits.flight_log_threads, "flight-log")
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, tuple[str, ...], str], DurableLog] = {}

    def answer(self, log: DurableLog, action: str, body: Any) -> bytes:
        """Of the log as it is now; it may have more streams than before."""
        request = decode_message("the question", body, LogRequest)
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
            is_after = action == "log/after"
            query = partial(reader.after, position, request.limit) if is_after else partial(reader.backlog, position)
        return msgspec.json.encode(self._threads.submit(query).result())

    def read(self, log: DurableLog, request: LogRangeRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        if request.stream not in request.streams:
            raise error("E093", f"{request.stream[:100]} is not among the streams asked for")
        start, end = _check_position(request.start, request.streams), _check_position(request.end, request.streams)
        reader = self._reader(log, request.streams, request.digest)
        events = self._threads.submit(reader.read, request.stream, start, end).result()
        return events.schema, _slice_events(events)

    def close(self) -> None:
        """Once no call is under way."""
        self._threads.shutdown()
        for log in self._logs.values():
            log.close()

    def _reader(self, log: DurableLog, streams: tuple[str, ...], digest: str) -> DurableLog:
        """A log of just these streams."""
        with self._lock:
            cached = self._logs.get((log.path, streams, digest))
            if cached is not None:
                return cached
            definitions = [log.schemas[name].stream for name in streams if name in log.schemas]
            if len(definitions) != len(streams) or streams_digest(definitions) != digest:
                hint = f"It has {', '.join(log.schemas)}."
                raise error("E087", "the broker's log is one of other streams, or of others by these names", hint=hint)
            while len(self._logs) >= _LOGS_MAX:
                del self._logs[next(iter(self._logs))]  # who still reads it lets it go afterwards
            return self._logs.setdefault((log.path, streams, digest), DurableLog(log.path, definitions))


def _check_position(position: Position | None, streams: Sequence[str]) -> Position:
    if position is None or set(position.horizons) != set(streams):
        raise error("E093", "a position in all of the streams asked for is needed")
    if not 0 <= position.commit <= END:
        raise error("E093", f"there can be no commit {position.commit}")
    for origins in position.horizons.values():
        _check_ticks(origins.values())
    return position


def _check_ticks(ticks: Any) -> None:
    if not all(HORIZON_MIN <= tick <= END for tick in ticks):
        raise error("E093", "a horizon is no tick")


def _slice_events(events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """In messages that are not too large."""
    rows = max(1, events.num_rows * limits.flight_batch_bytes // max(1, events.nbytes))
    for first in range(0, events.num_rows, rows):
        yield events.slice(first, rows)
