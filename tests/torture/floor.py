"""The program that is tortured: rows that come and go, that count, that close with their window, of broker's and of
publishers' ticks. Every event has a name of its own, (who, n), so that it is known again wherever it turns up."""

from pathlib import Path
from random import Random
from typing import Any, Final

from smile.program import CompiledProgram, compile_program
from smile.source import Source

PROGRAM: Final = """\
CREATE DOMAIN shares AS int CHECK (VALUE BETWEEN 0 AND 1000000);
CREATE STREAM Bids (bid: time -> who: string, n: int, issue: string, price: int, size: shares);
CREATE STREAM Matches (t: time -> who: string, n: int, bid: time, traded: shares);
CREATE STREAM Readings (at: time -> who: string, n: int, host: string, value: int) WITH (TICKS = PUBLISHER);

CREATE VIEW Satisfied AS SELECT bid, SUM(traded) AS total FROM Matches GROUP BY bid;
CREATE VIEW Remaining AS SELECT bid, issue, price, (size - total) AS remaining FROM Bids JOIN Satisfied USING (bid)
  WHERE remaining > 0;
CREATE VIEW Totals AS SELECT issue, COUNT(*) AS bids, SUM(size) AS shares, MAX(price) AS top, LATEST(price) AS last
  FROM Bids GROUP BY issue;
CREATE VIEW Seconds AS SELECT window_start, issue, COUNT(*) AS bids FROM TUMBLE(Bids, bid, INTERVAL '1' SECOND)
  GROUP BY window_start, issue;
CREATE VIEW Dearest AS SELECT bid, issue, price FROM Remaining BEST 3 BY price DESC PER issue;
CREATE VIEW Peaks AS SELECT host, COUNT(*) AS n, MAX(value) AS peak FROM Readings GROUP BY host;

SUBSCRIBE Remaining, Totals, Seconds, Dearest, Peaks;
"""
STREAMS: Final[dict[str, frozenset[str]]] = {
    "Remaining": frozenset(("Bids", "Matches")),
    "Totals": frozenset(("Bids",)),
    "Seconds": frozenset(("Bids",)),
    "Dearest": frozenset(("Bids", "Matches")),
    "Peaks": frozenset(("Readings",)),
}
"""What each view is made from: its progress names these."""
VIEWS: Final = tuple(STREAMS)
ISSUES: Final = tuple("ABCDE")
HOSTS: Final = ("h1", "h2", "h3")
FILTERS: Final[dict[str, str]] = {
    "Remaining": "issue",
    "Totals": "issue",
    "Seconds": "issue",
    "Dearest": "issue",
    "Peaks": "host",
}
"""Of each view the column that some subscribers put a condition on."""

Event = dict[str, Any]


def compiled() -> CompiledProgram:
    return compile_program(Source("floor.smile", PROGRAM))


def write_program(folder: Path) -> None:
    """Where a broker of this folder looks for its program."""
    (folder / "floor.smile").write_text(PROGRAM)


def bid(random: Random, who: str, n: int) -> Event:
    price, size = random.randint(1, 50), random.randint(1, 9)
    return {"who": who, "n": n, "issue": random.choice(ISSUES), "price": price, "size": size}


def match(random: Random, who: str, n: int, tick: int) -> Event:
    return {"who": who, "n": n, "bid": tick, "traded": random.randint(1, 9)}


def reading(random: Random, who: str, n: int, at: int) -> Event:
    return {"at": at, "who": who, "n": n, "host": random.choice(HOSTS), "value": random.randint(0, 1000)}
