"""Outer joins of pairs beside the reference, and what they do where rows would share a key."""

from collections.abc import Sequence
from copy import deepcopy

import pytest

from smile.algebra.printer import print_program
from smile.engine.json_changes import json_changes
from smile.reference.history import History
from tests.kernels.harness import Beside, differences, frame_of
from tests.kernels.joined import Joined, Twice, compiled, tried
from tests.random_programs import SEED_ID, seeds
from tests.reference.cases import cases

KINDS = ("left", "right", "full")

STREAMS = """
CREATE STREAM Staff (s: time -> name: string);
CREATE STREAM Calls (c: time -> who: string, about: string);
"""


REFUSED = ("share a key", "a key that is NULL", "NULL for a key", "a row for every key")


def outcome(seed: int, kinds: Sequence[str] = KINDS, moving: bool = False, drawn: type[Joined] = Joined) -> str:
    """What differs, or nothing. What would give two rows one key is refused."""
    try:
        program, found = tried(seed, kinds, moving, drawn)
    except NotImplementedError as refused:
        if any(reason in str(refused) for reason in REFUSED):
            return ""
        raise
    return "\n".join([print_program(program), *found]) if found else ""


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    assert not outcome(seed)


@pytest.mark.parametrize("seed", seeds(40), ids=SEED_ID)
def test_columns_equated_twice(seed: int) -> None:
    kinds = ("inner", *KINDS, "semi", "anti", "match", "asof")
    assert not outcome(seed, kinds, moving=True, drawn=Twice)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400), ids=SEED_ID)
def test_more_random_programs(seed: int) -> None:
    assert not outcome(seed)


@pytest.mark.parametrize("case", [c for c in cases() if c.name == "left-join-many"], ids=lambda c: c.name)
def test_written_programs(case) -> None:  # type: ignore[no-untyped-def]  # a Case
    assert not differences(compiled(case.program), case.events, range(1, len(case.events) + 1))


def test_a_pair_with_a_null_key_takes_the_place_of_the_row_without_a_match() -> None:
    """The reference refuses to give two rows one key; of the two the engine tells the one that is shown."""
    program = compiled(
        f"{STREAMS} CREATE VIEW V AS SELECT s, about, n FROM Staff "
        "LEFT JOIN (SELECT about, COUNT(*) AS n FROM Calls GROUP BY about) AS g ON n = 2; SUBSCRIBE V;"
    )
    both = Beside(program)
    history = History.from_lines(program)
    told = []
    for line in [
        {"stream": "Staff", "at": 1, "event": {"name": "ann"}},
        {"stream": "Calls", "at": 2, "event": {"who": "x", "about": None}},
        {"stream": "Calls", "at": 3, "event": {"who": "x", "about": None}},
        {"stream": "Calls", "at": 4, "event": {"who": "x", "about": None}},
    ]:
        before = deepcopy(history)
        history.add(line)
        batch = both.engine.advance(frame_of(program, before, history))
        layout, type_ = both.engine.kernels.inputs["V"].layout, both.analysis.relations["V"]
        found = json_changes("V", type_, layout, batch.deltas["V"], batch.horizons) if "V" in batch.deltas else []
        told.append([(m["key"]["s"], m["row"]["n"]) for m in found])
    assert told == [[(1, None)], [], [(1, 2)], [(1, None)]]
