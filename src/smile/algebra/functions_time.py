"""Functions of moments: all work on a timestamp, to which dates and ticks are cast; UTC, years 1 to 9999."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from smile.algebra.coercions import EPOCH, EXACT, MICROSECONDS_PER_DAY
from smile.algebra.functions_base import NEITHER, UP, Growth, Scalar, Signature
from smile.algebra.types import DATE, INT, NULL, STRING, TIME, TIMESTAMP, DataType, Value, decimal_type

_MOMENTS: Final = (DATE, TIMESTAMP, TIME, NULL)
SECONDS: Final = decimal_type(8, 6)
EPOCH_SECONDS: Final = decimal_type(18, 6)


def _at(value: Value) -> datetime:
    assert isinstance(value, int)
    return EPOCH + timedelta(microseconds=value)


def _part(name: str, of: Callable[[datetime], int], growth: Growth = NEITHER) -> Scalar:
    def fit(types: tuple[DataType, ...]) -> Signature | None:
        return Signature((TIMESTAMP,), INT) if types[0] in _MOMENTS else None

    return Scalar(f"extract_{name}", (1, 1), fit, lambda values, signature: of(_at(values[0])), (growth,))


def _seconds(name: str, result: DataType, of: Callable[[int], int], growth: Growth) -> Scalar:
    """Seconds with their six digits, from a number of microseconds."""

    def fit(types: tuple[DataType, ...]) -> Signature | None:
        return Signature((TIMESTAMP,), result) if types[0] in _MOMENTS else None

    def apply(values: tuple[Value, ...], signature: Signature) -> Value:
        assert isinstance(values[0], int)
        return Decimal(of(values[0])).scaleb(-6, EXACT)

    return Scalar(f"extract_{name}", (1, 1), fit, apply, (growth,))


_TRUNCATED: Final[dict[str, int]] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": MICROSECONDS_PER_DAY,
}


def _fit_trunc(types: tuple[DataType, ...]) -> Signature | None:
    fitting = types[0] in (STRING, NULL) and types[1] in _MOMENTS
    return Signature((STRING, TIMESTAMP), TIMESTAMP) if fitting else None


def _trunc(values: tuple[Value, ...], signature: Signature) -> Value:
    unit, value = values
    assert isinstance(unit, str)
    assert isinstance(value, int)
    unit = unit.lower()
    if unit in _TRUNCATED:
        return value - value % _TRUNCATED[unit]
    day = _at(value).replace(hour=0, minute=0, second=0, microsecond=0)
    first: dict[str, Callable[[], datetime]] = {
        "week": lambda: day - timedelta(days=day.weekday()),
        "month": lambda: day.replace(day=1),
        "quarter": lambda: day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1),
        "year": lambda: day.replace(day=1, month=1),
    }
    return (first[unit]() - EPOCH) // timedelta(microseconds=1) if unit in first else None


FUNCTIONS: Final = (
    _part("year", lambda t: t.year, UP),
    _part("quarter", lambda t: (t.month + 2) // 3),
    _part("month", lambda t: t.month),
    _part("week", lambda t: t.isocalendar().week),
    _part("day", lambda t: t.day),
    _part("doy", lambda t: t.timetuple().tm_yday),
    _part("dow", lambda t: t.isoweekday() % 7),
    _part("hour", lambda t: t.hour),
    _part("minute", lambda t: t.minute),
    _seconds("second", SECONDS, lambda microseconds: microseconds % 60_000_000, NEITHER),
    _seconds("epoch", EPOCH_SECONDS, lambda microseconds: microseconds, UP),
    Scalar("date_trunc", (2, 2), _fit_trunc, _trunc, (NEITHER, UP), partial=True),
)
