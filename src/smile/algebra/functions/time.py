"""Functions of timestamps, in UTC and in the years 1 to 9999. Dates and ticks are cast to timestamps."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from smile.algebra import mmpl
from smile.algebra.coercions import EPOCH, EXACT_CONTEXT
from smile.algebra.functions.base import INCREASING, NOT_MONOTONE, Monotonicity, ScalarFunction, Signature
from smile.algebra.periods import Period, read_period
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


def _period_signature(types: tuple[DataType, ...]) -> Signature | None:
    unit, time, *zone = types
    fits = unit in (STRING, NULL) and time in _TEMPORAL_TYPES and all(z in (STRING, NULL) for z in zone)
    return Signature((STRING, TIMESTAMP, *(STRING for _ in zone)), TIMESTAMP) if fits else None


def _period_function(name: str, boundary: Callable[[Period, int], int | None]) -> ScalarFunction:
    """A boundary of the period that contains a time."""

    def apply(values: tuple[Value, ...], signature: Signature) -> Value:
        text, time, *zone = values
        assert isinstance(time, int)
        period = read_period(str(text), *map(str, zone))
        return None if period is None else boundary(period, time)

    monotonicity = (NOT_MONOTONE, INCREASING, NOT_MONOTONE)
    return ScalarFunction(name, (2, 3), _period_signature, apply, monotonicity, partial=True, casts_arguments=True)


def constant_period(call: mmpl.Expr) -> Period | None:
    """The period that a call of DATE_TRUNC or PERIOD_END names; None if it does not name one by constants."""
    match call:
        case mmpl.Call("date_trunc" | "period_end", (mmpl.Constant(str() as text), _)):
            return read_period(text)
        case mmpl.Call("date_trunc" | "period_end", (mmpl.Constant(str() as text), _, mmpl.Constant(str() as zone))):
            return read_period(text, zone)
    return None


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
    _period_function("date_trunc", Period.start),
    _period_function("period_end", Period.end),
)
