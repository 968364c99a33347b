"""Merging runs in the background changes no output, whenever the result is applied."""

import numpy as np
import pyarrow as pa
import pytest

from smile.columns.values import ValueColumn
from smile.engine.background_merges import BackgroundMerges
from smile.state import table
from smile.state.run import TableSchema
from smile.state.table import StateTable
from tests.engine.invariants import draw, problems
from tests.repeatable import scaled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_promises_hold_while_all_is_merged_elsewhere(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every merge is large, and due as soon as there are two runs."""
    monkeypatch.setattr(table, "SMALL_MERGE_ROWS_MAX", 0)
    monkeypatch.setattr(table, "RUNS_MAX", 1)
    monkeypatch.setattr(table, "RUNS_LIMIT", 100)
    original = BackgroundMerges.apply_finished

    def taken_in(self: BackgroundMerges, states: object, *observe: object) -> object:
        for _, future in self._running.values():
            future.result()
        return original(self, states, *observe)  # type: ignore[arg-type]

    monkeypatch.setattr(BackgroundMerges, "apply_finished", taken_in)
    try:
        problems_found = problems(draw(seed), seed)
    except NotImplementedError:
        return
    assert not problems_found


def test_a_large_merge_is_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs pile up until the merge is done, and are one run after that, with the same rows."""
    monkeypatch.setattr(table, "SMALL_MERGE_ROWS_MAX", 0)
    shape = TableSchema(("k",), {"k": pa.int64()})
    state = {"t": {"rows": StateTable(shape)}}
    merges = BackgroundMerges()
    for start in range(table.RUNS_MAX + 2):
        keys = ValueColumn(np.arange(start, start + 10))
        state = {"t": {"rows": state["t"]["rows"].with_rows({"k": keys})}}
    before = state["t"]["rows"]
    assert len(before.runs) > table.RUNS_MAX
    merges.start_due(state)
    for _, future in merges._running.values():
        future.result()
    after = merges.apply_finished(state)["t"]["rows"]
    assert len(after.runs) == 1
    assert sorted(after.scan()["k"].data) == sorted(before.scan()["k"].data) == list(range(table.RUNS_MAX + 11))
