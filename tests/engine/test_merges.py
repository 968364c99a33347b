"""Merging beside everything else changes nothing that is told, whenever it is taken in."""

import pytest

from smile.engine.merges import Merges
from smile.state import table
from tests.engine.invariants import draw, problems

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(40))
def test_promises_hold_while_all_is_merged_elsewhere(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every merge is large, and due as soon as there are two runs."""
    monkeypatch.setattr(table, "SMALL", 0)
    monkeypatch.setattr(table, "RUNS_MAX", 1)
    monkeypatch.setattr(table, "RUNS_LIMIT", 100)
    taken: list[bool] = []
    original = Merges.taken_in

    def taken_in(self: Merges, states: object) -> object:
        for _, future in self._begun.values():
            future.result()
        taken.append(bool(self._begun))
        return original(self, states)  # type: ignore[arg-type]

    monkeypatch.setattr(Merges, "taken_in", taken_in)
    try:
        found = problems(draw(seed), seed)
    except NotImplementedError:
        return
    assert not found
    assert taken
