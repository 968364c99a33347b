"""Generates the ticks of an origin. Ticks always ascend, whatever the clock does, and no two origins share a tick.

A tick is the number of microseconds since 1970 with the origin's number in the ten low bits.
"""

import time
from collections.abc import Callable

from smile.algebra.types import TICK_MAX, TICKS_PER_MICROSECOND
from smile.errors import error
from smile.horizons import ORIGIN_MAX

Clock = Callable[[], int]
"""Returns the microseconds since 1970. It may stand still or step back."""


def wall_clock() -> int:
    return time.time_ns() // 1000


class TickGenerator:
    """Generates the ticks of one origin. Only one thread may use it."""

    def __init__(self, origin: int, clock: Clock = wall_clock) -> None:
        if not 0 <= origin <= ORIGIN_MAX:
            raise error("E100", f"an origin's number must be between 0 and {ORIGIN_MAX}, not {origin}")
        self.number = origin
        self.origin = str(origin)
        """The origin's name in the log."""
        self.clock = clock
        self._last = -1

    def advance_past(self, tick: int) -> None:
        """All later ticks will be above this one."""
        self._last = max(self._last, tick)

    def take(self, count: int, number: int | None = None) -> range:
        """The ticks for `count` consecutive events. `number` is that of the origin, if this broker has another one in
        the stream of these events: all streams share one counter."""
        earliest_us = self._last // TICKS_PER_MICROSECOND + 1
        number = self.number if number is None else number
        first = max(self.clock(), earliest_us) * TICKS_PER_MICROSECOND + number
        end = first + count * TICKS_PER_MICROSECOND
        if end - TICKS_PER_MICROSECOND > TICK_MAX:
            raise error("E079", "no tick is left: the clock or an event's tick has reached the maximum")
        if count:
            self._last = end - TICKS_PER_MICROSECOND
        return range(first, end, TICKS_PER_MICROSECOND)

    def silence_tick(self) -> int:
        """The greatest tick up to which silence can be declared: the clock's tick, or the last tick if the clock is
        behind. All later ticks will be above it."""
        self._last = max(self._last, min(self.clock() * TICKS_PER_MICROSECOND + self.number, TICK_MAX))
        return self._last
