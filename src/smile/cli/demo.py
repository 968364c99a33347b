"""`smile demo`: the trading floor with simulated bidders and matchers, on one broker or on a network of four."""

import asyncio
import signal
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smile.cli.client import report_errors
from smile.cli.options import EngineKind
from smile.errors import error

if TYPE_CHECKING:
    from smile.client import AsyncTable
    from smile.demo.trade_floor import FloorMetrics, FloorSettings

PROGRAM = "tradefloor.smile"
RATE_DEFAULT = 400.0
"""Bids a second: enough activity to watch, and a light load for a machine."""
REFRESH_S = 0.2
SUMMARY_S = 5.0
MATCHERS = 4


class DemoName(StrEnum):
    tradefloor = "tradefloor"
    network = "network"


def demo(
    name: Annotated[
        DemoName,
        typer.Argument(
            metavar="[NAME]",
            help="tradefloor: one broker, on Spark unless --engine is given. network: four brokers, without Spark "
            "unless --engine is given; keys cut and heal the links between them.",
        ),
    ] = DemoName.tradefloor,
    seconds: Annotated[float | None, typer.Option("--seconds", min=1, metavar="N", help="End after N seconds.")] = None,
    engine: Annotated[
        EngineKind | None, typer.Option("--engine", help="spark: pipelines on Spark. local: without Java.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=1, metavar="R", help="Bids a second.")] = None,
) -> None:
    """Run the trading floor: simulated bidders and matchers, and a live table of what can be matched.

    Bidders publish bids; matchers subscribe to Matchable, each for its own issues, and publish matches. They
    communicate only through the broker, or the four brokers of the network. Ctrl-C ends the demo; a summary is printed
    at the end. Without a terminal, the demo prints lines, and the network cuts and heals a link by itself.

    Example: smile demo network --seconds 30
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # otherwise the brokers would outlive the demo
    with report_errors():
        if name is DemoName.network:
            from smile.cli.network_demo import run_network_demo  # noqa: PLC0415  # slow to import

            run_network_demo(seconds, (engine or EngineKind.local).value, rate)
        else:
            _run_trade_floor(seconds, engine or EngineKind.spark, rate or RATE_DEFAULT)


def _run_trade_floor(seconds: float | None, engine: EngineKind, rate: float) -> None:
    from smile.demo.broker_process import example_program, running_broker  # noqa: PLC0415
    from smile.demo.trade_floor import FloorMetrics, FloorSettings  # noqa: PLC0415  # asyncio is slow to import

    metrics, settings = FloorMetrics(), FloorSettings(issues=40, prices=10, rate=rate)
    with tempfile.TemporaryDirectory(prefix="smile-demo-") as folder:
        options = ["--listen", "127.0.0.1:0", "--flight", "", "--engine", engine.value]
        print("starting a broker…" + (" Spark takes some ten to thirty seconds." if engine is EngineKind.spark else ""))
        with running_broker(example_program(PROGRAM), Path(folder), options) as process:
            process.wait_until_ready()
            print(f"the broker is at {process.url}; try: smile subscribe RemainingBuy --url {process.url}")
            try:
                asyncio.run(_run_simulation(process.url, settings, metrics, seconds))
            except KeyboardInterrupt:
                pass
            finally:
                if metrics.events:
                    print(summary_text(metrics))


async def _run_simulation(url: str, settings: "FloorSettings", metrics: "FloorMetrics", seconds: float | None) -> None:
    from smile.client import connect_async  # noqa: PLC0415
    from smile.demo.trade_floor import Bidders, FloorClients, Matcher  # noqa: PLC0415

    issues = [settings.issue_name(number) for number in range(settings.issues)]
    clients = [await connect_async(url) for _ in range(MATCHERS + 1)]
    participants = [Bidders(FloorClients.of_one_broker(clients[0]), settings, metrics).run()]
    for number, client in enumerate(clients[1:]):
        participants.append(Matcher(FloorClients.of_one_broker(client), issues[number::MATCHERS], metrics).run())
    tasks = [asyncio.create_task(participant) for participant in participants]
    table = await clients[0].table("Matchable")
    metrics.started_at = time.time()
    tasks.append(asyncio.create_task(_show_table(table, metrics)))
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            raise error("E103", "the simulation ended by itself")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()


async def _show_table(table: "AsyncTable", metrics: "FloorMetrics") -> None:
    if not sys.stdout.isatty():
        while True:
            await asyncio.sleep(SUMMARY_S)
            print(f"{len(table):,} pairs can be matched; {summary_text(metrics)}", flush=True)
    from rich.console import Console, Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from smile.cli.view_display import ViewDisplay  # noqa: PLC0415

    console = Console()
    display = ViewDisplay(table, lambda: True, time.time)
    table.changed(display.record_changes)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            rendered = display.render(console.width, console.height - 1)
            live.update(Group(rendered, Text(summary_text(metrics), style="bold")), refresh=True)
            await asyncio.sleep(REFRESH_S)


def summary_text(metrics: "FloorMetrics") -> str:
    p50, p99 = metrics.latency_quantile(0.5), metrics.latency_quantile(0.99)
    seconds = metrics.seconds
    parts = [
        f"{metrics.events:,} events and {metrics.matches:,} matches of {metrics.shares:,} shares in {seconds:.1f} s",
        f"{metrics.matches / seconds:,.1f} matches/s",
    ]
    if p50 is not None and p99 is not None:
        parts.append(f"seen after {1000 * p50:,.0f} ms, 99th {1000 * p99:,.0f} ms")
    return "; ".join(parts)


def register(app: typer.Typer) -> None:
    app.command()(demo)
