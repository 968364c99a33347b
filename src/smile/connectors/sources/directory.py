"""A source: the files of a directory, on any file system that Arrow reaches. New files are read, and files in CSV and
NDJSON may also grow.

Each file is a part, and its events have the numbers of its rows. A line is read when its line feed is there, so a line
that is being written is never read in half. The log has the byte after the last logged row beside the row's number: a
file that has grown is read from there.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from smile.connectors.file_systems import open_file_system
from smile.connectors.sources.encoded_events import ArrowEvents, LineEvents
from smile.connectors.sources.event_source import FindPosition, SourceBatch
from smile.connectors.sources.lines import CompleteLines, read_lines
from smile.errors import Diagnostic, SmileError, error

FORMATS: Final = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}
BATCH_EVENTS: Final = 5_000


class FilePosition(msgspec.Struct, frozen=True):
    """The next row of a file, and the byte at which it begins."""

    row: int = 0
    byte: int = 0


@dataclass
class _File:
    """`position` is after everything that was given to the broker. `seen` are size and time of the file when everything
    in it was read."""

    path: str
    name: str
    position: FilePosition
    header: bytes | None = None
    seen: tuple[int, int] | None = None
    batches: Iterator[pa.RecordBatch] | None = field(default=None, repr=False)
    """The rest of a file in Parquet that is being read."""


class DirectorySource:
    """`url` is a path, or the URL of a file system and a directory in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._find_position: FindPosition = lambda _: None
        self._files: dict[str, _File] = {}
        self._pending: list[fs.FileInfo] = []
        self._problems: dict[str, Diagnostic] = {}
        self._ignored = 0
        self._waiting_bytes = 0

    def open(self, find_position: FindPosition) -> None:
        self._find_position = find_position
        self._files.clear()
        self._pending.clear()
        self._problems.clear()
        self._system, self._base = open_file_system(self._url)

    def close(self) -> None:
        self._files.clear()

    def problems(self) -> Mapping[str, Diagnostic]:
        return dict(self._problems)

    def status(self) -> Mapping[str, Any]:
        return {"files": len(self._files), "ignored_files": self._ignored, "waiting_bytes": self._waiting_bytes}

    def accept(self, batch: SourceBatch) -> None:
        """The log knows the position."""

    def next_batch(self) -> SourceBatch | None:
        """Reads the files in the order of their paths. None when all are read: the next call lists them again."""
        if not self._pending:
            self._pending = self._list_files()
        while self._pending:
            info = self._pending[0]
            rest = self._rest(info)
            batch = self._read_file(info)
            self._waiting_bytes -= rest - self._rest(info)
            if batch is not None:
                return batch
            del self._pending[0]
        return None

    def _list_files(self) -> list[fs.FileInfo]:
        """The files that may have something new."""
        try:
            infos = self._system.get_file_info(fs.FileSelector(self._base, recursive=True))
        except OSError as problem:
            raise error("E201", f"{self._url} cannot be listed: {problem}") from None
        present = {info.path: info for info in infos if info.type == fs.FileType.File and not self._is_hidden(info)}
        known = {path: info for path, info in present.items() if _format(path) is not None}
        self._ignored = len(present) - len(known)
        for path in [path for path in self._files if path not in known]:
            del self._files[path]
        self._problems = {path: p for path, p in self._problems.items() if path in known}
        new = [info for path, info in sorted(known.items()) if self._has_changed(info)]
        self._waiting_bytes = sum(self._rest(info) for info in new)
        return new

    def _is_hidden(self, info: fs.FileInfo) -> bool:
        """Writers give files such names until they are complete."""
        return any(part.startswith((".", "_")) for part in PurePosixPath(self._name(info.path)).parts)

    def _name(self, path: str) -> str:
        return path.removeprefix(self._base).lstrip("/")

    def _has_changed(self, info: fs.FileInfo) -> bool:
        file = self._files.get(info.path)
        return file is None or file.seen != _stamp(info)

    def _rest(self, info: fs.FileInfo) -> int:
        file = self._files.get(info.path)
        if file is None:
            return int(info.size)
        return 0 if file.seen == _stamp(info) else max(0, int(info.size) - file.position.byte)

    def _read_file(self, info: fs.FileInfo) -> SourceBatch | None:
        """The next events of a file; None if there are no more now. A file that cannot be read does not hold up the
        others: it is tried again when the directory is listed."""
        file = self._files.get(info.path)
        if file is None:
            file = self._files[info.path] = self._find_file(info.path)
        try:
            batch = self._read_parquet(file) if _format(info.path) == "parquet" else self._read_text(file, info)
        except SmileError as problem:
            self._fail(file, problem)
            return None
        except (OSError, pa.ArrowException) as problem:
            self._fail(file, error("E202", f"{file.name} cannot be read: {problem}"))
            return None
        if batch is None:
            file.seen = _stamp(info)
        else:
            self._problems.pop(file.path, None)
        return batch

    def _fail(self, file: _File, problem: SmileError) -> None:
        file.batches = None
        self._problems[file.path] = problem.diagnostics[0]

    def _find_file(self, path: str) -> _File:
        name = self._name(path)
        logged = self._find_position(_part(name))
        if logged is None:
            return _File(path, name, FilePosition())
        return _File(path, name, msgspec.json.decode(logged.note, type=FilePosition))

    def _read_text(self, file: _File, info: fs.FileInfo) -> SourceBatch | None:
        if info.size < file.position.byte:
            hint = "Files may grow, but never change. Write new events to a new file."
            raise error("E202", f"{file.name} is shorter than what was read of it", hint=hint)
        with self._system.open_input_file(file.path) as opened:
            is_csv = _format(file.path) == "csv"
            if is_csv and file.header is None:
                first = read_lines(opened, 0, 1, is_csv)
                if not first.lines:
                    self._report_rest(file, first)
                    return None
                file.header = first.lines[0].removeprefix(b"\xef\xbb\xbf")
                if file.position.byte == 0:
                    file.position = FilePosition(0, first.ends[0])
            start = file.position
            read = read_lines(opened, start.byte, BATCH_EVENTS, is_csv)
        if not read.lines:
            self._report_rest(file, read)
            return None
        file.position = FilePosition(start.row + len(read.lines), read.ends[-1])

        def note(end: int) -> str:
            return msgspec.json.encode(FilePosition(start.row + end, read.ends[end - 1])).decode()

        events = LineEvents(read.lines, file.name, start.row, file.header)
        return SourceBatch(_part(file.name), start.row, events, note)

    def _report_rest(self, file: _File, read: CompleteLines) -> None:
        """Says so if the last line has no end yet."""
        if read.has_rest:
            message = f"the last line of {file.name} has no line feed yet: it is read when it has one"
            self._problems[file.path] = Diagnostic("E203", message)
        else:
            self._problems.pop(file.path, None)

    def _read_parquet(self, file: _File) -> SourceBatch | None:
        if file.batches is None:
            file.batches = _batches_after(pq.ParquetFile(self._system.open_input_file(file.path)), file.position.row)
        batch = next(file.batches, None)
        if batch is None:
            file.batches = None
            self._problems.pop(file.path, None)
            return None
        row = file.position.row
        file.position = FilePosition(row + batch.num_rows)

        def note(end: int) -> str:
            return msgspec.json.encode(FilePosition(row + end)).decode()

        return SourceBatch(_part(file.name), row, ArrowEvents(batch, file.name, row), note)


def _batches_after(file: pq.ParquetFile, row: int) -> Iterator[pa.RecordBatch]:
    """The rows after the first `row` ones."""
    with file:
        for batch in file.iter_batches(batch_size=BATCH_EVENTS):
            if row < batch.num_rows:
                yield batch.slice(row)
            row = max(0, row - batch.num_rows)


def _format(path: str) -> str | None:
    """By the end of its name, in any case: some systems write `SALES.CSV`."""
    return FORMATS.get(PurePosixPath(path).suffix.lower())


def _stamp(info: fs.FileInfo) -> tuple[int, int]:
    return info.size, info.mtime_ns or 0


def _part(name: str) -> str:
    """The name of a file as part of its source: of limited length, and printable."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]
