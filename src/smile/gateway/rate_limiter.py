"""Rate limits: each principal has a bucket that fills at the allowed rate and holds the amount of one second. A large
request may overdraw it; then the principal must wait until it is positive again.
"""

import time
from collections.abc import Callable
from threading import Lock

from smile.gateway.http.response import HttpError


class RateLimiter:
    """Thread-safe."""

    def __init__(self, per_second: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self._unit = unit
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = Lock()

    def spend(self, principal: str, count: int) -> None:
        """E092 if the principal has exceeded the rate."""
        if not self.per_second:
            return
        with self._lock:
            now = self._clock()
            tokens, updated_at = self._buckets.get(principal, (float(self.per_second), now))
            tokens = min(float(self.per_second), tokens + (now - updated_at) * self.per_second)
            if tokens <= 0:
                self._buckets[principal] = tokens, now
                hint = f"Wait {max(-tokens / self.per_second, 0.001):.3f} seconds, or ask for a higher limit."
                raise HttpError(429, "E092", f"more than {self.per_second:,} {self._unit} a second", hint)
            self._buckets[principal] = tokens - count, now
