"""Ticks and times. A broker's tick is its clock: microseconds since 1970, times 1,024, plus the number of the origin.

In publisher-timed streams a tick is whatever the publisher says, such as 17. People are shown a time only where the
tick can be a clock's.
"""

from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol, overload

from smile.client.time_columns import column_ticks
from smile.horizons import is_clock_tick

TICKS_PER_MICROSECOND = 1024
TICKS_PER_SECOND = 1_000_000 * TICKS_PER_MICROSECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _HasValue(Protocol):
    @property
    def value(self) -> Any: ...


def as_datetime(tick: int | _HasValue) -> datetime:
    """The time of a tick, in UTC; `.astimezone()` converts it to local time. Of knowledge it is that of its value."""
    ticks: int = tick if isinstance(tick, int) else tick.value
    return _EPOCH + timedelta(microseconds=ticks // TICKS_PER_MICROSECOND)


@overload
def tick_of(time: datetime) -> int: ...
@overload
def tick_of(time: Any) -> Any: ...
def tick_of(time: Any) -> Any:
    """The first tick at this time. A time without a time zone is in UTC, like the timestamps of a view. Of a column of
    times (a pandas or Polars series, an Arrow or NumPy array, a list) it is a column of ticks."""
    if not isinstance(time, datetime):
        return column_ticks(time, TICKS_PER_MICROSECOND)
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * TICKS_PER_MICROSECOND


def tick_text(tick: int, today: date | None = None) -> str:
    """For people: the local time, without the date if it is `today`. A tick that cannot be a clock's is a number."""
    if not is_clock_tick(tick):
        return str(tick)
    local = as_datetime(tick).astimezone().replace(tzinfo=None)
    return str(local.time() if local.date() == today else local)


def interval_text(ticks: int) -> str:
    """For people: hours, minutes and seconds, or a number of ticks if it is less than a microsecond."""
    if abs(ticks) < TICKS_PER_MICROSECOND:
        return str(ticks)
    return ("-" if ticks < 0 else "") + str(timedelta(microseconds=abs(ticks) // TICKS_PER_MICROSECOND))
