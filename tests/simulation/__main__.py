"""Runs seeds: `python -m tests.simulation 0-999`."""

import sys
import time

from tests.simulation.scenario import draw_scenario
from tests.simulation.simulation import run_scenario

first, _, last = sys.argv[1].partition("-")
for seed in range(int(first), int(last or first) + 1):
    t = time.perf_counter()
    scenario = draw_scenario(seed)
    d = time.perf_counter() - t
    outcome = run_scenario(scenario)
    e = time.perf_counter() - t
    print(f"{seed} {scenario.topology.name} {len(scenario.faults)} faults draw {d:.2f} all {e:.2f} s sim {outcome.simulated_s:.0f} s {outcome.events} events {sum(outcome.messages.values())} messages {outcome.digest} {'SKIPPED' if outcome.is_skipped else ''} {'FAILED' if outcome.problems else ''}")
    if outcome.problems:
        print("\n".join(outcome.problems[:2])[:3000])
        if "-t" in sys.argv:
            for entry in outcome.trace[-int(sys.argv[sys.argv.index("-t") + 1]):]: print("%9.4f %-14s %s" % entry)
