"""The order of rows that a view asks for."""

import pytest

from smile.algebra.row_order import RowOrder, row_order
from tests.programs.reader import compile_text

STREAM = "CREATE STREAM S (t: time -> a: int, b: int);"
CASES: dict[str, RowOrder] = {
    "SELECT * FROM S": (),
    "SELECT * FROM S ORDER BY a DESC, b LIMIT 3": (("a", True), ("b", False)),
    "SELECT t, a AS first, b FROM S ORDER BY a LIMIT 3": (("first", False),),
    "SELECT t, b FROM S ORDER BY a LIMIT 3": (),
    "SELECT t, a, b FROM S ORDER BY a, a + b LIMIT 3": (("a", False),),
}


@pytest.mark.parametrize("query", CASES)
def test_the_order_of_a_query(query: str) -> None:
    program = compile_text("order", "smile", f"{STREAM} CREATE VIEW V AS {query}; SUBSCRIBE V;").original
    assert row_order(program.views[0].body) == CASES[query]
