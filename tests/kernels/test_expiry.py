"""State expires behind a restriction, and no output changes by it."""

import pytest

from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.graph.build import build_graph
from smile.kernels import expiry
from smile.kernels.compile import compile_graph
from smile.kernels.expiry import ExpiryRule
from smile.source import Source
from tests.kernels.harness import differences

STREAMS = """
STREAM A (t: time -> v: int);
STREAM B (u: time -> ref: time, w: int) CHECK w IS NOT NULL;
"""
EVENTS = [
    {"stream": "B", "at": 4, "event": {"ref": 4, "w": 1}},
    {"stream": "B", "at": 9, "event": {"ref": 9, "w": 3}},
    {"stream": "A", "at": 9, "event": {"v": 7}},
    {"stream": "A", "at": 12, "event": {"v": 8}},
    {"stream": "B", "at": 12, "event": {"ref": 9, "w": 5}},
]
PER_U = "(B SUMMARIZE PER {u} ADD {c := AVG(w)})"
PER_REF = "(B SUMMARIZE PER {ref} ADD {c := AVG(w)})"


def program(body: str) -> mmpl.Program:
    return parse_program(Source("expiry.mmpl", f"{STREAMS}VIEW V := {body};\nSUBSCRIBE V;\n"))


def rules(program: mmpl.Program) -> tuple[ExpiryRule, ...]:
    return compile_graph(build_graph(program, TypeAnalysis(program)), program.log_streams).expiry_rules


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "PENDING_ROWS_MAX", 1)


def test_rows_of_a_stream_expire_with_the_group_that_hid_them() -> None:
    spent = program(f"A JOIN {PER_REF} ON {{t = ref}} WHERE c IS NULL")
    (rule,) = rules(spent)
    assert [target.table for target in rule.targets] == ["left", "right", "groups"]
    assert not differences(spent, EVENTS, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("right", [f"{PER_U} ON {{t = u}}", f"{PER_REF} ON {{t = ref}}"])
def test_a_row_does_not_expire_while_only_the_default_row_of_the_left_side_is_joined(right: str) -> None:
    """The row at 9 is hidden by its right side before the left one comes, which then needs the right one."""
    total = program(f"A SUMMARIZE PER {{t}} ADD {{n := MAX(v)}} JOIN {right} WHERE c IS NULL")
    assert not rules(total)
    assert not differences(total, EVENTS, [1, 2, 3, 4, 5])


def test_rows_of_a_total_side_expire_if_its_default_rows_are_not_joined() -> None:
    """The join is not on the key of the left side, so each joined row has a left row that has come."""
    per_value = "(B SUMMARIZE PER {w} ADD {c := COUNT()})"
    joined = program(f"A SUMMARIZE PER {{t}} ADD {{n := LATEST(v)}} JOIN {per_value} ON {{n = w}} WHERE c < 1")
    assert [target.table for rule in rules(joined) for target in rule.targets] == ["left"]
    assert not differences(
        joined, [*EVENTS, {"stream": "B", "at": 13, "event": {"ref": 9, "w": 7}}], [1, 2, 3, 4, 5, 6]
    )
