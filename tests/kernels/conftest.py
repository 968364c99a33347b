"""Each transform is held to recomputation on many random programs, which takes its time: `make check` leaves them out,
and has the test programs of tests/engine instead."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
