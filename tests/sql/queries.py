"""Random queries as people write them for PostgreSQL, over small tables. Those that order or number rows do it by the
tick in the end, so that each has one result.

Three tables: `a (t, x, y, n, m, f, d, s)`, `b (t, x, z, n, m, g)` and `c (u, y, z, n, m, s)`; t and u are keys, x, y and z texts, n
and m whole numbers, f a float, d a decimal, g a Boolean, s a timestamp. All but the keys can be NULL. In SmileSQL these are streams. `p (x, z, n, m)` has the primary key
x, and is a table there too: its rows are inserted, updated and deleted. `d (t, j, n)` has the JSON j.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.sql import logic

TEXTS = ("a", "b", "ab")
COLUMNS = {
    "a": {
        "t": "tick",
        "x": "text",
        "y": "text",
        "n": "int",
        "m": "int",
        "f": "float",
        "d": "decimal",
        "s": "timestamp",
    },
    "b": {"t": "tick", "x": "text", "z": "text", "n": "int", "m": "int", "g": "bool"},
    "c": {"u": "tick", "y": "text", "z": "text", "n": "int", "m": "int", "s": "timestamp"},
}
JSON_COLUMNS = {"d": {"t": "tick", "j": "json", "n": "int"}}
KEYED_COLUMNS = {"p": {"x": "text", "z": "text", "n": "int", "m": "int"}}
TICKS = {"a": "t", "b": "t", "c": "u", "d": "t"}
DOCUMENTS = (
    '{"a": 1, "b": ["x", "ab", null], "c": {"a": 2.5}}', '{"b": ["a", {"a": "b"}], "a": "1"}', '{"a": "1", "b": ["a", {"a": "b"}]}',
    '{"a": null, "c": {"b": 12345678901234567890.25}}', '{"a": true, "1": "ab"}', '["a", 2, {"a": 1}]', '"a"', "7", "{}", "[]",
)  # fmt: skip
"""Without zeros at the end of fractions, which PostgreSQL keeps in the text of a number."""


@dataclass(frozen=True)
class Query:
    """`postgres`: the same in the SQL of PostgreSQL, if it is written differently there."""

    kind: str
    text: str
    postgres: str = ""


class Queries:
    """Draws queries of one kind after another."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.logic = logic.LogicQueries(random)

    def draw(self) -> Query:
        kind = self.random.choice((*_KINDS, *logic.KINDS, *logic.KINDS))
        drawn = _KINDS[kind](self) if kind in _KINDS else logic.KINDS[kind](self.logic)
        return Query(kind, *((drawn,) if isinstance(drawn, str) else drawn))

    # ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _of(self, table: str, *kinds: str) -> list[str]:
        columns = COLUMNS.get(table) or KEYED_COLUMNS[table]
        return [f"{table}.{c}" for c, kind in columns.items() if kind in kinds]

    def number(self, table: str) -> str:
        column = self.random.choice(self._of(table, "int"))
        constant = self.random.randint(0, 3)
        return self.random.choice(
            (
                column, column, f"{column} + {constant}", f"{column} * 2 - 1", f"ABS({column} - 2)",
                f"COALESCE({column}, {constant})", f"{column} % 2", f"NULLIF({column}, {constant})", f"-{column}",
                f"CASE WHEN {column} > {constant} THEN {column} ELSE 0 END", f"GREATEST({column}, {constant})",
                f"LENGTH({self.text(table)})",
            )
        )  # fmt: skip

    def text(self, table: str) -> str:
        column = self.random.choice(self._of(table, "text"))
        return self.random.choice(
            (
                column, column, column, f"UPPER({column})", f"{column} || '!'", f"COALESCE({column}, '-')",
                f"SUBSTRING({column} FROM 1 FOR 1)", f"LPAD({column}, 3, '*')", f"CONCAT_WS('-', {column}, 'z')",
                f"REPLACE({column}, 'a', 'c')", f"REVERSE({column})", f"REGEXP_REPLACE({column}, 'a+', '<\\&>')",
            )
        )  # fmt: skip

    def moment(self, table: str) -> str:
        column, unit = f"{table}.s", self.random.choice(_UNITS)
        return self.random.choice(
            (
                column, f"DATE_TRUNC('{unit}', {column})", f"DATE_TRUNC('{unit}', {column})", f"{column} + INTERVAL '90' MINUTE",
                f"{column} - INTERVAL '1 day'", f"CAST({column} AS date)", f"COALESCE({column}, TIMESTAMP '2024-02-29 12:30:00')",
                f"GREATEST({column}, TIMESTAMP '2024-01-01 00:00:00')", f"{column}::date + 3",
                f"CASE WHEN EXTRACT(HOUR FROM {column}) < 12 THEN {column} END",
            )
        )  # fmt: skip

    def of_moment(self, table: str) -> str:
        """A number, a text or a distance."""
        column = f"{table}.s"
        return self.random.choice(
            (
                f"EXTRACT({self.random.choice(_FIELDS)} FROM {column})", f"EXTRACT({self.random.choice(_FIELDS)} FROM {column})",
                f"TO_CHAR({column}, '{self.random.choice(_FORMATS)}')", f"{column}::text", f"{column}::date::text",
                f"{column}::date - DATE '2024-02-28'", f"{column} - TIMESTAMP '2024-02-28 06:00:00'", f"{column} - {column}::date",
            )
        )  # fmt: skip

    def moment_condition(self, table: str) -> str:
        column = f"{table}.s"
        return self.random.choice(
            (
                f"{column} >= TIMESTAMP '2024-02-29 00:00:00'", f"{column}::date = DATE '2024-02-29'",
                f"{column} BETWEEN '2023-12-31 00:00:00' AND TIMESTAMP '2024-02-29 23:00:00'",
                f"{column} - TIMESTAMP '2024-02-28 06:00:00' > INTERVAL '1' HOUR", f"EXTRACT(MONTH FROM {column}) IN (2, 12)",
                f"TO_CHAR({column}, 'HH24') > '11'", f"{column} + INTERVAL '1' DAY < '2024-03-01'", f"{column} IS NULL",
                f"DATE_TRUNC('month', {column}) = '2024-02-01'",
            )
        )  # fmt: skip

    def value(self, table: str) -> str:
        if self._of(table, "timestamp") and self.random.random() < 0.1:
            return self.moment(table)
        other = self._of(table, "float", "decimal", "bool")
        if other and self.random.random() < 0.2:
            return self.random.choice(other)
        return self.number(table) if self.random.random() < 0.5 else self.text(table)

    def condition(self, table: str, depth: int = 1) -> str:
        if depth and self.random.random() < 0.3:
            word = self.random.choice(("AND", "OR"))
            return f"({self.condition(table, depth - 1)} {word} {self.condition(table, depth - 1)})"
        number, text, constant = self.number(table), self.text(table), self.random.randint(0, 3)
        letter = self.random.choice(TEXTS)
        return self.random.choice(
            (
                f"{number} {self.random.choice(('<', '<=', '>', '>=', '=', '<>'))} {constant}",
                f"{text} = '{letter}'", f"{text} LIKE '{letter}%'", f"{text} ~ '^{letter}'", f"{text} !~* 'A$'",
                f"{number} BETWEEN {constant} AND 3", f"{number} IN (1, {constant})", f"{text} NOT IN ('{letter}', 'b')",
                f"{number} IS NULL", f"{text} IS NOT NULL", f"NOT {text} = '{letter}'",
                f"{number} IS DISTINCT FROM {constant}", f"{table}.{TICKS.get(table, 'n')} > {constant}",
                f"({text}, {number}) = ('{letter}', {constant})", f"({number}, {text}) < ({constant}, '{letter}')",
                f"({text}, {number}) >= ('{letter}', {constant})", f"{number} IN (VALUES (1), ({constant}))",
                f"{number} ^ 2 > {constant}",
            )
        )  # fmt: skip

    def _where(self, table: str, share: float = 0.5) -> str:
        return f" WHERE {self.condition(table)}" if self.random.random() < share else ""

    def _outputs(self, table: str, count: int | None = None) -> str:
        count = count or self.random.randint(1, 3)
        return ", ".join(f"{self.value(table)} AS v{i}" for i in range(1, count + 1))

    def _table(self) -> str:
        return self.random.choice(tuple(COLUMNS))

    def fraction(self) -> str:
        return self.random.choice(("0", "0.25", "0.5", "0.9", "1"))

    def aggregate(self, table: str) -> str:
        number, text = self.number(table), self.text(table)
        return self.random.choice(
            (
                "COUNT(*)", f"COUNT({number})", f"COUNT(DISTINCT {self.value(table)})", f"COALESCE(SUM({number}), 0)",
                f"COALESCE(SUM(DISTINCT {number}), 0)", f"AVG(DISTINCT {number})", f"COUNT(DISTINCT ({number}, {text}))",
                f"MIN({number})", f"MAX({number})", f"MIN({text})", f"MAX({text})", f"AVG({number})",
                f"BOOL_AND({number} > 1)", f"BOOL_OR({text} = 'a')", f"STDDEV({number})", f"VAR_POP({number})",
                f"PERCENTILE_DISC({self.fraction()}) WITHIN GROUP (ORDER BY {number})",
                f"PERCENTILE_CONT({self.fraction()}) WITHIN GROUP (ORDER BY {number} DESC)",
                f"STRING_AGG({text}, '-' ORDER BY {number} DESC, {text})",
                f"STRING_AGG(DISTINCT {text}, ',')",
                f"COUNT(*) FILTER (WHERE {self.condition(table, 0)})",
                f"MAX({number}) FILTER (WHERE {self.condition(table, 0)})",
                *(f"{f}({c})" for c in self._of(table, "float", "decimal") for f in ("MAX", "AVG", "VARIANCE")),
                *(f"{f}({c})" for c in self._of(table, "timestamp") for f in ("MIN", "MAX", "COUNT")),
            )
        )  # fmt: skip

    def json(self) -> str:
        """Of table d."""
        column = self.random.choice(("d.j", "d.j", "d.j -> 'b'", "d.j -> 'c'"))
        step = self.random.choice(("'a'", "'b'", "'c'", "'1'", "0", "-1", "2", "9"))
        path = self.random.choice(("{b,1,a}", "{c,a}", "{b,-1}", "{a}", "{2,a}", "{}", "{c}", "{b, x}"))
        return self.random.choice(
            (column, f"{column} -> {step}", f"{column} #> '{path}'", f"{column} -> 'b' -> {step}")
        )

    def json_text(self) -> str:
        value, step = self.json(), self.random.choice(("'a'", "'b'", "1", "0"))
        return self.random.choice(
            (
                f"({value})::text", f"({value}) ->> {step}", "d.j #>> '{b,0}'", f"JSONB_TYPEOF({value})",
                "TO_JSONB(d.n)::text", f"JSONB_BUILD_OBJECT('v', {value}, 'n', d.n)::text",
                f"JSONB_BUILD_ARRAY(d.n, {value}, NULL, 'x')::text", f"COALESCE(({value}) ->> {step}, '-') || '!'",
                f"CASE WHEN JSONB_TYPEOF({value}) = 'array' THEN JSONB_ARRAY_LENGTH({value}) END",
                f"CASE WHEN JSONB_TYPEOF({value}) = 'number' THEN ({value})::bigint END",
                f"CASE WHEN JSONB_TYPEOF({value}) = 'boolean' THEN ({value})::boolean END",
            )
        )  # fmt: skip

    def json_condition(self) -> str:
        value, word = self.json(), self.random.choice(("'a'", "'b'", "'ab'", "'1'"))
        return self.random.choice(
            (
                f"({value}) ? {word}", f"({value}) ->> 0 = {word}", "d.j ->> 'a' = '1'", f"({value}) IS NOT NULL",
                f"{value} = '{self.random.choice(DOCUMENTS)}'", f"{value} IS DISTINCT FROM d.j -> 'a'",
                f"{value} <> '\"a\"'", f"d.n > 1 AND NOT ({value}) ? {word}", f"{self.json_text()} IS NULL",
            )
        )  # fmt: skip

    # ── kinds of queries ────────────────────────────────────────────────────────────────────────────────────────────

    def select(self) -> str:
        table = self._table()
        distinct = self.random.choice(("", "", "DISTINCT "))
        return f"SELECT {distinct}{self._outputs(table)} FROM {table}{self._where(table, 0.7)}"

    def join(self) -> str:
        kind = self.random.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        left, right, column = self.random.choice((("a", "b", "x"), ("b", "c", "z"), ("a", "c", "y"), ("a", "b", "n")))
        on = self.random.choice((f"USING ({column})", f"ON {left}.{column} = {right}.{column}"))
        if on.startswith("ON") and self.random.random() < 0.4 and kind in ("JOIN", "LEFT JOIN"):
            on += f" AND {self.condition(right, 0)}"
        outputs = f"{self.value(left)} AS v1, {self.value(right)} AS v2"
        where = self._where(self.random.choice((left, right)), 0.3)
        return f"SELECT {outputs} FROM {left} {kind} {right} {on}{where}"

    def of_json(self) -> str:
        value, where = self.json(), f" WHERE {self.json_condition()}" if self.random.random() < 0.6 else ""
        return self.random.choice(
            (
                f"SELECT {self.json_text()} AS v1, {self.json_text()} AS v2 FROM d{where}",
                f"SELECT ({value})::text AS k, COUNT(*) AS n, MAX(({self.json_text()})::text) AS m FROM d{where} GROUP BY {value}",
                f"SELECT v::text AS v FROM (SELECT DISTINCT {value} AS v FROM d{where}) AS q",
                f"SELECT COUNT(DISTINCT {value}) AS n FROM d{where}",
                f"SELECT d.n AS n, e.n AS m, (d.j -> 'a')::text AS v FROM d JOIN d AS e ON {value} = e.j -> 'a'",
            )
        )

    def natural_or_cross_join(self) -> str:
        if self.random.random() < 0.5:
            kind = self.random.choice(("NATURAL JOIN", "NATURAL LEFT JOIN"))
            return f"SELECT * FROM (SELECT x, y, n FROM a) AS p {kind} (SELECT x, z FROM b) AS q"
        return f"SELECT {self.value('a')} AS v1, {self.value('c')} AS v2 FROM a, c WHERE a.n = c.n AND {self.condition('a')}"

    def group(self) -> str:
        table = self._table()
        key = self.random.choice((*self._of(table, "text", "int"), self.number(table)))
        having = f" HAVING COUNT(*) > {self.random.randint(0, 2)}" if self.random.random() < 0.3 else ""
        aggregates = ", ".join(f"{self.aggregate(table)} AS g{i}" for i in range(self.random.randint(1, 3)))
        return f"SELECT {key} AS k, {aggregates} FROM {table}{self._where(table, 0.3)} GROUP BY {key}{having}"

    def total(self) -> str:
        table = self._table()
        return f"SELECT {self.aggregate(table)} AS g1, {self.aggregate(table)} AS g2 FROM {table}{self._where(table)}"

    def group_of_join(self) -> str:
        kind = self.random.choice(("JOIN", "LEFT JOIN"))
        table = self.random.choice(("a", "b"))
        return f"SELECT b.x AS k, {self.aggregate(table)} AS g FROM b {kind} a ON a.x = b.x GROUP BY b.x"

    def nested_group(self) -> str:
        return (
            f"SELECT g, COUNT(*) AS m FROM (SELECT {self.text('a')} AS k, {self.aggregate('a')} AS g FROM a "
            f"GROUP BY 1) AS q WHERE g IS NOT NULL GROUP BY g"
        )

    def grouping_sets(self) -> str:
        sets = self.random.choice(
            ("ROLLUP (a.x, a.y)", "CUBE (a.x, a.n)", "GROUPING SETS ((a.x), (a.y, a.x), ())", "a.x, ROLLUP (a.y)")
        )
        key = self.random.choice(("a.x", "COALESCE(a.x, 'all')", "a.x || '!'"))
        having = self.random.choice(
            ("", " HAVING COUNT(*) > 1", " HAVING a.x IS NOT NULL", " HAVING GROUPING(a.x) = 0")
        )
        grouping = self.random.choice(("", ", GROUPING(a.x) AS i", ", 1 + GROUPING(a.x) * 2 AS i"))
        return (
            f"SELECT {key} AS k, {self.aggregate('a')} AS g, {self.aggregate('a')} AS h{grouping} "
            f"FROM a GROUP BY {sets}{having}"
        )

    def set_operation(self) -> str:
        operators = ("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL")
        parts = [f"SELECT {self.text(t)} AS v1, {self.number(t)} AS v2 FROM {t}{self._where(t)}" for t in "abc"]
        self.random.shuffle(parts)
        text = f"{parts[0]} {self.random.choice(operators)} {parts[1]}"
        return text if self.random.random() < 0.6 else f"{text} {self.random.choice(operators)} {parts[2]}"

    def subquery(self) -> str:
        inner = self.random.choice(("b.x = a.x", "b.n = a.n", "b.x = a.x AND b.n > a.n", "b.n < a.n"))
        word = self.random.choice(("", "NOT "))
        test = self.random.choice(
            (
                f"{word}EXISTS (SELECT 1 FROM b WHERE {inner})", f"a.x {word}IN (SELECT b.x FROM b{self._where('b')})",
                f"a.n {word}IN (SELECT b.n FROM b WHERE b.x = a.x)", f"a.n > (SELECT MIN(b.n) FROM b{self._where('b')})",
                "(a.x, a.n) IN (SELECT b.x, b.n FROM b)", "(a.n, a.x) < ANY (SELECT b.n, b.x FROM b)",
                "(a.n, a.x) <> ALL (SELECT b.n, b.x FROM b)", f"(a.n = 1 OR a.x {word}IN (SELECT b.x FROM b))",
            )
        )  # fmt: skip
        return f"SELECT {self._outputs('a')} FROM a WHERE {test}"

    def scalar_subquery(self) -> str:
        aggregate = self.random.choice(("COUNT(*)", "MAX(b.n)", "COUNT(b.n) + 1", "MIN(b.z)"))
        on = self.random.choice((" WHERE b.x = a.x", " WHERE b.x = a.x AND b.n = a.n", ""))
        return f"SELECT {self.value('a')} AS v1, (SELECT {aggregate} FROM b{on}) AS v2 FROM a{self._where('a', 0.3)}"

    def quantified(self) -> str:
        """ANY, ALL and lists with NULL on both sides, in WHERE and as values."""
        operator = self.random.choice(("=", "<>", "<", ">="))
        inner = self.random.choice((" WHERE b.x = a.x", " WHERE b.n <> a.n", self._where("b"), ""))
        test = self.random.choice(
            (
                f"a.n {operator} {self.random.choice(('ANY', 'ALL', 'SOME'))} (SELECT {self.number('b')} FROM b{inner})",
                f"(a.x, a.n) IN (SELECT b.x, {self.number('b')} FROM b{inner})",
                f"(a.n, a.y) NOT IN (SELECT b.n, b.z FROM b{inner})",
            )
        )  # fmt: skip
        negation = self.random.choice(("", "NOT "))
        if self.random.random() < 0.4:
            return f"SELECT a.n AS v1, {negation}({test}) AS v2 FROM a"
        return f"SELECT {self._outputs('a')} FROM a WHERE {negation}({test})"

    def lateral(self) -> str:
        on = self.random.choice(("b.x = a.x", "b.x = a.x AND b.n > a.n", "b.n = a.n AND b.t > 3"))
        if self.random.random() < 0.5:
            inner = f"SELECT {self.random.choice(('MAX(b.n)', 'COUNT(*)', 'COUNT(b.n) + 1'))} AS p, MIN(b.z) AS q FROM b WHERE b.x = a.x"
            join = f", LATERAL ({inner}) AS s"
        else:
            inner = f"SELECT {self.number('b')} AS p, b.z FROM b WHERE {on}"
            join = f" {self.random.choice(('JOIN', 'LEFT JOIN'))} LATERAL ({inner}) AS s (p, q) ON TRUE"
        return f"SELECT a.n, s.p, q FROM a{join}{self._where('a', 0.3)}"

    def ranking(self) -> str:
        table = self._table()
        tick, number = TICKS[table], self.random.choice(self._of(table, "int"))
        direction = self.random.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
        partition = f"PARTITION BY {self.text(table)} " if self.random.random() < 0.7 else ""
        function = self.random.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        if function != "ROW_NUMBER":
            direction = self.random.choice(("", " DESC", f", {self.text(table)}", f" DESC, {self.number(table)}"))
        order = number + direction + (f", {table}.{tick}" if function == "ROW_NUMBER" else "")
        inner = (
            f"SELECT {table}.*, {function}() OVER ({partition}ORDER BY {order}) AS r FROM {table}{self._where(table)}"
        )
        columns = self.random.choice((f"{tick}, n", "n", "COUNT(*) AS m", f"{tick}, r", "*", "r, COUNT(*) AS m"))
        k = self.random.randint(1, 3)
        group = " GROUP BY r" if columns.startswith("r,") else ""
        if self.random.random() < 0.3:
            return f"WITH q AS ({inner}) SELECT {columns} FROM q WHERE r <= {k}{group}"
        bounds = (
            f"r <= {k}",
            f"r < {k + 1}",
            f"q.r = {k}",
            f"r BETWEEN 2 AND {k + 1}",
            f"r IN (1, {k})",
            f"r <= {k} AND n > 1",
        )
        return f"SELECT {columns} FROM ({inner}) AS q WHERE {self.random.choice(bounds)}{group}"

    def distinct_on(self) -> str:
        table = self._table()
        key, tick = self.random.choice(self._of(table, "text", "int")), TICKS[table]
        direction = self.random.choice(("", " DESC"))
        order = f"ORDER BY {key}, {table}.{tick}{direction}"
        if self.random.random() < 0.3:
            key += f", {table}.y" if table == "a" else f", {table}.z"
            order = f"ORDER BY {key}, {table}.m NULLS FIRST, {table}.{tick}"
        return f"SELECT DISTINCT ON ({key}) {table}.n AS v1, {table}.m AS v2 FROM {table}{self._where(table)} {order}"

    def limit(self) -> str:
        table = self._table()
        number, tick = self.random.choice(self._of(table, "int")), TICKS[table]
        direction = self.random.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
        order = f"ORDER BY {number}{direction}, {table}.{tick} LIMIT {self.random.randint(1, 3)}"
        return f"SELECT {self._outputs(table)} FROM {table}{self._where(table, 0.3)} {order}"

    def running(self) -> str:
        aggregate = self.random.choice(
            (
                "COUNT(*)", "MAX(a.n)", "MIN(a.x)", "COUNT(a.n)", "AVG(a.n)", "FIRST_VALUE(a.n)", "LAST_VALUE(a.x)",
                "LAG(a.n)", "LAG(a.x, 1, 'none')", f"LAG({self.number('a')})",
            )
        )  # fmt: skip
        partition = self.random.choice(("", "PARTITION BY a.x ", f"PARTITION BY {self.number('a')} "))
        if self.random.random() < 0.3:
            window = f"OVER ({partition}ORDER BY a.t)"
            return f"SELECT a.t, a.n - LAG(a.n) {window} AS v, LAG(a.t) {window} AS w FROM a{self._where('a', 0.3)}"
        return f"SELECT a.t, {aggregate} OVER ({partition}ORDER BY a.t) AS w FROM a{self._where('a', 0.3)}"

    def frame(self) -> str:
        """Aggregates over numbers of rows before and after, and values of such rows."""
        partition = self.random.choice(("", "PARTITION BY a.x ", f"PARTITION BY {self.number('a')} "))
        number, distance = self.number("a"), self.random.randint(0, 3)
        if self.random.random() < 0.4:
            value, default = self.random.choice(((number, "7"), (self.text("a"), "'none'")))
            call = f"{self.random.choice(('LAG', 'LEAD', 'LEAD'))}({value}, {distance}, {default})"
            call = self.random.choice((call, f"LEAD({value})", f"LAG({value}, {distance})"))
            return f"SELECT a.t, {call} OVER ({partition}ORDER BY a.t) AS w FROM a{self._where('a', 0.3)}"
        aggregate = self.random.choice(
            (
                "COUNT(*)", f"SUM(COALESCE({number}, 0))", f"MAX({number})", f"MIN({self.text('a')})", "AVG(a.f)",
                f"FIRST_VALUE({number})", "LAST_VALUE(a.x)", "COUNT(a.n)", "BOOL_OR(a.n > 1)",
            )
        )  # fmt: skip
        first = self.random.randint(-3, 2)
        last = first + self.random.randint(0, 3)
        ends = [f"{abs(n)} {'PRECEDING' if n < 0 else 'FOLLOWING'}" if n else "CURRENT ROW" for n in (first, last)]
        frame = self.random.choice(
            (f"BETWEEN {ends[0]} AND {ends[1]}", f"{abs(first)} PRECEDING", "UNBOUNDED PRECEDING")
        )
        over = f"OVER ({partition}ORDER BY a.t ROWS {frame})"
        value = f"COALESCE({aggregate} {over}, 0)" if aggregate.startswith("SUM") else f"{aggregate} {over}"
        return f"SELECT a.t, {value} AS w FROM a{self._where('a', 0.3)}"

    def several_windows(self) -> str:
        """Two or three window functions in any order: earlier and later rows, frames, and all rows so far."""
        partitions = ("", "", "PARTITION BY a.x ", f"PARTITION BY {self.number('a')} ")
        functions = (
            "LAG(a.n)", "LAG(a.x)", "LAG(a.n, 2)", "LAG(a.x, 1, 'none')", "LEAD(a.n)", "LEAD(a.x, 2, 'none')", "LEAD(a.d)",
            "COUNT(*)", "MAX(a.n)", "FIRST_VALUE(a.x)",
        )  # fmt: skip
        frames = ("", "", " ROWS 2 PRECEDING", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING")
        windows: list[str] = []
        for function in self.random.sample(functions, self.random.randint(2, 3)):
            frame = "" if function.startswith(("LAG", "LEAD")) else self.random.choice(frames)
            windows.append(f"{function} OVER ({self.random.choice(partitions)}ORDER BY a.t{frame})")
        outputs = ", ".join(f"{window} AS w{i}" for i, window in enumerate(windows))
        named = ""
        if self.random.random() < 0.3:
            outputs += ", COUNT(a.n) OVER w AS v1, MAX(a.x) OVER w AS v2"
            named = f" WINDOW w AS ({self.random.choice(partitions)}ORDER BY a.t{self.random.choice(frames)})"
        return f"SELECT a.t, {outputs} FROM a{self._where('a', 0.3)}{named}"

    def session(self) -> tuple[str, str]:
        """PostgreSQL counts the rows that come after a gap."""
        gap, partition = self.random.randint(1, 3), self.random.choice((("x",), ("n",), ("x", "n"), ()))
        columns = ", ".join(partition)
        partition_by = f"PARTITION BY {columns} " if partition else ""
        written = f" PARTITION BY ({columns})" if len(partition) > 1 else f" {partition_by}".rstrip()
        outputs = ", ".join((*partition, "window_start", "window_end"))
        where = self._where("a", 0.3)
        before = f"SELECT *, LAG(t) OVER ({partition_by}ORDER BY t) AS before FROM a{where}"
        begins = f"CASE WHEN t - before <= {gap} THEN 0 ELSE 1 END"
        rows = f"SELECT *, SUM({begins}) OVER ({partition_by}ORDER BY t) AS number FROM ({before}) AS q"
        aggregates = f"{self.aggregate('a')} AS g, {self.aggregate('a')} AS h"
        plain = ", ".join((*partition, "number"))
        ends = ", ".join((*partition, f"MIN(t) AS window_start, MAX(t) + {gap} AS window_end"))
        return (
            f"SELECT {outputs}, {aggregates} FROM SESSION((SELECT * FROM a{where}){written}, t, INTERVAL '{gap}' TICK) AS a "
            f"GROUP BY {outputs}",
            f"SELECT {ends}, {aggregates} FROM ({rows}) AS a GROUP BY {plain}",
        )

    def as_of(self) -> tuple[str, str]:
        """PostgreSQL takes the first of the earlier rows."""
        kind, on = self.random.choice(("", " LEFT")), self.random.choice(("a.x = b.x", "a.n = b.n", "a.x = b.z"))
        at = self.random.choice(
            ("a.t >= b.t", "a.t > b.t", "b.t < a.t", f"b.t <= a.t - INTERVAL '{self.random.randint(0, 2)}' TICK")
        )
        outputs, where = f"a.t, {self.number('b')} AS v, b.z AS w", self._where("a", 0.3)
        earlier = f"SELECT * FROM b WHERE {on} AND {at} ORDER BY b.t DESC LIMIT 1"
        plain = earlier.replace("INTERVAL '", "").replace("' TICK", "")
        return (
            f"SELECT {outputs} FROM a ASOF{kind} JOIN b ON {on} AND {at}{where}",
            f"SELECT {outputs} FROM a{kind} JOIN LATERAL ({plain}) AS b ON TRUE{where}",
        )

    def times(self) -> str:
        table = self.random.choice("ac")
        where = f" WHERE {self.moment_condition(table)}" if self.random.random() < 0.5 else ""
        if self.random.random() < 0.5:
            outputs = f"{self.moment(table)} AS v1, {self.of_moment(table)} AS v2, {self.of_moment(table)} AS v3"
            return f"SELECT {outputs} FROM {table}{where}"
        key = self.random.choice((self.moment(table), self.of_moment(table)))
        aggregate = self.random.choice(
            (f"MAX({table}.s) - MIN({table}.s)", f"MIN({self.of_moment(table)})", f"COUNT(DISTINCT {self.of_moment(table)})",
             f"PERCENTILE_DISC({self.fraction()}) WITHIN GROUP (ORDER BY {table}.s)", f"MAX({self.moment(table)})")
        )  # fmt: skip
        return f"SELECT {key} AS k, {aggregate} AS g, {self.aggregate(table)} AS h FROM {table}{where} GROUP BY 1"

    def windows_of_time(self) -> tuple[str, str]:
        """PostgreSQL groups by DATE_BIN, which has no window without a time."""
        table, size = (
            self.random.choice("ac"),
            self.random.choice(("15 minutes", "1 hour", "7 hours", "1 day", "10 days")),
        )
        key = self.random.choice(("", f", {self.number(table)} AS k"))
        group = ", k" if key else ""
        having = self.random.choice(("", " HAVING COUNT(*) > 1"))
        aggregates = f"{self.aggregate(table)} AS g, {self.aggregate(table)} AS h"
        start = f"DATE_BIN('{size}', {table}.s, TIMESTAMP '1970-01-01')"
        return (
            f"SELECT window_start, window_end{key}, {aggregates} FROM TUMBLE({table}, s, INTERVAL '{size}') AS {table} "
            f"GROUP BY window_start, window_end{group}{having}",
            f"SELECT {start} AS window_start, {start} + INTERVAL '{size}' AS window_end{key}, {aggregates} FROM {table} "
            f"WHERE {table}.s IS NOT NULL GROUP BY 1, 2{group}{having}",
        )

    def correlated_value(self) -> tuple[str, str]:
        """Aggregates of the rows that a condition selects for each outer row, and values of the row with a key."""
        if self.random.random() < 0.3:
            inner = f"SELECT {self.value('b')} FROM b WHERE b.t = a.t + INTERVAL '{self.random.randint(1, 4)}' TICK"
            inner += self.random.choice(("", " AND b.n > a.n"))
            query = f"SELECT a.t, ({inner}) AS v FROM a{self._where('a', 0.3)}"
            return query, query.replace("INTERVAL '", "").replace("' TICK", "")
        aggregate = self.random.choice(("COUNT(*)", "COUNT(b.n)", "MAX(b.n) + 1", "MIN(b.z)", "COALESCE(SUM(b.n), 0)"))
        on = self.random.choice(("b.x = a.x AND ", "b.n = a.n AND ", ""))
        size = self.random.randint(1, 4)
        within = self.random.choice(
            (f"b.t BETWEEN a.t AND a.t + INTERVAL '{size}' TICK", f"b.t > a.t AND b.t <= a.t + INTERVAL '{size}' TICK",
             "b.t < a.t", "b.n < a.n", f"b.t >= a.t - INTERVAL '{size}' TICK")
        )  # fmt: skip
        value = f"(SELECT {aggregate} FROM b WHERE {on}{within})"
        outer = self.random.choice(("a", "g"))
        if outer == "g":
            value = value.replace("a.t", "g.n").replace("a.", "g.")
            value = value.replace("b.t", "b.n").replace("INTERVAL '", "").replace("' TICK", "")
            rows = "(SELECT a.x, a.n, COUNT(*) AS m FROM a GROUP BY a.x, a.n) AS g"
            query = f"SELECT g.x, g.n, g.m, {value} AS v FROM {rows}"
        else:
            query = f"SELECT a.t, {value} AS v, a.n FROM a{self._where('a', 0.3)}"
        return query, query.replace("INTERVAL '", "").replace("' TICK", "")

    def table(self) -> str:
        """The contents of a table with a primary key."""
        value, condition = self.value("p"), self.condition("p", 0)
        outer = f"SELECT {self.value('a')} AS v1"
        return self.random.choice(
            (
                f"SELECT {self._outputs('p')} FROM p{self._where('p')}",
                f"{outer}, {value} AS v2 FROM a {self.random.choice(('JOIN', 'LEFT JOIN'))} p ON a.x = p.x AND {condition}",
                f"{outer}, (SELECT {value} FROM p WHERE p.x = a.{self.random.choice('xy')}) AS v2 FROM a",
                f"{outer} FROM a WHERE a.x {self.random.choice(('', 'NOT '))}IN (SELECT p.x FROM p{self._where('p')})",
                f"{outer} FROM a WHERE EXISTS (SELECT 1 FROM p WHERE p.n = a.n AND {condition})",
                f"SELECT p.n AS k, {self.aggregate('p')} AS g FROM p GROUP BY p.n",
                f"SELECT {self.aggregate('p')} AS g, {self.aggregate('p')} AS h FROM p{self._where('p')}",
                "SELECT p.x, COUNT(b.n) AS m FROM p LEFT JOIN b ON b.z = p.x GROUP BY p.x",
                f"SELECT b.x FROM b EXCEPT SELECT p.x FROM p{self._where('p')}",
            )
        )  # fmt: skip

    def array(self) -> str:
        """Arrays, and their elements as rows. All texts have parts between letters a."""
        table = self.random.choice(("a", "b"))
        tick, number, text = f"{table}.{TICKS[table]}", self.number(table), self.text(table)
        array = self.random.choice(
            (
                f"STRING_TO_ARRAY({text}, 'a')", f"ARRAY[{text}, 'b', NULL]", f"ARRAY[{number}, {table}.n]",
                "CAST('{1,NULL,3}' AS bigint[])", f"STRING_TO_ARRAY({text}, 'a')",
            )
        )  # fmt: skip
        is_text = "STRING" in array or "'b'" in array
        value = self.random.choice((text, f"'{self.random.choice(TEXTS)}'")) if is_text else number
        test = self.random.choice(
            (f"{value} = ANY({array})", f"{value} <> ALL({array})", f"CARDINALITY({array}) > 1",
             f"({array})[{self.random.randint(0, 3)}] = {value}", f"{array} >= {array}", f"{array} IS NULL")
        )  # fmt: skip
        result = self.random.choice(
            (array, f"({array})[{self.random.randint(0, 3)}]", f"ARRAY_LENGTH({array}, 1)", f"ARRAY_POSITION({array}, {value})",
             f"ARRAY_TO_STRING({array}, '-', '*')", f"CAST({array} AS text)")
        )  # fmt: skip
        collected = self.random.choice(
            (f"ARRAY_AGG({number} ORDER BY {text} DESC, {tick})", f"ARRAY_AGG(DISTINCT {text})",
             f"ARRAY_AGG({text} ORDER BY {tick}) FILTER (WHERE {self.condition(table, 0)})",
             f"ARRAY_AGG(DISTINCT {number} ORDER BY {number} DESC)")
        )  # fmt: skip
        join = self.random.choice((", ", " CROSS JOIN ", " CROSS JOIN LATERAL "))
        rows = self.random.choice(
            (f"{table}{join}UNNEST({array}) AS u (e)", f"{table}{join}UNNEST({array}) WITH ORDINALITY AS u (e, i)",
             f"{table} LEFT JOIN UNNEST({array}) AS u (e) ON TRUE")
        )  # fmt: skip
        return self.random.choice(
            (
                f"SELECT {result} AS v FROM {table}{self._where(table)}",
                f"SELECT {result} AS v FROM {table} WHERE {test}",
                f"SELECT {array} AS k, COUNT(*) AS m FROM {table} GROUP BY {array}",
                f"SELECT {table}.x AS k, {collected} AS g FROM {table}{self._where(table)} GROUP BY {table}.x",
                f"SELECT {value} AS v, u.* FROM {rows}{self._where(table)}",
                f"SELECT u.e AS k, COUNT(*) AS m, MAX({number}) AS g FROM {rows}{self._where(table)} GROUP BY u.e",
                f"SELECT q.k, e FROM (SELECT {table}.x AS k, {collected} AS g FROM {table} GROUP BY {table}.x) AS q, UNNEST(g) AS u (e)",
            )
        )  # fmt: skip

    def common_tables(self) -> str:
        return (
            f"WITH p AS ({self.select().replace('SELECT DISTINCT', 'SELECT')}), "
            f"q AS (SELECT a.x, a.n FROM a{self._where('a')}) "
            f"SELECT p.v1, q.n FROM p JOIN q ON {self.random.choice(('q.n > 1', 'q.x = ' + repr('a')))}"
        )

    def beyond(self) -> str:
        """What SmileSQL may not have."""
        return self.random.choice(_BEYOND)


_UNITS = ("minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century")
_FIELDS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "HOUR", "MINUTE", "SECOND", "EPOCH")
_FORMATS = ("YYYY-MM-DD HH24:MI:SS", "DD.MM.YY", "HH12:MI AM", "IYYY-IW", "DDD", "Mon YYYY", "YYYY-MM", "Q", "MS US")

_BEYOND: Sequence[str] = (
    "SELECT a.t, ROW_NUMBER() OVER (ORDER BY a.t) AS v FROM a",
    "SELECT a.t, NTILE(2) OVER (ORDER BY a.t) AS v FROM a",
    "SELECT a.x, COUNT(*) OVER (PARTITION BY a.x) AS v FROM a",
    "SELECT a.x, STRING_AGG(a.y, ',' ORDER BY a.t) AS v FROM a GROUP BY a.x",
    "SELECT a.x, ARRAY_LENGTH(ARRAY_AGG(a.n), 1) AS v FROM a GROUP BY a.x",
    "SELECT a.x, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a.n) AS v FROM a GROUP BY a.x",
    "SELECT a.n AS v FROM a ORDER BY a.t OFFSET 1",
    "SELECT a.n AS v FROM a ORDER BY a.t LIMIT 2 OFFSET 1",
    "SELECT a.n AS v FROM a ORDER BY a.t FETCH FIRST 2 ROWS ONLY",
    "SELECT a.n AS v FROM a ORDER BY a.n",
    "SELECT a.n AS v FROM a WHERE a.n = ANY (SELECT b.n FROM b)",
    "SELECT a.n AS v FROM a WHERE a.n > ALL (SELECT b.n FROM b)",
    "SELECT a.t, s.m AS v FROM a, LATERAL (SELECT MAX(b.n) AS m FROM b WHERE b.x = a.x) AS s",
    "SELECT a.x AS v FROM a WHERE (a.x, a.n) NOT IN (SELECT b.x, b.n FROM b)",
    "SELECT a.t, (SELECT COUNT(*) FROM b WHERE b.n < a.n) AS v FROM a",
    "SELECT a.t, (SELECT b.n FROM b ORDER BY b.t LIMIT 1) AS v FROM a",
    "SELECT v FROM (VALUES (1), (2)) AS q (v)",
    "WITH RECURSIVE r AS (SELECT 1 AS v UNION ALL SELECT v + 1 FROM r WHERE v < 3) SELECT v FROM r",
    "SELECT g AS v FROM GENERATE_SERIES(1, 3) AS g",
    "SELECT a.x AS v FROM a WHERE a.x SIMILAR TO '(a|b)%'",
    "SELECT a.t, SUM(a.n) OVER (PARTITION BY a.x) AS v FROM a",
    "SELECT a.t, NTH_VALUE(a.n, 2) OVER (ORDER BY a.t) AS v FROM a",
    "SELECT a.t, MAX(a.n) OVER (ORDER BY a.n) AS v FROM a",
    "SELECT a.x, MODE() WITHIN GROUP (ORDER BY a.n) AS v FROM a GROUP BY a.x",
    "SELECT CORR(a.n, a.m) AS v FROM a",
    "SELECT EXTRACT(EPOCH FROM a.s - TIMESTAMP '2024-01-01') AS v FROM a",
    "SELECT TO_CHAR(a.n, '999') AS v FROM a",
    "SELECT SIN(a.n) AS v FROM a",
    "SELECT a.n AS v FROM a WHERE a.n BETWEEN SYMMETRIC 3 AND 1",
    "SELECT a.n AS v FROM a ORDER BY a.n FETCH FIRST 2 ROWS WITH TIES",
    "SELECT FORMAT('%s', a.x) AS v FROM a",
    "SELECT a.n AS v FROM (a JOIN b ON a.x = b.x)",
    "SELECT INITCAP(a.x) AS v FROM a",
    "SELECT a.n & 1 AS v FROM a",
    "SELECT MD5(a.x) AS v FROM a",
    "SELECT TRANSLATE(a.x, 'a', 'b') AS v FROM a",
    "SELECT CHR(65 + a.n::int) AS v FROM a",
    "SELECT REPEAT(a.x, 2) AS v FROM a",
    "SELECT ASCII(a.x) AS v FROM a",
)

_KINDS: dict[str, Callable[[Queries], str | tuple[str, str]]] = {
    "select": Queries.select, "join": Queries.join, "natural or cross join": Queries.natural_or_cross_join,
    "group": Queries.group, "total": Queries.total, "group of a join": Queries.group_of_join,
    "group of groups": Queries.nested_group, "grouping sets": Queries.grouping_sets, "set operation": Queries.set_operation, "subquery": Queries.subquery,
    "scalar subquery": Queries.scalar_subquery, "quantified": Queries.quantified, "lateral": Queries.lateral, "ranking": Queries.ranking, "DISTINCT ON": Queries.distinct_on,
    "limit": Queries.limit, "running aggregate": Queries.running, "common tables": Queries.common_tables,
    "frame of rows": Queries.frame, "several windows": Queries.several_windows, "session": Queries.session, "as of": Queries.as_of, "correlated value": Queries.correlated_value, "table": Queries.table, "times": Queries.times,
    "windows of time": Queries.windows_of_time, "array": Queries.array, "JSON": Queries.of_json, "beyond": Queries.beyond,
}  # fmt: skip


def random_queries(seed: int, count: int) -> list[Query]:
    queries = Queries(Random(seed))
    return [queries.draw() for _ in range(count)]
