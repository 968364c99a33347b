"""Deep recursion needs no larger recursion limit, and nothing in SMILE raises the limit."""

import subprocess
import sys

import pytest

from smile.recursion import continue_in_threads


@continue_in_threads
def depth_of(nested: list[object]) -> int:
    return 1 + max((depth_of(inner) for inner in nested if isinstance(inner, list)), default=0)


def test_recursion_goes_deeper_than_python_allows_in_one_thread() -> None:
    nested: list[object] = []
    for _ in range(5 * sys.getrecursionlimit()):
        nested = [nested]
    assert depth_of(nested) == 5 * sys.getrecursionlimit() + 1
    assert depth_of([]) == 1


def test_errors_reach_the_caller() -> None:
    @continue_in_threads
    def fail(levels: int) -> None:
        if levels:
            fail(levels - 1)
        raise ValueError("at the bottom")

    for levels in (0, 19, 20, 500):
        with pytest.raises(ValueError, match="at the bottom"):
            fail(levels)
    assert depth_of([[]]) == 2  # the levels of the failed calls no longer count


def test_the_recursion_limit_stays_pythons_own() -> None:
    script = """
import sys
before = sys.getrecursionlimit()
import smile.cli.main, smile.gateway.serve
from smile.program import compile_program
from smile.source import Source
n = 200
text = "CREATE STREAM s (t: time -> a: int); CREATE VIEW v AS SELECT t, " + "(" * n + "a" + ")" * n + " AS b FROM s;"
compile_program(Source("deep.smile", text))
assert sys.getrecursionlimit() == before
"""
    subprocess.run([sys.executable, "-c", script], check=True)
