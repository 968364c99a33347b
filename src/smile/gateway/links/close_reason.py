"""Why a connection between brokers was closed: as a code and a reason of the WebSocket protocol, and back."""

import re
from typing import Final

from smile.errors import CATALOGUE, SmileError, error

GOING_AWAY: Final = 1001
REFUSED: Final = 1008
REASON_BYTES_MAX: Final = 123
"""What the WebSocket protocol allows."""

_REASON = re.compile(r"(E\d{3}): (.*)", re.DOTALL)


def close_reason(problem: SmileError | None) -> tuple[int, str]:
    """The code and the reason with which a connection is closed. Without a problem, this broker is stopping."""
    if problem is None:
        return GOING_AWAY, ""
    first = problem.diagnostics[0]
    reason = f"{first.code}: {first.message}".encode()[:REASON_BYTES_MAX].decode(errors="ignore")
    return REFUSED, reason


def closed_error(neighbour: str, code: int | None, reason: str) -> SmileError:
    """The problem of the side whose connection was closed by its neighbour."""
    match = _REASON.fullmatch(reason)
    if match and match[1] in CATALOGUE:
        return error(match[1], f"{neighbour} has closed the link: {match[2]}")
    if code in (GOING_AWAY, 1012):
        return error("E103", f"{neighbour} has stopped")
    return error("E103", f"the connection to {neighbour} was lost")
