"""Reading ranges of one origin returns the events in them, and reads only the pieces that overlap them."""

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.log.storage.durable import DurableLog
from tests.log.test_durable import STREAMS, batch, piece
from tests.repeatable import scaled


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    durable_log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield durable_log
    durable_log.close()


def read_ranges(log: DurableLog, ranges: list[tuple[int, int]], origin: str = "0") -> tuple[list[int], list[int]]:
    lows, highs = (np.array([bounds[side] for bounds in ranges], np.int64) for side in (0, 1))
    events, run_starts = log.read_ranges("R", origin, lows, highs)
    ticks: list[int] = events.column(0).to_pylist()
    assert events.equals(batch(*ticks))
    return ticks, run_starts


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_ranges_are_read_from_the_pieces_that_have_them_alone(
    log: DurableLog, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, all_ticks, pieces, horizon = Random(seed), list[int](), list[tuple[int, int]](), HORIZON_MIN
    for _ in range(random.randrange(1, 12)):
        hi = horizon + random.randrange(1, 12)
        ticks = [tick for tick in range(horizon + 1, hi + 1) if random.random() < 0.5]
        log.append([piece(horizon, hi, *ticks), piece(horizon, hi, stream="S")])
        is_merged = len(pieces) > 1 and not ticks and not any(pieces[-1][0] < tick for tick in all_ticks)
        lo = pieces.pop()[0] if is_merged else horizon
        pieces.append((lo, hi))
        all_ticks, horizon = all_ticks + ticks, hi
    pieces_read, original = list[tuple[int, int]](), log._events

    def record_read(entry: Any, *args: Any) -> Any:
        pieces_read.append((entry.lo, entry.hi))
        return original(entry, *args)

    monkeypatch.setattr(log, "_events", record_read)
    for _ in range(20):
        bounds = sorted(
            random.sample(range(HORIZON_MIN, horizon + 1), min(horizon + 2, random.choice([2, 4, 6])) // 2 * 2)
        )
        ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
        if random.random() < 0.5:
            ranges = [(tick - 1, tick) for tick in bounds if tick >= 0]
        pieces_read.clear()
        ticks, run_starts = read_ranges(log, ranges)
        assert ticks == [tick for tick in all_ticks if any(lo < tick <= hi for lo, hi in ranges)]
        assert pieces_read == [(lo, hi) for lo, hi in pieces if any(lo < to and after < hi for after, to in ranges)]
        # Runs are as long as possible within a piece.
        piece_numbers = [next(n for n, (lo, hi) in enumerate(pieces) if lo < tick <= hi) for tick in ticks]
        follows = [all_ticks.index(b) == all_ticks.index(a) + 1 for a, b in pairwise(ticks)]
        assert run_starts == [
            n for n in range(len(ticks)) if n == 0 or piece_numbers[n] != piece_numbers[n - 1] or not follows[n - 1]
        ]


def test_an_origin_has_no_events_before_it_joined(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 9, 3, 6)])
    assert read_ranges(log, [(2, 3), (5, 9)], "1") == ([], [])
    log.append([piece(9, 12, 11, origin="1")])
    assert read_ranges(log, [(2, 3), (5, 12)], "1") == ([11], [0])
    assert read_ranges(log, []) == ([], [])
    log.append([piece(9, END)])
    assert read_ranges(log, [(5, 6), (20, END)]) == ([6], [0])


def test_truncated_and_missing_pieces_are_not_taken_for_silence(log: DurableLog) -> None:
    for n in range(6):
        log.append([piece(n - 1, n, n), piece(n - 1, n, stream="S")])
    log.truncate({"R": 1, "S": 1})
    assert read_ranges(log, [(1, 2), (4, 5)]) == ([2, 5], [0, 1])
    with pytest.raises(SmileError) as failure:
        read_ranges(log, [(0, 1), (4, 5)])
    assert failure.value.diagnostics[0].code == "E097"
    with sqlite3.connect(log.path) as db:
        db.execute("DELETE FROM pieces WHERE stream = 'R' AND hi = 3")
    db.close()
    assert read_ranges(log, [(1, 2), (4, 5)]) == ([2, 5], [0, 1])
    for ranges in ([(2, 3)], [(1, 5)], [(4, 7)]):
        with pytest.raises(SmileError, match="damaged: events of R are missing"):
            read_ranges(log, ranges)
