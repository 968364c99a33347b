"""Inequalities between times: whatever a predicate implies holds in every row in which it is true."""

from collections.abc import Mapping
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import evaluate_expr, type_of
from smile.algebra.parser import parse_expression
from smile.algebra.time_forms import START, TICKS_PER_UNIT, time_constraints
from smile.algebra.types import BOOL, DATE, INT, INTERVAL, STRING, TIME, TIMESTAMP, DataType
from tests.repeatable import scaled

TYPES: Mapping[str, DataType] = {"t": TIME, "u": TIME, "ts": TIMESTAMP, "d": DATE, "e": DATE}
DAY = TICKS_PER_UNIT[DATE]


@pytest.mark.parametrize(
    ("predicate", "constraints"),
    [
        ("u - t < INTERVAL '3' TICK", {("u", "t", 2)}),
        ("t > u - INTERVAL '3' TICK", {("u", "t", 2)}),
        ("NOT INTERVAL '3' TICK <= u - t", {("u", "t", 2)}),
        ("-(t - u) < INTERVAL '3' TICK", {("u", "t", 2)}),
        ("abs(u - t) <= INTERVAL '3' TICK", {("u", "t", 3), ("t", "u", 3)}),
        ("u - INTERVAL '1' TICK = t", {("u", "t", 1), ("t", "u", -1)}),
        ("t <= TIME '9'", {("t", START, 9)}),
        ("TIME '9' < t", {(START, "t", -10)}),
        ("CAST(t AS timestamp) <= ts", {("t", "ts", 1023)}),
        ("CAST(t AS date) = d", {("t", "d", DAY - 1), ("d", "t", 0)}),
        ("date_trunc('hour', CAST(t AS timestamp)) >= ts", {("ts", "t", 0)}),
        ("d + 1 <= e", {("d", "e", -DAY)}),
        # only whole microseconds are added to a timestamp
        ("ts + INTERVAL '1000' TICK >= CAST(d AS timestamp)", {("d", "ts", 1000)}),
        ("ts + INTERVAL '1000' TICK <= CAST(d AS timestamp)", {("ts", "d", 23)}),
        # nothing follows of a sum of two times, of either of two conditions, of an unknown unit
        ("t - u < u - t", set()),
        ("t < u OR u < t", set()),
        ("date_trunc('eon', CAST(t AS timestamp)) = ts", set()),
    ],
)
def test_constraints(predicate: str, constraints: set[tuple[str, str, int]]) -> None:
    assert set(time_constraints(parse_expression(predicate), TYPES)) == constraints


UNITS = ("microsecond", "Hour", "day", "week", "month", "quarter", "year")
INTERVALS = (0, 1, 1000, 1023, 1024, 5000, -3, DAY, -DAY - 1)


@cache
def _expressions(data: DataType, depth: int = 2) -> st.SearchStrategy[mmpl.Expr]:
    """Times and intervals of a type."""
    if data == INTERVAL:
        constants: st.SearchStrategy[mmpl.Expr] = st.sampled_from(INTERVALS).map(lambda n: mmpl.Constant(n, INTERVAL))
        return (
            constants
            if not depth
            else constants | _pairs("-", TIME, TIME, depth) | _pairs("-", TIMESTAMP, TIMESTAMP, depth)
        )
    choices: list[st.SearchStrategy[mmpl.Expr]] = [
        st.sampled_from([mmpl.ColumnRef(c) for c, t in TYPES.items() if t == data]),
        st.integers(0, 40).map(lambda n: mmpl.Constant(n, data)),
    ]
    if depth:
        others = [t for t in TICKS_PER_UNIT if t != data]
        choices += [_expressions(t, depth - 1).map(lambda e: mmpl.Cast(e, data)) for t in others]
        if data == DATE:
            choices.append(_pairs("+", DATE, INT, depth))
        else:
            choices += [_pairs("+", data, INTERVAL, depth), _pairs("-", data, INTERVAL, depth)]
        if data == TIMESTAMP:
            choices.append(st.builds(_truncated, st.sampled_from(UNITS), _expressions(TIMESTAMP, depth - 1)))
    return st.one_of(choices)


def _pairs(function: str, a: DataType, b: DataType, depth: int) -> st.SearchStrategy[mmpl.Expr]:
    right = st.integers(-2, 2).map(lambda n: mmpl.Constant(n, INT)) if b == INT else _expressions(b, depth - 1)
    return st.builds(lambda x, y: mmpl.Call(function, (x, y)), _expressions(a, depth - 1), right)


def _truncated(unit: str, time: mmpl.Expr) -> mmpl.Expr:
    return mmpl.Call("date_trunc", (mmpl.Constant(unit, STRING), time))


@st.composite
def _predicates(draw: st.DrawFn) -> mmpl.Expr:
    data = draw(st.sampled_from([TIME, TIMESTAMP, DATE, INTERVAL]))
    compare = draw(st.sampled_from(["<", "<=", ">", ">=", "="]))
    predicate = mmpl.Call(compare, (draw(_expressions(data)), draw(_expressions(data))))
    return mmpl.Call("not", (predicate,)) if draw(st.booleans()) else predicate


OFFSETS = (-DAY, -1024, -1023, -1, 0, 1, 1000, 1023, 1024, DAY - 1)


@st.composite
def _rows(draw: st.DrawFn) -> dict[str, int | None]:
    """Times near each other, and near the beginning of a day, a month or a microsecond."""
    base = draw(st.sampled_from([0, 1024, 5000, DAY, 31 * DAY, 59 * DAY, 365 * DAY]))
    offsets = {c: draw(st.sampled_from([*OFFSETS, None])) for c in TYPES}
    return {c: None if n is None else max(0, base + n) // TICKS_PER_UNIT[TYPES[c]] for c, n in offsets.items()}


@settings(max_examples=scaled(200))
@given(_predicates(), st.lists(_rows(), min_size=4, max_size=8))
def test_what_is_implied_holds(predicate: mmpl.Expr, rows: list[dict[str, int | None]]) -> None:
    assert type_of(predicate, TYPES) == BOOL
    constraints = list(time_constraints(predicate, TYPES))
    for row in rows:
        if evaluate_expr(predicate, row, TYPES) is True:
            ticks = {START: 0, **{c: v * TICKS_PER_UNIT[TYPES[c]] for c, v in row.items() if v is not None}}
            assert [c for c in constraints if ticks[c[0]] > ticks[c[1]] + c[2]] == []
