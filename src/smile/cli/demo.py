"""`smile demo`: a story on one broker, the trading floor on a network of four, a grid of republishers, or a broker with
a database."""

import signal
from enum import StrEnum
from typing import Annotated

import typer

from smile.cli.client import report_errors
from smile.cli.options import EngineKind
from smile.extras import require_extra


class DemoName(StrEnum):
    stocks = "stocks"
    tradefloor = "tradefloor"
    scoreboard = "scoreboard"
    flights = "flights"
    sensors = "sensors"
    network = "network"
    grid = "grid"
    portfolios = "portfolios"


def demo(
    name: Annotated[
        DemoName,
        typer.Argument(
            metavar="[NAME]",
            help="stocks, tradefloor, scoreboard, flights, sensors: a story of a minute on one broker, on Spark unless "
            "--engine is given. network: the trading floor on four brokers, without Spark unless --engine is given; "
            "keys cut and heal the links between them. grid: sensors of three sites, republishers that keys kill and "
            "revive, and a consumer. portfolios: quotes that are published in transactions of a "
            "PostgreSQL database, and portfolios there that change.",
        ),
    ] = DemoName.stocks,
    seconds: Annotated[float | None, typer.Option("--seconds", min=1, metavar="N", help="End after N seconds.")] = None,
    engine: Annotated[
        EngineKind | None, typer.Option("--engine", help="spark: pipelines on Spark. local: without Java.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=1,
            metavar="R",
            help="tradefloor, network: bids a second. grid: measurements. portfolios: transactions.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", help="portfolios: an empty database [default: a private server]."),
    ] = None,
    browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser",
            help="Open the console in a browser, if there is a display. network: that of the broker floor.",
        ),
    ] = True,
) -> None:
    """Run a demo: a broker, simulated publishers, and live tables of views with an explanation of what happens.

    The five stories take a minute each, and begin again until Ctrl-C. A summary is printed at the end. Without a
    terminal, a demo prints lines, the network cuts and heals a link by itself, and the grid kills and revives a
    republisher.

    Example: smile demo stocks --seconds 60
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # otherwise the brokers would outlive the demo
    without_spark = (DemoName.network, DemoName.grid, DemoName.portfolios)
    on_spark = engine is EngineKind.spark or (engine is None and name not in without_spark)
    with report_errors():
        require_extra("spark" if on_spark else "broker")  # of the brokers that it starts
        if name is DemoName.network:
            from smile.cli.network_demo import run_network_demo  # noqa: PLC0415  # slow to import

            run_network_demo(seconds, (engine or EngineKind.local).value, rate, browser)
        elif name is DemoName.grid:
            from smile.cli.grid_demo import run_grid_demo  # noqa: PLC0415  # slow to import

            run_grid_demo(seconds, (engine or EngineKind.local).value, rate, browser)
        elif name is DemoName.portfolios:
            from smile.cli.portfolios_demo import run_portfolios_demo  # noqa: PLC0415  # slow to import

            run_portfolios_demo(seconds, (engine or EngineKind.local).value, rate, database, browser)
        else:
            from smile.cli.story_demo import run_story  # noqa: PLC0415  # slow to import

            run_story(name.value, seconds, (engine or EngineKind.spark).value, rate, browser)


def register(app: typer.Typer) -> None:
    app.command()(demo)
