"""`smile demo grid`: sensors of several sites, republishers in layers that follow from their registrations, and a
consumer. Republishers can be killed, and the terminal shows who asks whom for what."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from smile.cli.demo_console import show_consoles
from smile.cli.grid_display import GridBroker, GridDisplay, condition_text
from smile.cli.live_demo import connected_clients, pressed_keys
from smile.cli.log_comparison import Comparison, compare_logs
from smile.cli.view_display import ViewDisplay
from smile.client import AsyncTable
from smile.client.address import BrokerAddress
from smile.client.connection import http_request
from smile.demo.broker_network import GRID, RunningNetwork
from smile.demo.grid import RELATION, SENSORS, Sensors, SensorTotals
from smile.demo.tours import GRID as GRID_TOUR, GRID_KILLED, GRID_REVIVED, TourFile
from smile.errors import SmileError, error

RATE_DEFAULT = 60.0
"""Events a second of all sensors: enough to watch."""
REPUBLISHERS = ("r1", "r2", "r3")
CONSUMER, VIEW = "desk", "Channels"
KILLED = "r3"
"""Without a terminal, this republisher is killed and revived once. The consumer uses it."""
POLL_S = 0.3
REFRESH_S = 0.2
LINE_S = 2.0
KILL_AFTER_S = 10.0
"""Without a terminal and without an end: when the republisher is killed, and for how long."""
SETTLE_S_MAX = 60.0
"""How long the end waits until everything that was published has arrived."""
QUIET_S = 1.0
"""Everything has arrived if nothing more comes for this time."""
NEWS_MAX = 2

Json = dict[str, Any]


def run_grid_demo(seconds: float | None, engine: str, rate: float | None, opens_browser: bool) -> None:
    """`engine` is that of the consumer. Other brokers have no views that are watched."""
    with tempfile.TemporaryDirectory(prefix="smile-demo-") as folder:
        tour = TourFile(Path(folder) / "tour.json", GRID_TOUR.to_json())
        tour.lead(0)
        plan = replace(GRID, options={**GRID.options, CONSUMER: ("--engine", engine, "--tour", str(tour.path))})
        wait = " Spark takes some ten to thirty seconds." if engine == "spark" else ""
        print(f"starting the sensors' brokers and {CONSUMER}; republishers join while you watch…{wait}", flush=True)
        common = ["--engine", "local"]
        with RunningNetwork(plan, Path(folder), common, has_proxies=False, later=REPUBLISHERS) as network:
            network.wait_until_ready()
            show_consoles(network.urls(), CONSUMER, opens_browser)
            print(f"try: smile registry --url {network.urls()[CONSUMER]}", flush=True)
            demo = GridDemo(network, seconds, rate or RATE_DEFAULT, tour)
            try:
                asyncio.run(demo.run())
            except KeyboardInterrupt:
                pass
            finally:
                if demo.totals.published:
                    print("waiting for what is still on its way…", flush=True)
                    asyncio.run(demo.settle())
                    for line in demo.summary_lines():
                        print(line)


@dataclass
class RepublisherKill:
    """What happened when a republisher was killed. `before` is whom every broker that asked it asked then. Times are
    seconds since 1970."""

    name: str
    killed_at: float
    received: int
    """What the consumer had received."""
    before: Mapping[str, Any]
    replanned_at: float | None = None
    revived_at: float | None = None
    received_meanwhile: int = 0

    def summary(self) -> str:
        end = time.time() if self.revived_at is None else self.revived_at
        askers = ", ".join(self.before) or "nobody"
        text = f"{self.name} was killed for {end - self.killed_at:.1f} s: {askers} had asked it"
        if self.before and self.replanned_at is not None:
            text += f", and asked others after {self.replanned_at - self.killed_at:.1f} s"
        return f"{text}; {self.received_meanwhile:,} events arrived meanwhile"


@dataclass
class GridDemo:
    """Sensors on a running grid, and what the terminal shows of it. Without a terminal it prints lines."""

    network: RunningNetwork
    seconds: float | None
    rate: float
    tour: TourFile
    totals: SensorTotals = field(default_factory=SensorTotals)
    received: int = 0
    """Events that the view of the consumer has counted."""
    kills: list[RepublisherKill] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    brokers: dict[str, GridBroker] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    _starting: set[str] = field(default_factory=lambda: {*REPUBLISHERS})
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _is_formed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the consumer asks the republisher of everything."""
    _has_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        names = (*SENSORS, CONSUMER)
        urls = self.network.urls()
        async with connected_clients({name: urls[name] for name in names}) as clients:
            table = await clients[CONSUMER].table(VIEW)
            await self._poll_once(table)
            self.totals.started_at = time.time()
            work = [
                Sensors(clients, self.rate, self.totals, self._has_ended).run(),
                self._poll(table),
                self._start_republishers(),
                self._draw(table) if sys.stdout.isatty() else self._print_lines(),
                self._wait_for_end(),
            ]
            tasks = [asyncio.ensure_future(part) for part in work]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                    if not self._has_ended.is_set():
                        raise error("E103", "the simulation ended by itself")
                self._has_ended.set()
                await tasks[0]
            finally:
                for task in [*tasks, *self._tasks]:
                    task.cancel()
                await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)

    async def _wait_for_end(self) -> None:
        """`seconds` count from when the hierarchy has formed."""
        await self._is_formed.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), self.seconds)
        self._has_ended.set()

    async def _start_republishers(self) -> None:
        """They register, and the hierarchy forms."""
        for name in REPUBLISHERS:
            await asyncio.to_thread(self.network.start_later, name)
            self._starting.discard(name)
            self._tell(f"{name} is started: {self.network.urls()[name]}")
        await self._has_ended.wait()

    async def settle(self) -> None:
        """Waits until the consumer has everything, and compares the logs."""
        url = self.network.urls()[CONSUMER]
        plans = (await _report(url, "/registry"))["plans"]
        async with connected_clients({CONSUMER: url}) as clients:
            table = await clients[CONSUMER].table(VIEW)
            deadline = changed_at = time.monotonic()
            deadline += SETTLE_S_MAX
            while time.monotonic() < deadline:
                received = _count(table)
                if received != self.received:
                    self.received, changed_at = received, time.monotonic()
                elif received >= self.totals.published.total() and time.monotonic() - changed_at >= QUIET_S:
                    break
                await asyncio.sleep(POLL_S)
        logs = {name: process.data / "log" for name, process in self.network.brokers.items()}
        self.comparisons = compare_logs(RELATION, [logs[name] for name in SENSORS], logs[CONSUMER], plans)

    # ── killing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill_of(self, name: str) -> RepublisherKill | None:
        """The present kill of a republisher."""
        return next((kill for kill in self.kills if kill.name == name and kill.revived_at is None), None)

    def toggle(self, name: str) -> None:
        """Kills a republisher, or starts it again."""
        kill = self.kill_of(name)
        if kill is None and name not in self._starting:
            before = {n: b.asked for n, b in self.brokers.items() if n != name and _asks(b, name)}
            self.network.brokers[name].kill()
            self.kills.append(RepublisherKill(name, time.time(), self.received, before))
            self._tell(f"{name} is killed")
            self.tour.lead(GRID_KILLED)
        elif kill is not None:
            kill.revived_at, kill.received_meanwhile = time.time(), self.received - kill.received
            self._starting.add(name)
            task = asyncio.ensure_future(self._revive(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _revive(self, name: str) -> None:
        self._tell(f"{name} is started again")
        self.tour.lead(GRID_REVIVED)
        try:
            await asyncio.to_thread(self.network.restart, name)
        finally:
            self._starting.discard(name)

    def press(self, key: str) -> None:
        if key.isdigit() and 1 <= int(key) <= len(REPUBLISHERS):
            self.toggle(REPUBLISHERS[int(key) - 1])
        elif key in "qQ":
            self._has_ended.set()

    def _tell(self, news: str) -> None:
        self.news.append(f"{self._elapsed()}  {news}")
        if not sys.stdout.isatty():
            print(self.news[-1], flush=True)

    # ── polling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _poll(self, table: AsyncTable) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._poll_once(table)

    async def _poll_once(self, table: AsyncTable) -> None:
        self.received = _count(table)
        names = (*REPUBLISHERS, CONSUMER)
        for name, broker in zip(names, await asyncio.gather(*map(self._ask, names)), strict=True):
            before, self.brokers[name] = self.brokers.get(name), broker
            for where, asked in broker.asked.items():
                if asked and (before is None or before.asked.get(where) != asked):
                    who = f"{name} (for {condition_text(where)})" if name == CONSUMER else f"{name.upper()}@{name}"
                    self._tell(f"{who} asks {', '.join(asked)}")
        if _asks(self.brokers[CONSUMER], KILLED):
            self._is_formed.set()
        for kill in self.kills:
            is_asked = any(_asks(self.brokers[name], kill.name) for name in kill.before)
            if kill.replanned_at is None and kill.revived_at is None and not is_asked:
                kill.replanned_at = time.time()

    async def _ask(self, name: str) -> GridBroker:
        """What a broker says of itself."""
        key = str(REPUBLISHERS.index(name) + 1) if name in REPUBLISHERS else ""
        kill = self.kill_of(name)
        if kill is not None:
            return GridBroker(name, key, None, None, time.time() - kill.killed_at)
        if name in self._starting:
            return GridBroker(name, key, None, None)
        url = self.network.urls()[name]
        with suppress(SmileError):
            return GridBroker(name, key, await _report(url, "/registry"), await _report(url, "/status"))
        return GridBroker(name, key, None, None)

    # ── showing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _draw(self, table: AsyncTable) -> None:
        console = Console()
        rows = ViewDisplay(table, lambda: table.error is None, time.time)
        table.changed(rows.record_changes)
        display = GridDisplay(rows)
        keys = f"keys: 1-{len(REPUBLISHERS)} kill or revive a republisher, q ends"
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live, pressed_keys(self.press):
            while True:
                lines = [*self.news[-NEWS_MAX:], self.totals_text(), keys]
                size = console.width, console.height - 1
                live.update(display.render(list(self.brokers.values()), lines, size), refresh=True)
                await asyncio.sleep(REFRESH_S)

    async def _print_lines(self) -> None:
        """Prints a line every few seconds. Kills a republisher for the middle third of the time, and revives it."""
        third_s = KILL_AFTER_S if self.seconds is None else self.seconds / 3
        toggles = [third_s, 2 * third_s]
        formed_at = None
        while True:
            if formed_at is None and self._is_formed.is_set():
                formed_at = time.time()
            elapsed_s = 0.0 if formed_at is None else time.time() - formed_at
            if toggles and elapsed_s >= toggles[0]:
                toggles.pop(0)
                self.toggle(KILLED)
            else:
                print(f"{self._elapsed()}  {self.totals_text()}", flush=True)
            due_s = min([LINE_S, *(toggle - elapsed_s for toggle in toggles[:1])])
            await asyncio.sleep(max(0.05, due_s))

    def _elapsed(self) -> str:
        return f"{time.time() - self.totals.started_at:5.1f} s"

    def totals_text(self) -> str:
        published = " + ".join(f"{self.totals.published[site]:,} of {site}" for site in SENSORS)
        return f"published {published}; {CONSUMER} has received {self.received:,}"

    def summary_lines(self) -> list[str]:
        return [
            self.totals_text(),
            *(kill.summary() for kill in self.kills),
            "the log of desk compared with those of the producers:",
            *map(str, self.comparisons),
        ]


def _asks(broker: GridBroker, other: str) -> bool:
    return any(source["broker"] == other for plan in broker.plans for source in plan["sources"])


def _count(table: AsyncTable) -> int:
    return sum(int(row.row["n"]) for row in table.rows)


async def _report(url: str, path: str) -> Json:
    answer: Json = json.loads(await http_request(BrokerAddress.resolve(url), "GET", path))
    return answer
