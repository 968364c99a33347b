"""Large queries are translated to trees of moderate size, and deeply nested ones without a crash."""

import pytest

from smile.algebra import mmpl, trees
from smile.program import compile_program
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
