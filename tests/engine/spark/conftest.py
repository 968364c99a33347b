"""Every test of this folder starts Spark, or something in its place."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/engine/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.slow)
