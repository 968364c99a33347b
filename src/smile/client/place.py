"""Where a broker is, and what it must be told to let us in. The token is shown nowhere."""

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from smile.errors import error

URL_DEFAULT = "http://127.0.0.1:7400"


@dataclass(frozen=True)
class Place:
    """`url` is without a slash at its end. `ca` is a file of certificates to trust besides the system's."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    @staticmethod
    def of(url: str | None = None, token: str | None = None, ca: str | None = None) -> "Place":
        """What is not given comes from SMILE_URL, SMILE_TOKEN and SMILE_CA."""
        given = url or os.environ.get("SMILE_URL") or URL_DEFAULT
        hint = f"Write it so: {URL_DEFAULT}, or https://… ."
        try:
            parts = urlsplit(given)
            known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            known = False
        if not known or parts.query or parts.fragment or parts.username or parts.password:
            raise error("E100", "the URL is not that of a broker", hint=hint)
        token = token or os.environ.get("SMILE_TOKEN") or None
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise error("E091", "the token has characters that no token has")
        return Place(given.rstrip("/"), token, ca or os.environ.get("SMILE_CA") or None)

    @property
    def websocket(self) -> str:
        return f"ws{self.url.removeprefix('http')}/ws"

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https"):
            return None
        try:
            context = ssl.create_default_context()
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as problem:  # ssl.SSLError is one
            reason = problem.strerror or str(problem)
            raise error("E100", f"the certificates in {self.ca} cannot be read: {reason}") from None
        return context
