"""Serves the console: the page at `/`, and its assets. Everybody may load it; what it shows, it asks for with a token.

The page may load and call only what comes from this broker. Assets whose names contain a hash of their content may be
kept by browsers for good.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from smile import __version__, limits
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import NoQuery
from smile.gateway.http.request import parse_query, read_header
from smile.gateway.http.response import HttpError

HTML: Final = "text/html"

_SECURITY_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; connect-src 'self'; object-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_REVALIDATE: Final = "no-cache"

_HASHED_NAME: Final = re.compile(r"-[0-9A-Za-z]{8}\.\w+$")
"""Other names, such as that of the client's module, stay the same when their content changes."""

_COMPRESSIBLE: Final = ("text/", "application/json", "image/svg+xml")


@dataclass(frozen=True)
class ConsoleFile:
    """A file of the console, as it is sent."""

    media_type: str
    content: bytes

    @cached_property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def compressed(self) -> bytes | None:
        """None if compression is of no use."""
        if not self.media_type.startswith(_COMPRESSIBLE) or len(self.content) < limits.compressed_bytes_min:
            return None
        return gzip.compress(self.content, mtime=0)


@cache
def console_files() -> Mapping[str, ConsoleFile]:
    """The files of the console by their paths, such as `index.html` and `assets/app-1a2b3c.js`."""
    folder = resources.files("smile") / "console" / "static"
    files = {"index.html": folder / "index.html"}
    assets = folder / "assets"
    if assets.is_dir():
        files |= {f"assets/{file.name}": file for file in assets.iterdir() if file.is_file()}
    return {path: ConsoleFile(_media_type(path), file.read_bytes()) for path, file in files.items()}


def _media_type(path: str) -> str:
    return _MEDIA_TYPES.get(path.rpartition(".")[2], "application/octet-stream")


_MEDIA_TYPES: Final = {
    "html": HTML, "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "png": "image/png",
    "woff2": "font/woff2", "tgz": "application/gzip",
}  # fmt: skip


async def show_console(_gateway: Gateway, request: Request) -> Response:
    """The console, for browsers. Other clients get a few lines of text about the interface."""
    parse_query(request, NoQuery)
    if HTML in (read_header(request, b"accept") or ""):
        return _respond(request, console_files()["index.html"], _REVALIDATE, vary="Accept, Accept-Encoding")
    text = _ABOUT.format(version=__version__, url=str(request.base_url).rstrip("/"))
    return Response(text, media_type="text/plain", headers={"vary": "Accept"})


async def show_asset(_gateway: Gateway, request: Request) -> Response:
    """A part of the console."""
    parse_query(request, NoQuery)
    file = console_files().get(f"assets/{request.path_params['asset']}")
    if file is None:
        # A page that was loaded from an older version asks for assets that are gone.
        raise HttpError(404, "E093", "the console has no such asset", "Load the page again.")
    has_hash = _HASHED_NAME.search(request.path_params["asset"])
    return _respond(request, file, _IMMUTABLE if has_hash else _REVALIDATE, vary="Accept-Encoding")


def _respond(request: Request, file: ConsoleFile, cache_control: str, vary: str) -> Response:
    headers = {**_SECURITY_HEADERS, "cache-control": cache_control, "etag": file.tag, "vary": vary}
    if file.tag in (read_header(request, b"if-none-match") or ""):
        return Response(status_code=304, headers=headers)
    content = file.content
    if file.compressed is not None and "gzip" in (read_header(request, b"accept-encoding") or ""):
        content, headers["content-encoding"] = file.compressed, "gzip"
    return Response(content, media_type=file.media_type, headers=headers)


_ABOUT: Final = """\
This is a broker of SMILE {version}. Open {url}/ in a browser for its console.

  curl {url}/ready                  whether it is ready
  curl {url}/streams                the streams, and their columns
  curl {url}/views                  the views, and their columns
  curl {url}/views/VIEW             the current rows of a view
  curl {url}/views/VIEW/changes     all rows, and then every change
  curl {url}/openapi.json           all operations

Where tokens are required, add: -H "Authorization: Bearer TOKEN"
"""
