"""Random programs with random histories: knowledge, types and rewrites are right. This finds gaps that nobody thought
of."""

import itertools
from random import Random

import pytest

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from tests.programs.reader import analyse
from tests.random_programs import SEED_ID, random_program, seeds
from tests.reference.histories import Moment, broken_promises, trace
from tests.reference.test_rewrite_holds import ALONE, check
from tests.reference.test_safety import explain
from tests.reference.test_types_hold import violations

pytestmark = pytest.mark.slow


def run(program: mmpl.Program, random: Random) -> list[Moment]:
    """Nothing for the few programs that the reference does not evaluate."""
    try:
        return trace(program, random)
    except NotImplementedError:
        return []


@pytest.mark.parametrize("seed", seeds(120), ids=SEED_ID)
def test_knowledge_and_types_hold(seed: int) -> None:
    random = Random(seed)
    program = random_program(random)
    moments = run(program, random)
    if not moments:
        return
    broken: list[object] = list(violations(program, analyse(program), moments))
    for moment, following in itertools.pairwise(moments):
        for view in program.views:
            for later in (following, moments[-1]):
                broken += broken_promises(moment.relations[view.name], later.relations[view.name])
    for view in program.views:
        broken += [row for row in moments[-1].relations[view.name].values() if not row.is_final]
    assert not broken, explain(moments[-1], print_program(program) + "\n" + "\n".join(map(str, broken)))


@pytest.mark.parametrize("seed", seeds(80), ids=SEED_ID)
def test_rewrites_hold(seed: int) -> None:
    random = Random(seed)
    program = random_program(random)
    if not run(program, Random(seed)):
        return
    for rule in ALONE.values():
        check(program, rule, Random(seed))
