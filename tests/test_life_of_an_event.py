"""A reader of docs/life-of-an-event.md finds every step where the page says: its modules exist, and an event passes them."""

import re
from pathlib import Path

import pytest

from tools.trace_event import SOURCE, trace_event

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "life-of-an-event.md").read_text()
NAMED = re.compile(r"`((?:\w+/)+\w+\.py)`")
OTHER_WAYS = {
    "broker/maintenance/executor.py",
    "broker/maintenance/spark_executor.py",
    "gateway/websocket/session.py",
    "gateway/flight/service.py",
    "encoding/arrow_changes.py",
    "client/rows.py",
    "broker/maintenance/stand_in.py",
}
"""Modules that the page mentions for other engines, interfaces and processes, and a protocol."""


@pytest.mark.parametrize("module", sorted(set(NAMED.findall(PAGE))))
def test_a_module_that_is_named_exists(module: str) -> None:
    assert Path(SOURCE, module).exists()


def test_an_event_passes_the_modules_that_are_named() -> None:
    through_a_broker = PAGE.partition("## Through a broker")[2]
    named = set(NAMED.findall(through_a_broker)) - OTHER_WAYS
    assert len(named) > 10
    trace = trace_event()
    assert named - set(trace.modules) == set()
    # A step out that nobody described: describe it, or find a shorter way.
    assert set(trace.outbound_steps()) - named - {"broker/broker.py", "horizons.py"} == set()
