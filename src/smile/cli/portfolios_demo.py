"""`smile demo portfolios`: quotes are published in transactions of a database, while portfolios there change."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from random import SystemRandom
from threading import Event, Thread
from typing import Any

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from smile.cli.demo_console import show_consoles
from smile.cli.program_client import ProgramClient
from smile.client.address import BrokerAddress
from smile.demo.broker_process import BrokerProcess
from smile.demo.portfolios import PROGRAM, VIEW, Market, PortfolioRow, count_differences, read_portfolios
from smile.demo.postgres_server import running_postgres
from smile.demo.tours import PORTFOLIOS, TourFile
from smile.errors import SmileError, error
from smile.postgres.connection import open_database
from smile.postgres.schema.install import install
from smile.source import Source

RATE_DEFAULT = 40.0
"""Transactions a second: enough to watch."""
REFRESH_S = 0.25
LINE_S = 2.0
UNKNOWN = "E021"
SETTLE_S_MAX = 30.0
"""How long the end waits until everything that was published has been delivered."""

_Connection = psycopg.Connection[tuple[Any, ...]]


def run_portfolios_demo(
    seconds: float | None, engine: str, rate: float | None, database: str | None, opens_browser: bool
) -> None:
    """Without `database`, a private server is started."""
    if database is None:
        print("starting a PostgreSQL server and a broker…", flush=True)
    with nullcontext(database) if database else running_postgres("-c max_connections=20") as url:
        with open_database(url) as connection:
            install(connection)
        with (
            psycopg.connect(url) as trading,
            psycopg.connect(url, autocommit=True) as reading,
            _broker(url, engine) as broker,
        ):
            market = Market(trading, SystemRandom().getrandbits(32))
            market.set_up()
            print(f"the database is at {url}; try: psql '{url}' -c 'TABLE smile.subscriptions'")
            _add_view(broker.url)
            show_consoles({"portfolios": broker.url}, "portfolios", opens_browser)
            with _trading(market, rate or RATE_DEFAULT) as check, suppress(KeyboardInterrupt):
                _watch(market, reading, seconds, check)
            _print_summary(market, reading)


@contextmanager
def _broker(url: str, engine: str) -> Iterator[BrokerProcess]:
    with tempfile.TemporaryDirectory(prefix="smile-demo-") as folder:
        program = Path(folder) / "portfolios.smile"
        program.write_text(PROGRAM)
        tour = TourFile(Path(folder) / "tour.json", PORTFOLIOS.to_json())
        tour.lead()
        options = ["--listen", "127.0.0.1:0", "--flight", "", "--engine", engine, "--tour", str(tour.path)]
        process = BrokerProcess(program, Path(folder), options, {"SMILE_POSTGRES_URL": url})
        process.start()
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.stop_if_running()


def _add_view(url: str) -> None:
    """A view for the console. The broker has the stream shortly after the database has the event type."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    with ProgramClient(BrokerAddress.resolve(url)) as programs:
        while True:
            try:
                programs.add_views(Source("view", VIEW))
                return
            except SmileError as problem:
                if problem.diagnostics[0].code != UNKNOWN or time.monotonic() > deadline_s:
                    raise
            time.sleep(REFRESH_S)


@contextmanager
def _trading(market: Market, rate: float) -> Iterator[Callable[[], None]]:
    """Transactions in a thread. What is yielded raises an error if the thread has failed."""
    has_ended, problems = Event(), list[Exception]()

    def trade() -> None:
        try:
            while not has_ended.wait(1 / rate):
                market.step()
        except Exception as problem:  # noqa: BLE001  # whatever it is, the demo ends with it
            problems.append(problem)

    def check() -> None:
        if problems:
            raise error("E162", f"the database has failed: {problems[0]}")

    thread = Thread(target=trade, daemon=True)
    thread.start()
    try:
        yield check
    finally:
        has_ended.set()
        thread.join()


def _watch(market: Market, reading: _Connection, seconds: float | None, check: Callable[[], None]) -> None:
    end_s = None if seconds is None else time.monotonic() + seconds
    is_terminal, console = sys.stdout.isatty(), Console()
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop") if is_terminal else nullcontext()
    with live:
        while end_s is None or time.monotonic() < end_s:
            check()
            rows = read_portfolios(reading)
            if isinstance(live, Live):
                live.update(_render(market, rows), refresh=True)
            else:
                received = ", ".join(f"{row.name} {row.noted:,}" for row in rows)
                print(f"{_totals(market)}; received: {received}", flush=True)
            time.sleep(REFRESH_S if is_terminal else LINE_S)


def _render(market: Market, rows: list[PortfolioRow]) -> Group:
    table = Table(box=None, pad_edge=False)
    for title, justify in (("portfolio", "left"), ("holds", "left"), ("quotes received", "right"), ("last", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]  # a literal
    for row in rows:
        table.add_row(row.name, " ".join(row.symbols) or "nothing", f"{row.noted:,}", row.last)
    lines: list[Text | Table] = [
        Text("Each portfolio is a subscription with a filter on the table of portfolios:"),
        Text("  StockQuote WHERE symbol IN (SELECT symbol FROM portfolios WHERE portfolio = …)", style="dim"),
        Text(""),
        table,
        Text(""),
        *(Text(change, style="cyan") for change in market.figures.changes),
        Text(""),
        Text(_totals(market), style="bold"),
    ]
    return Group(*lines)


def _totals(market: Market) -> str:
    figures = market.figures
    return f"{figures.published:,} quotes committed, {figures.rolled_back:,} rolled back, which nobody receives"


def _print_summary(market: Market, reading: _Connection) -> None:
    deadline_s = time.monotonic() + SETTLE_S_MAX
    noted, missing, surplus = count_differences(reading)
    while missing and time.monotonic() < deadline_s:
        time.sleep(REFRESH_S)
        noted, missing, surplus = count_differences(reading)
    print(_totals(market))
    if missing or surplus:
        raise error("E162", f"{missing:,} quotes are missing, and {surplus:,} were received by others")
    print(f"every quote reached exactly the portfolios that held its symbol then, once: {noted:,} deliveries")
