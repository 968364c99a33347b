"""Valid SmileSQL programs: that of the paper, the worked examples, and one that uses the whole language."""

FIG_2 = """
CREATE STREAM BuyBids (buyid: time ->
issue: string, price: centspersshare, #bid: shares);

CREATE STREAM SellBids (sellid: time ->
issue: string, price: centspersshare, #bid: shares);

CREATE STREAM Matches (t: time ->
buyid: time, sellid: time, #traded: shares);

CREATE VIEW BuySatisfied (SELECT buyid,
SUM(#traded) AS total
FROM Matches GROUP BY buyid);

CREATE VIEW SellSatisfied (SELECT sellid,
SUM(#traded) AS total
FROM Matches GROUP BY sellid);

CREATE VIEW RemainingBuy (SELECT buyid,
issue, price, (#bid - total) as buyremaining
FROM BuyBids JOIN BuySatisfied USING(buyid)
WHERE buyremaining > 0);

CREATE VIEW RemainingSell (SELECT sellid,
issue, price, (#bid - total) as sellremaining
FROM SellBids JOIN SellSatisfied
USING(sellid) WHERE sellremaining > 0);

CREATE VIEW Matchable (SELECT * FROM
RemainingBuy JOIN RemainingSell USING(issue,
price));

subscriptions RemainingBuy, RemainingSell,
Matchable;
"""

EXAMPLES = {
    "absence": """
CREATE STREAM Beats (t: time -> host: string);
CREATE VIEW Silent AS SELECT t, host FROM Beats WHERE SILENCE(t) > INTERVAL '3' MINUTE;
SUBSCRIBE Silent;
""",
    "best-laps": """
CREATE STREAM Laps (t: time -> track: string, driver: string, ms: int);
CREATE VIEW Podium AS SELECT t, track, driver, ms FROM Laps BEST 2 BY ms PER track;
SUBSCRIBE Podium;
""",
    "cheapest-flights": """
CREATE DOMAIN seats AS int CHECK (VALUE BETWEEN 0 AND 1000);
CREATE STREAM Flights (t: time -> flight: string, dest: string, price: int, capacity: seats);
CREATE STREAM Booked (b: time -> flight: string, n: seats);
CREATE VIEW Sold AS SELECT flight, SUM(n) AS sold FROM Booked GROUP BY flight;
CREATE VIEW Available AS SELECT t, flight, dest, price, capacity - sold AS unsold
  FROM Flights JOIN Sold USING (flight) WHERE unsold >= 5;
CREATE VIEW Cheapest AS SELECT t, flight, price, unsold FROM Available
  WHERE dest = 'LHR' ORDER BY price LIMIT 3;
SUBSCRIBE Cheapest;
""",
    "hourly-prices": """
CREATE STREAM Quotes (t: time -> issue: string, price: int, volume: int);
CREATE VIEW Hourly AS
  SELECT window_start, issue, MAX(price) AS high, MIN(price) AS low, LATEST(price) AS cur
  FROM TUMBLE(Quotes, t, INTERVAL '1' HOUR) GROUP BY window_start, issue;
SUBSCRIBE Hourly;
""",
    "tradefloor": FIG_2,
    "unpaid-orders": """
CREATE STREAM Orders (o: time -> customer: string);
CREATE STREAM Payments (p: time -> orderid: time, amount: int);
CREATE VIEW Unpaid AS SELECT o, customer FROM Orders
  WHERE NOT EXISTS (SELECT * FROM Payments WHERE orderid = o);
CREATE VIEW Late AS SELECT o, customer FROM Orders
  WHERE NOT EXISTS (SELECT * FROM Payments WHERE orderid = o AND p <= o + INTERVAL '10' MINUTE);
subscriptions Unpaid, Late;
""",
}

# Text, and its canonical form.
STATEMENTS = [
    (
        "create republisher r as select * from s where from = 'a' with (history = interval '1' hour)",
        "CREATE REPUBLISHER r AS SELECT * FROM s WHERE from = 'a' WITH (HISTORY = INTERVAL '1' HOUR)",
    ),
    (
        "create domain shares as int check (value between 0 and 1000000) not null",
        "CREATE DOMAIN shares AS int NOT NULL CHECK (value BETWEEN 0 AND 1000000)",
    ),
    (
        "advertise n (t: time, from: string -> x: int) where from = 'a' as S",
        "ADVERTISE n (t: time, from: string -> x: int) WHERE from = 'a' AS S",
    ),
    ("import V from b", "IMPORT V FROM b"),
    (
        "create table t (k string primary key, n int check (n > 0), check (n < 9)) with (ticks = publisher)",
        "CREATE TABLE t (k string, n int CHECK (n > 0), PRIMARY KEY (k), CHECK (n < 9)) WITH (TICKS = PUBLISHER)",
    ),
    (
        "CREATE TABLE t (k string, n int, primary key (k, n)) STATIC as values ('a', -1), ('b', NULL)",
        "CREATE TABLE t (k string, n int, PRIMARY KEY (k, n)) STATIC AS VALUES ('a', -1), ('b', NULL)",
    ),
    ('IMPORT "a b" FROM b where (x = 1 or y in (2, 3)) as W', 'IMPORT "a b" FROM b WHERE (x = 1 OR y IN (2, 3)) AS W'),
    ("IMPORT V FROM b WHERE CAST(x AS int) > 1", "IMPORT V FROM b WHERE CAST(x AS int) > 1"),
    ("IMPORT S FROM a , b,c AS T", "IMPORT S FROM a, b, c AS T"),
    (
        "CREATE STREAM s (t TIME KEY) WITH (home = b, origins = many)",
        "CREATE STREAM s (t TIME TIME KEY) WITH (ORIGINS = MANY, HOME = b)",
    ),
    (
        "CREATE STREAM s (t TIME KEY, change string) WITH (changes = table, TICKS = PUBLISHER)",
        "CREATE STREAM s (t TIME TIME KEY, change string) WITH (TICKS = PUBLISHER, CHANGES = TABLE)",
    ),
    ("CREATE STREAM s (t TIME KEY) WITH (CHANGES = none)", "CREATE STREAM s (t TIME TIME KEY)"),
    ("CREATE DOMAIN d AS decimal(10 , 2)", "CREATE DOMAIN d AS decimal(10, 2)"),
    (
        "CREATE STREAM s (t: time -> a: string, b: shares NOT NULL, CHECK (b > 0)) WITH (TICKS = PUBLISHER)",
        "CREATE STREAM s (t time TIME KEY, a string, b shares NOT NULL, CHECK (b > 0)) WITH (TICKS = PUBLISHER)",
    ),
    ("CREATE STREAM s (t TIME KEY) WITH (origins = many)", "CREATE STREAM s (t TIME TIME KEY) WITH (ORIGINS = MANY)"),
    ("CREATE STREAM s (t TIME KEY) WITH (ORIGINS = one, TICKS = broker)", "CREATE STREAM s (t TIME TIME KEY)"),
    (
        "CREATE STREAM s (t TIME KEY) WITH (ORIGINS = MANY, TICKS = PUBLISHER)",
        "CREATE STREAM s (t TIME TIME KEY) WITH (TICKS = PUBLISHER, ORIGINS = MANY)",
    ),
    (
        (
            "CREATE STREAM s (t TIME KEY, a string NOT NULL, b decimal(10,2) CHECK (b > 0) CHECK (b < 9), "
            "CHECK (ts BETWEEN t - INTERVAL '5' MINUTE AND t)) WITH (ticks = broker)"
        ),
        (
            "CREATE STREAM s (t TIME TIME KEY, a string NOT NULL, b decimal(10, 2) CHECK (b > 0) CHECK (b < 9), "
            "CHECK (ts BETWEEN t - INTERVAL '5' MINUTE AND t))"
        ),
    ),
    (
        'CREATE STREAM "S s" (a double precision, t "My tick" NOT NULL TIME KEY, z timestamp with time zone)',
        'CREATE STREAM "S s" (t "My tick" TIME KEY NOT NULL, a double precision, z timestamp with time zone)',
    ),
    ("CREATE STREAM s (t time TIME KEY)", "CREATE STREAM s (t time TIME KEY)"),
    ('CREATE VIEW v (a, "B") AS SELECT * FROM s', 'CREATE VIEW v (a, "B") AS SELECT * FROM s'),
    ("CREATE VIEW v AS (SELECT a FROM s)", "CREATE VIEW v AS SELECT a FROM s"),
    ("CREATE VIEW v (((SELECT a FROM s)))", "CREATE VIEW v AS SELECT a FROM s"),
    (
        "CREATE VIEW v ((SELECT a FROM s) UNION ALL (SELECT a FROM u LIMIT 3))",
        "CREATE VIEW v AS (SELECT a FROM s) UNION ALL (SELECT a FROM u LIMIT 3)",
    ),
    ("SUBSCRIBE v, w", "SUBSCRIBE v, w"),
    ('subscriptions v, "V 2"', 'SUBSCRIBE v, "V 2"'),
]

# Queries whose canonical form is what they are, but for `CREATE VIEW v AS`.
QUERIES = [
    "SELECT * FROM s",
    "SELECT s.*, s.a AS b FROM s",
    "SELECT DISTINCT a FROM s",
    "SELECT größe, 株, #bid, a$b FROM straße",
    'SELECT "A b"."c""d" FROM "A b"',
    "SELECT a FROM s AS x WHERE x.a > 1 AND NOT (b = 'it''s' OR c <> 1.5e3)",
    "SELECT -a, a - -1, a + b * c % d / e, (a + b) * c, a || 'x' FROM s",
    "SELECT TRUE, FALSE, NULL, x'00ff', 0, .5, 1., 1e10 FROM s",
    "SELECT CASE WHEN a > 1 THEN 'x' WHEN b THEN 'y' ELSE 'z' END AS k, CASE a WHEN 1 THEN 2 END FROM s",
    "SELECT CAST(a AS decimal(10, 2)), CAST(b + 1 AS int)::shares, CAST('2020-01-01' AS date) FROM s",
    "SELECT COALESCE(a, b), ABS(a), LEFT(a, 2), EXTRACT(YEAR FROM d), SUBSTRING(a, 2, 3), STRPOS(a, 'x') FROM s",
    "SELECT INTERVAL '1' HOUR, INTERVAL '90 minutes', t + INTERVAL '1.5' SECONDS FROM s",
    "SELECT a FROM s WHERE b BETWEEN 1 AND 2 AND c NOT BETWEEN 1 AND 2",
    "SELECT a FROM s WHERE b IN (1, 2) AND c NOT IN (SELECT d FROM u)",
    "SELECT a FROM s WHERE b LIKE 'x%' AND c NOT LIKE 'a!%' ESCAPE '!' AND d ILIKE 'y'",
    "SELECT a FROM s WHERE b IS NULL AND c IS NOT NULL AND d IS TRUE AND g IS NOT FALSE AND e IS DISTINCT FROM f",
    "SELECT a FROM s WHERE e IS NOT DISTINCT FROM f",
    "SELECT a FROM s WHERE EXISTS(SELECT * FROM u WHERE u.a = s.a)",
    "SELECT a, (SELECT MAX(b) FROM u) AS m FROM s",
    "SELECT * FROM a JOIN b USING (x, y) LEFT JOIN c ON a.x = c.x RIGHT JOIN d USING (x) FULL OUTER JOIN e USING (x)",
    "SELECT * FROM a CROSS JOIN b, c INNER JOIN d ON TRUE",
    "SELECT * FROM a ASOF JOIN b ON a.x = b.x AND a.t >= b.t ASOF LEFT JOIN c ON a.t >= c.t",
    "SELECT a FROM (SELECT a FROM s WHERE b > 1) AS x",
    "WITH x AS (SELECT a FROM s), y(b, c) AS (SELECT a, d FROM x) SELECT b FROM y",
    "SELECT a, SUM(b) AS s, COUNT(*), COUNT(DISTINCT c), MIN(b), MAX(b), AVG(b), LATEST(b) FROM s GROUP BY a",
    "SELECT a, GROUP(b, c) AS nested FROM s GROUP BY a HAVING COUNT(*) > 3",
    "SELECT a FROM s UNION ALL SELECT b FROM u UNION SELECT c FROM w ORDER BY a LIMIT 10",
    "SELECT a FROM s ORDER BY b DESC, c ASC, d LIMIT 3",
    "SELECT a FROM s BEST 1 BY b",
    "SELECT a FROM s AS x WHERE b BEST 2 BY ms DESC, b + c PER track, x.c",
    "SELECT a FROM s GROUP BY a HAVING TRUE BEST 2 BY SUM(b)",
    "SELECT a FROM s BEST 1 BY b UNION ALL SELECT a FROM u BEST 1 BY c PER d",
    "SELECT a FROM TUMBLE(s, t, INTERVAL '1' HOUR) AS w BEST 2 BY a",
    "SELECT a FROM HOP(s, t, INTERVAL '1' HOUR, INTERVAL '2' HOUR) GROUP BY window_start",
    "SELECT a FROM LAST(s, t, INTERVAL '1' HOUR) AS l JOIN MERGE(a, b) AS m USING (t)",
    "SELECT a FROM MERGE(a, (SELECT x FROM b WHERE c > 1), LAST(q, t, INTERVAL '1' DAY))",
    "SELECT SUM(a) OVER (PARTITION BY b, c ORDER BY t RANGE INTERVAL '1' HOUR PRECEDING) AS x FROM s",
    "SELECT COUNT(*) OVER (ORDER BY t RANGE UNBOUNDED PRECEDING) FROM s",
    "SELECT a FROM s WHERE SILENCE(t PER c, d) > INTERVAL '3' MINUTE",
    "SELECT a FROM s EXCEPT (SELECT a FROM u INTERSECT SELECT a FROM w)",
    "SELECT a, COUNT(*) FROM s GROUP BY GROUPING SETS ((a, b), (a), ())",
    "SELECT a, COUNT(*) FROM s GROUP BY a, ROLLUP (b, c)",
    "SELECT a, COUNT(*) FROM s GROUP BY CUBE (b, c)",
    "SELECT * EXCEPT (a, b), s.* EXCEPT (a) FROM s NATURAL JOIN u",
    "SELECT a FROM s WHERE (a, b) IN ((1, 2), (3, 4)) AND (c, d) <> (1, 2) AND (a, b) IN (SELECT c, d FROM u)",
    "SELECT ROW_NUMBER() OVER (PARTITION BY b ORDER BY c) AS n FROM s QUALIFY n = 1 BEST 2 BY a",
    "SELECT BOOL_AND(a), BOOL_OR(a), STDDEV_SAMP(b), VAR_POP(b), ARG_MAX(a, b), ARG_MIN(a, b) FROM s",
    "SELECT a[1], ARRAY['a', b][2], CAST(a AS int[]), (a)[1] + 1, F(a)[1], ARRAY[] FROM s",
    "SELECT a FROM s WHERE b = ANY(c) AND b <> ALL(ARRAY[1, 2])",
    "SELECT x FROM s, UNNEST(a) AS u(x), UNNEST(b) CROSS JOIN UNNEST(c) WITH ORDINALITY AS v(y, n)",
    "SELECT x FROM s LEFT JOIN UNNEST(ARRAY[1, 2]) AS x ON TRUE",
    "SELECT ARRAY_AGG(a), ARRAY_AGG(DISTINCT a ORDER BY a DESC), ARRAY_AGG(a ORDER BY b, c DESC) FILTER(WHERE a > 1) FROM s",
    "SELECT STRING_AGG(a, ','), STRING_AGG(DISTINCT a, '' ORDER BY a DESC), STRING_AGG(a, ', ' ORDER BY b, c DESC) FROM s",
    "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a), PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY a + b DESC) FROM s",
    "SELECT a FROM s WHERE t > NOW() - INTERVAL '1' HOUR BEST 3 BY b PER c + 1",
    # words that are names where nothing asks for them
    "SELECT time, date, timestamp, value, values, best, per, last, merge, tumble, key, range, rows, filter FROM stream",
]

# Other spellings, and the canonical query they are.
SPELLINGS = [
    ("SELECT a b FROM s x", "SELECT a AS b FROM s AS x"),
    ("SELECT ALL a FROM s", "SELECT a FROM s"),
    ("SELECT a::int, DATE '2020-01-01' FROM s", "SELECT CAST(a AS int), CAST('2020-01-01' AS DATE) FROM s"),
    (
        "SELECT substring(a FROM 2 FOR 3), substring(a for 3) FROM s",
        "SELECT SUBSTRING(a, 2, 3), SUBSTRING(a, 1, 3) FROM s",
    ),
    (
        "SELECT TRIM(a), TRIM(LEADING 'x' FROM a), TRIM(TRAILING FROM a) FROM s",
        "SELECT BTRIM(a), LTRIM(a, 'x'), RTRIM(a) FROM s",
    ),
    ("SELECT POSITION('x' IN a) FROM s", "SELECT STRPOS(a, 'x') FROM s"),
    (
        "SELECT a FROM s WHERE b != 1 AND c ISNULL AND d NOTNULL",
        "SELECT a FROM s WHERE b <> 1 AND c IS NULL AND d IS NOT NULL",
    ),
    ("SELECT a FROM s WHERE NOT b IN (1)", "SELECT a FROM s WHERE b NOT IN (1)"),
    ("SELECT +a FROM s", "SELECT a FROM s"),
    ("SELECT INTERVAL 5 minute FROM s", "SELECT INTERVAL '5' MINUTE FROM s"),
    (
        "SELECT a FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' HOUR)) w",
        "SELECT a FROM TUMBLE(s, t, INTERVAL '1' HOUR) AS w",
    ),
    (
        "SELECT a FROM TABLE(HOP(TABLE s, DESCRIPTOR(t), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
        "SELECT a FROM HOP(s, t, INTERVAL '1' HOUR, INTERVAL '2' HOUR)",
    ),
    (
        "SELECT SUM(a) OVER (ORDER BY t RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) FROM s",
        "SELECT SUM(a) OVER (ORDER BY t RANGE INTERVAL '1' HOUR PRECEDING) FROM s",
    ),
    ("SELECT IF(a, b, c), TRY_CAST(a AS int) FROM s", "SELECT CASE WHEN a THEN b ELSE c END, CAST(a AS int) FROM s"),
    (
        "SELECT COUNT(*) FILTER (WHERE a), SUM(b) FILTER (WHERE a), COUNT(DISTINCT b) FILTER (WHERE a) FROM s",
        (
            "SELECT COUNT(CASE WHEN a THEN 1 END), SUM(CASE WHEN a THEN b END), COUNT(DISTINCT CASE WHEN a THEN b END)"
            " FROM s"
        ),
    ),
    (
        "SELECT a FROM s WHERE a ~ 'x' AND a !~ 'x' AND a ~* 'x' AND a !~* 'x'",
        (
            "SELECT a FROM s WHERE REGEXP_LIKE(a, 'x') AND NOT REGEXP_LIKE(a, 'x') AND REGEXP_LIKE(a, 'x', 'i') AND "
            "NOT REGEXP_LIKE(a, 'x', 'i')"
        ),
    ),
    ("SELECT DISTINCT ON (a, b) a, c FROM s ORDER BY a, b, c DESC", "SELECT a, c FROM s BEST 1 BY c DESC PER a, b"),
    ("SELECT DISTINCT ON (a) a FROM s", "SELECT a FROM s BEST 1 BY a PER a"),
    (
        "SELECT a FROM s ORDER BY a NULLS FIRST, b DESC NULLS LAST, c NULLS LAST LIMIT 3",
        "SELECT a FROM s ORDER BY a IS NULL DESC, a, b IS NULL, b DESC, c LIMIT 3",
    ),
    (
        "SELECT MEDIAN(a), QUANTILE(a, 0.9), PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY a NULLS FIRST) FILTER (WHERE b) FROM s",
        "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a), PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY a), "
        "PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY CASE WHEN b THEN a END) FROM s",
    ),
    (
        "SELECT LISTAGG(a), LISTAGG(a, ';') WITHIN GROUP (ORDER BY b DESC), GROUP_CONCAT(a ORDER BY b) FROM s",
        "SELECT STRING_AGG(a, ''), STRING_AGG(a, ';' ORDER BY b DESC), STRING_AGG(a, ',' ORDER BY b) FROM s",
    ),
    (
        "SELECT MIN(DISTINCT a), BOOL_OR(DISTINCT b), SUM(DISTINCT a), COUNT(DISTINCT a, b), COUNT(DISTINCT (a, b)) FROM s",
        "SELECT MIN(a), BOOL_OR(b), SUM(DISTINCT a), COUNT(DISTINCT a, b), COUNT(DISTINCT (a, b)) FROM s",
    ),
    (
        "SELECT SUM(a) OVER w, COUNT(*) OVER W FROM s WINDOW w AS (PARTITION BY b ORDER BY t ROWS 2 PRECEDING)",
        "SELECT SUM(a) OVER (PARTITION BY b ORDER BY t ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), "
        "COUNT(*) OVER (PARTITION BY b ORDER BY t ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM s",
    ),
    ("SELECT -a ^ 2 ^ b * 3 FROM s", "SELECT POWER(POWER(-a, 2), b) * 3 FROM s"),
    ("SELECT DATE_PART('hour', t), SAFE_CAST(a AS int) FROM s", "SELECT EXTRACT(HOUR FROM t), CAST(a AS int) FROM s"),
    (
        "SELECT a IN (VALUES (1), (2)), (a, b) IN (VALUES (1, 2), (3, 4)) FROM s",
        "SELECT a IN (1, 2), (a, b) IN ((1, 2), (3, 4)) FROM s",
    ),
    ("SELECT EVERY(a), STDDEV(b), MAX_BY(a, b) FROM s", "SELECT BOOL_AND(a), STDDEV_SAMP(b), ARG_MAX(a, b) FROM s"),
    ("SELECT a FROM s WHERE t > CURRENT_TIMESTAMP", "SELECT a FROM s WHERE t > NOW()"),
    (
        "SELECT a FROM s EXCEPT SELECT a FROM u INTERSECT SELECT a FROM w",
        "SELECT a FROM s EXCEPT (SELECT a FROM u INTERSECT SELECT a FROM w)",
    ),
    ("SELECT * EXCLUDE (a) FROM s", "SELECT * EXCEPT (a) FROM s"),
    ("SELECT a /* x /* y */ ; */ FROM s -- z ; '", "SELECT a FROM s"),
    ("SELECT a FROM s GROUP /* x */ BY a", "SELECT a FROM s GROUP BY a"),
    ("select\u00a0a\tfrom\r\ns", "SELECT a FROM s"),
]
