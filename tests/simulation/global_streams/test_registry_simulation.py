"""A global stream in a simulated network with seeded faults: plans switch without loss, doubles and resets, and in the end
every consumer has what the producers have logged. Each planted bug is found."""

from collections.abc import Callable

import pytest

from tests.random_programs import SEED_ID, seeds
from tests.simulation.global_streams.planted_bugs import BUGS, Patch, earlier_plan_counts_for_new_producers
from tests.simulation.global_streams.scenario import ActionKind, draw_registry_scenario
from tests.simulation.global_streams.simulation import run_registry_scenario
from tests.simulation.scenario import FaultKind
from tests.simulation.shrinking import report, shrink
from tests.simulation.simulation import Outcome

SEEDS = 4
"""All of them run in `make test`; `make nightly` runs others."""
NIGHTLY_SEEDS = 300
BUG_SEEDS = 200
QUICK_BUG_SEEDS = 30


def check_seed(seed: int) -> None:
    outcome = run_registry_scenario(draw_registry_scenario(seed))
    if outcome.problems:
        pytest.fail(report(shrink(outcome, run_registry_scenario)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS), ids=SEED_ID)
def test_plans_switch_without_loss(seed: int) -> None:
    check_seed(seed)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds(NIGHTLY_SEEDS), ids=SEED_ID)
def test_plans_switch_without_loss_at_many_seeds(seed: int) -> None:
    check_seed(seed)


def find_bug(plant: Callable[[Patch], None], seed_count: int) -> Outcome:
    """The first run that fails with a planted bug; without it, the same run does not fail."""
    for seed in range(seed_count):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            outcome = run_registry_scenario(draw_registry_scenario(seed))
        if outcome.problems:
            assert not run_registry_scenario(outcome.scenario).problems
            return outcome
    raise AssertionError(f"{plant.__name__} is found at none of {seed_count} seeds")


@pytest.mark.slow
def test_a_planted_bug_is_found_soon() -> None:
    find_bug(earlier_plan_counts_for_new_producers, QUICK_BUG_SEEDS)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("plant", BUGS, ids=[bug.__name__ for bug in BUGS])
def test_a_planted_bug_is_found(plant: Callable[[Patch], None]) -> None:
    find_bug(plant, BUG_SEEDS)


def test_scenarios_have_what_can_go_wrong() -> None:
    """Each fault, each action, and republishers three deep: each chain has three."""
    scenarios = [draw_registry_scenario(seed) for seed in range(30)]
    faults = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert {FaultKind.KILLED, FaultKind.PARTITION, FaultKind.ORIGIN_DEAD, FaultKind.LOST_CACHE} <= faults
    assert {action.kind for scenario in scenarios for action in scenario.actions} == {*ActionKind}
    assert any(scenario.has_equal_numbers for scenario in scenarios)
    assert all(len(scenario.republishers) >= 3 for scenario in scenarios)
