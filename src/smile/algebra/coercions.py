"""Converts values between data types and to and from text. A cast that fails or overflows gives NULL.

Implicit coercions (`common_type`) preserve the order of values. Explicit casts (`cast`) do what they do in PostgreSQL.
Timestamps and dates lie in the years 1 to 9999, so that each can be written as text.
"""

import math
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation, Overflow
from fractions import Fraction
from typing import Final

from smile import limits
from smile.algebra.arrays import decode_array, encode_array, join_elements, split_elements
from smile.algebra.json_values import canonical_json, is_number
from smile.algebra.types import (
    DATE,
    INT_MAX,
    INT_MIN,
    INTERVAL,
    NULL,
    TICKS_PER_MICROSECOND,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    array_type,
    decimal_type,
)
from smile.horizons import is_clock_tick

MICROSECONDS_PER_DAY: Final = 86_400_000_000
EPOCH: Final = datetime(1970, 1, 1)
DATE_MIN: Final = date.min.toordinal() - EPOCH.toordinal()
DATE_MAX: Final = date.max.toordinal() - EPOCH.toordinal()
TIMESTAMP_MIN: Final = DATE_MIN * MICROSECONDS_PER_DAY
TIMESTAMP_MAX: Final = (DATE_MAX + 1) * MICROSECONDS_PER_DAY - 1
INT_DIGITS: Final = 19
"""The number of digits of the largest 64-bit integer."""

# More than twice the maximum digits of a decimal, so that products of two decimals are exact. The default context of 28
# digits is not used, because any library may change it.
EXACT_CONTEXT: Final = Context(
    prec=100, rounding=ROUND_HALF_UP, Emin=-999999, Emax=999999, traps=[InvalidOperation, Overflow]
)

INTEGER_RANGES: Final = {
    "int": (INT_MIN, INT_MAX),
    "time": (INT_MIN, INT_MAX),
    "interval": (INT_MIN, INT_MAX),
    "timestamp": (TIMESTAMP_MIN, TIMESTAMP_MAX),
    "date": (DATE_MIN, DATE_MAX),
}


def type_ends(type: DataType) -> tuple[int | float | Decimal, int | float | Decimal] | None:
    """The least and the greatest value of a type; None if it is not a type of numbers or times."""
    if type.name == "float":
        return -sys.float_info.max, sys.float_info.max
    if type.name == "decimal":
        digits, scale = digits_and_scale(type)
        greatest = Decimal(10**digits - 1).scaleb(-scale, EXACT_CONTEXT)
        return greatest.copy_negate(), greatest
    return INTEGER_RANGES.get(type.name)


def common_type(a: DataType, b: DataType) -> DataType | None:
    """The type that both are implicitly coerced to, or None if they cannot be compared."""
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if a.is_number and b.is_number:
        if "float" in (a.name, b.name):
            return a if a.name == "float" else b
        return _wider_decimal(a, b)
    temporal_types = (DATE, TIMESTAMP, TIME)
    if a in temporal_types and b in temporal_types:
        return max(a, b, key=temporal_types.index)
    if a.name == b.name == "array":
        element = common_type(a.element, b.element)
        return None if element is None else array_type(element)
    return None


def _wider_decimal(a: DataType, b: DataType) -> DataType:
    """Has the larger scale, and as many digits before the point as the wider type, up to 38 digits in total.

    Values that do not fit overflow; they do not lose digits after the point.
    """
    (a_digits, a_scale), (b_digits, b_scale) = digits_and_scale(a), digits_and_scale(b)
    scale = max(a_scale, b_scale)
    return decimal_type(min(limits.decimal_digits_max, max(a_digits - a_scale, b_digits - b_scale) + scale), scale)


def digits_and_scale(type: DataType) -> tuple[int, int]:
    """The digits and scale of a decimal. For an int, those of the decimal that can hold any int."""
    return (INT_DIGITS, 0) if type.name == "int" else (type.digits or limits.decimal_digits_max, type.scale or 0)


def can_cast(a: DataType, b: DataType) -> bool:
    if a in (b, NULL):
        return True
    if "relation" in (a.name, b.name) or b == NULL:
        return False
    if a.name == b.name == "array":
        return can_cast(a.element, b.element)
    if "array" in (a.name, b.name):
        return "string" in (a.name, b.name)
    if "string" in (a.name, b.name) or (a.is_number and b.is_number):
        return True
    if "json" in (a.name, b.name):
        return a.name == "json" and (b.is_number or b.name == "bool")
    pair = {a.name, b.name}
    return pair in ({"bool", "int"}, {"int", "time"}) or pair <= {"date", "timestamp", "time"}


def is_monotone_cast(a: DataType, b: DataType) -> bool:
    """Whether the cast preserves the order of values."""
    if a in (b, NULL):
        return True
    return can_cast(a, b) and not a.is_text and "array" not in (a.name, b.name) and b.name not in ("string", "bool")


def can_fail(source: DataType) -> bool:
    """Whether a cast of values of this type depends on what is written in them."""
    return source.is_text


def cast(value: Value, source: DataType, target: DataType) -> Value:
    if not can_cast(source, target):
        raise TypeError(f"{source} cannot be cast to {target}")
    if value is None or source == target:
        return value
    if target.name == "string":
        return to_text(value, source)
    if source.name == "string":
        assert isinstance(value, str)
        try:
            return parse_literal(value.strip(" \t\n\r\f\v"), target)
        except ValueError:
            return None
    if target.name == "array":
        assert isinstance(value, bytes)
        elements = decode_array(value, source.element)
        return encode_array((cast(e, source.element, target.element) for e in elements), target.element)
    if source.name == "json":
        return _cast_json(str(value), target)
    if target.name == "bool":
        return value != 0
    if target.is_number:
        return fit_number(_cast_to_number(value, target), target)
    return fit_number(_cast_to_temporal(value, source, target), target)


def _cast_json(text: str, target: DataType) -> Value:
    """A number, or a Boolean. Anything else has no value of another type; its parts may have one."""
    if target.name == "bool":
        return {"true": True, "false": False}.get(text)
    return fit_number(_cast_to_number(Decimal(text), target), target) if is_number(text) else None


def _cast_to_number(value: Value, target: DataType) -> int | float | Decimal | None:
    assert isinstance(value, int | float | Decimal)
    if target.name == "float":
        return float(value)
    if target.name == "int":
        # PostgreSQL rounds halves of a decimal away from zero, and halves of a float to the even number.
        return int(value.to_integral_value(ROUND_HALF_UP)) if isinstance(value, Decimal) else round(value)
    # PostgreSQL uses 15 digits of a float, so that 0.1 becomes the decimal 0.1.
    return Decimal(f"{value:.14e}") if isinstance(value, float) else to_decimal(value)


def _cast_to_temporal(value: Value, source: DataType, target: DataType) -> int:
    """Casts to a coarser unit round down, to the microsecond of a tick or the day of a microsecond."""
    assert isinstance(value, int)
    if "int" in (source.name, target.name):
        return value
    microseconds = {"time": value >> 10, "timestamp": value, "date": value * MICROSECONDS_PER_DAY}[source.name]
    return {
        "time": microseconds << 10,
        "timestamp": microseconds,
        "date": microseconds // MICROSECONDS_PER_DAY,
    }[target.name]


def to_decimal(value: Value) -> Decimal:
    assert isinstance(value, int | float | Decimal)
    return value if isinstance(value, Decimal) else Decimal(value)


def round_half_away(value: Decimal, scale: int) -> Decimal:
    """Rounds to `scale` digits after the point, ties away from zero, without negative zero.

    The result must fit into the precision of `EXACT_CONTEXT`.
    """
    rounded = value.quantize(Decimal((0, (1,), -scale)), context=EXACT_CONTEXT)
    return rounded or rounded.copy_abs()


def fit_number(value: int | float | Decimal | None, type: DataType) -> int | float | Decimal | None:
    """The number as a value of `type`, or None if it overflows. NaN and infinities give None too."""
    if value is None:
        return None
    if type.name == "float":
        return float(value) if math.isfinite(value) else None
    if type.name == "decimal":
        digits, scale = digits_and_scale(type)
        exact = to_decimal(value)
        if not exact.is_finite() or (exact.adjusted() >= digits - scale and exact):
            return None
        rounded = round_half_away(exact, scale)
        return rounded if rounded.adjusted() < digits - scale or not rounded else None
    least, greatest = INTEGER_RANGES[type.name]
    return int(value) if least <= value <= greatest else None


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_INT_PATTERN: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER_PATTERN: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?")
_TRUE_WORDS: Final = ("true", "yes", "on", "1")
_FALSE_WORDS: Final = ("false", "no", "off", "0")


def parse_literal(text: str, type: DataType) -> Value:
    """The value of `type` that `text` represents. Raises ValueError with a message if there is none."""
    match type.name:
        case "string":
            return text
        case "bool":
            return _parse_bool(text)
        case "int" | "float" | "decimal":
            return _parse_number(text, type)
        case "time":
            if _INT_PATTERN.fullmatch(text):
                return _check_range(int(text), type, text)
            return _check_range(_parse_timestamp(text) * TICKS_PER_MICROSECOND, type, text)
        case "timestamp":
            return _parse_timestamp(text)
        case "date":
            return _parse_date(text)
        case "interval":
            return parse_interval(text)
        case "json":
            return canonical_json(text)
        case "bytes":
            if not text.startswith("\\x"):
                raise ValueError(f"'{text}' is not a byte string; write for example '\\x0aff'")
            return bytes.fromhex(text[2:])
        case "array":
            return parse_array(text, type)
    raise ValueError(f"there is no literal of type {type}")


def parse_array(text: str, type: DataType) -> bytes:
    element, texts = type.element, split_elements(text)
    if len(texts) > limits.array_elements_max:
        raise ValueError(f"an array has at most {limits.array_elements_max:,} elements, this one has {len(texts):,}")
    return encode_array((None if t is None else parse_literal(t, element) for t in texts), element)


def array_text(value: bytes, type: DataType, text_of: Callable[[Value, DataType], str]) -> str:
    """The text of an array, with `text_of` each element."""
    elements = decode_array(value, type.element)
    return join_elements(None if e is None else text_of(e, type.element) for e in elements)


def literal_text(value: Value, type: DataType) -> str:
    """The text that `parse_literal` reads back as this value."""
    if value is None:
        raise ValueError("NULL has no text")
    if type.name == "array" and isinstance(value, bytes):
        return array_text(value, type, literal_text)
    return interval_text(int(value)) if type == INTERVAL else to_text(value, type)


def describe_tick(tick: int) -> str:
    """For messages: the time of a tick in UTC, and its number. What cannot be a clock's tick is only a number."""
    return f"{_timestamp_text(tick // TICKS_PER_MICROSECOND)} ({tick})" if is_clock_tick(tick) else str(tick)


def describe_value(value: Value, type: DataType) -> str:
    """For messages: the text of a value, and the time of a tick."""
    return describe_tick(int(value)) if type == TIME and value is not None else literal_text(value, type)


def to_text(value: Value, type: DataType) -> str:
    """The result of a cast to string."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() if type == TIMESTAMP:
            return _timestamp_text(value)
        case int() if type == DATE:
            return date.fromordinal(value + EPOCH.toordinal()).isoformat()
        case int() if type == INTERVAL:
            return _clock_text(value)
        case float():
            return _float_text(value)
        case Decimal():
            return f"{value:f}"
        case bytes() if type.name == "array":
            return array_text(value, type, _element_text)
        case bytes():
            return "\\x" + value.hex()
    return str(value)


def _element_text(value: Value, type: DataType) -> str:
    """PostgreSQL prints a Boolean in an array as t or f."""
    return to_text(value, type)[0] if type.name == "bool" else to_text(value, type)


def _parse_bool(text: str) -> bool:
    folded = text.lower()
    # PostgreSQL accepts any unambiguous prefix; `o` is ambiguous.
    if folded and folded != "o":
        if any(word.startswith(folded) for word in _TRUE_WORDS):
            return True
        if any(word.startswith(folded) for word in _FALSE_WORDS):
            return False
    raise ValueError(f"'{text}' is neither true nor false")


def _parse_number(text: str, type: DataType) -> int | float | Decimal:
    if (
        not (_INT_PATTERN if type.name == "int" else _NUMBER_PATTERN).fullmatch(text)
        or len(text) > limits.number_chars_max
    ):
        raise ValueError(f"'{text}' is not of type {type}")
    number = {"int": int, "float": float, "decimal": Decimal}[type.name](text)
    return _check_range(number, type, text)


def _check_range(value: int | float | Decimal, type: DataType, text: str) -> int | float | Decimal:
    fitted = fit_number(value, type)
    if fitted is None:
        raise ValueError(f"'{text}' is out of range for type {type}")
    return fitted


def _parse_timestamp(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        try:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:
            raise ValueError(f"'{text}' is out of range for type timestamp") from None
    return (moment - EPOCH) // timedelta(microseconds=1)


def _parse_date(text: str) -> int:
    return date.fromisoformat(text).toordinal() - EPOCH.toordinal()


def _timestamp_text(value: int) -> str:
    text = (EPOCH + timedelta(microseconds=value)).isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text


def _float_text(value: float) -> str:
    """As in PostgreSQL: the fewest digits that parse to the same float, with an exponent from 1e15 and below 1e-4."""
    sign, digits, exponent = Decimal(repr(value)).normalize(EXACT_CONTEXT).as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) - 1 + exponent
    if -4 <= power < 15 or not value:
        return f"{Decimal((sign, digits, exponent)):f}"
    mantissa = "".join(map(str, digits))
    mantissa = mantissa if len(mantissa) == 1 else f"{mantissa[0]}.{mantissa[1:]}"
    return f"{'-' * sign}{mantissa}e{'+' if power > 0 else '-'}{abs(power):02d}"


# ── intervals ───────────────────────────────────────────────────────────────────────────────────────────────────────

_TICKS_PER_SECOND: Final = 1_000_000 * TICKS_PER_MICROSECOND
TICKS_PER_UNIT: Final = {
    "DAY": 86_400 * _TICKS_PER_SECOND,
    "HOUR": 3_600 * _TICKS_PER_SECOND,
    "MINUTE": 60 * _TICKS_PER_SECOND,
    "SECOND": _TICKS_PER_SECOND,
    "MILLISECOND": 1_000 * TICKS_PER_MICROSECOND,
    "MICROSECOND": TICKS_PER_MICROSECOND,
    "TICK": 1,
}
"""The number of ticks of each unit, the largest unit first."""

_UNIT_ABBREVIATIONS: Final = {
    "D": "DAY",
    "H": "HOUR",
    "HR": "HOUR",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "S": "SECOND",
    "SEC": "SECOND",
    "MS": "MILLISECOND",
    "MSEC": "MILLISECOND",
    "US": "MICROSECOND",
    "USEC": "MICROSECOND",
    "W": "WEEK",
}
_VARIABLE_UNITS: Final = ("MON", "MONTH", "QUARTER", "Y", "YR", "YEAR", "DECADE", "CENTURY", "MILLENNIUM")
_INTERVAL_LITERAL: Final = re.compile(r"(?i)\s*(?:INTERVAL\b)?\s*'([^']*)'\s*([a-z][a-z ]*)?")
_INTERVAL_PART: Final = re.compile(
    r"([+-]?)(?:(\d+(?::\d+){1,2}(?:\.\d*)?)|(\d+\.?\d*|\.\d+)\s*([a-z]+)?)", re.IGNORECASE | re.ASCII
)
_CLOCK_UNITS: Final = ("HOUR", "MINUTE", "SECOND")


def interval_text(ticks: int) -> str:
    unit = next(u for u, size in TICKS_PER_UNIT.items() if ticks % size == 0)
    return f"INTERVAL '{ticks // TICKS_PER_UNIT[unit]}' {unit}"


def parse_interval(text: str, unit: str | None = None) -> int:
    """The number of ticks. `unit` is what follows the quotes.

    It applies to numbers without a unit in the text. The default is seconds.
    """
    literal = _INTERVAL_LITERAL.fullmatch(text)
    if literal:
        text, unit = literal[1], literal[2] or unit
    fields = [_unit_name(u) for u in re.split(r"\s+TO\s+", unit.strip().upper())] if unit else []
    total, position = Fraction(0), 0
    stripped = text.strip()
    while position < len(stripped):
        part = _INTERVAL_PART.match(stripped, position)
        if part is None:
            raise ValueError(f"'{text}' is not an interval; write for example '3 minutes'")
        position = len(stripped) - len(stripped[part.end() :].lstrip())
        total += _part_ticks(part, fields, before_clock=":" in stripped[position:])
    if not stripped:
        raise ValueError("the interval is empty")
    if total.denominator != 1:
        raise ValueError(f"'{text}' is not a whole number of ticks; a microsecond has {TICKS_PER_MICROSECOND}")
    if not INT_MIN <= total <= INT_MAX:
        raise ValueError(f"'{text}' is out of range for type interval")
    return int(total)


def _part_ticks(part: re.Match[str], fields: list[str], before_clock: bool) -> Fraction:
    sign, clock, number, unit = part.groups()
    if clock is None:
        # In '1 10:00:00' the number before the clock is days.
        name = _unit_name(unit) if unit else "DAY" if before_clock else fields[-1] if fields else "SECOND"
        ticks = Fraction(number) * _unit_ticks(name)
    else:
        parts = clock.split(":")
        last_unit = (
            _CLOCK_UNITS.index(fields[-1])
            if len(fields) == 2 and fields[-1] in _CLOCK_UNITS
            else 1
            if len(parts) == 2
            else 2
        )
        names = _CLOCK_UNITS[max(0, last_unit + 1 - len(parts)) : last_unit + 1]
        if len(names) != len(parts):
            raise ValueError(f"'{clock}' has more parts than its fields")
        ticks = sum((Fraction(p) * _unit_ticks(n) for p, n in zip(parts, names, strict=True)), Fraction(0))
    return -ticks if sign == "-" else ticks


def _unit_ticks(name: str) -> int:
    return 7 * TICKS_PER_UNIT["DAY"] if name == "WEEK" else TICKS_PER_UNIT[name]


def _unit_name(word: str) -> str:
    upper = word.upper()
    singular = upper if upper in _UNIT_ABBREVIATIONS or upper in _VARIABLE_UNITS else upper.removesuffix("S")
    name = _UNIT_ABBREVIATIONS.get(singular, singular)
    if name in _VARIABLE_UNITS or upper in ("CENTURIES", "MILLENNIA"):
        raise ValueError(f"the length of a {name.lower()} is not fixed; write the interval in days")
    if name not in TICKS_PER_UNIT and name != "WEEK":
        raise ValueError(f"'{word}' is not a unit of time")
    return name


def _clock_text(ticks: int) -> str:
    """Hours, minutes and seconds, exact to the tick. `parse_interval` parses the text to the same value."""
    minutes, rest = divmod(abs(ticks), TICKS_PER_UNIT["MINUTE"])
    # At most 16 digits after the point, so the division is exact.
    seconds = f"{EXACT_CONTEXT.divide(Decimal(rest), Decimal(_TICKS_PER_SECOND)):f}"
    whole, _, fraction = seconds.partition(".")
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{int(whole):02d}" + (f".{fraction}" if fraction else "")
    return f"-{clock}" if ticks < 0 else clock
