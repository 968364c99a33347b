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
from smile.log.ended import Ended
from smile.log.events import EventReader
from smile.log.frame import END, Frame
from smile.log.lines import open_events
from smile.log.places import BadEvent
from smile.log.position import Limit, Log
from smile.log.reading import frames, opened
from smile.program import Compiled

encode = msgspec.json.Encoder().encode


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

    def frames(self) -> Iterator[Frame]: ...


@contextmanager
def recording(compiled: Compiled, events: str, batch: int, end: bool, bad: str | None) -> Iterator[Recording]:
    streams = compiled.rewritten.streams
    if _is_log(events):
        log = opened(events, streams)
        yield Recorded(Ended.of(log) if end else log, Limit(rows=batch))
        return
    with _refused(bad) as refuse, open_events(events) as file:
        name = "standard input" if events == "-" else events
        with _progress() as progress:
            yield Lines(EventReader(streams, file, name, refuse), batch, end, progress)


def _is_log(events: str) -> bool:
    place = Path(events)
    if events == "-" or not place.is_file():
        return place.is_dir()
    with place.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


class Recorded:
    """A log; what is in it was accepted before."""

    duplicates = refused = 0

    def __init__(self, log: Log, limit: Limit) -> None:
        self.log, self.limit = log, limit
        self.events, _ = log.waiting(log.start())

    def frames(self) -> Iterator[Frame]:
        return frames(self.log, self.limit)


class Lines:
    """Lines of JSON."""

    log = None

    def __init__(self, reader: EventReader, batch: int, end: bool, progress: Progress) -> None:
        self.reader, self.batch, self.end, self.progress = reader, batch, end, progress

    def frames(self) -> Iterator[Frame]:
        task = self.progress.add_task("0 events", total=self.reader.bytes_total)
        for frame in self.reader.frames(self.batch):
            yield frame
            told = f"{self.reader.events:,} events"
            self.progress.update(task, completed=self.reader.bytes_read, description=told)
        if self.end:
            yield Frame({}, dict.fromkeys(self.reader.horizons, END))

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
def _refused(path: str | None) -> Iterator["_Refuse | None"]:
    """Where lines that are refused go: to a file, each with the reason before it; or nowhere, if they may not be."""
    if path is None:
        yield None
        return
    refuse = _Refuse(path)
    try:
        yield refuse
    finally:
        refuse.close()


class _Refuse:
    """Opens its file with the first line that is refused, so that a clean replay leaves none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: BinaryIO | None = None

    def __call__(self, bad: BadEvent) -> None:
        if self.file is None:
            self.file = Path(self.path).open("wb")  # noqa: SIM115  # closed by `close`
        told = {"line": bad.number, "code": bad.diagnostic.code, "reason": bad.diagnostic.message}
        self.file.write(encode({**told, "text": bad.source.text}) + b"\n")

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, if that is a terminal and the output does not go to the same one."""
    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as progress:
        yield progress
