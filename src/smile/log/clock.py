"""Ticks of an origin: each is above all before it, whatever the clock does, and no other origin has it.

A tick is the microseconds since 1970, and in its ten low bits the origin's number.
"""

import time
from collections.abc import Callable
from typing import Final

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.errors import error
from smile.log.stream_schema import TICK_MAX

Clock = Callable[[], int]
"""Microseconds since 1970. It may stand still, and step back."""

ORIGIN_MAX: Final = TICKS_PER_MICROSECOND - 1


def wall_clock() -> int:
    return time.time_ns() // 1000


class TickGenerator:
    """Of one origin, for one thread."""

    def __init__(self, origin: int, clock: Clock = wall_clock) -> None:
        if not 0 <= origin <= ORIGIN_MAX:
            raise error("E100", f"an origin's number lies between 0 and {ORIGIN_MAX}, and {origin} does not")
        self.number = origin
        self.origin = str(origin)
        """As the log calls it."""
        self.clock = clock
        self._last = -1

    def advance_past(self, tick: int) -> None:
        """All further ones are above this one."""
        self._last = max(self._last, tick)

    def take(self, count: int) -> range:
        """So many, of events that follow one another."""
        earliest_us = self._last // TICKS_PER_MICROSECOND + 1
        first = max(self.clock(), earliest_us) * TICKS_PER_MICROSECOND + self.number
        end = first + count * TICKS_PER_MICROSECOND
        if end - TICKS_PER_MICROSECOND > TICK_MAX:
            raise error("E079", "no tick is left: the clock, or an event's tick, is at the end of time")
        if count:
            self._last = end - TICKS_PER_MICROSECOND
        return range(first, end, TICKS_PER_MICROSECOND)

    def silence_tick(self) -> int:
        """The greatest tick that can be declared silent: the clock's, or the last one if the clock is behind. All
        further ones are above it."""
        self._last = max(self._last, min(self.clock() * TICKS_PER_MICROSECOND + self.number, TICK_MAX))
        return self._last
