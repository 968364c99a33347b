"""Functions of strings: characters are counted from 1, and order is that of code points."""

from functools import lru_cache
from typing import Any, Final

from smile.algebra.coercions import can_cast
from smile.algebra.functions_base import NEITHER, UP, Scalar, Signature, fixed, is_text
from smile.algebra.types import BOOL, BYTES, INT, NULL, STRING, DataType, Value

Text = Any  # str, or int where the signature says so: the functions below are handed what their signatures demand


def _fit_concatenation(types: tuple[DataType, ...]) -> Signature | None:
    """Two byte strings, or a string and anything that has a text."""
    if BYTES in types and all(t in (BYTES, NULL) for t in types):
        return Signature((BYTES, BYTES), BYTES)
    texts = any(is_text(t) for t in types) and all(can_cast(t, STRING) for t in types)
    return Signature((STRING, STRING), STRING) if texts else None


def _fit_concat(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((STRING,) * len(types), STRING) if all(can_cast(t, STRING) for t in types) else None


def _fit_length(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((BYTES if types[0] == BYTES else STRING,), INT) if is_text(types[0]) or types[0] == BYTES else None


_ANY_ONE: Final = object()
_ANY_RUN: Final = object()


@lru_cache(maxsize=1024)
def _pattern(pattern: str, escape: str) -> tuple[object, ...] | None:
    """The pattern's parts, or None if it ends in the middle of an escape."""
    parts: list[object] = []
    characters = iter(pattern)
    for c in characters:
        if c == escape:
            literal = next(characters, None)
            if literal is None:
                return None
            parts.append(literal)
        else:
            parts.append(_ANY_RUN if c == "%" else _ANY_ONE if c == "_" else c)
    return tuple(parts)


def _matches(text: str, parts: tuple[object, ...]) -> bool:
    """Only the last `%` is ever reconsidered, so that no pattern takes more than length times length."""
    at = part = 0
    run: tuple[int, int] | None = None
    while at < len(text):
        if part < len(parts) and parts[part] is _ANY_RUN:
            run = (at, part)
            part += 1
        elif part < len(parts) and (parts[part] is _ANY_ONE or parts[part] == text[at]):
            at, part = at + 1, part + 1
        elif run is not None:
            run = (run[0] + 1, run[1])
            at, part = run[0], run[1] + 1
        else:
            return False
    return all(p is _ANY_RUN for p in parts[part:])


def _like(values: tuple[Text, ...], signature: Signature) -> Value:
    text, pattern = values[:2]
    escape = values[2] if len(values) == 3 else "\\"
    parts = _pattern(pattern, escape) if len(escape) <= 1 else None
    return None if parts is None else _matches(text, parts)


def _ilike(values: tuple[Text, ...], signature: Signature) -> Value:
    return _like((values[0].lower(), values[1].lower(), *values[2:]), signature)


def _substring(values: tuple[Text, ...], signature: Signature) -> Value:
    text, start = values[:2]
    if len(values) == 2:
        return text[max(0, start - 1) :]  # type: ignore[no-any-return]
    if values[2] < 0:
        return None
    return text[max(0, start - 1) : max(0, start - 1 + values[2])]  # type: ignore[no-any-return]


def _left(values: tuple[Text, ...], signature: Signature) -> Value:
    return values[0][: values[1]]  # type: ignore[no-any-return]


def _right(values: tuple[Text, ...], signature: Signature) -> Value:
    """A negative count leaves out that many from the left, as in PostgreSQL."""
    text, count = values
    return text[-count:] if count < 0 else text[max(0, len(text) - count) :]  # type: ignore[no-any-return]


def _replace(values: tuple[Text, ...], signature: Signature) -> Value:
    text, old, new = values
    return text.replace(old, new) if old else text  # type: ignore[no-any-return]


def _split_part(values: tuple[Text, ...], signature: Signature) -> Value:
    text, separator, number = values
    if number == 0:
        return None
    parts = text.split(separator) if separator else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _concatenated(values: tuple[Text, ...], signature: Signature) -> Value:
    return values[0] + values[1]  # type: ignore[no-any-return]


def _concat(values: tuple[Text, ...], signature: Signature) -> Value:
    return "".join(v for v in values if v is not None)


_SPACES: Final = " "


def _plain(name: str, args: tuple[DataType, ...], result: DataType, of: Any, optional: int = 0) -> Scalar:
    """A function of exact types that Python has already."""
    arity = (len(args) - optional, len(args))
    return Scalar(name, arity, fixed(args, result, optional), lambda values, signature: of(*values), (NEITHER,))


FUNCTIONS: Final = (
    Scalar("||", (2, 2), _fit_concatenation, _concatenated, (NEITHER, UP)),
    Scalar("concat", (1, None), _fit_concat, _concat, (NEITHER,), strict=False),
    Scalar("like", (2, 3), fixed((STRING,) * 3, BOOL, 1), _like, (NEITHER,), partial=True),
    Scalar("ilike", (2, 3), fixed((STRING,) * 3, BOOL, 1), _ilike, (NEITHER,), partial=True),
    Scalar("length", (1, 1), _fit_length, lambda values, signature: len(values[0]), (NEITHER,)),  # type: ignore[arg-type]
    Scalar("substring", (2, 3), fixed((STRING, INT, INT), STRING, 1), _substring, (NEITHER,), partial=True),
    Scalar("left", (2, 2), fixed((STRING, INT), STRING), _left, (NEITHER,)),
    Scalar("right", (2, 2), fixed((STRING, INT), STRING), _right, (NEITHER,)),
    Scalar("replace", (3, 3), fixed((STRING,) * 3, STRING), _replace, (NEITHER,)),
    Scalar("split_part", (3, 3), fixed((STRING, STRING, INT), STRING), _split_part, (NEITHER,), partial=True),
    _plain("lower", (STRING,), STRING, str.lower),
    _plain("upper", (STRING,), STRING, str.upper),
    _plain("reverse", (STRING,), STRING, lambda text: text[::-1]),
    _plain("trim", (STRING, STRING), STRING, lambda text, of=_SPACES: text.strip(of) if of else text, 1),
    _plain("ltrim", (STRING, STRING), STRING, lambda text, of=_SPACES: text.lstrip(of) if of else text, 1),
    _plain("rtrim", (STRING, STRING), STRING, lambda text, of=_SPACES: text.rstrip(of) if of else text, 1),
    _plain("position", (STRING, STRING), INT, lambda part, text: text.find(part) + 1),
    _plain("starts_with", (STRING, STRING), BOOL, str.startswith),
)
