"""Decisions about conditions against every row of a small domain, and those by boxes against those of the solver."""

import pickle
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra.heading import Heading
from smile.algebra.types import BOOL, BYTES, DATE, FLOAT, INT, STRING, TIME, decimal_type
from smile.errors import SmileError
from smile.program import compile_filter
from smile.registry.conditions import (
    Condition,
    complement,
    conjunction,
    decide_consistent,
    decide_entails,
    decide_satisfiable,
    difference,
    disjunction,
    entails,
    find_row,
    is_satisfiable,
    make_condition,
    parse_condition,
)
from smile.registry.decoupling import split
from smile.registry.publishers import StreamPublisher, check_publisher
from smile.registry.schema import GlobalSchema
from smile.registry.solver import Solution, solve
from smile.source import Source
from tests.registry.random_registry import NTP, ROWS, condition, random_query_text
from tests.repeatable import scaled

GRID = GlobalSchema(
    "grid",
    "t",
    (("site", STRING), ("rack", STRING), ("size", INT), ("ok", BOOL), ("price", decimal_type(9, 2)), ("raw", BYTES)),
    (("latency", FLOAT), ("day", DATE)),
)


def sql(text: str) -> Condition:
    """The condition that is written in SmileSQL."""
    heading = Heading(GRID.types, ("t",), tick=("t",))
    rel = compile_filter(Source("filter", text), "grid", heading, {}).rel
    return make_condition(GRID, rel.predicate)  # type: ignore[attr-defined]  # a filter is a Restrict


# ── small domains ───────────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(a: Condition) -> set[int]:
    return {i for i, row in enumerate(ROWS) if a.is_true_of(row)}


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(30))
def test_decisions_are_those_of_all_rows(seed: int) -> None:
    random = Random(seed)
    a, b = (condition(random_query_text(random)) for _ in range(2))
    rows_a, rows_b = rows_of(a), rows_of(b)
    assert decide_satisfiable(a) is bool(rows_a)
    assert decide_consistent(a, b) is bool(rows_a & rows_b)
    assert decide_entails(a, b) is (rows_a <= rows_b)
    assert rows_of(conjunction(a, b)) == rows_a & rows_b
    assert rows_of(disjunction(a, b)) == rows_a | rows_b
    assert rows_of(difference(a, b)) == rows_a - rows_b
    assert rows_of(complement(a)) == set(range(len(ROWS))) - rows_a
    row = find_row(a)
    assert a.is_true_of(row) if row is not None else not rows_a
    # A condition travels as text.
    for other in (a, conjunction(a, b), complement(a)):
        assert parse_condition(NTP, str(other)).expr == other.expr


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(25))
def test_the_solver_gives_the_answers_of_boxes(seed: int) -> None:
    random = Random(seed)
    a = condition(random_query_text(random))
    b = condition(random_query_text(random))
    for wanted in (a, conjunction(a, b), difference(a, b)):
        solution = solve(wanted.expr, NTP.types)
        assert solution is not Solution.UNKNOWN, str(wanted)
        assert (solution is Solution.NONE) is (decide_satisfiable(wanted) is False), str(wanted)


# ── kinds of conditions ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("site IN ('hw', 'ral')", "site >= 'hw'", True),
        ("site IN ('hw', 'ral')", "site LIKE '%'", True),
        ("site LIKE 'hw%'", "site >= 'hw' AND site < 'hx'", True),
        ("site LIKE 'a_c'", "site LIKE 'a%'", True),
        ("site LIKE 'a%'", "site LIKE 'a_c'", False),
        ("site LIKE 'a_c' AND site LIKE '_b_'", "site = 'abc'", True),
        ("site > 'a' AND site < 'b'", "site LIKE 'a%'", True),
        ("size BETWEEN 1 AND 3", "size > 0 AND size < 4", True),
        ("size > 0 AND size < 4", "size IN (1, 2, 3)", True),
        ("size < 1.5", "size <= 1", True),
        ("price < 1.5", "price <= 1.49", True),
        ("price < 1.5", "price <= 1.48", False),
        ("latency > 1", "latency >= 1", True),
        ("latency >= 1", "latency > 1", False),
        ("ok", "ok IS NOT NULL", True),
        ("NOT ok", "ok = FALSE", True),
        ("site IS NULL", "site = 'hw'", False),
        ("NOT (site = 'hw')", "site <> 'hw'", True),
        ("(site = 'hw') IS NOT TRUE", "site <> 'hw'", False),
        ("(site = 'hw') IS NOT TRUE", "site <> 'hw' OR site IS NULL", True),
        ("site = rack", "site IS NOT NULL", True),
        ("site = rack AND rack = 'hw'", "site = 'hw'", True),
        ("size + 1 > 5", "size >= 5", True),
        ("size * 2 = 5", "FALSE", True),
        ("size > 9223372036854775807", "FALSE", True),
        ("size + 1 > size", "size IS NOT NULL", True),
        ("size IS NOT NULL", "size + 1 > size", False),
        ("site || 'b' = 'ab'", "site = 'a'", True),
        ("CASE WHEN size > 3 THEN TRUE ELSE FALSE END", "size > 2", True),
        ("day = DATE '2024-05-31'", "day < DATE '2024-06-01'", True),
        ("site = 'hw' OR rack = 'r1'", "rack = 'r1' OR site = 'hw' OR size = 1", True),
        ("TRUE", "site = 'hw' OR site <> 'hw' OR site IS NULL", True),
    ],
)
def test_entailment(a: str, b: str, answer: bool) -> None:
    assert decide_entails(sql(a), sql(b)) is answer


def test_what_the_solver_has_no_word_for_is_on_the_safe_side() -> None:
    a, b = sql("upper(site) = 'HW'"), sql("lower(site) = 'hw'")
    assert decide_entails(a, b) is None
    assert not entails(a, b)
    assert is_satisfiable(conjunction(a, sql("upper(site) = 'RAL' AND size = 1"))) is False
    assert decide_entails(conjunction(a, sql("size = 1")), a) is True


def test_a_long_list_is_decided_by_boxes() -> None:
    values = ", ".join(f"'s{i}'" for i in range(500))
    listed = sql(f"site IN ({values})")
    assert listed.boxes is not None
    assert len(listed.boxes) == 1
    assert entails(sql("site = 's77'"), listed)
    assert not entails(listed, sql("site <> 's77'"))


def test_a_condition_that_cannot_be_used() -> None:
    for text in ("site", "size = 'a'", "nowhere = 1"):
        with pytest.raises(SmileError):
            sql(text)
    with pytest.raises(SmileError) as raised:
        parse_condition(GRID, " OR ".join(f"site = 'site {i}' OR size = {i}" for i in range(500)))
    assert raised.value.diagnostics[0].code == "E175"


def test_a_stream_can_be_pickled() -> None:
    a = sql("site = 'hw'")
    assert a.boxes
    assert pickle.loads(pickle.dumps(a)) == a


def test_times_and_bytes_are_compared() -> None:
    stream = GlobalSchema("s", "t", (("a", TIME), ("b", BYTES)), ())
    a = parse_condition(stream, "t > TIME '1' AND a = TIME '5'")
    assert decide_entails(a, parse_condition(stream, "t >= TIME '2'")) is True


# ── key attributes and measurements ─────────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(40))
def test_parts_are_equivalent_to_the_condition(seed: int) -> None:
    random = Random(seed)
    texts = [random_query_text(random) for _ in range(2)]
    whole = condition(f"({texts[0]}) {random.choice(['AND', 'OR'])} ({texts[1]})")
    rows = rows_of(whole)
    projections = [
        {tuple(row[c] for c in columns) for i, row in enumerate(ROWS) if i in rows}
        for columns in (("site", "tool", "psize"), ("latency",))
    ]
    is_product = len(rows) == len(projections[0]) * len(projections[1])
    try:
        parts = split(whole)
    except SmileError:
        assert not is_product, f"{whole} can be split"
        return
    assert rows_of(parts.key) & rows_of(parts.measurement) == rows
    assert parts.key.columns <= NTP.key_names
    assert not parts.measurement.columns & NTP.key_names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("site = 'hw' OR latency > 5", "depend on each other"),
        ("site = CAST(latency AS string)", "compares a key attribute with a measurement"),
        ("(site LIKE '%a' AND latency > 5) OR (site LIKE '%b' AND latency > 7)", "depend on each other"),
    ],
)
def test_conditions_that_cannot_be_split(text: str, reason: str) -> None:
    with pytest.raises(SmileError, match=reason) as raised:
        split(sql(text))
    assert raised.value.diagnostics[0].code == "E176"


def test_alternatives_with_the_same_measurements_are_split() -> None:
    parts = split(sql("(site LIKE '%a' AND latency > 5) OR (site LIKE '%b' AND latency > 5)"))
    assert entails(parts.key, sql("site LIKE '%a' OR site LIKE '%b'"))
    assert str(parts.measurement) == "latency > FLOAT '5'"


def test_a_producer_restricts_key_attributes_only() -> None:
    check_publisher(StreamPublisher("S1", "producer", "b", sql("site = 'hw'")))
    for text, names in (("latency > 5", "latency"), ("site = 'hw' AND t > TIME '5'", "t")):
        with pytest.raises(SmileError, match=f"restricts {names}") as raised:
            check_publisher(StreamPublisher("S1", "producer", "b", sql(text)))
        assert raised.value.diagnostics[0].code == "E177"
    check_publisher(StreamPublisher("R1", "republisher", "b", sql("latency > 5")))
