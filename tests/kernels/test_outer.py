"""Outer joins compared with the reference, and their behaviour if rows would share a key."""

from collections.abc import Sequence
from copy import deepcopy

import pytest

from smile.algebra.printer import print_program
from smile.encoding.json_changes import json_changes
from smile.reference.history import History
from smile.testing.reader import CaseFile
from tests.kernels.harness import EngineAndReference, differences, input_batch_between
from tests.kernels.joined import DoublyEquatedJoins, RandomJoins, compile_text, join_differences
from tests.programs.reader import cases, recorded_lines
from tests.random_programs import SEED_ID, seeds

KINDS = ("left", "right", "full")

STREAMS = """
CREATE STREAM Staff (s: time -> name: string);
CREATE STREAM Calls (c: time -> who: string, about: string);
"""


REJECTION_REASONS = ("share a key", "a key that is NULL", "NULL for a key", "with a NULL key", "a row for every key")


def outcome(
    seed: int, kinds: Sequence[str] = KINDS, can_evolve: bool = False, programs: type[RandomJoins] = RandomJoins
) -> str:
    """The differences, or an empty text. Programs that would give two rows the same key are rejected, which is fine."""
    try:
        program, problems = join_differences(seed, kinds, can_evolve, programs)
    except NotImplementedError as rejection:
        if any(reason in str(rejection) for reason in REJECTION_REASONS):
            return ""
        raise
    return "\n".join([print_program(program), *problems]) if problems else ""


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    assert not outcome(seed)


@pytest.mark.parametrize("seed", seeds(40), ids=SEED_ID)
def test_columns_equated_twice(seed: int) -> None:
    kinds = ("inner", *KINDS, "semi", "anti", "match", "asof")
    assert not outcome(seed, kinds, can_evolve=True, programs=DoublyEquatedJoins)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400), ids=SEED_ID)
def test_more_random_programs(seed: int) -> None:
    assert not outcome(seed)


@pytest.mark.parametrize("case", [c for c in cases() if c.name == "left-join-many"], ids=lambda c: c.name)
def test_written_programs(case: CaseFile) -> None:
    lines = recorded_lines(case)
    assert not differences(compile_text(case.compiled.source.text), lines, range(1, len(lines) + 1))


def test_a_pair_with_a_null_key_takes_the_place_of_the_row_without_a_match() -> None:
    """The reference rejects two rows with one key. The engine sends the one of them that is shown."""
    program = compile_text(
        f"{STREAMS} CREATE VIEW V AS SELECT s, about, n FROM Staff "
        "LEFT JOIN (SELECT about, COUNT(*) AS n FROM Calls GROUP BY about) AS g ON n = 2; SUBSCRIBE V;"
    )
    both = EngineAndReference(program)
    history = History.from_lines(program)
    changes = []
    for line in [
        {"stream": "Staff", "at": 1, "event": {"name": "ann"}},
        {"stream": "Calls", "at": 2, "event": {"who": "x", "about": None}},
        {"stream": "Calls", "at": 3, "event": {"who": "x", "about": None}},
        {"stream": "Calls", "at": 4, "event": {"who": "x", "about": None}},
    ]:
        before = deepcopy(history)
        history.add(line)
        batch = both.engine.advance(input_batch_between(program, before, history))
        source = both.engine.kernels.inputs["V"]
        messages = json_changes(source, batch.deltas["V"], batch.horizons) if "V" in batch.deltas else []
        changes.append([(m["key"]["s"], m["row"]["n"]) for m in messages])
    assert changes == [[(1, None)], [], [(1, 2)], [(1, None)]]
