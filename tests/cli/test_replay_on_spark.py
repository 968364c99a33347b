"""`smile replay` on Spark, as its user runs it: what comes out is what comes out without it, and whatever is wrong ends
with a sentence, soon, and with nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import smile.cli.spark_process
import smile.java
import smile.state.file
from smile.cli.main import app
from smile.decoding.event_decoder import EventDecoder
from smile.engine.generation import Generation
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.planning import Offset
from smile.engine.spark.task import tables_of_states
from smile.log.position import BatchLimit
from smile.log.recorded_events import EventReader
from smile.log.storage.durable import DurableLog
from smile.program import compile_program, read_source
from tests.cli.test_status import RECORDED

SMILE = Path(sys.executable).parent / "smile"
PROGRAM = Path(__file__).parents[2] / "programs" / "tradefloor.smile"
EVENTS = PROGRAM.with_suffix(".events")
BAD = '{"stream":"BuyBids","at":900,"event":{"issue":"IBM","price":"dear","#bid":1}}\n'

HERE_S_MAX = 600
"""Spark starts in seconds, and in minutes on a busy machine."""


class SharedJava:
    """Stands in for the Java process that `smile replay` starts: it hands out the session that all tests share."""

    session_of_tests: SparkSession

    def __init__(self, master: str, log: Path | None) -> None:
        pass

    def session(self, name: str) -> SparkSession:
        return self.session_of_tests

    def explain_failure(self, problem: Exception) -> None:
        """Not the reason of any failure."""

    def stop(self) -> None:
        """The session outlives the command."""


Replay = Callable[..., Result]


@pytest.fixture
def replay(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """Runs the command in this process."""
    monkeypatch.setattr(SharedJava, "session_of_tests", spark, raising=False)
    monkeypatch.setattr(smile.cli.spark_process, "JavaProcess", SharedJava)

    def run(*args: str | Path) -> Result:
        result: Result = CliRunner().invoke(app, ["replay", str(PROGRAM), *map(str, args)])
        assert not isinstance(result.exception, Exception), result.exception
        return result

    return run


def lines(replay: Replay, *args: str | Path) -> set[str]:
    result = replay(*args)
    assert result.exit_code == 0, result.stderr
    assert result.stdout
    return set(result.stdout.splitlines())


LOCAL = ("--engine", "local")

# ── what comes out ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_lines_at_the_end(replay: Replay) -> None:
    asked: list[str | Path] = ["--events", EVENTS, "--end", "--view", "Matchable", "--view", "BuySatisfied"]
    assert lines(replay, *asked, "--partitions", "2") == lines(replay, *LOCAL, *asked)


def test_changes_of_a_run_that_goes_on_until_a_line_is_refused(replay: Replay, tmp_path: Path) -> None:
    """In another number of partitions. The state says how it fares."""
    recorded = EVENTS.read_text().splitlines(keepends=True)
    half, whole = tmp_path / "half", tmp_path / "whole"
    half.write_text("".join(recorded[:25]))
    whole.write_text("".join(recorded) + BAD)
    asked: list[str | Path] = ["--changes", "--batch", "1", "--state", tmp_path / "state"]
    changes = lines(replay, *asked, "--events", half, "--partitions", "2")
    status = json.loads((tmp_path / "state" / "status.json").read_text())
    assert status.keys() == RECORDED.keys()
    assert (status["events"], status["waiting_events"], status["partitions"]) == (25, 0, 2)
    for form in ("text", "json", "prometheus"):
        assert CliRunner().invoke(app, ["status", str(tmp_path / "state"), "--as", form]).exit_code == 0
    refused = replay(*asked, "--events", whole)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"{whole}:{len(recorded) + 1}:")
    assert "error E078: " in refused.stderr
    again = set(refused.stdout.splitlines())
    assert not changes & again
    assert changes | again == lines(replay, *LOCAL, "--events", EVENTS, "--changes", "--batch", "1")


def test_rows_of_recorded_files(replay: Replay, tmp_path: Path) -> None:
    streams = compile_program(read_source(str(PROGRAM))).rewritten.streams
    log = DurableLog.open_or_create(str(tmp_path / "log"), streams)
    with EVENTS.open("rb") as file:
        for frame in EventReader(EventDecoder(streams), file, "events", None).batches(7):
            log.append_batch(frame)
    for stream in streams:
        events = log.read(stream.name, log.start(), log.newest())
        (tmp_path / "recorded").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_batches([events]), tmp_path / "recorded" / f"{stream.name}.parquet")
    log.close()
    files: list[str | Path] = ["--events", tmp_path / "recorded"]
    assert lines(replay, *files) == lines(replay, *LOCAL, *files)
    from_log: list[str | Path] = ["--events", tmp_path / "log", "--end"]
    rows = lines(replay, *from_log, "--partitions", "2")
    assert rows == lines(replay, *LOCAL, *from_log) == lines(replay, *LOCAL, "--events", EVENTS, "--end")


# ── how it ends ─────────────────────────────────────────────────────────────────────────────────────────────────────

FEED = """\
import sys, time
for n in range(1_000_000):
    sys.stdout.write('{"stream":"BuyBids","event":{"issue":"IBM","price":1,"#bid":1}}\\n' * 100)
    sys.stdout.flush()
    time.sleep(0.1)
"""


class Running:
    """A replay of events that never end, and all processes and folders that it has."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "out", folder / "err"
        # Short, as temporary folders are.
        self.temporary = tempfile.TemporaryDirectory(prefix="t")
        self.feed = subprocess.Popen([sys.executable, "-c", FEED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        env = {**os.environ, "TMPDIR": self.temporary.name}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [SMILE, "replay", PROGRAM, "--events", "-", "--changes", "--batch", "100", "--partitions", "2"],
                stdin=self.feed.stdout,
                stdout=out,
                stderr=err,
                env=env,
            )
        assert self.feed.stdout is not None
        self.feed.stdout.close()

    def wait_for(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + HERE_S_MAX
        while not what():
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def has_output(self) -> bool:
        """Whether something has come out of Spark."""
        return b'"progress"' in self.out.read_bytes()

    def others(self) -> dict[int, str]:
        """Its processes, except the first. They are recognized by the temporary folder in their environment."""
        processes = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = f"TMPDIR={self.temporary.name}\0".encode() in (path / "environ").read_bytes()
                if is_ours and int(path.name) != self.process.pid:
                    processes[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended
        return processes

    def java(self) -> int | None:
        return next((pid for pid, command in self.others().items() if "SparkSubmit" in command), None)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it said. Nothing is left."""
        code = self.process.wait(HERE_S_MAX)
        # The last worker hears of it when Java has gone.
        deadline = time.monotonic() + HERE_S_MAX
        while (left := self.others()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left
        assert not list(Path(self.temporary.name).iterdir())
        written = self.out.read_bytes()
        assert not written or written.endswith(b"\n")
        assert all(json.loads(line) for line in written.splitlines())
        return code, self.err.read_text()

    def close(self) -> None:
        for process in (self.process, self.feed):
            process.kill()
            process.wait()
        self.temporary.cleanup()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    run = Running(tmp_path)
    yield run
    run.close()


@pytest.mark.slow
def test_an_interrupt(running: Running) -> None:
    running.wait_for(running.has_output)
    assert len(running.others()) > 2
    running.process.send_signal(signal.SIGINT)
    code, said = running.ended()
    assert code == 130
    assert said == "smile: interrupted: all printed lines are complete; later events were not processed\n"


@pytest.mark.slow
def test_java_is_killed(running: Running) -> None:
    running.wait_for(running.has_output)
    java = running.java()
    assert java is not None
    os.kill(java, signal.SIGKILL)
    code, said = running.ended()
    assert code == 1
    assert said.startswith("smile: error E069: Java was killed (SIGKILL) while Spark was running\n  hint: ")
    assert len(said.splitlines()) == 2


@pytest.mark.slow
def test_it_is_asked_to_end_while_spark_starts(running: Running) -> None:
    running.wait_for(running.java)
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == (128 + signal.SIGTERM, "")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_reader_that_has_had_enough() -> None:
    command = f"{SMILE} replay {PROGRAM} --events {EVENTS} --changes --batch 1 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=HERE_S_MAX)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)


def test_state_that_cannot_be_written_any_more(replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "state" / "delivered.json.new").mkdir(parents=True)
    done = replay("--events", EVENTS, "--state", tmp_path / "state")
    assert done.exit_code == 1
    assert done.stderr.startswith("smile: error E064: ")
    assert "delivered.json cannot be written" in done.stderr


# ── what is wrong before Spark is there ─────────────────────────────────────────────────────────────────────────────

STARTS_FOR_EVER = "exec sleep 600"


def fake_java(home: Path, version: str, does: str) -> str:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'version "{version}"\' >&2; exit 0; }}\n{does}\n')
    java.chmod(0o755)
    return str(home)


@pytest.fixture
def soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """A replay with a Java that never becomes ready: its exit code, and what it printed."""
    monkeypatch.setattr(smile.java, "wrapped_home", lambda _: tmp_path / "none")
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "java", "17.0.1", STARTS_FOR_EVER))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def run(*args: str | Path, events: Path = EVENTS, program: Path = PROGRAM) -> tuple[int, str]:
        command = ["replay", str(program), "--events", str(events), *map(str, args)]
        done: Result = CliRunner().invoke(app, command)
        assert not isinstance(done.exception, Exception), done.exception
        assert done.stdout == ""
        assert not list((tmp_path / "temporary").iterdir())
        return done.exit_code, done.stderr

    return run


Soon = Callable[..., tuple[int, str]]


def test_no_java(soon: Soon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for home, reason in (
        (str(tmp_path / "none"), ""),
        (fake_java(tmp_path / "old", "11.0.2", ""), f": the one in {tmp_path}/old is of version 11"),
        (fake_java(tmp_path / "silent", "?", ""), f": the one in {tmp_path}/silent does not say its version"),
    ):
        monkeypatch.setenv("JAVA_HOME", home)
        code, said = soon()
        assert code == 1
        first, hint = said.splitlines()
        assert first == f"smile: error E060: no Java of version 17 or later in JAVA_HOME or on PATH{reason}"
        assert "Install Java 17" in hint


def test_a_java_that_dies(soon: Soon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "dies", "17.0.1", "echo 'It does not go' >&2; exit 1"))
    code, said = soon()
    assert code == 1
    assert said.startswith("smile: error E066: Java ended with exit code 1 before Spark had started: It does not go\n")


def test_masters(soon: Soon, tmp_path: Path) -> None:
    code, said = soon("--master", "nonsense")
    assert code == 2
    assert said.startswith("smile: error E067: 'nonsense' is not a Spark master\n  hint: ")
    assert soon("--master", "spark://127.0.0.1:1")[0] == 2  # no directory that all machines reach
    code, said = soon("--master", "spark://127.0.0.1:1", "--state", str(tmp_path / "state"))
    assert code == 1
    assert said.startswith("smile: error E068: no Spark master answers at spark://127.0.0.1:1: Connection refused\n")


def test_state_that_will_not_do(soon: Soon, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    for noted, code in (('{"format": 99}', "E062"), ('{"format', "E061"), ('{"format": 1, "generations": []', "E061")):
        (state / "pipeline.json").write_text(noted)
        exit_code, said = soon("--state", state)
        assert exit_code == 1
        assert said.startswith(f"smile: error {code}: {state}")
        assert len(said.splitlines()) == 1
    for place in (EVENTS, Path("/proc/none")):
        exit_code, said = soon("--state", place)
        assert exit_code == 1
        assert said.startswith(f"smile: error E063: state cannot be stored in {place}: ")


def test_state_files_of_a_newer_version(soon: Soon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_program(read_source(str(PROGRAM))).rewritten
    views = program.subscriptions
    log = DurableLog.open_or_create(str(tmp_path / "log"), program.streams)
    standing = PipelineDirectory(str(tmp_path / "state"))
    job = standing.open_job((Generation("0", program, views, views, views),), 1, log, BatchLimit(), print)
    for (stage, _), store in job.stores().items():
        nothing = {name: work.empty_states() for name, work in job.stages_by_generation(stage).items()}
        store.save(1, job.start.horizons, tables_of_states(nothing))
    standing.write_delivered(Offset(1, job.start.position))
    log.close()
    monkeypatch.setattr(smile.state.file, "FORMAT", smile.state.file.FORMAT - 1)
    code, said = soon("--state", tmp_path / "state")
    assert code == 1
    assert said.startswith(f"smile: error E062: {tmp_path}/state/")
    assert "was written by a newer SMILE" in said


def test_state_of_another_program(soon: Soon, tmp_path: Path) -> None:
    program = compile_program(read_source(str(PROGRAM))).rewritten
    log = DurableLog.open_or_create(str(tmp_path / "log"), program.streams)
    PipelineDirectory(str(tmp_path)).open_job((), 1, log, BatchLimit(), print)
    log.close()
    exit_code, said = soon("--state", tmp_path)
    assert exit_code == 1
    assert said.startswith(f"smile: error E065: {tmp_path} has the state of another program\n  hint: ")


def test_events_that_will_not_do(soon: Soon, tmp_path: Path) -> None:
    """Events before a refused line need not be processed if nobody would see the result."""
    empty, others, bad = tmp_path / "empty", tmp_path / "others", tmp_path / "bad"
    empty.mkdir()
    others.mkdir()
    (others / "notes.txt").write_text("no events")
    bad.write_text(EVENTS.read_text() + BAD)
    program = tmp_path / "other.smile"
    program.write_text("CREATE STREAM T (t: time -> n: int); CREATE VIEW V AS SELECT n FROM T; SUBSCRIBE V;")
    DurableLog.open_or_create(
        str(tmp_path / "log"), compile_program(read_source(str(program))).rewritten.streams
    ).close()
    for events, message in (
        (empty, f"smile: error E070: {empty} has no recorded events\n"),
        (others, f"smile: error E076: {others}/notes.txt is not named after a stream\n"),
        (
            tmp_path / "log",
            f"smile: error E087: {tmp_path}/log is the log of other streams: it has no stream BuyBids\n",
        ),
        (bad, f"{bad}:{len(EVENTS.read_text().splitlines()) + 1}:53: error E078: "),
    ):
        code, said = soon(events=events)
        assert code == 1
        assert said.startswith(message), said
