"""A call over HTTP: its method, path and query as they came, its body read once and never beyond the limit."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from smile import limits
from smile.errors import error, nearest
from smile.gateway.access import PROGRAM, Right
from smile.gateway.answers import Answer, Headers, Refused
from smile.gateway.gateway import Gateway, Visitor
from smile.gateway.origins import one_header
from smile.log.frame import END, NOTHING
from smile.log.shape import TICK_MAX

logger = logging.getLogger("smile.gateway")


class Gone(Exception):
    """The caller has hung up."""


@dataclass
class Call:
    gateway: Gateway
    visitor: Visitor
    scope: Scope
    receive: Receive
    send: Send
    shared: Headers = ()
    """What every answer has for the page that calls."""

    @property
    def name(self) -> str:
        """Of the stream or view in the path."""
        return str(self.scope["path_params"]["name"])

    def header(self, name: bytes) -> str | None:
        return one_header(self.scope["headers"], name)

    def require(self, right: Right, name: str = PROGRAM) -> None:
        self.gateway.require(self.visitor, right, name)

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
        found: dict[str, str] = {}
        for name, value in pairs:
            if name not in names and not any(name.startswith(p) and name != p for p in prefixes):
                known = [*names, *(f"{prefix}…" for prefix in prefixes)]
                hint = nearest(name, names) or (f"There are {', '.join(known)}." if known else "There are none.")
                raise error("E093", f"there is no parameter {name[:100]!r}", hint=hint)
            if name in found:
                raise error("E093", f"the parameter {name[:100]!r} is there twice")
            found[name] = value
        return found

    async def body(self, bytes_max: int) -> bytes:
        """E092 if it is too large. Somewhat more is read then, and forgotten: who is still speaking hears no answer."""
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= bytes_max + limits.body_bytes_forgotten_max:
            message = await self._next()
            more = message.get("more_body", False)
            part: bytes = message.get("body", b"")
            size += len(part)
            if size <= bytes_max:
                parts.append(part)
        if size > bytes_max:
            raise Refused(413, "E092", f"the body has more than {bytes_max:,} bytes", "Send it in parts.")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _next(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise Gone
        return message

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """What takes long is made beside the loop."""
        self.gateway.require_running()
        return await self.gateway.loop.run_in_executor(self.gateway.workers, function)


Handler = Callable[[Call], Awaitable[Answer | None]]
"""Gives the answer, or None if it has sent one."""


async def respond(send: Send, answer: Answer, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-length", str(len(answer.body)).encode())] if answer.status != 204 else []
    if answer.kind:
        headers.append((b"content-type", answer.kind))
    if answer.status == 413:
        # The rest of the body would have to be read before the next request.
        headers.append((b"connection", b"close"))
    headers.append((b"cache-control", b"no-store"))
    headers.append((b"x-content-type-options", b"nosniff"))
    await send({"type": "http.response.start", "status": answer.status, "headers": [*headers, *answer.headers, *more]})
    await send({"type": "http.response.body", "body": answer.body})


def tick(text: str | int, what: str) -> int:
    """A tick as JSON or a query has it."""
    if isinstance(text, str):
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(TICK_MAX))):
            raise error("E093", f"{what}: {text[:40]!r} is not a tick", hint="Write a whole number, or text of one.")
        text = int(text)
    if not 0 <= text <= TICK_MAX:
        raise error("E093", f"{what}: {text} is not a tick", hint=f"Ticks lie between 0 and {TICK_MAX}.")
    return text


def silence_tick(given: str | int) -> int:
    """How far a stream is said to be silent: a tick, or the end of the stream."""
    return END if str(given) == str(END) else tick(given, "to")


def whole(text: str, what: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise error("E093", f"{what}: {text[:40]!r} is not a whole number up to {most:,}")
    return int(text)


def ticks(given: Mapping[str, str | int]) -> dict[str, int]:
    """Progress may be given back as it was told: also of a stream that nothing was heard of, or that is finished."""
    ends = {str(NOTHING): NOTHING, str(END): END}
    return {s: ends[str(t)] if str(t) in ends else tick(t, f"after {s[:100]}") for s, t in given.items()}


def log_call(scope: Scope, status: int, begun: float, principal: str) -> None:
    """Neither the query nor any header is logged: they may hold secrets."""
    level = logging.WARNING if status >= 500 else logging.DEBUG
    if logger.isEnabledFor(level):
        took = round((time.perf_counter() - begun) * 1000, 3)
        fields = {"method": scope.get("method", "WS"), "path": scope["path"], "status": status, "ms": took}
        logger.log(level, "answered", extra=fields | {"principal": principal})
