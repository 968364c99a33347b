"""A pytest plugin with the one Spark session that all tests share which do not need their own. All of them run in one process,
whatever the number of workers.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smile import limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from smile.engine.spark.session import JavaProcess

ROOT = Path(__file__).parent.parent
FIXTURES = {"spark", "shared_session", "java_to_kill"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that use the session. Those that kill it come last, so that no other has to start it again."""
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: "java_to_kill" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def shared_session(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Callable[[], SparkSession]]":
    """Returns the session; starts one if there is none, or if a test has killed it."""
    # Spark takes a second to load, and most tests do not need it.
    from smile.engine.spark.session import current_java, spark_session  # noqa: PLC0415

    log = tmp_path_factory.mktemp("spark") / "log"

    def started() -> "SparkSession":
        with pytest.MonkeyPatch.context() as patch:
            # The workers import modules of the tests too, and the package that is tested, not another installed one.
            patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
            return spark_session("local[2]", "smile tests", log)

    yield started
    java = current_java()
    if java is not None:
        java.stop()


@pytest.fixture
def spark(shared_session: "Callable[[], SparkSession]") -> "SparkSession":
    return shared_session()


@pytest.fixture(autouse=True)
def no_stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test on Spark is of Spark: views wait for it, unless the test is of what stands in for it meanwhile (`held`)."""
    if "held" not in request.fixturenames:
        monkeypatch.setattr(limits, "stand_in_backlog_max", -1)


@pytest.fixture
def java_to_kill(spark: "SparkSession") -> "JavaProcess":
    """The Java process of the shared session, for a test that kills it."""
    from smile.engine.spark.session import current_java  # noqa: PLC0415

    java = current_java()
    assert java is not None
    return java


def python_pids(module: str = "") -> list[int]:
    """The Python processes of the shared session that run this module, or any: those that its Java has started, and those
    that they have started."""
    from smile.engine.spark.session import current_java  # noqa: PLC0415

    java = current_java()
    assert java is not None
    pids: list[int] = []
    parents = [java.process.pid]
    while parents:
        listed = subprocess.run(["pgrep", "-P", str(parents.pop())], capture_output=True, text=True)
        children = [int(pid) for pid in listed.stdout.split()]
        pids += children
        parents += children
    return [pid for pid in pids if "python" in (command := _command(pid)) and module in command]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""  # it has ended
