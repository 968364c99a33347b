"""Whatever happens later, what was said of every view holds: bounds, masks, finality; at the end all is final."""

import itertools
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from tests.programs.reader import programs
from tests.reference.histories import Moment, broken_promises, trace
from tests.repeatable import scaled

PROGRAMS = programs()


def explain(moment: Moment, problem: object) -> str:
    return "\n".join(["after:", *map(str, moment.lines), str(problem)])


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=scaled(6))
@given(st.integers(0, 2**64 - 1))
def test_knowledge_holds(name: str, seed: int) -> None:
    program = PROGRAMS[name]
    moments = trace(program, Random(seed))
    final = moments[-1]
    for moment, following in itertools.pairwise(moments):
        for view in program.views:
            now, then, end = (m.relations[view.name] for m in (moment, following, final))
            for later, when in ((then, following), (end, final)):
                broken = broken_promises(now, later)
                assert not broken, f"{view.name}, " + explain(moment, [*when.lines[len(moment.lines) :], *broken])
            for key, row in now.items():
                if row.is_shown and row.is_final:
                    assert end[key].is_shown, explain(moment, f"{view.name} {key} was final")
                    assert {c: v.now for c, v in row.cells.items()} == {c: v.now for c, v in end[key].cells.items()}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=scaled(2))
@given(st.integers(0, 2**64 - 1))
def test_at_the_end_all_is_final(name: str, seed: int) -> None:
    final = trace(PROGRAMS[name], Random(seed))[-1]
    for view, relation in final.relations.items():
        for key, row in relation.items():
            assert row.is_final, explain(final, f"{view} {key} {row}")
