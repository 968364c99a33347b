"""Whatever the commits, origins, limits and files, reading ranges of a log returns its history, each event once and in
order."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import INT, STRING
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.log.position import DEFAULT_ORIGIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.piece_log import PieceLog
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.reading import BatchLimit, Log, Position, open_log, read_batches

STREAMS = [mmpl.StreamDef(name, "t", (("v", INT), ("w", STRING))) for name in ("R", "S")]
NAMES = [stream.name for stream in STREAMS]
SCHEMA = stream_schema(STREAMS[0])
ORIGINS = ["x", "y", DEFAULT_ORIGIN]

Event = tuple[int, int | None, str | None]
SEEDS = st.integers(0, 2**32)


def batch(events: list[Event]) -> pa.RecordBatch:
    columns = [pa.array([event[i] for event in events], data) for i, data in enumerate(SCHEMA.types)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def rows(events: pa.RecordBatch) -> list[Event]:
    assert events.schema.equals(SCHEMA)
    return [tuple(row.values()) for row in events.to_pylist()]


def some_event(random: Random, tick: int) -> Event:
    return tick, random.choice([None, random.randrange(100)]), random.choice([None, "", "IBM"])


@dataclass
class History:
    """The expected content of all streams. `commit` adds random events to it."""

    random: Random
    horizons: dict[tuple[str, str], int] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=lambda: {name: [] for name in NAMES})

    def horizon(self, stream: str) -> int:
        return min((tick for (name, _), tick in self.horizons.items() if name == stream), default=HORIZON_MIN)

    def commit(self) -> list[StreamPiece]:
        random, pieces = self.random, []
        floors = {name: self.horizon(name) for name in NAMES}
        for stream in NAMES:
            for number, origin in enumerate(ORIGINS):
                if random.random() < 0.6:
                    continue
                lo = self.horizons.get((stream, origin), floors[stream])
                hi = lo + random.randrange(1, 30)
                ticks = [t for t in range(lo + 1, hi + 1) if t % len(ORIGINS) == number and random.random() < 0.5]
                new_events = [some_event(random, tick) for tick in ticks]
                events = batch(new_events) if new_events or random.random() < 0.5 else None
                pieces.append(StreamPiece(stream, origin, lo, hi, events))
                self.events[stream] += new_events
                self.horizons[stream, origin] = hi
        return pieces

    def between(self, stream: str, lo: int, hi: int) -> list[Event]:
        return sorted(event for event in self.events[stream] if lo < event[0] <= hi)


def some_limit(random: Random) -> BatchLimit:
    def limit(maximum: int) -> int | None:
        return random.choice([None, random.randrange(1, maximum)])

    return BatchLimit(limit(60), limit(3000), limit(5))


def largest_batch_end(log: Log, start: Position, limit: BatchLimit) -> Position:
    """The end of the largest batch of whole commits within the limit, found commit by commit; at least one."""
    rows, size = log.backlog(start)
    end, count = log.after(start, BatchLimit(commits=1)), 1
    while (next_end := log.after(end, BatchLimit(commits=1))) != end:
        remaining_rows, remaining_size = log.backlog(next_end)
        count += 1
        if not limit.allows(rows - remaining_rows, size - remaining_size, count):
            break
        end = next_end
    return end


def check_part(log: Log, start: Position, end: Position, whole_end: Position, limit: BatchLimit) -> None:
    """Only if one commit exceeds the limit, a batch has a part of it, which is as large as the limit allows."""
    (rows, size), (rows_after_part, _), (rows_after, size_after) = map(log.backlog, (start, end, whole_end))
    pieces_max = len(NAMES) * len(ORIGINS)
    assert log.after(start, BatchLimit(commits=1)) == whole_end
    assert not limit.allows(rows - rows_after, size - size_after, 1)
    assert end.commit < whole_end.commit
    whole_rows = rows - rows_after
    allowed = whole_rows * limit.share_of(whole_rows, size - size_after)
    assert 0 < rows - rows_after_part < whole_rows
    assert allowed - pieces_max <= rows - rows_after_part <= allowed + pieces_max


def check_batch(log: Log, history: History, start: Position, limit: BatchLimit) -> Position:
    end, whole_end = log.after(start, limit), largest_batch_end(log, start, limit)
    backlog = log.backlog(start)
    if end != whole_end:
        check_part(log, start, end, whole_end, limit)
    assert backlog == PieceLog.backlog(log, start)  # type: ignore[arg-type]  # both logs are PieceLogs
    assert end != start or backlog == (0, 0)
    for stream in log.streams:
        lo, hi = start.stream_horizons()[stream], end.stream_horizons()[stream]
        assert rows(log.read(stream, start, end)) == history.between(stream, lo, hi)
    return Position.from_json(end.to_json())


def check_reading(log: Log, history: History, random: Random, append_more: Callable[[], None]) -> None:
    """Reads the log from start to end while it grows. Sometimes resumes at the horizons reached."""
    position, positions = log.start(), [log.start()]
    for _ in range(40):
        for _ in range(random.choice([0, 0, 1, 3])):
            append_more()
        position = check_batch(log, history, position, some_limit(random))
        positions.append(position)
        if random.random() < 0.2:
            position = log.resume_position(position.stream_horizons())
            assert position.stream_horizons() == positions[-1].stream_horizons()
    position = check_batch(log, history, position, BatchLimit())
    assert position == log.newest()
    assert position.stream_horizons() == {name: history.horizon(name) for name in NAMES}
    random_horizons = {name: random.randrange(HORIZON_MIN, history.horizon(name) + 1) for name in NAMES}
    position = log.resume_position(random_horizons)
    assert position.stream_horizons() == random_horizons
    while (end := check_batch(log, history, position, some_limit(random))) != position:
        position = end
    assert position.stream_horizons() == log.newest().stream_horizons()
    a, b = random.choices([*positions, position, log.resume_position(random_horizons)], k=2)
    for stream in NAMES:
        lo, hi = a.stream_horizons()[stream], b.stream_horizons()[stream]
        assert rows(log.read(stream, a, b)) == history.between(stream, lo, hi)


@pytest.mark.slow
@settings(max_examples=25)
@given(SEEDS)
def test_a_durable_log_is_read_while_it_is_written(seed: int) -> None:
    random = Random(seed)
    history = History(random)
    with TemporaryDirectory() as directory:
        path = f"{directory}/log"
        writer = DurableLog.open_or_create(path, STREAMS, flush=False)
        log = open_log(path, STREAMS)
        check_reading(log, history, random, lambda: append(writer, history))
        writer.close()


def append(log: DurableLog, history: History) -> None:
    log.append(history.commit())


@pytest.mark.slow
@settings(max_examples=25)
@given(SEEDS)
def test_recorded_files_are_read_in_any_layout(seed: int) -> None:
    random = Random(seed)
    history = History(random)
    with TemporaryDirectory() as directory:
        for stream in NAMES:
            ticks = sorted(random.sample(range(200), random.randrange(100)))
            history.events[stream] = [some_event(random, tick) for tick in ticks]
            if ticks:
                history.horizons[stream, DEFAULT_ORIGIN] = ticks[-1]
                write_files(random, Path(directory), stream, history.events[stream])
        (Path(directory) / "_SUCCESS").touch()
        if any(history.events.values()):
            check_reading(pickle.loads(pickle.dumps(open_log(directory, STREAMS))), history, random, lambda: None)


def write_files(random: Random, directory: Path, stream: str, events: list[Event]) -> None:
    """Writes one file, or several whose names do not follow their order."""
    files = random.choice([1, random.randrange(1, 5)])
    ends = sorted({len(events), *random.choices(range(1, len(events) + 1), k=files - 1)})
    begin = 0
    for end in ends:
        path = directory / f"{stream}.parquet"
        if files > 1:
            path = directory / stream / random.choice(["", "a", "b/c"]) / f"{random.randrange(10**9)}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches([batch(events[begin:end])])
        pq.write_table(table, path, row_group_size=random.randrange(1, 50), write_statistics=random.random() < 0.5)
        begin = end


@pytest.mark.slow
@settings(max_examples=25)
@given(SEEDS)
def test_batches_are_the_history(seed: int) -> None:
    random = Random(seed)
    history = History(random)
    with TemporaryDirectory() as directory:
        log = DurableLog.open_or_create(f"{directory}/log", STREAMS, flush=False)
        for _ in range(20):
            append(log, history)
        limit = some_limit(random)
        events_read: dict[str, list[Event]] = {name: [] for name in NAMES}
        horizons = dict.fromkeys(NAMES, HORIZON_MIN)
        for input_batch in read_batches(log, limit):
            assert input_batch.horizons != horizons
            for stream, events in input_batch.events.items():
                assert all(horizons[stream] < event[0] <= input_batch.horizons[stream] for event in rows(events))
                events_read[stream] += rows(events)
            horizons = dict(input_batch.horizons)
        assert events_read == {name: history.between(name, HORIZON_MIN, horizons[name]) for name in NAMES}
        assert list(read_batches(log, limit, log.newest())) == []
        log.close()


def test_a_position_is_plain_json() -> None:
    position = Position(3, {"R": {"x": 2**62, "y": 5}, "S": {}}, frozenset({"R"}))
    assert position.stream_horizons() == {"R": 5, "S": HORIZON_MIN}
    horizons = {"R": {"x": 2**62, "y": 5}, "S": {}}
    assert position.to_json() == {"commit": 3, "horizons": horizons, "many_origins": ["R"]}
    assert Position.from_json(position.to_json()) == position


def test_an_origin_that_joins_does_not_hold_its_stream_back(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS)
    log.append([StreamPiece("R", "x", HORIZON_MIN, 100)])
    first = log.after(log.start(), BatchLimit())
    assert first.horizons["R"] == {"x": 100}
    log.append([StreamPiece("R", "y", HORIZON_MIN, 150, batch([(120, 1, "late")]))])
    second = log.after(first, BatchLimit())
    assert second.horizons["R"] == {"x": 100, "y": 150}
    assert log.read("R", first, second).num_rows == 0
    log.append([StreamPiece("R", "x", 100, 130)])
    third = log.after(second, BatchLimit())
    assert rows(log.read("R", second, third)) == [(120, 1, "late")]


def test_a_range_may_end_where_a_state_was_resumed(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS)
    log.append([StreamPiece("R", "x", HORIZON_MIN, 9), StreamPiece("R", "y", HORIZON_MIN, 4, batch([(3, 1, "a")]))])
    end = log.resume_position({"R": 4})
    assert end == Position(0, {"R": {DEFAULT_ORIGIN: 4}, "S": {DEFAULT_ORIGIN: HORIZON_MIN}})
    assert rows(log.read("R", log.start(), end)) == [(3, 1, "a")]


def test_an_end_may_be_declared(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS)
    log.append(
        [
            StreamPiece("R", "x", HORIZON_MIN, 3),
            StreamPiece("R", "y", HORIZON_MIN, 9, batch([(2, 1, "a"), (7, 1, "b")])),
        ]
    )
    newest = log.newest()
    ends = {"R": {"x": END, "y": END}, "S": {DEFAULT_ORIGIN: END}}
    assert rows(log.read("R", newest, Position(2, ends))) == [(7, 1, "b")]
    assert log.read("S", newest, Position(2, ends)).num_rows == 0
    with pytest.raises(SmileError, match="events of R are missing, ticks above 3 up to 9223372036854775807"):
        log.read("R", newest, Position(1, ends))


def test_a_tick_of_two_origins_is_an_error(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS)
    log.append([StreamPiece("R", origin, HORIZON_MIN, 9, batch([(4, 1, origin)])) for origin in ("x", "y")])
    with pytest.raises(SmileError, match="two origins of R have an event at tick 4") as failure:
        log.read("R", log.start(), log.newest())
    assert failure.value.diagnostics[0].code == "E083"


@pytest.mark.parametrize("content", [None, b"", b"SQLite", b'{"stream": "R", "silence_to": 4}\n'])
def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SmileError, match="is not a log" if content is not None else "No such file") as failure:
        open_log(str(path), STREAMS)
    assert failure.value.diagnostics[0].code == "E070"


def test_a_batch_does_not_go_beyond_the_last_position_it_may_have(tmp_path: Path) -> None:
    """Nor does a batch from a resumed position, where a faster origin is ahead."""
    stream = mmpl.StreamDef("S", "t", (("n", INT),))
    log = DurableLog.open_or_create(str(tmp_path / "log"), [stream], flush=False)
    pieces = [("a", 0, 100), ("b", 0, 40), ("b", 40, 50), ("b", 50, 60), ("b", 60, 70)]
    ends = [log.start()]
    for origin, lo, hi in pieces:
        log.append([StreamPiece("S", origin, lo or HORIZON_MIN, hi)])
        ends.append(log.newest())
    for start in (log.start(), log.resume_position({"S": 40})):
        for last in ends[start.commit :]:
            assert start.commit <= log.after(start, BatchLimit(last=last)).commit <= max(last.commit, start.commit)
    assert log.after(log.start(), BatchLimit(last=ends[-1])) == log.newest()
