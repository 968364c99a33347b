"""Queries in standard SQL give the same rows as in SQLite, on small tables with many NULLs."""

import sqlite3
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.types import Value
from smile.program import compile_program
from smile.reference.wire import final_rows
from smile.source import Source
from tests.repeatable import scaled

Row = dict[str, Value]
TABLES = {"A": ("t", "x", "y", "n"), "B": ("t", "x", "z", "n"), "C": ("u", "y", "z", "n")}
STREAMS = "".join(
    f"CREATE STREAM {name} ({tick}: time -> {a}: string, {b}: string, {n}: int);\n"
    for name, (tick, a, b, n) in TABLES.items()
)

QUERIES = """
SELECT x, n FROM A WHERE n > 1 OR x = 'a'
SELECT n * 2 AS m, x FROM A WHERE m > 2
SELECT a.n, b.n AS k FROM A a JOIN B b ON a.x = b.x
SELECT x, A.n, B.n AS k FROM A JOIN B USING (x)
SELECT A.*, s.* FROM A JOIN (SELECT x AS w, z FROM B) s ON x = w
SELECT A.x, y, B.x AS bx, z FROM A LEFT JOIN B USING (x)
SELECT x, y, z FROM A LEFT JOIN B USING (x)
SELECT x, y, z FROM A RIGHT JOIN B USING (x)
SELECT x, A.x AS ax, B.x AS bx FROM A RIGHT JOIN B USING (x)
SELECT x, y, z FROM A FULL JOIN B USING (x)
SELECT x, A.x AS ax, B.x AS bx, y, z FROM A FULL JOIN B USING (x)
SELECT A.x, z FROM A LEFT JOIN B ON A.x = B.x AND B.n > 1
SELECT A.x, z FROM A LEFT JOIN B ON A.x = B.x AND A.n > 1
SELECT A.x, z FROM A LEFT JOIN B ON A.x = B.x WHERE B.n > 1
SELECT a.x, b.z, c.y FROM A a, B b, C c WHERE a.x = b.x AND b.z = c.z
SELECT a.x, b.z, c.y FROM A a LEFT JOIN B b ON a.x = b.x LEFT JOIN C c ON b.z = c.z
SELECT x, A.y, B.z FROM A LEFT JOIN B USING (x) JOIN C ON A.y = C.y
SELECT a.n, b.n AS m FROM A a JOIN A b ON a.x = b.x AND a.n < b.n
SELECT a.x, b.z FROM A a JOIN B b ON a.n + 1 = b.n * 2
SELECT a.x, b.x AS bx FROM A a CROSS JOIN B b WHERE a.n = b.n
SELECT x FROM A WHERE EXISTS (SELECT 1 FROM B WHERE B.x = A.x)
SELECT x FROM A WHERE NOT EXISTS (SELECT 1 FROM B WHERE B.x = A.x AND B.n > A.n)
SELECT x FROM A WHERE EXISTS (SELECT 1 FROM B WHERE B.x = A.x AND NOT EXISTS (SELECT 1 FROM C WHERE C.z = B.z))
SELECT x, n FROM A WHERE n = 1 OR EXISTS (SELECT 1 FROM B WHERE B.x = A.x)
SELECT x, EXISTS (SELECT 1 FROM B WHERE B.x = A.x) AS e FROM A
SELECT x FROM A WHERE EXISTS (SELECT 1 FROM B WHERE n > 2)
SELECT x FROM A WHERE x IN (SELECT x FROM B)
SELECT x FROM A WHERE x NOT IN (SELECT x FROM B)
SELECT x FROM A WHERE x NOT IN (SELECT x FROM B WHERE n > 1)
SELECT x FROM A WHERE x NOT IN (SELECT B.x FROM B WHERE B.n = A.n)
SELECT x FROM A WHERE NOT (x IN (SELECT x FROM B) OR n > 1)
SELECT x, x IN (SELECT x FROM B) AS f, x NOT IN (SELECT x FROM B) AS g FROM A
SELECT x, n IN (SELECT B.n FROM B WHERE B.x = A.x) AS f FROM A
SELECT n FROM A WHERE n + 1 IN (SELECT n FROM B)
SELECT x FROM A WHERE 'a' NOT IN (SELECT x FROM B)
SELECT x FROM A WHERE x IN ('a', NULL) OR n NOT IN (1, 2)
SELECT x FROM A WHERE n > (SELECT MIN(n) FROM B)
SELECT x, (SELECT COUNT(*) FROM B WHERE B.x = A.x) AS k FROM A
SELECT x, (SELECT MAX(n) FROM B WHERE B.x = A.x AND B.z = A.y) AS k FROM A
SELECT x, (SELECT COUNT(n) + 1 FROM B WHERE B.x = A.x) AS k, (SELECT COUNT(*) FROM B) AS l FROM A
SELECT x, COUNT(*) AS k, COUNT(n) AS l, COUNT(DISTINCT n) AS d, MIN(n) AS low, MAX(n) AS high FROM A GROUP BY x
SELECT x, n % 2 AS odd, COUNT(*) AS k FROM A GROUP BY 1, odd
SELECT (n + 1) * 2 AS m, COUNT(*) AS k FROM A GROUP BY n + 1
SELECT x, COUNT(*) AS k FROM A GROUP BY x HAVING k > 1 AND MAX(n) > 1
SELECT x FROM A GROUP BY x, y
SELECT COUNT(*) AS k, MAX(n) AS m FROM A WHERE n > 5
SELECT x, COUNT(*) AS k FROM A GROUP BY x HAVING COUNT(*) > (SELECT COUNT(*) FROM B WHERE B.x = A.x)
SELECT x, MAX(n) AS m FROM A WHERE EXISTS (SELECT 1 FROM B WHERE B.x = A.x) GROUP BY x
SELECT COUNT(CASE WHEN x IN (SELECT x FROM B) THEN 1 END) AS k FROM A
SELECT B.x, COUNT(*) AS k, COUNT(A.n) AS l FROM B LEFT JOIN A ON A.x = B.x GROUP BY B.x
SELECT DISTINCT x, y FROM A
SELECT x FROM A UNION SELECT x FROM B
SELECT x, n FROM A UNION ALL SELECT z, n FROM B UNION ALL SELECT y, n FROM C
SELECT x FROM A UNION ALL SELECT x FROM B UNION SELECT y FROM C
SELECT x FROM A UNION SELECT x FROM B UNION ALL SELECT y FROM C
SELECT k, COUNT(*) AS l FROM (SELECT x, COUNT(*) AS k FROM A GROUP BY x) GROUP BY k
WITH P AS (SELECT x, n FROM A WHERE n > 0), Q AS (SELECT x FROM P) SELECT P.x, P.n FROM P JOIN Q USING (x)
WITH a AS (SELECT x FROM B) SELECT x FROM A
SELECT CASE WHEN n > 1 THEN 'big' WHEN n = 1 THEN 'one' END AS size, CASE x WHEN 'a' THEN 1 ELSE 0 END AS k FROM A
SELECT x FROM A WHERE n IS NOT NULL AND x IS NULL OR NOT n IS NULL AND y IS NOT NULL
SELECT x FROM A WHERE x NOT LIKE 'a%' OR y LIKE '%b'
SELECT x FROM A WHERE n BETWEEN 1 AND 2 OR n NOT BETWEEN 0 AND 3
SELECT x, n FROM A WHERE n IS NOT DISTINCT FROM NULL OR n IS DISTINCT FROM 1
SELECT COALESCE(x, y, '-') AS c, NULLIF(n, 1) AS d FROM A
SELECT n FROM A WHERE n IS NOT NULL ORDER BY n DESC LIMIT 2
SELECT x, COUNT(*) AS k FROM A WHERE x IS NOT NULL GROUP BY x ORDER BY k DESC, x DESC LIMIT 1
SELECT x, COUNT(*) FILTER (WHERE n > 1) AS k, MAX(n) FILTER (WHERE y = 'a') AS m FROM A GROUP BY x
SELECT COUNT(DISTINCT n) FILTER (WHERE x = 'a') AS k FROM A
SELECT x, n FROM A EXCEPT SELECT x, n FROM B
WITH P AS (SELECT x, COUNT(*) AS k FROM A GROUP BY x), Q AS (SELECT k, COUNT(*) AS l FROM P GROUP BY k) SELECT P.x, Q.l FROM P JOIN Q ON P.k = Q.k
WITH P AS (SELECT x, COUNT(*) AS k FROM A GROUP BY x), Q AS (SELECT k, COUNT(*) AS l FROM P GROUP BY k) SELECT x, l FROM P JOIN Q USING (k)
SELECT SUM(DISTINCT n) IS NULL AS k, COUNT(DISTINCT n) AS l, AVG(DISTINCT n) AS m FROM A WHERE n IS NOT NULL HAVING COUNT(*) > 0
SELECT x, AVG(DISTINCT n) AS k FROM A GROUP BY x
SELECT x FROM A INTERSECT SELECT z FROM C
SELECT x FROM A EXCEPT SELECT x FROM B EXCEPT SELECT y FROM C
SELECT x, y, z FROM (SELECT x, y FROM A) NATURAL JOIN (SELECT x, z FROM B)
SELECT x, n, y, z FROM (SELECT x, n, y FROM A) NATURAL LEFT JOIN (SELECT x, n, z FROM B)
SELECT y FROM A WHERE (x, n) IN (SELECT x, n FROM B)
SELECT y FROM A WHERE (x, n) IN (SELECT B.x, B.n FROM B WHERE B.z = A.y)
SELECT x FROM A WHERE (x, n) = ('a', 1) OR (x, y) <> ('a', 'b')
SELECT x, n, t FROM (SELECT t, x, n, ROW_NUMBER() OVER (PARTITION BY x ORDER BY t DESC) AS r FROM A) WHERE r <= 2
SELECT * FROM (SELECT t, x, ROW_NUMBER() OVER (PARTITION BY y ORDER BY t) AS r FROM A) WHERE r = 1 AND x = 'a'
WITH w AS (SELECT t, x, ROW_NUMBER() OVER (ORDER BY t DESC) AS r FROM A) SELECT w.x, B.z FROM w JOIN B USING (x) WHERE r < 3
SELECT x, n FROM (SELECT x, n, RANK() OVER (PARTITION BY x ORDER BY n NULLS LAST) AS r FROM A) WHERE r <= 2
SELECT x, n FROM (SELECT x, n, RANK() OVER (PARTITION BY y ORDER BY n DESC NULLS FIRST) AS r FROM A) WHERE r = 1
SELECT x, n FROM (SELECT x, n, DENSE_RANK() OVER (PARTITION BY x ORDER BY n NULLS LAST) AS r FROM A) WHERE r <= 2
SELECT x, k FROM (SELECT x, COUNT(*) AS k, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM A GROUP BY x) WHERE r <= 1
SELECT t, n FROM A ORDER BY n NULLS FIRST, t LIMIT 2
SELECT t, n FROM A ORDER BY n DESC NULLS LAST, t LIMIT 2
""".strip().splitlines()

word = st.sampled_from(["a", "b", "ab", None])
number = st.sampled_from([0, 1, 2, 3, None])
table = st.lists(st.tuples(word, word, number), max_size=5)


def sqlite_rows(query: str, tables: dict[str, list[Row]]) -> Counter[tuple[Value, ...]]:
    connection = sqlite3.connect(":memory:")
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        rows = [tuple(row[c] for c in columns) for row in tables[name]]
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
    try:
        return Counter(connection.execute(query).fetchall())
    finally:
        connection.close()


@cache
def compiled_query(query: str) -> mmpl.Program:
    return compile_program(Source("query.smile", f"{STREAMS}CREATE VIEW V AS {query};")).original


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=scaled(20))
@given(contents=st.tuples(table, table, table))
def test_queries_give_the_same_rows_as_in_sqlite(query: str, contents: tuple[list[tuple[Value, ...]], ...]) -> None:
    tables: dict[str, list[Row]] = {
        name: [dict(zip(columns, (tick, *values), strict=True)) for tick, values in enumerate(rows)]
        for (name, columns), rows in zip(TABLES.items(), contents, strict=True)
    }
    events = [
        {"stream": name, "at": row[TABLES[name][0]], "event": row} for name, rows in tables.items() for row in rows
    ]
    shown = final_rows(compiled_query(query), events)["V"].values()
    assert Counter(tuple(row.values()) for row in shown) == sqlite_rows(query, tables)
