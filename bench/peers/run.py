"""Runs peers, each in a process of its own with a time limit, and holds each to the truth: a figure counts only if the
final Matchable is right."""

import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.peers import build
from bench.peers.course import digest
from bench.peers.prepare import prepare, truth
from bench.workload import first
from smile.java import java_home

ROOT = Path(__file__).parent.parent.parent
TIME_LIMIT_S = 300.0
STOP_S_MAX = 20.0
CHECKED_EVENTS = 20_000
"""Where the final Matchable would cost time, a second run over so many events gives it."""

SPARK_BATCH = 100_000
"""Events a micro-batch of Structured Streaming."""


@dataclass(frozen=True)
class Setting:
    """One way to run a peer: its module and what that calls the setting, and how they read in a table. A slow one is
    given fewer events, the first ones."""

    module: str
    name: str
    peer: str
    text: str
    events_max: int | None = None
    checked_apart: bool = False


SETTINGS = (
    Setting("postgres", "call", "PostgreSQL", "a call and a transaction an event", 30_000),
    Setting("postgres", "commit", "PostgreSQL", "a transaction an event, within a procedure", 100_000),
    Setting("postgres", "1000", "PostgreSQL", "1,000 events a transaction", 200_000),
    Setting("postgres", "10000", "PostgreSQL", "10,000 events a transaction"),
    Setting("flink", "single", "Flink SQL", "parallelism 2, event by event", checked_apart=True),
    Setting("flink", "mini-batch", "Flink SQL", "parallelism 2, mini-batches of 200 ms", checked_apart=True),
    Setting("pathway", "commits", "Pathway", "2 threads, commits every 200 ms", checked_apart=True),
    Setting("pathway", "static", "Pathway", "2 threads, one static batch", checked_apart=True),
    Setting("structured_streaming", "parquet", "Structured Streaming", f"batches of {SPARK_BATCH:,}, state in Parquet"),
    Setting(
        "structured_streaming", "driver", "Structured Streaming", f"batches of {SPARK_BATCH:,}, state in the driver"
    ),
)


@dataclass(frozen=True)
class Result:
    """What a peer took, or the problem because of which there is nothing to tell."""

    peer: str
    setting: str
    events: int = 0
    seconds: float = 0.0
    startup_seconds: float = 0.0
    problem: str = ""

    @property
    def rate(self) -> float:
        """Events a second once the peer had started."""
        return self.events / self.seconds

    @property
    def rate_with_startup(self) -> float:
        return self.events / (self.seconds + self.startup_seconds)


@dataclass(frozen=True)
class Told:
    """The line that a peer prints."""

    peer: str
    events: int
    seconds: float
    startup_seconds: float
    matchable: str | None


class Failed(Exception):
    """A peer did not do what it is there for; the message says what happened."""


def run(blocks: Sequence[pa.RecordBatch], settings: Sequence[Setting] = SETTINGS) -> Iterator[Result]:
    """Of every setting a result, as soon as it is there."""
    with tempfile.TemporaryDirectory(prefix="smile-peers-") as folder:
        recordings = Recordings(blocks, Path(folder))
        for setting in settings:
            yield result(setting, recordings)


def result(setting: Setting, recordings: "Recordings") -> Result:
    if not build.is_built(setting.module):
        return Result(setting.peer, setting.text, problem="not built (make bench-peers)")
    try:
        events = min(setting.events_max or recordings.events, recordings.events)
        told = _course(setting, recordings.of(events), check=not setting.checked_apart)
        if setting.checked_apart:
            _course(setting, recordings.of(min(CHECKED_EVENTS, events)), check=True)
    except Failed as problem:
        return Result(setting.peer, setting.text, problem=str(problem))
    return Result(told.peer, setting.text, told.events, told.seconds, told.startup_seconds)


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Recording:
    folder: Path
    events: int
    matchable: list[str]


class Recordings:
    """The first events of a recording, prepared once for each number of them."""

    def __init__(self, blocks: Sequence[pa.RecordBatch], folder: Path, batch: int = SPARK_BATCH) -> None:
        self.blocks = blocks
        self.folder = folder
        self.events = sum(block.num_rows for block in blocks)
        self.of = cache(lambda events: self._prepared(events, batch))

    def _prepared(self, events: int, batch: int) -> Recording:
        blocks = list(first(events, self.blocks))
        folder = self.folder / str(events)
        prepare(blocks, folder, batch)
        return Recording(folder, events, truth(blocks))


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _course(setting: Setting, recording: Recording, check: bool) -> Told:
    command: list[str | Path] = [build.python(setting.module), "-m", f"bench.peers.{setting.module}", setting.name]
    command += [recording.folder, str(recording.events)]
    path = recording.folder / f"{setting.module}-{setting.name}.lines"
    if not check:
        return told(output(command))
    found = told(output([*command, "--matchable", path]))
    if found.matchable != digest(recording.matchable):
        raise Failed(difference(path.read_text().splitlines(), recording.matchable))
    return found


def output(command: Sequence[str | Path], limit_s: float = TIME_LIMIT_S) -> str:
    """What the command printed. All that it starts ends with it, and with the time it has."""
    environ = os.environ | {"JAVA_HOME": str(java_home())}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process,
    ):
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {limit_s:g} s") from None
        finally:
            _stop(process)
        if process.returncode != 0:
            errors.seek(0)
            said = [line for line in errors.read().splitlines() if line.strip()]
            raise Failed(f"failed with {process.returncode}: {said[-1] if said else 'nothing was said'}")
        return printed


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S_MAX)
    with suppress(ProcessLookupError):  # nothing was left behind
        os.killpg(process.pid, signal.SIGKILL)


def told(printed: str) -> Told:
    """The last line is the peer's; before it there may be what its libraries say."""
    lines = printed.splitlines()
    try:
        line: dict[str, Any] = json.loads(lines[-1])
        return Told(**line)
    except (IndexError, TypeError, ValueError):
        raise Failed(f"told nothing of its course: {lines[-1] if lines else 'no line at all'}") from None


def difference(found: Sequence[str], right: Sequence[str]) -> str:
    """Where a Matchable departs from the truth."""
    extra = list((Counter(found) - Counter(right)).elements())
    missing = list((Counter(right) - Counter(found)).elements())
    examples = [f"{what} {lines[0]}" for what, lines in (("has", extra), ("lacks", missing)) if lines]
    return f"Matchable is wrong: {len(extra)} rows too many, {len(missing)} too few; it {' and '.join(examples)}"
