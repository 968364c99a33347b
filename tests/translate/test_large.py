"""Large queries are translated to trees of moderate size. Deep ones are compiled and run up to a limit, and refused
beyond."""

import pickle

import pytest

from smile import limits
from smile.algebra import mmpl, trees
from smile.errors import SmileError
from smile.kernels.compile import compile_graph
from smile.program import CompiledProgram, compile_program
from smile.source import Source

STREAM = "CREATE STREAM s (t: time -> a: int, b: int);\n"


def body(query: str) -> mmpl.Rel:
    return compile_program(Source("large.smile", f"{STREAM}CREATE VIEW v AS {query};")).original.views[0].body


def test_a_list_of_hundreds_of_values() -> None:
    rel = body(f"SELECT * FROM s WHERE a IN ({', '.join(map(str, range(700)))})")
    assert isinstance(rel, mmpl.Restrict)
    assert isinstance(rel.predicate, mmpl.Call)
    assert rel.predicate.function == "or"
    assert len(rel.predicate.args) == 700


def test_hundreds_of_conditions_are_one_conjunction() -> None:
    rel = body("SELECT * FROM s WHERE " + " AND ".join(f"a <> {i}" for i in range(500)))
    assert isinstance(rel, mmpl.Restrict)
    assert len(trees.conjuncts(rel.predicate)) == 500


def test_hundreds_of_columns_are_one_extension() -> None:
    rel = body("SELECT t, " + ", ".join(f"a + {i} AS c{i}" for i in range(500)) + " FROM s")
    extensions = [r for r in trees.walk(rel) if isinstance(r, mmpl.Extend)]
    assert [len(e.assignments) for e in extensions] == [500]


def test_hundreds_of_branches_are_one_union() -> None:
    rel = body(" UNION ALL ".join(f"SELECT t, a + {i} AS c FROM s" for i in range(200)))
    assert isinstance(rel, mmpl.Union)
    assert len(rel.inputs) == 200


@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ("SELECT a FROM (", "SELECT a FROM s", ")"),
        ("SELECT a FROM s UNION ALL (SELECT a FROM s UNION (", "SELECT a FROM s", "))"),
        ("SELECT a FROM s AS q WHERE EXISTS (", "SELECT a FROM s", ")"),
        ("SELECT a FROM s AS q WHERE a IN (", "SELECT a FROM s", ")"),
        ("WITH q AS (", "SELECT a FROM s", ") SELECT a FROM q"),
    ],
)
def test_queries_within_queries(before: str, inside: str, after: str) -> None:
    depth = 40
    assert sum(isinstance(r, mmpl.RelationRef) for r in trees.walk(body(before * depth + inside + after * depth))) >= 1


# ── depth ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def compiled(query: str, name: str = "deep.smile") -> CompiledProgram:
    return compile_program(Source(name, f"{STREAM}CREATE VIEW v AS {query}; SUBSCRIBE v;"))


DEEP = {
    "sum": lambda n: f"SELECT t, {' + '.join(['a'] * (n - 5))} AS c FROM s",
    "negation": lambda n: f"SELECT t FROM s WHERE {'NOT ' * (n - 5)} a = 1",
    "calls": lambda n: f"SELECT t, {'abs(' * (n - 5)}a{')' * (n - 5)} AS c FROM s",
    "cases": lambda n: f"SELECT t, {'CASE WHEN a > 1 THEN ' * (n // 2 - 5)}a{' END' * (n // 2 - 5)} AS c FROM s",
    "joins": lambda n: "SELECT s.t FROM s" + "".join(f" JOIN s AS s{i} ON s.t = s{i}.t" for i in range(n - 10)),
    "subqueries": lambda n: f"{'SELECT t, a + 1 AS a FROM (' * (n // 3 - 2)}SELECT t, a FROM s{')' * (n // 3 - 2)}",
}
"""Queries of about this many nested operators, at most."""


@pytest.mark.slow
@pytest.mark.parametrize("shape", DEEP)
def test_the_deepest_views_are_compiled_and_run_on_any_engine(shape: str) -> None:
    program = compiled(DEEP[shape](limits.expression_depth_max))
    assert compile_graph(program.graph, program.rewritten.streams).transforms
    pickle.loads(pickle.dumps(program))  # as the job of a pipeline on Spark


@pytest.mark.parametrize("shape", sorted(DEEP.keys() - {"sum", "negation"}))  # which are made shallow
def test_deeper_views_are_refused(shape: str) -> None:
    with pytest.raises(SmileError) as refusal:
        compiled(DEEP[shape](limits.expression_depth_max * 2))
    assert refusal.value.diagnostics[0].code == "E012"


@pytest.mark.parametrize("terms", [limits.expression_depth_max * 2, limits.syntax_depth_max * 2])
def test_a_deep_check_is_refused(terms: int) -> None:
    text = f"CREATE STREAM s (t: time -> a: int CHECK ({' + '.join(['a'] * terms)} > 0));"
    with pytest.raises(SmileError) as refusal:
        compile_program(Source("deep.smile", text))
    assert [problem.code for problem in refusal.value.diagnostics] == ["E012"]


def test_deep_mmpl_is_refused() -> None:
    for body in ("s " + "WHERE a > 1 " * 2_000, f"s EXTEND {{c := {' + '.join(['a'] * 2_000)}}}"):
        text = f"STREAM s (t: time -> a: int); VIEW v := {body};"
        with pytest.raises(SmileError) as refusal:
            compile_program(Source("deep.mmpl", text))
        assert refusal.value.diagnostics[0].code == "E012"


def test_common_table_expressions_that_double_are_refused() -> None:
    doubling = [f"q{i} AS (SELECT x.t FROM q{i - 1} AS x JOIN q{i - 1} AS y ON x.t = y.t)" for i in range(1, 40)]
    with pytest.raises(SmileError, match="the query has more than 10,000 operators") as refusal:
        body(f"WITH q0 AS (SELECT t FROM s), {', '.join(doubling)} SELECT t FROM q39")
    assert refusal.value.diagnostics[0].code == "E003"
