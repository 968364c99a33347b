"""These tests compare each transform with recomputation on many random programs, which is slow. `make check` skips them
and runs the test programs of tests/engine instead."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.slow)
