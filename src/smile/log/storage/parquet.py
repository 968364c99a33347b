"""A read-only log: recorded events in a directory of Parquet files. Each row group is a piece and a commit.

The ticks of a stream ascend within a file, and its files do not overlap. Commits are ordered by their last ticks over
all streams, so that the streams advance together. The log consists of the files that exist when it is opened; they must
not change afterwards.
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
from smile.algebra.coercions import describe_tick
from smile.algebra.types import TICK_MAX
from smile.decoding.arrow_columns import check_columns, is_text, stream_column, stream_events, value_type
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import END, HORIZON_MIN
from smile.log.lines import unreadable_error
from smile.log.position import DEFAULT_ORIGIN
from smile.log.storage.piece_log import Origins, PieceEntry, PieceLog, damaged_error, ticks_of
from smile.log.storage.unique_values import UsedValues


@dataclass(frozen=True)
class RecordedFile:
    """A file as it was when the log was opened."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class RowGroup:
    """A row group with at least one row. `number` is its index in the file."""

    file: RecordedFile
    number: int
    entry: PieceEntry


class ParquetLog(PieceLog):
    """`groups` are in commit order."""

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], groups: Sequence[RowGroup]) -> None:
        super().__init__(path, streams)
        self._groups = groups
        self._groups_by_stream = {name: [g for g in groups if g.entry.stream == name] for name in self.schemas}
        self._open_files: dict[str, tuple[RecordedFile, pq.ParquetFile]] = {}

    @staticmethod
    def open(path: str, streams: Sequence[mmpl.StreamDef]) -> "ParquetLog":
        """Opens all files `<stream>.parquet`, and all files anywhere in directories `<stream>`."""
        schemas = {stream.name: StreamSchema(stream) for stream in streams}
        groups_by_file: dict[str, list[list[RowGroup]]] = {name: [] for name in schemas}
        for name, file in _find_files(Path(path), schemas):
            groups_by_file[name].append(list(_row_groups(schemas[name], file)))
        ordered = [group for files in groups_by_file.values() for group in _link_row_groups(files)]
        ordered.sort(key=lambda group: group.entry.hi)
        groups = [replace(group, entry=replace(group.entry, commit=n)) for n, group in enumerate(ordered, 1)]
        log = ParquetLog(path, streams, groups)
        log._check_unique_values()
        return log

    def _check_unique_values(self) -> None:
        """Raises an error if two events have the same values of UNIQUE columns."""
        used_values = UsedValues()
        for name, schema in self.schemas.items():
            if schema.stream.unique:
                for _, events in self._pieces(name, DEFAULT_ORIGIN, HORIZON_MIN, END):
                    if events is not None:
                        used_values.add(schema.stream, events)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetLog, (self.path, [schema.stream for schema in self.schemas.values()], self._groups)

    def _commits(self, after: int) -> Generator[tuple[int, Sequence[PieceEntry]], None, None]:
        if after > len(self._groups):
            message = f"{self.path} has no row group {after} in tick order, although it was read before"
            raise error("E089", message, hint="Files are missing. Delete the state that was computed from them.")
        for n in range(after, len(self._groups)):
            yield n + 1, [self._groups[n].entry]

    def _pieces(
        self, stream: str, origin: str, lo: int, hi: int
    ) -> Generator[tuple[PieceEntry, pa.RecordBatch | None], None, None]:
        """Combines the row groups of a file that are read together to one piece."""
        groups = self._groups_by_stream[stream] if origin == DEFAULT_ORIGIN else []
        first = bisect_right(groups, lo, key=lambda group: group.entry.hi)
        end = bisect_right(groups, hi - 1, key=lambda group: group.entry.lo)
        for file, file_groups in groupby(groups[first:end], key=lambda group: group.file):
            piece_groups = list(file_groups)
            entry = replace(piece_groups[0].entry, hi=piece_groups[-1].entry.hi)
            yield entry, self._events(stream, file, piece_groups)

    def _events(self, stream: str, file: RecordedFile, groups: Sequence[RowGroup]) -> pa.RecordBatch:
        lo, hi = groups[0].entry.lo, groups[-1].entry.hi
        with _translate_errors(file.path):
            table = self._open_file(stream, file).read_row_groups([group.number for group in groups], use_threads=False)
        events = stream_events(file.path, self.schemas[stream], table)
        if events.column(0).null_count:
            raise _wrong_tick_error(file.path, stream, "an event has none")
        ticks = ticks_of(events)
        for i in (ticks[1:] <= ticks[:-1]).nonzero()[0].tolist()[:1]:
            raise _tick_order_error(file.path, stream, int(ticks[i + 1]), int(ticks[i]))
        if not len(ticks) or ticks[0] <= lo or ticks[-1] != hi:
            raise damaged_error(file.path, f"its ticks differ from its statistics, above {lo} up to {hi}")
        return events

    def _open_file(self, stream: str, file: RecordedFile) -> pq.ParquetFile:
        """Keeps one file of each stream open."""
        if _stat_file(Path(file.path)) != file:
            hint = "Do not change a file after it was read. Add events as new files, between runs."
            raise error("E089", f"{file.path} has changed since it was first read", hint=hint)
        if stream not in self._open_files or self._open_files[stream][0] != file:
            self._open_files[stream] = (file, _open_parquet(file.path))
        return self._open_files[stream][1]

    def _origins(self, stream: str | None = None) -> Origins:
        return {
            (s, DEFAULT_ORIGIN): (groups[0].entry.commit, HORIZON_MIN)
            for s, groups in self._groups_by_stream.items()
            if groups and stream in (None, s)
        }

    def _last_commit(self) -> int:
        return len(self._groups)

    def _horizon(self, stream: str, origin: str) -> int:
        return self._groups_by_stream[stream][-1].entry.hi

    def _horizon_at(self, stream: str, origin: str, commit: int) -> int:
        groups = self._groups_by_stream[stream]
        return groups[bisect_right(groups, commit, key=lambda group: group.entry.commit) - 1].entry.hi

    def _first_uncovered(self, stream: str, origin: str, tick: int) -> int | None:
        groups = self._groups_by_stream[stream]
        index = bisect_right(groups, tick, key=lambda group: group.entry.hi)
        return groups[index].entry.commit if index < len(groups) else None


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _find_files(root: Path, schemas: Mapping[str, StreamSchema]) -> Iterator[tuple[str, RecordedFile]]:
    with _translate_errors(str(root)):
        paths = [path for path in sorted(root.iterdir()) if not _is_hidden(path)]
        if not paths:
            raise error(
                "E070", f"{root} has no recorded events", hint=f"Put them into files {next(iter(schemas))}.parquet."
            )
        for path in paths:
            name = path.name.removesuffix(".parquet")
            if name not in schemas or not (path.is_dir() or path.suffix == ".parquet"):
                hint = (
                    did_you_mean(name, schemas) or f"There are {', '.join(schemas)}; files are named <stream>.parquet."
                )
                raise error("E076", f"{path} is not named after a stream", hint=hint)
            for file in _files_in(path) if path.is_dir() else [path]:
                yield name, _stat_file(file)


def _files_in(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if _is_hidden(path):
            continue
        if path.is_dir() and "=" not in path.name:
            yield from _files_in(path)
        elif path.suffix == ".parquet" and path.is_file():
            yield path
        else:
            hint = "A stream's directory may only have files *.parquet. Names of directories cannot define columns."
            raise error("E070", f"{path} is not a Parquet file", hint=hint)


def _is_hidden(path: Path) -> bool:
    """Writers of Parquet use such names for files without data."""
    return path.name.startswith((".", "_"))


def _stat_file(path: Path) -> RecordedFile:
    with _translate_errors(str(path)):
        status = path.stat()
    return RecordedFile(str(path), status.st_size, status.st_mtime_ns)


def _open_parquet(path: str) -> pq.ParquetFile:
    with _translate_errors(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


def _row_groups(schema: StreamSchema, file: RecordedFile) -> Iterator[RowGroup]:
    """The row groups of one file that have rows. `lo` is only provisional; `_link_row_groups` sets it."""
    parquet_file = _open_parquet(file.path)
    check_columns(file.path, schema, parquet_file.schema_arrow)
    for number in range(parquet_file.metadata.num_row_groups):
        group = parquet_file.metadata.row_group(number)
        if group.num_rows:
            first, last = _tick_range(schema, file, parquet_file, number)
            entry = PieceEntry(0, schema.name, DEFAULT_ORIGIN, first - 1, last, group.num_rows, group.total_byte_size)
            yield RowGroup(file, number, entry)


def _tick_range(schema: StreamSchema, file: RecordedFile, parquet_file: pq.ParquetFile, number: int) -> tuple[int, int]:
    """The least and the greatest tick of a row group."""
    tick = schema.stream.tick
    field = parquet_file.schema_arrow.field(tick)
    statistics = parquet_file.metadata.row_group(number).column(parquet_file.schema_arrow.names.index(tick)).statistics
    if statistics is not None and statistics.has_min_max and not is_text(value_type(field.type)):
        bounds = pa.table({tick: pa.array([statistics.min, statistics.max], field.type)})
    else:
        with _translate_errors(file.path):
            bounds = parquet_file.read_row_group(number, columns=[tick])
    ticks = pc.min_max(stream_column(file.path, schema, tick, bounds)).as_py()
    first, last = ticks["min"], ticks["max"]
    if first is None:
        raise _wrong_tick_error(file.path, schema.name, "an event has none")
    if not 0 <= first <= last <= TICK_MAX:
        raise _wrong_tick_error(file.path, schema.name, f"{last if first >= 0 else first} is out of range")
    return first, last


def _link_row_groups(files: Iterable[Sequence[RowGroup]]) -> Iterator[RowGroup]:
    """The row groups of a stream in tick order. Each begins where the previous one ends."""
    previous: RowGroup | None = None
    for group in chain(*sorted(filter(None, files), key=lambda groups: groups[0].entry.lo)):
        entry = group.entry
        if previous is not None and entry.lo < previous.entry.hi:
            where = "an earlier row group" if previous.file == group.file else previous.file.path
            raise _tick_order_error(group.file.path, entry.stream, entry.lo + 1, previous.entry.hi, f" in {where}")
        previous = replace(group, entry=replace(entry, lo=HORIZON_MIN if previous is None else previous.entry.hi))
        yield previous


def _tick_order_error(path: str, stream: str, tick: int, previous: int, where: str = "") -> SmileError:
    return _wrong_tick_error(path, stream, f"{describe_tick(tick)} comes after {describe_tick(previous)}{where}")


def _wrong_tick_error(path: str, stream: str, problem: str) -> SmileError:
    hint = "The ticks of a stream ascend within a file, and those of its files do not overlap."
    return error("E079", f"{path}: wrong tick of {stream}: {problem}", hint=hint)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Translates Arrow's errors in the block to errors of the catalogue."""
    try:
        yield
    except (OSError, pa.ArrowException) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise unreadable_error(path, problem) from None
        raise damaged_error(path, str(problem)) from None
