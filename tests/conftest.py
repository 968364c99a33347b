"""The plugins of this suite, the order in which tests run, and a local time for tests that show times."""

import gc
import time
from collections.abc import Iterator

import pytest

pytest_plugins = ["pytester", "tests.repeatable", "tests.shared_spark"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, so that no worker is left with a long test at the end: the group of tests that share a Spark
    session, which one worker runs, then the other slow tests. Otherwise the order is kept."""
    items.sort(key=_rank)


def pytest_collection_finish() -> None:
    """The tests and modules that exist now stay until the end: garbage collections need not visit them again and again.
    What tests create is collected less often: with Python's default that takes a tenth of the time of many tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("xdist_group"):
        return 0
    return 1 if item.get_closest_marker("slow") or item.get_closest_marker("nightly") else 2


@pytest.fixture
def five_hours_behind_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EST5")
        time.tzset()
        yield
    time.tzset()
