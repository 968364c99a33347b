"""Queries in the style of test suites for SQL engines: long expressions over whole numbers, joins of many tables, aggregates
in expressions, subqueries in CASE, and chains of set operations. `n` and `m` are whole numbers; all of them can be NULL."""

import re
from collections.abc import Callable
from random import Random
from re import Match

_TICKS = {"a": "t", "b": "t", "c": "u"}
_JOINS = (
    ("a", "b", "x"),
    ("b", "c", "z"),
    ("a", "c", "y"),
    ("a", "b", "n"),
    ("b", "c", "n"),
    ("a", "p", "x"),
    ("p", "c", "z"),
)
_OPERATORS = ("<", "<=", ">", ">=", "=", "<>")


_NUMBERS = (
    "# + #", "# - (#)", "(#) * 3", "(#) * -2", "- (#)", "+ #", "ABS(#)", "COALESCE(#, #, 7)", "NULLIF(#, #)", "(#) / NULLIF(#, 0)",
    "(#) % NULLIF(#, 0)", "CASE WHEN ? THEN # WHEN ? THEN # END", "CASE # WHEN # THEN # ELSE # END", "GREATEST(#, #)",
    "LEAST(#, #, 3)", "SIGN(#)::bigint",
)  # fmt: skip
_COMPARISONS = (
    *(f"# {operator} #" for operator in _OPERATORS), "(#) !BETWEEN # AND #", "(#) !BETWEEN # AND #", "(#) !IN (#, #, 2)",
    "(#) IS !NULL", "(#) IS !DISTINCT FROM #", "(# > 1) IS !TRUE",
)  # fmt: skip
_CONDITIONS = ("(? OR ?)", "? AND ?", "NOT (?)", "?")


class LogicQueries:
    def __init__(self, random: Random) -> None:
        self.random = random

    # ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self, template: str, tables: str, depth: int) -> str:
        """The template with a number for each `#`, a condition for each `?`, and NOT or nothing for each `!`."""

        def part(match: Match[str]) -> str:
            if match[0] == "!":
                return self.random.choice(("", "NOT "))
            return self.number(tables, depth) if match[0] == "#" else self.condition(tables, depth)

        return re.sub("[#?!]", part, template)

    def number(self, tables: str, depth: int = 2) -> str:
        """A whole number over columns of these tables."""
        if depth == 0:
            column = f"{self.random.choice(tables)}.{self.random.choice('nnm')}"
            return self.random.choice((column, column, column, str(self.random.randint(0, 99)), "NULL::bigint"))
        return self._fill(self.random.choice(_NUMBERS), tables, depth - 1)

    def condition(self, tables: str, depth: int = 1) -> str:
        return self._fill(self.random.choice(_CONDITIONS if depth else _COMPARISONS), tables, max(depth - 1, 0))

    def aggregate(self, tables: str) -> str:
        """Sums are at least 0, because a sum of no values is 0."""
        draw, number = self.random.choice, self.number(tables, 1)
        distinct = draw(("", "", "DISTINCT "))
        call = draw(
            (
                "COUNT(*)", f"COUNT({distinct}{number})", f"MIN({distinct}{number})", f"MAX({distinct}{number})",
                f"COALESCE(SUM({distinct}{number}), 0)", f"COUNT(*) FILTER (WHERE {self.condition(tables, 0)})",
                f"COUNT(DISTINCT ({number}, {self.number(tables, 0)}))", f"AVG({distinct}{number})",
                f"BOOL_OR({self.condition(tables, 0)})::int", f"COALESCE(STDDEV_POP({distinct}{number}), -1)",
            )
        )  # fmt: skip
        if "AVG" in call or "STDDEV" in call:
            return call
        return draw((call, f"- {call}", f"{call} * {self.random.randint(-3, 9)} + {call}", f"COALESCE({call}, -1)"))

    def _from(self) -> tuple[str, str]:
        """FROM and the tables in it."""
        left, right, column = self.random.choice(_JOINS)
        kind = self.random.choice(("JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN"))
        if self.random.random() < 0.4:
            return f"{left}", left
        if self.random.random() < 0.3:
            return f"{left} CROSS JOIN {right}", left + right
        return f"{left} {kind} {right} ON {left}.{column} = {right}.{column}", left + right

    def _where(self, tables: str, share: float = 0.6) -> str:
        return f" WHERE {self.condition(tables)}" if self.random.random() < share else ""

    # ── kinds of queries ────────────────────────────────────────────────────────────────────────────────────────────

    def expressions(self) -> str:
        from_, tables = self._from()
        word = self.random.choice(("", "ALL ", "DISTINCT "))
        outputs = ", ".join(f"{self.number(tables)} AS v{i}" for i in range(self.random.randint(1, 4)))
        return f"SELECT {word}{outputs} FROM {from_}{self._where(tables)}"

    def subqueries_in_expressions(self) -> str:
        table, inner = self.random.choice("abcp"), self.random.choice("abcp")
        q = f"{inner} AS q"
        aggregate = self.random.choice(("COUNT(*)", "MAX(q.n)", "MIN(q.m)", "COUNT(DISTINCT q.n)", "AVG(q.n)"))
        on = self.random.choice(
            ("", f" WHERE q.n < {table}.n", f" WHERE q.n = {table}.m", f" WHERE q.n > {table}.n AND q.m = {table}.m")
        )
        scalar = f"(SELECT {aggregate} FROM {q}{on})"
        test = f"{self.random.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {q} WHERE q.n {self.random.choice(_OPERATORS)} {table}.n)"
        member = f"{table}.n {self.random.choice(('', 'NOT '))}IN (SELECT q.m FROM {q}{on})"
        value = self.random.choice(
            (
                scalar, f"CASE WHEN {table}.n > {scalar} THEN {table}.n * 2 ELSE {table}.n * 10 END",
                f"CASE WHEN {test} THEN 1 WHEN {member} THEN 2 ELSE 3 END", f"COALESCE({scalar}, {table}.m)",
            )
        )  # fmt: skip
        where = self.random.choice(
            ("", f" WHERE {test}", f" WHERE {member} OR {self.condition(table)}", f" WHERE {table}.n < {scalar}")
        )
        return f"SELECT {value} AS v1, {self.number(table, 1)} AS v2 FROM {table}{where}"

    def many_joins(self) -> str:
        chain = self.random.choice(
            (
                ("abc", "a.x = b.x AND b.z = c.z"), ("abc", "a.n = b.n AND c.n = a.m"), ("abc", "a.y = c.y AND c.m = b.m"),
                ("abcp", "a.x = b.x AND c.z = b.z AND p.x = a.x"), ("abp", "a.n = b.n AND p.n = b.m"),
            )
        )  # fmt: skip
        tables, on = chain
        order = list(tables)
        self.random.shuffle(order)
        outputs = ", ".join(f"{self.random.choice(tables)}.n AS v{i}" for i in range(self.random.randint(1, 3)))
        used = tables.replace("p", "")
        condition = self.random.choice((f" AND {self.condition(used, 0)}", f" AND {self.condition(used)}", ""))
        return f"SELECT {outputs} FROM {', '.join(order)} WHERE {on}{condition}"

    def aggregates(self) -> str:
        from_, tables = self._from()
        outputs = ", ".join(f"{self.aggregate(tables)} AS v{i}" for i in range(self.random.randint(1, 3)))
        if self.random.random() < 0.4:
            return f"SELECT {outputs} FROM {from_}{self._where(tables)}"
        key = self.number(tables, self.random.randint(0, 1)) + f" + {tables[0]}.n"
        having = self.random.choice(
            (
                "",
                f" HAVING {self.aggregate(tables)} > {self.random.randint(0, 3)}",
                f" HAVING NOT MIN({tables[0]}.n) IS NULL",
            )
        )
        distinct = self.random.choice(("", "", "DISTINCT "))
        return f"SELECT {distinct}{key} AS k, {outputs} FROM {from_}{self._where(tables, 0.4)} GROUP BY {key}{having}"

    def aggregates_of_aggregates(self) -> str:
        from_, tables = self._from()
        key = f"{tables[0]}.{self.random.choice('nm')}"
        inner = f"SELECT {key} AS k, {self.aggregate(tables)} AS g, COUNT(*) AS h FROM {from_}{self._where(tables, 0.3)} GROUP BY {key}"
        outer = self.random.choice(
            (
                "COUNT(DISTINCT g) AS v, MAX(h) AS w FROM ({}) AS q", "g, COUNT(*) AS v, MIN(k) AS w FROM ({}) AS q GROUP BY g",
                "h, COALESCE(SUM(k), 0) AS v FROM ({}) AS q GROUP BY h HAVING COUNT(g) > 0",
                "q.k, q.h, r.n FROM ({}) AS q LEFT JOIN b AS r ON q.k = r.n AND q.h > 1",
                "r.n, q.h FROM b AS r JOIN ({} HAVING COUNT(*) > 1) AS q ON q.h = r.n",
                "r.m, q.k FROM c AS r FULL JOIN ({} HAVING MAX({key}) > 0) AS q ON q.k = r.m",
            )
        )  # fmt: skip
        return "SELECT " + outer.replace("{}", inner).replace("{key}", key)

    def chains_of_sets(self) -> str:
        def part() -> str:
            from_, tables = self._from()
            return f"SELECT {self.number(tables, 1)} AS v1, {self.number(tables, 0)} AS v2 FROM {from_}{self._where(tables)}"

        text = part()
        for _ in range(self.random.randint(1, 3)):
            operator = self.random.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"))
            if self.random.random() < 0.3:
                text = f"({text})"
            text = f"{text} {operator} {part()}"
        if self.random.random() < 0.3:
            return f"SELECT v2, COUNT(*) AS v, MIN(v1) AS w FROM ({text}) AS q GROUP BY v2"
        return text

    def ordered(self) -> str:
        table = self.random.choice("abc")
        outputs = f"{self.number(table)} AS v1, {self.number(table, 1)} AS v2"
        order = self.random.choice(
            ("v1", "v2 DESC", f"{self.number(table, 1)} + 0 DESC NULLS LAST", f"{table}.n NULLS FIRST")
        )
        limit = self.random.randint(1, 4)
        return f"SELECT {outputs} FROM {table}{self._where(table, 0.4)} ORDER BY {order}, {table}.{_TICKS[table]} LIMIT {limit}"


KINDS: dict[str, Callable[[LogicQueries], str]] = {
    "long expressions": LogicQueries.expressions,
    "subqueries in expressions": LogicQueries.subqueries_in_expressions,
    "many joins": LogicQueries.many_joins,
    "aggregates in expressions": LogicQueries.aggregates,
    "aggregates of aggregates": LogicQueries.aggregates_of_aggregates,
    "chains of set operations": LogicQueries.chains_of_sets,
    "ordered rows": LogicQueries.ordered,
}
