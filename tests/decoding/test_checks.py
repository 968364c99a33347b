"""Exactly those rows violate a CHECK for which the expression evaluates to false."""

from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.coercions import TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.types import INT_MAX, INT_MIN
from smile.decoding.stream_schema import StreamSchema
from smile.program import compile_program
from smile.source import Source

COLUMNS = "a: int, b: int, x: float, d: decimal(5, 2), s: string, p: time, m: interval, o: bool"
CHECKS = [
    "a >= 0", "a <> 3", "a < b", "a = b", "a <= NULL", "a BETWEEN 0 AND 10", "p <= t", "p BETWEEN t - INTERVAL '5' TICK AND t",
    "d >= -1", "d < x", "a IN (1, 2, 3)", "s LIKE 'a%'", "s IS NOT NULL", "s IS NULL OR a > 0", "NOT o", "o",
    "CASE WHEN a > 0 THEN b > 0 ELSE o END", "a + b < 10", "m > INTERVAL '2' TICK", "x * 2 < 1", "length(s) < 3", "abs(a) = b",
]  # fmt: skip

INTS = st.none() | st.integers(-3, 12) | st.sampled_from([INT_MIN, INT_MAX])
ROWS = st.tuples(
    st.integers(0, 20),
    INTS,
    INTS,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.decimals(Decimal(-9), Decimal(9), places=2),
    st.none() | st.text("ab", max_size=4),
    INTS,
    INTS,
    st.none() | st.booleans(),
)


@cache
def schema_with(*checks: str) -> StreamSchema:
    clauses = ", ".join(f"CHECK ({check})" for check in checks)
    text = f"CREATE STREAM S (t: time -> {COLUMNS}, {clauses}); CREATE VIEW V AS SELECT a FROM S; SUBSCRIBE V;"
    return StreamSchema(compile_program(Source("checks.smile", text)).original.streams[0])


def violated_by(schema: StreamSchema, row: tuple[Any, ...]) -> list[mmpl.Expr]:
    values = dict(zip(schema.types, row, strict=True))
    return [check for check in schema.stream.checks if evaluate_expr(check, values, schema.types) is False]


def test_the_time_of_a_tick_is_shown() -> None:
    schema, tick = schema_with("p <= t"), 1_717_156_800_000_000 * 1024
    row: dict[str, Any] = {**dict.fromkeys(schema.types), "t": tick, "p": tick + 1024}
    shown = schema.checks.describe(schema.record_batch(list(row.values())), 0)
    assert f"t is 2024-05-31 12:00:00 ({tick})" in shown and "p is 2024-05-31 12:00:00.000001 (" in shown


@pytest.mark.parametrize("check", CHECKS)
@given(rows=st.lists(ROWS, max_size=20))
@settings(max_examples=30)
def test_a_row_violates_a_check_that_is_false(check: str, rows: list[tuple[Any, ...]]) -> None:
    schema = schema_with(check)
    assert schema.stream.checks
    events = schema.record_batch([value for row in rows for value in row])
    expected = [i for i, row in enumerate(rows) if violated_by(schema, row)]
    assert schema.checks.violations(events).tolist() == expected
    for row in expected:
        assert schema.checks.describe(events, row).startswith("S requires ")


def test_an_empty_text_is_quoted_and_the_only_column_of_a_check_is_named() -> None:
    schema = schema_with("s <> ''", "a < b")
    rows = [(5, 1, 2, None, None, "", 6, None, None), (5, 3, 3, None, None, "x", 7, None, None)]
    events = schema.record_batch([value for row in rows for value in row])
    assert schema.checks.describe(events, 0).endswith(", but s is ''")
    assert [schema.checks.violated_column(events, row) for row in (0, 1)] == ["s", None]


def test_the_description_has_the_first_violated_check_and_its_values() -> None:
    schema = schema_with("a < b", "p <= t", "d >= 0")
    rows = [(5, 1, 2, None, Decimal(-1), "x", 6, None, None), (5, 3, 3, None, None, None, 7, None, None)]
    events = schema.record_batch([value for row in rows for value in row])
    assert schema.checks.violations(events).tolist() == [0, 1]
    assert schema.checks.describe(events, 0) == "S requires p <= t, but t is 5, p is 6"
    assert schema.checks.describe(events, 1) == "S requires a < b, but a is 3, b is 3"


def test_a_stream_without_checks_has_no_violations() -> None:
    schema = StreamSchema(mmpl.StreamDef("S", "t", ()))
    assert schema.checks.violations(schema.record_batch([1, 2])).tolist() == []


def test_a_check_that_uses_no_column_is_evaluated_for_every_row() -> None:
    checks = schema_with("1 = 2").checks
    assert checks.violations(checks.record_batch([[1, 2], *[[None, None]] * 8])).tolist() == [0, 1]


def test_an_inequality_between_times_must_not_overflow() -> None:
    """Seals rely on it. NULL passes, and so does an overflow in a CHECK from which no seal follows."""
    text = "CREATE STREAM S (t: time -> ts: timestamp, a: int, CHECK (ts BETWEEN t - INTERVAL '5' MINUTE AND t),"
    text += " CHECK (a + 1 > 0)); CREATE VIEW V AS SELECT a FROM S; SUBSCRIBE V;"
    schema = StreamSchema(compile_program(Source("checks.smile", text)).original.streams[0])
    rows = [(0, 0, INT_MAX), (1, TIMESTAMP_MIN, 1), (2, TIMESTAMP_MAX, 1), (3, None, 1), (4, 1, 1)]
    events = schema.record_batch([value for row in rows for value in row])
    assert schema.checks.violations(events).tolist() == [1, 2, 4]
    assert "but t is 1, ts is 0001-01-01 00:00:00" in schema.checks.describe(events, 1)
