"""`smile replay`: recorded events through a program, and what its views show. Every line written is whole."""

import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from smile.algebra.printer import print_program
from smile.engine.local import Batch, LocalEngine
from smile.engine.messages import messages
from smile.kernels.compile import Kernels, compile_graph, shown
from smile.kernels.shown import Shown
from smile.knowledge.json import tick_json
from smile.log.events import EventReader
from smile.log.frame import END, NOTHING, Frame
from smile.log.lines import open_events
from smile.log.places import BadEvent
from smile.program import Compiled
from smile.state.store import Store

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Replay:
    """What is asked for. `bad` is where lines that are refused go; without it the first one ends the replay. `state` is
    where state is kept from one run to the next."""

    views: Sequence[str]
    events: str
    batch: int
    changes: bool
    end: bool
    bad: str | None
    state: str | None = None


@dataclass
class Figures:
    started: float = field(default_factory=time.perf_counter)
    events: int = 0
    duplicates: int = 0
    refused: int = 0
    frames: int = 0
    changed: int = 0
    state_rows: int = 0
    state_bytes: int = 0

    def text(self) -> str:
        seconds = time.perf_counter() - self.started
        rate = self.events / seconds if seconds else 0
        parts = [
            f"{_count(self.events, 'event')} in {seconds:.2f} s ({rate:,.0f} events/s, {_count(self.frames, 'batch')})",
            f"{_count(self.changed, 'row')} changed",
            f"state: {self.state_rows:,} rows, {self.state_bytes / 1e6:,.1f} MB",
        ]
        if self.duplicates:
            parts.append(f"{_count(self.duplicates, 'duplicate')} dropped")
        if self.refused:
            parts.append(f"{_count(self.refused, 'line')} refused")
        return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("ch") else "s")


def replay(compiled: Compiled, asked: Replay) -> Figures:
    """Writes to standard output; raises SmileError where events or their file are wrong."""
    kernels = compile_graph(compiled.graph.for_views(asked.views), compiled.rewritten.streams)
    engine = LocalEngine(kernels if asked.changes else kernels.keeping(asked.views))
    if asked.state is not None:
        engine.store = Store.at(asked.state, _digest(compiled, asked))
        for problem in engine.resume():
            print(f"smile: {problem}; it is passed over", file=sys.stderr)
    figures = Figures()
    out = sys.stdout.buffer
    with _refused(asked.bad) as refuse, open_events(asked.events) as file:
        name = "standard input" if asked.events == "-" else asked.events
        reader = EventReader(compiled.rewritten.streams, file, name, refuse)
        with _progress(reader) as tell:
            for frame in _frames(reader, asked):
                batch = engine.advance(frame)
                figures.frames += bool(frame.horizons)
                figures.changed += _written(out if asked.changes else None, kernels, asked.views, batch)
                if asked.state is not None:
                    engine.checkpoint()
                tell()
    figures.events, figures.duplicates, figures.refused = reader.events, reader.duplicates, reader.bad
    if not asked.changes:
        _write_rows(out, engine, asked.views)
    out.flush()
    tables = engine.tables.values()
    figures.state_rows = sum(table.size for table in tables)
    figures.state_bytes = sum(table.bytes for table in tables)
    return figures


def _digest(compiled: Compiled, asked: Replay) -> str:
    """What state belongs to: the program as it runs, and the views whose rows are kept."""
    kept = [] if asked.changes else sorted(asked.views)
    return hashlib.sha256(repr([print_program(compiled.rewritten), kept]).encode()).hexdigest()


def _frames(reader: EventReader, asked: Replay) -> Iterator[Frame]:
    """What is shown before anything has happened comes first, and the end of all streams last."""
    yield Frame({}, {})
    yield from reader.frames(asked.batch)
    if asked.end:
        yield Frame({}, dict.fromkeys(reader.horizons, END))


def _written(out: BinaryIO | None, kernels: Kernels, views: Sequence[str], batch: Batch) -> int:
    """Writes the changes of a frame, and its progress; counts them."""
    count = 0
    for view in views:
        changes = batch.changes.get(view)
        if changes is None:
            continue
        count += len(changes)
        if out is not None:
            source = kernels.inputs[view]
            for message in messages(view, source.type, source.layout, changes, batch.horizons):
                out.write(encode(message) + b"\n")
    known = {stream: tick_json(h) for stream, h in batch.horizons.items() if h > NOTHING}
    if out is not None and known:
        out.write(encode({"progress": known}) + b"\n")
        out.flush()
    return count


def _write_rows(out: BinaryIO, engine: LocalEngine, views: Sequence[str]) -> None:
    for view in views:
        kept, source = engine.kernels.transforms[shown(view)], engine.kernels.inputs[view]
        assert isinstance(kept, Shown)
        rows = kept.rows(engine.remembered.states[shown(view)])
        out.writelines(
            encode(message) + b"\n"
            for message in messages(view, source.type, source.layout, rows, engine.remembered.horizons)
        )


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


class _Tell:
    def __init__(self, progress: Progress, task: TaskID, reader: EventReader) -> None:
        self.progress, self.task, self.reader = progress, task, reader

    def __call__(self) -> None:
        told = f"{self.reader.events:,} events"
        self.progress.update(self.task, completed=self.reader.bytes_read, description=told)


@contextmanager
def _progress(reader: EventReader) -> Iterator["_Tell"]:
    """A bar on standard error, if that is a terminal and the output does not go to the same one."""
    hidden = not sys.stderr.isatty() or sys.stdout.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as progress:
        task = progress.add_task("0 events", total=reader.bytes_total)
        yield _Tell(progress, task, reader)
