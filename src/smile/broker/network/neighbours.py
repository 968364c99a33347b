"""The neighbours that import streams of this broker, and what each of them has acknowledged. The log keeps what a
neighbour still needs, unless it has been away for too long.

Recorded in a file, so that a restart does not forget a neighbour. What a neighbour has acknowledged is written later
than it is received: after a crash the log keeps more than needed, never less.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import msgspec

from smile.broker.directory import write_file
from smile.errors import error
from smile.horizons import END, HORIZON_MIN, select_streams, with_origins

_log = logging.getLogger("smile.broker.network")


class NeighbourRecord(msgspec.Struct):
    """What a neighbour has of a stream, by origin, and when it was there last, in microseconds since 1970."""

    horizons: dict[str, int] = {}
    seen_us: int = 0

    @property
    def horizon(self) -> int:
        return min(self.horizons.values(), default=HORIZON_MIN)


Acknowledgements = Sequence[Mapping[str, int]]
"""What each neighbour has of a stream, by origin. An origin that is missing is needed from its beginning."""


def least_acknowledged(acknowledgements: Acknowledgements, origin: str) -> int:
    """Up to which tick no neighbour needs an origin."""
    return min((horizons.get(origin, HORIZON_MIN) for horizons in acknowledgements), default=END)


Records = dict[str, dict[str, NeighbourRecord]]
"""Neighbour → stream of the log → record."""


@dataclass
class Neighbours:
    """Thread-safe. `path` is None if nothing is to be recorded. `clock` returns microseconds since 1970."""

    path: Path | None
    clock: Callable[[], int]
    _records: Records = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _written: str = "{}"

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            self._records = msgspec.json.decode(self.path.read_bytes(), type=Records)
        except (OSError, msgspec.MsgspecError) as problem:
            hint = "Delete it. What neighbours have not received yet may then be removed from the log."
            raise error("E105", f"{self.path} is damaged: {problem}", hint=hint) from None

    def register(self, neighbour: str, stream: str) -> bool:
        """The neighbour imports the stream. What it has of it already, it has not acknowledged: it may lose it. Returns
        whether this is new."""
        with self._lock:
            streams = self._records.setdefault(neighbour, {})
            if stream in streams:
                streams[stream].seen_us = self.clock()
                return False
            streams[stream] = NeighbourRecord({}, self.clock())
            self._write()
            return True

    def importers(self, stream: str) -> set[str]:
        """The neighbours that import a stream."""
        with self._lock:
            return {neighbour for neighbour, streams in self._records.items() if stream in streams}

    def acknowledge(self, neighbour: str, stream: str, horizons: Mapping[str, int]) -> None:
        with self._lock:
            record = self._records.get(neighbour, {}).get(stream)
            if record is not None:
                record.horizons = {o: max(tick, record.horizons.get(o, tick)) for o, tick in horizons.items()}
                record.seen_us = self.clock()

    def release(self, neighbour: str, stream: str) -> None:
        with self._lock:
            self._records.get(neighbour, {}).pop(stream, None)
            self._write()

    def needed_horizons(self, connected: Iterable[tuple[str, str]], away_us_max: int) -> Mapping[str, int]:
        """Up to which tick each stream and origin is not needed by any neighbour, by stream and by `origin_name`; an
        origin that is missing is needed. `connected` are the neighbours that import a stream now. A neighbour that has
        been away for too long is forgotten."""
        now_us, needed = self.clock(), dict[str, int]()
        with self._lock:
            for neighbour, stream in connected:
                if stream in self._records.get(neighbour, {}):
                    self._records[neighbour][stream].seen_us = now_us
            for neighbour, streams in self._records.items():
                for stream, record in list(streams.items()):
                    if now_us - record.seen_us > away_us_max:
                        del streams[stream]
                        fields = {"neighbour": neighbour, "stream": stream}
                        _log.warning("the log keeps nothing for a neighbour that is away", extra=fields)
                    else:
                        acknowledged = with_origins(stream, record.horizons)
                        known = select_streams(needed, [stream]) if stream in needed else acknowledged
                        common = {n: min(t, known.get(n, HORIZON_MIN)) for n, t in acknowledged.items()}
                        needed = {n: t for n, t in needed.items() if n not in known} | common
            self._write()
        return needed

    def acknowledged(self, stream: str, except_for: Collection[str] = ()) -> Acknowledgements:
        """What the neighbours have safely of a stream; nothing if nobody imports it."""
        with self._lock:
            records = [streams.get(stream) for name, streams in self._records.items() if name not in except_for]
            return [dict(record.horizons) for record in records if record is not None]

    def greatest_acknowledged(self, stream: str, origin: str) -> int:
        """Up to where any neighbour has an origin for sure."""
        return max((horizons.get(origin, HORIZON_MIN) for horizons in self.acknowledged(stream)), default=HORIZON_MIN)

    def status(self) -> Mapping[str, Mapping[str, int]]:
        """What each neighbour has safely, by stream."""
        with self._lock:
            return {n: {s: record.horizon for s, record in streams.items()} for n, streams in self._records.items()}

    def _write(self) -> None:
        text = json.dumps(msgspec.to_builtins(self._records))
        if self.path is not None and text != self._written:
            write_file(self.path, text)
            self._written = text
