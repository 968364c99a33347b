"""Ticks ascend by at least one microsecond, whatever the clock does, and no two origins share a tick."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from smile.algebra.types import TICK_MAX
from smile.errors import SmileError
from smile.horizons import HORIZON_MIN, ORIGIN_MAX
from smile.log.clock import TickGenerator, wall_clock
from tests.repeatable import scaled


def clock_times(times: list[int]) -> Iterator[int]:
    """The times, and then the last one forever."""
    yield from times
    while True:
        yield times[-1]


def tick_generator(times: list[int], origin: int = 3) -> TickGenerator:
    return TickGenerator(origin, clock_times(times).__next__)


def test_a_tick_is_the_clocks_microseconds_and_the_origins_number() -> None:
    assert list(tick_generator([1_700_000_000_000_000]).take(3)) == [
        (1_700_000_000_000_000 + n) * 1024 + 3 for n in range(3)
    ]


@pytest.mark.parametrize("times", [[100], [100, 90, 10, -5], [100, 100, 101]])
def test_a_clock_that_stands_still_or_steps_back_does_not_matter(times: list[int]) -> None:
    ticks = tick_generator(times)
    assert [tick for _ in range(4) for tick in ticks.take(2)] == [(100 + n) * 1024 + 3 for n in range(8)]


def test_what_was_declared_silent_stays_so() -> None:
    ticks = tick_generator([100, 200, 150, 150, 201])
    assert list(ticks.take(1)) == [100 * 1024 + 3]
    assert ticks.silence_tick() == 200 * 1024 + 3
    assert ticks.silence_tick() == 200 * 1024 + 3
    assert list(ticks.take(1)) == [201 * 1024 + 3]
    assert ticks.silence_tick() == 201 * 1024 + 3


@pytest.mark.parametrize("passed", [5 * 1024, 5 * 1024 + 3, 5 * 1024 + 1023, 6 * 1024 - 1])
def test_an_origin_continues_above_the_ticks_of_the_log(passed: int) -> None:
    ticks = tick_generator([2])
    ticks.advance_past(passed)
    ticks.advance_past(17)
    assert list(ticks.take(2)) == [6 * 1024 + 3, 7 * 1024 + 3]


def test_before_1970_there_is_nothing() -> None:
    ticks = tick_generator([-1_000])
    assert ticks.silence_tick() == HORIZON_MIN
    assert list(ticks.take(1)) == [3]


def test_after_the_greatest_tick_no_tick_is_left() -> None:
    last_us = TICK_MAX // 1024
    ticks = tick_generator([last_us - 1])
    assert list(ticks.take(1)) == [(last_us - 1) * 1024 + 3]
    with pytest.raises(SmileError, match="no tick is left"):
        ticks.take(2)
    assert len(ticks.take(1)) == 1
    with pytest.raises(SmileError, match="no tick is left"):
        ticks.take(1)
    assert tick_generator([2**60]).silence_tick() == TICK_MAX


@pytest.mark.parametrize("origin", [-1, ORIGIN_MAX + 1])
def test_an_origin_has_ten_bits(origin: int) -> None:
    with pytest.raises(SmileError, match="between 0 and 1023"):
        TickGenerator(origin)


@pytest.mark.parametrize("seed", range(scaled(30)))
def test_no_clock_makes_two_ticks_equal(seed: int) -> None:
    """Several origins use clocks that jump. The ticks of each origin ascend by 1,024 or more, no two origins share a
    tick, and no tick lies at or below a declared silence."""
    random = Random(seed)
    now = [10**15]

    def clock() -> int:
        now[0] += random.choice([0, 0, 1, 5, 10**6, -1, -(10**6), -(10**9)])
        return now[0]

    origins = [TickGenerator(number, clock) for number in random.sample(range(ORIGIN_MAX + 1), 4)]
    taken: dict[int, list[int]] = {ticks.number: [] for ticks in origins}
    silent = dict.fromkeys(taken, HORIZON_MIN)
    for _ in range(300):
        ticks = random.choice(origins)
        if random.random() < 0.3:
            assert ticks.silence_tick() >= silent[ticks.number]
            silent[ticks.number] = ticks.silence_tick()
        else:
            new_ticks = list(ticks.take(random.randrange(4)))
            assert all(tick > silent[ticks.number] and tick % 1024 == ticks.number for tick in new_ticks)
            taken[ticks.number] += new_ticks
    assert all(b - a >= 1024 for origin_ticks in taken.values() for a, b in pairwise(origin_ticks))
    all_ticks = [tick for origin_ticks in taken.values() for tick in origin_ticks]
    assert len(set(all_ticks)) == len(all_ticks)


def test_the_wall_clock_counts_microseconds() -> None:
    assert 1.7e15 < wall_clock() <= wall_clock() < 4e15
