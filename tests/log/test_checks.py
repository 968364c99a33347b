"""A compiled CHECK returns what the expression evaluates to, for every row."""

from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.types import INT_MAX, INT_MIN
from smile.log.decoding.checks import compile_evaluator
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
def stream_with(check: str) -> mmpl.StreamDef:
    text = f"CREATE STREAM S (t: time -> {COLUMNS}, CHECK ({check})); CREATE VIEW V AS SELECT a FROM S; SUBSCRIBE V;"
    return compile_program(Source("checks.smile", text)).original.streams[0]


@pytest.mark.parametrize("check", CHECKS)
@given(row=ROWS)
@settings(max_examples=30)
def test_a_compiled_check_agrees_with_the_expression(check: str, row: tuple[Any, ...]) -> None:
    stream = stream_with(check)
    types = stream_types(stream)
    row_by_name = dict(zip(types, row, strict=True))
    assert stream.checks
    for expr in stream.checks:
        assert repr(compile_evaluator(expr, types)(row)) == repr(evaluate_expr(expr, row_by_name, types))
