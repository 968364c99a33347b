"""How long to wait before the next attempt: short at first, then 4 s to 64 s while it keeps failing, with jitter."""

from dataclasses import dataclass
from random import Random
from typing import Final

DELAYS_S: Final = (0.1, 0.4, 1.0, 4.0, 8.0, 16.0, 32.0, 64.0)
JITTER: Final = 0.2
"""A delay is shorter by up to this share, so that many do not come back at once."""


@dataclass
class Backoff:
    random: Random
    failures: int = 0
    """Attempts that have failed since the last success."""

    def next_delay_s(self) -> float:
        """Call it after each failure."""
        delay_s = DELAYS_S[min(self.failures, len(DELAYS_S) - 1)]
        self.failures += 1
        return delay_s * (1 - JITTER * self.random.random())

    def reset(self) -> None:
        """Call it after each success."""
        self.failures = 0
