"""Queries in plain SQL that no test program has: every scalar function, and rare parts of queries. All of them read one
stream with every type and a second stream. The events have values at which functions change their behaviour."""

from smile.knowledge.values.json import Json

STREAMS = """
CREATE STREAM S (t: time -> i: int, j: int, d: decimal(10, 2), e: decimal(6, 4), f: float, g: float,
                 x: string, y: string, b: bool, c: bool, ts: timestamp, tt: timestamp, dt: date, by: bytes);
CREATE STREAM R (r: time -> i: int, x: string, d: decimal(10, 2), f: float, b: bool);
"""

COLUMNS: dict[str, list[object]] = {
    "i": [7, -7, 0, 2**63 - 1, -(2**63), 5, 3, -1, 12, 4, None, 1],
    "j": [2, 2, 0, 2, -1, -3, 3, 7, -5, 10, 1, None],
    "d": ["2.50", "-2.50", "0.00", "99999999.99", "-0.01", "3.49", "1.00", "-7.77", "0.05", "12.34", None, "2.5"],
    "e": ["0.5000", "1.5000", "0.0000", "-99.9999", "0.0001", "2.4999", "3.0000", "7.0000", "-0.3333", "1.1", "1", None],
    "f": [2.5, -2.5, 0.0, 1e300, -1e-300, 0.1, 3.5, 1e15, 123456.789, -0.5, None, 1.5],
    "g": [2.0, 0.5, 0.0, 1e300, 3.0, 0.2, -1.0, 1e-5, 1e16, 0.3333333333333333, 2.0, None],
    "x": ["abc", "", " a b ", "ÄÖÜ", "a%b_c", "A\\B", "xyxyx", "10", "-3.5", "true", None, "b"],
    "y": ["b", "", " ", "ö", "%", "\\", "xy", "1", ".", "TRUE", "a", None],
    "b": [True, False, None, True, False, None, True, False, None, True, None, False],
    "c": [True, True, True, False, False, False, None, None, None, True, False, True],
    "ts": [0, 1, -1, 1709209845123456, 1704067199999999, 951827696000000, 86399999999, -62125596800000000,
           253392300799999999, 1711929600000000, None, 1735689599999999],
    "tt": [0, 1709209845123456, 1, 0, 1735603200000000, 10**15, -1, 0, 0, 1711929600000001, 5, None],
    "dt": [0, 1, -1, 19782, 19722, 11016, 20088, 19813, 365, 2932000, None, 20453],
    "by": ["\\x", "\\x00", "\\xff", "\\x00ff", "\\x616263", "\\x61", "\\x7f80", "\\x0a", "\\x", "\\x01", None, "\\x02"],
}  # fmt: skip

EVENTS: list[Json] = [
    *({"stream": "S", "at": n, "event": dict(zip(COLUMNS, row, strict=True))} for n, row in enumerate(zip(*COLUMNS.values(), strict=True))),
    *({"stream": "R", "at": n, "event": {"i": i, "x": x, "d": d, "f": f, "b": b}}
      for n, (i, x, d, f, b) in enumerate([(7, "abc", 2.5, 2.5, True), (7, "b", None, 0.0, False), (None, None, 1, None, None), (3, "", 3.49, 3.5, True)])),
]  # fmt: skip

VALUES = """
i + j | i - j | i * j | i / j | i % j | -i | ABS(i) | -j | +i
i / 2 | i % -3 | -j / 2 | -j % 3 | MOD(i, j) | i * 1.5 | i + 0.1 | i / 2.0 | i - d | i * d | i + f
d + e | d - e | d * e | -d | ABS(d) | SIGN(d) | ROUND(d) | FLOOR(d) | CEIL(d) | TRUNC(d) | d % e | MOD(d, 2) | d % 1.5
TRUNC(d, 1) | TRUNC(e, 2) | TRUNC(d, -1) | TRUNC(i, -1) | CONCAT(b, x, c) | CONCAT_WS('-', b, i) | DATE(ts) | LOG(ABS(g) + 1)
REGEXP_REPLACE(x, 'a', '<\\&>') | REGEXP_REPLACE(x, 'a', '\\\\&') | ROUND(d, 1) | ROUND(e, 2) | ROUND(e, 3) | ROUND(d, -1) | ROUND(i, -1) | ROUND(d, 5)
f + g | f - g | f * g | f / g | -f | ABS(f) | SIGN(f) | ROUND(f) | FLOOR(f) | CEIL(f) | TRUNC(f) | SIGN(g)
SQRT(g) | SQRT(ABS(f)) | POWER(j, 2) | POWER(g, 2) | POWER(g, 0.5) | POWER(f, -1) | EXP(g) | LN(f) | LOG10(g) | POWER(CAST(ABS(d) AS float), 0.5) | POWER(2, i % 10) | EXP(CAST(d % 5 AS float)) | LN(CAST(ABS(j) + 0.5 AS float)) | LOG10(CAST(ABS(e) + 1 AS float)) | POWER(0, ABS(j))
i = j | i <> j | i < j | i <= f | d >= e | d = 2.5 | f > d | i = d | x < y | x = y | x >= y | by < x'10' | b > c | b = c
b AND c | b OR c | NOT b | b AND NOT c OR c | b IS TRUE | b IS NOT FALSE | b IS NULL | b IS DISTINCT FROM c | (b AND c) IS NULL
i IS DISTINCT FROM j | x IS NOT DISTINCT FROM y | i IS NOT NULL | NOT i = j | (i > j) = b
COALESCE(i, j) | COALESCE(i, d) | COALESCE(x, y, 'z') | COALESCE(f, i) | NULLIF(i, 7) | NULLIF(x, 'abc') | NULLIF(d, 1)
GREATEST(i, j) | LEAST(i, j) | GREATEST(x, y) | LEAST(d, e) | GREATEST(d, f) | LEAST(i, NULL) | GREATEST(dt, ts) | LEAST(b, c)
x || y | x || 1 | i || x | x || d | x || f | x || b | x || dt | x || ts | by || x'ff' | CONCAT(x, y) | CONCAT(i, d, NULL, x)
x LIKE 'a%' | x LIKE '%' || y || '%' | x LIKE '_' | x LIKE 'a!%b!_c' ESCAPE '!' | x NOT LIKE '%b%' | x ILIKE 'Ä%' | x ILIKE 'ABC' | x LIKE 'A\\\\B' | x LIKE '' | x LIKE '%%'
LENGTH(x) | CHAR_LENGTH(x) | LENGTH(by) | LOWER(x) | UPPER(x) | REVERSE(x) | TRIM(x) | LTRIM(x) | RTRIM(x) | BTRIM(x, 'ax')
TRIM(LEADING 'x' FROM x) | TRIM(BOTH y FROM x) | LTRIM(x, y) | RTRIM(x, 'cyx') | POSITION(y IN x) | STRPOS(x, 'b')
SUBSTRING(x, 2) | SUBSTRING(x, 0) | SUBSTRING(x, -1, 3) | SUBSTRING(x FROM 2 FOR 1) | SUBSTRING(x, 2, 0) | SUBSTR(x, 9)
LEFT(x, 2) | LEFT(x, -1) | LEFT(x, 0) | RIGHT(x, 2) | RIGHT(x, -1) | RIGHT(x, 0) | REPLACE(x, y, '-') | REPLACE(x, 'x', '')
SPLIT_PART(x, y, 1) | SPLIT_PART(x, 'x', 2) | SPLIT_PART(x, 'y', -1) | SPLIT_PART(x, 'y', 9) | STARTS_WITH(x, y) | STARTS_WITH(x, 'a')
EXTRACT(YEAR FROM ts) | EXTRACT(QUARTER FROM ts) | EXTRACT(MONTH FROM ts) | EXTRACT(WEEK FROM ts) | EXTRACT(DAY FROM ts) | EXTRACT(DOY FROM ts)
EXTRACT(DOW FROM ts) | EXTRACT(HOUR FROM ts) | EXTRACT(MINUTE FROM ts) | EXTRACT(SECOND FROM ts) | EXTRACT(EPOCH FROM ts) | EXTRACT(DOW FROM dt)
EXTRACT(WEEK FROM dt) | EXTRACT(EPOCH FROM dt) | EXTRACT(YEAR FROM dt)
DATE_TRUNC('microsecond', ts) | DATE_TRUNC('millisecond', ts) | DATE_TRUNC('second', ts) | DATE_TRUNC('minute', ts) | DATE_TRUNC('hour', ts)
DATE_TRUNC('day', ts) | DATE_TRUNC('week', ts) | DATE_TRUNC('month', ts) | DATE_TRUNC('quarter', ts) | DATE_TRUNC('year', ts) | DATE_TRUNC('month', CAST(dt AS timestamp)) | DATE_TRUNC('days', ts)
CASE WHEN ts BETWEEN '1950-01-01' AND '2030-01-01' THEN CAST(DATE_TRUNC('day', ts, 'Europe/Berlin') AS timestamp) END | CASE WHEN ts BETWEEN '1950-01-01' AND '2030-01-01' THEN CAST(DATE_TRUNC('month', ts, 'America/New_York') AS timestamp) END
CAST(TO_TIMESTAMP(TO_CHAR(ts, 'YYYY-MM-DD HH24:MI'), 'YYYY-MM-DD HH24:MI') AS timestamp) | CAST(TO_TIMESTAMP(TO_CHAR(ts, 'DD Mon YYYY'), 'DD Mon YYYY') AS date)
DATE_TRUNC('decade', ts) | DATE_TRUNC('century', ts) | DATE_TRUNC('millennium', ts) | DATE_TRUNC('hours', CAST(dt AS timestamp))
dt + 1 | dt - 3 | dt - DATE '2024-02-29' | ts - tt | ts + INTERVAL '1' DAY | ts - INTERVAL '90' MINUTE | ts < tt | ts > dt | dt = DATE '1970-01-01'
ts >= '2024-02-29 12:30:45.123456' | dt < '2024-02-29' | DATE '2024-02-29' + INTERVAL '12' HOUR
CAST(i AS float) | CAST(d AS int) | CAST(e AS int) | CASE WHEN ABS(f) < 1000000 THEN CAST(f AS decimal(10, 2)) END | CAST(d AS decimal(12, 1)) | CAST(e AS decimal(5, 2)) | CAST(d AS float)
CASE WHEN ABS(f) < 1000000 THEN CAST(f AS int) END | CASE WHEN ABS(g) < 1000000 THEN CAST(g * 2.5 AS int) END | CAST(i % 100 AS decimal(5, 2)) | CAST(x AS int) | CAST(x AS float) | CAST(x AS decimal(5, 1)) | CAST(x AS bool)
CAST(i AS string) | CAST(d AS string) | CAST(f AS string) | CAST(g AS string) | CAST(b AS string) | CAST(ts AS string) | CAST(dt AS string) | CAST(by AS string)
CAST(ts AS date) | CAST(dt AS timestamp) | CAST(d / 3 AS decimal(12, 4)) | CASE WHEN ABS(f) < 1000000 THEN CAST(f AS decimal(38, 10)) END | d / 3 | d / e | i / 3.0
CASE WHEN b THEN i WHEN c THEN j END | CASE i WHEN 7 THEN 'seven' WHEN j THEN 'same' ELSE x END | CASE WHEN i > 3 THEN d ELSE f END | CASE WHEN b THEN 1 ELSE 2.5 END
i BETWEEN j AND 7 | i NOT BETWEEN 1 AND j | x BETWEEN 'a' AND y | d BETWEEN 0 AND 3 | f NOT BETWEEN g AND 10
i IN (7, 3, NULL) | i NOT IN (7, 3) | x IN ('abc', y) | d IN (2.5, 1) | NOT (b IN (TRUE, NULL)) | f IN (i, 2.5)
"""

QUERIES = """
SELECT DISTINCT b, c FROM S
SELECT DISTINCT d FROM (SELECT d FROM S UNION ALL SELECT d FROM R)
SELECT i FROM S UNION SELECT d FROM R
SELECT x, i FROM R UNION ALL (SELECT x, i FROM S ORDER BY i DESC LIMIT 3)
SELECT x FROM S ORDER BY x LIMIT 4
SELECT t, x FROM S ORDER BY b DESC, f LIMIT 5
SELECT b, SUM(i) AS si, SUM(d) AS sd, SUM(f) AS sf, SUM(e) AS se FROM S GROUP BY b
SELECT b, AVG(i) AS ai, AVG(d) AS ad, AVG(e) AS ae, AVG(j) AS aj FROM S GROUP BY b
SELECT b, MIN(x) AS lx, MAX(x) AS hx, MIN(d) AS ld, MAX(f) AS hf, MIN(ts) AS lt, MAX(dt) AS hd FROM S GROUP BY b
SELECT c, COUNT(x) AS nx, COUNT(DISTINCT j) AS dj, COUNT(DISTINCT d) AS dd, COUNT(DISTINCT b) AS db FROM S GROUP BY c
SELECT SUM(i) AS si, AVG(f) AS af, MIN(x) AS lx, COUNT(*) AS n, COUNT(i) AS ni FROM S WHERE i > 100 AND i < 1000
SELECT SUM(i) AS s, MIN(i) AS l FROM R WHERE x = 'none' HAVING COUNT(*) = 0
SELECT b, COUNT(*) AS n FROM S GROUP BY b HAVING SUM(j) > 0
SELECT d > 1 AS big, COUNT(*) AS n FROM S GROUP BY d > 1
SELECT i % 2 AS odd, MAX(j) - MIN(j) AS spread FROM S GROUP BY i % 2 HAVING MAX(j) IS NOT NULL
SELECT x, (SELECT SUM(i) FROM R WHERE R.x = S.x) AS s, (SELECT AVG(i) FROM R) AS a, (SELECT MIN(d) FROM R WHERE R.i = S.i) AS m FROM S
SELECT b, COUNT(*) AS n, (SELECT COUNT(*) FROM R WHERE R.b = S.b) AS m FROM S GROUP BY b
SELECT x, COUNT(*) AS n FROM S GROUP BY x HAVING COUNT(*) < (SELECT COUNT(*) FROM R WHERE R.x = S.x)
SELECT x, COUNT(*) AS n FROM R GROUP BY x HAVING (SELECT SUM(j) FROM S WHERE S.x = R.x) > 0
SELECT S.x, R.i FROM S JOIN R ON S.i = R.i AND S.b
SELECT S.x, R.i FROM S LEFT JOIN R ON S.d = R.d
SELECT S.x, R.x AS rx FROM S FULL JOIN R ON S.x = R.x AND S.f = R.f
SELECT S.x, R.x AS rx FROM S LEFT JOIN R ON S.i = R.i AND R.b WHERE R.i IS NULL
SELECT S.x, R.x AS rx FROM S RIGHT JOIN R ON S.i < R.i AND S.i > 0
SELECT x FROM S WHERE i IN (SELECT d FROM R) OR f IN (SELECT f FROM R)
SELECT x FROM S WHERE i NOT IN (SELECT i FROM R WHERE i IS NOT NULL)
SELECT x FROM S WHERE EXISTS (SELECT 1 FROM R WHERE R.i = S.i AND (R.b OR S.b))
SELECT x FROM S WHERE NOT EXISTS (SELECT 1 FROM R WHERE R.i > S.i)
SELECT x FROM S WHERE d > (SELECT AVG(d) FROM R)
SELECT n, COUNT(*) AS m FROM (SELECT b, COUNT(*) AS n FROM S GROUP BY b) AS q GROUP BY n
SELECT q.n, x FROM (SELECT b, COUNT(*) AS n FROM S GROUP BY b HAVING COUNT(*) > 1) AS q JOIN R ON q.b = R.b
SELECT t, SUM(j) OVER (PARTITION BY b ORDER BY t) AS s, COUNT(j) OVER (ORDER BY t) AS n, MIN(x) OVER (ORDER BY t) AS l FROM S
SELECT t, MAX(d) OVER (ORDER BY t RANGE INTERVAL '3' TICK PRECEDING) AS h, AVG(j) OVER (ORDER BY t RANGE INTERVAL '2' TICK PRECEDING) AS a FROM S
WITH big AS (SELECT x, i FROM S WHERE i > 0), n AS (SELECT COUNT(*) AS n FROM big) SELECT x, n FROM big CROSS JOIN n
SELECT CASE WHEN SUM(j) > 3 THEN 'much' ELSE 'little' END AS v, b FROM S GROUP BY b
SELECT i / j AS q FROM S WHERE q > 1 OR q IS NULL
SELECT b, n, m, h FROM (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p JOIN (SELECT b, COUNT(*) AS m, MAX(i) AS h FROM R GROUP BY b) AS q USING (b)
SELECT b, n, m, h FROM (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p LEFT JOIN (SELECT b, COUNT(*) AS m, MAX(i) AS h FROM R GROUP BY b) AS q USING (b)
SELECT b, n, m, h FROM (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p RIGHT JOIN (SELECT b, COUNT(*) AS m, MAX(i) AS h FROM R GROUP BY b) AS q USING (b)
SELECT x, n FROM R JOIN (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p USING (b)
SELECT x, n FROM R LEFT JOIN (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p USING (b)
SELECT x, n FROM R RIGHT JOIN (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p USING (b)
SELECT x, n FROM R JOIN (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p ON R.b = p.b AND n > 0
SELECT x, n FROM R LEFT JOIN (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p ON R.b = p.b AND n > 0
SELECT x, n FROM (SELECT b, SUM(j) AS n FROM S GROUP BY b) AS p LEFT JOIN R USING (b)
SELECT x, n, m FROM R JOIN (SELECT b, i, SUM(j) AS n, COUNT(*) AS m FROM S GROUP BY b, i) AS p ON p.b = R.b
SELECT x, n, m FROM R JOIN (SELECT b, i, SUM(j) AS n, COUNT(*) AS m FROM S GROUP BY b, i) AS p ON p.b = R.b AND R.i = p.i
SELECT x, n FROM R, (SELECT b, i, SUM(j) AS n, COUNT(*) AS m FROM S GROUP BY b, i) AS p WHERE p.b = R.b AND R.i = p.i AND n = 0
SELECT x, n + 1 AS k FROM R JOIN (SELECT b AS z, COUNT(*) + 5 AS n FROM S GROUP BY b) AS p ON R.b = z
SELECT x, n + 1 AS k FROM R LEFT JOIN (SELECT b AS z, COUNT(*) + 5 AS n FROM S GROUP BY b) AS p ON R.b = z
SELECT x, n + 1 AS k FROM R FULL JOIN (SELECT b AS z, COUNT(*) + 5 AS n FROM S GROUP BY b) AS p ON R.b = z
""".strip().splitlines()  # fmt: skip


def programs() -> dict[str, str]:
    shown = [v.strip() for line in VALUES.strip().splitlines() for v in line.split(" | ")]
    return {
        "plain_sql: values": _program([f"SELECT t, {value} AS v FROM S" for value in shown]),
        "plain_sql: queries": _program(QUERIES),
    }


def _program(queries: list[str]) -> str:
    return STREAMS + "".join(f"CREATE VIEW v{n} AS {query};\n" for n, query in enumerate(queries))
