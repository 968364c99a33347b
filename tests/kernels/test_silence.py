"""SILENCE gives the same output as the reference, and stores a row only until its silence is decided and it cannot break
others."""

import pytest

from tests.kernels.drawing import random_differences
from tests.kernels.test_best import STREAMS, compare, event, stored_row_count
from tests.random_programs import SEED_ID, Programs, seeds

QUIET = "VIEW V := S SILENCE {quiet := t PER {k} > INTERVAL '5' TICK}; SUBSCRIBE V;"


@pytest.mark.parametrize("seed", seeds(30), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    program, problems = random_differences(seed, Programs.silence)
    assert not problems, f"{program}\n" + "\n".join(problems)


def test_one_row_of_each_group_is_open() -> None:
    both = compare(STREAMS + QUIET)
    assert not both.advance([event(t, k="ab"[t % 2]) for t in range(1, 30)])
    assert stored_row_count(both, "V", "open") == 2
    assert not both.advance([{"silence_to": 40}])
    assert stored_row_count(both, "V", "open") == 0


def test_nulls_are_one_group() -> None:
    both = compare(STREAMS + QUIET)
    assert not both.advance([event(1), event(2, k="a")])
    assert not both.advance([event(6)])
    assert not both.advance([{"silence_to": 30}])


def test_a_row_that_appears_late_breaks_the_silence_after_an_earlier_one() -> None:
    """A row appears when the other stream has an event of the same tick, so a later row can appear first."""
    text = "STREAM S (t: time -> k: string);\nSTREAM R (t: time -> k: string);\n"
    text += "VIEW B := S SEMIJOIN (R RENAME {t AS r, k AS j}) ON {t = r};\n"
    text += "VIEW V := B SILENCE {quiet := t PER {} > INTERVAL '3' TICK}; SUBSCRIBE B, V;"
    both = compare(text)
    assert not both.advance([event(1), event(3), event(9)])
    assert not both.advance([event(1, "R")])
    assert not both.advance([event(3, "R")])
    assert not both.advance([{"stream": "R", "silence_to": 8}])
    assert not both.advance([event(9, "R"), {"silence_to": 20}])
    assert stored_row_count(both, "V", "open") == 0
