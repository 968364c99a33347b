"""The address of a broker, with the token and the certificates to trust. The token is never displayed."""

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from smile.errors import error

URL_DEFAULT = "http://127.0.0.1:7400"


@dataclass(frozen=True)
class BrokerAddress:
    """`url` has no trailing slash. `ca` is a file of certificates to trust in addition to the system's."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    @staticmethod
    def resolve(url: str | None = None, token: str | None = None, ca: str | None = None) -> "BrokerAddress":
        """Takes missing arguments from SMILE_URL, SMILE_TOKEN and SMILE_CA."""
        base_url = url or os.environ.get("SMILE_URL") or URL_DEFAULT
        hint = f"Use a URL such as {URL_DEFAULT}, or https://… ."
        try:
            parts = urlsplit(base_url)
            is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            is_valid = False
        if not is_valid or parts.query or parts.fragment or parts.username or parts.password:
            raise error("E100", "this is not a URL of a broker", hint=hint)
        token = token or os.environ.get("SMILE_TOKEN") or None
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise error("E091", "the token has characters that are not allowed in a token")
        return BrokerAddress(base_url.rstrip("/"), token, ca or os.environ.get("SMILE_CA") or None)

    @property
    def websocket_url(self) -> str:
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

    def tls_context(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https"):
            return None
        try:
            context = ssl.create_default_context()
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as problem:  # includes ssl.SSLError
            reason = problem.strerror or str(problem)
            raise error("E100", f"the certificates in {self.ca} cannot be read: {reason}") from None
        return context
