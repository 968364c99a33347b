"""Time zones: what a clock on the wall shows at each moment, and when it first shows a time.

Where clocks are set back, the reading of a clock stays at the latest time that was shown before, until it is reached
again. So readings never fall, and every day begins once: when a clock first shows its midnight, or would have if it had
not been set forward over it. Moments and readings are microseconds since 1970. The data is that of the package `tzdata`
and so the same on all machines; the rules of its last year hold until the year 2500, and the last offset after that.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from io import BytesIO
from itertools import accumulate
from typing import Final
from zoneinfo import ZoneInfo

from smile.algebra.types import INT_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_RULES_END: Final = datetime(2500, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_WEEK: Final = timedelta(days=7)
"""No yearly rule changes an offset, and changes it back, in less time."""

_HEADER: Final = struct.Struct(">4sc15x6l")
_TRANSITION_BYTES: Final = 8


@dataclass(frozen=True)
class TimeZone:
    """Periods of one offset. Period n begins at the moment `begins[n]`, when `offsets[n]` is added to the time in UTC.
    `latest[n]` is the latest reading before its end, plus 1."""

    begins: tuple[int, ...]
    offsets: tuple[int, ...]
    latest: tuple[int, ...]

    @property
    def offset_range(self) -> int:
        """How much longer or shorter a period on a clock can be than between moments."""
        return max(self.offsets) - min(self.offsets)

    def reading(self, moment: int) -> int:
        """What a clock shows."""
        n = max(bisect_right(self.begins, moment) - 1, 0)
        shown = moment + self.offsets[n]
        return max(shown, self.latest[n - 1] - 1) if n else shown

    def moment(self, reading: int) -> int:
        """When a clock first shows a time or a later one."""
        n = min(bisect_right(self.latest, reading), len(self.begins) - 1)
        first = reading - self.offsets[n]
        return max(first, self.begins[n]) if n else first


@lru_cache(maxsize=64)
def time_zone(name: str) -> TimeZone | None:
    """The time zone with a name of the tz database, such as Europe/Berlin; None if there is none."""
    data = _read_data(name)
    if data is None:
        return None
    zone = ZoneInfo.from_file(BytesIO(data), name)
    begins, offsets = [_microseconds(_FIRST)], [_offset(zone, _FIRST)]
    listed = sorted(t for t in _listed_changes(data) if t > _FIRST)
    for begin in (*listed, *_yearly_changes(zone, max([_EPOCH, *listed]))):
        if _offset(zone, begin) != offsets[-1]:
            begins.append(_microseconds(begin))
            offsets.append(_offset(zone, begin))
    ends = [end + offset for end, offset in zip(begins[1:], offsets, strict=False)]
    return TimeZone(tuple(begins), tuple(offsets), tuple(accumulate([*ends, INT_MAX], max)))


def _read_data(name: str) -> bytes | None:
    parts = name.split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_+-]+", part) for part in parts):
        return None
    file = resources.files("tzdata").joinpath("zoneinfo", *parts)
    data = file.read_bytes() if file.is_file() else b""
    return data if data.startswith(b"TZif") else None


def _listed_changes(data: bytes) -> Iterator[datetime]:
    """The moments in a file of the tz database at which something changes. The second part of the file has them in 64
    bits; the first part is skipped."""
    _, _, utc, standard, leaps, times, types, letters = _HEADER.unpack_from(data)
    second = _HEADER.size + 5 * times + 6 * types + letters + 8 * leaps + standard + utc
    count = _HEADER.unpack_from(data, second)[5]
    for (seconds,) in struct.iter_unpack(">q", data[second + _HEADER.size :][: count * _TRANSITION_BYTES]):
        if seconds > _microseconds(_FIRST) // 1_000_000:
            yield _EPOCH + timedelta(seconds=seconds)


def _yearly_changes(zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The changes by the rules that hold after the last one that is listed."""
    begin = after
    while begin < _RULES_END:
        end = begin + _WEEK
        if _offset(zone, begin) != _offset(zone, end):
            same, changed = begin, end
            while changed - same > _SECOND:
                middle = same + (changed - same) // _SECOND // 2 * _SECOND
                same, changed = (middle, changed) if _offset(zone, middle) == _offset(zone, begin) else (same, middle)
            yield changed
        begin = end


def _offset(zone: ZoneInfo, moment: datetime) -> int:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
