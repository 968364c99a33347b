"""The recorded events that `smile replay` reads: lines of JSON, or a log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from smile.decoding.event_decoder import EventDecoder
from smile.horizons import END
from smile.log.input_batch import InputBatch
from smile.log.lines import open_events
from smile.log.position import BatchLimit, Log
from smile.log.recorded_events import BadEvent, EventReader, refuse_imported_views
from smile.log.storage.database import HEADER
from smile.log.storage.finite_log import FiniteLog
from smile.log.storage.reading import open_log, read_batches
from smile.program import CompiledProgram

encode_json = msgspec.json.Encoder().encode


class Recording(Protocol):
    """`batches` yields all events, and then the end of all streams if it was requested. `log` has the same events, if a
    pipeline can read them directly."""

    @property
    def events(self) -> int: ...

    @property
    def duplicates(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def log(self) -> Log | None: ...

    def batches(self) -> Iterator[InputBatch]: ...


@contextmanager
def open_recording(
    compiled: CompiledProgram, events: str, batch: int, end: bool, bad: str | None
) -> Iterator[Recording]:
    program = compiled.rewritten
    if _is_log(events):
        log = open_log(events, program.log_streams)
        yield LogRecording(FiniteLog.wrap(log) if end else log, BatchLimit(rows=batch))
        return
    refuse_imported_views(program)
    with _open_bad_lines(bad) as bad_lines, open_events(events) as file:
        name = "standard input" if events == "-" else events
        with _progress_bar() as progress:
            yield JsonLinesRecording(
                EventReader(EventDecoder(program.input_streams), file, name, bad_lines), batch, end, progress
            )


def _is_log(events: str) -> bool:
    path = Path(events)
    if events == "-" or not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


class LogRecording:
    """A log. Its events were checked when they were appended."""

    duplicates = refused = 0

    def __init__(self, log: Log, limit: BatchLimit) -> None:
        self.log, self.limit = log, limit
        self.events, _ = log.backlog(log.start())

    def batches(self) -> Iterator[InputBatch]:
        return read_batches(self.log, self.limit)


class JsonLinesRecording:
    """Lines of JSON."""

    log = None

    def __init__(self, reader: EventReader, batch: int, end: bool, progress: Progress) -> None:
        self.reader, self.batch, self.end, self.progress = reader, batch, end, progress

    def batches(self) -> Iterator[InputBatch]:
        task = self.progress.add_task("0 events", total=self.reader.bytes_total)
        for batch in self.reader.batches(self.batch):
            yield batch
            description = f"{self.reader.events:,} events"
            self.progress.update(task, completed=self.reader.bytes_read, description=description)
        if self.end:
            yield InputBatch({}, dict.fromkeys(self.reader.horizons, END))

    @property
    def events(self) -> int:
        return self.reader.events

    @property
    def duplicates(self) -> int:
        return self.reader.duplicates

    @property
    def refused(self) -> int:
        return self.reader.bad


@contextmanager
def _open_bad_lines(path: str | None) -> Iterator["_BadLinesFile | None"]:
    """Receives refused lines and writes them to a file. Without a file, the first refused line is an error."""
    if path is None:
        yield None
        return
    bad_lines = _BadLinesFile(path)
    try:
        yield bad_lines
    finally:
        bad_lines.close()


class _BadLinesFile:
    """Creates its file for the first refused line, so that a replay without errors leaves no file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: BinaryIO | None = None

    def __call__(self, bad: BadEvent) -> None:
        if self.file is None:
            self.file = Path(self.path).open("wb")  # noqa: SIM115  # closed by `close`
        record = {"line": bad.number, "code": bad.diagnostic.code, "reason": bad.diagnostic.message}
        self.file.write(encode_json({**record, "text": bad.source.text}) + b"\n")

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal and standard output is not."""
    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as progress:
        yield progress
