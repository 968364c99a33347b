"""What every test program shows, at each cut and by each change: exactly what was worked out by hand.

The programs are evaluated as they run: rewrite rules may make bounds tighter. That rules keep rows, and that bounds are
safe before and after them, is tested in `test_rewrite_holds.py`."""

from typing import get_args

import pytest

from smile.algebra import mmpl, trees
from smile.reference.evaluate import evaluate
from smile.reference.history import History
from smile.reference.wire import change_messages, snapshot_messages
from tests.programs.compare import assert_changes, assert_rows
from tests.programs.reader import analyse, cases, recorded_lines
from tests.reference.shown import shown_rows

CASES = {case.name: case for case in cases()}
CUTS = [(case.name, cut) for case in CASES.values() for cut in case.rows]
CHANGES = [(case.name, line) for case in CASES.values() for line in case.changes]


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_rows(name: str, cut: int | None) -> None:
    case = CASES[name]
    assert_rows(case, cut, shown_rows(case, cut))


@pytest.mark.parametrize(("name", "line"), CHANGES)
def test_changes(name: str, line: int) -> None:
    case = CASES[name]
    program = case.rewritten
    analysis = analyse(program)
    lines = recorded_lines(case)
    before = evaluate(program, analysis, History.from_lines(program, lines[: line - 1]))
    history = History.from_lines(program, lines[:line])
    after = evaluate(program, analysis, history)
    messages = []
    for view in program.subscriptions:
        type_ = analysis.relations[view]
        messages += change_messages(
            view, type_, snapshot_messages(view, type_, before[view]), after[view], history.horizons
        )
    assert_changes(case, line, messages)


def test_every_operator_has_a_test_program() -> None:
    """Adding an operator to MMPL means adding a test program. Imports are tested with the brokers they come from."""
    used = {
        (type(node).__name__, getattr(node, "kind", None))
        for case in CASES.values()
        for view in case.written.views
        for node in trees.walk(view.body)
    }
    operators = {sub.__name__ for sub in mmpl.Rel.__subclasses__()} - {"Imported"}
    assert {name for name, _ in used} == operators
    assert {kind for name, kind in used if name == "Join"} == set(get_args(mmpl.JoinKind))
    assert {kind for name, kind in used if name == "Window"} == {"tumble", "hop", "last"}
    assert {kind for name, kind in used if name == "Asof"} == {"inner", "left"}
