"""Merging beside everything else changes nothing that is told, whenever it is taken in."""

import numpy as np
import pyarrow as pa
import pytest

from smile.columns.values import Values
from smile.engine.merges import Merges
from smile.state import table
from smile.state.run import Shape
from smile.state.table import Table
from tests.engine.invariants import draw, problems

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(40))
def test_promises_hold_while_all_is_merged_elsewhere(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every merge is large, and due as soon as there are two runs."""
    monkeypatch.setattr(table, "SMALL", 0)
    monkeypatch.setattr(table, "RUNS_MAX", 1)
    monkeypatch.setattr(table, "RUNS_LIMIT", 100)
    original = Merges.taken_in

    def taken_in(self: Merges, states: object) -> object:
        for _, future in self._begun.values():
            future.result()
        return original(self, states)  # type: ignore[arg-type]

    monkeypatch.setattr(Merges, "taken_in", taken_in)
    try:
        found = problems(draw(seed), seed)
    except NotImplementedError:
        return
    assert not found


def test_a_large_merge_is_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs pile up until the merge is done, and are one run after that, with the same rows."""
    monkeypatch.setattr(table, "SMALL", 0)
    shape = Shape(("k",), {"k": pa.int64()})
    state = {"t": {"rows": Table(shape)}}
    merges = Merges()
    for start in range(table.RUNS_MAX + 2):
        keys = Values(np.arange(start, start + 10))
        state = {"t": {"rows": state["t"]["rows"].updated({"k": keys})}}
    before = state["t"]["rows"]
    assert len(before.runs) > table.RUNS_MAX
    merges.begin(state)
    for _, future in merges._begun.values():
        future.result()
    after = merges.taken_in(state)["t"]["rows"]
    assert len(after.runs) == 1
    assert sorted(after.scan()["k"].data) == sorted(before.scan()["k"].data) == list(range(table.RUNS_MAX + 11))
