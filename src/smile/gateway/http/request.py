"""Reads HTTP requests: queries are parsed strictly, and bodies are read up to a limit."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import HTTPConnection, Request

from smile import limits
from smile.errors import did_you_mean, error
from smile.gateway.http.bodies import AFTER_PREFIX, WHERE_PREFIX
from smile.gateway.http.response import HttpError
from smile.gateway.origins import single_header
from smile.horizons import END, HORIZON_MIN


def parse_query(request: Request, query_type: type[Struct]) -> dict[str, str]:
    """The parameters of the query. Only the fields of the type are allowed; the field `conditions` stands for names
    with the prefixes of conditions."""
    query: bytes = request.scope["query_string"]
    if not query:
        return {}
    names = [name for name in query_type.__struct_fields__ if name != "conditions"]
    prefixes = (WHERE_PREFIX, AFTER_PREFIX) if "conditions" in query_type.__struct_fields__ else ()
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
            hint = did_you_mean(name, names) or (f"There are {', '.join(allowed)}." if allowed else "There are none.")
            raise error("E093", f"there is no parameter {name[:100]!r}", hint=hint)
        if name in parameters:
            raise error("E093", f"the parameter {name[:100]!r} is given twice")
        parameters[name] = value
    return parameters


async def read_body(request: Request, bytes_max: int) -> bytes:
    """E092 if it is too large. Then some more is read and discarded, because a client that is still sending would not
    read the answer."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= bytes_max:
            parts.append(part)
        elif size > bytes_max + limits.body_bytes_discarded_max:
            break
    if size > bytes_max:
        raise HttpError(413, "E092", f"the body has more than {bytes_max:,} bytes", "Send it in parts.")
    return parts[0] if len(parts) == 2 else b"".join(parts)  # the last part is empty


def read_content_type(request: Request, default: str) -> str:
    return (read_header(request, b"content-type") or default).partition(";")[0].strip().lower()


def read_header(connection: HTTPConnection, name: bytes) -> str | None:
    """E093 if the header is given twice: it would be ambiguous."""
    return single_header(connection.scope["headers"], name)


def parse_tick(text: str | int, name: str) -> int:
    """A tick in JSON or in a query. It may be a horizon, so it may lie after the last tick of an event."""
    if isinstance(text, str):
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(END))):
            raise error("E093", f"{name}: {text[:40]!r} is not a tick", hint="Write a whole number, also as text.")
        text = int(text)
    if not 0 <= text <= END:
        raise error("E093", f"{name}: {text} is not a tick", hint=f"Ticks lie between 0 and {END}.")
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
