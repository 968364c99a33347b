"""Horizons, and how they are named. A horizon is the tick up to which a stream is known.

A set of horizons says how far something was computed: it has the horizon of each stream by its name. Of a
stream with many origins, rows are known above the horizon of the stream, which is the least of its origins'. So it also
has the horizon of each origin, by `origin_name`: together they determine which events are known.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

HORIZON_MIN: Final = -1
"""The horizon of a stream of which nothing is known."""

END: Final = 2**63 - 1
"""The horizon of a stream that is finished."""

ORIGIN_MAX: Final = 2**10 - 1
"""The greatest number of an origin. It is in the ten low bits of the ticks that the origin assigns."""

CLOCK_TICK_MIN: Final = 2**50
"""Smaller ticks, before the middle of January 1970, are a publisher's."""

CLOCK_TICK_MAX: Final = 2**62
"""Ticks from here on, after the year 2112, mean the end of the stream."""

_SEPARATOR: Final = ":"
_INTERNAL: Final = "//"


def is_clock_tick(tick: int) -> bool:
    """Whether people are shown the time of a tick: a publisher's own ticks may be any numbers."""
    return CLOCK_TICK_MIN <= tick < CLOCK_TICK_MAX


def origin_name(stream: str, origin: str) -> str:
    """The name of the horizon of one origin of a stream with many origins."""
    return f"{stream}{_SEPARATOR}{origin}"


def split_name(name: str, streams: Iterable[str]) -> tuple[str, str | None]:
    """The stream that a horizon belongs to, and its origin; None for the horizon of the whole stream. `streams` are the
    names of all streams."""
    if name in streams:
        return name, None
    stream, _, origin = name.rpartition(_SEPARATOR)
    return stream, origin


def is_of_streams(name: str, streams: Collection[str]) -> bool:
    """Whether a horizon is that of one of these streams, or of an origin of one of them."""
    return split_name(name, streams)[0] in streams


def with_origins(stream: str, origins: Mapping[str, int]) -> dict[str, int]:
    """The horizons of a stream with many origins: its own, and that of each origin."""
    least = min(origins.values(), default=HORIZON_MIN)
    return {stream: least, **{origin_name(stream, origin): tick for origin, tick in origins.items()}}


def select_streams(horizons: Mapping[str, int], streams: Iterable[str]) -> dict[str, int]:
    """The horizons of these streams and of their origins, in the order of the streams."""
    wanted = dict.fromkeys(streams)
    selected = {n: h for n, h in horizons.items() if n in wanted or split_name(n, ())[0] in wanted}
    return {**dict.fromkeys(wanted, HORIZON_MIN), **selected}


def has_reached(horizons: Mapping[str, int], name: str, tick: int) -> bool:
    """Whether what has these horizons includes an event at this tick. Of a stream with many origins, that of its origin
    is sufficient: the number of the origin is in the low bits of the tick."""
    if horizons.get(name, HORIZON_MIN) >= tick:
        return True
    return horizons.get(origin_name(name, str(tick & ORIGIN_MAX)), HORIZON_MIN) >= tick


def without_origins(horizons: Mapping[str, int]) -> dict[str, int]:
    """The horizons of whole streams."""
    return {name: tick for name, tick in horizons.items() if split_name(name, ())[0] not in horizons}


def internal_name(relation: str, purpose: str) -> str:
    """The name of a stream of the log that no program names, and whose horizon users do not see."""
    return f"{relation}{_INTERNAL}{purpose}"


def shown_horizons(horizons: Mapping[str, int]) -> dict[str, int]:
    """The horizons that users see: those of whole streams that a program names."""
    return {name: tick for name, tick in without_origins(horizons).items() if _INTERNAL not in name}
