"""Arrays: lists of values of one type, as bytes.

The bytes of two arrays are ordered as the arrays are in PostgreSQL: by their first different element, NULL after every
value, and a shorter array before a longer one that begins with it. Equal arrays have equal bytes. The bytes of an array
are those of its elements, one after the other: to concatenate arrays is to concatenate their bytes.
"""

import re
import struct
from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Final

from smile.algebra.types import DataType, Value

_VALUE, _NULL = b"\x01", b"\x02"
"""The first byte of an element."""

_TEXT_END: Final = b"\x00\x00"
_ZERO, _ESCAPED_ZERO = b"\x00", b"\x00\xff"
_EXACT: Final = Context(prec=100)
_WIDTHS: Final = {"bool": 1, "decimal": 17}
"""The bytes of a number. All others have 8."""


def encode_array(values: Iterable[Value], element: DataType) -> bytes:
    return b"".join(_NULL if value is None else _VALUE + _encode_value(value, element) for value in values)


def decode_array(encoded: bytes, element: DataType) -> list[Value]:
    """The elements. The bytes must be those of an array of this type."""
    values, position = list[Value](), 0
    is_text, width = element.name in ("string", "bytes"), _WIDTHS.get(element.name, 8)
    while position < len(encoded):
        if encoded[position : position + 1] == _NULL:
            values.append(None)
            position += 1
            continue
        end = _text_end(encoded, position + 1) if is_text else position + 1 + width
        values.append(_decode_value(encoded[position + 1 : end], element))
        position = end + len(_TEXT_END) if is_text else end
    return values


def _text_end(encoded: bytes, start: int) -> int:
    """Where a text ends: at the first zero that is not escaped."""
    end = encoded.index(_TEXT_END[:1], start)
    while encoded[end : end + 2] == _ESCAPED_ZERO:
        end = encoded.index(_TEXT_END[:1], end + 2)
    return end


def _encode_value(value: Value, element: DataType) -> bytes:
    match value:
        case str():
            return value.encode().replace(_ZERO, _ESCAPED_ZERO) + _TEXT_END
        case bytes():
            return value.replace(_ZERO, _ESCAPED_ZERO) + _TEXT_END
        case bool():
            return bytes([value])
        case float():
            (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # minus zero is zero
            return int.to_bytes(bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63, 8)
        case Decimal():
            return _encode_int(int(value.scaleb(element.scale or 0, _EXACT)), 17)
    assert isinstance(value, int)
    return _encode_int(value, 8)


def _encode_int(value: int, width: int) -> bytes:
    return (value + (1 << (8 * width - 1))).to_bytes(width)


def _decode_value(encoded: bytes, element: DataType) -> Value:
    match element.name:
        case "string":
            return encoded.replace(_ESCAPED_ZERO, _ZERO).decode()
        case "bytes":
            return encoded.replace(_ESCAPED_ZERO, _ZERO)
        case "bool":
            return encoded != _ZERO
        case "float":
            bits = int.from_bytes(encoded)
            number: float = struct.unpack(
                ">d", int.to_bytes(bits ^ (1 << 63) if bits >> 63 else bits ^ (2**64 - 1), 8)
            )[0]
            return number
    whole = int.from_bytes(encoded) - (1 << (8 * len(encoded) - 1))
    return Decimal(whole).scaleb(-(element.scale or 0), _EXACT) if element.name == "decimal" else whole


# ── text, as in PostgreSQL: {a,"b c",NULL} ──────────────────────────────────────────────────────────────────────────

_ELEMENT: Final = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\\s]|\\.|[^\S\n](?=[^,}\s]))+))\s*([,}])', re.DOTALL
)
_QUOTED_CHARACTERS: Final = re.compile(r'["\\{},\s]')


def join_elements(texts: Iterable[str | None]) -> str:
    """The text of an array whose elements have these texts."""
    return "{" + ",".join("NULL" if text is None else _quote(text) for text in texts) + "}"


def _quote(text: str) -> str:
    if text and text.upper() != "NULL" and not _QUOTED_CHARACTERS.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def split_elements(text: str) -> list[str | None]:
    """The texts of the elements. Raises ValueError if it is not the text of an array."""
    stripped = text.strip()
    if re.fullmatch(r"\{\s*\}", stripped):
        return []
    elements, position, end = list[str | None](), 1, ","
    while end == ",":
        element = _ELEMENT.match(stripped, position) if stripped.startswith("{") else None
        if element is None:
            raise ValueError(f"'{text}' is not an array; write for example '{{1,2,NULL}}'")
        quoted, plain, end = element.groups()
        is_null = plain is not None and plain.upper() == "NULL"
        elements.append(None if is_null else re.sub(r"\\(.)", r"\1", plain or quoted or "", flags=re.DOTALL))
        position = element.end()
    if position != len(stripped):
        raise ValueError(f"'{text}' is not an array: there is text after it")
    return elements
