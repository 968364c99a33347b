"""String functions. Characters are counted from 1. Strings are ordered by code points."""

import hashlib
import sys
from functools import lru_cache
from typing import Any, Final

from smile import limits
from smile.algebra.coercions import can_cast
from smile.algebra.functions.base import (
    INCREASING,
    NOT_MONOTONE,
    ScalarFunction,
    Signature,
    fixed_signature,
    is_text_type,
)
from smile.algebra.types import BOOL, BYTES, INT, JSON, NULL, STRING, DataType, Value

TextOrInt = Any  # str or int, depending on the signature: the functions below get values of their argument types


def _concatenation_signature(types: tuple[DataType, ...]) -> Signature | None:
    """Two byte strings, or a string and a value that can be cast to a string."""
    if BYTES in types and all(t in (BYTES, NULL) for t in types):
        return Signature((BYTES, BYTES), BYTES)
    # PostgreSQL merges two JSON values, and a JSON value with a literal, which is JSON then.
    fits = any(is_text_type(t) for t in types) and all(can_cast(t, STRING) and t != JSON for t in types)
    return Signature((STRING, STRING), STRING) if fits else None


def _concat_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((STRING,) * len(types), STRING) if all(can_cast(t, STRING) for t in types) else None


def _length_signature(types: tuple[DataType, ...]) -> Signature | None:
    return (
        Signature((BYTES if types[0] == BYTES else STRING,), INT)
        if is_text_type(types[0]) or types[0] == BYTES
        else None
    )


_ANY_CHARACTER: Final = object()
_ANY_STRING: Final = object()


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, escape: str) -> tuple[object, ...] | None:
    """The parts of the pattern, or None if it ends with the escape character."""
    parts: list[object] = []
    characters = iter(pattern)
    for c in characters:
        if c == escape:
            literal = next(characters, None)
            if literal is None:
                return None
            parts.append(literal)
        else:
            parts.append(_ANY_STRING if c == "%" else _ANY_CHARACTER if c == "_" else c)
    return tuple(parts)


def is_any_string(part: object) -> bool:
    """Whether a part of a pattern is `%`."""
    return part is _ANY_STRING


def _is_match(text: str, parts: tuple[object, ...]) -> bool:
    """Backtracks only to the last `%`, so that the time is at most the product of both lengths."""
    position = part_index = 0
    retry: tuple[int, int] | None = None
    while position < len(text):
        if part_index < len(parts) and parts[part_index] is _ANY_STRING:
            retry = (position, part_index)
            part_index += 1
        elif part_index < len(parts) and (parts[part_index] is _ANY_CHARACTER or parts[part_index] == text[position]):
            position, part_index = position + 1, part_index + 1
        elif retry is not None:
            retry = (retry[0] + 1, retry[1])
            position, part_index = retry[0], retry[1] + 1
        else:
            return False
    return all(p is _ANY_STRING for p in parts[part_index:])


def _like(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    text, pattern = values[:2]
    escape = values[2] if len(values) == 3 else "\\"
    parts = compile_pattern(pattern, escape) if len(escape) <= 1 else None
    return None if parts is None else _is_match(text, parts)


def _ilike(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    return _like((values[0].lower(), values[1].lower(), *values[2:]), signature)


def _substring(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    text, start = values[:2]
    if len(values) == 2:
        return text[max(0, start - 1) :]  # type: ignore[no-any-return]
    if values[2] < 0:
        return None
    return text[max(0, start - 1) : max(0, start - 1 + values[2])]  # type: ignore[no-any-return]


def _left(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    return values[0][: values[1]]  # type: ignore[no-any-return]


def _right(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    """A negative count removes as many characters from the left, as in PostgreSQL."""
    text, count = values
    return text[-count:] if count < 0 else text[max(0, len(text) - count) :]  # type: ignore[no-any-return]


def _replace(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    text, old, new = values
    return text.replace(old, new) if old else text  # type: ignore[no-any-return]


def _split_part(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    text, separator, number = values
    if number == 0:
        return None
    parts = text.split(separator) if separator else [text]
    index = number - 1 if number > 0 else len(parts) + number
    return parts[index] if 0 <= index < len(parts) else ""


def _concatenate(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    return values[0] + values[1]  # type: ignore[no-any-return]


def _concat(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    return "".join(v for v in values if v is not None)


def _concat_ws(values: tuple[TextOrInt, ...], signature: Signature) -> Value:
    separator, *parts = values
    return None if separator is None else separator.join(p for p in parts if p is not None)


def _padding(text: str, length: int, fill: str) -> str | None:
    """The characters to add to a text. None if the result would be longer than any text may be."""
    missing = max(length - len(text), 0) if fill else 0
    if missing > limits.padded_characters_max:
        return None
    return (fill * (missing // len(fill) + 1))[:missing] if fill else ""


def _pad_left(text: str, length: int, fill: str = " ") -> str | None:
    padding = _padding(text, length, fill)
    return None if padding is None else padding + text[: max(length, 0)]


def _pad_right(text: str, length: int, fill: str = " ") -> str | None:
    padding = _padding(text, length, fill)
    return None if padding is None else text[: max(length, 0)] + padding


def _repeat(text: str, count: int) -> str | None:
    return None if len(text) * count > limits.padded_characters_max else text * max(count, 0)


def _initcap(text: str) -> str:
    """The first character of every word in upper case, the others in lower case. A word has letters and digits."""
    characters, is_inside = [], False
    for c in text:
        characters.append(c.lower() if is_inside else c.upper())
        is_inside = c.isalnum()
    return "".join(characters)


def _translate(text: str, old: str, new: str) -> str:
    """Characters of `old` that have no counterpart in `new` are removed. Of equal ones, the first counts."""
    table = {ord(c): new[i] if i < len(new) else None for i, c in reversed(list(enumerate(old)))}
    return text.translate(table)


def _chr(code: int) -> str | None:
    return chr(code) if 0 < code <= sys.maxunicode and not 0xD800 <= code <= 0xDFFF else None


_DEFAULT_TRIM_CHARACTERS: Final = " "


def _simple_function(
    name: str, args: tuple[DataType, ...], result: DataType, function: Any, optional: int = 0, partial: bool = False
) -> ScalarFunction:
    """A function with fixed argument types that a Python function computes."""
    arity = (len(args) - optional, len(args))
    return ScalarFunction(
        name,
        arity,
        fixed_signature(args, result, optional),
        lambda values, signature: function(*values),
        (NOT_MONOTONE,),
        partial=partial,
    )


FUNCTIONS: Final = (
    ScalarFunction(
        "||", (2, 2), _concatenation_signature, _concatenate, (NOT_MONOTONE, INCREASING), casts_arguments=True
    ),
    ScalarFunction(
        "concat", (1, None), _concat_signature, _concat, (NOT_MONOTONE,), strict=False, casts_arguments=True
    ),
    ScalarFunction(
        "concat_ws", (2, None), _concat_signature, _concat_ws, (NOT_MONOTONE,), strict=False, casts_arguments=True
    ),
    ScalarFunction("like", (2, 3), fixed_signature((STRING,) * 3, BOOL, 1), _like, (NOT_MONOTONE,), partial=True),
    ScalarFunction("ilike", (2, 3), fixed_signature((STRING,) * 3, BOOL, 1), _ilike, (NOT_MONOTONE,), partial=True),
    ScalarFunction("length", (1, 1), _length_signature, lambda values, signature: len(values[0]), (NOT_MONOTONE,)),  # type: ignore[arg-type]
    ScalarFunction(
        "substring", (2, 3), fixed_signature((STRING, INT, INT), STRING, 1), _substring, (NOT_MONOTONE,), partial=True
    ),
    ScalarFunction("left", (2, 2), fixed_signature((STRING, INT), STRING), _left, (NOT_MONOTONE,)),
    ScalarFunction("right", (2, 2), fixed_signature((STRING, INT), STRING), _right, (NOT_MONOTONE,)),
    ScalarFunction("replace", (3, 3), fixed_signature((STRING,) * 3, STRING), _replace, (NOT_MONOTONE,)),
    ScalarFunction(
        "split_part", (3, 3), fixed_signature((STRING, STRING, INT), STRING), _split_part, (NOT_MONOTONE,), partial=True
    ),
    _simple_function("lower", (STRING,), STRING, str.lower),
    _simple_function("upper", (STRING,), STRING, str.upper),
    _simple_function("reverse", (STRING,), STRING, lambda text: text[::-1]),
    _simple_function(
        "trim",
        (STRING, STRING),
        STRING,
        lambda text, characters=_DEFAULT_TRIM_CHARACTERS: text.strip(characters) if characters else text,
        1,
    ),
    _simple_function(
        "ltrim",
        (STRING, STRING),
        STRING,
        lambda text, characters=_DEFAULT_TRIM_CHARACTERS: text.lstrip(characters) if characters else text,
        1,
    ),
    _simple_function(
        "rtrim",
        (STRING, STRING),
        STRING,
        lambda text, characters=_DEFAULT_TRIM_CHARACTERS: text.rstrip(characters) if characters else text,
        1,
    ),
    _simple_function("lpad", (STRING, INT, STRING), STRING, _pad_left, 1, partial=True),
    _simple_function("rpad", (STRING, INT, STRING), STRING, _pad_right, 1, partial=True),
    _simple_function("repeat", (STRING, INT), STRING, _repeat, partial=True),
    _simple_function("initcap", (STRING,), STRING, _initcap),
    _simple_function("translate", (STRING, STRING, STRING), STRING, _translate),
    _simple_function("chr", (INT,), STRING, _chr, partial=True),
    _simple_function("ascii", (STRING,), INT, lambda text: ord(text[0]) if text else 0),
    _simple_function(
        "md5", (STRING,), STRING, lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    ),
    _simple_function("position", (STRING, STRING), INT, lambda part, text: text.find(part) + 1),
    _simple_function("starts_with", (STRING, STRING), BOOL, str.startswith),
)
