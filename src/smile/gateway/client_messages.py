"""JSON messages of clients: each has the fields of its kind with the right types, and no others."""

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from smile import limits
from smile.errors import error
from smile.gateway.http.bodies import SilenceBody, Tick
from smile.gateway.http.response import replace_surrogates

T = TypeVar("T")
U = TypeVar("U")

MessageId = Annotated[int, Meta(ge=-(2**53), le=2**53)]
JsonScalar = str | int | float | bool | None
"""The value of a column in a condition."""
SequenceNumber = Annotated[int, Meta(ge=0, le=limits.sequence_max)]


class ClientMessage(Struct, forbid_unknown_fields=True):
    """A message from a client over a WebSocket: one field that names its kind, and the fields that belong to it. A null
    field counts as missing."""

    publish: str | None = None
    events: Raw | UnsetType = UNSET
    id: MessageId | None = None
    producer: str | None = None
    seq: SequenceNumber | None = None
    silence: str | None = None
    to: Tick | None = None
    subscribe: str | None = None
    where: dict[str, JsonScalar] | None = None
    final: bool | None = None
    resume: str | None = None
    after: Annotated[dict[str, Tick], Meta(max_length=limits.streams_named_max)] | None = None
    window: Annotated[int, Meta(ge=1, le=limits.window_max)] | None = None
    name: str | None = None
    deliver: Literal["events", "rows"] | None = None
    start: Literal["all", "kept", "new"] | None = None
    scope: Literal["local", "global"] | None = None
    filter: str | None = None
    ack: MessageId | None = None
    n: Annotated[int, Meta(ge=0)] | None = None
    at: Annotated[dict[str, Tick], Meta(max_length=limits.streams_named_max)] | None = None
    unsubscribe: MessageId | None = None
    ping: Raw | UnsetType = UNSET


ALLOWED_FIELDS: Final = {
    "publish": ("events", "id", "producer", "seq"),
    "silence": ("to", "id"),
    "subscribe": ("id", "where", "final", "resume", "after", "window", "name", "deliver", "start", "scope", "filter"),
    "ack": ("n", "at"),
    "unsubscribe": (),
    "ping": (),
}
"""By kind, the other fields that the message may have."""

REQUIRED_FIELDS: Final = {"publish": ("events",), "silence": ("to",), "subscribe": ("id",)}

_FORBIDDEN_FIELDS: Final = {
    kind: tuple(f for f in ClientMessage.__struct_fields__ if f not in (kind, *allowed))
    for kind, allowed in ALLOWED_FIELDS.items()
}


_MISSING: Final = (None, UNSET)


def parse_silence(body: bytes) -> Tick:
    return _decode(body, _decode_silence).to


def decode_body(body: bytes, body_type: type[U]) -> U:
    return _decode(body, msgspec.json.Decoder(body_type).decode)


def parse_message(text: str) -> ClientMessage:
    return _decode(text, _decode_message)


def _decode(data: T, decode: Callable[[T], U]) -> U:
    """Decodes a message; E093 says what is wrong, and where."""
    try:
        return decode(data)
    except msgspec.ValidationError as problem:
        raise error("E093", f"wrong message: {_lower(problem)}") from None
    except (msgspec.DecodeError, UnicodeError) as problem:
        raise error("E093", f"this is not JSON: {_lower(problem)}") from None
    except RecursionError:
        raise error("E093", "this JSON is nested too deeply") from None


def message_kind(message: ClientMessage) -> str:
    for kind in ALLOWED_FIELDS:
        if getattr(message, kind) not in _MISSING:
            break
    else:
        raise error("E093", "the message has no known kind", hint=f"It needs one of {', '.join(ALLOWED_FIELDS)}.")
    for other in _FORBIDDEN_FIELDS[kind]:
        if getattr(message, other) not in _MISSING:
            raise error("E093", f"{other} is not allowed with {kind}")
    for needed in REQUIRED_FIELDS.get(kind, ()):
        if getattr(message, needed) in _MISSING:
            raise error("E093", f"{kind} needs {needed}")
    return kind


def _lower(problem: Exception) -> str:
    text = replace_surrogates(str(problem))
    return text[:1].lower() + text[1:]


_decode_silence: Final = msgspec.json.Decoder(SilenceBody).decode
_decode_message: Final = msgspec.json.Decoder(ClientMessage).decode
