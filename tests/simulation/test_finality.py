"""The check that what is final at an importing broker is final at the exporting one can fail."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.clients import SimulatedSubscriber


def row(view: str, final: bool, total: int = 7, **more: Any) -> dict[str, Any]:
    return {"view": view, "key": {"issue": "IBM"}, "row": {"total": total}, "final": final, "steps": 2, **more}


def problems(shown: dict[str, Any], upstream: dict[str, Any] | None, has_condition: bool = False) -> list[str]:
    rows = {} if upstream is None else {str(upstream["key"]): upstream}
    importer: Any = SimpleNamespace(view="Sums", _knowledge=SimpleNamespace(last={"IBM": shown}))
    exporter: Any = SimpleNamespace(rows=rows)
    return SimulatedSubscriber.find_early_finality(importer, exporter, has_condition)


def hidden(final: bool) -> dict[str, Any]:
    return {"view": "Sums", "key": {"issue": "IBM"}, "deleted": True, "final": final}


@pytest.mark.parametrize(
    ("shown", "upstream"),
    [
        (row("Sums", final=False), row("Totals", final=False, total=9)),
        (row("Sums", final=True), row("Totals", final=True, steps=5)),
        (hidden(final=True), None),
        (hidden(final=False), row("Totals", final=False)),
    ],
)
def test_what_agrees(shown: dict[str, Any], upstream: dict[str, Any] | None) -> None:
    assert problems(shown, upstream) == []


@pytest.mark.parametrize(
    ("shown", "upstream"),
    [
        (row("Sums", final=True), row("Totals", final=False)),
        (row("Sums", final=True), row("Totals", final=True, total=8)),
        (row("Sums", final=True), None),
        (hidden(final=True), row("Totals", final=False)),
    ],
)
def test_what_does_not_agree(shown: dict[str, Any], upstream: dict[str, Any] | None) -> None:
    assert len(problems(shown, upstream)) == 1


def test_a_condition_hides_rows_for_good() -> None:
    assert problems(hidden(final=True), row("Totals", final=False), has_condition=True) == []
