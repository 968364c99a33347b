"""Periods of the calendar, such as hours, weeks, or quarters of a year, which together cover all time. They are written
as a unit, with a number before it if they have several of it: `month`, `3 months`.

A period is of readings of a clock, in microseconds since 1970. With a time zone it is that of clocks there, and has
whole days: its beginning and its end are the moments at which a clock first shows them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from smile.algebra.coercions import EPOCH, MICROSECONDS_PER_DAY, TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.time_zones import TimeZone, time_zone

_DAYS_MAX: Final = {1: 31, 2: 62, 3: 92, 12: 366, 120: 3_653, 1_200: 36_525, 12_000: 365_250}
"""The days that a number of months has at most."""

_MONTHS_MAX: Final = 120_000

_MICROSECONDS_PER_YEAR: Final = 146_097 * MICROSECONDS_PER_DAY // 400
"""On average. Every 400 years the calendar is the same, also before and after the years that timestamps have."""


@dataclass(frozen=True)
class Period:
    """A number of microseconds, or of months. One of them begins `origin` microseconds or months after 1970 does."""

    length: int
    origin: int = 0
    in_months: bool = False
    zone: TimeZone | None = None

    def start(self, moment: int) -> int | None:
        """When the period that contains a moment begins; None if no timestamp is so early."""
        return self._boundary(moment, 0)

    def end(self, moment: int) -> int | None:
        """When the next period begins; None if no timestamp is so late."""
        return self._boundary(moment, 1)

    def _boundary(self, moment: int, following: int) -> int | None:
        reading = moment if self.zone is None else self.zone.reading(moment)
        if self.in_months:
            number = (_month_of(reading) - self.origin) // self.length + following
            boundary = _beginning_of_month(number * self.length + self.origin)
        else:
            boundary = ((reading - self.origin) // self.length + following) * self.length + self.origin
        if self.zone is not None:
            boundary = self.zone.moment(boundary)
        return boundary if TIMESTAMP_MIN <= boundary <= TIMESTAMP_MAX else None

    @property
    def microseconds_max(self) -> int:
        """No period is longer."""
        if not self.in_months:
            length = self.length
        else:
            days = min(-(-self.length // months) * days for months, days in _DAYS_MAX.items())
            length = days * MICROSECONDS_PER_DAY
        return length if self.zone is None else length + self.zone.offset_range

    @property
    def has_whole_days(self) -> bool:
        return self.in_months or self.length % MICROSECONDS_PER_DAY == self.origin % MICROSECONDS_PER_DAY == 0

    @property
    def has_one_length(self) -> bool:
        return not self.in_months and self.zone is None


UNITS: Final[Mapping[str, Period]] = {
    "microsecond": Period(1),
    "millisecond": Period(1_000),
    "second": Period(1_000_000),
    "minute": Period(60_000_000),
    "hour": Period(3_600_000_000),
    "day": Period(MICROSECONDS_PER_DAY),
    "week": Period(7 * MICROSECONDS_PER_DAY, 4 * MICROSECONDS_PER_DAY),
    "month": Period(1, in_months=True),
    "quarter": Period(3, in_months=True),
    "year": Period(12, in_months=True),
    "decade": Period(120, in_months=True),
    "century": Period(1_200, -69 * 12, in_months=True),
    "millennium": Period(12_000, 31 * 12, in_months=True),
}
"""Weeks begin on Monday, centuries and millennia with the year 1."""

_PLURALS: Final = {"centuries": "century", "millennia": "millennium"} | {f"{unit}s": unit for unit in UNITS}
_WRITTEN: Final = re.compile(r"(?:([0-9]{1,15})\s+)?([a-z]+)")


@lru_cache(maxsize=256)
def read_period(text: str, zone: str | None = None) -> Period | None:
    """The period that a text names, of clocks in a time zone; None if there is no such period or zone."""
    written = _WRITTEN.fullmatch(text.strip().lower())
    unit = None if written is None else UNITS.get(_PLURALS.get(written[2], written[2]))
    if written is None or unit is None:
        return None
    length = unit.length * int(written[1] or 1)
    if not 0 < length <= (_MONTHS_MAX if unit.in_months else TIMESTAMP_MAX):
        return None
    period = replace(unit, length=length, origin=unit.origin % length)
    if zone is None:
        return period
    clock = time_zone(zone)
    return replace(period, zone=clock) if clock is not None and period.has_whole_days else None


def _month_of(reading: int) -> int:
    """The number of months between 1970 and the month of a reading."""
    years = 0 if TIMESTAMP_MIN <= reading <= TIMESTAMP_MAX else 400 if reading < 0 else -400
    time = EPOCH + timedelta(microseconds=reading + years * _MICROSECONDS_PER_YEAR)
    return (time.year - years - 1970) * 12 + time.month - 1


def _beginning_of_month(number: int) -> int:
    year = 1970 + number // 12
    shift = 0 if 1 <= year <= 9999 else (1 - year + 399) // 400 * 400 if year < 1 else -((year - 9600) // 400 * 400)
    beginning = datetime(year + shift, number % 12 + 1, 1)
    return (beginning - EPOCH) // timedelta(microseconds=1) - shift * _MICROSECONDS_PER_YEAR
