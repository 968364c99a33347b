"""Every random test is random anew in each run, and every failure of one says how to run it again."""

import secrets
import shlex
import signal
from collections.abc import Generator

import pytest
from hypothesis import is_hypothesis_test, settings

pytest_plugins = ["pytester"]

settings.register_profile("smile", print_blob=True, deadline=None, database=None)
settings.load_profile("smile")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what runs in the background, and processes of ours would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # One seed for the whole run, so that it also repeats state machines, which keep theirs to themselves.
    # The workers of pytest-xdist are given this process's options, and with them its seed.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and is_hypothesis_test(getattr(item, "obj", None)):
        command = f"{shlex.quote(item.nodeid)} --hypothesis-seed={item.config.option.hypothesis_seed}"
        report.sections.append(("repeat with", f".venv/bin/python -m pytest {command}"))
    return report
