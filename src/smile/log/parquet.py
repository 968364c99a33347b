"""Recorded events in a directory of Parquet files, as a log that nobody writes: a row group is a piece and a commit.

Of each stream the ticks ascend within a file, and no two files overlap. Commits are in order of their last ticks over
all streams, so that the streams advance together. The files are those that were there at first, unchanged.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from smile.algebra import mmpl
from smile.errors import SmileError, error, nearest
from smile.log.frame import NOTHING
from smile.log.lines import unreadable
from smile.log.parquet_columns import check_columns, events_of
from smile.log.position import UNNAMED
from smile.log.ranges import Entry, Origins, Ranges, damaged, ticks_of
from smile.log.shape import TICK_MAX, Shape


@dataclass(frozen=True)
class RecordedFile:
    """A file as it was at first."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Group:
    """A row group that has any row: `number` is its own in the file."""

    file: RecordedFile
    number: int
    entry: Entry


class ParquetLog(Ranges):
    """`groups` are in order of their commits."""

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], groups: Sequence[Group]) -> None:
        super().__init__(path, streams)
        self._groups = groups
        self._of_stream = {name: [g for g in groups if g.entry.stream == name] for name in self.shapes}
        self._open: dict[str, tuple[RecordedFile, pq.ParquetFile]] = {}

    @staticmethod
    def at(path: str, streams: Sequence[mmpl.StreamDef]) -> "ParquetLog":
        """All files `<stream>.parquet`, and those anywhere in directories `<stream>`."""
        shapes = {stream.name: Shape(stream) for stream in streams}
        found: dict[str, list[list[Group]]] = {name: [] for name in shapes}
        for name, file in _files(Path(path), shapes):
            found[name].append(list(_row_groups(shapes[name], file)))
        ordered = [group for files in found.values() for group in _continued(files)]
        ordered.sort(key=lambda group: group.entry.hi)
        groups = [replace(group, entry=replace(group.entry, commit=n)) for n, group in enumerate(ordered, 1)]
        return ParquetLog(path, streams, groups)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetLog, (self.path, [shape.stream for shape in self.shapes.values()], self._groups)

    def _commits(self, after: int) -> Generator[tuple[int, Sequence[Entry]], None, None]:
        if after > len(self._groups):
            message = f"{self.path} has no row group {after} in order of ticks, though it was read"
            raise error("E089", message, hint="Files are missing; forget what was computed from them.")
        for n in range(after, len(self._groups)):
            yield n + 1, [self._groups[n].entry]

    def _pieces(self, stream: str, origin: str, lo: int, hi: int) -> Iterator[tuple[Entry, pa.RecordBatch | None]]:
        """The row groups of a file that are read together are one piece."""
        groups = self._of_stream[stream] if origin == UNNAMED else []
        first = bisect_right(groups, lo, key=lambda group: group.entry.hi)
        end = bisect_right(groups, hi - 1, key=lambda group: group.entry.lo)
        for file, found in groupby(groups[first:end], key=lambda group: group.file):
            together = list(found)
            entry = replace(together[0].entry, hi=together[-1].entry.hi)
            yield entry, self._events(stream, file, together)

    def _events(self, stream: str, file: RecordedFile, groups: Sequence[Group]) -> pa.RecordBatch:
        lo, hi = groups[0].entry.lo, groups[-1].entry.hi
        with _reading(file.path):
            found = self._opened(stream, file).read_row_groups([group.number for group in groups], use_threads=False)
        events = events_of(file.path, self.shapes[stream], found)
        if events.column(0).null_count:
            raise _wrong_tick(file.path, stream, "an event has none")
        ticks = ticks_of(events)
        for i in (ticks[1:] <= ticks[:-1]).nonzero()[0].tolist()[:1]:
            raise _wrong_tick(file.path, stream, f"{ticks[i + 1]} comes after {ticks[i]}")
        if not len(ticks) or ticks[0] <= lo or ticks[-1] != hi:
            raise damaged(file.path, f"its ticks are not those that its statistics tell, above {lo} up to {hi}")
        return events

    def _opened(self, stream: str, file: RecordedFile) -> pq.ParquetFile:
        """One file of each stream stays open."""
        if _recorded(Path(file.path)) != file:
            hint = "Events are added by other files, before a run; files that were read stay as they are."
            raise error("E089", f"{file.path} has changed since it was first read", hint=hint)
        if stream not in self._open or self._open[stream][0] != file:
            self._open[stream] = (file, _parquet(file.path))
        return self._open[stream][1]

    def _origins(self) -> Origins:
        return {(s, UNNAMED): (groups[0].entry.commit, NOTHING) for s, groups in self._of_stream.items() if groups}

    def _last(self) -> int:
        return len(self._groups)

    def _horizon(self, stream: str, origin: str) -> int:
        return self._of_stream[stream][-1].entry.hi

    def _horizon_at(self, stream: str, origin: str, commit: int) -> int:
        groups = self._of_stream[stream]
        return groups[bisect_right(groups, commit, key=lambda group: group.entry.commit) - 1].entry.hi

    def _uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        groups = self._of_stream[stream]
        at = bisect_right(groups, tick, key=lambda group: group.entry.hi)
        return groups[at].entry.commit if at < len(groups) else None


# ── what is there ───────────────────────────────────────────────────────────────────────────────────────────────────


def _files(root: Path, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, RecordedFile]]:
    with _reading(str(root)):
        found = [path for path in sorted(root.iterdir()) if not _is_hidden(path)]
        if not found:
            raise error(
                "E070", f"{root} has no recorded events", hint=f"Put them into files {next(iter(shapes))}.parquet."
            )
        for path in found:
            name = path.name.removesuffix(".parquet")
            if name not in shapes or not (path.is_dir() or path.suffix == ".parquet"):
                hint = nearest(name, shapes) or f"There are {', '.join(shapes)}; files are named <stream>.parquet."
                raise error("E076", f"{path} is not named after a stream", hint=hint)
            for file in _within(path) if path.is_dir() else [path]:
                yield name, _recorded(file)


def _within(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if _is_hidden(path):
            continue
        if path.is_dir() and "=" not in path.name:
            yield from _within(path)
        elif path.suffix == ".parquet" and path.is_file():
            yield path
        else:
            hint = "A stream's directory has files *.parquet; columns are in them, not in the names of directories."
            raise error("E070", f"{path} is not a Parquet file", hint=hint)


def _is_hidden(path: Path) -> bool:
    """As writers of Parquet name what is no data."""
    return path.name.startswith((".", "_"))


def _recorded(path: Path) -> RecordedFile:
    with _reading(str(path)):
        status = path.stat()
    return RecordedFile(str(path), status.st_size, status.st_mtime_ns)


def _parquet(path: str) -> pq.ParquetFile:
    with _reading(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


def _row_groups(shape: Shape, file: RecordedFile) -> Iterator[Group]:
    """Of one file, without what lies before each. Those without rows say nothing."""
    found = _parquet(file.path)
    check_columns(file.path, shape, found.schema_arrow)
    for number in range(found.metadata.num_row_groups):
        group = found.metadata.row_group(number)
        if group.num_rows:
            first, last = _ends(shape, file, found, number)
            entry = Entry(0, shape.name, UNNAMED, first - 1, last, group.num_rows, group.total_byte_size)
            yield Group(file, number, entry)


def _ends(shape: Shape, file: RecordedFile, found: pq.ParquetFile, number: int) -> tuple[int, int]:
    """The least and the greatest tick of a row group."""
    tick = shape.stream.tick
    told = found.metadata.row_group(number).column(found.schema_arrow.names.index(tick)).statistics
    if told is not None and told.has_min_max:
        first, last = told.min, told.max
    else:
        with _reading(file.path):
            ends = pc.min_max(found.read_row_group(number, columns=[tick]).column(tick)).as_py()
        first, last = ends["min"], ends["max"]
    if first is None:
        raise _wrong_tick(file.path, shape.name, "an event has none")
    if not 0 <= first <= last <= TICK_MAX:
        raise _wrong_tick(file.path, shape.name, f"{last if first >= 0 else first} is out of range")
    return first, last


def _continued(files: Iterable[Sequence[Group]]) -> Iterator[Group]:
    """The row groups of a stream in order of ticks, each from where the one before it ends."""
    last: Group | None = None
    for group in chain(*sorted(filter(None, files), key=lambda groups: groups[0].entry.lo)):
        entry = group.entry
        if last is not None and entry.lo < last.entry.hi:
            where = "an earlier row group" if last.file == group.file else last.file.path
            raise _wrong_tick(group.file.path, entry.stream, f"{entry.lo + 1} comes after {last.entry.hi} in {where}")
        last = replace(group, entry=replace(entry, lo=NOTHING if last is None else last.entry.hi))
        yield last


def _wrong_tick(path: str, stream: str, what: str) -> SmileError:
    hint = "The ticks of a stream ascend within a file, and those of its files do not overlap."
    return error("E079", f"{path}: wrong tick of {stream}: {what}", hint=hint)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Says what Arrow finds wrong in the meantime."""
    try:
        yield
    except (OSError, pa.ArrowException) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise unreadable(path, problem) from None
        raise damaged(path, str(problem)) from None
