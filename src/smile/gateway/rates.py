"""Rates: each principal has a bucket that fills at its rate and holds a second's worth. It may go into debt once, so
that a large batch is let through and then waited for."""

import time
from collections.abc import Callable

from smile.gateway.answers import Refused


class Rates:
    def __init__(self, per_second: int, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self._what = what
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, principal: str, count: int) -> None:
        """E092 if the principal has been too quick."""
        if not self.per_second:
            return
        now = self._clock()
        held, then = self._buckets.get(principal, (float(self.per_second), now))
        held = min(float(self.per_second), held + (now - then) * self.per_second)
        if held <= 0:
            self._buckets[principal] = held, now
            hint = f"Wait {max(-held / self.per_second, 0.001):.3f} seconds, or ask for a higher limit."
            raise Refused(429, "E092", f"more than {self.per_second:,} {self._what} a second", hint)
        self._buckets[principal] = held - count, now
