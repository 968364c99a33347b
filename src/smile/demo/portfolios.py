"""Simulated trading in a database: quotes are published in transactions, and portfolios change while they come.

Each portfolio has a subscription whose filter consults the table of portfolios, and whose function notes the quote. A
transaction that is rolled back publishes nothing. In each transaction that publishes a quote, the database notes which
portfolios hold its symbol at that moment: so in the end it can be checked that every quote reached exactly those.
"""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

SYMBOLS: Final = ("ACME", "BOLT", "CRUX", "DYNE", "ECHO", "FLUX", "GALE", "HELM")
PORTFOLIOS: Final = ("growth", "income", "energy")
_CHANGE_SHARE: Final = 0.04
"""The share of transactions in which a portfolio buys or sells a symbol."""
_ROLLBACK_SHARE: Final = 0.1

SCHEMA: Final = """
CREATE TABLE portfolios (portfolio text NOT NULL, symbol text NOT NULL, PRIMARY KEY (portfolio, symbol));
CREATE TABLE noted (portfolio text, number bigint, symbol text, price bigint, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE expected (portfolio text, number bigint);
CREATE FUNCTION note(portfolio text, number bigint, symbol text, price bigint) RETURNS void
LANGUAGE sql BEGIN ATOMIC INSERT INTO noted (portfolio, number, symbol, price) VALUES ($1, $2, $3, $4); END;
SELECT smile.create_event_type('StockQuote', 'number bigint NOT NULL, symbol text NOT NULL, price bigint NOT NULL');
SELECT smile.advertise('StockQuote');
"""

PROGRAM: Final = """\
-- The stream StockQuote is an event type of the database: it is added by itself.
CREATE STREAM Notices (t: time -> text: string);
"""

VIEW: Final = """\
-- What the console shows of the quotes.
CREATE VIEW Prices AS
  SELECT symbol, LATEST(price) AS price, MAX(price) AS high, COUNT(*) AS quotes
  FROM StockQuote
  GROUP BY symbol;
"""


@dataclass
class MarketFigures:
    """What the simulation has done. `changes` are the last ones of portfolios, as sentences."""

    published: int = 0
    rolled_back: int = 0
    changes: deque[str] = field(default_factory=lambda: deque(maxlen=6))


@dataclass(frozen=True)
class PortfolioRow:
    """A portfolio as the database shows it."""

    name: str
    symbols: tuple[str, ...]
    noted: int
    expected: int
    last: str


class Market:
    """Works on one connection, so that the order of quotes and changes is that of its transactions."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]", seed: int) -> None:
        self._connection, self._random = connection, Random(seed)
        self._prices = {symbol: self._random.randint(50, 400) for symbol in SYMBOLS}
        self.figures = MarketFigures()

    def set_up(self) -> None:
        self._connection.execute(SCHEMA)
        for portfolio in PORTFOLIOS:
            for symbol in self._random.sample(SYMBOLS, 3):
                self._connection.execute("INSERT INTO portfolios VALUES (%s, %s)", (portfolio, symbol))
            self._connection.execute(
                "SELECT smile.create_subscription(%s, 'StockQuote', 'local', %s, 'note', %s, 0)",
                (
                    portfolio,
                    f"symbol IN (SELECT symbol FROM portfolios WHERE portfolio = '{portfolio}')",
                    f"'{portfolio}', number, symbol, price",
                ),
            )
        self._connection.commit()

    def step(self) -> None:
        """One transaction."""
        kind = self._random.random()
        if kind < _CHANGE_SHARE:
            self._trade()
        else:
            self._quote(is_kept=kind > _CHANGE_SHARE + _ROLLBACK_SHARE)

    def _quote(self, is_kept: bool) -> None:
        figures, symbol = self.figures, self._random.choice(SYMBOLS)
        price = max(1, self._prices[symbol] + self._random.randint(-5, 5))
        number = figures.published + 1
        self._connection.execute("SELECT smile.publish_stockquote(%s, %s, %s)", (number, symbol, price))
        self._connection.execute(
            "INSERT INTO expected SELECT portfolio, %s FROM portfolios WHERE symbol = %s", (number, symbol)
        )
        if is_kept:
            self._connection.commit()
            self._prices[symbol], figures.published = price, number
        else:
            self._connection.rollback()
            figures.rolled_back += 1

    def _trade(self) -> None:
        portfolio, symbol = self._random.choice(PORTFOLIOS), self._random.choice(SYMBOLS)
        sold = self._connection.execute(
            "DELETE FROM portfolios WHERE portfolio = %s AND symbol = %s", (portfolio, symbol)
        ).rowcount
        if not sold:
            self._connection.execute("INSERT INTO portfolios VALUES (%s, %s)", (portfolio, symbol))
        self._connection.commit()
        now, effect = f"{datetime.now():%H:%M:%S}", "no longer receives" if sold else "now receives"
        verb = "sells" if sold else "buys"
        self.figures.changes.append(f"{now}  {portfolio} {verb} {symbol}, and {effect} its quotes")


def read_portfolios(connection: "psycopg.Connection[tuple[Any, ...]]") -> list[PortfolioRow]:
    rows = connection.execute(
        """
        SELECT p.portfolio,
            (SELECT array_agg(symbol ORDER BY symbol) FROM portfolios h WHERE h.portfolio = p.portfolio),
            (SELECT count(*) FROM noted n WHERE n.portfolio = p.portfolio),
            (SELECT count(*) FROM expected e WHERE e.portfolio = p.portfolio),
            (SELECT format('%%s at %%s', symbol, price) FROM noted n WHERE n.portfolio = p.portfolio
                ORDER BY number DESC LIMIT 1)
        FROM unnest(%s::text[]) AS p(portfolio)
        """,
        (list(PORTFOLIOS),),
    ).fetchall()
    return [
        PortfolioRow(name, tuple(symbols or ()), noted, expected, last or "")
        for name, symbols, noted, expected, last in rows
    ]


def count_differences(connection: "psycopg.Connection[tuple[Any, ...]]") -> tuple[int, int, int]:
    """Quotes that were noted as expected, those that are missing, and those that are too many."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM (SELECT portfolio, number FROM noted INTERSECT ALL SELECT * FROM expected) AS b),
            (SELECT count(*) FROM (SELECT * FROM expected EXCEPT ALL SELECT portfolio, number FROM noted) AS m),
            (SELECT count(*) FROM (SELECT portfolio, number FROM noted EXCEPT ALL SELECT * FROM expected) AS t)
        """
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])
