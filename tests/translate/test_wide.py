"""The work of compiling a view grows in proportion to the number of its columns and aggregates."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from smile.algebra import trees
from smile.kernels.compile import compile_graph
from smile.program import compile_program
from smile.source import Source


def columns_program(width: int) -> str:
    return view(width, f"SELECT t, {', '.join(f'a{i} + 1 AS x{i}' for i in range(width))} FROM s")


def aggregates_program(width: int) -> str:
    return view(width, f"SELECT a0, {', '.join(f'SUM(a{i}) AS x{i}' for i in range(width))} FROM s GROUP BY a0")


def view(width: int, query: str) -> str:
    columns = ", ".join(f"a{i}: int" for i in range(width))
    return f"CREATE STREAM s (t: time -> {columns});\nCREATE VIEW v AS {query};\nSUBSCRIBE v;"


def calls_of_compilation(text: str) -> int:
    """The number of calls of Python functions, which is the same on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        compiled = compile_program(Source("wide.smile", text))
        compile_graph(compiled.graph, compiled.rewritten.streams)
    finally:
        sys.setprofile(previous)
    return calls


@pytest.mark.parametrize("program", [columns_program, aggregates_program])
def test_work_is_proportional_to_width(program: Callable[[int], str]) -> None:
    calls_of_compilation(program(10))  # fills the caches
    narrow, wide = calls_of_compilation(program(60)), calls_of_compilation(program(240))
    assert wide < 5 * narrow, (narrow, wide)


@pytest.mark.parametrize(
    "output",
    [
        "(SELECT COUNT(*) FROM s r WHERE r.t < q.t AND r.a0 = q.a{i}) AS x{i}",
        "LAG(a{i}) OVER (ORDER BY t) AS x{i}, (SELECT MAX(r.a{i}) FROM s r WHERE r.t < q.t) AS y{i}",
        "(SELECT r.a{i} FROM s r WHERE r.t = q.t - INTERVAL '1' TICK) + LAG(a{i}) OVER (ORDER BY t) AS x{i}",
        "a{i} IN (SELECT a0 FROM s) AS x{i}, (SELECT COUNT(*) FROM s r WHERE r.a0 < q.a{i} + 1) AS y{i}",
    ],
)
def test_joins_of_rows_with_themselves_do_not_double_the_program(output: str) -> None:
    def operators(width: int) -> int:
        outputs = ", ".join(output.format(i=i) for i in range(width))
        compiled = compile_program(Source("wide.smile", view(width, f"SELECT t, {outputs} FROM s q")))
        return sum(1 for _ in trees.walk(compiled.original.views[0].body))

    assert operators(8) < 5 * operators(2)


def test_aggregates_of_lateral_do_not_double_the_program() -> None:
    def operators(width: int) -> int:
        outputs = ", ".join(f"MAX(r.a{i}) AS x{i}" for i in range(width))
        query = f"SELECT t, x0 FROM s q JOIN LATERAL (SELECT {outputs} FROM s r WHERE r.t < q.t) AS l ON TRUE"
        compiled = compile_program(Source("wide.smile", view(width, query)))
        return sum(1 for _ in trees.walk(compiled.original.views[0].body))

    assert operators(8) < 5 * operators(2)
