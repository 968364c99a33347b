"""Truncation removes old events and nothing else: reading above it returns everything, reading below it is an error."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from smile.algebra import mmpl
from smile.algebra.types import INT
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.log.position import BatchLimit, Position
from smile.log.storage import retention
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.producers import ProducerRecord
from tests.log.test_durable import STREAMS, outcome, piece, read_all, ticks
from tests.log.test_reading import STREAMS as READ_STREAMS, History, rows, some_limit
from tests.repeatable import scaled


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    durable_log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield durable_log
    durable_log.close()


def code(failure: pytest.ExceptionInfo[SmileError]) -> str:
    return failure.value.diagnostics[0].code


def append_commits(log: DurableLog, commits: int, begin: int = 0) -> None:
    """Commits of ten ticks each: an event of R at every tick, and silence of S."""
    for n in range(begin, begin + commits):
        lo = 10 * n - 1
        log.append([piece(lo, lo + 10, *range(lo + 1, lo + 11)), StreamPiece("S", "0", lo, lo + 10)], time_us=n)


def test_whole_commits_at_or_below_the_horizons_are_removed(log: DurableLog) -> None:
    append_commits(log, 6)
    start, newest = log.start(), log.newest()
    assert log.truncated_to("R") is None
    assert log.truncate({"R": 35, "S": END}) == 3
    assert log.truncated_to("R") == log.truncated_to("S") == 29
    for first in (start, Position(3, {"R": {"0": 28}, "S": {"0": 28}}), log.resume_position({"R": 20, "S": 40})):
        with pytest.raises(SmileError, match="events of R up to tick 29 were removed") as failure:
            log.read("R", first, newest)
        assert code(failure) == "E097"
    with pytest.raises(SmileError, match="it begins after commit 3, but was read up to 0") as failure:
        log.after(start, BatchLimit())
    assert code(failure) == "E097"
    above = log.resume_position({"R": 29, "S": 29})
    assert above == Position(3, {"R": {"0": 29}, "S": {"0": 29}})
    assert log.read("R", above, log.after(above, BatchLimit())).column("t").to_pylist() == list(range(30, 60))
    assert log.backlog(above)[0] == 30
    assert log.newest() == newest


def test_a_stream_that_is_left_out_is_not_truncated(log: DurableLog) -> None:
    append_commits(log, 3)
    assert log.truncate({"R": 100}) == 0
    assert log.truncate({}) == 0
    assert log.truncate({"R": 100, "S": 9}) == 1
    assert ticks_above(log, 9) == list(range(10, 30))


def test_recent_commits_are_not_removed(log: DurableLog) -> None:
    append_commits(log, 6)
    assert log.truncate({"R": END, "S": END}, before=0) == 0
    assert log.truncate({"R": 49, "S": 49}, before=2) == 2
    assert log.truncate({"R": 49, "S": 49}, before=10**9) == 5
    assert ticks_above(log, 49) == list(range(50, 60))


def test_everything_may_be_removed_and_the_log_continues(log: DurableLog) -> None:
    append_commits(log, 3)
    newest = log.newest()
    assert log.truncate({"R": END, "S": END}) == 3
    assert log.newest() == newest
    with pytest.raises(SmileError, match="nothing is known of ticks above 29 up to 40"):
        log.append([piece(40, 50, 45)])
    log.close()
    append_commits(log, 2, 3)
    assert DurableLog.open_or_create(log.path, STREAMS).append([]) == 5
    assert ticks_above(log, 29) == list(range(30, 50))
    assert log.after(newest, BatchLimit()) == log.newest()


def ticks_above(log: DurableLog, tick: int) -> list[int]:
    events = log.read("R", log.resume_position({"R": tick, "S": tick}), log.newest())
    return list(events.column("t").to_pylist())


def test_a_reader_past_all_needed_events_is_never_truncated(log: DurableLog) -> None:
    """Even if commits follow that have only unneeded streams."""
    append_commits(log, 3)
    reader = log.newest()
    for n in range(3):
        log.append([StreamPiece("S", "0", 29 + 10 * n, 39 + 10 * n)])
    assert log.truncate({"R": 29, "S": END}) == 3
    end = log.after(reader, BatchLimit())
    assert end == log.newest()


@pytest.mark.parametrize("seed", range(scaled(25)))
def test_reading_above_the_truncation_returns_everything(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random histories of several origins, truncated at the readers' horizons while they continue to read."""
    random = Random(seed)
    monkeypatch.setattr(retention, "TRUNCATE_COMMITS_MAX", random.choice([1, 2, 500]))
    monkeypatch.setattr(retention, "PAUSE_S", 0)
    history = History(random)
    log = DurableLog.open_or_create(str(tmp_path / "log"), READ_STREAMS, flush=False)
    readers = [log.start() for _ in range(3)]
    truncated_commit = 0
    for _ in range(40):
        log.append(history.commit(), time_us=random.randrange(10))
        i = random.randrange(3)
        end = log.after(readers[i], some_limit(random))
        for stream in log.streams:
            lo, hi = readers[i].stream_horizons()[stream], end.stream_horizons()[stream]
            assert rows(log.read(stream, readers[i], end)) == history.between(stream, lo, hi)
        readers[i] = Position.from_json(end.to_json())
        if random.random() < 0.3:
            horizons = {s: min(reader.stream_horizons()[s] for reader in readers) for s in log.streams}
            commit = log.truncate(horizons, random.choice([None, 5]))
            assert commit >= truncated_commit
            truncated_commit = commit
            for stream in log.streams:
                assert (log.truncated_to(stream) or HORIZON_MIN) <= horizons[stream]
            if random.random() < 0.5:
                readers[i] = log.resume_position(readers[i].stream_horizons())
            copy = DurableLog(log.path, READ_STREAMS)
            assert copy.newest() == log.newest()
            assert copy.newest().stream_horizons() == {s: history.horizon(s) for s in log.streams}
            copy.close()
    log.close()


def test_the_space_is_reused(log: DurableLog) -> None:
    pages = []
    for turn in range(8):
        for n in range(20):
            lo = (20 * turn + n) * 500 - 1
            log.append([piece(lo, lo + 500, *range(lo + 1, lo + 501)), StreamPiece("S", "0", lo, lo + 500)])
        log.truncate({"R": lo, "S": lo})
        assert log._writer is not None
        pages.append(log._writer.execute("PRAGMA page_count").fetchone()[0])
    assert pages[-1] <= pages[1] * 1.1


def test_records_are_removed_with_their_events_except_the_last(log: DurableLog) -> None:
    for n in range(5):
        lo = 10 * n - 1
        pieces = [piece(lo, lo + 10, lo + 5), StreamPiece("S", "0", lo, lo + 10)]
        log.append(
            pieces,
            [
                ProducerRecord("p", n, n, "R", "0", lo + 5, lo + 5),
                *([ProducerRecord("q", 7, 7, "R", "0", 4, 4)] if n == 0 else []),
            ],
        )
    log.truncate({"R": 29, "S": 29})
    assert [r.first for r in log.records("p", 0, 9)] == [3, 4]
    assert log.last_number("q") == 7
    log.truncate({"R": END, "S": END})
    assert [r.first for r in log.records("p", 0, 9)] == [4]


@pytest.mark.slow
def test_readers_in_other_processes_are_not_disturbed(log: DurableLog) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        readers = [pool.submit(read_all, log, 1999) for _ in range(2)]
        append_commits(log, 200)
        for reader in readers:
            assert reader.result(300) == list(range(2000))
        later_readers = [pool.submit(read_from, log, 999, 3999) for _ in range(2)]
        for begin in range(200, 400, 10):
            append_commits(log, 10, begin)
            log.truncate({"R": 999, "S": 999})
        assert [reader.result(300) for reader in later_readers] == [list(range(1000, 4000))] * 2


def read_from(log: DurableLog, tick: int, until: int) -> list[int]:
    position, ticks_read = log.resume_position({"R": tick, "S": tick}), list[int]()
    while position.stream_horizons()["R"] < until:
        end = log.after(position, BatchLimit(commits=3))
        ticks_read += log.read("R", position, end).column("t").to_pylist()
        position = end
    return ticks_read


def test_threads_share_a_log_while_it_is_written_and_truncated(log: DurableLog) -> None:
    problems: list[BaseException] = []
    horizons = [HORIZON_MIN] * 3

    def follow(reader: int) -> None:
        try:
            position = log.start()
            while position.stream_horizons()["R"] < 1499:
                end = log.after(position, BatchLimit(commits=4))
                ticks_read = log.read("R", position, end).column("t").to_pylist()
                assert ticks_read == list(range(position.stream_horizons()["R"] + 1, end.stream_horizons()["R"] + 1))
                position = end
                horizons[reader] = position.stream_horizons()["R"]
        except BaseException as problem:  # noqa: BLE001  # the test fails in its own thread
            problems.append(problem)
            horizons[reader] = END

    threads = [threading.Thread(target=follow, args=(reader,)) for reader in range(3)]
    for thread in threads:
        thread.start()
    for begin in range(0, 150, 5):
        append_commits(log, 5, begin)
        log.truncate(dict.fromkeys("RS", min(horizons)))
    for thread in threads:
        thread.join(300)
    assert not problems
    assert log.truncate(dict.fromkeys("RS", min(horizons))) == 150


# ── more streams, and fewer ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_a_program_may_have_fewer_streams_than_its_log(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    history = History(random)
    full_log = DurableLog.open_or_create(str(tmp_path / "log"), READ_STREAMS, flush=False)
    partial_log = DurableLog(full_log.path, READ_STREAMS[:1])
    position = partial_log.start()
    assert partial_log.streams == ("R",)
    for _ in range(25):
        full_log.append(history.commit())
        end = partial_log.after(position, some_limit(random))
        assert rows(partial_log.read("R", position, end)) == history.between(
            "R", position.stream_horizons()["R"], end.stream_horizons()["R"]
        )
        assert partial_log.backlog(position) == super(DurableLog, partial_log).backlog(position)
        position = end if random.random() < 0.8 else partial_log.resume_position(end.stream_horizons())
        assert set(position.horizons) == {"R"}
    assert partial_log.newest().stream_horizons() == {"R": history.horizon("R")}
    # A position that does not have S yet reads it from its beginning.
    end = full_log.after(position, BatchLimit())
    if end != position:
        assert rows(full_log.read("S", position, end)) == history.between("S", HORIZON_MIN, end.stream_horizons()["S"])
        assert rows(full_log.read("R", position, end)) == history.between(
            "R", position.stream_horizons()["R"], end.stream_horizons()["R"]
        )
        assert end.stream_horizons()["S"] == history.horizon("S")
    partial_log.close()
    full_log.close()


def test_streams_are_added_once_and_stay_as_they_are(log: DurableLog) -> None:
    added = mmpl.StreamDef("Q", "u", (("n", INT),), (mmpl.Call(">", (mmpl.ColumnRef("n"), mmpl.Constant(0, INT))),))
    append_commits(log, 2)
    before = log.newest()
    for _ in range(2):
        log.add_streams([added, STREAMS[0]])
    assert DurableLog.read_definitions(log.path) == [*STREAMS, added]
    assert log.streams == ("R", "S", "Q")
    log.append([StreamPiece("Q", "0", HORIZON_MIN, 7), piece(19, 29, 25)])
    end = log.after(before, BatchLimit())
    assert end.stream_horizons() == {"R": 29, "S": 19, "Q": 7}
    assert log.read("Q", before, end).num_rows == 0
    with pytest.raises(SmileError, match="its Q is defined otherwise") as failure:
        log.add_streams([mmpl.StreamDef("Q", "u", (("m", INT),))])
    assert code(failure) == "E087"
    assert log.append([StreamPiece("Q", "0", 7, 9)]) == 4


def test_there_are_no_definitions_where_there_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(SmileError, match="there is no log") as failure:
        DurableLog.read_definitions(str(tmp_path / "log"))
    assert code(failure) == "E070"


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_a_torn_write_ahead_log_leaves_whole_commits(tmp_path: Path, seed: int) -> None:
    """Commits that were in the main file stay readable. Of those in the write-ahead log, a prefix of whole commits
    does."""
    random = Random(seed)
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    append_commits(log, 10)
    log.close()  # moves all commits to the main file
    append_commits(log, 20, 10)
    for name in ("log", "log-wal"):
        shutil.copy(tmp_path / name, tmp_path / f"torn-{name}")
    wal = tmp_path / "torn-log-wal"
    data = bytearray(wal.read_bytes())
    if random.random() < 0.7:
        data = data[: random.randrange(len(data))]
    else:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    wal.write_bytes(data)
    torn = DurableLog.open_or_create(str(tmp_path / "torn-log"), STREAMS)
    commits = torn.newest().commit
    assert 10 <= commits <= 30
    assert ticks(torn) == list(range(10 * commits))
    append_commits(torn, 1, commits)
    assert ticks(torn) == list(range(10 * commits + 10))
    torn.close()
    log.close()


def ticks_or_code(path: str, tick: int) -> list[int] | str:
    """The ticks of R above `tick`, or the code of the error."""
    log = DurableLog(path, STREAMS)
    try:
        return ticks_above(log, tick)
    except SmileError as problem:
        return problem.diagnostics[0].code
    finally:
        log.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(60)))
def test_a_flipped_bit_of_a_truncated_log_is_noticed_or_harmless(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    for n in range(12):
        lo = 10 * n - 1
        log.append(
            [piece(lo, lo + 10, lo + 5), StreamPiece("S", "0", lo, lo + 10)],
            [ProducerRecord("p", n, n, "R", "0", lo + 5, lo + 5)],
        )
    log.truncate({"R": 49, "S": 49})
    log.close()
    path = tmp_path / "log"
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    codes = ("E070", "E085", "E086", "E087", "E089", "E097")
    assert ticks_or_code(str(path), 49) in (*codes, [lo + 4 for lo in range(50, 120, 10)])
    assert outcome(str(path)) in codes  # the truncated part cannot be read


def test_a_truncation_that_fails_removes_nothing(log: DurableLog) -> None:
    append_commits(log, 6)
    with sqlite3.connect(log.path) as db:
        db.execute("UPDATE pieces SET hi = hi - 1 WHERE seq = 3 AND stream = 'R'")
    db.close()
    with pytest.raises(SmileError, match="damaged: a piece of R") as failure:
        log.truncate({"R": END, "S": END})
    assert code(failure) == "E085"
    assert ticks_above(log, 39) == list(range(40, 60))
    assert log.truncated_to("R") is None
