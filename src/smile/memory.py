"""The limit on the memory of a process. Beyond it, an allocation fails with a MemoryError, which concerns one request
or one view. Without it, the operating system would end the process."""

import os
import resource
from contextlib import suppress
from typing import Final

MEMORY_VARIABLE: Final = "SMILE_WORKER_MEMORY_MAX"
"""The environment variable with the limit of a Python worker of Spark, in bytes."""


_ALLOCATOR_SETTING: Final = "MIMALLOC_ARENA_EAGER_COMMIT"
"""Arrow's allocator reserves a gibibyte at its start, unless this is 0. It reads the variable when it is loaded."""


def limit_memory(bytes_max: int) -> None:
    """Limits the private memory of this process and of those that it forks; call it before Arrow is imported. What is
    reserved counts too, such as the stacks of threads."""
    os.environ.setdefault(_ALLOCATOR_SETTING, "0")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def lift_memory_limit(pid: int) -> None:
    """For a process that has inherited the limit, and has one of its own."""
    with suppress(ProcessLookupError, PermissionError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        resource.prlimit(pid, resource.RLIMIT_DATA, (hard, hard))


def limit_worker_memory() -> None:
    """Applies the limit in the environment, if there is one."""
    if MEMORY_VARIABLE in os.environ:
        limit_memory(int(os.environ[MEMORY_VARIABLE]))


def resident_bytes(pid: int | None = None) -> int:
    """The memory that a process occupies, by default this one."""
    with open(f"/proc/{pid or 'self'}/statm") as file:  # noqa: PTH123  # read often, and a Path costs as much as the file
        return int(file.read().split()[1]) * resource.getpagesize()
