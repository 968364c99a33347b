"""The contents of parsed statements, and the message and position of each syntax error."""

import pytest
from sqlglot import exp

from smile.errors import render
from smile.lang import (
    BestClause,
    CreateDomain,
    CreateStream,
    CreateView,
    Latest,
    NestedGroup,
    SilenceCall,
    StreamFunction,
    Subscribe,
    parse,
)
from smile.source import Source
from tests.lang.corpus import FIG_2


def query(text: str) -> exp.Expr:
    (statement,), problems = parse(Source("program", f"CREATE VIEW v AS {text}"))
    assert problems == [] and isinstance(statement, CreateView)
    return statement.query


def test_fig_2() -> None:
    source = Source("fig2", FIG_2)
    statements, problems = parse(source)
    assert problems == []
    assert [type(s) for s in statements] == [CreateStream] * 3 + [CreateView] * 5 + [Subscribe]
    bids = statements[0]
    assert isinstance(bids, CreateStream)
    assert (bids.name.text, bids.tick.name.text, bids.tick.type_name, bids.publisher_timed) == (
        "BuyBids",
        "buyid",
        "time",
        False,
    )
    assert [(c.name.text, c.type_name) for c in bids.columns] == [
        ("issue", "string"),
        ("price", "centspersshare"),
        ("#bid", "shares"),
    ]
    assert FIG_2[bids.columns[2].span.start : bids.columns[2].span.end] == "#bid: shares"
    last = statements[-1]
    assert isinstance(last, Subscribe)
    assert [n.text for n in last.names] == ["RemainingBuy", "RemainingSell", "Matchable"]
    assert source.line_col(last.names[2].span.start) == (34, 1)


def test_fig_2_as_printed_lacks_one_parenthesis() -> None:
    text = FIG_2.replace("price));", "price);")
    statements, problems = parse(Source("fig2", text))
    assert len(statements) == 8
    assert render(problems, Source("fig2", text)).startswith("fig2:31:7: error E010: expected ) but found ;\n")


def test_domain() -> None:
    (domain,), _ = parse(Source("p", "CREATE DOMAIN d AS decimal(10,2) CHECK (VALUE > 0) NOT NULL"))
    assert isinstance(domain, CreateDomain)
    assert (domain.base, domain.not_null) == ("decimal(10, 2)", True)
    assert isinstance(domain.check, exp.GT) and domain.check.this.name == "VALUE"


def test_names_keep_their_quotes_and_case() -> None:
    (view,), _ = parse(Source("p", 'CREATE VIEW "V" (a, "B") AS SELECT "C", d FROM s'))
    assert isinstance(view, CreateView)
    assert [(n.text, n.quoted) for n in (view.name, *view.columns)] == [("V", True), ("a", False), ("B", True)]
    assert [c.this.quoted for c in view.query.expressions] == [True, False]


def test_best() -> None:
    best = query("SELECT a FROM s BEST 2 BY b DESC, c PER d, e").args["best"]
    assert isinstance(best, BestClause)
    assert best.k.name == "2"
    assert [(o.this.name, bool(o.args.get("desc"))) for o in best.by] == [("b", True), ("c", False)]
    assert [c.name for c in best.per] == ["d", "e"]


def test_stream_functions() -> None:
    hop = query("SELECT a FROM HOP((SELECT a FROM s), t, INTERVAL '1' HOUR, INTERVAL '2' HOUR) AS w").args["from_"].this
    assert isinstance(hop, StreamFunction)
    assert (hop.kind, hop.alias) == ("hop", "w")
    assert isinstance(hop.relations[0], exp.Subquery) and hop.column is not None and hop.column.name == "t"
    assert [(i.this.name, i.args["unit"].name) for i in hop.intervals] == [("1", "HOUR"), ("2", "HOUR")]
    merge = query("SELECT a FROM MERGE(x, y)").args["from_"].this
    assert isinstance(merge, StreamFunction)
    assert (merge.kind, [r.name for r in merge.relations], merge.column) == ("merge", ["x", "y"], None)


def test_other_nodes() -> None:
    select = query("SELECT GROUP(a, b) AS n, LATEST(c), foo(1) FROM s WHERE SILENCE(t PER c) > INTERVAL '1' DAY")
    nested, latest, call = select.expressions
    assert isinstance(nested.this, NestedGroup) and [c.name for c in nested.this.expressions] == ["a", "b"]
    assert isinstance(latest, Latest) and latest.this.name == "c"
    assert isinstance(call, exp.Anonymous) and call.this == "foo"
    silence = select.args["where"].this.this
    assert isinstance(silence, SilenceCall) and silence.this.name == "t" and [c.name for c in silence.per] == ["c"]


def test_several_errors_at_once() -> None:
    text = "CREATE VIEW v AS SELECT FROM s;\nCREATE STREAM s (a int);\nnonsense;\nSUBSCRIBE v;\n'"
    statements, problems = parse(Source("p", text))
    assert len(statements) == 1
    assert [(p.code, Source("p", text).line_col(p.span.start)) for p in problems if p.span] == [
        ("E010", (1, 18)),
        ("E040", (2, 15)),
        ("E010", (3, 1)),
        ("E011", (5, 1)),
    ]


def test_missing_semicolons() -> None:
    text = "CREATE STREAM s (t TIME KEY)\nCREATE VIEW v AS SELECT t FROM s\nSUBSCRIBE v, s"
    statements, problems = parse(Source("p", text))
    assert [type(s) for s in statements] == [CreateStream, CreateView, Subscribe]
    assert [(p.message, p.span.start) for p in problems if p.span] == [
        ("expected ; before CREATE", 29),
        ("expected ; before SUBSCRIBE", 62),
    ]


def test_subscribe_is_a_name_too() -> None:
    assert query("SELECT subscribe FROM s, subscribe v").args["joins"][0].alias_or_name == "v"


@pytest.mark.parametrize("text", ["", " \n", "-- nothing", "/* nothing */", ";;;", "\ufeff"])
def test_empty(text: str) -> None:
    statements, (problem,) = parse(Source("p", text))
    assert (statements, problem.code) == ([], "E004")


V = "CREATE VIEW v AS "
# text, code, column of line 1 at which the span starts, message
ERRORS = [
    # lexical
    ("SUBSCRIBE 'abc", "E011", 11, "unterminated string"),
    ('SUBSCRIBE "abc', "E011", 11, "unterminated quoted name"),
    ("SUBSCRIBE a /* b /* c */", "E011", 13, "unterminated comment"),
    (V + "SELECT a == b FROM s", "E010", 27, "unexpected =="),
    (V + "SELECT `a` FROM s", "E010", 25, "unexpected `"),
    (V + "SELECT a ≥ b FROM s", "E010", 27, "unexpected ≥"),
    (V + "SELECT \x00 FROM s", "E010", 25, "unexpected character U+0000"),
    (V + "SELECT '\ud800' FROM s", "E010", 26, "character U+D800 in a string"),
    (V + "SELECT 2x FROM s", "E010", 25, "2x is neither a number nor a name"),
    (V + 'SELECT "" FROM s', "E010", 25, "a name cannot be empty"),
    (V + "SELECT e'a' FROM s", "E013", 25, "e'…' is not supported"),
    (V + "SELECT x'0' FROM s", "E033", 25, "not a valid byte string"),
    # statements
    (
        "hello world",
        "E010",
        1,
        "expected CREATE STREAM, CREATE TABLE, CREATE DOMAIN, CREATE VIEW, IMPORT, ADVERTISE or SUBSCRIBE but found hello",
    ),
    ("CREATE VEIW v AS SELECT a FROM s", "E010", 8, "expected STREAM, TABLE, DOMAIN or VIEW but found VEIW"),
    ("CREATE", "E010", 7, "expected STREAM, TABLE, DOMAIN or VIEW but found the end"),
    ("CREATE;", "E010", 7, "expected STREAM, TABLE, DOMAIN or VIEW but found ;"),
    ("SUBSCRIBE", "E010", 10, "expected a view but found the end"),
    ("SUBSCRIBE a,", "E010", 13, "expected a view but found the end"),
    ("SUBSCRIBE a b", "E010", 13, "unexpected b"),
    ("CREATE VIEW v", "E010", 14, "expected AS but found the end"),
    ("CREATE VIEW v AS", "E010", 17, "expected SELECT but found the end"),
    ("CREATE VIEW v SELECT a FROM s", "E010", 15, "expected AS but found SELECT"),
    ("CREATE VIEW v (a) SELECT b FROM s", "E010", 19, "expected AS but found SELECT"),
    ("CREATE VIEW SELECT", "E010", 13, "expected the view's name but found SELECT"),
    ("CREATE DOMAIN d int", "E010", 17, "expected AS but found int"),
    ("CREATE DOMAIN d AS int CHECK VALUE > 0", "E010", 30, "expected ( but found VALUE"),
    ("CREATE DOMAIN d AS int CHECK ()", "E010", 31, "expected a condition but found )"),
    ("CREATE DOMAIN d AS int DEFAULT 3", "E010", 24, "expected CHECK or NOT NULL but found DEFAULT"),
    ("CREATE DOMAIN d AS int CHECK (TRUE) CHECK (TRUE)", "E010", 37, "a domain can have only one CHECK"),
    # streams
    ("CREATE STREAM s (a int, b int)", "E040", 15, "stream s has no TIME KEY column"),
    ("CREATE STREAM s (a TIME KEY, b TIME KEY)", "E040", 30, "stream s has two TIME KEY columns, a and b"),
    ("CREATE VIEW v AS SELECT . 2.5 FROM s", "E010", 25, "expected an expression but found ."),
    ("CREATE STREAM s (t: time, a: int)", "E010", 25, "expected -> but found ,"),
    ("CREATE STREAM s (t: time -> a int)", "E010", 31, "expected : but found int"),
    ("CREATE STREAM s (t: time -> a: int", "E010", 35, "expected ) but found the end"),
    ("CREATE STREAM s (t TIME KEY, a)", "E010", 31, "expected a type but found )"),
    ("CREATE STREAM s (t TIME KEY) WITH (TICKS = ME)", "E010", 44, "expected PUBLISHER or BROKER but found ME"),
    ("CREATE STREAM s (t TIME KEY, a int CHECK (a >))", "E010", 46, "expected an expression but found )"),
    ("CREATE STREAM s (t TIME KEY, a int PRIMARY KEY)", "E013", 36, "PRIMARY KEY is not supported in a stream"),
    ("CREATE STREAM s (t TIME KEY, a int DEFAULT 3)", "E013", 36, "DEFAULT is not supported in a column"),
    # queries
    (V + "SELECT a FORM s", "E010", 32, "unexpected s"),
    (V + "SELCT a FROM s", "E010", 18, "expected SELECT but found SELCT"),
    (V + "FROM s SELECT a", "E010", 18, "expected SELECT but found FROM"),
    (V + "SELECT FROM s", "E010", 18, "expected a column after SELECT"),
    (V + "SELECT a, FROM s", "E010", 28, "expected an expression but found FROM"),
    (V + "SELECT a AS FROM s", "E010", 30, "expected a name but found FROM"),
    (V + "SELECT a FROM s AS", "E010", 36, "expected a name but found the end"),
    (V + "SELECT a FROM", "E010", 31, "expected a stream or view but found the end"),
    (V + "SELECT a FROM s,", "E010", 34, "expected an expression but found the end"),
    (V + "SELECT a FROM s *", "E010", 34, "unexpected *"),
    (V + "SELECT a FROM s x y", "E010", 36, "unexpected y"),
    (V + "SELECT a FROM s WHERE", "E010", 39, "expected an expression but found the end"),
    (V + "SELECT a FROM s WHERE b WHERE c", "E010", 42, "unexpected WHERE"),
    (V + "SELECT a FROM s HAVING b WHERE c", "E010", 43, "WHERE must come before HAVING"),
    (V + "SELECT a FROM s LIMIT 3 ORDER BY a", "E010", 42, "ORDER BY must come before LIMIT"),
    (V + "SELECT a FROM s LIMIT x", "E033", 40, "LIMIT takes a whole number"),
    (V + "SELECT a FROM s GROUP BY", "E010", 34, "expected a column after GROUP BY"),
    (V + "SELECT a FROM s JOIN u", "E010", 40, "expected ON or USING but found the end"),
    (V + "SELECT a FROM s JOIN u USING a", "E010", 47, "expected ( but found a"),
    (V + "SELECT a FROM s OUTER JOIN u USING (a)", "E010", 34, "expected LEFT, RIGHT or FULL before OUTER"),
    (V + "WITH x (SELECT a FROM s) SELECT a FROM x", "E010", 25, "expected AS but found ("),
    (V + "SELECT a FROM s BEST 2", "E010", 40, "expected BY but found the end"),
    (V + "SELECT a FROM s BEST 2 BY b PER", "E010", 49, "expected a column but found the end"),
    (V + "SELECT a FROM s BEST 2.5 BY b", "E033", 39, "BEST takes a whole number"),
    (V + "SELECT a FROM s BEST 2 BY b LIMIT 3", "E010", 46, "LIMIT cannot follow BEST"),
    (
        V + "SELECT a FROM HOP(s, t, INTERVAL '1' DAY)",
        "E032",
        32,
        "HOP takes two intervals, slide and size, and an offset if there is one",
    ),
    (V + "SELECT a FROM TUMBLE(s, t)", "E010", 43, "expected , but found )"),
    (V + "SELECT a FROM MERGE(s)", "E032", 32, "MERGE takes at least two relations"),
    # expressions
    (V + "SELECT (a FROM s", "E010", 28, "expected ) but found FROM"),
    (V + "SELECT a) FROM s", "E010", 26, "unexpected )"),
    (V + "SELECT SUM(a FROM s", "E010", 31, "expected ) but found FROM"),
    (V + "SELECT CAST(a AS int FROM s", "E010", 39, "expected ) but found FROM"),
    (V + "SELECT CAST(a) FROM s", "E010", 31, "expected AS but found )"),
    (V + "SELECT a:: FROM s", "E010", 29, "expected a type but found FROM"),
    (V + "SELECT a + FROM s", "E010", 29, "expected an expression but found FROM"),
    (V + "SELECT f(a,) FROM s", "E010", 29, "expected an expression but found )"),
    (V + "SELECT CASE END FROM s", "E010", 30, "expected WHEN but found END"),
    (V + "SELECT CASE WHEN a b END FROM s", "E010", 37, "expected THEN but found b"),
    (V + "SELECT CASE WHEN a THEN b FROM s", "E010", 44, "expected END but found FROM"),
    (V + "SELECT a BETWEEN 1 FROM s", "E010", 37, "expected AND but found FROM"),
    (V + "SELECT a IN () FROM s", "E010", 31, "expected an expression but found )"),
    (V + "SELECT a IS 3 FROM s", "E010", 25, "expected NULL, TRUE, FALSE or DISTINCT FROM after IS"),
    (V + "SELECT a IS", "E010", 29, "expected NULL, TRUE, FALSE or DISTINCT FROM but found the end"),
    (V + "SELECT a 'b' FROM s", "E010", 27, "unexpected 'b'"),
    (V + "SELECT a + * FROM s", "E010", 29, "* is allowed only in a select list or in COUNT"),
    (V + "SELECT (a AS b) FROM s", "E010", 26, "AS is allowed only in a select list"),
    (V + "SELECT SUM(a, b) FROM s", "E032", 25, "SUM takes one argument"),
    (V + "SELECT COUNT() FROM s", "E032", 25, "COUNT takes one argument"),
    (V + "SELECT GROUP(a + 1) FROM s", "E010", 31, "expected a column"),
    (V + "SELECT EXISTS (a) FROM s", "E010", 25, "EXISTS takes a query"),
    (V + "SELECT SILENCE(t, c) FROM s", "E010", 34, "expected ) but found ,"),
    (V + "SELECT ? FROM s", "E010", 27, "expected an expression but found FROM"),
    (V + "SELECT a #> b FROM s", "E033", 30, "a path is a list of names and positions, such as '{a,0}'"),
    (V + "SELECT a #>> '{a,}' FROM s", "E033", 31, "a path is a list of names and positions, such as '{a,0}'"),
    (V + "SELECT :a FROM s", "E010", 25, "unexpected :"),
]


@pytest.mark.parametrize(("text", "code", "column", "message"), ERRORS)
def test_errors(text: str, code: str, column: int, message: str) -> None:
    _, (problem,) = parse(Source("p", text))
    assert problem.span is not None
    assert (problem.code, problem.span.start + 1, problem.message) == (code, column, message)
    assert problem.span.start <= problem.span.end <= len(text)
    assert render([problem], Source("p", text)).startswith(f"p:1:{column}: error {code}: ")


WITHIN_HINT = "Bound the time in ON: r.t BETWEEN l.t - INTERVAL '1' HOUR AND l.t + INTERVAL '1' HOUR."


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (V + "SELECT a FORM s", "Did you mean FROM?"),
        ("SUBSRCIBE v", "Did you mean SUBSCRIBE?"),
        (V + "SELECT a FROM s WEHRE b > 1", "Did you mean WHERE?"),
        ("CREATE STREAM s (a int)", "Mark the column that holds the event's tick: t TIME KEY."),
        (V + "SELECT a ≠ b FROM s", "Write <>."),
        (V + "SELECT a FROM s WHERE a <=> b", "Write IS NOT DISTINCT FROM."),
        (V + "SELECT a FROM s WHERE a ~~ 'x%'", "Write LIKE."),
        (V + "SELECT a FROM s MINUS SELECT a FROM u", "Write EXCEPT."),
        (V + "SELECT a FROM s WHERE a BETWEEN SYMMETRIC 3 AND 1", "Write BETWEEN LEAST(a, b) AND GREATEST(a, b)."),
        (V + "SELECT a DIV 2 FROM s", "Write a / b: of two ints it is a whole number."),
        (V + "SELECT ISNULL(a, 0) FROM s", "Write COALESCE(a, b), or a IS NULL."),
        (V + "SELECT a, SUM(b) FROM s GROUP BY a WITH ROLLUP", "Write GROUP BY ROLLUP (a, b)."),
        (V + "SELECT a FROM s CROSS APPLY (SELECT b FROM u) x", "Write JOIN LATERAL (SELECT …) AS s ON TRUE."),
        (V + "SELECT a FROM s JOIN u x WITHIN 1 HOUR ON b = c", WITHIN_HINT),
        (V + "SELECT top, mod, div FROM minus s s", None),
        (V + "SELECT a FROM s WHERE (a > 1) IS UNKNOWN", "Write IS NULL."),
        ("CREATE STREAM s (t: time -> a string)", None),
    ],
)
def test_hints(text: str, hint: str | None) -> None:
    _, (problem,) = parse(Source("p", text))
    assert problem.hint == hint
