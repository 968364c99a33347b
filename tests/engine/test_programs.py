"""Every test program through the engine, with the rewrites that a user's program goes through: rows and changes are
what was worked out by hand, whether lines come one by one or all at once."""

import pytest

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.encoding.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.graph.build import build_graph
from smile.kernels import expiry
from smile.kernels.compile import Kernels, compile_graph, materialized_name
from smile.kernels.materialized_view import MaterializedView
from smile.knowledge.values.json import Json
from smile.reference.history import History
from smile.testing.reader import CaseFile
from tests.kernels.harness import input_batch_between
from tests.programs.compare import assert_changes, assert_rows
from tests.programs.reader import cases, recorded_lines

CASES = {case.name: case for case in cases()}
CUTS = [(case.name, cut) for case in CASES.values() for cut in case.rows]
CHANGES = [(case.name, line) for case in CASES.values() for line in case.changes]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """State expires as soon as it can, although there is little of it."""
    monkeypatch.setattr(expiry, "PENDING_ROWS_MAX", 1)


def kernels(program: mmpl.Program) -> Kernels:
    return compile_graph(build_graph(program, TypeAnalysis(program)), program.streams).with_materialized_views(
        program.subscriptions
    )


def advance(
    engine: LocalEngine, program: mmpl.Program, case: CaseFile, ends: list[int], end: bool = False
) -> list[Json]:
    """Frames that end after these numbers of lines; what the last one changed."""
    before = History.from_lines(program)
    lines = recorded_lines(case)
    messages: list[Json] = []
    for stop in [0, *ends, *([len(case.events)] if end else [])]:
        after = History.from_lines(program, lines[:stop])
        if end and stop == len(case.events) and before.events == after.events:
            after = after.with_finished_streams()
        batch = engine.advance(input_batch_between(program, before, after))
        before, messages = after, []
        for view in program.subscriptions:
            source = engine.kernels.inputs[view]
            if view in batch.deltas:
                messages += json_changes(source, batch.deltas[view], batch.horizons)
    return messages


def rows(engine: LocalEngine, program: mmpl.Program) -> list[Json]:
    messages: list[Json] = []
    for view in program.subscriptions:
        kept, source = engine.kernels.transforms[materialized_name(view)], engine.kernels.inputs[view]
        assert isinstance(kept, MaterializedView)
        state = engine.state.states[materialized_name(view)]
        messages += json_changes(source, kept.read_rows(state), engine.state.horizons)
    return messages


@pytest.mark.parametrize(
    "one_by_one", [pytest.param(True, id="one by one", marks=pytest.mark.slow), pytest.param(False, id="at once")]
)
@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_rows(name: str, cut: int | None, one_by_one: bool) -> None:
    case = CASES[name]
    program = case.rewritten
    engine = LocalEngine(kernels(program))
    count = len(case.events) if cut is None else cut
    advance(engine, program, case, list(range(1, count + 1)) if one_by_one else [count], end=cut is None)
    assert_rows(case, cut, rows(engine, program))


@pytest.mark.parametrize(("name", "line"), CHANGES)
def test_changes(name: str, line: int) -> None:
    case = CASES[name]
    program = case.rewritten
    messages = advance(LocalEngine(kernels(program)), program, case, list(range(1, line + 1)))
    assert_changes(case, line, messages)
