"""Who the origins of a stream are, and what is known of each, as JSON."""

from collections.abc import Mapping
from typing import Any

from smile.horizons import END, HORIZON_MIN
from smile.log.membership import HOME_ORIGIN, StreamMembership


def event_horizons(horizons: Mapping[str, int], is_global: bool) -> dict[str, int]:
    """Those of origins that have events. In what is assembled from a global stream, the home's number says up to where
    the members are known: as long as the stream is open, that is nowhere."""
    return {origin: tick for origin, tick in horizons.items() if not (is_global and origin == HOME_ORIGIN)}


def describe_origins(
    membership: StreamMembership | None, horizons: Mapping[str, int], is_global: bool
) -> list[dict[str, Any]]:
    """The members that have events, with what is known of each. `holds_back`: nothing is final above its horizon,
    although others are further."""
    members = {} if membership is None else membership.members
    known = event_horizons({origin: horizons.get(origin, HORIZON_MIN) for origin in members}, is_global)
    if not known:
        return []
    least, greatest = min(known.values()), max((tick for tick in known.values() if tick < END), default=END)
    return [
        {
            "origin": origin,
            "broker": member.broker,
            "state": "member" if member.end is None else "fenced" if member.is_fenced else "left",
            "start": member.start,
            "end": member.end,
            "horizon": known[origin],
            "holds_back": known[origin] == least < greatest,
        }
        for origin, member in members.items()
        if origin in known
    ]
