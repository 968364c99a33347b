"""What the log says of the ticks that a broker gives to the events of a stream."""

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.errors import SmileError
from smile.horizons import HORIZON_MIN
from smile.log.clock import Clock
from smile.log.storage.durable import DurableLog

_READ_BYTES = 2**16


class PublishedTicks:
    """Of the streams that this broker publishes as their only origin."""

    def __init__(self, log: DurableLog, clock: Clock) -> None:
        self._log, self._clock = log, clock

    def horizon(self, stream: str) -> int:
        """All events that are published from now on are above this tick."""
        return max(self._horizons(stream).values(), default=HORIZON_MIN)

    def end(self, stream: str) -> int:
        """A tick that is above all ticks which are given until now: those of the next second are not."""
        latest: int = max(self._clock() * TICKS_PER_MICROSECOND, self.horizon(stream))
        return latest + 1_000_000 * TICKS_PER_MICROSECOND

    def begin(self, stream: str) -> int:
        """Nothing was published at or below this tick. The least horizon if the log has nothing yet; tick 0 if its
        beginning was removed."""
        horizons = self._horizons(stream)
        origin = max(horizons, key=lambda o: horizons[o], default="")
        tick = HORIZON_MIN
        while tick < horizons.get(origin, HORIZON_MIN):
            try:
                piece = self._log.read_range(stream, origin, tick, _READ_BYTES)
            except SmileError:
                return 0
            if piece is None:
                break
            if piece.events is not None:
                first: int = piece.events.column(0)[0].as_py()
                return first - 1
            tick = piece.hi
        return tick

    def _horizons(self, stream: str) -> dict[str, int]:
        return dict(self._log.stream_horizons(stream)) if stream in self._log.schemas else {}
