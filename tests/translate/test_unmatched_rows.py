"""W005: the joins that keep rows without a match, and show NULL for them."""

from pathlib import Path

import pytest

from smile.program import compile_program, read_source
from smile.source import Source

ROOT = Path(__file__).parents[2]
SHARED = """
CREATE STREAM Orders (o: time -> customer: string, total: int);
CREATE STREAM Payments (p: time -> orderid: time, amount: int);
CREATE VIEW Paid AS SELECT orderid, SUM(amount) AS paid, COUNT(*) AS n, MAX(amount) AS most FROM Payments GROUP BY orderid;
CREATE VIEW Known AS SELECT orderid, MAX(amount) AS most FROM Payments GROUP BY orderid HAVING COUNT(*) > 0;
CREATE VIEW Doubled AS SELECT orderid AS id, most * 2 AS twice FROM Paid;
"""


def warned(query: str) -> list[str]:
    compiled = compile_program(Source("w.smile", f"CREATE VIEW v AS {query};{SHARED}"))
    return [w.message for w in compiled.warnings if w.code == "W005"]


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT o, most FROM Orders JOIN Paid ON o = orderid", "most"),
        ("SELECT o, paid, most FROM Orders, Paid WHERE o = orderid", "most"),
        ("SELECT o, twice FROM Orders JOIN Doubled ON o = id", "twice"),
        ("SELECT o FROM Orders JOIN Paid ON o = orderid WHERE COALESCE(most, 0) < total", "most"),
        ("SELECT o, most + total AS s FROM Orders JOIN Paid ON o = orderid WHERE total > 3 OR most > 3", "most"),
        ("SELECT customer, MAX(most) AS m FROM Orders JOIN Paid ON o = orderid GROUP BY customer", "most"),
    ],
)
def test_rows_that_show_null_are_warned_of(query: str, column: str) -> None:
    (message,) = warned(query)
    assert message == f"a JOIN of v keeps the rows without a match, and {column} is NULL there"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o, paid, n FROM Orders JOIN Paid ON o = orderid",
        "SELECT o, most FROM Orders LEFT JOIN Paid ON o = orderid",
        "SELECT o, most FROM Orders JOIN Known ON o = orderid",
        "SELECT o, most FROM Orders JOIN Paid ON o = orderid WHERE most IS NOT NULL",
        "SELECT o, most FROM Orders JOIN Paid ON o = orderid WHERE total > most AND total > 0",
        "SELECT o, twice FROM Orders JOIN Doubled ON o = id WHERE total + twice > 3",
        "SELECT o, most FROM Orders JOIN Paid ON total = n",
        "SELECT o, (SELECT MAX(amount) FROM Payments WHERE orderid = o) AS m FROM Orders",
        "SELECT o, (SELECT most FROM Paid WHERE orderid = o) AS m FROM Orders",
    ],
)
def test_other_joins_are_not(query: str) -> None:
    assert warned(query) == []


@pytest.mark.parametrize("path", sorted((ROOT / "programs").rglob("*.smile")), ids=lambda p: p.stem)
def test_the_example_programs_are_not_warned_of(path: Path) -> None:
    if "IMPORT" not in path.read_text():
        assert [w for w in compile_program(read_source(str(path))).warnings if w.code == "W005"] == []
