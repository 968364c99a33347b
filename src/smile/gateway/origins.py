"""Checks of hosts and origins: a web page of another site that is not allowed can neither read from the broker nor
publish.

A page that is not allowed is told so, and can read nothing else. It can reach a broker on its reader's machine by the
broker's address (then the header Origin reveals the page), or by a name of its own that it lets point to that address
(then the header Host reveals it). Only browsers send Origin.
"""

import ipaddress
import re
from collections.abc import Iterable

from starlette.responses import Response

from smile.errors import error
from smile.settings import Settings, parse_address

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::([0-9]{1,5}))?")

_METHODS = "GET, HEAD, POST, PUT, DELETE"
_ALLOWED_HEADERS = "authorization, content-type, last-event-id, smile-producer, smile-sequence"
_EXPOSED_HEADERS = "smile-progress, smile-resume, smile-epochs, retry-after"


class OriginPolicy:
    def __init__(self, settings: Settings) -> None:
        self._origins = {origin.casefold() for origin in settings.origins}
        self._hosts = {name.casefold().strip("[]") for name in (*settings.hosts, "localhost")}
        self._hosts.add(parse_address(settings.listen)[0].casefold())
        # Where tokens are required, a name that points to the broker is not enough for access.
        self._allows_any_host = settings.requires_tokens and not settings.hosts

    def check_host(self, host: str) -> None:
        """E104 if this is not a name of the broker. IP addresses are allowed: no page can let them point elsewhere."""
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2]).casefold() if match else ""
        if match and (self._allows_any_host or name in self._hosts or _is_ip_address(name)):
            return
        hint = "Use its IP address, or add the name to the setting hosts."
        raise error("E104", f"{host[:100]!r} is not a name of this broker", hint=hint)

    def check_origin(self, origin: str, scheme: str, host: str) -> bool:
        """Whether the page is not the broker's own; E104 if it is not allowed."""
        normalized = origin.casefold()
        if normalized == f"{scheme}://{host.casefold()}":
            return False
        if normalized in self._origins:
            return True
        hint = f"If its pages may call this broker, start it with --origins {origin[:100]}"
        raise error("E104", f"pages of {origin[:100]!r} may not call this broker", hint=hint)


def cors_headers(origin: str) -> dict[str, str]:
    """Headers that allow the page to read the response."""
    return {"access-control-allow-origin": origin, "access-control-expose-headers": _EXPOSED_HEADERS, "vary": "Origin"}


def preflight_response(origin: str) -> Response:
    """The response to a browser that asks whether a page may call."""
    headers = {
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": _ALLOWED_HEADERS,
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=cors_headers(origin) | headers)


def single_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """E093 if the header is given twice: it would be ambiguous."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise error("E093", f"the header {name.decode()} is given {len(values)} times")
    return values[0].decode("latin-1") if values else None


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
