"""Runs many seeds in all cores: `python -m tests.simulation 0-999`. A failing seed is shrunk and described."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool

from tests.simulation.global_streams.scenario import draw_registry_scenario
from tests.simulation.global_streams.simulation import run_registry_scenario
from tests.simulation.scenario import FaultKind, Scenario, draw_scenario
from tests.simulation.shrinking import report, shrink
from tests.simulation.simulation import Outcome, run_scenario
from tests.simulation.world import Combination

SHRUNK_MAX = 3
"""Further failures are only named."""
SeedResult = tuple[int, str | None, Counter[Combination], float]
"""A seed, what has failed, which combinations occurred, and the simulated seconds."""


@dataclass(frozen=True)
class Kind:
    """A kind of simulations."""

    draw: Callable[[int], Scenario]
    run: Callable[[Scenario], Outcome]


KINDS = {
    "network": Kind(draw_scenario, run_scenario),
    "registry": Kind(draw_registry_scenario, run_registry_scenario),
}
"""Programs that import from named brokers, and a global stream whose plans follow the registrations."""


def run_seed(kind: str, seed: int) -> SeedResult:
    outcome = KINDS[kind].run(KINDS[kind].draw(seed))
    return seed, outcome.problems[0] if outcome.problems else None, outcome.combinations, outcome.simulated_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("seeds", help="a seed, or a range such as 0-999")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--coverage", action="store_true", help="list all combinations that occurred")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    kinds = list(KINDS) if arguments.kind == "all" else [arguments.kind]
    failed = [run_seeds(kind, seeds, arguments.jobs, arguments.coverage) for kind in kinds]
    return 1 if any(failed) else 0


def run_seeds(kind: str, seeds: Sequence[int], jobs: int, has_details: bool) -> bool:
    """Returns whether any has failed."""
    combinations, failed, simulated_s, begun = Counter[Combination](), list[int](), 0.0, time.perf_counter()
    with Pool(min(jobs, len(seeds))) as pool:
        for number, (seed, problem, occurred, seconds) in enumerate(
            pool.imap_unordered(partial(run_seed, kind), seeds), 1
        ):
            combinations += occurred
            simulated_s += seconds
            if problem is not None:
                failed.append(seed)
                print(f"\nseed {seed} of {kind} fails {problem[:2000]}")
            elapsed_s = time.perf_counter() - begun
            text = (
                f"\r{kind}: {number} of {len(seeds)} seeds, {len(failed)} failed, {simulated_s:.0f} simulated seconds"
            )
            print(f"{text} in {elapsed_s:.0f} s", end="", flush=True)
    print()
    print_coverage(combinations, has_details)
    for seed in sorted(failed)[:SHRUNK_MAX]:
        print(f"\n══ {kind}, seed {seed}, shrunk")
        print(report(shrink(KINDS[kind].run(KINDS[kind].draw(seed)), KINDS[kind].run)))
    return bool(failed)


def print_coverage(combinations: Counter[Combination], has_details: bool) -> None:
    """Which faults met which messages, in which states of their imports or links."""
    print(f"{len(combinations)} combinations of a fault, a message and a state occurred")
    for kind in FaultKind:
        met = {(message, state): n for (fault, message, state), n in combinations.items() if fault == kind.value}
        messages = Counter[str]()
        for (message, _), n in met.items():
            messages[message] += n
        print(f"  {kind.value:26} {', '.join(f'{message} {n}' for message, n in messages.most_common()) or 'never'}")
        for (message, state), n in sorted(met.items()) if has_details else ():
            print(f"    {message:12} {state:10} {n}")


if __name__ == "__main__":
    sys.exit(main())
