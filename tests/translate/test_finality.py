"""Whatever a query over windows is translated to: its rows are final when their window is over, and nothing is kept for
good."""

import pytest

from smile.program import CompiledProgram, compile_program
from smile.source import Source

STREAM = "CREATE STREAM T (t: time -> k: string, x: int, y: int, ok: bool);"
WINDOWS = "TUMBLE(T, t, INTERVAL '1' MINUTE)"
AGGREGATES = (
    "COUNT(*)", "SUM(x)", "MAX(x)", "MIN(x)", "AVG(x)", "COUNT(DISTINCT x)", "STDDEV(x)", "VAR_POP(x)", "BOOL_AND(ok)",
    "LATEST(x)", "EARLIEST(x)", "ARG_MAX(y, x)", "ARG_MIN(y, x)", "COUNT(*) FILTER (WHERE x > y)",
    "ARG_MAX(y, x) FILTER (WHERE y > 1)", "SUM(DISTINCT x)", "AVG(DISTINCT x) FILTER (WHERE ok)", "STDDEV(DISTINCT x)",
    "COUNT(DISTINCT (x, y))",
)  # fmt: skip
COUNTS = f"SELECT window_start, k, COUNT(*) AS n FROM {WINDOWS} GROUP BY window_start, k"
RANKINGS = (
    "ROW_NUMBER() OVER (PARTITION BY {} ORDER BY x) <= 2", "RANK() OVER (PARTITION BY {} ORDER BY x DESC) <= 2",
    "DENSE_RANK() OVER (PARTITION BY {} ORDER BY x) <= 2",
)  # fmt: skip
QUERIES = [
    *(f"SELECT window_start, {a} AS v FROM {WINDOWS} GROUP BY window_start" for a in AGGREGATES),
    *(f"SELECT window_end, k, {a} AS v FROM {WINDOWS} GROUP BY window_end, k" for a in AGGREGATES),
    *(f"SELECT window_start, x FROM {WINDOWS} QUALIFY {r.format('window_start')}" for r in RANKINGS),
    *(f"SELECT k, x FROM {WINDOWS} QUALIFY {r.format('k, window_end')}" for r in RANKINGS),
    *(
        f"SELECT * FROM (SELECT *, {r.format('window_start').replace('<= 2', 'AS r')} FROM {WINDOWS}) WHERE r <= 3"
        for r in RANKINGS
    ),
    f"SELECT DISTINCT ON (window_start, k) window_start, k, x FROM {WINDOWS} ORDER BY window_start, k, x",
    f"SELECT window_start, k, COUNT(*) AS n FROM {WINDOWS} GROUP BY window_start, ROLLUP (k)",
    f"SELECT window_start, k FROM {WINDOWS} EXCEPT SELECT window_start, k FROM {WINDOWS} WHERE x > 5",
    f"SELECT window_start, k FROM {WINDOWS} INTERSECT SELECT window_start, k FROM {WINDOWS} WHERE x > 5",
    f"SELECT window_start, k, MAX(x) AS m FROM {WINDOWS} GROUP BY window_start, k HAVING ARG_MAX(y, x) > 1",
]


def compiled(query: str) -> CompiledProgram:
    return compile_program(Source("q.smile", f"{STREAM}\nCREATE VIEW V AS {query};"))


@pytest.mark.parametrize("query", QUERIES)
def test_a_row_is_final_when_its_window_is_over(query: str) -> None:
    program = compiled(query)
    assert [w.message for w in program.warnings] == []
    assert not program.analysis.relations["V"].seals["T"].is_never


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT window_start, k FROM {WINDOWS} EXCEPT ALL SELECT window_start, k FROM {WINDOWS} WHERE x > 5",
        f"SELECT window_start, n FROM ({COUNTS}) EXCEPT ALL SELECT window_start, n FROM ({COUNTS}) WHERE n > 2",
    ],
)
def test_a_row_of_a_bag_is_final_when_its_window_is_over(query: str) -> None:
    """The running numbers of equal rows are kept, as those of OVER are."""
    assert not compiled(query).analysis.relations["V"].seals["T"].is_never


def test_a_warning_has_the_names_that_the_user_wrote() -> None:
    """Groups are joined by columns that say of each value whether it is NULL."""
    query = "SELECT k, ARG_MAX(y, x) AS a, ARG_MIN(y, x) AS b FROM T GROUP BY k"
    messages = [w.message for w in compiled(query).warnings]
    best = "V keeps the best 1 rows of each k for good, one more for every new k: T may have one more event for any k"
    assert any(m.startswith(best) for m in messages)
    assert not any("k_is_null" in m or "k_value" in m or "shared" in m for m in messages)


@pytest.mark.parametrize("null", ["", " NOT NULL"])
def test_the_default_row_does_not_depend_on_not_null(null: str) -> None:
    stream = STREAM.replace("k: string", f"k: string{null}")
    view = "CREATE VIEW V AS SELECT k, ARG_MAX(y, x) AS v FROM T GROUP BY k;"
    assert not compile_program(Source("q.smile", f"{stream}\n{view}")).analysis.relations["V"].heading.total


PERIODS = (
    "TO_CHAR(t, 'YYYY-MM-DD')", "TO_CHAR(t, 'Mon YYYY')", "YEAR(t)", "YEAR(t), MONTH(t)", "HOUR(t), DAY(t), MONTH(t), YEAR(t)",
    "EXTRACT(YEAR FROM t), EXTRACT(QUARTER FROM t)", "DATE_TRUNC('month', t)", "DATE_TRUNC('day', t, 'Europe/Berlin')",
    "CAST(DATE_TRUNC('month', t) AS date)", "TO_CHAR(t + INTERVAL '2' HOUR, 'YYYY')",
)  # fmt: skip


@pytest.mark.parametrize("period", PERIODS)
def test_a_group_by_what_names_a_period_is_final_when_it_is_over(period: str) -> None:
    program = compiled(f"SELECT {period}, COUNT(*) AS n FROM T GROUP BY {period}")
    assert program.warnings == ()
    assert not program.analysis.relations["V"].seals["T"].is_never


@pytest.mark.parametrize("period", ["TO_CHAR(t, 'HH24:MI')", "EXTRACT(MONTH FROM t)"])
def test_a_warning_about_a_period_says_how_it_ends(period: str) -> None:
    (warning,) = compiled(f"SELECT {period} AS p, COUNT(*) AS n FROM T GROUP BY p").warnings
    assert warning.hint is not None
    assert warning.hint.startswith("Group by DATE_TRUNC('day', t)")
    assert compiled(f"SELECT {period} AS p, COUNT(*) AS n FROM T GROUP BY p, DATE_TRUNC('day', t)").warnings == ()
