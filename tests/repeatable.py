"""A pytest plugin that makes random tests repeatable: two runs draw the same cases, and a failure's report says how to draw
them again. `--hypothesis-seed` asks for other cases; `make nightly` has a new seed every night.
"""

import os
import shlex
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

DEFAULT_SEED = "0"
RUNS = float(os.environ.get("SMILE_RUNS", "1"))
"""How many times as many random cases as the tests name: fewer in `make check` and `make test`, more in `make nightly`."""


def scaled(count: int) -> int:
    """The number of random cases to try where a test names `count`."""
    return max(1, round(count * RUNS))


# How long a case takes depends on the machine, and must not fail a test. With `derandomize`, Hypothesis's default where the
# environment says CI, the seed would have no effect.
settings.register_profile(
    "smile",
    derandomize=False,
    print_blob=True,
    deadline=None,
    database=None,
    max_examples=scaled(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("smile")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs so, and processes that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A seed for the whole run also repeats state machines, which do not say theirs.
    # The workers of pytest-xdist get the options of this process, and the seed with them.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = DEFAULT_SEED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and is_hypothesis_test(getattr(item, "obj", None)):
        command = f"{shlex.quote(item.nodeid)} --hypothesis-seed={item.config.option.hypothesis_seed}"
        runs = f"SMILE_RUNS={RUNS:g} " if RUNS != 1 else ""
        report.sections.append(("repeat with", f"{runs}.venv/bin/python -m pytest {command}"))
    return report
