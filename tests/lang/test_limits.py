"""Parsing is fast for every text. Programs that are too deep, too long or nonsense are refused; long flat ones are not."""

import time

import pytest

from smile import limits
from smile.lang import parse, print_statements
from smile.source import Source

pytestmark = pytest.mark.slow


def view(expression: str) -> str:
    return f"CREATE VIEW v AS SELECT {expression} FROM s"


def nested_queries(opening: str, closing: str, times: int) -> str:
    return "CREATE VIEW v AS " + opening * times + "SELECT a FROM s" + closing * times


ACCEPTED = {
    "parentheses": view("(" * limits.nesting_max + "a" + ")" * limits.nesting_max),
    "calls": view("f(" * limits.nesting_max + "a" + ")" * limits.nesting_max),
    "cases": view("CASE WHEN a THEN " * 150 + "a" + " END" * 150),
    "sums": view("+".join("a" * 500)),
    "conjunctions": view(" AND ".join(["a > 1"] * 500)),
    "disjunctions": view(" OR ".join(["a > 1"] * 500)),
    "casts": view("a" + "::int" * 500),
    "subqueries": nested_queries("SELECT a FROM (", ") AS x", 100),
    "IN": nested_queries("SELECT a FROM s WHERE a IN (", ")", 100),
    "CTEs": nested_queries("WITH x AS (", ") SELECT a FROM x", 100),
    "unions": "CREATE VIEW v AS " + " UNION ALL ".join(["SELECT a FROM s"] * 300),
    "joins": "CREATE VIEW v AS SELECT a FROM s" + " JOIN s USING (a)" * 500,
    "list": view("a IN (" + ",".join("1" * 3000) + ")"),
    "columns": "CREATE STREAM s (t: time -> " + ", ".join(f"c{i}: int" for i in range(2000)) + ")",
    "a long name": view("a" * 1_000_000),
    "a long string": view("'" + "''" * 500_000 + "'"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    statements, problems = parse(Source("p", ACCEPTED[name]))
    assert problems == []
    printed = print_statements(statements)
    assert print_statements(parse(Source("p", printed))[0]) == printed


MANY = 10_000
REFUSED = {
    "a megabyte of (": ("(" * 2**20, "E012", 1),
    "a megabyte of a": ("a " * 2**19, "E003", 1),
    "a megabyte of letters": ("a" * 2**20, "E010", 1),
    "a megabyte of digits": ("1" * 2**20, "E010", 1),
    "a megabyte of NUL": ("\0" * 2**20, "E010", 1),
    "a megabyte of surrogates": ("\ud800" * 2**20, "E010", 1),
    "a megabyte of ;": (";" * 2**20, "E004", 1),
    "a megabyte of '": ("'" * (2**20 + 1), "E011", 1),
    "a megabyte of /*": ("/*" * 2**19, "E011", 1),
    "a megabyte of -": ("-" * 2**20, "E004", 1),
    "many broken statements": ("x;" * 2**19, "E010", limits.syntax_errors_max),
    "many missing semicolons": ("CREATE VIEW " * 30_000, "E010", None),
    "parentheses": (view("(" * MANY + "a" + ")" * MANY), "E012", 1),
    "sums": (view("+".join("a" * MANY)), "E012", 1),
    "conjunctions": (view(" AND ".join("a" * MANY)), "E012", 1),
    "NOT": (view("NOT " * MANY + "a"), "E012", 1),
    "minus": (view("- " * MANY + "a"), "E012", 1),
    "cases": (view("CASE WHEN a THEN " * MANY + "a" + " END" * MANY), "E012", 1),
    "brackets": (view("a" + "[1]" * MANY), "E012", 1),
    "joins without ON": ("CREATE VIEW v AS SELECT a FROM s" + " JOIN s" * MANY, "E010", 1),
    "limits": (nested_queries("SELECT a FROM s LIMIT (", ")", 150), "E033", 1),
    "relations in parentheses": ("CREATE VIEW v AS SELECT a FROM " + "(" * 190 + "s" + ")" * 190, "E013", 1),
    "commas": (view("a" + "," * MANY), "E010", 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_quickly(name: str) -> None:
    text, code, count = REFUSED[name]
    start = time.process_time()
    statements, problems = parse(Source("p", text))
    assert time.process_time() - start < 2
    assert statements == []
    assert problems[0].code == code
    assert len(problems) == count or count is None
    for problem in problems:
        assert problem.span is not None and 0 <= problem.span.start <= problem.span.end <= len(text)
        assert len(problem.message) < 200 and problem.message.isprintable()


def test_too_deep_points_where_it_gets_too_deep() -> None:
    text = view("(" * MANY)
    _, (problem,) = parse(Source("p", text))
    assert problem.span is not None and problem.span.start == len("CREATE VIEW v AS SELECT ") + limits.nesting_max


def test_a_long_chain_points_at_its_statement() -> None:
    text = "SUBSCRIBE v;\n" + view("+".join("a" * MANY)) + ";"
    _, (problem,) = parse(Source("p", text))
    assert problem.span is not None
    assert (problem.span.start, problem.span.end) == (13, len(text) - 1)
