"""Recorded events as `smile replay` reads them: lines of JSON, or a log as it is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from smile.log.database import HEADER
from smile.log.event_errors import BadEvent
from smile.log.events import EventReader
from smile.log.finite_log import FiniteLog
from smile.log.input_batch import END, InputBatch
from smile.log.lines import open_events
from smile.log.position import BatchLimit, Log
from smile.log.reading import open_log, read_batches
from smile.program import CompiledProgram

encode_json = msgspec.json.Encoder().encode


class Recording(Protocol):
    """`log` is where the events are, if a pipeline can read them there as they are. `frames` gives all of them, and
    then the end, if that was asked for."""

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
    streams = compiled.rewritten.streams
    if _is_log(events):
        log = open_log(events, streams)
        yield LogRecording(FiniteLog.wrap(log) if end else log, BatchLimit(rows=batch))
        return
    with _open_bad_lines(bad) as bad_lines, open_events(events) as file:
        name = "standard input" if events == "-" else events
        with _progress_bar() as progress:
            yield JsonLinesRecording(EventReader(streams, file, name, bad_lines), batch, end, progress)


def _is_log(events: str) -> bool:
    path = Path(events)
    if events == "-" or not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


class LogRecording:
    """A log; what is in it was accepted before."""

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
    """Where lines that are refused go: to a file, each with the reason before it; or nowhere, if they may not be."""
    if path is None:
        yield None
        return
    bad_lines = _BadLinesFile(path)
    try:
        yield bad_lines
    finally:
        bad_lines.close()


class _BadLinesFile:
    """Opens its file with the first line that is refused, so that a clean replay leaves none."""

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
    """A bar on standard error, if that is a terminal and the output does not go to the same one."""
    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as progress:
        yield progress
