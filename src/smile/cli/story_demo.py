"""`smile demo NAME` with a story: a broker, the events of the story, and its steps beside the view that they are about.

In a terminal the view is a live table; otherwise lines say what it shows. The console of the broker has the steps as a
tour.
"""

import asyncio
import sys
import tempfile
import textwrap
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from smile.cli.demo_console import show_consoles
from smile.cli.view_display import NON_ROW_LINES, ViewDisplay
from smile.client import AsyncClient, AsyncTable, connect_async
from smile.demo.broker_process import BrokerProcess, example_program, running_broker
from smile.demo.player import Player
from smile.demo.stories import STORIES
from smile.demo.story import Step, Story
from smile.demo.tours import TourFile
from smile.demo.trade_floor import Bidders, FloorClients, FloorMetrics, FloorSettings, Matcher
from smile.errors import error

REFRESH_S = 0.2
LINE_S = 3.0
LINE_ROWS = 3
"""Rows that are printed at once if there is no terminal."""
MATCHERS = 4
RATE_DEFAULT = 8.0
"""Bids a second: enough to watch, and few enough to read."""
MATCH_PAUSE_S = 1.5
"""How long a matcher looks at a pair by default, so that people see it too."""
TEXT_WIDTH_MAX = 100


@dataclass
class RunningStory:
    """A story on a broker. `metrics` are those of simulated users, if it has any."""

    story: Story
    process: BrokerProcess
    player: Player
    tables: Mapping[str, AsyncTable]
    is_on_spark: bool
    metrics: FloorMetrics | None = None
    displays: dict[str, ViewDisplay] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for view, table in self.tables.items():
            self.displays[view] = display = ViewDisplay(table, lambda: self.player.client.connected, time.time)
            table.changed(display.record_changes)

    @property
    def events(self) -> int:
        return self.player.events + (self.metrics.events if self.metrics else 0)

    def heading(self) -> tuple[str, Step]:
        number, step = self.player.step
        return f"{self.story.title} · {number + 1} of {len(self.story.steps)} · {step.title}", step

    def footer(self) -> str:
        return f"{self.events_text()} · console: {self.process.url} · Ctrl-C ends"

    def events_text(self) -> str:
        is_starting = self.is_on_spark and not self.process.ready.is_set()
        return f"{self.events:,} events" + (" · Spark is starting" if is_starting else "")

    def summary(self) -> list[str]:
        seconds = time.monotonic() - self.player.started_at
        lines = [f"{self.story.title}: {self.events:,} events in {seconds:.1f} s"]
        for view, table in self.tables.items():
            final = sum(row.final for row in table.rows)
            lines.append(f"{view}: {_row_count(table)}, {final:,} final")
        lines += [floor_summary(self.metrics)] if self.metrics else []
        return [*lines, *([self.player.absence_text] if self.player.absence_text else [])]


def run_story(name: str, seconds: float | None, engine: str, rate: float | None, opens_browser: bool) -> None:
    story = STORIES[name]
    with tempfile.TemporaryDirectory(prefix="smile-demo-") as folder:
        program, tour = Path(folder) / story.program, TourFile(Path(folder) / "tour.json", story.tour())
        program.write_text(story.program_text(example_program(story.program).read_text()))
        tour.lead(0)
        data = Path(folder) / "data"
        data.mkdir()
        options = ["--listen", "127.0.0.1:0", "--flight", "", "--engine", engine, "--tour", str(tour.path)]
        with running_broker(program, data, options) as process:
            print(f"try: smile subscribe {story.steps[0].view} --url {process.url}")
            show_consoles({program.stem: process.url}, program.stem, opens_browser)
            asyncio.run(_play(story, process, tour, seconds, engine == "spark", rate))


async def _lead_tour(tour: TourFile, player: Player) -> None:
    """Says in the tour which step the story is at, so that the console follows it."""
    led = 0
    while True:
        number, _ = player.step
        if number != led:
            await asyncio.to_thread(tour.lead, number)
            led = number
        await asyncio.sleep(REFRESH_S)


def _row_count(table: AsyncTable) -> str:
    return f"{len(table):,} {'row' if len(table) == 1 else 'rows'}"


async def _play(
    story: Story, process: BrokerProcess, tour: TourFile, seconds: float | None, is_on_spark: bool, rate: float | None
) -> None:
    clients = [await connect_async(process.url) for _ in range(MATCHERS + 1)]
    views = dict.fromkeys(step.view for step in story.steps)
    tables = {view: await clients[0].table(view) for view in views}
    player = Player(story, clients[0], SystemRandom())
    running = RunningStory(story, process, player, tables, is_on_spark)
    coroutines = [player.run(), _lead_tour(tour, player)]
    if story is STORIES["tradefloor"]:
        running.metrics = FloorMetrics()
        coroutines += _trade(clients, running.metrics, rate)
    shows_table = sys.stdout.isatty()
    coroutines.append(_show(running) if shows_table else _print_lines(running))
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            raise error("E103", "the story ended by itself")
    except asyncio.CancelledError:
        pass  # Ctrl-C: the summary is printed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print("\n".join(running.summary()), flush=True)
        for client in clients:
            await client.close()


def _trade(
    clients: Sequence[AsyncClient], metrics: FloorMetrics, rate: float | None
) -> list[Coroutine[Any, Any, None]]:
    """Simulated bidders, and matchers that share the issues. At a rate of their own, matchers do not pause."""
    settings = FloorSettings(issues=12, prices=4, rate=rate or RATE_DEFAULT)
    issues = [settings.issue_name(number) for number in range(settings.issues)]
    pause_s = MATCH_PAUSE_S if rate is None else 0.0
    bidders = Bidders(FloorClients.of_one_broker(clients[0]), settings, metrics)
    matchers = [
        Matcher(FloorClients.of_one_broker(client), issues[number::MATCHERS], metrics, pause_s)
        for number, client in enumerate(clients[1:])
    ]
    return [bidders.run(), *(matcher.run() for matcher in matchers)]


def floor_summary(metrics: FloorMetrics) -> str:
    """What simulated users have done."""
    p50, p99 = metrics.latency_quantile(0.5), metrics.latency_quantile(0.99)
    seconds = metrics.seconds
    parts = [
        f"{metrics.matches:,} matches of {metrics.shares:,} shares in {seconds:.1f} s",
        f"{metrics.matches / seconds:,.1f} matches/s",
    ]
    if p50 is not None and p99 is not None:
        parts.append(f"seen after {1000 * p50:,.0f} ms, 99th {1000 * p99:,.0f} ms")
    return "; ".join(parts)


async def _show(running: RunningStory) -> None:
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(render(running, console.width, console.height), refresh=True)
            await asyncio.sleep(REFRESH_S)


def render(running: RunningStory, width: int, height: int) -> Group:
    """The step, the view that it is about, and what goes on."""
    heading, step = running.heading()
    text = textwrap.wrap(step.text, min(width, TEXT_WIDTH_MAX))
    absence = running.player.absence_text
    lines = [Text(heading, style="bold"), *map(Text, text), Text()]
    ends = [Text(line, no_wrap=True, overflow="ellipsis", style=style)
            for line, style in ((absence, "cyan"), (running.footer(), "dim")) if line]  # fmt: skip
    room = max(NON_ROW_LINES + 1, height - len(lines) - len(ends))
    return Group(*lines, running.displays[step.view].render(width, room), *ends)


async def _print_lines(running: RunningStory) -> None:
    """Prints each step once, and at intervals the rows that have changed last."""
    printed = ""
    while True:
        heading, step = running.heading()
        if heading != printed:
            printed = heading
            print(f"\n{heading}\n{step.text}", flush=True)
        await asyncio.sleep(LINE_S)
        table = running.tables[step.view]
        rows = running.displays[step.view].recent_rows(LINE_ROWS)
        print(f"{step.view}: {_row_count(table)} · {running.events_text()}", flush=True)
        for row in rows:
            print(f"  {row}", flush=True)
        if running.player.absence_text:
            print(f"  {running.player.absence_text}", flush=True)
