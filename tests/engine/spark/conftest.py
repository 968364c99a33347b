"""One Spark session for all tests that need one: they run in one process, whatever the number of those."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smile.engine.spark.session import spark_session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/engine/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Workers are to find the tests' own modules too.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    found = spark_session("local[2]", "smile tests", tmp_path_factory.mktemp("spark") / "log")
    yield found
    found.stop()
