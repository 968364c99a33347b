"""A broker that is started with something wrong about it: `python -m tests.torture.launched WHAT serve …`.

The product has no switches for this: what is wrong is patched in before the command runs, and the rest of the process is
as always.
"""

import os
import sys
import time
from pathlib import Path

import pytest

from smile.cli.main import main
from smile.log import clock
from tests.torture.planted import HARMLESS, PLANTED

CLOCK = "TORTURE_CLOCK"
"""The file that says by how many microseconds the clock is wrong."""


class Stepped:
    """Stands in for the module `time` where ticks are made."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def time_ns(self) -> int:
        return time.time_ns() + 1000 * int(self._path.read_text())


if __name__ == "__main__":
    planted, patch = sys.argv.pop(1), pytest.MonkeyPatch()
    if planted:
        (HARMLESS | {name: canary.plant for name, canary in PLANTED.items()})[planted](patch)
    if CLOCK in os.environ:
        patch.setattr(clock, "time", Stepped(Path(os.environ[CLOCK])))
    main()
