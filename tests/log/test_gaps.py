"""A gap list agrees with a plain set of known ticks."""

from itertools import pairwise

from hypothesis import given, strategies as st

from smile.horizons import END, HORIZON_MIN
from smile.log.gaps import GapList, TickRange

TICKS = range(-1, 25)
RANGES = st.tuples(st.sampled_from(TICKS), st.integers(0, 8)).map(lambda r: (r[0], r[0] + r[1]))


def ticks(*ranges: TickRange) -> set[int]:
    return {t for lo, hi in ranges for t in range(lo + 1, hi + 1)}


def up_to(tick: int, ticks: set[int]) -> set[int]:
    return {t for t in ticks if t <= tick}


@given(st.lists(RANGES), RANGES)
def test_it_agrees_with_a_set(added: list[TickRange], queried: TickRange) -> None:
    known: set[int] = set()
    gaps = GapList()
    for lo, hi in added:
        gaps = gaps.with_known(lo, hi)
        known |= ticks((lo, hi))
    greatest = max(known, default=HORIZON_MIN)

    assert ticks((HORIZON_MIN, gaps.horizon), *gaps.ranges) == known
    assert gaps.known_to == greatest
    assert ticks(*gaps.gaps) == ticks((HORIZON_MIN, greatest)) - known
    assert ticks(*gaps.unknown_in(*queried)) == ticks(queried) - known
    assert {t for t in TICKS if t >= 0 and gaps.knows(t)} == up_to(TICKS[-1], known)


@given(st.lists(RANGES), RANGES)
def test_ranges_are_in_order_and_do_not_touch(added: list[TickRange], queried: TickRange) -> None:
    gaps = GapList()
    for lo, hi in added:
        gaps = gaps.with_known(lo, hi)
    for ranges in ([(HORIZON_MIN, gaps.horizon), *gaps.ranges], gaps.unknown_in(*queried), gaps.gaps):
        assert all(a[1] < b[0] for a, b in pairwise(ranges))
    assert all(lo < hi for lo, hi in (*gaps.ranges, *gaps.unknown_in(*queried), *gaps.gaps))


@given(st.lists(RANGES), st.randoms(use_true_random=False))
def test_the_order_of_ranges_does_not_matter(added: list[TickRange], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = [*added, *added]
    random.shuffle(shuffled)
    first = second = GapList()
    for tick_range in added:
        first = first.with_known(*tick_range)
    for tick_range in shuffled:
        second = second.with_known(*tick_range)
    assert first == second


def test_what_is_known_changes_nothing() -> None:
    gaps = GapList(5).with_known(8, 10)
    assert gaps == GapList(5, ((8, 10),))
    assert gaps.with_known(2, 5) is gaps
    assert gaps.with_known(8, 9) == gaps
    assert gaps.with_known(7, 7) is gaps


def test_a_gap_closes() -> None:
    gaps = GapList().with_known(-1, 3).with_known(5, 7).with_known(9, 12)
    assert gaps.gaps == ((3, 5), (7, 9))
    assert gaps.with_known(3, 5) == GapList(7, ((9, 12),))
    assert gaps.with_known(3, 10) == GapList(12)
    assert gaps.with_known(6, END) == GapList(3, ((5, END),))
