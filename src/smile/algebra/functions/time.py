"""Functions of timestamps, in UTC and in the years 1 to 9999. Dates and ticks are cast to timestamps."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from smile.algebra.coercions import EPOCH, EXACT_CONTEXT, MICROSECONDS_PER_DAY
from smile.algebra.functions.base import INCREASING, NOT_MONOTONE, Monotonicity, ScalarFunction, Signature
from smile.algebra.types import DATE, INT, NULL, STRING, TIME, TIMESTAMP, DataType, Value, decimal_type

_TEMPORAL_TYPES: Final = (DATE, TIMESTAMP, TIME, NULL)
SECONDS_TYPE: Final = decimal_type(8, 6)
EPOCH_SECONDS_TYPE: Final = decimal_type(18, 6)


def _to_datetime(value: Value) -> datetime:
    assert isinstance(value, int)
    return EPOCH + timedelta(microseconds=value)


def _extract_function(
    name: str, extract: Callable[[datetime], int], monotonicity: Monotonicity = NOT_MONOTONE
) -> ScalarFunction:
    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        return Signature((TIMESTAMP,), INT) if types[0] in _TEMPORAL_TYPES else None

    return ScalarFunction(
        f"extract_{name}",
        (1, 1),
        resolve,
        lambda values, signature: extract(_to_datetime(values[0])),
        (monotonicity,),
        casts_arguments=True,
    )


def _extract_seconds_function(
    name: str, result: DataType, extract: Callable[[int], int], monotonicity: Monotonicity
) -> ScalarFunction:
    """Seconds with six digits after the point. `extract` gives them in microseconds."""

    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        return Signature((TIMESTAMP,), result) if types[0] in _TEMPORAL_TYPES else None

    def apply(values: tuple[Value, ...], signature: Signature) -> Value:
        assert isinstance(values[0], int)
        return Decimal(extract(values[0])).scaleb(-6, EXACT_CONTEXT)

    return ScalarFunction(f"extract_{name}", (1, 1), resolve, apply, (monotonicity,), casts_arguments=True)


UNIT_MICROSECONDS: Final[Mapping[str, int]] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": MICROSECONDS_PER_DAY,
}
"""The units of `date_trunc` that all have one length and begin at its multiples."""

_UNIT_DAYS_MAX: Final = {
    "week": 7, "month": 31, "quarter": 92, "year": 366, "decade": 3_653, "century": 36_525, "millennium": 365_250,
}  # fmt: skip
TRUNCATED_MICROSECONDS_MAX: Final[Mapping[str, int]] = {
    **UNIT_MICROSECONDS,
    **{unit: days * MICROSECONDS_PER_DAY for unit, days in _UNIT_DAYS_MAX.items()},
}
"""The units of `date_trunc`, with the greatest length of each."""

_UNIT_PLURALS: Final = {"centuries": "century", "millennia": "millennium"} | {
    f"{unit}s": unit for unit in TRUNCATED_MICROSECONDS_MAX
}


def truncation_unit(name: str) -> str | None:
    """The unit of `date_trunc` that a word names, in the singular or the plural; None if there is none."""
    unit = _UNIT_PLURALS.get(name.lower(), name.lower())
    return unit if unit in TRUNCATED_MICROSECONDS_MAX else None


def _date_trunc_signature(types: tuple[DataType, ...]) -> Signature | None:
    fits = types[0] in (STRING, NULL) and types[1] in _TEMPORAL_TYPES
    return Signature((STRING, TIMESTAMP), TIMESTAMP) if fits else None


def _date_trunc(values: tuple[Value, ...], signature: Signature) -> Value:
    unit, value = values
    assert isinstance(unit, str)
    assert isinstance(value, int)
    period = truncation_unit(unit)
    if period is None:
        return None
    if period in UNIT_MICROSECONDS:
        return value - value % UNIT_MICROSECONDS[period]
    day = _to_datetime(value).replace(hour=0, minute=0, second=0, microsecond=0)
    period_starts: dict[str, Callable[[], datetime]] = {
        "week": lambda: day - timedelta(days=day.weekday()),
        "month": lambda: day.replace(day=1),
        "quarter": lambda: day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1),
        "year": lambda: day.replace(day=1, month=1),
        "decade": lambda: _beginning_of_year(day.year // 10 * 10),
        "century": lambda: _beginning_of_year((day.year - 1) // 100 * 100 + 1),
        "millennium": lambda: _beginning_of_year((day.year - 1) // 1000 * 1000 + 1),
    }
    try:
        return (period_starts[period]() - EPOCH) // timedelta(microseconds=1)
    except ValueError:  # the decade before year 10 begins before year 1
        return None


def _beginning_of_year(year: int) -> datetime:
    return EPOCH.replace(year=year)


FUNCTIONS: Final = (
    _extract_function("year", lambda t: t.year, INCREASING),
    _extract_function("quarter", lambda t: (t.month + 2) // 3),
    _extract_function("month", lambda t: t.month),
    _extract_function("week", lambda t: t.isocalendar().week),
    _extract_function("day", lambda t: t.day),
    _extract_function("doy", lambda t: t.timetuple().tm_yday),
    _extract_function("dow", lambda t: t.isoweekday() % 7),
    _extract_function("hour", lambda t: t.hour),
    _extract_function("minute", lambda t: t.minute),
    _extract_seconds_function("second", SECONDS_TYPE, lambda microseconds: microseconds % 60_000_000, NOT_MONOTONE),
    _extract_seconds_function("epoch", EPOCH_SECONDS_TYPE, lambda microseconds: microseconds, INCREASING),
    ScalarFunction(
        "date_trunc",
        (2, 2),
        _date_trunc_signature,
        _date_trunc,
        (NOT_MONOTONE, INCREASING),
        partial=True,
        casts_arguments=True,
    ),
)
