"""Streams with many origins in a log: each origin is read as it comes, each event once, whatever happens in between."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import INT
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN, origin_name, with_origins
from smile.log.position import BatchLimit, Position
from smile.log.storage.durable import DurableLog
from smile.log.storage.finite_log import FiniteLog
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.reading import read_batches

MANY = mmpl.StreamDef("S", "t", (("v", INT),), many_origins=True)
ONE = mmpl.StreamDef("R", "t", (("v", INT),))
SCHEMA = stream_schema(MANY)


def piece(origin: str, lo: int, hi: int, *ticks: int, stream: str = "S") -> StreamPiece:
    events = pa.RecordBatch.from_pylist([{"t": t, "v": t} for t in ticks], SCHEMA) if ticks else None
    return StreamPiece(stream, origin, lo, hi, events)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    with closing(DurableLog.open_or_create(str(tmp_path / "log"), [MANY, ONE], flush=False)) as opened:
        yield opened


def ticks_between(log: DurableLog, start: Position, end: Position, stream: str = "S") -> list[int]:
    ticks: list[int] = log.read(stream, start, end).column(0).to_pylist()
    return ticks


# ── members ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_are_read_as_they_come_and_the_horizon_is_the_least(log: DurableLog) -> None:
    log.append([piece("1", -1, 0), piece("2", -1, 0), piece("3", -1, 0)])
    log.append([piece("1", 0, 50, 10, 50), piece("2", 0, 20, 15)])
    start, end = log.start(), log.newest()
    assert ticks_between(log, start, end) == [10, 15, 50]
    assert end.named_horizons() == {"R": HORIZON_MIN, "S": 0, "S:1": 50, "S:2": 20, "S:3": 0}
    log.append([piece("3", 0, 60, 40)])
    assert ticks_between(log, end, log.newest()) == [40]
    assert log.newest().stream_horizons()["S"] == 20


def test_who_has_left_holds_nothing_back_and_does_not_return(log: DurableLog) -> None:
    log.append([piece("1", -1, 30, 5), piece("2", -1, 10)])
    log.append([piece("2", 10, END)])
    assert log.newest().stream_horizons()["S"] == 30
    before = log.newest()
    log.append([piece("2", 10, 40, 35)])
    assert log.newest() == before
    log.append([piece("1", 30, 31)])
    assert log.newest().stream_horizons()["S"] == 31


def test_an_origin_joins_at_the_horizon_or_above_it(log: DurableLog) -> None:
    log.append([piece("1", -1, 30, 5)])
    position = log.newest()
    log.append([piece("2", -1, 30)])
    assert log.newest().stream_horizons()["S"] == 30
    log.append([piece("1", 30, 90, 80)])
    assert log.newest().stream_horizons()["S"] == 30, "the new origin holds it back"
    assert log.after(position, BatchLimit(commits=1)).named_horizons()["S:2"] == 30
    for late in (piece("3", -1, 29), piece("3", -1, 40, 25), piece("3", 35, 40)):
        with pytest.raises(SmileError) as refused:
            log.append([late])
        assert refused.value.diagnostics[0].code == "E088"
    log.append([piece("1", 90, END), piece("2", 30, END)])
    with pytest.raises(SmileError, match="its end"):
        log.append([piece("3", -1, END)])


def test_a_stream_without_origins_can_end(log: DurableLog) -> None:
    finite = FiniteLog.wrap(log)
    end = finite.after(finite.start(), BatchLimit())
    assert end.stream_horizons() == {"S": END, "R": END}
    assert finite.resume_position(end.named_horizons()) == end
    assert log.read("S", finite.start(), end).num_rows == 0


def test_the_end_has_all_that_any_origin_has(log: DurableLog) -> None:
    log.append([piece("1", -1, 50, 10, 50), piece("2", -1, 20, 15)])
    finite = FiniteLog.wrap(log)
    batches = list(read_batches(finite, BatchLimit(commits=1)))
    assert [b.events["S"].column(0).to_pylist() for b in batches if "S" in b.events] == [[10, 15, 50]]
    assert batches[-1].horizons == {"R": END, **with_origins("S", {"1": END, "2": END})}


# ── resuming ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_state_resumes_exactly_where_each_origin_was(log: DurableLog) -> None:
    log.append([piece("1", -1, 50, 10, 50), piece("2", -1, 20, 15), piece("0", -1, 5, 3, stream="R")])
    state = log.newest().named_horizons()
    log.append([piece("3", -1, 25, 22), piece("2", 20, 30, 28)])
    resumed = log.resume_position(state)
    assert resumed.named_horizons() == state
    assert ticks_between(log, resumed, log.newest()) == [22, 28]
    assert log.resume_position(log.newest().named_horizons()) == log.newest()


def test_a_part_of_a_commit_in_which_an_origin_joins(log: DurableLog) -> None:
    log.append([piece("1", -1, 9, *range(10)), piece("2", -1, 99, *range(10, 100))])
    position, read = log.start(), list[int]()
    while (end := log.after(position, BatchLimit(rows=7))) != position:
        read += ticks_between(log, position, end)
        position = log.resume_position(end.named_horizons())
        assert position.named_horizons() == end.named_horizons()
    assert sorted(read) == list(range(100))


def test_a_cut_log_keeps_what_a_state_has_not_read_of_an_origin(log: DurableLog) -> None:
    log.append([piece("1", -1, 50, 10), piece("2", -1, 20, 15)])
    state = log.newest().named_horizons()
    log.append([piece("1", 50, 60, 55)])
    log.append([piece("2", 20, 30, 25)])
    assert log.truncate({**state, "S:2": 30}) == 1, "tick 55 of origin 1 is needed"
    assert ticks_between(log, log.resume_position(state), log.newest()) == [25, 55]
    with pytest.raises(SmileError) as gone:
        ticks_between(log, log.start(), log.newest())
    assert gone.value.diagnostics[0].code == "E097"
    assert log.truncate(log.newest().named_horizons()) == 3


# ── everything at random ────────────────────────────────────────────────────────────────────────────────────────────


class Writer:
    """Random commits of a stream with many origins, one of which may be dead, and of an ordinary stream."""

    def __init__(self, random: Random, log: DurableLog) -> None:
        self.random, self.log = random, log
        self.horizons: dict[str, int] = {}
        self.dead = random.choice([None, "1", "2"])
        self.own = HORIZON_MIN
        self.ticks: list[int] = []

    @property
    def least(self) -> int:
        return min(self.horizons.values(), default=HORIZON_MIN)

    def commit(self) -> None:
        random, pieces, least = self.random, [], self.least
        for number in range(4):
            origin = str(number)
            horizon = self.horizons.get(origin, max(0, least))
            if horizon == END or random.random() < 0.5 or (origin == self.dead and origin in self.horizons):
                continue
            hi = horizon + random.randrange(40)
            ticks = [t for t in range(horizon + 1, hi + 1) if t % 4 == number and random.random() < 0.7]
            active = [o for o, tick in self.horizons.items() if tick < END]
            if origin in self.horizons and len(active) > 1 and random.random() < 0.03:
                hi = END
            pieces.append(piece(origin, self.horizons.get(origin, HORIZON_MIN), hi, *ticks))
            self.horizons[origin] = hi
            self.ticks += ticks
        if random.random() < 0.5:
            self.own += random.randrange(1, 9)
            pieces.append(piece("0", HORIZON_MIN, self.own, stream="R"))
        self.log.append(pieces)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_every_event_is_read_once_in_any_batches_with_resumes_and_cuts(seed: int) -> None:
    random = Random(seed)
    with (
        TemporaryDirectory() as folder,
        closing(DurableLog.open_or_create(f"{folder}/log", [MANY, ONE], flush=False)) as log,
    ):
        writer, position, read = Writer(random, log), log.start(), list[int]()
        checkpoint = (position, 0)
        for _ in range(40):
            for _ in range(random.choice((0, 1, 3))):
                writer.commit()
            limit = BatchLimit(random.choice((None, 3, 20)), None, random.choice((None, 1, 2)))
            end = log.after(position, limit)
            read += ticks_between(log, position, end)
            before, position = position, Position.from_json(end.to_json())
            _check_monotonic(before, position)
            chosen = random.random()
            if chosen < 0.2:
                position = log.resume_position(position.named_horizons())
                assert position.named_horizons() == end.named_horizons()
            elif chosen < 0.3:
                checkpoint = position, len(read)
                log.truncate(position.named_horizons())
            elif chosen < 0.4:
                position = log.resume_position(checkpoint[0].named_horizons())
                assert position.named_horizons() == checkpoint[0].named_horizons()
                del read[checkpoint[1] :]
        while (end := log.after(position, BatchLimit(rows=9))) != position:
            read += ticks_between(log, position, end)
            position = end
        assert Counter(read) == Counter(writer.ticks)
        assert position.named_horizons() == {"R": writer.own, **with_origins("S", writer.horizons)}
        assert log.backlog(position) == (0, 0)


def _check_monotonic(before: Position, after: Position) -> None:
    known = after.named_horizons()
    for name, tick in before.named_horizons().items():
        assert known[name] >= tick, name
    assert known["S"] == min(after.horizons["S"].values(), default=HORIZON_MIN)
    assert all(origin_name("S", origin) in known for origin in after.horizons["S"])
