"""Coercions and literals give the results of PostgreSQL, and printed values parse to the same values."""

from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given

from smile.algebra.coercions import (
    TICKS_PER_UNIT,
    can_cast,
    cast,
    common_type,
    interval_text,
    is_monotone_cast,
    literal_text,
    parse_interval,
    parse_literal,
)
from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    INT_MAX,
    INTERVAL,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    decimal_type,
    relation_type,
)
from tests.knowledge.chains import POOL, RANDOMS, extreme, ordinary, repeatable

MONEY = decimal_type(6, 2)
RELATION = relation_type((("a", INT),))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (INT, INT, INT),
        (NULL, INT, INT),
        (NULL, NULL, NULL),
        (INT, FLOAT, FLOAT),
        (MONEY, FLOAT, FLOAT),
        (INT, MONEY, decimal_type(21, 2)),
        (MONEY, decimal_type(10, 4), decimal_type(10, 4)),
        (decimal_type(38, 0), MONEY, decimal_type(38, 2)),
        (DATE, TIMESTAMP, TIMESTAMP),
        (TIMESTAMP, TIME, TIME),
        (DATE, TIME, TIME),
        (INT, TIME, None),
        (INT, INTERVAL, None),
        (STRING, INT, None),
        (BOOL, INT, None),
        (RELATION, RELATION, RELATION),
        (RELATION, INT, None),
    ],
)
def test_common_type(a: DataType, b: DataType, expected: DataType | None) -> None:
    assert common_type(a, b) == common_type(b, a) == expected


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (Decimal("2.5"), MONEY, INT, 3),
        (Decimal("-2.5"), MONEY, INT, -3),
        (2.5, FLOAT, INT, 2),
        (-2.5, FLOAT, INT, -2),
        (3.5, FLOAT, INT, 4),
        (1e19, FLOAT, INT, None),
        (1e300, FLOAT, decimal_type(38, 0), None),
        (Decimal("2.345"), decimal_type(4, 3), MONEY, Decimal("2.35")),
        (Decimal("9999.995"), decimal_type(7, 3), MONEY, None),
        (0.1, FLOAT, decimal_type(20, 18), Decimal("0.1")),
        (12345, INT, MONEY, None),
        (2**63 - 1, INT, FLOAT, 9.223372036854775807e18),
        (True, BOOL, INT, 1),
        (-3, INT, BOOL, True),
        (0, INT, BOOL, False),
        (1.0, FLOAT, STRING, "1"),
        (1e15, FLOAT, STRING, "1e+15"),
        (1e-5, FLOAT, STRING, "1e-05"),
        (123456.789, FLOAT, STRING, "123456.789"),
        (Decimal("1.50"), MONEY, STRING, "1.50"),
        (True, BOOL, STRING, "true"),
        (b"\x0a\xff", BYTES, STRING, "\\x0aff"),
        (0, TIMESTAMP, STRING, "1970-01-01 00:00:00"),
        (500_000, TIMESTAMP, STRING, "1970-01-01 00:00:00.5"),
        (-1, DATE, STRING, "1969-12-31"),
        (90 * TICKS_PER_UNIT["MINUTE"], INTERVAL, STRING, "01:30:00"),
        (" 12 ", STRING, INT, 12),
        ("1.5", STRING, INT, None),
        ("9223372036854775808", STRING, INT, None),
        ("1e400", STRING, FLOAT, None),
        ("NaN", STRING, FLOAT, None),
        ("1e2", STRING, MONEY, Decimal(100)),
        ("yes", STRING, BOOL, True),
        ("of", STRING, BOOL, False),
        ("o", STRING, BOOL, None),
        ("2024-02-29", STRING, DATE, 19782),
        ("2023-02-29", STRING, DATE, None),
        ("1970-01-01T02:00:00+02:00", STRING, TIMESTAMP, 0),
        ("0001-01-01T00:00:00+05:00", STRING, TIMESTAMP, None),
        ("1970-01-01 00:00:01", STRING, TIME, 1_024_000_000),
        ("17", STRING, TIME, 17),
        ("\\x0aff", STRING, BYTES, b"\x0a\xff"),
        ("0aff", STRING, BYTES, None),
        (1, TIMESTAMP, TIME, 1024),
        (10**16, TIMESTAMP, TIME, None),
        (2047, TIME, TIMESTAMP, 1),
        (-1, TIME, TIMESTAMP, -1),
        (-1, TIMESTAMP, DATE, -1),
        (2, DATE, TIMESTAMP, 172_800_000_000),
        (17, INT, TIME, 17),
        (None, INT, STRING, None),
    ],
)
def test_cast(value: Value, source: DataType, target: DataType, expected: Value) -> None:
    result = cast(value, source, target)
    assert result == expected
    assert type(result) is type(expected)


def test_casts_that_do_not_exist() -> None:
    for a, b in ((INTERVAL, INT), (INT, INTERVAL), (BOOL, FLOAT), (DATE, INT), (RELATION, STRING), (INT, NULL)):
        assert not can_cast(a, b)
        with pytest.raises(TypeError):
            cast(None, a, b)
    assert can_cast(RELATION, RELATION)


@repeatable(1500)
@given(RANDOMS)
def test_monotone_casts_keep_order(random: Random) -> None:
    source, target = random.choice([(a, b) for a in POOL for b in POOL if is_monotone_cast(a, b)])
    draw: Any = random.choice([ordinary, extreme])
    if source == BOOL:
        return
    low, high = (cast(v, source, target) for v in sorted(draw(random, source) for _ in range(2)))
    assert low is None or high is None or low <= high  # type: ignore[operator]


@repeatable(1500)
@given(RANDOMS)
def test_literals_read_back(random: Random) -> None:
    type = random.choice(POOL)
    draw: Any = random.choice([ordinary, extreme])
    value = random.random() < 0.5 if type == BOOL else draw(random, type)
    parsed = parse_literal(literal_text(value, type), type)
    assert (parsed, repr(parsed)) == (value, repr(value))
    if type != STRING:
        assert cast(cast(value, type, STRING), STRING, type) == value


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("3", "MINUTE", "INTERVAL '3' MINUTE"),
        ("3 minutes", None, "INTERVAL '3' MINUTE"),
        ("1 hour 30 minutes", None, "INTERVAL '90' MINUTE"),
        ("1:30:00", None, "INTERVAL '90' MINUTE"),
        ("1:30", None, "INTERVAL '90' MINUTE"),
        ("1:30", "MINUTE TO SECOND", "INTERVAL '90' SECOND"),
        ("1.5", "SECOND", "INTERVAL '1500' MILLISECOND"),
        ("1 10:00:00", "DAY TO SECOND", "INTERVAL '34' HOUR"),
        ("2 weeks", None, "INTERVAL '14' DAY"),
        ("-3 min", None, "INTERVAL '-3' MINUTE"),
        ("1h", None, "INTERVAL '1' HOUR"),
        ("5", None, "INTERVAL '5' SECOND"),
        ("7", "tick", "INTERVAL '7' TICK"),
        ("3 us", None, "INTERVAL '3' MICROSECOND"),
        ("0", "SECOND", "INTERVAL '0' DAY"),
        ("interval '3' minute", None, "INTERVAL '3' MINUTE"),
        ("0.0009765625", "MICROSECOND", "INTERVAL '1' TICK"),
    ],
)
def test_intervals(text: str, unit: str | None, expected: str) -> None:
    ticks = parse_interval(text, unit)
    assert interval_text(ticks) == expected
    assert parse_interval(expected) == ticks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 month", "not fixed"),
        ("2 years", "not fixed"),
        ("1 mon", "not fixed"),
        ("3 centuries", "not fixed"),
        ("x", "not an interval"),
        ("", "empty"),
        ("3 parsecs", "not a unit"),
        ("0.0000001 s", "whole number of ticks"),
        ("999999999 days", "out of range"),
        ("1:2:3:4", "not an interval"),
    ],
)
def test_wrong_intervals(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_interval(text)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("1.0", INT),
        ("", INT),
        ("1_000", INT),
        ("٣", INT),
        ("inf", FLOAT),
        ("maybe", BOOL),
        ("1", RELATION),
        ("9" * 2000, INT),
    ],
)
def test_wrong_literals(text: str, type: DataType) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_literal(text, type)


def test_null_has_no_text() -> None:
    with pytest.raises(ValueError, match="NULL"):
        literal_text(None, INT)


def test_time_reaches_the_last_tick() -> None:
    assert parse_literal(str(INT_MAX), TIME) == INT_MAX
