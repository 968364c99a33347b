"""Holds a process to a share of a core, by a control group of Linux, version 1 or 2."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PERIOD_US = 20_000
"""A process that has used its share of a period waits for the next one."""
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")
_NUMBERS = count()


@dataclass(frozen=True)
class ProcessorQuota:
    """A control group. All threads and later children of its processes share its quota."""

    folder: Path

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))


def quota_problem() -> str | None:
    """Why there are no quotas on this machine; None if there are."""
    try:
        with processor_quota(0.5):
            return None
    except OSError as problem:
        return f"control groups cannot be changed here: {problem.strerror}"


@contextmanager
def processor_quota(share: float) -> Iterator[ProcessorQuota]:
    """A group whose processes have ended before it is removed."""
    root = _V1 if (_V1 / "cpu.cfs_quota_us").exists() else _V2
    folder = root / f"smile-bench-{os.getpid()}-{next(_NUMBERS)}"
    quota_us = round(share * PERIOD_US)
    folder.mkdir()
    try:
        if root == _V1:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        yield ProcessorQuota(folder)
    finally:
        with suppress(OSError):  # a process of it may still be there
            folder.rmdir()
