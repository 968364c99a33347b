"""Makes a failing run small: fewer faults and fewer publications, as long as it still fails; and describes it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from tests.simulation.programs import broker_name
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
    for name in scenario.parts:
        for part in _parts_left_out(getattr(scenario, name)):
            changed: dict[str, Any] = {name: part}
            yield replace(scenario, **changed)


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
    for number, text in enumerate(scenario.program_texts):
        lines += [f"── {broker_name(number)}", text.strip()]
    for name in scenario.parts:
        lines += [f"── {name}", *map(str, getattr(scenario, name))]
    lines += ["── the last messages", *_trace_lines(outcome.trace), ""]
    lines += [f"to repeat it: {scenario.command}"]
    return "\n".join(lines)


def _trace_lines(trace: Sequence[tuple[float, str, str]]) -> list[str]:
    telling = [entry for entry in trace if not entry[2].startswith(_DULL) and entry[1] != "problem"]
    return [f"{time:9.4f} {where:14} {what}" for time, where, what in telling[-TRACE_LINES_MAX:]]
