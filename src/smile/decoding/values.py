"""Converts JSON values of events to values of their column's type. Each is converted exactly, or refused with a reason.

Text is parsed like literals of the language. A number is never converted to a float on the way to a decimal; on the way
to an int only if it is written as one, such as 1.0 or 1e3: see `whole_number`.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from smile import limits
from smile.algebra.arrays import encode_array, split_elements
from smile.algebra.coercions import INT_DIGITS, fit_number, parse_literal
from smile.algebra.json_values import NULL_TEXT, Json, JsonNumber, canonical_json, json_text
from smile.algebra.types import INT_MAX, TICK_MAX, DataType, Value

INTEGER_TYPES: Final = ("int", "time", "interval", "timestamp", "date")
"""Types whose values are integers, written as numbers or text. Many JSON writers need text beyond 2^53."""

WHOLE_FLOAT_MAX: Final = 2**53 - 1
"""Up to here, a float is exactly the whole number that was meant."""

_INTEGER: Final = re.compile(r"-?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")

_TYPE_NOUNS: Final = {
    "bool": "true or false",
    "int": "an int",
    "float": "a float",
    "decimal": "a decimal",
    "string": "a string",
    "bytes": "bytes",
    "json": "JSON",
    "time": "a time",
    "interval": "an interval",
    "timestamp": "a timestamp",
    "date": "a date",
    "array": "an array",
}

_TIME_EXAMPLES: Final = 'such as "2024-05-31 12:00:00", "2024-05-31T12:00:00.5Z" or "2024-05-31 14:00+02:00"'
_FORMAT_HINTS: Final = {
    "bool": "Write true or false, without quotes.",
    "int": "Write a whole number of 64 bits, such as 42; one beyond 2^53 may be text.",
    "float": "Write a number, such as 1.5, or null for no value; NaN and infinities are not allowed.",
    "decimal": "Write a number, or text that holds one, such as 12.50.",
    "string": "Write text in quotes.",
    "bytes": 'Write them in hexadecimal, such as "\\\\x0aff".',
    "json": (
        f"Write any JSON of at most {limits.json_depth_max} levels and {limits.json_chars_max:,} characters; in CSV, "
        "Arrow and Parquet, its text."
    ),
    "time": f"Write a time, {_TIME_EXAMPLES}, or the tick as a whole number from 0 to {TICK_MAX}, which may be text.",
    "interval": 'Write a number of ticks, or text such as "3 minutes".',
    "timestamp": f"Write a time, {_TIME_EXAMPLES}, or microseconds since 1970.",
    "date": 'Write days since 1970, or text such as "2024-05-31".',
    "array": 'Write a list of values, such as ["a", "b"], or text such as "{a,b}".',
}


def parse_value(value: Json, data: DataType) -> Value:
    """Raises ValueError with the reason, worded to follow `column: `."""
    if data.name == "json":
        return None if value is None else json_text(value)
    match value:
        case None:
            return None
        case bool() if data.name == "bool":
            return value
        case list() if data.name == "array":
            return array_of(value, data, parse_value)
        case JsonNumber() if data.name in (*INTEGER_TYPES, "float", "decimal"):
            return parse_number(value, data)
        case str() if not isinstance(value, JsonNumber) and data.name != "bool":
            return parse_text(value, data)
    raise ValueError(f"{describe_json(value)} is not {_TYPE_NOUNS[data.name]}")


def array_of(elements: Sequence[Any], data: DataType, parse: Callable[[Any, DataType], Value]) -> bytes:
    """The array of these elements, each read with `parse`. Raises ValueError."""
    if len(elements) > limits.array_elements_max:
        raise ValueError(f"an array has at most {limits.array_elements_max:,} elements, this one has {len(elements):,}")
    if any(isinstance(element, list) for element in elements):
        raise ValueError("an array of arrays is not an array of values")
    return encode_array([parse(element, data.element) for element in elements], data.element)


def whole_number(number: float, data: DataType) -> int:
    """The rule for floats in columns of whole numbers, wherever they come from: pandas makes floats of the ints of a
    column with gaps, and many writers write 1 as 1.0. Raises ValueError unless the float is exactly a whole number of
    the column's type."""
    whole = fit_number(int(number), data) if number.is_integer() and abs(number) <= WHOLE_FLOAT_MAX else None
    if not isinstance(whole, int) or not _is_published(whole, data):
        raise ValueError(f"{number!r} is not {_TYPE_NOUNS[data.name]}")
    return whole


def parse_number(text: str, data: DataType) -> Value:
    if data.name == "float":
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{describe_json(JsonNumber(text))} is out of range for {data}")
        return number
    if data.name != "decimal" and _FLOAT.fullmatch(text) and not _INTEGER.fullmatch(text):
        return _parse_whole(text, data, JsonNumber(text))
    if len(text) > limits.number_chars_max:
        raise ValueError(f"a number of {len(text):,} characters is out of range for {data}")
    if data.name == "decimal":
        return _literal(JsonNumber(text), data)
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{describe_json(JsonNumber(text))} is not {_TYPE_NOUNS[data.name]}")
    whole = fit_number(int(text), data)
    if whole is None or not _is_published(whole, data):
        raise ValueError(f"{describe_json(JsonNumber(text))} is out of range for {data}")
    return whole


def parse_text(text: str, data: DataType) -> Value:
    if data.name == "string":
        # JSON can contain lone surrogates, which are not valid text.
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError(f"{describe_json(text)} has half of a surrogate pair")
        return text
    if data.name in ("int", "time") and len(text) <= INT_DIGITS and text.isascii() and text.isdigit():
        # A shortcut for the usual form of a broker's tick.
        whole = int(text)
        if whole <= INT_MAX and _is_published(whole, data):
            return whole
    if data.name == "array":
        return _array_literal(text, data)
    if data.name == "json":
        canonical = canonical_json(text)
        return None if canonical == NULL_TEXT else canonical
    if data.name != "bytes" and len(text) > limits.number_chars_max:
        raise ValueError(f"a text of {len(text):,} characters is not {_TYPE_NOUNS[data.name]}")
    if data.name in ("int", "time") and ("." in text or "e" in text or "E" in text) and _FLOAT.fullmatch(text):
        return _parse_whole(text, data, text)
    return _literal(text, data)


def _parse_whole(text: str, data: DataType, described: str) -> int:
    try:
        return whole_number(float(text), data)
    except ValueError:
        raise ValueError(f"{describe_json(described)} is not {_TYPE_NOUNS[data.name]}") from None


def _array_literal(text: str, data: DataType) -> Value:
    try:
        elements = split_elements(text)
    except ValueError:
        raise ValueError(f"{describe_json(text)} is not {_TYPE_NOUNS[data.name]}") from None
    return array_of(elements, data, _parse_element)


def _parse_element(text: str | None, data: DataType) -> Value:
    if text is None:
        return None
    return bool(parse_literal(text, data)) if data.name == "bool" else parse_text(text, data)


def _is_published(value: Value, data: DataType) -> bool:
    """Whether a value may be published: a time is a tick."""
    return data.name != "time" or (isinstance(value, int) and 0 <= value <= TICK_MAX)


def _literal(text: str, data: DataType) -> Value:
    try:
        value = parse_literal(text, data)
        if not _is_published(value, data):
            raise ValueError("out of range")
        return value
    except ValueError as problem:
        if "out of range" in str(problem):
            raise ValueError(f"{describe_json(text)} is out of range for {data}") from None
        raise ValueError(f"{describe_json(text)} is not {_TYPE_NOUNS[data.name]}") from None


def format_hint(data: DataType) -> str:
    return _FORMAT_HINTS[data.name]


def describe_json(value: Json) -> str:
    """The value as JSON, shortened for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case JsonNumber():
            return shorten(value)
        case str():
            return f'"{shorten(value)}"'
        case list():
            return "an array"
    return "an object"


def shorten(text: str) -> str:
    """Shortens text for a message, and replaces characters that are not printable."""
    excerpt = text if len(text) <= _EXCERPT_CHARS_MAX else f"{text[:_EXCERPT_CHARS_MAX]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in excerpt)


_EXCERPT_CHARS_MAX: Final = limits.excerpt_chars_max // 2
