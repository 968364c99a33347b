"""What one origin tells of some ranges is what recomputation finds there, and no piece is read in vain."""

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from smile.errors import SmileError
from smile.log.durable import DurableLog
from smile.log.input_batch import END, HORIZON_MIN
from tests.log.test_durable import STREAMS, batch, piece


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    made = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield made
    made.close()


def told(log: DurableLog, ranges: list[tuple[int, int]], origin: str = "0") -> tuple[list[int], list[int]]:
    lows, highs = (np.array([bounds[side] for bounds in ranges], np.int64) for side in (0, 1))
    found, runs = log.read_ranges("R", origin, lows, highs)
    ticks: list[int] = found.column(0).to_pylist()
    assert found.equals(batch(*ticks))
    return ticks, runs


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_read_from_the_pieces_that_have_them_alone(
    log: DurableLog, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, there, pieces, horizon = Random(seed), list[int](), list[tuple[int, int]](), HORIZON_MIN
    for _ in range(random.randrange(1, 12)):
        hi = horizon + random.randrange(1, 12)
        ticks = [tick for tick in range(horizon + 1, hi + 1) if random.random() < 0.5]
        log.append([piece(horizon, hi, *ticks), piece(horizon, hi, stream="S")])
        pieces.append((horizon, hi))
        there, horizon = there + ticks, hi
    read, events = list[tuple[int, int]](), log._events

    def seen(entry: Any, *given: Any) -> Any:
        read.append((entry.lo, entry.hi))
        return events(entry, *given)

    monkeypatch.setattr(log, "_events", seen)
    for _ in range(20):
        bounds = sorted(
            random.sample(range(HORIZON_MIN, horizon + 1), min(horizon + 2, random.choice([2, 4, 6])) // 2 * 2)
        )
        ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
        if random.random() < 0.5:
            ranges = [(tick - 1, tick) for tick in bounds if tick >= 0]
        read.clear()
        ticks, runs = told(log, ranges)
        assert ticks == [tick for tick in there if any(lo < tick <= hi for lo, hi in ranges)]
        assert read == [(lo, hi) for lo, hi in pieces if any(lo < to and after < hi for after, to in ranges)]
        # Runs are as long as they can be within a piece.
        of = [next(n for n, (lo, hi) in enumerate(pieces) if lo < tick <= hi) for tick in ticks]
        follows = [there.index(b) == there.index(a) + 1 for a, b in pairwise(ticks)]
        assert runs == [n for n in range(len(ticks)) if n == 0 or of[n] != of[n - 1] or not follows[n - 1]]


def test_an_origin_tells_nothing_of_what_was_before_it(log: DurableLog) -> None:
    log.append([piece(HORIZON_MIN, 9, 3, 6)])
    assert told(log, [(2, 3), (5, 9)], "1") == ([], [])
    log.append([piece(9, 12, 11, origin="1")])
    assert told(log, [(2, 3), (5, 12)], "1") == ([11], [0])
    assert told(log, []) == ([], [])
    log.append([piece(9, END)])
    assert told(log, [(5, 6), (20, END)]) == ([6], [0])


def test_what_was_cut_or_is_missing_is_not_taken_for_silence(log: DurableLog) -> None:
    for n in range(6):
        log.append([piece(n - 1, n, n), piece(n - 1, n, stream="S")])
    log.truncate({"R": 1, "S": 1})
    assert told(log, [(1, 2), (4, 5)]) == ([2, 5], [0, 1])
    with pytest.raises(SmileError) as failure:
        told(log, [(0, 1), (4, 5)])
    assert failure.value.diagnostics[0].code == "E097"
    with sqlite3.connect(log.path) as db:
        db.execute("DELETE FROM pieces WHERE stream = 'R' AND hi = 3")
    db.close()
    assert told(log, [(1, 2), (4, 5)]) == ([2, 5], [0, 1])
    for ranges in ([(2, 3)], [(1, 5)], [(4, 7)]):
        with pytest.raises(SmileError, match="damaged: nothing is told of R"):
            told(log, ranges)
