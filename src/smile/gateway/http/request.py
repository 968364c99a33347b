"""An HTTP request: its query is parsed strictly, and its body is read once and up to a limit."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from smile import limits
from smile.errors import did_you_mean, error
from smile.gateway.access import PROGRAM, Right
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.response import Headers, HttpError, HttpResponse
from smile.gateway.origins import single_header
from smile.horizons import END, HORIZON_MIN
from smile.log.decoding.stream_schema import TICK_MAX

logger = logging.getLogger("smile.gateway")


class ClientDisconnected(Exception):
    """The client has closed the connection."""


@dataclass
class HttpRequest:
    gateway: Gateway
    caller: Caller
    scope: Scope
    receive: Receive
    send: Send
    cors_headers: Headers = ()
    """Headers of every response to the web page that calls."""

    @property
    def name(self) -> str:
        """The stream or view in the path."""
        return str(self.scope["path_params"]["name"])

    def header(self, name: bytes) -> str | None:
        return single_header(self.scope["headers"], name)

    def require(self, right: Right, name: str = PROGRAM) -> None:
        self.gateway.require(self.caller, right, name)

    def query(self, names: Iterable[str], prefixes: Iterable[str] = ()) -> dict[str, str]:
        """The parameters of the query. Only these names, and names with these prefixes, are allowed."""
        query: bytes = self.scope["query_string"]
        if not query:
            return {}
        try:
            pairs = parse_qsl(
                query.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=limits.query_parameters_max,
            )
        except ValueError:
            hint = f"Send at most {limits.query_parameters_max} parameters, as percent-encoded UTF-8 text."
            raise error("E093", "the query string cannot be read", hint=hint) from None
        parameters: dict[str, str] = {}
        for name, value in pairs:
            if name not in names and not any(name.startswith(p) and name != p for p in prefixes):
                allowed = [*names, *(f"{prefix}…" for prefix in prefixes)]
                hint = did_you_mean(name, names) or (
                    f"There are {', '.join(allowed)}." if allowed else "There are none."
                )
                raise error("E093", f"there is no parameter {name[:100]!r}", hint=hint)
            if name in parameters:
                raise error("E093", f"the parameter {name[:100]!r} is given twice")
            parameters[name] = value
        return parameters

    async def read_body(self, bytes_max: int) -> bytes:
        """E092 if it is too large. Then some more is read and discarded, because a client that is still sending would
        not read the answer."""
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more and size <= bytes_max + limits.body_bytes_discarded_max:
            message = await self._receive_message()
            has_more = message.get("more_body", False)
            part: bytes = message.get("body", b"")
            size += len(part)
            if size <= bytes_max:
                parts.append(part)
        if size > bytes_max:
            raise HttpError(413, "E092", f"the body has more than {bytes_max:,} bytes", "Send it in parts.")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _receive_message(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        """Runs slow work outside the event loop."""
        self.gateway.require_running()
        return await self.gateway.loop.run_in_executor(self.gateway.workers, function)


Handler = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Returns the response, or None if it has sent one itself."""


async def send_response(send: Send, response: HttpResponse, extra_headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-length", str(len(response.body)).encode())] if response.status != 204 else []
    if response.content_type:
        headers.append((b"content-type", response.content_type))
    if response.status == 413:
        # The rest of the body would have to be read before the next request.
        headers.append((b"connection", b"close"))
    headers.append((b"cache-control", b"no-store"))
    headers.append((b"x-content-type-options", b"nosniff"))
    await send(
        {
            "type": "http.response.start",
            "status": response.status,
            "headers": [*headers, *response.headers, *extra_headers],
        }
    )
    await send({"type": "http.response.body", "body": response.body})


def parse_tick(text: str | int, name: str) -> int:
    """A tick in JSON or in a query."""
    if isinstance(text, str):
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(TICK_MAX))):
            raise error("E093", f"{name}: {text[:40]!r} is not a tick", hint="Write a whole number, also as text.")
        text = int(text)
    if not 0 <= text <= TICK_MAX:
        raise error("E093", f"{name}: {text} is not a tick", hint=f"Ticks lie between 0 and {TICK_MAX}.")
    return text


def parse_silence_tick(tick: str | int) -> int:
    """The tick up to which a stream is silent: a tick, or the end of the stream."""
    return END if str(tick) == str(END) else parse_tick(tick, "to")


def parse_count(text: str, name: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(maximum)) and int(text) <= maximum):
        raise error("E093", f"{name}: {text[:40]!r} is not a whole number up to {maximum:,}")
    return int(text)


def parse_ticks(ticks: Mapping[str, str | int]) -> dict[str, int]:
    """Accepts progress as it was sent, which includes streams without any progress and finished streams."""
    special = {str(HORIZON_MIN): HORIZON_MIN, str(END): END}
    return {s: special[str(t)] if str(t) in special else parse_tick(t, f"after {s[:100]}") for s, t in ticks.items()}


def log_request(scope: Scope, status: int, start_s: float, principal: str) -> None:
    """Logs neither the query nor headers: they may contain secrets."""
    level = logging.WARNING if status >= 500 else logging.DEBUG
    if logger.isEnabledFor(level):
        elapsed_ms = round((time.perf_counter() - start_s) * 1000, 3)
        fields = {"method": scope.get("method", "WS"), "path": scope["path"], "status": status, "ms": elapsed_ms}
        logger.log(level, "answered", extra=fields | {"principal": principal})
