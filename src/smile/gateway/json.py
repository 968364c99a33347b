"""JSON that comes in: each message has the fields of its kind, of the types they have, and no others."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from smile import limits
from smile.errors import error
from smile.gateway.answers import sound

T = TypeVar("T")
U = TypeVar("U")

Id = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Tick = int | str
Sequence = Annotated[int, Meta(ge=0, le=limits.sequence_max)]


class ToSilence(Struct, forbid_unknown_fields=True):
    to: Tick


class Message(Struct, forbid_unknown_fields=True):
    """What a client may send over a WebSocket: the field that says what is wanted, and those that go with it. A field
    that is null is as one that is not there."""

    publish: str | None = None
    events: Raw | UnsetType = UNSET
    id: Id | None = None
    producer: str | None = None
    seq: Sequence | None = None
    silence: str | None = None
    to: Tick | None = None
    subscribe: str | None = None
    where: dict[str, Any] | None = None
    resume: str | None = None
    after: dict[str, Tick] | None = None
    window: Annotated[int, Meta(ge=1, le=limits.window_max)] | None = None
    ack: Id | None = None
    n: Annotated[int, Meta(ge=0)] | None = None
    unsubscribe: Id | None = None
    ping: Raw | UnsetType = UNSET


FIELDS: Final = {
    "publish": ("events", "id", "producer", "seq"),
    "silence": ("to", "id"),
    "subscribe": ("id", "where", "resume", "after", "window"),
    "ack": ("n",),
    "unsubscribe": (),
    "ping": (),
}
"""By what is wanted, what may go with it."""

NEEDED: Final = {"publish": ("events",), "silence": ("to",), "subscribe": ("id",), "ack": ("n",)}

_OTHERS: Final = {
    kind: tuple(f for f in Message.__struct_fields__ if f not in (kind, *own)) for kind, own in FIELDS.items()
}


_MISSING: Final = (None, UNSET)


def to_silence(body: bytes) -> Tick:
    return _decoded(body, _to_silence).to


def message_of(text: str) -> Message:
    return _decoded(text, _message)


def _decoded(data: T, decode: Callable[[T], U]) -> U:
    """E093 says what is wrong, and where."""
    try:
        return decode(data)
    except msgspec.ValidationError as problem:
        raise error("E093", f"wrong message: {_lower(problem)}") from None
    except (msgspec.DecodeError, UnicodeError) as problem:
        raise error("E093", f"this is not JSON: {_lower(problem)}") from None
    except RecursionError:
        raise error("E093", "this JSON is nested too deeply") from None


def kind_of(message: Message) -> str:
    for kind in FIELDS:
        if getattr(message, kind) not in _MISSING:
            break
    else:
        raise error("E093", "the message does not say what is wanted", hint=f"It has one of {', '.join(FIELDS)}.")
    for other in _OTHERS[kind]:
        if getattr(message, other) not in _MISSING:
            raise error("E093", f"{other} does not go with {kind}")
    for needed in NEEDED.get(kind, ()):
        if getattr(message, needed) in _MISSING:
            raise error("E093", f"{kind} needs {needed}")
    return kind


def _lower(problem: Exception) -> str:
    text = sound(str(problem))
    return text[:1].lower() + text[1:]


_to_silence: Final = msgspec.json.Decoder(ToSilence).decode
_message: Final = msgspec.json.Decoder(Message).decode
