"""`smile replay`: recorded events through a program, and what its views show. Every line written is whole."""

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from smile.algebra.printer import print_program
from smile.cli.recording import Recording, encode, recording
from smile.engine.local import Batch, LocalEngine
from smile.engine.messages import messages
from smile.kernels.changes import Changes
from smile.kernels.compile import Kernels, compile_graph, shown
from smile.kernels.shown import Shown
from smile.knowledge.json import tick_json
from smile.log.frame import NOTHING, Frame
from smile.program import Compiled
from smile.state.store import Store


@dataclass(frozen=True)
class OnSpark:
    """Where a pipeline runs, and in how many partitions. With `verbose`, what Java says is shown."""

    master: str
    partitions: int
    verbose: bool


@dataclass(frozen=True)
class Replay:
    """What is asked for. `batch` is None where batches may grow with what there is to do. `bad` is where lines that are
    refused go; without it the first one ends the replay. `state` is where state is kept from one run to the next.
    Without `spark` it all happens in this process."""

    views: Sequence[str]
    events: str
    batch: int | None
    changes: bool
    end: bool
    bad: str | None
    state: str | None
    spark: OnSpark | None


BATCH_DEFAULT = 10_000
"""Lines taken in at once: enough that the work on each is small, few enough that changes come often."""


@dataclass
class Figures:
    started: float = field(default_factory=time.perf_counter)
    events: int = 0
    duplicates: int = 0
    refused: int = 0
    frames: int = 0
    changed: int = 0
    state_rows: int | None = None
    """Not counted where state lies in files of many partitions."""
    state_bytes: int = 0

    def _state(self) -> str:
        size = f"{self.state_bytes / 1e6:,.1f} MB"
        return f"state: {size}" if self.state_rows is None else f"state: {self.state_rows:,} rows, {size}"

    def text(self) -> str:
        seconds = time.perf_counter() - self.started
        rate = self.events / seconds if seconds else 0
        parts = [
            f"{_count(self.events, 'event')} in {seconds:.2f} s ({rate:,.0f} events/s, {_count(self.frames, 'batch')})",
            f"{_count(self.changed, 'row')} changed",
            self._state(),
        ]
        if self.duplicates:
            parts.append(f"{_count(self.duplicates, 'duplicate')} dropped")
        if self.refused:
            parts.append(f"{_count(self.refused, 'line')} refused")
        return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("ch") else "s")


def replay(compiled: Compiled, asked: Replay) -> Figures:
    """Writes to standard output; raises SmileError where events, their file or the machine are wrong."""
    figures = Figures()
    with recording(compiled, asked.events, asked.batch or BATCH_DEFAULT, asked.end, asked.bad) as recorded:
        if asked.spark is None:
            _locally(compiled, asked, recorded, figures)
        else:
            # Spark takes a second to load, which nothing else needs.
            from smile.cli.on_spark import on_spark  # noqa: PLC0415

            on_spark(compiled, asked, asked.spark, recorded, figures)
    figures.events, figures.duplicates, figures.refused = recorded.events, recorded.duplicates, recorded.refused
    sys.stdout.buffer.flush()
    return figures


def _locally(compiled: Compiled, asked: Replay, recorded: Recording, figures: Figures) -> None:
    kernels = compile_graph(compiled.graph.for_views(asked.views), compiled.rewritten.streams)
    engine = LocalEngine(kernels if asked.changes else kernels.keeping(asked.views))
    if asked.state is not None:
        engine.store = Store.at(f"{asked.state}/in-process", _digest(compiled, asked))
        for problem in engine.resume():
            say(f"{problem}; it is passed over")
    # What is shown before anything has happened comes first.
    for frame in chain([Frame({}, {})], recorded.frames()):
        write(asked, kernels, engine.advance(frame), figures)
        if asked.state is not None:
            engine.checkpoint()
    if not asked.changes:
        states = engine.remembered.states
        for view in asked.views:
            kept = engine.kernels.transforms[shown(view)]
            assert isinstance(kept, Shown)
            write_rows(kernels, view, kept.rows(states[shown(view)]), engine.remembered.horizons)
    tables = engine.tables.values()
    figures.state_rows = sum(table.size for table in tables)
    figures.state_bytes = sum(table.bytes for table in tables)


def _digest(compiled: Compiled, asked: Replay) -> str:
    """What state belongs to: the program as it runs, and the views whose rows are kept."""
    kept = [] if asked.changes else sorted(asked.views)
    return hashlib.sha256(repr([print_program(compiled.rewritten), kept]).encode()).hexdigest()


# ── what is written ─────────────────────────────────────────────────────────────────────────────────────────────────


def say(what: str) -> None:
    print(f"smile: {what}", file=sys.stderr)


def write(asked: Replay, kernels: Kernels, batch: Batch, figures: Figures) -> None:
    """The changes of a batch, and its progress, if they are asked for; counts them."""
    out = sys.stdout.buffer
    figures.frames += bool(known := {stream: tick_json(h) for stream, h in batch.horizons.items() if h > NOTHING})
    for view in asked.views:
        changes = batch.changes.get(view)
        if changes is None:
            continue
        figures.changed += len(changes)
        if asked.changes:
            source = kernels.inputs[view]
            for message in messages(view, source.type, source.layout, changes, batch.horizons):
                out.write(encode(message) + b"\n")
    if asked.changes and known:
        out.write(encode({"progress": known}) + b"\n")
        out.flush()


def write_rows(kernels: Kernels, view: str, rows: Changes, horizons: Mapping[str, int]) -> None:
    source = kernels.inputs[view]
    told = messages(view, source.type, source.layout, rows, horizons)
    sys.stdout.buffer.writelines(encode(message) + b"\n" for message in told)
