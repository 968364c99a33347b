"""The program of the console's tests, and the pages of the console."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from smile.algebra.types import TICKS_PER_MICROSECOND
from tests.brokers import InProcessBroker
from tests.browser import WAIT_MS

PROGRAM = """
CREATE STREAM Trades (t: time -> symbol: string, price: float, shares: int CHECK (shares > 0));
CREATE VIEW Periods AS
  SELECT window_end, symbol, COUNT(*) AS trades, SUM(shares) AS volume
  FROM TUMBLE(Trades, t, INTERVAL '2' SECOND) GROUP BY window_end, symbol;
CREATE VIEW Totals AS SELECT symbol, COUNT(*) AS trades, SUM(shares) AS volume, AVG(price) AS mean FROM Trades GROUP BY symbol;
CREATE STREAM Steps (at: time -> walker: string, steps: int CHECK (steps >= 0)) WITH (TICKS = PUBLISHER);
CREATE VIEW Hours AS
  SELECT window_end, walker, SUM(steps) AS total FROM TUMBLE(Steps, at, INTERVAL '1' HOUR) GROUP BY window_end, walker;
CREATE VIEW Newest AS SELECT symbol, LATEST(price) AS price, MAX(t) AS since FROM Trades GROUP BY symbol;
CREATE VIEW Each AS SELECT t, symbol, shares FROM Trades;
SUBSCRIBE Periods, Totals, Hours, Newest, Each;
"""

READINGS_PROGRAM = """
CREATE STREAM Readings (t: time -> sensor: int, value: float);
CREATE VIEW Sensors AS SELECT sensor, COUNT(*) AS readings, MAX(value) AS high, AVG(value) AS mean FROM Readings GROUP BY sensor;
SUBSCRIBE Sensors;
"""
"""As many rows as there are sensors."""

PAGES = [
    ("views", "#/views", ""), ("row", "#/views/Totals", "tbody tr:not(.spacer) td:nth-child(4)"),
    ("streams", "#/streams", ""), ("stream", "#/streams/Trades", ""), ("graph", "#/program", ".node.view"),
    ("editor", "#/program", "#tab-editor"), ("ask", "#/ask", ""), ("operations", "#/operations", ""),
]  # fmt: skip
"""The name of each page, its address, and what to click on it."""

CUT_VALUES = """() => [...document.querySelectorAll("table.live td .value")].filter(
  (element) => element.scrollWidth > element.clientWidth + 1).map((element) => element.innerText)"""
"""The values in the table that are not shown as a whole: the rest of a number is another number."""

TOUR = {
    "title": "A story",
    "steps": [
        {
            "title": "It may grow",
            "text": "More may come.\n\nSo it is at least that.",
            "view": "Totals",
            "column": "volume",
        },
        {"title": "A period ends", "text": "It is final by itself.", "view": "Periods"},
    ],
}


def visit_all(page: Page, folder: Path) -> Iterator[str]:
    """Shows every state of the console, and yields its name: all pages, the tour, a broker that is away, the sign-in."""
    (folder / "tour.json").write_text(json.dumps(TOUR))
    with InProcessBroker(folder / "open", PROGRAM, tour=str(folder / "tour.json")) as broker:
        for n, symbol in enumerate(["ACME", "GLOBEX", "HOOLI", "INITECH", "UMBRELLA"], 1):
            broker.publish("Trades", *(trade(symbol, 10 * n + i, 99.5 + n) for i in range(n)))
        for name, fragment, click in PAGES:
            show(page, f"{broker.url}/{fragment}", click)
            yield name
        show(page, f"{broker.url}/#/views", "button:has-text('Tour')")
        yield "tour"
    expect(page.get_by_role("alert")).to_contain_text("The broker is away", timeout=WAIT_MS)
    yield "away"
    with InProcessBroker(folder / "closed", PROGRAM, auth=True) as broker:
        page.goto(broker.url)
        expect(page.get_by_label("Token")).to_be_visible(timeout=WAIT_MS)
        yield "sign-in"


ERRORS_OF_STATES = "ERR_|Failed to load|WebSocket|401"
"""What Chromium logs while the broker is away, or asks for a token."""


def show(page: Page, address: str, click: str) -> None:
    page.goto(address)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=WAIT_MS)
    if click:
        page.locator(click).first.click()
    page.wait_for_timeout(700)


def trade(symbol: str = "ACME", shares: int = 100, price: float = 10.0) -> dict[str, Any]:
    return {"symbol": symbol, "price": price, "shares": shares}


def tick_at(seconds: float) -> int:
    """The tick of a time since 1970."""
    return int(seconds * 1e6) * TICKS_PER_MICROSECOND


def open_view(page: Page, url: str, view: str) -> None:
    page.goto(f"{url}/#/views/{view}")
    expect(page.get_by_role("heading", level=1)).to_have_text(view, timeout=WAIT_MS)
