"""How many events each stream has, and how fast events come and rows of views change.

Rates are averages over the last seconds. They are sampled by one thread; all threads read them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from smile import limits
from smile.horizons import END, HORIZON_MIN
from smile.links.rate_meter import RateMeter
from smile.log.storage.durable import DurableLog


@dataclass
class EventCounter:
    """The events of one stream that the log has had since it was opened, and those that it had then."""

    log: DurableLog
    stream: str
    _ticks: dict[str, int] = field(default_factory=dict)
    """Up to where the events of each origin were counted."""
    _count: int = 0

    def update(self) -> int:
        for origin, horizon in self.log.stream_horizons(self.stream).items():
            after = self._ticks.get(origin, HORIZON_MIN - 1)
            if horizon > after:
                self._count += self.log.count_rows(self.stream, origin, after, min(horizon, END))
                self._ticks[origin] = horizon
        return self._count


class Activity:
    """`clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sampled_at = -limits.rate_sample_s
        self._counters: dict[str, EventCounter] = {}
        self._meters: dict[tuple[str, str], RateMeter] = {}
        """By what is counted, and the name of the stream or view."""
        self._counted: dict[tuple[str, str], int] = {}

    def sample(self, log: DurableLog, streams: Iterable[str], changed_rows: Callable[[], Mapping[str, int]]) -> None:
        """Takes a sample if one is due. `changed_rows` has a counter for each view; one that is smaller than before
        has begun again."""
        now = self._clock()
        if now - self._sampled_at < limits.rate_sample_s:
            return
        self._sampled_at = now
        self._counters = {s: self._counters.get(s) or EventCounter(log, s) for s in streams}
        counted = {("events", s): counter.update() for s, counter in self._counters.items()}
        counted |= {("changes", view): count for view, count in changed_rows().items()}
        for name, count in counted.items():
            # What was there before the first sample has no rate.
            before = self._counted.get(name, count)
            self._meters.setdefault(name, RateMeter()).add(count - before if count >= before else count, now)
        self._meters = {name: self._meters[name] for name in counted}
        self._counted = counted

    def events(self, stream: str) -> int:
        return self._counted.get(("events", stream), 0)

    def events_per_s(self, stream: str) -> float:
        return self._per_second("events", stream) or 0.0

    def changes_per_s(self, view: str) -> float | None:
        """None for what is not counted: views without subscription, and intermediate results."""
        return self._per_second("changes", view)

    def _per_second(self, what: str, name: str) -> float | None:
        meter = self._meters.get((what, name))
        return None if meter is None else round(meter.per_second(self._clock()), 3)
