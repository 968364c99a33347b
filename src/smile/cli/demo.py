"""`smile demo`: a broker with its views on Spark, simulated bidders and matchers as its clients, and what they see."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smile.cli.client import errors_told
from smile.cli.options import Engine, EngineOption
from smile.errors import error

if TYPE_CHECKING:
    from smile.client import AsyncTable
    from smile.demo.floor import Figures, Floor

PROGRAM = "tradefloor.smile"
RATE = 400.0
"""Bids a second: enough to see much happen, and little for a machine to do."""
PICTURES_S = 0.2
LINES_S = 5.0
MATCHERS = 4


def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, metavar="N", help="End by itself, with a summary.")
    ] = None,
    engine: EngineOption = Engine.spark,
    rate: Annotated[float, typer.Option("--rate", min=1, metavar="R", help="Bids a second.")] = RATE,
) -> None:
    """Run the trading floor: a broker on Spark, simulated bidders and matchers, a live table of what can be matched.

    Bidders publish bids; four matchers subscribe to Matchable, each for its own issues, and publish matches. Everything
    goes through the broker, as it would with people. Ctrl-C ends it.

    Example: smile demo --seconds 30
    """
    from smile.demo.floor import Figures, Floor  # noqa: PLC0415  # asyncio takes a while to load
    from smile.demo.process import broker, program  # noqa: PLC0415

    figures, floor = Figures(), Floor(issues=40, prices=10, rate=rate)
    with errors_told(), tempfile.TemporaryDirectory(prefix="smile-demo-") as folder:
        options = ["--listen", "127.0.0.1:0", "--flight", "", "--engine", engine.value]
        print("starting a broker…" + (" Spark takes some ten to thirty seconds." if engine is Engine.spark else ""))
        with broker(program(PROGRAM), Path(folder), options) as process:
            process.wait_until_ready()
            print(
                f"the broker is at {process.url}; look for yourself: smile subscribe RemainingBuy --url {process.url}"
            )
            try:
                asyncio.run(_run(process.url, floor, figures, seconds))
            except KeyboardInterrupt:
                pass
            finally:
                if figures.events:
                    print(summary(figures))


async def _run(url: str, floor: "Floor", figures: "Figures", seconds: float | None) -> None:
    from smile.client import connect_async  # noqa: PLC0415
    from smile.demo.floor import Bidders, Matcher  # noqa: PLC0415

    issues = [floor.issue(number) for number in range(floor.issues)]
    clients = [await connect_async(url) for _ in range(MATCHERS + 1)]
    people = [Bidders(clients[0], floor, figures).run()]
    for number, client in enumerate(clients[1:]):
        people.append(Matcher(client, issues[number::MATCHERS], figures).run())
    tasks = [asyncio.create_task(one) for one in people]
    table = await clients[0].table("Matchable")
    figures.began = time.time()
    tasks.append(asyncio.create_task(_show(table, figures)))
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


async def _show(table: "AsyncTable", figures: "Figures") -> None:
    if not sys.stdout.isatty():
        while True:
            await asyncio.sleep(LINES_S)
            print(f"{len(table):,} pairs can be matched; {summary(figures)}", flush=True)
    from rich.console import Console, Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from smile.cli.live import Picture  # noqa: PLC0415

    console = Console()
    picture = Picture(table, lambda: True, time.time)
    table.changed(picture.touch)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            shown = picture.table(console.width, console.height - 1)
            live.update(Group(shown, Text(summary(figures), style="bold")), refresh=True)
            await asyncio.sleep(PICTURES_S)


def summary(figures: "Figures") -> str:
    half, most = figures.latency(0.5), figures.latency(0.99)
    seconds = figures.seconds
    told = [
        f"{figures.events:,} events and {figures.matches:,} matches of {figures.shares:,} shares in {seconds:.1f} s",
        f"{figures.matches / seconds:,.1f} matches/s",
    ]
    if half is not None and most is not None:
        told.append(f"seen after {1000 * half:,.0f} ms, 99th {1000 * most:,.0f} ms")
    return "; ".join(told)


def register(app: typer.Typer) -> None:
    app.command()(demo)
