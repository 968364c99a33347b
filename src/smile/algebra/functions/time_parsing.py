"""TO_TIMESTAMP: the time that a text names in a format of PostgreSQL, as TO_CHAR writes it. What the text does not name
is that of the beginning of the year."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from smile.algebra.coercions import EPOCH
from smile.algebra.functions.base import NOT_MONOTONE, ScalarFunction, Signature
from smile.algebra.functions.time_formats import MONTHS, format_items
from smile.algebra.types import NULL, STRING, TIMESTAMP, DataType, Value

_DIGITS: Final = {
    "YYYY": 4, "MM": 2, "DDD": 3, "DD": 2, "HH24": 2, "HH12": 2, "HH": 2, "MI": 2, "SS": 2, "MS": 3, "US": 6, "IYYY": 4,
    "IW": 2, "ID": 1, "Q": 1, "D": 1, "YY": 2,
}  # fmt: skip
_WORDS: Final = {
    "MON": "|".join(month[:3] for month in MONTHS), "FMMONTH": "|".join(MONTHS), "DY": "[a-z]{3}", "FMDAY": "[a-z]+",
    "AM": "am|pm", "PM": "am|pm",
}  # fmt: skip

Fields = Mapping[str, str]


@lru_cache(maxsize=256)
def _format_pattern(format: str) -> tuple[re.Pattern[str], tuple[str, ...]] | None:
    """What texts of a format look like, and the field of each group. None if a field is not known, or there are none
    that tell a year."""
    items, fields, pattern = format_items(format), [], ""
    for item in items or ():
        name = item["field"]
        if name is None:
            pattern += re.escape(item["quoted"] if item["quoted"] is not None else item["sign"])
            continue
        digits = _DIGITS.get(name.upper())
        pattern += f"([0-9]{{{digits}}})" if digits else f"({_WORDS[name.upper()]})"
        fields.append(name.upper())
    if finest_unit(fields) is None:
        return None
    return re.compile(pattern, re.IGNORECASE | re.ASCII), tuple(fields)


def finest_unit(fields: tuple[str, ...] | list[str]) -> str | None:
    """The unit of the shortest period that fields of a format tell: times of two such periods differ in these fields.
    None if they do not tell the year."""
    has = set(fields)
    if {"AM", "PM"} & has and {"HH", "HH12"} & has:
        has.add("HH24")
    if "YYYY" not in has:
        return None if not {"IYYY", "IW"} <= has else "day" if "ID" in has else "week"
    unit = "quarter" if "Q" in has else "year"
    if {"MM", "MON", "FMMONTH"} & has:
        unit = "day" if "DD" in has else "month"
    if "DDD" in has:
        unit = "day"
    for finer, names in (("hour", {"HH24"}), ("minute", {"MI"}), ("second", {"SS"}), ("microsecond", {"US"})):
        coarser = {"hour": "day", "minute": "hour", "second": "minute", "microsecond": "second"}[finer]
        if unit == coarser and names & has:
            unit = finer
    return "millisecond" if unit == "second" and "MS" in has else unit


def unit_of_format(format: str) -> str | None:
    """The unit of the shortest period that a text in a format names; None if it does not name a year."""
    pattern = _format_pattern(format)
    return None if pattern is None else finest_unit(pattern[1])


def is_readable_format(format: str) -> bool:
    return _format_pattern(format) is not None


def _to_timestamp(values: tuple[Value, ...], signature: Signature) -> Value:
    text, format = values
    assert isinstance(text, str)
    pattern = _format_pattern(str(format))
    match = None if pattern is None else pattern[0].fullmatch(text)
    if pattern is None or match is None:
        return None
    return _microseconds(dict(zip(pattern[1], match.groups(), strict=True)))


def _microseconds(fields: Fields) -> int | None:
    def number(name: str, default: int) -> int:
        return int(fields.get(name, default))

    hour = number("HH24", 0)
    if "HH24" not in fields and (noon := fields.get("AM", fields.get("PM"))) is not None:
        hour = number("HH12", number("HH", 12)) % 12 + (12 if noon.upper() == "PM" else 0)
    microsecond = number("US", number("MS", 0) * 1000)
    try:
        if "YYYY" in fields:
            day = datetime(number("YYYY", 1), _month(fields), 1 if "DDD" in fields else number("DD", 1))
            day += timedelta(days=number("DDD", 1) - 1)
        else:
            day = datetime.fromisocalendar(number("IYYY", 1), number("IW", 1), number("ID", 1))
        time = day.replace(hour=hour, minute=number("MI", 0), second=number("SS", 0), microsecond=microsecond)
    except (ValueError, OverflowError):
        return None
    return (time - EPOCH) // timedelta(microseconds=1)


def _month(fields: Fields) -> int:
    if "DDD" in fields:
        return 1
    if "MM" in fields:
        return int(fields["MM"])
    for name, length in (("MON", 3), ("FMMONTH", None)):
        if name in fields:
            return [month[:length].lower() for month in MONTHS].index(fields[name].lower()) + 1
    return int(fields.get("Q", 1)) * 3 - 2


def _to_timestamp_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((STRING, STRING), TIMESTAMP) if all(t in (STRING, NULL) for t in types) else None


FUNCTIONS: Final = (
    ScalarFunction("to_timestamp", (2, 2), _to_timestamp_signature, _to_timestamp, (NOT_MONOTONE,), partial=True),
)
