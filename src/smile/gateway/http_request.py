"""A call over HTTP: its method, path and query as they came, its body read once and never beyond the limit."""

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
from smile.gateway.http_response import Headers, HttpError, HttpResponse
from smile.gateway.origins import single_header
from smile.log.input_batch import END, HORIZON_MIN
from smile.log.stream_schema import TICK_MAX

logger = logging.getLogger("smile.gateway")


class ClientDisconnected(Exception):
    """The caller has hung up."""


@dataclass
class HttpRequest:
    gateway: Gateway
    caller: Caller
    scope: Scope
    receive: Receive
    send: Send
    cors_headers: Headers = ()
    """What every answer has for the page that calls."""

    @property
    def name(self) -> str:
        """Of the stream or view in the path."""
        return str(self.scope["path_params"]["name"])

    def header(self, name: bytes) -> str | None:
        return single_header(self.scope["headers"], name)

    def require(self, right: Right, name: str = PROGRAM) -> None:
        self.gateway.require(self.caller, right, name)

    def query(self, names: Iterable[str], prefixes: Iterable[str] = ()) -> dict[str, str]:
        """The parameters of the query, which may have these names, or begin with these prefixes."""
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
            hint = f"At most {limits.query_parameters_max} parameters of UTF-8 text, %-encoded."
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
                raise error("E093", f"the parameter {name[:100]!r} is there twice")
            parameters[name] = value
        return parameters

    async def read_body(self, bytes_max: int) -> bytes:
        """E092 if it is too large. Somewhat more is read then, and forgotten: who is still speaking hears no answer."""
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
        """What takes long is made beside the loop."""
        self.gateway.require_running()
        return await self.gateway.loop.run_in_executor(self.gateway.workers, function)


Handler = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Gives the answer, or None if it has sent one."""


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
    """A tick as JSON or a query has it."""
    if isinstance(text, str):
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(TICK_MAX))):
            raise error("E093", f"{name}: {text[:40]!r} is not a tick", hint="Write a whole number, or text of one.")
        text = int(text)
    if not 0 <= text <= TICK_MAX:
        raise error("E093", f"{name}: {text} is not a tick", hint=f"Ticks lie between 0 and {TICK_MAX}.")
    return text


def parse_silence_tick(given: str | int) -> int:
    """How far a stream is said to be silent: a tick, or the end of the stream."""
    return END if str(given) == str(END) else parse_tick(given, "to")


def parse_count(text: str, name: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(maximum)) and int(text) <= maximum):
        raise error("E093", f"{name}: {text[:40]!r} is not a whole number up to {maximum:,}")
    return int(text)


def parse_ticks(given: Mapping[str, str | int]) -> dict[str, int]:
    """Progress may be given back as it was told: also of a stream that nothing was heard of, or that is finished."""
    special = {str(HORIZON_MIN): HORIZON_MIN, str(END): END}
    return {s: special[str(t)] if str(t) in special else parse_tick(t, f"after {s[:100]}") for s, t in given.items()}


def log_request(scope: Scope, status: int, start_s: float, principal: str) -> None:
    """Neither the query nor any header is logged: they may hold secrets."""
    level = logging.WARNING if status >= 500 else logging.DEBUG
    if logger.isEnabledFor(level):
        elapsed_ms = round((time.perf_counter() - start_s) * 1000, 3)
        fields = {"method": scope.get("method", "WS"), "path": scope["path"], "status": status, "ms": elapsed_ms}
        logger.log(level, "answered", extra=fields | {"principal": principal})
