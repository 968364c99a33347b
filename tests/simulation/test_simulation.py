"""A whole network in one thread, with seeded faults: everything that anybody shows is true, and in the end all of it is
there. Each planted bug is found."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import WAIT_S
from tests.random_programs import SEED_ID, seeds
from tests.simulation import simulation
from tests.simulation.planted_bugs import (
    BUGS,
    Patch,
    acknowledgement_is_too_early,
    range_is_sent_too_far,
    what_was_asked_for_is_skipped,
)
from tests.simulation.scenario import FaultKind, Scenario, draw_scenario
from tests.simulation.shrinking import report, shrink
from tests.simulation.simulation import Outcome, run_scenario

SEEDS = 200
"""All of them run in `make test`. They take about a minute on two cores; `make nightly` runs a thousand others."""
FAULT_SEEDS = 400
BUG_SEEDS = 500
QUICK_BUGS = [acknowledgement_is_too_early, range_is_sent_too_far, what_was_asked_for_is_skipped]
"""Those that few seeds find."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(SEEDS) if "SMILE_SEEDS" in os.environ else range(SEEDS), ids=SEED_ID)
def test_a_network_shows_what_is_true_and_in_the_end_all_of_it(seed: int) -> None:
    outcome = run_scenario(draw_scenario(seed))
    if outcome.problems:
        pytest.fail(report(shrink(outcome)))


def find_bug(plant: Callable[[Patch], None], seed_count: int) -> Outcome:
    """The first run that fails with a planted bug; without it, the same run does not fail."""
    for seed in range(seed_count):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            outcome = run_scenario(draw_scenario(seed))
        if outcome.problems:
            assert not run_scenario(outcome.scenario).problems
            return outcome
    raise AssertionError(f"{plant.__name__} is found at none of {seed_count} seeds")


@pytest.mark.slow
@pytest.mark.parametrize("plant", QUICK_BUGS, ids=[bug.__name__ for bug in QUICK_BUGS])
def test_a_planted_bug_is_found_soon(plant: Callable[[Patch], None]) -> None:
    find_bug(plant, 30)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("plant", BUGS, ids=[bug.__name__ for bug in BUGS])
def test_a_planted_bug_is_found(plant: Callable[[Patch], None]) -> None:
    find_bug(plant, BUG_SEEDS)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_failure_is_shrunk_and_described() -> None:
    outcome = find_bug(what_was_asked_for_is_skipped, 30)

    def run_with_bug(scenario: Scenario) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            what_was_asked_for_is_skipped(patch)
            return run_scenario(scenario)

    small = shrink(outcome, run_with_bug)
    assert small.problems
    assert len(small.scenario.faults) < len(outcome.scenario.faults)
    text = report(small)
    assert f"to repeat it: make simulate SEEDS={outcome.scenario.seed}" in text
    assert "the last messages" in text and "events n=" in text


def digests_in_another_process(seeds: Sequence[int], hash_seed: int) -> list[str]:
    code = (
        "from tests.simulation.scenario import draw_scenario; from tests.simulation.simulation import run_scenario; "
        f"print(*(run_scenario(draw_scenario(seed)).digest for seed in {list(seeds)}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S,
    )
    return done.stdout.split()[-len(seeds) :]


@pytest.mark.slow
def test_a_seed_always_gives_the_same_run() -> None:
    same_seeds = (3, 12)
    first, second = (digests_in_another_process(same_seeds, hash_seed) for hash_seed in (1, 2))
    assert first == second
    assert len({*first}) == len(same_seeds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4), ids=SEED_ID)
def test_two_schedules_of_one_history_end_alike(seed: int) -> None:
    """The ticks of all events are given, so nothing depends on clocks."""
    scenario = draw_scenario(seed, has_given_ticks=True)
    # What is published depends on the schedule if brokers are down, or origins end.
    words = ("program changed", "origin", "killed", "commit", "unflushed", "torn", "cache", "late")
    left_out = {kind for kind in FaultKind if any(word in kind.value for word in words)}
    scenario = replace(scenario, faults=tuple(f for f in scenario.faults if f.kind not in left_out))
    first, second = (run_scenario(replace(scenario, schedule=schedule)) for schedule in (0, 1))
    assert not first.problems and not second.problems
    assert first.digest != second.digest or first.is_skipped
    assert first.snapshots == second.snapshots


@pytest.mark.slow
@pytest.mark.nightly
def test_every_fault_meets_every_kind_of_message() -> None:
    met = {
        (fault, message)
        for seed in range(FAULT_SEEDS)
        for fault, message, _ in run_scenario(draw_scenario(seed)).combinations
    }
    messages = ("hello", "open", "opened", "events", "rows", "curious", "received", "heartbeat")
    missing = [(kind.value, message) for kind in FaultKind for message in messages if (kind.value, message) not in met]
    assert not missing


def test_little_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing happens, a simulated second takes few steps."""
    scenario = replace(draw_scenario(1), faults=(), publications=(), idle_ms=60_000)
    short = run_scenario(scenario)
    monkeypatch.setattr(simulation, "QUIET_S", simulation.QUIET_S + 30)
    long = run_scenario(scenario)
    assert not short.problems and not long.problems
    steps = (long.events - short.events) / (long.simulated_s - short.simulated_s)
    assert steps / len(scenario.programs) < 20
