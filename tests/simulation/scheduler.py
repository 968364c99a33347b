"""The scheduler of a simulation: runs everything that happens, in the order of simulated time, in one thread.

Events at the same time run in the order of their owners' names. So the order never depends on addresses or hashes, and
a seed always gives the same run.
"""

import heapq
import math
from collections.abc import Callable

Action = Callable[[], None]


class Scheduler:
    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        """The number of events that have run."""
        self._queue: list[tuple[float, str, int, Action]] = []
        self._sequence = 0

    def at(self, time: float, owner: str, action: Action) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (max(time, self.now), owner, self._sequence, action))

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Runs events until this time, or until something is done."""
        while self._queue and self._queue[0][0] <= until and not is_done():
            time, _, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, time)
            self.events += 1
            action()
        if not is_done():
            self.now = max(self.now, until)


class Alarm:
    """Runs an action once at the earliest time that was set since it last ran."""

    def __init__(self, scheduler: Scheduler, owner: str, action: Action) -> None:
        self._scheduler, self._owner, self._action = scheduler, owner, action
        self._time = math.inf

    def set(self, time: float) -> None:
        if time < self._time:
            self._time = time
            self._scheduler.at(time, self._owner, lambda: self._ring(time))

    def cancel(self) -> None:
        self._time = math.inf

    def _ring(self, time: float) -> None:
        if time == self._time:  # otherwise it was set to another time, or cancelled
            self._time = math.inf
            self._action()
