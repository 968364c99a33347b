"""Who the origins of a stream are, and what is known of each, as JSON."""

from collections.abc import Mapping
from typing import Any

from smile.horizons import END, HORIZON_MIN
from smile.log.membership import StreamMembership


def describe_origins(membership: StreamMembership | None, horizons: Mapping[str, int]) -> list[dict[str, Any]]:
    """The members, with what is known of each. `holds_back`: nothing is final above its horizon, although others are
    further."""
    if membership is None:
        return []
    known = {origin: horizons.get(origin, HORIZON_MIN) for origin in membership.members}
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
        for origin, member in membership.members.items()
    ]
