"""Arithmetic: exact on integers and decimals, IEEE on floats. Overflow and division by zero give NULL.

The types of decimal results, where (p, s) and (q, r) are digits and scale of the operands and an int is (19, 0):
`+ -` have scale max(s, r) and one more digit before the point than the wider operand; `*` has p + q digits and scale
s + r; `/` has 38 digits and scale max(s, r, 16); `%` has scale max(s, r) and as many digits before the point as the
wider operand. Digits and scale are limited to 38: first the digits before the point are reduced. A result that does
not fit is NULL.
"""

import math
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DecimalException
from fractions import Fraction
from typing import Any, Final

from smile import limits
from smile.algebra.coercions import EXACT_CONTEXT, common_type, digits_and_scale, fit_number
from smile.algebra.functions.base import (
    DECREASING,
    INCREASING,
    INFINITY,
    MONOTONE,
    NOT_MONOTONE,
    ScalarFunction,
    Signature,
    SignatureResolver,
    ValueFunction,
    common_type_of_all,
)
from smile.algebra.types import (
    DATE,
    FLOAT,
    INT,
    INTERVAL,
    NULL,
    TICKS_PER_MICROSECOND,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    decimal_type,
)

NumericValue = Any  # int, float or Decimal, depending on the signature: arithmetic on a union does not type-check

DIVISION_SCALE: Final = 16
TRANSCENDENTAL_CONTEXT: Final = Context(prec=60, Emin=-999999, Emax=999999)
"""Has enough digits that rounding to a float is monotone and gives the same result on every machine, unlike libm."""


def _capped_decimal_type(digits: int, scale: int) -> DataType:
    digits_max = limits.decimal_digits_max
    return decimal_type(min(digits_max, digits), min(digits_max, scale))


def _numeric_signature(name: str, a: DataType, b: DataType) -> Signature | None:
    a, b = (b, b) if a == NULL else (a, a) if b == NULL else (a, b)
    if (a, b) == (NULL, NULL):
        a = b = INT
    if not (a.is_number and b.is_number):
        return None
    if a == b == INT:
        return Signature((INT, INT), INT)
    if "float" in (a.name, b.name):
        return Signature((FLOAT, FLOAT), FLOAT) if name != "%" else None
    (p, s), (q, r) = digits_and_scale(a), digits_and_scale(b)
    scale, whole = max(s, r), max(p - s, q - r)
    result = {
        "+": _capped_decimal_type(whole + 1 + scale, scale),
        "-": _capped_decimal_type(whole + 1 + scale, scale),
        "*": _capped_decimal_type(p + q, s + r),
        "/": _capped_decimal_type(limits.decimal_digits_max, max(scale, DIVISION_SCALE)),
        "%": _capped_decimal_type(whole + scale, scale),
    }[name]
    return Signature((decimal_type(p, s), decimal_type(q, r)), result)


_TEMPORAL_TYPES: Final = (DATE, TIMESTAMP, TIME)


def _plus_signature(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if a == INTERVAL and b in (INTERVAL, NULL):
        return Signature((INTERVAL, INTERVAL), INTERVAL)
    if b in _TEMPORAL_TYPES or (b == INTERVAL and a == NULL):
        flipped = _plus_signature((b, a)) if a not in _TEMPORAL_TYPES else None
        return Signature(flipped.args[::-1], flipped.result) if flipped else None
    return _temporal_and_interval_signature(a, b) if a in _TEMPORAL_TYPES else _numeric_signature("+", a, b)


def _temporal_and_interval_signature(a: DataType, b: DataType) -> Signature | None:
    if a == DATE and b == INT:
        return Signature((DATE, INT), DATE)
    if b not in (INTERVAL, NULL):
        return None
    moment = TIMESTAMP if a == DATE else a
    return Signature((moment, INTERVAL), moment)


def _minus_signature(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if INTERVAL in types and (a in (INTERVAL, NULL) and b in (INTERVAL, NULL)):
        return Signature((INTERVAL, INTERVAL), INTERVAL)
    if a in _TEMPORAL_TYPES and b in (INT, INTERVAL):
        return _temporal_and_interval_signature(a, b)
    if a in _TEMPORAL_TYPES or b in _TEMPORAL_TYPES:
        common = common_type(a, b)
        return Signature((common, common), INT if common == DATE else INTERVAL) if common else None
    return _numeric_signature("-", a, b)


def _times_signature(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if a == INTERVAL and (b.is_number or b == NULL):
        return Signature((INTERVAL, INT if b in (INT, NULL) else FLOAT), INTERVAL)
    if b == INTERVAL and (a.is_number or a == NULL):
        return Signature((INT if a in (INT, NULL) else FLOAT, INTERVAL), INTERVAL)
    return _numeric_signature("*", a, b)


def _quotient_signature(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if a == INTERVAL and (b.is_number or b == NULL):
        return Signature((INTERVAL, INT if b in (INT, NULL) else FLOAT), INTERVAL)
    return _numeric_signature("/", a, b)


def _fit_result(value: NumericValue, signature: Signature) -> Value:
    return fit_number(value, signature.result)


def _plus(values: tuple[Value, ...], signature: Signature) -> Value:
    a, b = (_to_result_unit(v, t, signature) for v, t in zip(values, signature.args, strict=True))
    return _fit_result(EXACT_CONTEXT.add(a, b) if isinstance(a, Decimal) else a + b, signature)


def _minus(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    a, b = (_to_result_unit(v, t, signature) for v, t in zip(values, signature.args, strict=True))
    return _fit_result(EXACT_CONTEXT.subtract(a, b) if isinstance(a, Decimal) else a - b, signature)


def _to_result_unit(value: NumericValue, type: DataType, signature: Signature) -> NumericValue:
    """The value in the unit of the result. An interval is rounded down to whole microseconds, which preserves order."""
    if type == INTERVAL and signature.result == TIMESTAMP:
        return value // TICKS_PER_MICROSECOND
    if type == TIMESTAMP and signature.result == INTERVAL:
        return value * TICKS_PER_MICROSECOND
    return value


def _times(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    a, b = values
    if signature.result == INTERVAL and FLOAT in signature.args:
        return _fit_result(round(Fraction(a) * Fraction(b)), signature)
    return _fit_result(EXACT_CONTEXT.multiply(a, b) if isinstance(a, Decimal) else a * b, signature)


def _quotient(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    a, b = values
    if b == 0:
        return None
    if isinstance(a, float):
        return _fit_result(a / b, signature)
    if isinstance(b, float):
        return _fit_result(round(Fraction(a) / Fraction(b)), signature)
    if isinstance(a, Decimal):
        return _fit_result(_decimal_quotient(a, b, signature.result.scale or 0), signature)
    return _fit_result(_integer_quotient(a, b), signature)


def _decimal_quotient(a: Decimal, b: Decimal, scale: int) -> Decimal:
    """The exact quotient, rounded once, half away from zero. `Decimal` division would already round it."""
    quotient = abs(Fraction(a) / Fraction(b)) * 10**scale
    units = (quotient.numerator * 2 + quotient.denominator) // (quotient.denominator * 2)
    return Decimal((int((a < 0) != (b < 0)), tuple(map(int, str(units))), -scale))


def _integer_quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    a, b = values
    if b == 0:
        return None
    if isinstance(a, Decimal):
        return _fit_result(EXACT_CONTEXT.remainder(a, b), signature)
    return _fit_result(a - b * _integer_quotient(a, b), signature)


def _times_limit(values: tuple[NumericValue, ...]) -> Value:
    """Zero times infinity is zero: an unbounded factor is still finite."""
    return math.prod(0 if v == 0 else math.copysign(INFINITY, v) for v in values) if 0 not in values else 0


def _quotient_limit(values: tuple[NumericValue, ...]) -> Value:
    a, b = values
    return 0 if abs(b) == INFINITY else math.copysign(INFINITY, a) * math.copysign(1, b)


# ── functions of one number ─────────────────────────────────────────────────────────────────────────────────────────


def _same_type_signature(*, interval: bool) -> SignatureResolver:
    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        type = INT if types[0] == NULL else types[0]
        return Signature((type,), type) if type.is_number or (interval and type == INTERVAL) else None

    return resolve


def _whole_number_signature(types: tuple[DataType, ...]) -> Signature | None:
    """Rounding a decimal gives one digit more before the point, because rounding up may carry."""
    type = INT if types[0] == NULL else types[0]
    if type.name == "decimal":
        digits, scale = digits_and_scale(type)
        return Signature((type,), _capped_decimal_type(digits - scale + 1, 0))
    return Signature((type,), type) if type.is_number else None


def _round_signature(types: tuple[DataType, ...]) -> Signature | None:
    """round(x, n) of a decimal keeps the scale of the type, because n may differ between rows."""
    if len(types) == 1:
        return _whole_number_signature(types)
    if types[0] == FLOAT and types[1] in (INT, NULL):
        return Signature((FLOAT, INT), FLOAT)
    type = decimal_type(*digits_and_scale(INT)) if types[0] in (NULL, INT) else types[0]
    if type.name != "decimal" or types[1] not in (INT, NULL):
        return None
    digits, scale = digits_and_scale(type)
    return Signature((type, INT), _capped_decimal_type(digits + 1, scale))


def _trunc_signature(types: tuple[DataType, ...]) -> Signature | None:
    """trunc(x, n) of a decimal. PostgreSQL has none of a float."""
    if len(types) == 1:
        return _whole_number_signature(types)
    signature = None if types[0] == FLOAT else _round_signature(types)
    return None if signature is None else Signature(signature.args, signature.args[0])


def _rounding_function(decimal_rounding: str, round_float: Any) -> ValueFunction:
    def apply(values: tuple[NumericValue, ...], signature: Signature) -> Value:
        value = values[0]
        if isinstance(value, Decimal):
            decimal_places = min(max(values[1], -99), 99) if len(values) == 2 else 0
            if decimal_places >= (signature.args[0].scale or 0):
                return _fit_result(value, signature)
            shifted = (
                value.scaleb(decimal_places, EXACT_CONTEXT)
                .to_integral_value(decimal_rounding)
                .scaleb(-decimal_places, EXACT_CONTEXT)
            )
            return _fit_result(shifted, signature)
        if isinstance(value, float) and len(values) == 2:
            return _round_float(value, values[1])
        if isinstance(value, float):
            # Converting the rounded int back to a float is exact: floats from 2^53 are whole numbers already.
            return math.copysign(float(round_float(value)), value)
        return _fit_result(value, signature)

    return apply


def _round_float(value: float, decimal_places: int) -> Value:
    """The float that is closest to the exact value of `value`, rounded to decimal places, halves to even."""
    try:
        return fit_number(round(value, min(max(decimal_places, -400), 400)), FLOAT)
    except OverflowError:
        return None


def _abs(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return _fit_result(values[0].copy_abs() if isinstance(values[0], Decimal) else abs(values[0]), signature)


def _neg(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return _fit_result(values[0].copy_negate() if isinstance(values[0], Decimal) else -values[0], signature)


def _sign(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return _fit_result((values[0] > 0) - (values[0] < 0), signature)


def _float_signature(types: tuple[DataType, ...]) -> Signature | None:
    """The arguments of roots, logarithms and powers are cast to float, and the result is a float."""
    return Signature((FLOAT,) * len(types), FLOAT) if all(t.is_number or t == NULL for t in types) else None


def _sqrt(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return math.sqrt(values[0]) if values[0] >= 0 else None


def _transcendental(values: tuple[NumericValue, ...], compute: Any) -> Value:
    try:
        return fit_number(float(compute(*(TRANSCENDENTAL_CONTEXT.create_decimal(v) for v in values))), FLOAT)
    except (DecimalException, OverflowError):
        return None


def _exp(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return _transcendental(values, TRANSCENDENTAL_CONTEXT.exp)


def _ln(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return _transcendental(values, TRANSCENDENTAL_CONTEXT.ln) if values[0] > 0 else None


def _log10(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    return _transcendental(values, TRANSCENDENTAL_CONTEXT.log10) if values[0] > 0 else None


def _power(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    base, exponent = values
    if exponent == 0:
        return 1.0
    if base == 0:
        return 0.0 if exponent > 0 else None
    return _transcendental(values, TRANSCENDENTAL_CONTEXT.power)


def _sign_limit(values: tuple[NumericValue, ...]) -> Value:
    return 1 if values[0] > 0 else -1


def _exp_limit(values: tuple[NumericValue, ...]) -> Value:
    return INFINITY if values[0] > 0 else 0.0


# ── buckets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _bucket_signature(types: tuple[DataType, ...]) -> Signature | None:
    number = common_type_of_all(types[:3])
    number = INT if number == NULL else number
    if number is None or not number.is_number or types[3] not in (INT, NULL):
        return None
    return Signature((number, number, number, INT), INT)


def _width_bucket(values: tuple[NumericValue, ...], signature: Signature) -> Value:
    """The number of the bucket of `value` among `count` equal ones from `start` to `end`, which may be below `start`:
    0 before the first bucket, `count` + 1 after the last one."""
    value, start, end, count = values
    if start == end or count <= 0:
        return None
    if (value < start) if start < end else (value > start):
        return 0
    if (value >= end) if start < end else (value <= end):
        return _fit_result(count + 1, signature)
    width = Fraction(end) - Fraction(start)
    return _fit_result(math.floor((Fraction(value) - Fraction(start)) * count / width) + 1, signature)


def _bucket_limit(values: tuple[NumericValue, ...]) -> Value:
    """Only the value can be infinite, because the bounds of the others give none of the result."""
    value, start, end, count = values
    return 0 if (value < 0) == (start < end) else count + 1


FUNCTIONS: Final = (
    ScalarFunction("+", (2, 2), _plus_signature, _plus, (INCREASING, INCREASING)),
    ScalarFunction("-", (2, 2), _minus_signature, _minus, (INCREASING, DECREASING)),
    ScalarFunction("*", (2, 2), _times_signature, _times, (MONOTONE, MONOTONE), limit_at_infinity=_times_limit),
    ScalarFunction(
        "/",
        (2, 2),
        _quotient_signature,
        _quotient,
        (MONOTONE, MONOTONE),
        turning_points={1: 0},
        limit_at_infinity=_quotient_limit,
    ),
    ScalarFunction(
        "%", (2, 2), lambda types: _numeric_signature("%", *types), _modulo, (NOT_MONOTONE, NOT_MONOTONE), partial=True
    ),
    ScalarFunction("neg", (1, 1), _same_type_signature(interval=True), _neg, (DECREASING,)),
    ScalarFunction(
        "abs",
        (1, 1),
        _same_type_signature(interval=True),
        _abs,
        (MONOTONE,),
        turning_points={0: 0},
    ),
    ScalarFunction(
        "sign", (1, 1), _same_type_signature(interval=False), _sign, (INCREASING,), limit_at_infinity=_sign_limit
    ),
    ScalarFunction(
        "round",
        (1, 2),
        _round_signature,
        _rounding_function(ROUND_HALF_UP, round),
        (INCREASING, NOT_MONOTONE),
        partial=True,
    ),
    ScalarFunction(
        "floor",
        (1, 1),
        _whole_number_signature,
        _rounding_function(ROUND_FLOOR, math.floor),
        (INCREASING,),
    ),
    ScalarFunction(
        "ceil",
        (1, 1),
        _whole_number_signature,
        _rounding_function(ROUND_CEILING, math.ceil),
        (INCREASING,),
    ),
    ScalarFunction(
        "trunc",
        (1, 2),
        _trunc_signature,
        _rounding_function(ROUND_DOWN, math.trunc),
        (INCREASING, NOT_MONOTONE),
    ),
    ScalarFunction("sqrt", (1, 1), _float_signature, _sqrt, (INCREASING,)),
    ScalarFunction("exp", (1, 1), _float_signature, _exp, (INCREASING,), limit_at_infinity=_exp_limit),
    ScalarFunction("ln", (1, 1), _float_signature, _ln, (INCREASING,)),
    ScalarFunction("log10", (1, 1), _float_signature, _log10, (INCREASING,)),
    ScalarFunction("power", (2, 2), _float_signature, _power, (NOT_MONOTONE, NOT_MONOTONE), partial=True),
    ScalarFunction(
        "width_bucket",
        (4, 4),
        _bucket_signature,
        _width_bucket,
        (MONOTONE, NOT_MONOTONE),
        partial=True,
        limit_at_infinity=_bucket_limit,
    ),
)
