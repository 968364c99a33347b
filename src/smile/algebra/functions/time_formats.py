"""TO_CHAR: a timestamp as text, in a format of PostgreSQL. Names of months and days are English."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from smile.algebra.coercions import EPOCH
from smile.algebra.functions.base import NOT_MONOTONE, ScalarFunction, Signature
from smile.algebra.types import DATE, NULL, STRING, TIME, TIMESTAMP, DataType, Value

MONTHS: Final = "January February March April May June July August September October November December".split()
_DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

_FIELDS: Final[Mapping[str, Callable[[datetime], str]]] = {
    "YYYY": lambda t: f"{t.year:04}",
    "YY": lambda t: f"{t.year % 100:02}",
    "Q": lambda t: str((t.month + 2) // 3),
    "MM": lambda t: f"{t.month:02}",
    "DDD": lambda t: f"{t.timetuple().tm_yday:03}",
    "DD": lambda t: f"{t.day:02}",
    "D": lambda t: str(t.isoweekday() % 7 + 1),
    "ID": lambda t: str(t.isoweekday()),
    "IYYY": lambda t: f"{t.isocalendar().year:04}",
    "IW": lambda t: f"{t.isocalendar().week:02}",
    "HH24": lambda t: f"{t.hour:02}",
    "HH12": lambda t: f"{(t.hour + 11) % 12 + 1:02}",
    "HH": lambda t: f"{(t.hour + 11) % 12 + 1:02}",
    "MI": lambda t: f"{t.minute:02}",
    "SS": lambda t: f"{t.second:02}",
    "MS": lambda t: f"{t.microsecond // 1000:03}",
    "US": lambda t: f"{t.microsecond:06}",
}
"""The fields that are written in any case."""

_WORDS: Final[Mapping[str, Callable[[datetime], str]]] = {
    "Mon": lambda t: MONTHS[t.month - 1][:3],
    "Dy": lambda t: _DAYS[t.weekday()][:3],
    "FMMonth": lambda t: MONTHS[t.month - 1],
    "FMDay": lambda t: _DAYS[t.weekday()],
    "AM": lambda t: "AM" if t.hour < 12 else "PM",
    "PM": lambda t: "AM" if t.hour < 12 else "PM",
}
"""The fields whose text has the case in which they are written."""

_ITEM: Final = re.compile(
    r'"(?P<quoted>[^"]*)"|(?P<field>'
    + "|".join(sorted((*_FIELDS, *_WORDS), key=len, reverse=True))
    + r")|(?P<sign>[^A-Za-z\"])",
    re.IGNORECASE,
)


@lru_cache(maxsize=256)
def _compile_format(format: str) -> tuple[Callable[[datetime], str], ...] | None:
    """The parts of a format. None if a letter of it is not part of a field."""
    items = format_items(format)
    return None if items is None else tuple(map(_part, items))


def format_items(format: str) -> list[re.Match[str]] | None:
    """The fields, quoted words and signs of a format. None if a letter of it is not part of a field."""
    items: list[re.Match[str]] = []
    position = 0
    while position < len(format):
        item = _ITEM.match(format, position)
        if item is None:
            return None
        position = item.end()
        items.append(item)
    return items


def _part(item: re.Match[str]) -> Callable[[datetime], str]:
    written = item["field"]
    if written is None:
        text = item["quoted"] if item["quoted"] is not None else item["sign"]
        return lambda t: text
    if written.upper() in _FIELDS:
        return _FIELDS[written.upper()]
    name = next(w for w in _WORDS if w.upper() == written.upper())
    letters = written.removeprefix(written[:2]) if name.startswith("FM") else written
    change_case = str.upper if letters.isupper() else str.lower if letters.islower() else str
    return lambda t: change_case(_WORDS[name](t))


def is_time_format(format: str) -> bool:
    return _compile_format(format) is not None


def _to_char_signature(types: tuple[DataType, ...]) -> Signature | None:
    fits = types[0] in (DATE, TIMESTAMP, TIME, NULL) and types[1] in (STRING, NULL)
    return Signature((TIMESTAMP, STRING), STRING) if fits else None


def _to_char(values: tuple[Value, ...], signature: Signature) -> Value:
    value, format = values
    assert isinstance(value, int)
    assert isinstance(format, str)
    parts = _compile_format(format)
    time = EPOCH + timedelta(microseconds=value)
    return None if parts is None else "".join(part(time) for part in parts)


FUNCTIONS: Final = (
    ScalarFunction(
        "to_char", (2, 2), _to_char_signature, _to_char, (NOT_MONOTONE,), partial=True, casts_arguments=True
    ),
)
