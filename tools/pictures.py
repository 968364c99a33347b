"""`make pictures`: takes the pictures of the console in docs/pictures, from a broker with simulated trades."""

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page

from smile.client import connect
from smile.client.notebook import RowPlot
from tests.brokers import InProcessBroker
from tests.browser import open_browser

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZE = {"width": 1280, "height": 760}
COLORS = 128
"""So few colours make a picture a third as large, and are enough for a page."""

PROGRAM = """
-- What is traded, in periods of ten seconds.
CREATE STREAM Trades (t: time -> symbol: string, price: float, shares: int CHECK (shares > 0));

CREATE VIEW Periods AS
  SELECT window_end, symbol, COUNT(*) AS trades, SUM(shares) AS volume, AVG(price) AS mean, MAX(price) AS high
  FROM TUMBLE(Trades, t, INTERVAL '10' SECOND)
  GROUP BY window_end, symbol;

CREATE VIEW Busy AS SELECT window_end, symbol FROM Periods WHERE trades >= 5;

CREATE VIEW Largest AS SELECT t, symbol, price, shares FROM Trades BEST 3 BY shares DESC PER symbol;

SUBSCRIBE Periods, Busy, Largest;
"""
PRICES = {"ACME": 101.2, "GLOBEX": 55.4, "HOOLI": 320.9, "INITECH": 18.7, "UMBRELLA": 77.0, "WAYNE": 250.3}
TRADES_PER_S = 8.0
WARM_UP_S = 45.0
"""So that some periods are final."""


@contextmanager
def trading(broker: InProcessBroker) -> Iterator[None]:
    is_done = threading.Event()

    def run() -> None:
        rng, prices = random.Random(7), dict(PRICES)
        while not is_done.wait(rng.expovariate(TRADES_PER_S)):
            symbol = rng.choice(list(prices))
            prices[symbol] *= 1 + rng.gauss(0, 0.002)
            broker.publish(
                "Trades", {"symbol": symbol, "price": round(prices[symbol], 2), "shares": rng.randrange(1, 90) * 10}
            )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def save(page: Page, name: str) -> None:
    path = PICTURES / f"console-{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLORS).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


@contextmanager
def shown(browser: Browser, url: str, fragment: str, **options: Any) -> Iterator[Page]:
    context = browser.new_context(**{"viewport": SIZE, **options})
    page = context.new_page()
    page.goto(f"{url}/#/{fragment}")
    page.wait_for_timeout(1500)
    yield page
    context.close()


def save_notebook_plot(url: str) -> None:
    """The plot that a notebook shows of the newest periods."""
    with connect(url) as client, client.table("Periods") as table:
        plot = RowPlot(table, "volume", "window_end", "symbol").render()
    path = PICTURES / "notebook-plot.svg"
    path.write_text(plot.replace("<svg ", '<svg style="background: #fff" ', 1) + "\n")
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        InProcessBroker(Path(folder), PROGRAM, name="exchange.smile") as broker,
        trading(broker),
        open_browser() as browser,
    ):
        time.sleep(WARM_UP_S)
        save_notebook_plot(broker.url)
        with shown(browser, broker.url, "views/Periods") as page:
            page.locator("tbody tr").nth(2).locator("td").nth(3).click()
            page.wait_for_timeout(8000)
            save(page, "view")
        with shown(browser, broker.url, "views/Periods", color_scheme="dark") as page:
            page.locator("tbody tr").nth(2).locator("td").nth(3).click()
            page.wait_for_timeout(11_000)
            save(page, "dark")
        with shown(browser, broker.url, "program") as page:
            page.locator(".node.view").last.click()
            page.wait_for_timeout(1000)
            save(page, "program")
        with shown(browser, broker.url, "views/Periods", viewport={"width": 390, "height": 760}) as page:
            page.wait_for_timeout(1000)
            save(page, "phone")


if __name__ == "__main__":
    main()
