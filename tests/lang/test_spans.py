"""Every node has the span of the words it was parsed from."""

import pytest
from sqlglot import exp

from smile.lang import BestClause, CreateView, NestedGroup, SilenceCall, StreamFunction, parse, span_of
from smile.source import Source
from tests.lang.corpus import EXAMPLES, QUERIES, SPELLINGS

_WITH_IMPLIED_NUMBER = ("substring(a for", "COUNT(*) FILTER", "DISTINCT ON", "MEDIAN(")
"""What means a number that is not written."""


def nodes_of(text: str) -> list[exp.Expr]:
    statements, problems = parse(Source("p", text))
    assert problems == []
    return [node for s in statements if isinstance(s, CreateView) for node in s.query.walk()]


@pytest.mark.parametrize(
    "text", [*EXAMPLES.values(), *(f"CREATE VIEW v AS {q}\n;" for q in [*QUERIES, *(s for s, _ in SPELLINGS)])]
)
def test_every_node_lies_within_its_parent(text: str) -> None:
    for node in nodes_of(text):
        span = span_of(node)
        assert span is not None and 0 <= span.start < span.end <= len(text), repr(node)
        if node.parent and (parent_span := span_of(node.parent)):
            assert parent_span.start <= span.start and span.end <= parent_span.end, repr(node)
        if isinstance(node, exp.Identifier):
            assert text[span.start : span.end] in (node.name, '"' + node.name.replace('"', '""') + '"')
        if isinstance(node, exp.Literal) and not node.is_string:
            assert text[span.start : span.end] == node.name or any(words in text for words in _WITH_IMPLIED_NUMBER)


NODE_SPANS = [
    # query, type of the node, words of its span
    ("SELECT a + 'x' FROM s", exp.Add, "a + 'x'"),
    ("SELECT a + 'x' FROM s", exp.Literal, "'x'"),
    ("SELECT -  a FROM s", exp.Neg, "-  a"),
    ("SELECT NOT a FROM s", exp.Not, "NOT a"),
    ("SELECT a NOT IN (1, 2) FROM s", exp.In, "a NOT IN (1, 2)"),
    ("SELECT a NOT IN (1, 2) FROM s", exp.Not, "a NOT IN (1, 2)"),
    ("SELECT a IN (SELECT b FROM u) FROM s", exp.In, "a IN (SELECT b FROM u)"),
    ("SELECT x, a BETWEEN 1 AND 2 FROM s", exp.Between, "a BETWEEN 1 AND 2"),
    ("SELECT a IS NOT NULL, b FROM s", exp.Is, "a IS NOT NULL"),
    ("SELECT a IS NULL FROM s", exp.Null, "NULL"),
    ("SELECT a NOT LIKE 'x' FROM s", exp.Like, "a NOT LIKE 'x'"),
    ("SELECT a AND b AND c OR d FROM s", exp.Or, "a AND b AND c OR d"),
    ("SELECT a > 1 AND b < 2 FROM s", exp.LT, "b < 2"),
    ("SELECT (a) FROM s", exp.Paren, "(a)"),
    ("SELECT SUM( a ) FROM s", exp.Sum, "SUM( a )"),
    ("SELECT COUNT(*) FROM s", exp.Count, "COUNT(*)"),
    ("SELECT COUNT(*) FROM s", exp.Star, "*"),
    ("SELECT s.* FROM s", exp.Column, "s.*"),
    ("SELECT f(a, g(b)) + 1 FROM s", exp.Anonymous, "f(a, g(b))"),
    ("SELECT f() FROM s", exp.Anonymous, "f()"),
    ("SELECT TRIM(LEADING 'x' FROM a) FROM s", exp.Anonymous, "TRIM(LEADING 'x' FROM a)"),
    ("SELECT CASE WHEN a THEN b ELSE c END d FROM s", exp.Case, "CASE WHEN a THEN b ELSE c END"),
    ("SELECT CASE WHEN a THEN b ELSE c END d FROM s", exp.If, "WHEN a THEN b"),
    ("SELECT CAST(a AS int) FROM s", exp.Cast, "CAST(a AS int)"),
    ("SELECT CAST(a AS decimal(3, 1)) FROM s", exp.DataType, "decimal(3, 1)"),
    ("SELECT a::int + 1 FROM s", exp.Cast, "a::int"),
    ("SELECT DATE '2020-01-01' FROM s", exp.Cast, "DATE '2020-01-01'"),
    ("SELECT EXTRACT(year FROM a) FROM s", exp.Extract, "EXTRACT(year FROM a)"),
    ("SELECT INTERVAL '1' HOUR + t FROM s", exp.Interval, "INTERVAL '1' HOUR"),
    ("SELECT INTERVAL '1' HOUR + t FROM s", exp.Var, "HOUR"),
    ("SELECT a AS b, c FROM s", exp.Alias, "a AS b"),
    ("SELECT a FROM s AS x, u", exp.Table, "s AS x"),
    ("SELECT a FROM s AS x JOIN u USING (a)", exp.Join, "JOIN u USING (a)"),
    ("SELECT a FROM s LEFT OUTER JOIN u ON a = b WHERE c", exp.Join, "LEFT OUTER JOIN u ON a = b"),
    ("SELECT a FROM s WHERE b > 1 GROUP BY c", exp.Where, "WHERE b > 1"),
    ("SELECT a FROM s WHERE b > 1 GROUP BY c HAVING d", exp.Group, "GROUP BY c"),
    ("SELECT a FROM s ORDER BY b DESC LIMIT 3", exp.Ordered, "b DESC"),
    ("SELECT a FROM s ORDER BY b DESC LIMIT 3", exp.Limit, "LIMIT 3"),
    ("SELECT a FROM (SELECT b FROM u) AS x", exp.Subquery, "(SELECT b FROM u) AS x"),
    ("WITH x AS (SELECT a FROM s) SELECT a FROM x", exp.CTE, "x AS (SELECT a FROM s)"),
    ("WITH x AS (SELECT a FROM s) SELECT a FROM x", exp.Select, "WITH x AS (SELECT a FROM s) SELECT a FROM x"),
    ("SELECT a FROM s UNION ALL SELECT b FROM u", exp.Union, "SELECT a FROM s UNION ALL SELECT b FROM u"),
    ("SELECT a FROM s UNION ALL SELECT b FROM u", exp.Select, "SELECT a FROM s"),
    ("SELECT EXISTS (SELECT a FROM u) FROM s", exp.Exists, "EXISTS (SELECT a FROM u)"),
    ("SELECT SUM(a) OVER (ORDER BY t) x FROM s", exp.Window, "SUM(a) OVER (ORDER BY t)"),
    ("SELECT SUM(a) OVER (ORDER BY t) x FROM s", exp.Sum, "SUM(a)"),
    ("SELECT GROUP(a, b) AS x FROM s", NestedGroup, "GROUP(a, b)"),
    ("SELECT a FROM s WHERE SILENCE(t PER c) > b", SilenceCall, "SILENCE(t PER c)"),
    ("SELECT a FROM LAST(s, t, INTERVAL '1' DAY) x WHERE b", StreamFunction, "LAST(s, t, INTERVAL '1' DAY) x"),
    ("SELECT a FROM MERGE(s, u) WHERE b", StreamFunction, "MERGE(s, u)"),
    ("SELECT a FROM s BEST 2 BY b DESC PER c", BestClause, "BEST 2 BY b DESC PER c"),
    ("SELECT a FROM s BEST 2 BY b DESC PER c", exp.Select, "SELECT a FROM s BEST 2 BY b DESC PER c"),
]


@pytest.mark.parametrize(("query", "kind", "words"), NODE_SPANS)
def test_the_span_of_a_node_covers_its_words(query: str, kind: type[exp.Expr], words: str) -> None:
    text = f"SUBSCRIBE z;\nCREATE VIEW v AS {query};"
    node = next(n for n in nodes_of(text) if type(n) is kind)
    span = span_of(node)
    assert span is not None
    assert text[span.start : span.end] == words


def test_checks_have_spans_too() -> None:
    text = "CREATE STREAM s (t TIME KEY, a int CHECK (a > 1), CHECK (a < 9))"
    (stream,), _ = parse(Source("p", text))
    spans = [span_of(check) for check in (*stream.columns[0].checks, *stream.checks)]  # type: ignore[union-attr]
    assert [text[s.start : s.end] for s in spans if s] == ["a > 1", "a < 9"]


def test_a_node_that_was_not_parsed_has_no_span() -> None:
    assert span_of(exp.column("a")) is None
