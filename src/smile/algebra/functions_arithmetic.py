"""Arithmetic: exact on integers and decimals, IEEE on floats; what overflows or divides by zero is NULL.

Types of decimal results, (p, s) and (q, r) being digits and scale of the operands and an int counting as (19, 0):
`+ -` have scale max(s, r) and one whole digit more than the wider operand; `*` has digits p + q and scale s + r;
`/` has scale max(s, r, 16) and 38 digits; `%` has scale max(s, r) and the wider whole part. Digits are capped at 38,
and so is the scale: the whole part yields first, and what does not fit is NULL.
"""

import math
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DecimalException
from fractions import Fraction
from typing import Any, Final

from smile import limits
from smile.algebra.coercions import EXACT, common_type, decimal_shape, fit
from smile.algebra.functions_base import (
    DOWN,
    EITHER,
    INFINITE,
    NEITHER,
    UP,
    Apply,
    Fit,
    Scalar,
    Signature,
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

Number = Any  # int, float or Decimal, of the type the signature says: arithmetic on a union does not type-check

DIVISION_SCALE: Final = 16
TRANSCENDENTAL: Final = Context(prec=60, Emin=-999999, Emax=999999)
"""Digits enough that rounding them to a float is monotone, and the same on every machine, which libm is not."""


def _decimal(digits: int, scale: int) -> DataType:
    top = limits.decimal_digits_max
    return decimal_type(min(top, digits), min(top, scale))


def _numbers(name: str, a: DataType, b: DataType) -> Signature | None:
    a, b = (b, b) if a == NULL else (a, a) if b == NULL else (a, b)
    if (a, b) == (NULL, NULL):
        a = b = INT
    if not (a.is_number and b.is_number):
        return None
    if a == b == INT:
        return Signature((INT, INT), INT)
    if "float" in (a.name, b.name):
        return Signature((FLOAT, FLOAT), FLOAT) if name != "%" else None
    (p, s), (q, r) = decimal_shape(a), decimal_shape(b)
    scale, whole = max(s, r), max(p - s, q - r)
    result = {
        "+": _decimal(whole + 1 + scale, scale),
        "-": _decimal(whole + 1 + scale, scale),
        "*": _decimal(p + q, s + r),
        "/": _decimal(limits.decimal_digits_max, max(scale, DIVISION_SCALE)),
        "%": _decimal(whole + scale, scale),
    }[name]
    return Signature((decimal_type(p, s), decimal_type(q, r)), result)


_MOMENTS: Final = (DATE, TIMESTAMP, TIME)


def _fit_plus(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if a == INTERVAL and b in (INTERVAL, NULL):
        return Signature((INTERVAL, INTERVAL), INTERVAL)
    if b in _MOMENTS or (b == INTERVAL and a == NULL):
        flipped = _fit_plus((b, a)) if a not in _MOMENTS else None
        return Signature(flipped.args[::-1], flipped.result) if flipped else None
    return _moment_and_length(a, b) if a in _MOMENTS else _numbers("+", a, b)


def _moment_and_length(a: DataType, b: DataType) -> Signature | None:
    if a == DATE and b == INT:
        return Signature((DATE, INT), DATE)
    if b not in (INTERVAL, NULL):
        return None
    moment = TIMESTAMP if a == DATE else a
    return Signature((moment, INTERVAL), moment)


def _fit_minus(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if INTERVAL in types and (a in (INTERVAL, NULL) and b in (INTERVAL, NULL)):
        return Signature((INTERVAL, INTERVAL), INTERVAL)
    if a in _MOMENTS and b in (INT, INTERVAL):
        return _moment_and_length(a, b)
    if a in _MOMENTS or b in _MOMENTS:
        common = common_type(a, b)
        return Signature((common, common), INT if common == DATE else INTERVAL) if common else None
    return _numbers("-", a, b)


def _fit_times(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if a == INTERVAL and (b.is_number or b == NULL):
        return Signature((INTERVAL, INT if b in (INT, NULL) else FLOAT), INTERVAL)
    if b == INTERVAL and (a.is_number or a == NULL):
        return Signature((INT if a in (INT, NULL) else FLOAT, INTERVAL), INTERVAL)
    return _numbers("*", a, b)


def _fit_divided(types: tuple[DataType, ...]) -> Signature | None:
    a, b = types
    if a == INTERVAL and (b.is_number or b == NULL):
        return Signature((INTERVAL, INT if b in (INT, NULL) else FLOAT), INTERVAL)
    return _numbers("/", a, b)


def _to_result(value: Number, signature: Signature) -> Value:
    return fit(value, signature.result)


def _plus(values: tuple[Value, ...], signature: Signature) -> Value:
    a, b = (_on_the_line(v, t, signature) for v, t in zip(values, signature.args, strict=True))
    return _to_result(EXACT.add(a, b) if isinstance(a, Decimal) else a + b, signature)


def _minus(values: tuple[Number, ...], signature: Signature) -> Value:
    a, b = (_on_the_line(v, t, signature) for v, t in zip(values, signature.args, strict=True))
    return _to_result(EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b, signature)


def _on_the_line(value: Number, type: DataType, signature: Signature) -> Number:
    """In the result's unit. An interval is rounded down to whole microseconds, so that order is kept."""
    if type == INTERVAL and signature.result == TIMESTAMP:
        return value // TICKS_PER_MICROSECOND
    if type == TIMESTAMP and signature.result == INTERVAL:
        return value * TICKS_PER_MICROSECOND
    return value


def _times(values: tuple[Number, ...], signature: Signature) -> Value:
    a, b = values
    if signature.result == INTERVAL and FLOAT in signature.args:
        return _to_result(round(Fraction(a) * Fraction(b)), signature)
    return _to_result(EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b, signature)


def _divided(values: tuple[Number, ...], signature: Signature) -> Value:
    a, b = values
    if b == 0:
        return None
    if isinstance(a, float):
        return _to_result(a / b, signature)
    if isinstance(b, float):
        return _to_result(round(Fraction(a) / Fraction(b)), signature)
    if isinstance(a, Decimal):
        return _to_result(_divide(a, b, signature.result.scale or 0), signature)
    return _to_result(_truncated(a, b), signature)


def _divide(a: Decimal, b: Decimal, scale: int) -> Decimal:
    """Rounded once, half away from zero: a quotient of many digits rounded on the way would be rounded twice."""
    quotient = abs(Fraction(a) / Fraction(b)) * 10**scale
    units = (quotient.numerator * 2 + quotient.denominator) // (quotient.denominator * 2)
    return Decimal((int((a < 0) != (b < 0)), tuple(map(int, str(units))), -scale))


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(values: tuple[Number, ...], signature: Signature) -> Value:
    a, b = values
    if b == 0:
        return None
    if isinstance(a, Decimal):
        return _to_result(EXACT.remainder(a, b), signature)
    return _to_result(a - b * _truncated(a, b), signature)


def _times_limit(values: tuple[Number, ...]) -> Value:
    """Nothing times anything is nothing, however large."""
    return math.prod(0 if v == 0 else math.copysign(INFINITE, v) for v in values) if 0 not in values else 0


def _divided_limit(values: tuple[Number, ...]) -> Value:
    a, b = values
    if b == 0:
        return None
    return 0 if abs(b) == INFINITE else math.copysign(INFINITE, a) * math.copysign(1, b)


# ── of one number ───────────────────────────────────────────────────────────────────────────────────────────────────


def _fit_number(*, interval: bool) -> Fit:
    def fit_one(types: tuple[DataType, ...]) -> Signature | None:
        type = INT if types[0] == NULL else types[0]
        return Signature((type,), type) if type.is_number or (interval and type == INTERVAL) else None

    return fit_one


def _fit_whole(types: tuple[DataType, ...]) -> Signature | None:
    """To a whole number: a decimal keeps its whole part and gains the digit that rounding up may take."""
    type = INT if types[0] == NULL else types[0]
    if type.name == "decimal":
        digits, scale = decimal_shape(type)
        return Signature((type,), _decimal(digits - scale + 1, 0))
    return Signature((type,), type) if type.is_number else None


def _fit_round(types: tuple[DataType, ...]) -> Signature | None:
    """round(x, n) is for decimals, as in PostgreSQL; it keeps the type's scale, since n may vary by row."""
    if len(types) == 1:
        return _fit_whole(types)
    type = decimal_type(*decimal_shape(INT)) if types[0] in (NULL, INT) else types[0]
    if type.name != "decimal" or types[1] not in (INT, NULL):
        return None
    digits, scale = decimal_shape(type)
    return Signature((type, INT), _decimal(digits + 1, scale))


def _to_whole(decimal_rounding: str, of_float: Any) -> Apply:
    def apply(values: tuple[Number, ...], signature: Signature) -> Value:
        value = values[0]
        if isinstance(value, Decimal):
            places = min(max(values[1], -99), 99) if len(values) == 2 else 0
            if places >= (signature.args[0].scale or 0):
                return _to_result(value, signature)
            shifted = value.scaleb(places, EXACT).to_integral_value(decimal_rounding).scaleb(-places, EXACT)
            return _to_result(shifted, signature)
        if isinstance(value, float):
            # A float from 2^53 up is whole already, and an int of its size need not fit a float again.
            return math.copysign(float(of_float(value)), value)
        return _to_result(value, signature)

    return apply


def _abs(values: tuple[Number, ...], signature: Signature) -> Value:
    return _to_result(values[0].copy_abs() if isinstance(values[0], Decimal) else abs(values[0]), signature)


def _neg(values: tuple[Number, ...], signature: Signature) -> Value:
    return _to_result(values[0].copy_negate() if isinstance(values[0], Decimal) else -values[0], signature)


def _sign(values: tuple[Number, ...], signature: Signature) -> Value:
    return _to_result((values[0] > 0) - (values[0] < 0), signature)


def _fit_float(types: tuple[DataType, ...]) -> Signature | None:
    """Roots and powers are floats, whatever number they are of."""
    return Signature((FLOAT,) * len(types), FLOAT) if all(t.is_number or t == NULL for t in types) else None


def _sqrt(values: tuple[Number, ...], signature: Signature) -> Value:
    return math.sqrt(values[0]) if values[0] >= 0 else None


def _transcendental(values: tuple[Number, ...], compute: Any) -> Value:
    try:
        return fit(float(compute(*(TRANSCENDENTAL.create_decimal(v) for v in values))), FLOAT)
    except (DecimalException, OverflowError):
        return None


def _exp(values: tuple[Number, ...], signature: Signature) -> Value:
    return _transcendental(values, TRANSCENDENTAL.exp)


def _ln(values: tuple[Number, ...], signature: Signature) -> Value:
    return _transcendental(values, TRANSCENDENTAL.ln) if values[0] > 0 else None


def _log10(values: tuple[Number, ...], signature: Signature) -> Value:
    return _transcendental(values, TRANSCENDENTAL.log10) if values[0] > 0 else None


def _power(values: tuple[Number, ...], signature: Signature) -> Value:
    base, exponent = values
    if exponent == 0:
        return 1.0
    if base == 0:
        return 0.0 if exponent > 0 else None
    return _transcendental(values, TRANSCENDENTAL.power)


def _sign_limit(values: tuple[Number, ...]) -> Value:
    return 1 if values[0] > 0 else -1


def _exp_limit(values: tuple[Number, ...]) -> Value:
    return None if values[0] > 0 else 0.0


def _same_limit(values: tuple[Value, ...]) -> Value:
    return values[0]


def _root_limit(values: tuple[Number, ...]) -> Value:
    return values[0] if values[0] > 0 else None


FUNCTIONS: Final = (
    Scalar("+", (2, 2), _fit_plus, _plus, (UP, UP)),
    Scalar("-", (2, 2), _fit_minus, _minus, (UP, DOWN)),
    Scalar("*", (2, 2), _fit_times, _times, (EITHER, EITHER), limit=_times_limit),
    Scalar("/", (2, 2), _fit_divided, _divided, (EITHER, EITHER), pivot={1: 0}, limit=_divided_limit),
    Scalar("%", (2, 2), lambda types: _numbers("%", *types), _modulo, (NEITHER, NEITHER), partial=True),
    Scalar("neg", (1, 1), _fit_number(interval=True), _neg, (DOWN,)),
    Scalar("abs", (1, 1), _fit_number(interval=True), _abs, (EITHER,), pivot={0: 0}, limit=lambda values: INFINITE),
    Scalar("sign", (1, 1), _fit_number(interval=False), _sign, (UP,), limit=_sign_limit),
    Scalar(
        "round", (1, 2), _fit_round, _to_whole(ROUND_HALF_UP, round), (UP, NEITHER), partial=True, limit=_same_limit
    ),
    Scalar("floor", (1, 1), _fit_whole, _to_whole(ROUND_FLOOR, math.floor), (UP,), limit=_same_limit),
    Scalar("ceil", (1, 1), _fit_whole, _to_whole(ROUND_CEILING, math.ceil), (UP,), limit=_same_limit),
    Scalar("trunc", (1, 1), _fit_whole, _to_whole(ROUND_DOWN, math.trunc), (UP,), limit=_same_limit),
    Scalar("sqrt", (1, 1), _fit_float, _sqrt, (UP,), limit=_root_limit),
    Scalar("exp", (1, 1), _fit_float, _exp, (UP,), limit=_exp_limit),
    Scalar("ln", (1, 1), _fit_float, _ln, (UP,), limit=_root_limit),
    Scalar("log10", (1, 1), _fit_float, _log10, (UP,), limit=_root_limit),
    Scalar("power", (2, 2), _fit_float, _power, (NEITHER, NEITHER), partial=True),
)
