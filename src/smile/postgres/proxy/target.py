"""The server that the proxy relays to: its address, and whether and how TLS is used, in the words of libpq."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from smile.errors import SmileError, error

PORT_DEFAULT: Final = 5432
TLS_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")
_URL_HINT: Final = (
    "Write postgresql://HOST:PORT, with ?sslmode=verify-full&sslrootcert=FILE for TLS. Clients bring the rest."
)


@dataclass(frozen=True)
class ProxyTarget:
    """`host` is a name, an address, or a directory with a Unix socket."""

    host: str
    port: int = PORT_DEFAULT
    tls_mode: str = "prefer"
    root_certificates: str | None = None

    @property
    def socket_path(self) -> str | None:
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else None

    @property
    def uses_tls(self) -> bool:
        return self.socket_path is None and self.tls_mode != "disable"

    @property
    def requires_tls(self) -> bool:
        return self.uses_tls and self.tls_mode != "prefer"

    def tls_context(self) -> ssl.SSLContext:
        """Without verification in the modes prefer and require, as in libpq; sslrootcert makes require verify-ca."""
        context = ssl.create_default_context()
        verifies = self.tls_mode.startswith("verify") or (
            self.tls_mode == "require" and self.root_certificates is not None
        )
        context.check_hostname = self.tls_mode == "verify-full"
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        if self.root_certificates is not None:
            try:
                context.load_verify_locations(self.root_certificates)
            except (OSError, ssl.SSLError) as problem:
                raise error("E100", f"the certificates in {self.root_certificates} cannot be read: {problem}") from None
        return context

    def __str__(self) -> str:
        return self.socket_path or f"{self.host}:{self.port}"


def parse_target(url: str) -> ProxyTarget:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise _wrong_url(url, str(problem)) from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise _wrong_url(url, "it does not begin with postgresql://")
    if parts.username or parts.password or parts.path.strip("/"):
        raise _wrong_url("the URL of --to", "the client chooses user, password and database")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = options.pop("host", None) or unquote(parts.hostname or "") or "127.0.0.1"
    port_text = options.pop("port", None)
    tls_mode = options.pop("sslmode", "prefer")
    root = options.pop("sslrootcert", None)
    if options:
        raise _wrong_url(url, f"{', '.join(options)} cannot be given here")
    if tls_mode not in TLS_MODES:
        raise _wrong_url(url, f"sslmode is {tls_mode}, which is none of {', '.join(TLS_MODES)}")
    if port_text is not None and not port_text.isdecimal():
        raise _wrong_url(url, f"{port_text} is not a port")
    target = ProxyTarget(host, int(port_text or port or PORT_DEFAULT), tls_mode, root)
    if target.socket_path and target.tls_mode.startswith("verify"):
        raise _wrong_url(url, "there is no TLS over a Unix socket")
    if root is not None and not Path(root).exists():
        raise _wrong_url(url, f"there is no file {root}")
    return target


def _wrong_url(url: str, reason: str) -> SmileError:
    return error("E100", f"{url}: {reason}", hint=_URL_HINT)
