"""Formats of DATE_FORMAT, in letters as in Java or with `%` as in MySQL, as formats of TO_CHAR."""

import re
from collections.abc import Mapping
from typing import Final

_LETTERS: Final[Mapping[str, str]] = {
    "yyyy": "YYYY", "yy": "YY", "MMMM": "FMMonth", "MMM": "Mon", "MM": "MM", "dd": "DD", "DDD": "DDD", "HH": "HH24",
    "hh": "HH12", "mm": "MI", "ss": "SS", "SSSSSS": "US", "SSS": "MS", "EEEE": "FMDay", "EEE": "Dy", "E": "Dy",
    "a": "AM",
}  # fmt: skip
_PERCENTS: Final[Mapping[str, str]] = {
    "Y": "YYYY", "y": "YY", "M": "FMMonth", "b": "Mon", "m": "MM", "d": "DD", "j": "DDD", "H": "HH24", "h": "HH12",
    "I": "HH12", "i": "MI", "s": "SS", "S": "SS", "f": "US", "W": "FMDay", "a": "Dy", "p": "AM", "T": "HH24:MI:SS",
    "%": "%",
}  # fmt: skip
_PART: Final = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>[^A-Za-z'])")


def to_char_format(format: str) -> str | None:
    """The same format for TO_CHAR. None if a part of it has no counterpart."""
    return _of_percents(format) if "%" in format else _of_letters(format)


def _of_percents(format: str) -> str | None:
    first, *rest = format.split("%")
    parts = [_literal(first)]
    fields = iter(rest)
    for part in fields:
        field = part[:1]
        if not field:  # two signs: the text goes on after them
            part, field = "%" + next(fields, ""), "%"
        if field not in _PERCENTS:
            return None
        parts += [_PERCENTS[field], _literal(part[1:])]
    return "".join(parts)


def _of_letters(format: str) -> str | None:
    parts: list[str] = []
    position = 0
    while position < len(format):
        part = _PART.match(format, position)
        if part is None:
            return None
        position = part.end()
        if part["letters"] is not None:
            if part["letters"] not in _LETTERS:
                return None
            parts.append(_LETTERS[part["letters"]])
        elif part["quoted"] is not None:
            parts.append(_literal(part["quoted"].replace("''", "'") or "'"))
        else:
            parts.append(_literal(part["sign"]))
    return "".join(parts)


def _literal(text: str) -> str:
    return f'"{text}"' if re.search("[A-Za-z]", text) else text
