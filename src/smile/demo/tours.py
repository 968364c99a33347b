"""The tours of demos that are no stories: what their consoles tell beside the live views, and the file that a broker
reads a tour from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class TourStep:
    """It is about a view, and maybe a column of it, or about another page of the console."""

    title: str
    text: str
    view: str | None = None
    column: str | None = None
    page: str | None = None

    def to_json(self) -> Json:
        page = {} if self.page is None else {"page": self.page}
        return {"title": self.title, "text": self.text, "view": self.view, "column": self.column, **page}


@dataclass(frozen=True)
class Tour:
    title: str
    steps: Sequence[TourStep]

    def to_json(self) -> Json:
        return {"title": self.title, "steps": [step.to_json() for step in self.steps]}


@dataclass(frozen=True)
class TourFile:
    """The file that the setting `tour` of a broker names. `tour` is in the form of `GET /tour`."""

    path: Path
    tour: Mapping[str, Any]

    def lead(self, running: int | None = None) -> None:
        """Says which step the demo is at; None for a demo that has no order. The broker may read the file at any time,
        so it is replaced as a whole."""
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({**self.tour, **({} if running is None else {"running": running})}))
        new.replace(self.path)


NETWORK_CUT, NETWORK_HEALED = 2, 3
NETWORK = Tour(
    "The trading floor on four brokers",
    (
        TourStep(
            "Four brokers, one floor",
            "Bids to buy, bids to sell, and matches are published at three brokers. This one, floor, has no events of "
            "its own: it imports what remains of the bids, and computes which of them can be matched.\n\n"
            "≤ means at most, here as there: what is known travels with the rows.",
            view="Matchable",
            column="buyremaining",
        ),
        TourStep(
            "What comes over a link",
            "The graph begins with the links to buys and sells: whether they are up, how many rows they bring in a "
            "second, and how far behind they are. A click on one says more.",
            page="program",
        ),
        TourStep(
            "A link is cut",
            "In the terminal, key 3 cuts the link to buys, as a network does it: connections stay open, and nothing "
            "arrives. What was known stays true, and stays here. The link to sells goes on, so rows still change.",
            view="Matchable",
            column="buyremaining",
        ),
        TourStep(
            "It is healed",
            "The same key heals it. The broker asks for what it has missed, and only for that: nothing is lost, and "
            "nothing comes twice.",
            view="Matchable",
            column="buyremaining",
        ),
    ),
)

GRID_KILLED, GRID_REVIVED = 2, 3
GRID = Tour(
    "A grid of sensors",
    (
        TourStep(
            "A relation, and nobody's name",
            "Sensors at three sites measure how long packets take. This broker, desk, names the relation ntp, and "
            "nobody who publishes it: the brokers find out who has what.",
            view="Channels",
            column="n",
        ),
        TourStep(
            "Republishers",
            "Republishers have a part of the relation, or all of it, and say so. As soon as one has joined, others may "
            "ask it instead of the sensors: the terminal shows who asks whom for what.",
            page="program",
        ),
        TourStep(
            "A republisher is killed",
            "In the terminal, keys 1 to 3 kill republishers. Whoever asked one asks others from then on. The counts "
            "here go on: each measurement is counted once, whichever way it has come.",
            view="Channels",
            column="n",
        ),
        TourStep(
            "It comes back",
            "The same key revives it. It asks for what it has missed, and is asked again. At the end, the demo "
            "compares the log of desk with those of the producers.",
            view="Channels",
            column="worst",
        ),
    ),
)

PORTFOLIOS = Tour(
    "Quotes and portfolios in a database",
    (
        TourStep(
            "Quotes from transactions",
            "Transactions of a PostgreSQL database publish quotes, and this broker has them as a stream. A view like "
            "this one can follow. One transaction in ten is rolled back: its quote is never here.",
            view="Prices",
            column="quotes",
        ),
        TourStep(
            "Subscriptions that read a table",
            "In the database, each portfolio is a subscription to the quotes: WHERE symbol IN (SELECT symbol FROM "
            "portfolios WHERE portfolio = …). While quotes come, transactions buy and sell.\n\n"
            "The terminal shows what each portfolio holds, and how many quotes it has received.",
            page="streams",
        ),
        TourStep(
            "Exactly those, once",
            "At the end, the demo checks that every quote has reached exactly the portfolios that held its symbol "
            "when its transaction was committed, and reached them once.",
            view="Prices",
            column="price",
        ),
    ),
)
