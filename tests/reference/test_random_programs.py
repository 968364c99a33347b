"""Random programs through random histories: knowledge holds, types hold, rewrites hold. The holes that people do not
think of are found here."""

import itertools
from random import Random

from hypothesis import assume, given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from tests.reference.cases import analysed
from tests.reference.histories import RUNS, Moment, broken_promises, trace
from tests.reference.random_programs import random_program
from tests.reference.test_rewrite_holds import ALONE, check
from tests.reference.test_safety import explain
from tests.reference.test_types_hold import violations

SEEDS = st.integers(0, 2**64 - 1)


def run(program: mmpl.Program, random: Random) -> list[Moment]:
    try:
        return trace(program, random)
    except NotImplementedError:
        assume(False)
        raise


@settings(max_examples=100 * RUNS)
@given(SEEDS)
def test_knowledge_and_types_hold(seed: int) -> None:
    random = Random(seed)
    program = random_program(random)
    moments = run(program, random)
    broken: list[object] = list(violations(program, analysed(program), moments))
    for moment, following in itertools.pairwise(moments):
        for view in program.views:
            for later in (following, moments[-1]):
                broken += broken_promises(moment.relations[view.name], later.relations[view.name])
    for view in program.views:
        broken += [row for row in moments[-1].relations[view.name].values() if not row.is_final]
    assert not broken, explain(moments[-1], print_program(program) + "\n" + "\n".join(map(str, broken)))


@settings(max_examples=60 * RUNS)
@given(SEEDS)
def test_rewrites_hold(seed: int) -> None:
    random = Random(seed)
    program = random_program(random)
    run(program, Random(seed))
    for rule in ALONE.values():
        check(program, rule, Random(seed))
