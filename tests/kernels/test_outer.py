"""Outer joins of pairs beside the reference, and what they do where rows would share a key."""

import pytest

from smile.algebra.printer import print_program
from tests.kernels.harness import Beside, differences
from tests.kernels.joined import compiled, tried
from tests.random_programs import SEED_ID, seeds
from tests.reference.cases import cases

KINDS = ("left", "right", "full")

STREAMS = """
CREATE STREAM Staff (s: time -> name: string);
CREATE STREAM Calls (c: time -> who: string, about: string);
"""


def outcome(seed: int) -> str:
    """What differs, or nothing. A join that is refused is refused by both."""
    try:
        program, found = tried(seed, KINDS)
    except NotImplementedError as refused:
        assert "share a key" in str(refused) or "key of a pair" in str(refused) or "is NULL" in str(refused), refused
        return ""
    return "\n".join([print_program(program), *found]) if found else ""


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    assert not outcome(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400), ids=SEED_ID)
def test_more_random_programs(seed: int) -> None:
    assert not outcome(seed)


@pytest.mark.parametrize("case", [c for c in cases() if c.name == "left-join-many"], ids=lambda c: c.name)
def test_written_programs(case) -> None:  # type: ignore[no-untyped-def]  # a Case
    assert not differences(compiled(case.program), case.events, range(1, len(case.events) + 1))
