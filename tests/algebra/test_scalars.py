"""Functions give the results of PostgreSQL, are monotone as declared, and raise no exception for any value."""

from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from random import Random
from typing import Any

import pytest
from hypothesis import given

from smile.algebra.arrays import decode_array, encode_array
from smile.algebra.coercions import EPOCH, TIMESTAMP_MAX, TIMESTAMP_MIN, can_cast, fit_number
from smile.algebra.functions.catalogue import (
    DECREASING,
    INCREASING,
    SCALAR_FUNCTIONS,
    arity_of,
    evaluate,
    evaluate_expr,
    resolve_signature,
    type_of,
)
from smile.algebra.functions.time_parsing import unit_of_format
from smile.algebra.mmpl import Call, Case, Cast, ColumnRef, Constant
from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    INTERVAL,
    JSON,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    DataType,
    Value,
    array_type,
    decimal_type,
    relation_type,
)
from smile.errors import SmileError
from tests.knowledge.chains import POOL, RANDOMS, extreme, ordinary, repeatable, signatures_of

D = Decimal
MONEY, RATE, WIDE = decimal_type(6, 2), decimal_type(4, 3), decimal_type(38, 0)
SECOND = 1_024_000_000
NOON = 1_709_208_000_123_456  # 2024-02-29 12:00:00.123456, a Thursday


class J(str):
    """The canonical text of a JSON value."""

    __slots__ = ()


DOCUMENT = J('{"a": [1, {"b": "x"}, null], "n": null, "s": "a\\"b", "1": true}')
LARGE = "12345678901234567890123456789.123456789"


def type_of_value(value: Any) -> DataType:
    match value:
        case J():
            return JSON
        case None:
            return NULL
        case bool():
            return BOOL
        case int():
            return INT
        case float():
            return FLOAT
        case Decimal():
            return MONEY
        case bytes():
            return BYTES
        case list():
            return array_type(type_of_value(next((v for v in value if v is not None), None)))
    return STRING


Example = Value | list[Value]
"""A list is an array."""

EXAMPLES: dict[str, list[tuple[tuple[Any, ...], Example]]] = {
    "+": [((2, 3), 5), ((INT_MAX, 1), None), ((1.5, 1), 2.5), ((D("1.10"), 2), D("3.10")), ((None, 1), None)],
    "-": [((2, 3), -1), ((INT_MIN, 1), None), ((D("1.10"), D("0.10")), D("1.00"))],
    "*": [((4, -3), -12), ((2**62, 2), None), ((D("1.10"), D("1.10")), D("1.2100")), ((1e200, 1e200), None)],
    "/": [((7, 2), 3), ((-7, 2), -3), ((7, -2), -3), ((1, 0), None), ((INT_MIN, -1), None), ((1.0, 4.0), 0.25)],
    "%": [((7, 3), 1), ((-7, 3), -1), ((7, -3), 1), ((7, 0), None), ((D("5.50"), D("2.00")), D("1.50"))],
    "neg": [((3,), -3), ((INT_MIN,), None), ((D("1.50"),), D("-1.50"))],
    "=": [((1, 1), True), ((1, 1.0), True), (("a", "b"), False), ((None, None), None)],
    "<>": [((1, 2), True), ((D("1.50"), 1.5), False)],
    "<": [((1, 2), True), (("a", "B"), False), ((False, True), True)],
    "<=": [((2, 2), True)],
    ">": [((2, 2), False)],
    ">=": [((2, None), None)],
    "and": [((True, None), None), ((False, None), False), ((True, True, False), False), ((True, True), True)],
    "or": [((True, None), True), ((False, None), None), ((False, False), False)],
    "not": [((True,), False), ((None,), None)],
    "is null": [((None,), True), ((0,), False)],
    "is not null": [((None,), False), (("",), True)],
    "is distinct from": [((None, None), False), ((1, None), True), ((1, 2), True), ((1, 1), False)],
    "is not distinct from": [((None, None), True), ((1, None), False)],
    "coalesce": [((None, 2, 3), 2), ((None, None), None)],
    "nullif": [((1, 1), None), ((1, 2), 1), ((None, 1), None), ((1, None), 1)],
    "greatest": [((1, None, 3), 3), ((None, None), None), (("a", "b"), "b")],
    "least": [((1, None, 3), 1)],
    "||": [(("a", "b"), "ab"), (("a", 1), "a1"), ((b"a", b"b"), b"ab"), (("a", None), None)],
    "array": [((1, None, 2), [1, None, 2]), (("a", "b"), ["a", "b"])],
    "subscript": [(([7, 8], 2), 8), (([7, 8], 0), None), (([7, 8], 3), None), (([None, 8], 1), None)],
    "cardinality": [(([7, None],), 2)],
    "array_contains": [
        (([7, 8], 8), True),
        (([7, 8], 9), False),
        (([7, None], 9), None),
        (([7, None], 7), True),
        (([7], None), None),
        (([7, 8], 7.5), False),
    ],
    "array_position": [(([7, 8], 8), 2), (([7, 8], 9), None), (([7, None], None), 2)],
    "array_to_string": [
        ((["a", None, "b"], "-"), "a-b"),
        ((["a", None], "-", "?"), "a-?"),
        (([1.5, 2.0], ","), "1.5,2"),
    ],
    "string_to_array": [
        (("a,b,", ","), ["a", "b", ""]),
        (("ab", None), ["a", "b"]),
        (("", ","), []),
        (("a,b", ""), ["a,b"]),
    ],
    "concat": [(("a", None, 1, True), "a1true")],
    "concat_ws": [((", ", "a", None, 1, ""), "a, 1, "), ((None, "a"), None), ((",", None), "")],
    "lpad": [
        (("7", 3, "0"), "007"),
        (("abc", 2), "ab"),
        (("a", 4, "xy"), "xyxa"),
        (("a", 3), "  a"),
        (("a", 3, ""), "a"),
        (("a", -1), ""),
        (("a", INT_MAX), None),
    ],
    "rpad": [(("7", 3, "0"), "700"), (("abc", 2), "ab"), (("a", 4, "xy"), "axyx"), (("a", INT_MAX), None)],
    "repeat": [(("ab", 3), "ababab"), (("ab", 0), ""), (("ab", -1), ""), (("a", INT_MAX), None)],
    "initcap": [(("hello wORLD-wide 2nd",), "Hello World-Wide 2nd")],
    "translate": [(("12345", "143", "ax"), "a2x5"), (("banana", "an", "on"), "bonono")],
    "chr": [((65,), "A"), ((8364,), "€"), ((0,), None), ((-1,), None), ((0xD800,), None)],
    "ascii": [(("x",), 120), (("€5",), 8364), (("",), 0)],
    "md5": [(("abc",), "900150983cd24fb0d6963f7d28e17f72")],
    "regexp_like": [
        (("Banana", "an.n"), True),
        (("banana", "^an"), False),
        (("Banana", "bAN", "i"), True),
        (("a\nb", "a.b"), True),
        (("a\nb", "a$"), False),
        (("a", "("), None),
        (("a", "a", "x"), None),
        (("aa", r"(a)\1"), None),
    ],
    "regexp_replace": [
        (("banana", "an", "o"), "boana"),
        (("banana", "an", "o", "g"), "booa"),
        (("ab", "(a)(b)", r"\2\1"), "ba"),
        (("ab", "A", r"<\&>", "i"), "<a>b"),
        (("ab", "a", r"\\&\\\&"), r"\&\ab"),
        (("ab", "(", ""), None),
    ],
    "regexp_substr": [
        (("order 17, 18", "[0-9]+"), "17"),
        (("order", "[0-9]+"), None),
        (("xabab", "a(x)?b"), "ab"),
        (("caa\nb", "a+."), "aa\n"),
    ],
    "like": [
        (("abc", "a%"), True),
        (("abc", "_b_"), True),
        (("abc", "b"), False),
        (("a%c", "a\\%c"), True),
        (("abc", "a\\%c"), False),
        (("a\nb", "a%b"), True),
        (("", "%"), True),
        (("abc", "a\\"), None),
        (("a%c", "a!%c", "!"), True),
        (("aaab", "%a%ab"), True),
        (("ABC", "abc"), False),
    ],
    "ilike": [(("ABC", "a%"), True)],
    "abs": [((-3,), 3), ((INT_MIN,), None), ((D("-1.50"),), D("1.50"))],
    "sign": [((-3,), -1), ((0.0,), 0.0), ((D("2.00"),), D(1))],
    "round": [
        ((2.5,), 2.0),
        ((3.5,), 4.0),
        ((D("2.50"),), D(3)),
        ((D("-2.50"),), D(-3)),
        ((D("12.35"), 1), D("12.40")),
        ((D("55.00"), -1), D("60.00")),
        ((D("12.35"), 9), D("12.35")),
        ((7,), 7),
        ((2.675, 2), 2.67),
        ((2.5, 0), 2.0),
        ((1234.5, -2), 1200.0),
        ((1.7e308, -308), None),
        ((1.5, -1000), 0.0),
    ],
    "floor": [((-1.5,), -2.0), ((D("-1.50"),), D(-2)), ((1e300,), 1e300)],
    "ceil": [((-1.5,), -1.0), ((D("1.10"),), D(2))],
    "trunc": [((-1.5,), -1.0), ((D("1.90"),), D(1)), ((D("-1.98"), 1), D("-1.90")), ((D("198.00"), -2), D(100))],
    "sqrt": [((4.0,), 2.0), ((-1.0,), None), ((2,), 1.4142135623730951)],
    "exp": [((1.0,), 2.718281828459045), ((1000,), None), ((-1000,), 0.0)],
    "ln": [((1.0,), 0.0), ((0,), None), ((10,), 2.302585092994046)],
    "log10": [((1000,), 3.0), ((-1,), None)],
    "power": [((2, 10), 1024.0), ((0, 0), 1.0), ((0, -1), None), ((-8, 0.5), None), ((-2, 3), -8.0), ((10, 400), None)],
    "width_bucket": [
        ((5.35, 0.024, 10.06, 5), 3),
        ((-1, 0, 100, 10), 0),
        ((0, 0, 100, 10), 1),
        ((99, 0, 100, 10), 10),
        ((100, 0, 100, 10), 11),
        ((D("2.50"), 10, 0, 4), 4),
        ((10, 10, 0, 4), 1),
        ((11, 10, 0, 4), 0),
        ((0, 10, 0, 4), 5),
        ((1, 5, 5, 10), None),
        ((1, 0, 10, 0), None),
        ((100, 0, 10, INT_MAX), None),
    ],
    "lower": [(("AbÉ",), "abé")],
    "upper": [(("abc",), "ABC")],
    "length": [(("héllo",), 5), ((b"\x00\x01",), 2)],
    "substring": [
        (("hello", 2), "ello"),
        (("hello", 2, 3), "ell"),
        (("hello", 0, 2), "h"),
        (("hello", -5, 2), ""),
        (("hello", 2, -1), None),
    ],
    "left": [(("hello", 2), "he"), (("hello", -2), "hel")],
    "right": [(("hello", 2), "lo"), (("hello", -2), "llo"), (("hello", 0), ""), (("hello", 9), "hello")],
    "trim": [(("  a b ",), "a b"), (("xxaxx", "x"), "a"), (("\ta",), "\ta")],
    "ltrim": [(("  a ",), "a ")],
    "rtrim": [(("  a ",), "  a")],
    "replace": [(("banana", "an", "o"), "booa"), (("abc", "", "x"), "abc")],
    "position": [(("na", "banana"), 3), (("x", "banana"), 0), (("", "a"), 1)],
    "starts_with": [(("banana", "ba"), True)],
    "reverse": [(("abc",), "cba")],
    "json_get": [
        ((DOCUMENT, "a"), '[1, {"b": "x"}, null]'),
        ((DOCUMENT, "n"), "null"),
        ((DOCUMENT, "x"), None),
        ((DOCUMENT, "1"), "true"),
        ((DOCUMENT, 1), None),
        ((J("[1, 2]"), 1), "2"),
        ((J("[1, 2]"), -2), "1"),
        ((J("[1, 2]"), -3), None),
        ((J("[1, 2]"), "1"), None),
        ((J("[1, 2]"), INT_MAX), None),
        ((J('"a"'), 0), '"a"'),
        ((J("1"), -1), "1"),
        ((J("1"), 1), None),
        ((J("{}"), 0), None),
        ((J("null"), "a"), None),
        ((None, "a"), None),
    ],
    "json_get_text": [
        ((DOCUMENT, "s"), 'a"b'),
        ((DOCUMENT, "n"), None),
        ((DOCUMENT, "1"), "true"),
        ((J("[[1]]"), 0), "[1]"),
        ((J(f'{{"a": {LARGE}}}'), "a"), LARGE),
        ((J('["\\u0001é"]'), 0), "\x01é"),
    ],
    "json_path": [
        ((DOCUMENT, "a", "1", "b"), '"x"'),
        ((DOCUMENT, "a", "-1"), "null"),
        ((DOCUMENT, "a", "b"), None),
        ((DOCUMENT, "s", "b"), None),
        ((J("[[5]]"), " 0", "+0"), "5"),
        ((J("7"),), "7"),
        ((J("[1]"), "99999999999"), None),
    ],
    "json_path_text": [((DOCUMENT, "a", "1", "b"), "x"), ((DOCUMENT, "a", "2"), None), ((J('"a"'),), "a")],
    "json_has_key": [
        ((DOCUMENT, "n"), True),
        ((DOCUMENT, "b"), False),
        ((J('["a", 1]'), "a"), True),
        ((J("[1]"), "1"), False),
        ((J('"a"'), "a"), True),
        ((J("1"), "1"), False),
    ],
    "json_typeof": [
        ((DOCUMENT,), "object"),
        ((J("[]"),), "array"),
        ((J('""'),), "string"),
        ((J("-1"),), "number"),
        ((J("false"),), "boolean"),
        ((J("null"),), "null"),
    ],
    "json_array_length": [((J("[1, [2, 3]]"),), 2), ((J("[]"),), 0), ((DOCUMENT,), None), ((J("1"),), None)],
    "to_json": [
        (('a"b',), '"a\\"b"'),
        ((1,), "1"),
        ((1.5,), "1.5"),
        ((1e20,), "100000000000000000000"),
        ((D("1.50"),), "1.5"),
        ((True,), "true"),
        ((J("[1]"),), "[1]"),
        ((b"\x0a",), '"\\\\x0a"'),
        ((None,), None),
        (("\0",), None),
    ],
    "json_build_array": [((1, "a", None, J("{}")), '[1, "a", null, {}]')],
    "json_build_object": [
        (("bb", 1, "a", "x", "bb", 2), '{"a": "x", "bb": 2}'),
        (("a", None), '{"a": null}'),
        ((None, 1), None),
        ((1, 2), '{"1": 2}'),
    ],
    "split_part": [(("a,b,c", ",", 2), "b"), (("a,b,c", ",", -1), "c"), (("a", ",", 9), ""), (("a", ",", 0), None)],
}
EXTRACTED_FROM_NOON: dict[str, Value] = {
    "extract_year": 2024,
    "extract_quarter": 1,
    "extract_month": 2,
    "extract_week": 9,
    "extract_day": 29,
    "extract_doy": 60,
    "extract_dow": 4,
    "extract_hour": 12,
    "extract_minute": 0,
    "extract_second": D("0.123456"),
    "extract_epoch": D("1709208000.123456"),
}


def run(name: str, values: tuple[Any, ...], types: tuple[DataType, ...]) -> Value:
    """Casts the arguments to the types of the signature, as the translator does, and evaluates the call."""
    signature = resolve_signature(name, types)
    assert signature is not None, (name, types)
    values = tuple(encode_array(v, t.element) if isinstance(v, list) else v for v, t in zip(values, types, strict=True))
    values = tuple(str(v) if isinstance(v, J) else v for v in values)
    args = tuple(Cast(Constant(v, t), a) for v, t, a in zip(values, types, signature.args, strict=True))
    assert type_of(Call(name, args), {}) == signature.result
    return evaluate_expr(Call(name, args), {}, {})


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    for values, expected in EXAMPLES[name]:
        types = tuple(map(type_of_value, values))
        result: Any = run(name, values, types)
        if isinstance(expected, list):
            element = STRING if name == "string_to_array" else types[0]
            result = decode_array(result, element)
        assert (result, type(result)) == (expected, type(expected)), (values, result)


@pytest.mark.parametrize("name", EXTRACTED_FROM_NOON)
def test_extract(name: str) -> None:
    assert run(name, (NOON,), (TIMESTAMP,)) == EXTRACTED_FROM_NOON[name]
    assert run(name, (NOON * 1024 + 5,), (TIME,)) == EXTRACTED_FROM_NOON[name]
    assert resolve_signature(name, (INT,)) is None


def test_every_entry_has_an_example() -> None:
    with_example = (
        EXAMPLES.keys() | EXTRACTED_FROM_NOON.keys() | {"date_trunc", "period_end", "to_char", "to_timestamp"}
    )
    assert SCALAR_FUNCTIONS.keys() == with_example, "add what is missing to EXAMPLES above"


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("hour", "2024-02-29 12:00:00"),
        ("day", "2024-02-29 00:00:00"),
        ("WEEK", "2024-02-26 00:00:00"),
        ("month", "2024-02-01 00:00:00"),
        ("quarter", "2024-01-01 00:00:00"),
        ("year", "2024-01-01 00:00:00"),
        ("millisecond", "2024-02-29 12:00:00.123"),
        ("hours", "2024-02-29 12:00:00"),
        ("MILLISECONDS", "2024-02-29 12:00:00.123"),
        ("decade", "2020-01-01 00:00:00"),
        ("century", "2001-01-01 00:00:00"),
        ("centuries", "2001-01-01 00:00:00"),
        ("millennia", "2001-01-01 00:00:00"),
    ],
)
def test_date_trunc(unit: str, expected: str) -> None:
    """The expected texts are those of PostgreSQL 18."""
    truncated = Call("date_trunc", (Constant(unit, STRING), Constant(NOON, TIMESTAMP)))
    assert evaluate_expr(Cast(truncated, STRING), {}, {}) == expected


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("hour", "2024-02-29 12:00:00", "2024-02-29 13:00:00"),
        ("15 minutes", "2024-02-29 12:00:00", "2024-02-29 12:15:00"),
        ("week", "2024-02-26 00:00:00", "2024-03-04 00:00:00"),
        ("2 weeks", "2024-02-19 00:00:00", "2024-03-04 00:00:00"),
        ("month", "2024-02-01 00:00:00", "2024-03-01 00:00:00"),
        ("6 months", "2024-01-01 00:00:00", "2024-07-01 00:00:00"),
        ("millennium", "2001-01-01 00:00:00", "3001-01-01 00:00:00"),
        ("0 days", None, None),
    ],
)
def test_both_ends_of_a_period(period: str, start: str | None, end: str | None) -> None:
    for function, expected in (("date_trunc", start), ("period_end", end)):
        boundary = Call(function, (Constant(period, STRING), Constant(NOON, TIMESTAMP)))
        assert evaluate_expr(Cast(boundary, STRING), {}, {}) == expected


@pytest.mark.parametrize(
    ("zone", "day", "start", "end"),
    [
        ("Europe/Berlin", "2026-03-29 12:00:00", "2026-03-28 23:00:00", "2026-03-29 22:00:00"),  # 23 hours
        ("Europe/Berlin", "2026-10-25 12:00:00", "2026-10-24 22:00:00", "2026-10-25 23:00:00"),  # 25 hours
        ("America/New_York", "2026-07-04 03:59:59.999999", "2026-07-03 04:00:00", "2026-07-04 04:00:00"),
        ("America/Havana", "2024-11-03 04:30:00", "2024-11-03 04:00:00", "2024-11-04 05:00:00"),  # midnight comes twice
        ("America/Sao_Paulo", "2018-11-04 12:00:00", "2018-11-04 03:00:00", "2018-11-05 02:00:00"),  # it does not come
        ("America/St_Johns", "2005-10-30 02:30:30", "2005-10-30 02:30:00", "2005-10-31 03:30:00"),  # from 0:01 to 23:01
        ("America/St_Johns", "2005-10-30 03:00:00", "2005-10-30 02:30:00", "2005-10-31 03:30:00"),
        ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 10:00:00", "2011-12-31 10:00:00"),  # after a day left out
        ("Asia/Kathmandu", "2026-01-01 00:00:00", "2025-12-31 18:15:00", "2026-01-01 18:15:00"),
        ("Europe/Berlin", "2450-07-01 12:00:00", "2450-06-30 22:00:00", "2450-07-01 22:00:00"),  # by the rules of today
        ("Nowhere/City", "2026-01-01 00:00:00", None, None),
    ],
)
def test_days_of_a_time_zone(zone: str, day: str, start: str | None, end: str | None) -> None:
    moment = Cast(Constant(day, STRING), TIMESTAMP)
    for function, expected in (("date_trunc", start), ("period_end", end)):
        boundary = Call(function, (Constant("day", STRING), moment, Constant(zone, STRING)))
        assert evaluate_expr(Cast(boundary, STRING), {}, {}) == expected, function


def test_hours_of_a_time_zone_are_not_periods() -> None:
    """A clock that is set back shows an hour twice."""
    types = (STRING, TIMESTAMP, STRING)
    assert run("date_trunc", ("hour", 0, "Europe/Berlin"), types) is None
    assert run("date_trunc", ("36 hours", 0, "Europe/Berlin"), types) is None
    assert run("date_trunc", ("48 hours", 0, "Europe/Berlin"), types) is not None


def test_date_trunc_without_a_value() -> None:
    assert run("date_trunc", ("fortnight", 0), (STRING, TIMESTAMP)) is None
    year_5 = (datetime(5, 3, 1, tzinfo=EPOCH.tzinfo) - EPOCH) // timedelta(microseconds=1)
    assert run("date_trunc", ("decade", year_5), (STRING, TIMESTAMP)) is None


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("YYYY-MM-DD HH24:MI:SS.US", "2024-02-29 12:00:00.123456"),
        ("yyyy/mm/dd hh:mi am", "2024/02/29 12:00 pm"),
        ("HH12:MI:SS.MS PM", "12:00:00.123 PM"),
        ('Dy, DD Mon YY "at" HH24', "Thu, 29 Feb 24 at 12"),
        ("MON dy FMMonth FMDAY", "FEB thu February THURSDAY"),
        ("Q DDD D ID IYYY-IW", "1 060 5 4 2024-09"),
        ("", ""),
        ("Zone", None),
        ('"open', None),
    ],
)
def test_to_char(format: str, expected: str | None) -> None:
    """The expected texts are those of PostgreSQL 15."""
    assert run("to_char", (NOON, format), (TIMESTAMP, STRING)) == expected
    assert run("to_char", (NOON * 1024 + 5, format), (TIME, STRING)) == expected


FORMATS = {
    "YYYY": "year", "YYYY-MM": "month", "YYYYMMDD": "day", "DD.MM.YYYY HH24:MI:SS": "second", "YYYY Q": "quarter",
    "YYYY DDD": "day", "IYYY-IW": "week", "IYYY IW ID": "day", "FMDay, DD FMMonth YYYY": "day", "DD Mon YYYY": "day",
    "YYYY-MM-DD HH12 AM": "hour", "YYYY-MM-DD HH:MI:SS.MS pm": "millisecond", "YYYY-MM-DD HH24:MI:SS.US": "microsecond",
    "YYYY HH24": "year", "YYYY-DD-MM DDD D YY": "day", "MM-DD": None, "YY-MM": None, "HH24": None, "": None,
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_to_timestamp_of_what_to_char_writes(format: str) -> None:
    """It is in the period that the format names, and no later."""
    assert unit_of_format(format) == FORMATS[format]
    random = Random(format)
    for _ in range(100):
        moment = random.randint(TIMESTAMP_MIN, TIMESTAMP_MAX)
        text = run("to_char", (moment, format), (TIMESTAMP, STRING))
        read = run("to_timestamp", (text, format), (STRING, STRING))
        if FORMATS[format] is None:
            assert read is None
        else:
            starts = [run("date_trunc", (FORMATS[format], t), (STRING, TIMESTAMP)) for t in (moment, read)]
            assert starts[0] == starts[1], text
            assert isinstance(read, int)
            assert read <= moment, text


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ("05 Dec 2000", "DD Mon YYYY", "2000-12-05 00:00:00"),
        ("2024-02-29T12:34", 'YYYY-MM-DD"T"HH24:MI', "2024-02-29 12:34:00"),
        ("2023-02-29", "YYYY-MM-DD", None),
        ("2024-2-9", "YYYY-MM-DD", None),
        ("2024-02-29 ", "YYYY-MM-DD", None),
        ("\u0662024", "YYYY", None),
    ],
)
def test_to_timestamp(text: str, format: str, expected: str | None) -> None:
    read = Call("to_timestamp", (Constant(text, STRING), Constant(format, STRING)))
    assert evaluate_expr(Cast(read, STRING), {}, {}) == expected


@pytest.mark.parametrize(
    ("name", "a", "b", "result", "values", "expected"),
    [
        ("+", TIME, INTERVAL, TIME, (5, 7), 12),
        ("+", INTERVAL, TIME, TIME, (5, 7), 12),
        ("-", TIME, INTERVAL, TIME, (5, 7), -2),
        ("-", TIME, TIME, INTERVAL, (12, 5), 7),
        ("+", TIMESTAMP, INTERVAL, TIMESTAMP, (1, 2 * SECOND), 2_000_001),
        ("-", TIMESTAMP, TIMESTAMP, INTERVAL, (3, 1), 2048),
        ("-", TIME, TIMESTAMP, INTERVAL, (2048, 1), 1024),
        ("+", DATE, INTERVAL, TIMESTAMP, (1, SECOND), 86_401_000_000),
        ("-", DATE, INTERVAL, TIMESTAMP, (1, SECOND), 86_399_000_000),
        ("-", DATE, DATE, INT, (10, 3), 7),
        ("+", DATE, INT, DATE, (10, 3), 13),
        ("+", INTERVAL, INTERVAL, INTERVAL, (1, 2), 3),
        ("*", INTERVAL, INT, INTERVAL, (10, 3), 30),
        ("*", FLOAT, INTERVAL, INTERVAL, (1.5, 10), 15),
        ("/", INTERVAL, INT, INTERVAL, (-7, 2), -3),
        ("/", INTERVAL, INT, INTERVAL, (7, 0), None),
        ("+", TIME, INTERVAL, TIME, (INT_MAX, 1), None),
        ("+", TIMESTAMP, INTERVAL, TIMESTAMP, (253_402_300_799_999_999, SECOND), None),
        ("/", WIDE, WIDE, decimal_type(38, 16), (D(1), D(3)), D("0.3333333333333333")),
        ("/", WIDE, WIDE, decimal_type(38, 16), (D(-2), D(3)), D("-0.6666666666666667")),
        ("*", WIDE, WIDE, WIDE, (D(10**20), D(10**20)), None),
        ("+", WIDE, WIDE, WIDE, (D(10**38 - 1), D(1)), None),
        ("+", WIDE, WIDE, WIDE, (D(10**38 - 2), D(1)), D(10**38 - 1)),
        ("+", MONEY, RATE, decimal_type(8, 3), (D("1.10"), D("0.001")), D("1.101")),
        ("*", MONEY, RATE, decimal_type(10, 5), (D("1.10"), D("0.001")), D("0.00110")),
        ("+", INT, MONEY, decimal_type(22, 2), (1, D("0.10")), D("1.10")),
        ("-", NULL, INT, INT, (None, 1), None),
    ],
)
def test_typed_arithmetic(
    name: str, a: DataType, b: DataType, result: DataType, values: tuple[Value, ...], expected: Value
) -> None:
    signature = resolve_signature(name, (a, b))
    assert signature is not None
    assert signature.result == result
    assert run(name, values, (a, b)) == expected


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("+", (TIME, TIME)),
        ("+", (TIME, INT)),
        ("+", (STRING, INT)),
        ("+", (BOOL, BOOL)),
        ("-", (INTERVAL, TIME)),
        ("*", (TIME, INT)),
        ("%", (FLOAT, INT)),
        ("=", (INT, TIME)),
        ("=", (STRING, INT)),
        ("=", (relation_type(()), relation_type(()))),
        ("and", (INT, BOOL)),
        ("lower", (INT,)),
        ("||", (INT, INT)),
        ("||", (JSON, STRING)),
        ("<", (JSON, JSON)),
        ("=", (JSON, STRING)),
        ("greatest", (JSON, JSON)),
        ("json_get", (STRING, STRING)),
        ("json_get", (JSON, FLOAT)),
        ("json_build_object", (STRING, INT, STRING)),
        ("to_json", (relation_type(()),)),
        ("||", (BYTES, STRING, INT)),
        ("round", (FLOAT, FLOAT)),
        ("to_char", (STRING, STRING)),
        ("coalesce", (INT, STRING)),
        ("abs", ()),
        ("not", (BOOL, BOOL)),
    ],
)
def test_types_that_do_not_fit(name: str, types: tuple[DataType, ...]) -> None:
    assert resolve_signature(name, types) is None


def draw_value(random: Random, type: DataType, draw: Any) -> Value:
    return random.choice([True, False]) if type == BOOL else draw(random, type)


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_signatures(name: str) -> None:
    """Arguments can be cast to the signature's types, which resolve to the same signature. Results have its type."""
    least, greatest = arity_of(name)
    assert least >= 1
    assert greatest is None or greatest >= least
    signatures = signatures_of(name)

    @repeatable(60)
    @given(RANDOMS)
    def holds(random: Random) -> None:
        types = tuple(random.choice([*POOL, NULL]) for _ in range(random.randint(least, greatest or 3)))
        signature = resolve_signature(name, types)
        if signature is not None:
            assert all(can_cast(t, a) for t, a in zip(types, signature.args, strict=True))
            assert resolve_signature(name, signature.args) == signature
        signature = random.choice(signatures)
        draw = random.choice([ordinary, extreme])
        values = [draw_value(random, t, draw) for t in signature.args]
        result: Any = evaluate(name, tuple(values), signature)
        if result is not None and signature.result.name in ("int", "float", "decimal", "time", "interval"):
            assert fit_number(result, signature.result) == result
        if isinstance(result, Decimal):
            assert -result.as_tuple().exponent == (signature.result.scale or 0)  # type: ignore[operator]
        if SCALAR_FUNCTIONS[name].strict:
            values[random.randrange(len(values))] = None
            assert evaluate(name, tuple(values), signature) is None

    holds()


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_monotonicity(name: str) -> None:
    """In an argument that is declared as monotone, a greater value never changes the result in the other direction."""
    scalar = SCALAR_FUNCTIONS[name]
    signatures = signatures_of(name)

    @repeatable(60)
    @given(RANDOMS)
    def holds(random: Random) -> None:
        signature = random.choice(signatures)
        draw = random.choice([ordinary, extreme])
        values = [draw_value(random, t, draw) for t in signature.args]
        index = random.randrange(len(values))
        ends: list[Any] = sorted(draw_value(random, signature.args[index], draw) for _ in range(2))
        results: list[Any] = [evaluate(name, (*values[:index], v, *values[index + 1 :]), signature) for v in ends]
        if None in results:
            return
        if scalar.monotonicity_in(index) is INCREASING:
            assert results[0] <= results[1]
        if scalar.monotonicity_in(index) is DECREASING:
            assert results[0] >= results[1]

    holds()


def test_decimals_do_not_depend_on_the_ambient_context() -> None:
    with localcontext() as context:
        context.prec = 5
        assert run("+", (D(10**37 + 1), D(1)), (WIDE, WIDE)) == 10**37 + 2
        assert run("*", (D("1234.56"), D("1.234")), (MONEY, RATE)) == D("1523.44704")
        assert run("neg", (D(10**37 + 1),), (WIDE,)) == -(10**37) - 1


def test_patterns_are_matched_in_polynomial_time() -> None:
    assert run("like", ("a" * 3000, "%a" * 40 + "b"), (STRING, STRING)) is False


def test_expressions_on_rows() -> None:
    types = {"x": INT, "y": INT}
    x, y = ColumnRef("x"), ColumnRef("y")
    case = Case(((Call(">", (x, y)), x), (Call("is null", (x,)), Constant(0, INT))), y)
    assert type_of(case, types) == INT
    assert [evaluate_expr(case, {"x": a, "y": 5}, types) for a in (7, None, 3)] == [7, 0, 5]
    with pytest.raises(SmileError):
        type_of(Call("+", (x, Constant(1.0, FLOAT))), types)
    with pytest.raises(SmileError):
        type_of(Case(((x, x),), x), types)
    with pytest.raises(SmileError):
        type_of(Cast(x, INTERVAL), types)
