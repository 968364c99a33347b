"""Ranges of a log, read by ticks from pieces that lie in commits. Of each stream and origin the pieces follow one
another without a gap: where one is missing, that is damage, and no row is given.

A log says which pieces it has; what a range of them is, is the same for all. It may have more streams than are asked
for, and a position fewer: a stream that came to the log after a position is read from its beginning.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra import mmpl
from smile.errors import SmileError, error
from smile.log.frame import END, NOTHING
from smile.log.position import UNNAMED, Limit, Position
from smile.log.shape import Shape

Origins = Mapping[tuple[str, str], tuple[int, int]]
"""Every stream and origin that was heard of: in which commit it was first, and the tick up to which it is silent. That
is where its stream was then."""

Ticks = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a log knows of a piece without looking at its events."""

    commit: int
    stream: str
    origin: str
    lo: int
    hi: int
    rows: int
    bytes: int


def ticks_of(events: pa.RecordBatch) -> Ticks:
    """The tick is the first column."""
    ticks: Ticks = events.column(0).to_numpy()
    return ticks


def cut(events: pa.RecordBatch, lo: int, hi: int) -> pa.RecordBatch:
    """The events in (lo, hi]."""
    first, end = np.searchsorted(ticks_of(events), [lo, hi], side="right").tolist()
    return events.slice(first, end - first)


def places_between(begins: Ticks, ends: Ticks) -> Ticks:
    """The numbers of all ranges, each from its begin up to below its end, one range after the other."""
    counts = ends - begins
    return np.repeat(ends - np.cumsum(counts), counts) + np.arange(counts.sum())


def damaged(path: str, what: str) -> SmileError:
    hint = "Put a copy of the log in its place; what was computed from it so far is not affected."
    return error("E085", f"{path} is damaged: {what}", hint=hint)


def was_cut(path: str, what: str) -> SmileError:
    hint = "Events that no view needed were removed (the setting `keep`); what was computed from them is not affected."
    return error("E097", f"{path} was cut: {what}", hint=hint)


class Ranges(ABC):
    """All of a log but where its pieces come from."""

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef]) -> None:
        self.path = path
        self.shapes = {stream.name: Shape(stream) for stream in streams}

    @abstractmethod
    def _commits(self, after: int) -> Generator[tuple[int, Sequence[Entry]], None, None]:
        """The commits after that one, in order, looked for one by one."""

    @abstractmethod
    def _pieces(self, stream: str, origin: str, lo: int, hi: int) -> Iterator[tuple[Entry, pa.RecordBatch | None]]:
        """The pieces that have any tick of (lo, hi], in order."""

    @abstractmethod
    def _origins(self) -> Origins: ...

    @abstractmethod
    def _last(self) -> int:
        """The newest commit."""

    @abstractmethod
    def _horizon(self, stream: str, origin: str) -> int:
        """In the newest commit."""

    @abstractmethod
    def _horizon_at(self, stream: str, origin: str, commit: int) -> int:
        """In a commit that is not before the origin's first."""

    @abstractmethod
    def _uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        """The first commit that tells of anything above the tick."""

    def _cuts(self) -> Mapping[tuple[str, str], int]:
        """Up to where the pieces of each stream and origin were removed, if any were. A position may lie below that; it
        is reading there that is refused."""
        return {}

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(self.shapes)

    def start(self) -> Position:
        return Position(0, {stream: {UNNAMED: NOTHING} for stream in self.shapes})

    def newest(self) -> Position:
        commit, origins = self._last(), self._origins()
        found = {stream: {o: self._horizon(s, o) for s, o in origins if s == stream} for stream in self.shapes}
        return Position(commit, {stream: horizons or {UNNAMED: NOTHING} for stream, horizons in found.items()})

    def after(self, position: Position, limit: Limit) -> Position:
        return self._batch(position, limit)[0]

    def waiting(self, position: Position) -> tuple[int, int]:
        _, rows, size = self._batch(position, Limit())
        return rows, size

    def resumed(self, horizons: Mapping[str, int]) -> Position:
        last, origins = self._last(), self._origins()
        ticks = {stream: horizons.get(stream, NOTHING) for stream in self.shapes}
        first = [commit for s, o in origins if (commit := self._uncovered(s, o, ticks[s])) is not None]
        covered = min([last, *(commit - 1 for commit in first)])
        walk = Walk(Position(covered, {s: {UNNAMED: tick} for s, tick in ticks.items()}), origins)
        for (stream, origin), (commit, _) in origins.items():
            if commit <= covered:
                walk.horizons[stream][origin] = ticks[stream]
        return walk.position(covered)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        lo, hi = _horizon(start, stream), _horizon(end, stream)
        found = []
        if lo < hi:
            for (name, _), tick in self._cuts().items():
                if name == stream and lo < tick:
                    raise was_cut(self.path, f"{stream} has nothing up to tick {tick}")
            # A state that was resumed may know more origins than its position does.
            silent = {origin: tick for (name, origin), (_, tick) in self._origins().items() if name == stream}
            for origin in {**end.horizons.get(stream, {}), **silent}:
                found.append(self._told(stream, origin, start, end, silent.get(origin)))
        events = [batch for batches in found for batch in batches]
        if not events:
            return pa.RecordBatch.from_pylist([], self.shapes[stream].schema)
        if sum(map(bool, found)) == 1:
            return pa.concat_batches(events)
        return _in_order(stream, pa.concat_batches(events))

    def _told(
        self, stream: str, origin: str, start: Position, end: Position, silent: int | None
    ) -> list[pa.RecordBatch]:
        """What one origin tells of the range. It is known to be silent up to a tick, unless it was never heard of."""
        lo, hi = _horizon(start, stream), _horizon(end, stream)
        needed = hi
        if hi == END and end.commit > self._last():
            # The end was declared, and not told: what is there is all there is.
            needed = start.horizons.get(stream, {}).get(origin, lo)
        found, known = list[pa.RecordBatch](), lo if silent is None else max(lo, silent)
        for entry, events in self._pieces(stream, origin, lo, hi):
            if entry.lo > known:
                raise damaged(self.path, f"nothing is told of {stream}, ticks above {known} up to {entry.lo}")
            known = entry.hi
            if events is not None:
                events = events if lo <= entry.lo and entry.hi <= hi else cut(events, lo, hi)
                if events.num_rows:
                    found.append(events)
        stands_for_others = silent is None and origin == UNNAMED and known == lo
        if known < needed and not stands_for_others:
            raise damaged(self.path, f"nothing is told of {stream}, ticks above {known} up to {hi}")
        return found

    def _batch(self, position: Position, limit: Limit) -> tuple[Position, int, int]:
        """How far a batch may go, and how many rows and bytes it has then."""
        walk: Walk | None = None
        passed, rows, size, count = position.commit, 0, 0, 0
        with closing(self._commits(position.commit)) as commits:
            for number, entries in commits:
                if limit.last is not None and number > limit.last:
                    break
                walk = walk or self._walk(position)
                known = [(entry, walk.horizon(entry.stream, entry.origin)) for entry in entries]
                new = [self._above(entry, horizon) for entry, horizon in known if entry.hi > horizon]
                if new:
                    more_rows, more_size = rows + sum(r for r, _ in new), size + sum(b for _, b in new)
                    if count and not limit.allows(more_rows, more_size, count + 1):
                        break
                    rows, size, count = more_rows, more_size, count + 1
                for entry in entries:
                    if not walk.passes(entry):
                        raise damaged(self.path, f"something is missing of {entry.stream} up to tick {entry.lo}")
                passed = number
        return (walk.position(passed), rows, size) if walk and count else (position, 0, 0)

    def _walk(self, position: Position) -> "Walk":
        """A stream that the position does not have is where its origins are in that commit; nothing of it was read."""
        origins = self._origins()
        horizons = dict(position.horizons)
        for stream in self.shapes.keys() - horizons.keys():
            joined = [o for (s, o), (commit, _) in origins.items() if s == stream and commit <= position.commit]
            known = {origin: self._horizon_at(stream, origin, position.commit) for origin in joined}
            horizons[stream] = known or {UNNAMED: NOTHING}
        return Walk(Position(position.commit, horizons), origins)

    def _above(self, entry: Entry, horizon: int) -> tuple[int, int]:
        """How many rows and bytes of a piece lie above a horizon."""
        if entry.lo >= horizon or not entry.rows:
            return entry.rows, entry.bytes
        found = self._pieces(entry.stream, entry.origin, horizon, entry.hi)
        rows = sum(cut(events, horizon, entry.hi).num_rows for _, events in found if events is not None)
        return rows, entry.bytes * rows // entry.rows


def _horizon(position: Position, stream: str) -> int:
    return min(position.horizons.get(stream, {}).values(), default=NOTHING)


def _in_order(stream: str, events: pa.RecordBatch) -> pa.RecordBatch:
    """The events of several origins."""
    events = events.take(pc.sort_indices(events.column(0)))
    ticks = ticks_of(events)
    for i in np.flatnonzero(ticks[1:] == ticks[:-1]).tolist()[:1]:
        hint = "An event's tick is its own; see whether two publishers were given one origin's number."
        raise error("E083", f"two origins of {stream} have an event at tick {ticks[i]}", hint=hint)
    return events


class Walk:
    """Horizons on their way from a position through the commits after it."""

    def __init__(self, position: Position, origins: Origins) -> None:
        self._base = position.streams()
        self._origins = origins
        # What stands for origins not heard of yet would hold their stream back once they are.
        joined = {origin for origin, (commit, _) in origins.items() if commit <= position.commit}
        self.horizons = {
            stream: {origin: tick for origin, tick in known.items() if (stream, origin) in joined}
            for stream, known in position.horizons.items()
        }

    def horizon(self, stream: str, origin: str) -> int:
        return self.horizons[stream].get(origin, self._base[stream])

    def passes(self, entry: Entry) -> bool:
        """False if something is missing before it."""
        horizon = self.horizon(entry.stream, entry.origin)
        self.horizons[entry.stream][entry.origin] = max(horizon, entry.hi)
        joined = self._origins.get((entry.stream, entry.origin))
        return joined is not None and entry.lo <= max(horizon, joined[1])

    def position(self, commit: int) -> Position:
        return Position(
            commit, {stream: known or {UNNAMED: self._base[stream]} for stream, known in self.horizons.items()}
        )
