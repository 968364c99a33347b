"""SILENCE tells what the reference tells, and keeps a row only until it is decided and breaks nothing any more."""

import pytest

from tests.kernels.drawing import differences_of
from tests.kernels.test_best import STREAMS, beside, event, kept
from tests.random_programs import SEED_ID, Programs, seeds

QUIET = "VIEW V := S SILENCE {quiet := t PER {k} > INTERVAL '5' TICK}; SUBSCRIBE V;"


@pytest.mark.parametrize("seed", seeds(30), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    program, found = differences_of(seed, Programs.silence)
    assert not found, f"{program}\n" + "\n".join(found)


def test_one_row_of_each_group_is_open() -> None:
    both = beside(STREAMS + QUIET)
    assert not both.advance([event(t, k="ab"[t % 2]) for t in range(1, 30)])
    assert kept(both, "V", "open") == 2
    assert not both.advance([{"silence_to": 40}])
    assert kept(both, "V", "open") == 0


def test_nulls_are_one_group() -> None:
    both = beside(STREAMS + QUIET)
    assert not both.advance([event(1), event(2, k="a")])
    assert not both.advance([event(6)])
    assert not both.advance([{"silence_to": 30}])


def test_a_row_that_is_there_late_breaks_the_silence_after_an_earlier_one() -> None:
    """A row is there once the other stream has had its event of the same tick: the later one may be there first."""
    text = "STREAM S (t: time -> k: string);\nSTREAM R (t: time -> k: string);\n"
    text += "VIEW B := S SEMIJOIN (R RENAME {t AS r, k AS j}) ON {t = r};\n"
    text += "VIEW V := B SILENCE {quiet := t PER {} > INTERVAL '3' TICK}; SUBSCRIBE B, V;"
    both = beside(text)
    assert not both.advance([event(1), event(3), event(9)])
    assert not both.advance([event(1, "R")])
    assert not both.advance([event(3, "R")])
    assert not both.advance([{"stream": "R", "silence_to": 8}])
    assert not both.advance([event(9, "R"), {"silence_to": 20}])
    assert kept(both, "V", "open") == 0
