"""For which Python and machine the hashes of a lock file are."""

import platform
import sys


def platform_line() -> str:
    """The line of a lock file that names this Python and this machine."""
    major, minor = sys.version_info[:2]
    return (
        f"# Hashes are of the files for {sys.implementation.name} {major}.{minor}, {sys.platform} {platform.machine()}."
    )


def hashes_apply(lock: str) -> bool:
    """Whether the hashes in this lock file are those of this Python on this machine."""
    return platform_line() in lock.splitlines()
