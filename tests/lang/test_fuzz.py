"""Any text gives statements or diagnostics, never an exception. Parsed statements can be printed and parsed again."""

from hypothesis import example, given, settings, strategies as st

from smile.errors import CATALOGUE, render
from smile.lang import CreateView, parse, print_statements, span_of
from smile.source import Source
from tests.lang.corpus import EXAMPLES, QUERIES
from tests.repeatable import scaled

FAST = settings(max_examples=scaled(400))

VOCABULARY = r"""
    CREATE STREAM VIEW DOMAIN SUBSCRIBE subscriptions AS SELECT FROM WHERE GROUP BY ORDER LIMIT HAVING JOIN ON USING
    BEST PER SILENCE TUMBLE HOP LAST MERGE TABLE DESCRIPTOR LATEST SUM COUNT CASE WHEN THEN ELSE END CAST INTERVAL
    '1' HOUR NOT NULL AND OR IN IS BETWEEN LIKE EXISTS DISTINCT UNION ALL ASOF LEFT OVER PARTITION RANGE PRECEDING
    UNBOUNDED WITH TIME KEY CHECK TICKS PUBLISHER ORIGINS MANY DATE EXTRACT TRIM SUBSTRING POSITION FOR VALUES OFFSET
    FILTER TRUE
    ( ) ( ) , , ; : :: -> . * + - / % = < > <= <> || a b s t #bid größe "Q" 1 2.5 .5 x'00' [ ] ' " -- /* */
"""
WORDS = VOCABULARY.split()

token_soup = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
programs = st.sampled_from([*EXAMPLES.values(), *(f"CREATE VIEW v AS {q};" for q in QUERIES)])
any_text = st.text(st.characters(), max_size=60)  # lone surrogates included
any_bytes = st.binary(max_size=60).map(lambda b: b.decode("utf-8", "surrogateescape"))


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A program in which a few pieces are deleted, doubled or replaced."""
    text = draw(programs)
    for _ in range(draw(st.integers(1, 4))):
        i, j = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        j = min(j, i + 30)
        replacement = draw(st.sampled_from(["", text[i:j] * 2, *WORDS]) | any_text)
        text = text[:i] + replacement + text[j:]
    return text


def check_result(text: str) -> None:
    source = Source("p", text)
    statements, problems = parse(source)
    assert statements or problems
    for problem in problems:
        assert problem.code in CATALOGUE and problem.span is not None
        assert 0 <= problem.span.start <= problem.span.end <= len(text)
        assert problem.message and problem.message.isprintable() and "\x1b" not in problem.message
    if problems:
        assert render(problems, source).startswith("p:")
    for statement in statements:
        assert 0 <= statement.span.start < statement.span.end <= len(text)
        if isinstance(statement, CreateView):
            assert all(span_of(node) for node in statement.query.walk())
    printed = print_statements(statements)
    reparsed, new_problems = parse(Source("p", printed)) if statements else ([], [])
    assert new_problems == [] and print_statements(reparsed) == printed


@FAST
@given(token_soup)
def test_token_soup(text: str) -> None:
    check_result(text)


@FAST
@given(token_soup)
def test_token_soup_in_a_query(text: str) -> None:
    check_result(f"CREATE VIEW v AS SELECT a FROM s {text}")


@FAST
@given(token_soup)
def test_token_soup_in_an_expression(text: str) -> None:
    check_result(f"CREATE VIEW v AS SELECT {text} FROM s")


@FAST
@given(any_text | any_bytes)
@example("\ud800")
@example("\0")
def test_any_text(text: str) -> None:
    check_result(text)


@FAST
@given(mutated())
def test_mutated_programs(text: str) -> None:
    check_result(text)


names = st.sampled_from(["a", "b", "s.c", '"Q q"', "#bid"])
literals = st.sampled_from(["1", "2.5", "'x'", "NULL", "TRUE", "INTERVAL '1' HOUR", "x'00'"])


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = [
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "AND",
        "OR",
        "LIKE",
        "IS DISTINCT FROM",
    ]
    return st.one_of(
        st.tuples(inner, st.sampled_from(operators), inner).map(" ".join),
        st.tuples(st.sampled_from(["NOT", "-", "+"]), inner).map(" ".join),
        inner.map("({})".format),
        st.tuples(inner, inner, inner).map(lambda t: "{} BETWEEN {} AND {}".format(*t)),
        st.tuples(inner, st.sampled_from(["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", "::int"])).map(" ".join),
        st.tuples(inner, inner).map(lambda t: "{} NOT IN (1, {})".format(*t)),
        st.tuples(inner, inner, inner).map(lambda t: "CASE WHEN {} THEN {} ELSE {} END".format(*t)),
        st.tuples(inner, inner).map(lambda t: "COALESCE({}, {})".format(*t)),
        inner.map("CAST({} AS decimal(10, 2))".format),
        inner.map("SUM({}) OVER (PARTITION BY a ORDER BY t RANGE UNBOUNDED PRECEDING)".format),
    )


@FAST
@given(st.recursive(names | literals, compound, max_leaves=12))
def test_expressions(expression: str) -> None:
    """Printing and parsing again gives the same tree, so no parenthesis is lost."""
    statements, problems = parse(Source("p", f"CREATE VIEW v AS SELECT {expression} FROM s"))
    if problems:
        return
    (view,) = statements
    assert isinstance(view, CreateView)
    (reparsed,), _ = parse(Source("p", print_statements([view])))
    assert isinstance(reparsed, CreateView) and reparsed.query == view.query
