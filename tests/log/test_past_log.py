"""A part of a log: batches end at the tick, whatever order the origins came in, and all of it is read before it says so."""

from pathlib import Path

from smile.algebra import mmpl
from smile.algebra.types import INT
from smile.decoding.stream_schema import StreamSchema
from smile.horizons import HORIZON_MIN
from smile.log.position import BatchLimit, Position
from smile.log.storage.durable import DurableLog
from smile.log.storage.past_log import PastLog
from smile.log.storage.pieces import StreamPiece

STREAM = mmpl.StreamDef("S", "t", (("x", INT),), many_origins=True)
EVENTS = [("2", 10), ("2", 20), ("3", 5), ("2", 30), ("3", 15), ("3", 25), ("2", 40), ("3", 45)]
"""One commit for each, in this order."""


def open_log(folder: Path) -> DurableLog:
    log, lows = DurableLog.open_or_create(str(folder / "log"), [STREAM]), {"2": 1, "3": 1}
    log.append([StreamPiece("S", origin, HORIZON_MIN, low) for origin, low in lows.items()])
    for origin, tick in EVENTS:
        events = StreamSchema(STREAM).record_batch([tick, tick])
        log.append([StreamPiece("S", origin, lows[origin], tick, events)])
        lows[origin] = tick
    return log


def read_all(past: PastLog, limit: BatchLimit) -> tuple[list[int], Position]:
    """The ticks of all batches, sorted."""
    position, ticks = past.start(), list[int]()
    while (end := past.after(position, limit)) != position:
        assert not past.is_read.is_set()
        ticks += past.read("S", position, end).column(0).cast("int64").to_pylist()
        position = end
    return sorted(ticks), position


def test_it_ends_at_a_tick_in_every_origin(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for tick in range(0, 50, 5):
        for limit in (BatchLimit(), BatchLimit(rows=1), BatchLimit(rows=2)):
            past = PastLog(log, {}, tick)
            ticks, end = read_all(past, limit)
            assert ticks == sorted(t for _, t in EVENTS if t <= tick)
            assert past.is_read.is_set()
            assert {t for origins in end.horizons.values() for t in origins.values()} <= {*range(tick + 1)}
            assert end.horizons == past.newest().horizons or not ticks


def test_it_begins_above_ticks(tmp_path: Path) -> None:
    past = PastLog(open_log(tmp_path), {"S": {"2": 20, "3": 5}}, 30)
    assert read_all(past, BatchLimit(rows=1))[0] == [15, 25, 30]


def test_without_an_end_it_follows_and_says_when_it_has_what_there_was(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    past, position, limit = PastLog(log, {}), log.start(), BatchLimit(rows=1)
    for _ in range(1 + len(EVENTS)):
        assert not past.is_read.is_set()
        position = past.after(position, BatchLimit(commits=1))
    assert past.after(position, limit) == position and past.is_read.is_set()
    log.append([StreamPiece("S", "2", 40, 50, StreamSchema(STREAM).record_batch([50, 50]))])
    later = past.after(position, limit)
    assert past.read("S", position, later).num_rows == 1
