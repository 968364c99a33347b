"""Curiosity: when to ask upstream again for what is missing.

A gap is asked for after a short time, in which messages that overtook each other arrive. Without an answer, the next
question waits twice as long, up to a bound. A horizon that stands still is asked for after a few times the usual time
between two advances. Waiting times vary at random, so that many brokers do not ask at the same moment.
"""

from random import Random
from typing import Final

GAP_WAIT_S: Final = 0.1
GAP_WAIT_S_MAX: Final = 4.0
IDLE_WAIT_S_MIN: Final = 2.0
IDLE_WAIT_S_MAX: Final = 32.0
IDLE_FACTOR: Final = 4.0
"""A horizon is late after so many times the usual time between two advances."""
_SMOOTHING: Final = 0.2


class Curiosity:
    """The timer of one import."""

    def __init__(self, random: Random, now: float) -> None:
        self._random = random
        self._advanced_at = now
        self._usual_interval_s = IDLE_WAIT_S_MIN / IDLE_FACTOR
        self._gap_wait_s = GAP_WAIT_S
        self._idle_wait_s = self._idle_wait()
        self.has_gap = False
        """Whether something is known beyond what is missing."""
        self.since: float | None = None
        """Since when something is missing, as far as this import knows; None if nothing is."""
        self.deadline = now + self._jitter(self._idle_wait_s)
        """When to ask."""

    def advanced(self, now: float) -> None:
        """The import has advanced: nothing is missing for the time being."""
        interval_s = now - self._advanced_at
        self._usual_interval_s += _SMOOTHING * (interval_s - self._usual_interval_s)
        self._advanced_at, self.has_gap, self.since = now, False, None
        self._gap_wait_s, self._idle_wait_s = GAP_WAIT_S, self._idle_wait()
        self.deadline = now + self._jitter(self._idle_wait_s)

    def noticed_gap(self, now: float) -> None:
        """Something is known beyond what is missing."""
        if not self.has_gap:
            self.has_gap = True
            self.since = now if self.since is None else self.since
            self.deadline = now + self._jitter(self._gap_wait_s)

    def asked(self, now: float) -> None:
        """A horizon that stands still is missed from the time of the last advance."""
        self.since = self._advanced_at if self.since is None else self.since
        if self.has_gap:
            self._gap_wait_s = min(2 * self._gap_wait_s, GAP_WAIT_S_MAX)
            self.deadline = now + self._jitter(self._gap_wait_s)
        else:
            self._idle_wait_s = min(2 * self._idle_wait_s, IDLE_WAIT_S_MAX)
            self.deadline = now + self._jitter(self._idle_wait_s)

    def _idle_wait(self) -> float:
        return min(max(IDLE_FACTOR * self._usual_interval_s, IDLE_WAIT_S_MIN), IDLE_WAIT_S_MAX)

    def _jitter(self, wait_s: float) -> float:
        return wait_s * self._random.uniform(0.75, 1.25)
