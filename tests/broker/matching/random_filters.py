"""Random filters, with a slow evaluator: each filter is its text in SQL, and a function of an event and of the tables' rows
that follows SQL's rules for NULL word by word."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
Truth = bool | None

PROGRAM = """
CREATE STREAM Quotes (t TIME KEY, symbol STRING, price DECIMAL(8,2), size INT, note STRING);
CREATE STREAM Portfolios (t TIME KEY, change STRING NOT NULL, id INT, symbol STRING, least INT) WITH (CHANGES = TABLE);
CREATE STREAM Halted (t TIME KEY, change STRING NOT NULL, symbol STRING) WITH (CHANGES = TABLE);
CREATE VIEW Large AS SELECT symbol, price, size * 2 AS twice FROM Quotes WHERE size > 1;
CREATE VIEW Sums AS SELECT symbol, SUM(size) AS total FROM Quotes GROUP BY symbol;
"""
SYMBOLS = ("A", "B", "C")


@dataclass(frozen=True)
class RandomFilter:
    text: str
    evaluate: Callable[[Row, Tables], Truth]


def random_filter(random: Random, depth: int = 2) -> RandomFilter:
    kind = random.choice(("and", "or", "not", "leaf", "leaf", "and")) if depth else "leaf"
    if kind == "not":
        inner = random_filter(random, depth - 1)
        return RandomFilter(f"NOT ({inner.text})", lambda e, t: _not(inner.evaluate(e, t)))
    if kind in ("and", "or"):
        a, b = random_filter(random, depth - 1), random_filter(random, depth - 1)
        combine = _and if kind == "and" else _or
        text = f"({a.text}) {kind.upper()} ({b.text})"
        return RandomFilter(text, lambda e, t: combine(a.evaluate(e, t), b.evaluate(e, t)))
    leaves = (
        _comparison,
        _comparison,
        _list,
        _null_test,
        _in_portfolio,
        _in_portfolio,
        _exists,
        _halted,
        _uncorrelated,
    )
    return random.choice(leaves)(random)


def frequent_filter(random: Random) -> RandomFilter:
    """A filter of one of a few shapes, so that many differ only in their constants."""
    test = _in_portfolio(random)
    shape = random.randrange(6)
    if shape == 0:
        return test
    other = (_comparison, _list, _halted, _exists, _null_test)[shape - 1](random)
    return RandomFilter(f"{test.text} AND {other.text}", lambda e, t: _and(test.evaluate(e, t), other.evaluate(e, t)))


# ── the logic of SQL ────────────────────────────────────────────────────────────────────────────────────────────────


def _not(a: Truth) -> Truth:
    return None if a is None else not a


def _and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Truth, b: Truth) -> Truth:
    return True if a is True or b is True else None if a is None or b is None else False


def _compare(operator: str, a: Any, b: Any) -> Truth:
    if a is None or b is None:
        return None
    truths: dict[str, bool] = {
        "=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b,
    }  # fmt: skip
    return truths[operator]


def _member(value: Any, values: Sequence[Any]) -> Truth:
    """`value IN values`."""
    result: Truth = False
    for other in values:
        result = _or(result, _compare("=", value, other))
    return result


# ── leaves ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _comparison(random: Random) -> RandomFilter:
    operator = random.choice(("=", "=", "<>", "<", "<=", ">", ">="))
    column = random.choice(("symbol", "price", "size"))
    value: Any = random.choice(SYMBOLS) if column == "symbol" else random.randrange(4)
    text = f"'{value}'" if column == "symbol" else f"{value}"
    if random.random() < 0.2:
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        return RandomFilter(f"{text} {flipped} {column}", lambda e, _: _compare(operator, e[column], value))
    return RandomFilter(f"{column} {operator} {text}", lambda e, _: _compare(operator, e[column], value))


def _list(random: Random) -> RandomFilter:
    values = random.choices((0, 1, 2, 3, None), k=random.randrange(1, 4))
    text = ", ".join("NULL" if v is None else str(v) for v in values)
    if random.random() < 0.3:
        return RandomFilter(f"size NOT IN ({text})", lambda e, _: _not(_member(e["size"], values)))
    return RandomFilter(f"size IN ({text})", lambda e, _: _member(e["size"], values))


def _null_test(random: Random) -> RandomFilter:
    column, negated = random.choice(("symbol", "size", "note")), random.random() < 0.5
    return RandomFilter(f"{column} IS {'NOT ' if negated else ''}NULL", lambda e, _: (e[column] is None) is not negated)


def _where(random: Random) -> tuple[str, Callable[[Row, Row], Truth]]:
    """A WHERE over Portfolios, of the row and the event."""
    shape, number, other = random.randrange(6), random.randrange(3), random.randrange(4)
    if shape == 1:
        return "", lambda *_: True
    if shape == 2:
        return f" WHERE id = {number} AND least > {other}", lambda row, _: _and(
            _compare("=", row["id"], number), _compare(">", row["least"], other)
        )
    if shape == 3:
        return f" WHERE id = {number} AND least < Quotes.size", lambda row, event: _and(
            _compare("=", row["id"], number), _compare("<", row["least"], event["size"])
        )
    if shape == 4:
        return f" WHERE id IN ({number}, {other}) AND least = Quotes.size", lambda row, event: _and(
            _member(row["id"], (number, other)), _compare("=", row["least"], event["size"])
        )
    if shape == 5:
        return f" WHERE id < {number} OR least IS NULL", lambda row, _: _or(
            _compare("<", row["id"], number), row["least"] is None
        )
    return f" WHERE id = {number}", lambda row, _: _compare("=", row["id"], number)


def _in_portfolio(random: Random) -> RandomFilter:
    where, holds = _where(random)
    negated = random.random() < 0.3

    def evaluate(event: Row, tables: Tables) -> Truth:
        values = [row["symbol"] for row in tables["Portfolios"] if holds(row, event) is True]
        member = _member(event["symbol"], values)
        return _not(member) if negated else member

    return RandomFilter(f"symbol {'NOT ' * negated}IN (SELECT symbol FROM Portfolios{where})", evaluate)


def _exists(random: Random) -> RandomFilter:
    number, negated = random.randrange(3), random.random() < 0.4
    compared, column = random.choice((("p.symbol = Quotes.symbol", "symbol"), ("p.least = size", "size")))
    row_column = {"symbol": "symbol", "size": "least"}[column]

    def evaluate(event: Row, tables: Tables) -> Truth:
        return negated is not any(
            _and(_compare("=", row[row_column], event[column]), _compare("=", row["id"], number)) is True
            for row in tables["Portfolios"]
        )

    text = f"EXISTS (SELECT 1 FROM Portfolios p WHERE {compared} AND p.id = {number})"
    return RandomFilter(f"{'NOT ' * negated}{text}", evaluate)


def _halted(random: Random) -> RandomFilter:
    negated = random.random() < 0.6

    def evaluate(event: Row, tables: Tables) -> Truth:
        member = _member(event["symbol"], [row["symbol"] for row in tables["Halted"]])
        return _not(member) if negated else member

    return RandomFilter(f"Quotes.symbol {'NOT ' * negated}IN (SELECT DISTINCT h.symbol FROM Halted AS h)", evaluate)


def _uncorrelated(random: Random) -> RandomFilter:
    number = random.randrange(3)
    return RandomFilter(
        f"EXISTS (SELECT * FROM Portfolios WHERE id = {number})",
        lambda _, t: any(row["id"] == number for row in t["Portfolios"]),
    )
