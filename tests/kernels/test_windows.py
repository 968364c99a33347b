"""TUMBLE, HOP and LAST, MERGE and UNION give the same output as the reference; LAST stores rows until they leave."""

import pytest

from smile.algebra import mmpl
from smile.algebra.types import INT_MAX
from tests.kernels.drawing import random_differences
from tests.kernels.test_best import STREAMS, compare, event, stored_row_count
from tests.random_programs import SEED_ID, SPANS, Programs, seeds


def last(programs: Programs, rel: mmpl.Rel) -> mmpl.Rel:
    return mmpl.Window("last", rel, programs._heading(rel).tick[0], programs.random.choice(SPANS))


@pytest.mark.parametrize("seed", seeds(20), ids=SEED_ID)
def test_random_programs_with_last(seed: int) -> None:
    program, problems = random_differences(seed, last)
    assert not problems, f"{program}\n" + "\n".join(problems)


@pytest.mark.parametrize("seed", seeds(15), ids=SEED_ID)
def test_random_programs_with_windows(seed: int) -> None:
    program, problems = random_differences(seed, Programs.window)
    assert not problems, f"{program}\n" + "\n".join(problems)


def test_rows_are_stored_until_they_leave() -> None:
    both = compare(STREAMS + "VIEW V := S LAST t SIZE INTERVAL '10' TICK; SUBSCRIBE V;")
    assert not both.advance([event(t, v=t) for t in range(1, 31)])
    assert stored_row_count(both, "V") == 10
    assert not both.advance([{"silence_to": 35}])
    assert stored_row_count(both, "V") == 5


def test_the_horizon_is_the_least_of_all_streams() -> None:
    text = STREAMS + "STREAM R (t: time -> k: string, v: int) CHECK v >= 0;\n"
    both = compare(text + "VIEW M := MERGE {S, R};\nVIEW V := M LAST t SIZE INTERVAL '3' TICK; SUBSCRIBE V;")
    assert not both.advance([event(t, v=1) for t in (1, 2, 8)])
    assert not both.advance([event(2, "R", v=1), event(7, "R", v=1)])
    assert [k for k, _ in sorted(both.shown["V"])] == [7, 8]


@pytest.mark.parametrize("window", ["TUMBLE t SIZE", "HOP t SLIDE INTERVAL '3' TICK SIZE", "LAST t SIZE"])
def test_windows_at_the_end_of_time(window: str) -> None:
    both = compare(STREAMS + f"VIEW V := S {window} INTERVAL '7' TICK; SUBSCRIBE V;")
    assert not both.advance([event(0, v=1), event(INT_MAX - 5, v=2), event(INT_MAX - 1, v=3)])
    assert not both.advance([], end=True)


@pytest.mark.parametrize(("slide", "size"), [(3, 7), (7, 3), (5, 5), (1, 4)])
def test_hops_that_overlap_and_that_leave_gaps(slide: int, size: int) -> None:
    window = f"HOP t SLIDE INTERVAL '{slide}' TICK SIZE INTERVAL '{size}' TICK"
    both = compare(STREAMS + f"VIEW V := S {window}; SUBSCRIBE V;")
    assert not both.advance([event(t, v=t) for t in range(12)])
    windows = [(t, s) for t in range(12) for s in range(-size, 13) if s % slide == 0 and s <= t < s + size]
    assert sorted(both.shown["V"]) == windows
