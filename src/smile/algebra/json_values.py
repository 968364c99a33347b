"""JSON values. The value of a column of type json is its canonical text, that of PostgreSQL's jsonb: of equal names the
last, names ordered by length, and no zeros at the end of a fraction.

So two JSON values are equal if and only if their texts are, and every part of a canonical text is one. Numbers are
decimals of any precision, never floats.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Final

import msgspec
from msgspec import Raw

from smile import limits

Key = str | int
"""The name of a member, or the position of an element. Negative positions count from the end."""


class JsonNumber(str):
    """A JSON number as it is written."""

    __slots__ = ()


Json = None | bool | str | list["Json"] | dict[str, "Json"]
"""Decoded JSON; its numbers are `JsonNumber`."""

NULL_TEXT: Final = "null"
"""The JSON value null, which is not NULL."""

_POSITION: Final = re.compile(r"\s*[+-]?[0-9]{1,10}")
_object_of: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_array_of: Final = msgspec.json.Decoder(list[Raw]).decode
_string_of: Final = msgspec.json.Decoder(str).decode


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse_constant(text: str) -> Json:
    raise ValueError(f"{text} is not a JSON number")


_decode: Final = json.JSONDecoder(parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_refuse_constant).decode


def canonical_json(text: str) -> str:
    """Raises ValueError with the reason if the text is not JSON, or beyond a limit."""
    _check_size(text)
    try:
        decoded: Json = _decode(text)
    except json.JSONDecodeError as problem:
        raise ValueError(f"not JSON: {problem.msg[:1].lower()}{problem.msg[1:]} at {problem.pos}") from None
    except RecursionError:
        raise _depth_error() from None
    return json_text(decoded)


def json_text(value: Json) -> str:
    """The canonical text of decoded JSON. Raises ValueError with the reason if it is beyond a limit."""
    pieces: list[str] = []
    _write(value, pieces, limits.json_depth_max)
    text = "".join(pieces)
    _check_size(text)
    return text


def _write(value: Json, pieces: list[str], levels: int) -> None:
    if isinstance(value, JsonNumber):
        pieces.append(number_text(value))
    elif isinstance(value, str):
        pieces.append(string_text(value))
    elif isinstance(value, dict):
        if not levels:
            raise _depth_error()
        start = "{"
        for _, name in sorted((_order_of(name), name) for name in value):
            pieces += [start, string_text(name), ": "]
            _write(value[name], pieces, levels - 1)
            start = ", "
        pieces.append("}" if value else "{}")
    elif isinstance(value, list):
        if not levels:
            raise _depth_error()
        start = "["
        for item in value:
            pieces.append(start)
            _write(item, pieces, levels - 1)
            start = ", "
        pieces.append("]" if value else "[]")
    else:
        pieces.append(NULL_TEXT if value is None else "true" if value else "false")


def _order_of(name: str) -> tuple[int, bytes]:
    encoded = name.encode(errors="surrogatepass")
    return len(encoded), encoded


def string_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a text in it has the character U+0000")
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("a text in it has half of a surrogate pair")
    return encode_basestring(text)


def number_text(text: str) -> str:
    """The digits of a number without exponent, and without zeros at the end of its fraction."""
    if len(text) > limits.number_chars_max:
        raise _number_error()
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise _number_error() from None
    if not number.is_finite():
        _refuse_constant(text)
    if not number:
        return "0"
    if abs(number.adjusted()) > limits.number_chars_max:
        raise _number_error()
    digits = f"{number:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if len(digits) > limits.number_chars_max:
        raise _number_error()
    return digits


def _number_error() -> ValueError:
    return ValueError(f"a number in it has more than {limits.number_chars_max:,} digits")


def _depth_error() -> ValueError:
    return ValueError(f"it is nested more than {limits.json_depth_max} levels deep")


def _check_size(text: str) -> None:
    if len(text) > limits.json_chars_max:
        raise ValueError(f"it has more than {limits.json_chars_max:,} characters")


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# All texts are canonical. A part that does not exist is None.


def member(text: str, key: Key) -> str | None:
    """The member of an object with this name, or the element of an array at this position. As in PostgreSQL, a value
    that is neither is the only element of itself."""
    if isinstance(key, str):
        part = _object_of(text).get(key) if text.startswith("{") else None
        return None if part is None else _text_of(part)
    if not text.startswith("["):
        return text if key in (0, -1) and not text.startswith("{") else None
    items = _array_of(text)
    return _text_of(items[key]) if -len(items) <= key < len(items) else None


def member_at(text: str, path: Sequence[str]) -> str | None:
    """The part at the end of a path. Positions in it are texts too."""
    part: str | None = text
    for step in path:
        if part is None:
            return None
        if part.startswith("["):
            part = member(part, int(step)) if _POSITION.fullmatch(step) else None
        else:
            part = member(part, step)
    return part


def plain_text(text: str | None) -> str | None:
    """The characters of a string, the text of anything else, and None for null."""
    if text is None or text == NULL_TEXT:
        return None
    return _string_of(text) if text.startswith('"') else text


def has_key(text: str, key: str) -> bool:
    """Whether an object has a member with this name, or an array this string as an element; or it is this string."""
    if text.startswith("{"):
        return key in _object_of(text)
    wanted = encode_basestring(key)
    if text.startswith("["):
        return wanted in map(_text_of, _array_of(text))
    return text == wanted


def type_name(text: str) -> str:
    names = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
    return names.get(text[0], "number")


def array_length(text: str) -> int | None:
    return len(_array_of(text)) if text.startswith("[") else None


def is_number(text: str) -> bool:
    return type_name(text) == "number"


def object_text(members: Sequence[tuple[str, str]]) -> str:
    """An object of names and texts of values."""
    last = dict(members)
    pairs = [f"{string_text(name)}: {last[name]}" for name in sorted(last, key=_order_of)]
    return _checked("{" + ", ".join(pairs) + "}")


def array_text(items: Sequence[str]) -> str:
    return _checked("[" + ", ".join(items) + "]")


def _checked(text: str) -> str:
    _check_size(text)
    _depth_of(text)
    return text


def _depth_of(text: str) -> None:
    """Raises ValueError if a text that was assembled is nested too deeply."""
    if text.count("[") + text.count("{") > limits.json_depth_max:
        canonical_json(text)


def key_text(text: str) -> str:
    """The JSON of a value in the key of a row, where null is that of NULL. JSON null is `{"json": null}`, and a value
    that looks so is wrapped once more, so that different keys are written differently."""
    is_wrapped = text.startswith('{"json": ') and len(_object_of(text)) == 1
    return f'{{"json": {text}}}' if is_wrapped or text == NULL_TEXT else text


def _text_of(part: Raw) -> str:
    return bytes(part).decode()
