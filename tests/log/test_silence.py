"""Silence does not make a log larger, and nobody who reads the log can tell: a log whose silence is merged answers like one
whose commits all stay."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import INT
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.log.position import BatchLimit, Position
from smile.log.storage import appending, retention
from smile.log.storage.durable import DurableLog
from smile.log.storage.finite_log import FiniteLog
from smile.log.storage.pieces import StreamPiece
from tests.repeatable import scaled

STREAMS = [
    mmpl.StreamDef("R", "t", (("v", INT),)),
    mmpl.StreamDef("S", "t", (("v", INT),)),
    mmpl.StreamDef("M", "t", (("v", INT),), many_origins=True),
]
ORIGINS = [("R", "0"), ("S", "0"), ("S", "1"), ("M", "1"), ("M", "2")]
SCHEMA = stream_schema(STREAMS[0])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    with closing(DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)) as opened:
        yield opened


@pytest.fixture
def unmerged(tmp_path: Path) -> Iterator[DurableLog]:
    with closing(DurableLog.open_or_create(str(tmp_path / "unmerged"), STREAMS, flush=False)) as opened:
        yield opened


def piece(stream: str, origin: str, lo: int, hi: int, *ticks: int) -> StreamPiece:
    events = pa.RecordBatch.from_pylist([{"t": t, "v": t} for t in ticks], SCHEMA) if ticks else None
    return StreamPiece(stream, origin, lo, hi, events)


def append_unmerged(log: DurableLog, pieces: list[StreamPiece]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "_newest_silence", lambda _: None)
        log.append(pieces)


def commit_numbers(log: DurableLog) -> list[int]:
    with sqlite3.connect(log.path) as connection:
        return [seq for (seq,) in connection.execute("SELECT seq FROM commits ORDER BY seq")]


class RandomHistory:
    """Commits of which most have only silence, of all origins or of some of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.horizons: dict[tuple[str, str], int] = {}

    def first_commit(self) -> list[StreamPiece]:
        self.horizons = dict.fromkeys(ORIGINS, 0)
        return [piece(stream, origin, HORIZON_MIN, 0) for stream, origin in ORIGINS]

    def commit(self) -> list[StreamPiece]:
        random, pieces = self.random, []
        has_events = random.random() < 0.25
        for number, key in enumerate(random.sample(ORIGINS, random.choice([1, 2, len(ORIGINS), len(ORIGINS)]))):
            lo, hi = self.horizons[key], self.horizons[key] + random.randrange(1, 20)
            index = ORIGINS.index(key)
            ticks = [t for t in range(lo + 1, hi + 1) if t % len(ORIGINS) == index] if has_events and not number else []
            pieces.append(piece(*key, lo, hi, *ticks))
            self.horizons[key] = hi
        return pieces


def ticks_between(log: DurableLog, start: Position, end: Position) -> dict[str, list[int]]:
    return {stream: log.read(stream, start, end).column(0).to_pylist() for stream in log.streams}


def some_limit(random: Random, last: Position | None) -> BatchLimit:
    return BatchLimit(random.choice([None, 1, 5]), None, random.choice([None, None, 1, 2]), last)


def read_to(log: DurableLog, random: Random, start: Position, last: Position | None) -> Position:
    """Reads in random batches, and checks that they are what lies between their positions."""
    position, ticks = start, {stream: list[int]() for stream in log.streams}
    while (end := log.after(position, some_limit(random, last))) != position:
        assert end.commit >= position.commit
        for stream, read_ticks in ticks_between(log, position, end).items():
            ticks[stream] += read_ticks
        position = end
    expected = ticks_between(log, start, position)
    assert {stream: sorted(ts) for stream, ts in ticks.items()} == expected
    return position


# ── what readers see ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(scaled(25)))
def test_every_position_is_read_as_if_nothing_was_merged(log: DurableLog, unmerged: DurableLog, seed: int) -> None:
    """Also positions after commits that were replaced since, as starts and as ends of batches."""
    random = Random(seed)
    history = RandomHistory(random)
    positions = [log.start()]
    for number in range(40):
        pieces = history.commit() if number else history.first_commit()
        log.append(pieces)
        append_unmerged(unmerged, pieces)
        assert log.newest() == unmerged.newest()
        positions.append(log.newest())
        start = random.choice(positions)
        end = positions[random.randrange(positions.index(start), len(positions))]
        assert ticks_between(log, start, end) == ticks_between(unmerged, start, end)
        assert log.backlog(start) == unmerged.backlog(start)
        resumed = log.resume_position(start.named_horizons())
        assert resumed.named_horizons() == start.named_horizons()
        for begin in (start, resumed):
            assert read_to(log, random, begin, end).named_horizons() == end.named_horizons()
            assert read_to(log, random, begin, None) == log.newest()
    assert unmerged.newest().commit == 40
    assert len(commit_numbers(unmerged)) == 41
    assert len(commit_numbers(log)) < 35


@pytest.mark.parametrize("seed", range(scaled(15)))
def test_truncation_takes_nothing_from_readers_at_replaced_commits(
    log: DurableLog, unmerged: DurableLog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of some streams only: the others are not needed at all."""
    monkeypatch.setattr(retention, "PAUSE_S", 0)
    random = Random(seed)
    history, truncated_to = RandomHistory(random), 0
    needed = [stream for stream in STREAMS if random.random() < 0.6] or STREAMS[:1]
    with closing(DurableLog(log.path, needed)) as reader, closing(DurableLog(unmerged.path, needed)) as expected:
        positions = [reader.start()] * 2
        for number in range(60):
            pieces = history.commit() if number else history.first_commit()
            log.append(pieces)
            append_unmerged(unmerged, pieces)
            i = random.randrange(2)
            end = reader.after(positions[i], some_limit(random, None))
            assert ticks_between(reader, positions[i], end) == ticks_between(expected, positions[i], end)
            positions[i] = end
            if random.random() < 0.3:
                horizons = [position.named_horizons() for position in positions]
                least = {name: min(h.get(name, HORIZON_MIN) for h in horizons) for name in horizons[0]}
                truncated_to = log.truncate({**{stream.name: END for stream in STREAMS}, **least})
        assert all(reader.after(position, BatchLimit()).horizons == reader.newest().horizons for position in positions)
    assert truncated_to > 10


def test_a_finite_log_ends_where_it_was_opened(log: DurableLog) -> None:
    log.append([piece("R", "0", HORIZON_MIN, 5, 3)])
    log.append([piece("R", "0", 5, 10)])
    finite = FiniteLog.wrap(log)
    log.append([piece("R", "0", 10, 20)])
    position = finite.after(finite.start(), BatchLimit())
    assert position == finite.last
    assert finite.after(position, BatchLimit()) == finite.newest()


# ── what is merged ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_silence_does_not_make_the_file_larger(log: DurableLog) -> None:
    def silence(hi: int) -> None:
        log.append([piece(*key, HORIZON_MIN, hi) for key in ORIGINS])

    def size() -> int:
        with sqlite3.connect(log.path) as connection:
            return int(connection.execute("PRAGMA page_count").fetchone()[0])

    for hi in range(10):
        silence(hi)
    before = size()
    for hi in range(10, 500):
        silence(hi)
    assert size() == before
    assert log.newest().commit == 500


def test_events_joining_origins_and_ends_stay_commits_of_their_own(log: DurableLog) -> None:
    log.append([piece("M", "1", HORIZON_MIN, 0), piece("R", "0", HORIZON_MIN, 0)])
    log.append([piece("M", "1", 0, 5)])  # 2: an origin has joined in the commit before
    log.append([piece("M", "1", 5, 6), piece("R", "0", 0, 6)])  # 3 replaces 2
    log.append([piece("M", "2", 5, 6)])  # 4: an origin joins
    log.append([piece("R", "0", 6, 9, 8)])  # 5: an event
    log.append([piece("R", "0", 9, 10)])  # 6
    log.append([piece("M", "1", 6, END)])  # 7: an end
    log.append([piece("R", "0", 10, 11)])  # 8 replaces 7
    assert commit_numbers(log) == [0, 1, 3, 4, 5, 6, 8]
    with closing(DurableLog(log.path, STREAMS)) as reopened:
        assert reopened.newest() == log.newest()


def test_a_commit_that_the_log_is_truncated_to_is_not_replaced(log: DurableLog) -> None:
    log.append([piece("R", "0", HORIZON_MIN, 5, 3)])
    for hi in (10, 15):
        log.append([piece("R", "0", hi - 5, hi)])
    reader = log.newest()
    assert log.truncate({"R": 15, "S": END, "M": END}) == 3
    log.append([piece("R", "0", 15, 20)])
    assert commit_numbers(log) == [3, 4]
    assert log.after(reader, BatchLimit()) == log.newest()


def test_a_commit_that_is_replaced_while_it_is_truncated_stays(
    log: DurableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([piece("R", "0", HORIZON_MIN, 5, 3)])
    log.append([piece("R", "0", 5, 10)])
    find, calls = log._removable_commits, list[list[retention.CommitEntries]]()

    def find_then_append(horizons: dict[str, int], last: int) -> list[retention.CommitEntries]:
        commits = find(horizons, last)
        if not calls:
            log.append([piece("R", "0", 10, 15)])
        calls.append(commits)
        return commits

    monkeypatch.setattr(log, "_removable_commits", find_then_append)
    reader = log.newest()
    assert log.truncate({"R": 10, "S": END, "M": END}) == 1
    assert log.after(reader, BatchLimit()) == log.newest()
    assert log.newest().stream_horizons()["R"] == 15


# ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failure_between_the_removal_and_the_replacement_changes_nothing(
    log: DurableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([piece("R", "0", HORIZON_MIN, 5, 3)])
    log.append([piece("R", "0", 5, 10)])
    newest = log.newest()
    with monkeypatch.context() as patch:
        patch.setattr(appending, "_INSERT_PIECE", "INSERT INTO pieces VALUES (1)")
        with pytest.raises(SmileError):
            log.append([piece("R", "0", 10, 15)])
    assert log.newest() == newest
    assert commit_numbers(log) == [0, 1, 2]
    log.append([piece("R", "0", 10, 15)])
    assert commit_numbers(log) == [0, 1, 3]
    assert ticks_between(log, log.start(), log.newest())["R"] == [3]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE pieces SET lo = 2 WHERE seq = 2",
        "UPDATE pieces SET seq = 1 WHERE seq = 2",
        "DELETE FROM pieces WHERE seq = 2 AND stream = 'R'",
    ],
)
def test_damaged_silence_is_not_replaced_but_reported(log: DurableLog, statement: str) -> None:
    log.append([piece("R", "0", HORIZON_MIN, 5, 3), piece("S", "0", HORIZON_MIN, 5)])
    log.append([piece("R", "0", 5, 10), piece("S", "0", 5, 10)])
    with sqlite3.connect(log.path) as connection:
        connection.execute(statement)
    log.append([piece("S", "0", 10, 15)])
    assert commit_numbers(log) == [0, 1, 2, 3]
    with pytest.raises(SmileError) as failure:
        log.after(log.start(), BatchLimit())
    assert failure.value.diagnostics[0].code == "E085"


@pytest.mark.parametrize("what", ["commits", "pieces"])
def test_a_lost_commit_with_events_is_noticed(log: DurableLog, what: str) -> None:
    for lo, *ticks in ((HORIZON_MIN, 3), (5,), (10,), (15, 17), (20,), (25,)):
        log.append([piece("R", "0", lo, max(5, lo + 5), *ticks)])
    assert commit_numbers(log) == [0, 1, 3, 4, 6]
    with sqlite3.connect(log.path) as connection:
        connection.execute(f"DELETE FROM {what} WHERE seq = 4")
    for start in (Position(1, {"R": {"0": 5}}), Position(2, {"R": {"0": 10}}), Position(3, {"R": {"0": 15}})):
        with pytest.raises(SmileError, match="is damaged: commit 4") as failure:
            log.after(start, BatchLimit())
        assert failure.value.diagnostics[0].code == "E085"


def test_a_log_that_was_replaced_by_an_older_one_is_noticed(log: DurableLog) -> None:
    for lo in (HORIZON_MIN, 5, 10):
        log.append([piece("R", "0", lo, max(5, lo + 5))])
    with pytest.raises(SmileError, match="has no commit 4, although it was read before"):
        log.after(Position(4, {"R": {"0": 20}}), BatchLimit())
