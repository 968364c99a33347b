"""Makes a failing run small: fewer faults and fewer publications, as long as it still fails; and describes it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

from tests.simulation.programs import broker_name, program_text
from tests.simulation.scenario import Scenario
from tests.simulation.simulation import Outcome, run_scenario

RUNS_MAX = 120
TRACE_LINES_MAX = 60
_DULL = ("heartbeat", "received n=")
T = TypeVar("T")


def shrink(outcome: Outcome, run: Callable[[Scenario], Outcome] = run_scenario) -> Outcome:
    """The smallest run found that fails too."""
    runs = count()
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for scenario in _smaller(outcome.scenario):
            if next(runs) >= RUNS_MAX:
                return outcome
            candidate = run(scenario)
            if candidate.problems:
                outcome, is_smaller = candidate, True
                break
    return outcome


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Large parts are left out first."""
    for faults in _parts_left_out(scenario.faults):
        yield replace(scenario, faults=faults)
    for publications in _parts_left_out(scenario.publications):
        yield replace(scenario, publications=publications)


def _parts_left_out(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    size = len(items)
    while size >= 1:
        for start in range(0, len(items), size):
            yield (*items[:start], *items[start + size :])
        size //= 2


def report(outcome: Outcome) -> str:
    """What went wrong, in which network, after which faults and publications, and the last messages."""
    scenario = outcome.scenario
    lines = [*outcome.problems[:3], "", f"topology: {scenario.topology.name}, links {scenario.topology.links}"]
    for number, program in enumerate(scenario.programs):
        lines += [f"── {broker_name(number)}", program_text(program).strip()]
    lines += ["── faults", *map(str, scenario.faults), "── publications"]
    lines += [
        f"{p.time:6.2f} s {p.stream} {f'silence to {p.silence_to}' if p.silence_to is not None else p.rows}"
        for p in scenario.publications
    ]
    lines += ["── the last messages", *_trace_lines(outcome.trace), ""]
    lines += [f"to repeat it: make simulate SEEDS={scenario.seed}"]
    return "\n".join(lines)


def _trace_lines(trace: Sequence[tuple[float, str, str]]) -> list[str]:
    telling = [entry for entry in trace if not entry[2].startswith(_DULL) and entry[1] != "problem"]
    return [f"{time:9.4f} {where:14} {what}" for time, where, what in telling[-TRACE_LINES_MAX:]]
