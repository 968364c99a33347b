"""Each rewrite rule alone, and all in turn: the same rows now, the same rows at the end, and bounds that hold."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.reference.relation import Key, Relation
from smile.rules import RULES, Rule, rewrite
from tests.programs.reader import analyse, programs
from tests.reference.histories import broken_promises, moment, random_lines
from tests.reference.test_safety import explain
from tests.repeatable import scaled

pytestmark = pytest.mark.slow

PROGRAMS = programs()
ALONE: dict[str, Rule] = {rule.__name__: rule for rule in RULES} | {"all": rewrite}
CASES = [(name, rule) for name, program in PROGRAMS.items() for rule in ALONE if ALONE[rule](program) != program]


def rows(relation: Relation, visible: tuple[str, ...]) -> dict[Key, dict[str, Any]]:
    return {key: {c: row.cells[c].now for c in visible} for key, row in relation.items() if row.is_shown}


@pytest.mark.parametrize(("name", "rule"), CASES)
@settings(max_examples=scaled(3))
@given(st.integers(0, 2**64 - 1))
def test_rows_stay_and_bounds_hold(name: str, rule: str, seed: int) -> None:
    check(PROGRAMS[name], ALONE[rule], Random(seed))


def check(program: mmpl.Program, rule: Rule, random: Random) -> None:
    changed = rule(program)
    lines = random_lines(program, random)
    cut = random.randint(0, len(lines))
    now, then = moment(program, analyse(program), lines[:cut]), moment(changed, analyse(changed), lines[:cut])
    ended, last = (moment(p, analyse(p), lines, end=True) for p in (program, changed))
    for view in program.views:
        heading = analyse(program).relations[view.name].heading
        assert analyse(changed).relations[view.name].heading.visible == heading.visible
        for written, rewritten in ((now, then), (ended, last)):
            a, b = (rows(m.relations[view.name], heading.visible) for m in (written, rewritten))
            assert a == b, explain(written, view.name)
        broken = broken_promises(then.relations[view.name], ended.relations[view.name])
        assert not broken, explain(then, [view.name, *lines[cut:], *broken])


def test_every_rule_changes_some_program() -> None:
    assert {rule for _, rule in CASES} == set(ALONE)
