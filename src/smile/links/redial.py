"""When to connect to a neighbour again.

The first attempts follow quickly. If a neighbour keeps failing, the waiting time doubles from 4 to 64 seconds. It
varies at random, so that the neighbours of a broker that restarts do not all come at once.
"""

from random import Random
from typing import Final

FIRST_WAITS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0)
WAIT_S_MIN: Final = 4.0
WAIT_S_MAX: Final = 64.0
STABLE_S: Final = 10.0
"""A connection that has lasted as long counts as a success: the next failure is the first one."""


class Redial:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    def wait_s(self, connected_s: float) -> float:
        """How long to wait after a connection that has lasted `connected_s`; 0 if there was none."""
        if connected_s >= STABLE_S:
            self._failures = 0
        doublings = self._failures - len(FIRST_WAITS_S)
        wait_s = FIRST_WAITS_S[self._failures] if doublings < 0 else min(WAIT_S_MIN * 2**doublings, WAIT_S_MAX)
        self._failures = min(self._failures + 1, len(FIRST_WAITS_S) + 8)
        return wait_s * self._random.uniform(0.75, 1.25)
