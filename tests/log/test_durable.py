"""The commits of a durable log are atomic, whatever happens to its process, its disk and its file."""

import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import INT, STRING
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.log.input_batch import InputBatch
from smile.log.storage import database, durable
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.reading import BatchLimit, Position, open_log, read_batches

STREAMS = [mmpl.StreamDef(name, "t", (("v", INT), ("w", STRING))) for name in ("R", "S")]
SCHEMA = stream_schema(STREAMS[0])


def batch(*ticks: int) -> pa.RecordBatch:
    columns = [ticks, ticks, [str(tick) for tick in ticks]]
    arrays = [pa.array(column, data) for column, data in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def piece(lo: int, hi: int, *ticks: int, stream: str = "R", origin: str = "0") -> StreamPiece:
    return StreamPiece(stream, origin, lo, hi, batch(*ticks))


def ticks(log: DurableLog, stream: str = "R") -> list[int]:
    """The ticks of all events. Checks that each event has the values that it was appended with."""
    events = log.read(stream, log.start(), log.after(log.start(), BatchLimit()))
    assert events.equals(batch(*events.column("t").to_pylist()))
    return list(events.column("t").to_pylist())


def code(failure: pytest.ExceptionInfo[SmileError]) -> str:
    return failure.value.diagnostics[0].code


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    durable_log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield durable_log
    durable_log.close()


# ── appending ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_known_events_are_dropped_and_new_ones_are_appended(log: DurableLog) -> None:
    assert log.append([piece(HORIZON_MIN, 10, 3, 7)]) == 1
    assert log.append([piece(HORIZON_MIN, 10, 3, 7)]) == 1
    assert log.append([piece(5, 20, 7, 12)]) == 2
    assert log.append([StreamPiece("R", "0", 4, 30)]) == 3
    assert ticks(log) == [3, 7, 12]
    assert log.newest().stream_horizons() == {"R": 30, "S": HORIZON_MIN}


def test_pieces_of_one_append_may_follow_one_another(log: DurableLog) -> None:
    assert (
        log.append([piece(HORIZON_MIN, 4, 2, 4), piece(3, 9, 4, 5), piece(2, 5, 4), StreamPiece("R", "0", 9, END)]) == 1
    )
    assert ticks(log) == [2, 4, 5]
    assert log.newest().stream_horizons()["R"] == END


@pytest.mark.parametrize(
    ("pieces", "reason", "expected"),
    [
        ([piece(11, 20, 12)], "nothing is known of ticks above 10 up to 11", "E088"),
        ([piece(10, 12), piece(13, 20)], "nothing is known of ticks above 12 up to 13", "E088"),
        ([piece(10, 20, 21)], "an event outside", "E088"),
        ([piece(10, 20, 10)], "an event outside", "E088"),
        ([piece(10, 20, 12, 11)], "not in order", "E088"),
        ([piece(10, 20, 12, 12)], "not in order", "E088"),
        ([piece(10, END, END)], "an event outside", "E088"),
        ([piece(20, 10)], "out of order or out of range", "E088"),
        ([StreamPiece("R", "0", 10, 20, batch(12).rename_columns(["t", "v", "x"]))], "columns of its stream", "E088"),
        ([StreamPiece("Q", "0", HORIZON_MIN, 20)], "there is no stream Q", "E076"),
        (
            [piece(HORIZON_MIN, 20, 5, origin="new")],
            "first event of its origin is at tick 5, but the stream is known up to 10",
            "E088",
        ),
        ([piece(15, 20, 17, origin="new")], "nothing is known of ticks above 10 up to 15", "E088"),
    ],
)
def test_a_piece_that_does_not_fit_is_refused_with_the_whole_append(
    log: DurableLog, pieces: list[StreamPiece], reason: str, expected: str
) -> None:
    log.append([piece(HORIZON_MIN, 10, 3)])
    with pytest.raises(SmileError, match=reason) as failure:
        log.append([piece(HORIZON_MIN, 5, 1, stream="S"), *pieces])
    assert code(failure) == expected
    assert log.newest().stream_horizons() == {"R": 10, "S": HORIZON_MIN}
    assert log.append([piece(10, 11, 11)]) == 2
    assert ticks(log) == [3, 11]


def test_an_input_batch_is_appended_with_its_silence(log: DurableLog) -> None:
    log.append_batch(InputBatch({"R": batch(2, 4)}, {"R": 6, "S": 3}))
    log.append_batch(InputBatch({"R": batch(2, 4)}, {"R": 6, "S": 3}))
    log.append_batch(InputBatch({"S": batch(5)}, {"R": 6, "S": 5}))
    assert log.newest() == Position(2, {"R": {"0": 6}, "S": {"0": 5}})
    assert (ticks(log), ticks(log, "S")) == ([2, 4], [5])


@pytest.mark.parametrize(("setting", "limit"), [("COMMIT_ROWS_MAX", 10), ("COMMIT_BYTES_MAX", 300)])
def test_a_large_append_is_several_commits(
    log: DurableLog, monkeypatch: pytest.MonkeyPatch, setting: str, limit: int
) -> None:
    monkeypatch.setattr(durable, setting, limit)
    many = list(range(0, 200, 2))
    pieces = [piece(HORIZON_MIN, 300, *many), piece(HORIZON_MIN, 150, 121, origin="joins")]
    pieces += [piece(HORIZON_MIN, 50, 7, 9, stream="S"), StreamPiece("S", "joins", HORIZON_MIN, 9)]
    assert log.append(pieces) >= 8
    ticks_read: list[int] = []
    position = log.start()
    while (end := log.after(position, BatchLimit(commits=1))) != position:
        taken = log.backlog(position)[0] - log.backlog(end)[0]
        assert 0 < taken <= (10 if setting == "COMMIT_ROWS_MAX" else 20)
        ticks_read += log.read("R", position, end).column("t").to_pylist()
        position = end
    assert position.horizons == {"R": {"0": 300, "joins": 150}, "S": {"0": 50, "joins": 9}}
    assert ticks_read == [t for t in sorted([*many, 121]) if t <= 150]


# ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────────

WRITER = """
import sys
from tests.log.test_durable import STREAMS, DurableLog, piece
log = DurableLog.open_or_create(sys.argv[1], STREAMS)
tick = log.newest().stream_horizons()["R"]
while True:
    pieces = [piece(tick, tick + 50, *range(tick + 1, tick + 51), stream=stream) for stream in ("R", "S")]
    print(log.append(pieces), flush=True)
    tick += 50
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_an_intact_log(tmp_path: Path) -> None:
    path, last_commit = str(tmp_path / "log"), 0
    for kill in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(10 * kill + 1):
                last_commit = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        log = DurableLog(path, STREAMS)
        newest = log.newest()
        assert newest.commit >= last_commit
        assert newest.stream_horizons() == dict.fromkeys("RS", 50 * newest.commit - 1)
        assert ticks(log) == ticks(log, "S") == list(range(50 * newest.commit))
        log.close()


def read_all(log: DurableLog, until: int) -> list[int]:
    """Polls until the horizon of R has reached `until`. Returns the ticks of R."""
    position, ticks_read = log.start(), list[int]()
    while position.stream_horizons()["R"] < until:
        end = log.after(position, BatchLimit(commits=3))
        ticks_read += log.read("R", position, end).column("t").to_pylist()
        position = end
    return ticks_read


@pytest.mark.slow
def test_commits_of_a_killed_process_are_flushed_before_they_are_read(
    log: DurableLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have been killed after it had written a commit and before the disk had it."""
    log.append([StreamPiece("R", "0", HORIZON_MIN, 1, batch(1))])
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("log", "log-wal"):
        shutil.copy(Path(log.path).with_name(Path(log.path).name + name[3:]), copy / name)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    reopened = DurableLog.open_or_create(str(copy / "log"), STREAMS)
    assert flushed == [(copy / "log-wal").stat().st_ino]
    assert reopened.newest().horizons["R"] == {"0": 1}
    reopened.close()


def test_other_processes_read_meanwhile(log: DurableLog) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as readers:
        results = [readers.submit(read_all, log, 199) for _ in range(2)]
        for tick in range(HORIZON_MIN, 199, 10):
            log.append([piece(tick, tick + 10, *range(tick + 1, tick + 11, 2))])
        assert [result.result(300) for result in results] == [list(range(0, 200, 2))] * 2


def test_a_log_is_pickled_without_its_connection(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)])
    assert ticks(log) == [2]
    assert ticks(pickle.loads(pickle.dumps(log))) == [2]


def test_there_is_one_writer_at_a_time(log: DurableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    other = DurableLog.open_or_create(log.path, STREAMS)
    other.append([piece(HORIZON_MIN, 4, 2)])
    holder = sqlite3.connect(log.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(SmileError, match="another process is writing it") as failure:
        other.append([piece(4, 9, 5)])
    assert code(failure) == "E084"
    assert ticks(other) == [2]
    holder.execute("ROLLBACK")
    holder.close()
    log.append([piece(4, 8, 5)])
    other.append([piece(8, 9, 9)])
    assert ticks(log) == [2, 5, 9]
    other.close()


# ── the disk ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_loses_nothing(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)])
    assert log._writer is not None
    log._writer.execute("PRAGMA max_page_count = 12")
    with pytest.raises(SmileError, match="cannot be written: database or disk is full") as failure:
        log.append([piece(4, 9, 5), piece(HORIZON_MIN, 10**6, *range(10_000), stream="S")])
    assert code(failure) == "E084"
    assert ticks(log) == [2]
    assert log.append([piece(4, 9, 5)]) == 2
    assert ticks(log) == [2, 5]


def test_a_path_where_no_log_can_be_is_reported(tmp_path: Path, log: DurableLog) -> None:
    for path in (tmp_path / "none" / "log", tmp_path):
        with pytest.raises(SmileError, match="cannot be written") as failure:
            DurableLog.open_or_create(str(path), STREAMS)
        assert code(failure) == "E084"
    with pytest.raises(SmileError, match="there is no log at") as failure:
        DurableLog(str(tmp_path / "none"), STREAMS).newest()
    assert code(failure) == "E070"


def test_a_log_that_may_only_be_read_is_not_written(log: DurableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)])
    connect = database._connect
    monkeypatch.setattr(database, "_connect", lambda path, _: connect(path, "ro"))
    other = DurableLog(log.path, STREAMS)
    with pytest.raises(SmileError, match="cannot be written: attempt to write a readonly database") as failure:
        other.append([piece(4, 9, 5)])
    assert code(failure) == "E084"
    assert ticks(other) == [2]
    other.close()


def execute(path: str, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "streams", "reason", "expected"),
    [
        ("SELECT 1", [*STREAMS, mmpl.StreamDef("Q", "t", ())], "it has no stream Q", "E087"),
        ("SELECT 1", [STREAMS[0], mmpl.StreamDef("S", "t", (("v", STRING), ("w", STRING)))], "its S is defined otherwise", "E087"),
        ("PRAGMA user_version = 4", STREAMS, "newer SMILE .format 4, not 3.", "E086"),
        ("PRAGMA user_version = 2", STREAMS, "an earlier SMILE .format 2, not 3.", "E086"),
        ("UPDATE streams SET definition = 'STREAM R (t: time -> v: int)'", STREAMS, "the definition of R", "E085"),
        ("PRAGMA application_id = 5", STREAMS, "is not a log", "E070"),
        ("DELETE FROM commits WHERE seq = 2", STREAMS, "newest commits are missing", "E085"),
        ("DELETE FROM commits WHERE seq = 1", STREAMS, "damaged: commit 1", "E085"),
        ("DELETE FROM pieces WHERE seq = 1", STREAMS, "damaged: commit 1", "E085"),
        ("DELETE FROM origins", STREAMS, "events of R up to tick", "E085"),
        ("UPDATE pieces SET hi = 5 WHERE seq = 1", STREAMS, "damaged: a piece of R, ticks above -1 up to 5", "E085"),
        ("UPDATE pieces SET events = zeroblob(bytes) WHERE seq = 1", STREAMS, "events of R, ticks above -1 up to 4", "E085"),
        ("UPDATE pieces SET events = NULL WHERE seq = 1", STREAMS, "the events of R, ticks above -1 up to 4", "E085"),
    ],
)  # fmt: skip
def test_a_wrong_log_is_reported_with_the_reason(
    log: DurableLog, statement: str, streams: list[mmpl.StreamDef], reason: str, expected: str
) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)])
    log.append([piece(4, 9, 5)])
    execute(log.path, statement)
    with pytest.raises(SmileError, match=reason) as failure:
        content(log.path, streams)
    assert code(failure) == expected
    assert log.path in str(failure.value)


def test_a_missing_piece_is_noticed_when_its_range_is_read(log: DurableLog) -> None:
    for tick in (HORIZON_MIN, 4, 9, 14):
        log.append([piece(tick, tick + 5, tick + 2)])
    start, middle, newest = log.start(), log.resume_position({"R": 14}), log.newest()
    execute(log.path, "DELETE FROM pieces WHERE seq = 2")
    for first, last in ((start, middle), (start, newest), (log.resume_position({"R": 4}), middle)):
        with pytest.raises(SmileError, match="events of R are missing, ticks above 4 up to 9") as failure:
            log.read("R", first, last)
        assert code(failure) == "E085"
    assert log.read("R", middle, newest).num_rows == 1
    execute(log.path, "DELETE FROM pieces WHERE seq = 4")
    with pytest.raises(SmileError, match="events of R are missing, ticks above 14 up to 19"):
        log.read("R", middle, newest)


def test_another_database_is_not_a_log_and_stays_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "other")
    execute(path, "CREATE TABLE orders (id INTEGER)")
    before = Path(path).read_bytes()
    for opening in (DurableLog.open_or_create, open_log):
        with pytest.raises(SmileError, match="is not a log"):
            opening(path, STREAMS)
    assert Path(path).read_bytes() == before


def test_a_log_that_was_put_back_is_noticed(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 4, 2)])
    with pytest.raises(SmileError, match="has no commit 2, although it was read") as failure:
        log.after(Position(2, {"R": {"0": 9}, "S": {"0": HORIZON_MIN}}), BatchLimit())
    assert code(failure) == "E089"


def content(path: str, streams: list[mmpl.StreamDef] = STREAMS) -> Any:
    log = open_log(path, streams)
    assert isinstance(log, DurableLog)
    try:
        return [(input_batch.events, input_batch.horizons) for input_batch in read_batches(log, BatchLimit(commits=2))]
    finally:
        log.close()


def outcome(path: str) -> Any:
    """The content of the log, or the code of the error."""
    try:
        return content(path)
    except SmileError as problem:
        return problem.diagnostics[0].code if path in str(problem) else problem


@pytest.fixture(scope="module")
def intact_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several pages, all in one file."""
    path = tmp_path_factory.mktemp("damage") / "log"
    log = DurableLog.open_or_create(str(path), STREAMS)
    random = Random(1)
    for tick in range(HORIZON_MIN, 199, 20):
        ticks_of_piece = sorted(random.sample(range(tick + 1, tick + 21), random.randrange(15)))
        log.append(
            [
                piece(tick, tick + 20, *ticks_of_piece),
                StreamPiece("S", "x", tick, tick + 20),
                StreamPiece("S", "y", tick, tick + 20),
            ]
        )
    log.close()
    return path


@pytest.mark.slow
@settings(max_examples=400)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
@example(0.0, 1)
@example(20 / 4096 / 10, 2)
def test_damage_is_noticed_or_harmless(intact_path: Path, position: float, change: int) -> None:
    data = bytearray(intact_path.read_bytes())
    # Half of all changes are in the first page, which has SQLite's header and the definitions of tables.
    index = int(position * 2 * 4096) if position < 0.5 else int((position - 0.5) * 2 * len(data))
    data[index] ^= change
    broken = intact_path.with_name("broken")
    for suffix in ("-wal", "-shm"):
        broken.with_name(f"broken{suffix}").unlink(missing_ok=True)
    broken.write_bytes(data)
    result = outcome(str(broken))
    assert result in ("E070", "E085", "E086", "E087") or result == content(str(intact_path))


def test_a_damaged_write_ahead_log_leaves_whole_commits(log: DurableLog, tmp_path: Path) -> None:
    for tick in range(HORIZON_MIN, 99, 10):
        log.append([piece(tick, tick + 10, tick + 5), piece(tick, tick + 10, tick + 3, stream="S")])
    for source in tmp_path.glob("log*"):
        shutil.copy(source, tmp_path / f"copy-{source.name}")
    wal = tmp_path / "copy-log-wal"
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 1
    wal.write_bytes(data)
    copy = DurableLog(str(tmp_path / "copy-log"), STREAMS)
    horizon = copy.newest().stream_horizons()["R"]
    assert HORIZON_MIN < horizon < 99
    assert ticks(copy) == [t for t in range(4, 99, 10) if t <= horizon]
    assert ticks(copy, "S") == [t for t in range(2, 99, 10) if t <= horizon]
    copy.close()


# ── cost ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cost_depends_on_the_range_not_on_the_length_of_the_log(log: DurableLog) -> None:
    costs = []
    tick = HORIZON_MIN
    for length in (10, 500):
        while log.append([piece(tick, tick + 5, tick + 2)]) < length:
            tick += 5
        tick += 5
        newest = log.newest()
        before = log.resume_position({"R": tick - 10})
        steps = [0]

        def count(steps: list[int] = steps) -> int:
            steps[0] += 1
            return 0

        log._db().set_progress_handler(count, 1)
        assert log.after(newest, BatchLimit()) == newest
        assert log.after(before, BatchLimit(commits=1)).commit == length - 1
        assert log.read("R", before, newest).num_rows == 2
        assert log.backlog(before)[0] == 2
        log._db().set_progress_handler(None, 1)
        costs.append(steps[0])
    assert costs[1] == costs[0] > 0


def test_a_log_whose_creation_was_cut_off_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "log"
    code = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
db.execute("CREATE TABLE streams (name TEXT)")
db.executemany("INSERT INTO streams VALUES (?)", (("x" * 3000,) for _ in range(100)))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.with_name("log-journal").exists()  # what was written must be rolled back
    assert DurableLog.read_definitions(str(path)) == []
    assert not path.with_name("log-journal").exists()
