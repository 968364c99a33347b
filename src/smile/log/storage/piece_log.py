"""The common part of logs that consist of pieces in commits: reads ranges of ticks, and plans batches.

The pieces of each stream and origin continue one another without a gap. A missing piece is reported as damage, and no
row is returned. A log may have more streams than its reader asks for. A position may have fewer: a stream that was
added to the log after the position is read from its beginning.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra import mmpl
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, origin_name
from smile.log.position import DEFAULT_ORIGIN, BatchLimit, Position

Origins = Mapping[tuple[str, str], tuple[int, int]]
"""For every stream and origin: its first commit, and the tick up to which it is silent, which is the stream's horizon
at that time."""

TickArray = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class PieceEntry:
    """The metadata of a piece."""

    commit: int
    stream: str
    origin: str
    lo: int
    hi: int
    rows: int
    bytes: int


def ticks_of(events: pa.RecordBatch) -> TickArray:
    """The tick is the first column."""
    ticks: TickArray = events.column(0).to_numpy()
    return ticks


def slice_events(events: pa.RecordBatch, lo: int, hi: int) -> pa.RecordBatch:
    """The events in (lo, hi]."""
    first, end = np.searchsorted(ticks_of(events), [lo, hi], side="right").tolist()
    return events.slice(first, end - first)


def range_indices(begins: TickArray, ends: TickArray) -> TickArray:
    """The integers of all ranges [begin, end), one range after the other."""
    counts = ends - begins
    return np.repeat(ends - np.cumsum(counts), counts) + np.arange(counts.sum())


def damaged_error(path: str, problem: str) -> SmileError:
    hint = "Replace the log by a backup copy. Views that were computed from it are not affected."
    return error("E085", f"{path} is damaged: {problem}", hint=hint)


def missing_error(path: str, stream: str, lo: int, hi: int) -> SmileError:
    return damaged_error(path, f"events of {stream} are missing, ticks above {lo} up to {hi}")


def log_truncated_error(path: str, problem: str) -> SmileError:
    hint = "Events that no view needed were removed (the setting `keep`). Views computed from them are not affected."
    return error("E097", f"{path} was truncated: {problem}", hint=hint)


class PieceLog(ABC):
    """A log, except for the storage of its pieces."""

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef]) -> None:
        self.path = path
        self.schemas = {stream.name: StreamSchema(stream) for stream in streams}

    @abstractmethod
    def _commits(self, after: int) -> Generator[tuple[int, Sequence[PieceEntry]], None, None]:
        """The commits after `after`, in order. They are fetched lazily."""

    @abstractmethod
    def _pieces(
        self, stream: str, origin: str, lo: int, hi: int
    ) -> Generator[tuple[PieceEntry, pa.RecordBatch | None], None, None]:
        """The pieces that overlap (lo, hi], in order."""

    @abstractmethod
    def _origins(self, stream: str | None = None) -> Origins:
        """Those of all streams, or of one."""

    @abstractmethod
    def _last_commit(self) -> int:
        """The number of the newest commit."""

    @abstractmethod
    def _horizon(self, stream: str, origin: str) -> int:
        """The origin's horizon in the newest commit."""

    @abstractmethod
    def _horizon_at(self, stream: str, origin: str, commit: int) -> int:
        """The origin's horizon in a commit that is not before the origin's first."""

    @abstractmethod
    def _first_uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        """The first commit that has ticks of the origin above `tick`."""

    def _truncated_ticks(self, stream: str | None = None) -> Mapping[tuple[str, str], int]:
        """For each origin with removed pieces, of all streams or of one, the tick up to which they were removed. A
        position may lie below that; only reading there is refused."""
        return {}

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    @property
    def many_origins(self) -> frozenset[str]:
        """The streams that are declared to have many origins."""
        return frozenset(name for name, schema in self.schemas.items() if schema.stream.many_origins)

    def start(self) -> Position:
        return Position(0, {s: self._unknown_origins(s) for s in self.schemas}, self.many_origins)

    def _unknown_origins(self, stream: str) -> dict[str, int]:
        """The horizons of a stream of which nothing is known. One that has many origins has none yet."""
        return {} if self.schemas[stream].stream.many_origins else {DEFAULT_ORIGIN: HORIZON_MIN}

    def newest(self) -> Position:
        commit, origins = self._last_commit(), self._origins()
        horizons_by_stream = {
            stream: {o: self._horizon(s, o) for s, o in origins if s == stream} for stream in self.schemas
        }
        horizons = {stream: known or self._unknown_origins(stream) for stream, known in horizons_by_stream.items()}
        return Position(commit, horizons, self.many_origins)

    def after(self, position: Position, limit: BatchLimit) -> Position:
        return self._plan_batch(position, limit)[0]

    def backlog(self, position: Position) -> tuple[int, int]:
        _, rows, size = self._plan_batch(position, BatchLimit())
        return rows, size

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        last, origins, many = self._last_commit(), self._origins(), self.many_origins
        known = {(s, o): horizons.get(origin_name(s, o) if s in many else s) for s, o in origins}
        ticks = {key: HORIZON_MIN if tick is None else tick for key, tick in known.items()}
        uncovered = [commit for (s, o), h in ticks.items() if (commit := self._first_uncovered(s, o, h)) is not None]
        covered = min([last, *(commit - 1 for commit in uncovered)])
        unread = {s: {} if s in many else {DEFAULT_ORIGIN: horizons.get(s, HORIZON_MIN)} for s in self.schemas}
        tracker = HorizonTracker(Position(covered, unread, many), origins)
        for (stream, origin), (commit, _) in origins.items():
            # The state has read all origins that it names, and no others.
            if known[stream, origin] is not None if stream in many else commit <= covered:
                tracker.horizons[stream][origin] = ticks[stream, origin]
        return tracker.position(covered)

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        # The position of a resumed state may not have all origins.
        silent_to = {origin: tick for (_, origin), (_, tick) in self._origins(stream).items()}
        truncated_ticks = {origin: tick for (_, origin), tick in self._truncated_ticks(stream).items()}
        is_joint = not self.schemas[stream].stream.many_origins
        batches_by_origin = []
        for origin in {**end.horizons.get(stream, {}), **silent_to}:
            lo, hi = (_origin_horizon(position, stream, origin, is_joint) for position in (start, end))
            if lo >= hi:
                continue
            for tick in truncated_ticks.values() if is_joint else [truncated_ticks.get(origin, HORIZON_MIN)]:
                if lo < tick:
                    raise log_truncated_error(self.path, f"events of {stream} up to tick {tick} were removed")
            needed = hi
            if hi == END and end.commit > self._last_commit():
                # The caller declared the end, so the log need not reach it.
                needed = start.horizons.get(stream, {}).get(origin, lo)
            batches_by_origin.append(self._read_origin(stream, origin, lo, hi, needed, silent_to.get(origin)))
        events = [batch for origin_batches in batches_by_origin for batch in origin_batches]
        if not events:
            return self.schemas[stream].no_events
        if sum(map(bool, batches_by_origin)) == 1:
            return pa.concat_batches(events)
        return _sort_by_tick(stream, pa.concat_batches(events))

    def _read_origin(
        self, stream: str, origin: str, lo: int, hi: int, needed: int, silent_to: int | None
    ) -> list[pa.RecordBatch]:
        """The events of one origin in (lo, hi]. The log must reach `needed`. `silent_to` is None if the log does not
        have the origin."""
        batches, known_to = list[pa.RecordBatch](), lo if silent_to is None else max(lo, silent_to)
        for entry, events in self._pieces(stream, origin, lo, hi):
            if entry.lo > known_to:
                raise missing_error(self.path, stream, known_to, entry.lo)
            known_to = entry.hi
            if events is not None:
                events = events if lo <= entry.lo and entry.hi <= hi else slice_events(events, lo, hi)
                if events.num_rows:
                    batches.append(events)
        is_placeholder = silent_to is None and origin == DEFAULT_ORIGIN and known_to == lo
        if known_to < needed and not is_placeholder:
            raise missing_error(self.path, stream, known_to, hi)
        return batches

    def _plan_batch(self, position: Position, limit: BatchLimit) -> tuple[Position, int, int]:
        """The end of the next batch, and its number of rows and bytes."""
        tracker: HorizonTracker | None = None
        last_commit, rows, size, count = position.commit, 0, 0, 0
        with closing(self._commits(position.commit)) as commits:
            for number, entries in commits:
                tracker = tracker or self._tracker_at(position)
                if limit.last is not None and number > limit.last.commit:
                    if limit.allows(rows, size, count + 1) and tracker.advance_to(limit.last, entries):
                        last_commit, count = max(last_commit, limit.last.commit), count + 1
                    break
                entry_horizons = [(entry, tracker.horizon(entry.stream, entry.origin)) for entry in entries]
                sizes_above = [self._count_above(entry, h) for entry, h in entry_horizons if entry.hi > h]
                if sizes_above:
                    total_rows = rows + sum(r for r, _ in sizes_above)
                    total_size = size + sum(b for _, b in sizes_above)
                    if not limit.allows(total_rows, total_size, count + 1):
                        if count:
                            break
                        share = limit.share_of(total_rows, total_size)
                        is_whole = self._is_whole(number, entries)
                        part = None if is_whole else self._plan_part(tracker, entries, number, share)
                        if part is not None:
                            return part
                    rows, size, count = total_rows, total_size, count + 1
                for entry in entries:
                    if not tracker.advance_over(entry):
                        raise damaged_error(self.path, f"events of {entry.stream} up to tick {entry.lo} are missing")
                last_commit = number
        return (tracker.position(last_commit), rows, size) if tracker and count else (position, 0, 0)

    def _is_whole(self, commit: int, entries: Sequence[PieceEntry]) -> bool:
        """Whether no batch may end within the commit with these pieces."""
        has_whole_stream = any(self.schemas[entry.stream].stream.whole_commits for entry in entries)
        return has_whole_stream or self._is_whole_commit(commit)

    def _is_whole_commit(self, commit: int) -> bool:
        """Whether the commit was appended as one that no batch divides."""
        return False

    def _plan_part(
        self, tracker: "HorizonTracker", entries: Sequence[PieceEntry], commit: int, share: float
    ) -> tuple[Position, int, int] | None:
        """The end of a batch with this share of a commit that is larger than the limit: the first events of each piece,
        at least one, and all silence. None if that is the whole commit."""
        rows, size, is_whole, ends = 0, 0, True, list[tuple[PieceEntry, int]]()
        for entry in entries:
            horizon = tracker.horizon(entry.stream, entry.origin)
            rows_above, size_above = self._count_above(entry, horizon) if entry.hi > horizon else (0, 0)
            count = max(1, int(share * rows_above)) if rows_above else 0
            if count == rows_above:
                ends.append((entry, entry.hi))
            else:
                is_whole = False
                ends.append((entry, self._nth_tick(entry, horizon, count)))
            rows, size = rows + count, size + (size_above * count // rows_above if count else 0)
        if is_whole:
            return None
        for entry, tick in ends:
            tracker.advance(entry, tick)
        return tracker.position(commit - 1), rows, size

    def _nth_tick(self, entry: PieceEntry, horizon: int, number: int) -> int:
        """The tick of the event with this number, from 1, of those in a piece above a horizon."""
        with closing(self._pieces(entry.stream, entry.origin, horizon, entry.hi)) as pieces:
            events = next(events for _, events in pieces if events is not None)
            return int(ticks_of(slice_events(events, horizon, entry.hi))[number - 1])

    def _tracker_at(self, position: Position) -> "HorizonTracker":
        """A tracker that starts at the position. For a stream that the position does not have, it starts with the
        horizons of the stream's origins in that commit."""
        origins = self._origins()
        horizons = dict(position.horizons)
        for stream in self.schemas.keys() - horizons.keys():
            joined = [o for (s, o), (commit, _) in origins.items() if s == stream and commit <= position.commit]
            origin_horizons = {origin: self._horizon_at(stream, origin, position.commit) for origin in joined}
            horizons[stream] = origin_horizons or self._unknown_origins(stream)
        return HorizonTracker(Position(position.commit, horizons, self.many_origins), origins)

    def _count_above(self, entry: PieceEntry, horizon: int) -> tuple[int, int]:
        """How many rows and bytes of a piece lie above a horizon."""
        if entry.lo >= horizon or not entry.rows:
            return entry.rows, entry.bytes
        pieces = self._pieces(entry.stream, entry.origin, horizon, entry.hi)
        rows = sum(slice_events(events, horizon, entry.hi).num_rows for _, events in pieces if events is not None)
        return rows, entry.bytes * rows // entry.rows


def _origin_horizon(position: Position, stream: str, origin: str, is_joint: bool) -> int:
    """The tick up to which the origin was read. `is_joint`: all origins of the stream are read up to the least."""
    origins = position.horizons.get(stream, {})
    return min(origins.values(), default=HORIZON_MIN) if is_joint else origins.get(origin, HORIZON_MIN)


def _sort_by_tick(stream: str, events: pa.RecordBatch) -> pa.RecordBatch:
    """Sorts the events of several origins. Two events must not have the same tick."""
    events = events.take(pc.sort_indices(events.column(0)))
    ticks = ticks_of(events)
    for i in np.flatnonzero(ticks[1:] == ticks[:-1]).tolist()[:1]:
        hint = "Ticks are unique. Check whether two publishers have the same origin number."
        raise error("E083", f"two origins of {stream} have an event at tick {ticks[i]}", hint=hint)
    return events


class HorizonTracker:
    """Advances the horizons of all origins from a position through the following commits."""

    def __init__(self, position: Position, origins: Origins) -> None:
        self._base = {
            **position.stream_horizons(),
            # An origin that the position does not have was not read.
            **dict.fromkeys(position.many_origins, HORIZON_MIN),
        }
        self._origins, self._many_origins = origins, position.many_origins
        # The placeholder for unknown origins is omitted: it would hold the stream back once real origins join. The
        # position may have a part of the next commit.
        joined = {origin for origin, (commit, _) in origins.items() if commit <= position.commit + 1}
        self.horizons = {
            stream: {
                origin: tick
                for origin, tick in origin_horizons.items()
                if stream in position.many_origins or (stream, origin) in joined
            }
            for stream, origin_horizons in position.horizons.items()
        }

    def horizon(self, stream: str, origin: str) -> int:
        return self.horizons[stream].get(origin, self._base[stream])

    def advance(self, entry: PieceEntry, tick: int) -> None:
        """Advances the origin of the piece to this tick, unless it is further."""
        horizon = self.horizon(entry.stream, entry.origin)
        self.horizons[entry.stream][entry.origin] = max(horizon, tick)

    def advance_over(self, entry: PieceEntry) -> bool:
        """Returns False if a piece before this one is missing."""
        horizon = self.horizon(entry.stream, entry.origin)
        self.advance(entry, entry.hi)
        origin_start = self._origins.get((entry.stream, entry.origin))
        return origin_start is not None and entry.lo <= max(horizon, origin_start[1])

    def advance_to(self, last: Position, entries: Sequence[PieceEntry]) -> bool:
        """Advances to a position, if these are the pieces of a commit that has replaced the position's own. Then it has
        only silence. Returns whether any origin has advanced."""
        if any(entry.rows for entry in entries):
            return False
        has_advanced = False
        for entry in entries:
            tick = min(entry.hi, last.horizons.get(entry.stream, {}).get(entry.origin, HORIZON_MIN))
            if tick > self.horizon(entry.stream, entry.origin):
                self.advance(entry, tick)
                has_advanced = True
        return has_advanced

    def position(self, commit: int) -> Position:
        horizons = {
            stream: origin_horizons
            if origin_horizons or stream in self._many_origins
            else {DEFAULT_ORIGIN: self._base[stream]}
            for stream, origin_horizons in self.horizons.items()
        }
        return Position(commit, horizons, self._many_origins)
