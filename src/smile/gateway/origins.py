"""Hosts and origins: a web page that is not the broker's own, or not allowed, can neither read from it nor publish.

A page reaches a broker on its reader's machine by naming it (the Origin tells), or by a name of its own that it makes
point there (the Host tells). Programs that are no browsers send no Origin.
"""

import ipaddress
import re
from collections.abc import Iterable

from smile.errors import error
from smile.gateway.http_response import Headers, HttpResponse
from smile.settings import Settings, parse_address

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::([0-9]{1,5}))?")

_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_ALLOWED_HEADERS = b"authorization, content-type, last-event-id, smile-producer, smile-sequence"
_EXPOSED_HEADERS = b"smile-progress, smile-resume, retry-after"


class OriginPolicy:
    def __init__(self, settings: Settings) -> None:
        self._origins = {origin.casefold() for origin in settings.origins}
        self._hosts = {name.casefold().strip("[]") for name in (*settings.hosts, "localhost")}
        self._hosts.add(parse_address(settings.listen)[0].casefold())
        # Whoever needs a token gets nowhere by a name alone.
        self._allows_any_host = settings.requires_tokens and not settings.hosts

    def check_host(self, host: str) -> None:
        """E104 if the broker is not reached by this name. An address is no name that somebody could make point here."""
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2]).casefold() if match else ""
        if match and (self._allows_any_host or name in self._hosts or _is_ip_address(name)):
            return
        hint = "Use its address, or add the name to the setting hosts."
        raise error("E104", f"{host[:100]!r} is not a name this broker is reached by", hint=hint)

    def check_origin(self, origin: str, scheme: str, host: str) -> bool:
        """Whether the page is another's than the broker's own; E104 if that is not allowed."""
        normalized = origin.casefold()
        if normalized == f"{scheme}://{host.casefold()}":
            return False
        if normalized in self._origins:
            return True
        hint = "Add it to the setting origins, if its pages may call this broker."
        raise error("E104", f"pages of {origin[:100]!r} may not call this broker", hint=hint)


def cors_headers(origin: str) -> Headers:
    """Lets the page read the answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED_HEADERS),
        (b"vary", b"Origin"),
    ]


def preflight_response(origin: str) -> HttpResponse:
    """What a browser asks before it lets a page call."""
    headers = [
        *cors_headers(origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _ALLOWED_HEADERS),
        (b"access-control-max-age", b"600"),
    ]
    return HttpResponse(b"", 204, b"", headers)


def single_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """E093 if it is there twice: nobody could say which one holds."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise error("E093", f"the header {name.decode()} is there {len(values)} times")
    return values[0].decode("latin-1") if values else None


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
