"""Runs peers, each in its own process with a time limit, and checks their results: a figure counts only if the final
Matchable is right."""

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
from bench.peers.prepare import expected_matchable, write_event_files
from bench.peers.protocol import digest
from bench.workload import first_rows
from smile.java import java_home

ROOT = Path(__file__).parent.parent.parent
TIME_LIMIT_S = 300.0
STOP_S_MAX = 20.0
CHECK_EVENTS = 20_000
"""If collecting the final Matchable would cost time, a second run over this number of events checks it."""

SPARK_BATCH = 100_000
"""Events in a micro-batch of Structured Streaming."""


@dataclass(frozen=True)
class PeerSetting:
    """One way to run a peer: its module and the name of the setting there, and the names of both for the report. A slow
    setting gets only the first `events_max` events."""

    module: str
    name: str
    peer: str
    text: str
    events_max: int | None = None
    check_separately: bool = False


SETTINGS = (
    PeerSetting("postgres", "call", "PostgreSQL", "a call and a transaction an event", 30_000),
    PeerSetting("postgres", "commit", "PostgreSQL", "a transaction an event, within a procedure", 100_000),
    PeerSetting("postgres", "1000", "PostgreSQL", "1,000 events a transaction", 200_000),
    PeerSetting("postgres", "10000", "PostgreSQL", "10,000 events a transaction"),
    PeerSetting("flink", "single", "Flink SQL", "parallelism 2, event by event", check_separately=True),
    PeerSetting("flink", "mini-batch", "Flink SQL", "parallelism 2, mini-batches of 200 ms", check_separately=True),
    PeerSetting("pathway", "commits", "Pathway", "2 threads, commits every 200 ms", check_separately=True),
    PeerSetting("pathway", "static", "Pathway", "2 threads, one static batch", check_separately=True),
    PeerSetting(
        "structured_streaming", "parquet", "Structured Streaming", f"batches of {SPARK_BATCH:,}, state in Parquet"
    ),
    PeerSetting(
        "structured_streaming", "driver", "Structured Streaming", f"batches of {SPARK_BATCH:,}, state in the driver"
    ),
)


@dataclass(frozen=True)
class PeerResult:
    """The measurement of a peer, or the problem that prevented it."""

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
class PeerOutput:
    """The line that a peer prints."""

    peer: str
    events: int
    seconds: float
    startup_seconds: float
    matchable: str | None


class PeerError(Exception):
    """A peer failed; the message says how."""


def run(blocks: Sequence[pa.RecordBatch], settings: Sequence[PeerSetting] = SETTINGS) -> Iterator[PeerResult]:
    """The result of every setting, as soon as it is available."""
    with tempfile.TemporaryDirectory(prefix="smile-peers-") as folder:
        recordings = EventFileCache(blocks, Path(folder))
        for setting in settings:
            yield measure_setting(setting, recordings)


def measure_setting(setting: PeerSetting, recordings: "EventFileCache") -> PeerResult:
    if not build.is_built(setting.module):
        return PeerResult(setting.peer, setting.text, problem="not built (make bench-peers)")
    try:
        events = min(setting.events_max or recordings.events, recordings.events)
        peer_output = _run_peer(setting, recordings.first_events(events), check=not setting.check_separately)
        if setting.check_separately:
            _run_peer(setting, recordings.first_events(min(CHECK_EVENTS, events)), check=True)
    except PeerError as problem:
        return PeerResult(setting.peer, setting.text, problem=str(problem))
    return PeerResult(
        peer_output.peer, setting.text, peer_output.events, peer_output.seconds, peer_output.startup_seconds
    )


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class EventFiles:
    folder: Path
    events: int
    matchable: list[str]


class EventFileCache:
    """The first events of a recording, prepared once for each number of them."""

    def __init__(self, blocks: Sequence[pa.RecordBatch], folder: Path, batch: int = SPARK_BATCH) -> None:
        self.blocks = blocks
        self.folder = folder
        self.events = sum(block.num_rows for block in blocks)
        self.first_events = cache(lambda events: self._prepare(events, batch))

    def _prepare(self, events: int, batch: int) -> EventFiles:
        blocks = list(first_rows(events, self.blocks))
        folder = self.folder / str(events)
        write_event_files(blocks, folder, batch)
        return EventFiles(folder, events, expected_matchable(blocks))


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _run_peer(setting: PeerSetting, recording: EventFiles, check: bool) -> PeerOutput:
    command: list[str | Path] = [build.python_path(setting.module), "-m", f"bench.peers.{setting.module}", setting.name]
    command += [recording.folder, str(recording.events)]
    path = recording.folder / f"{setting.module}-{setting.name}.lines"
    if not check:
        return parse_output(output(command))
    peer_output = parse_output(output([*command, "--matchable", path]))
    if peer_output.matchable != digest(recording.matchable):
        raise PeerError(describe_difference(path.read_text().splitlines(), recording.matchable))
    return peer_output


def output(command: Sequence[str | Path], limit_s: float = TIME_LIMIT_S) -> str:
    """The output of the command. It and all its children are killed at the end, or at the time limit."""
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
            raise PeerError(f"not done within {limit_s:g} s") from None
        finally:
            _stop(process)
        if process.returncode != 0:
            errors.seek(0)
            error_lines = [line for line in errors.read().splitlines() if line.strip()]
            raise PeerError(f"failed with {process.returncode}: {error_lines[-1] if error_lines else 'no message'}")
        return printed


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S_MAX)
    with suppress(ProcessLookupError):  # no process is left
        os.killpg(process.pid, signal.SIGKILL)


def parse_output(printed: str) -> PeerOutput:
    """The last line is the result. Libraries may print other lines before it."""
    lines = printed.splitlines()
    try:
        line: dict[str, Any] = json.loads(lines[-1])
        return PeerOutput(**line)
    except (IndexError, TypeError, ValueError):
        raise PeerError(f"printed no result: {lines[-1] if lines else 'no output'}") from None


def describe_difference(actual: Sequence[str], expected: Sequence[str]) -> str:
    """How a Matchable differs from the expected one."""
    extra = list((Counter(actual) - Counter(expected)).elements())
    missing = list((Counter(expected) - Counter(actual)).elements())
    examples = [f"{verb} {lines[0]}" for verb, lines in (("has", extra), ("lacks", missing)) if lines]
    return f"Matchable is wrong: {len(extra)} rows too many, {len(missing)} too few; it {' and '.join(examples)}"
