"""A control group holds a process to its share of a core, where this machine allows it."""

import subprocess
import sys
import time

import pytest

from bench.prices import cpu_seconds
from bench.processor_quota import processor_quota, quota_problem
from tests.processes import wait_until


def test_a_process_gets_its_share_of_a_core() -> None:
    if problem := quota_problem():
        pytest.skip(problem)
    with processor_quota(0.1) as quota, subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            quota.add(process.pid)
            start, before = time.monotonic(), cpu_seconds(process.pid)
            wait_until(lambda: cpu_seconds(process.pid) >= before + 0.05, "the process does not run")
            assert cpu_seconds(process.pid) - before < 0.5 * (time.monotonic() - start)
        finally:
            process.kill()
    assert not quota.folder.exists()
