"""`smile demo network`: the trading floor on four brokers. Links can be cut, and the terminal shows who knows what."""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from smile.cli.demo_console import show_consoles
from smile.cli.live_demo import connected_clients, pressed_keys
from smile.cli.network_display import LATE_S, LinkView, NetworkDisplay, broker_horizons, views_behind_s
from smile.cli.view_display import ViewDisplay, age_text
from smile.client import AsyncClient, AsyncTable
from smile.client.ticks import TICKS_PER_SECOND
from smile.demo.broker_network import TRADE_FLOOR, NetworkLink, RunningNetwork
from smile.demo.tours import NETWORK, NETWORK_CUT, NETWORK_HEALED, TourFile
from smile.demo.trade_floor import Bidders, FloorClients, FloorMetrics, FloorSettings, Matcher
from smile.errors import error
from smile.horizons import CLOCK_TICK_MIN

RATE_DEFAULT = 200.0
"""Bids a second: a light load for a machine that runs four brokers."""
OPEN_MAX = 3_000
"""Bids that are open on each side. Without matches, bidders pause after half a minute."""
MATCHERS = 2
STREAMS = ("BuyBids", "SellBids", "Matches")
POLL_S = 0.5
REFRESH_S = 0.2
LINE_S = 2.0
CUT_LINK = NetworkLink("floor", "buys")
"""Without a terminal, this link is cut and healed once."""
HEAL_S_MAX = 60.0
"""Without a terminal, the end waits this long for a link that was healed."""
CUT_AFTER_S = 10.0
"""Without a terminal and without an end: when the link is cut, and for how long."""

Json = dict[str, Any]


def run_network_demo(seconds: float | None, engine: str, rate: float | None, opens_browser: bool) -> None:
    settings = FloorSettings(issues=20, prices=10, open_max=OPEN_MAX, rate=rate or RATE_DEFAULT)
    with tempfile.TemporaryDirectory(prefix="smile-demo-") as folder:
        wait = "Spark takes some ten to thirty seconds, and more with four brokers." if engine == "spark" else ""
        print(f"starting four brokers… {wait}".rstrip(), flush=True)
        tour = TourFile(Path(folder) / "tour.json", NETWORK.to_json())
        tour.lead(0)
        plan = replace(TRADE_FLOOR, options={"floor": ("--tour", str(tour.path))})
        with RunningNetwork(plan, Path(folder), ["--engine", engine]) as network:
            network.wait_until_ready()
            print(f"try: smile status --url {network.urls()['floor']}")
            show_consoles(network.urls(), "floor", opens_browser)
            demo = NetworkDemo(network, settings, seconds, tour)
            try:
                asyncio.run(demo.run())
            except KeyboardInterrupt:
                pass
            finally:
                for line in demo.summary_lines():
                    print(line)


@dataclass
class LinkCut:
    """What a cut of a link did. `behind_s_max` is how far behind the views that read its imports were, at most;
    `changes` are the rows of Matchable that changed meanwhile. Times are seconds since 1970."""

    link: NetworkLink
    cut_at: float
    healed_at: float | None = None
    caught_up_at: float | None = None
    behind_s_max: float = 0.0
    changes: int = 0

    @property
    def is_healing(self) -> bool:
        return self.healed_at is not None and self.caught_up_at is None

    def summary(self) -> str:
        name = link_name(self.link)
        end = time.time() if self.healed_at is None else self.healed_at
        text = (
            f"{name} was cut for {end - self.cut_at:.1f} s: {self.link.caller} was up to {self.behind_s_max:.1f} s "
            f"behind, and {self.changes:,} rows of Matchable changed meanwhile"
        )
        if self.healed_at is None:
            return f"{text}; it is still cut"
        if self.caught_up_at is None:
            return f"{text}; it has not caught up"
        return f"{text}; it had caught up {self.caught_up_at - self.healed_at:.1f} s after it was healed"


@dataclass
class NetworkDemo:
    """Simulated users on a running network, and what the terminal shows of it. Without a terminal it prints lines."""

    network: RunningNetwork
    settings: FloorSettings
    seconds: float | None
    tour: TourFile
    metrics: FloorMetrics = field(default_factory=FloorMetrics)
    statuses: dict[str, Json] = field(default_factory=dict)
    cuts: list[LinkCut] = field(default_factory=list)
    _has_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with connected_clients(self.network.urls()) as clients:
            floor_clients = FloorClients(**clients)
            issues = [self.settings.issue_name(number) for number in range(self.settings.issues)]
            table = await clients["floor"].table("Matchable")
            table.changed(lambda changes: self._count_changes(len(changes)))
            await self._poll_once(clients)
            self.metrics.started_at = time.time()
            work = [
                Bidders(floor_clients, self.settings, self.metrics).run(),
                *(Matcher(floor_clients, issues[n::MATCHERS], self.metrics).run() for n in range(MATCHERS)),
                self._poll(clients),
                self._draw(table) if sys.stdout.isatty() else self._print_lines(),
                self._has_ended.wait(),
            ]
            tasks = [asyncio.ensure_future(part) for part in work]
            try:
                done, _ = await asyncio.wait(tasks, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                    if not self._has_ended.is_set():
                        raise error("E103", "the simulation ended by itself")
                if not sys.stdout.isatty():
                    await self._wait_until_healed()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    # ── cutting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut_of(self, link: NetworkLink) -> LinkCut | None:
        """The present cut of a link."""
        return next((cut for cut in self.cuts if cut.link == link and cut.healed_at is None), None)

    def toggle(self, link: NetworkLink) -> None:
        """Cuts a link, or heals it."""
        cut = self.cut_of(link)
        if cut is None:
            self.network.proxies[link].cut()
            self.cuts.append(LinkCut(link, time.time()))
            self.tour.lead(NETWORK_CUT)
        else:
            self.network.proxies[link].heal()
            cut.healed_at = time.time()
            self.tour.lead(NETWORK_HEALED)

    def press(self, key: str) -> None:
        links = self.network.plan.links
        if key.isdigit() and 1 <= int(key) <= len(links):
            self.toggle(links[int(key) - 1])
        elif key in "qQ":
            self._has_ended.set()

    def _count_changes(self, count: int) -> None:
        for cut in self.cuts:
            if cut.healed_at is None:
                cut.changes += count

    # ── polling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _poll(self, clients: dict[str, AsyncClient]) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._poll_once(clients)

    async def _poll_once(self, clients: dict[str, AsyncClient]) -> None:
        answers = await asyncio.gather(*(client.status() for client in clients.values()))
        self.statuses = dict(zip(clients, answers, strict=True))
        for cut in self.cuts:
            if cut.caught_up_at is not None:
                continue
            behind_s = views_behind_s(self.statuses[cut.link.caller], cut.link.called)
            if behind_s is None:
                continue
            cut.behind_s_max = max(cut.behind_s_max, behind_s)
            if cut.is_healing and behind_s < LATE_S:
                cut.caught_up_at = time.time()
                if not sys.stdout.isatty():
                    print(f"{self._elapsed()}  {link_name(cut.link)} has caught up", flush=True)

    async def _wait_until_healed(self) -> None:
        """Waits until links that were healed have caught up, so that the summary can say how long that took."""
        deadline = time.monotonic() + HEAL_S_MAX
        while any(cut.is_healing for cut in self.cuts) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)

    # ── showing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _draw(self, table: AsyncTable) -> None:
        console = Console()
        rows = ViewDisplay(table, lambda: table.error is None, time.time)
        table.changed(rows.record_changes)
        display = NetworkDisplay(STREAMS, rows)
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live, pressed_keys(self.press):
            while True:
                now = time.time()
                cuts = [(link, self.cut_of(link)) for link in self.network.plan.links]
                links = [LinkView(link, None if cut is None else now - cut.cut_at) for link, cut in cuts]
                lines = [self.totals_text(), "keys: 1-4 cut or heal a link, q ends"]
                size = console.width, console.height - 1
                live.update(display.render(self.statuses, links, lines, size), refresh=True)
                await asyncio.sleep(REFRESH_S)

    async def _print_lines(self) -> None:
        """Prints a line every few seconds. Cuts a link for the middle third of the time, and heals it."""
        third_s = CUT_AFTER_S if self.seconds is None else self.seconds / 3
        toggles = [third_s, 2 * third_s]
        while True:
            elapsed = time.time() - self.metrics.started_at
            if toggles and elapsed >= toggles[0]:
                toggles.pop(0)
                self.toggle(CUT_LINK)
                verb = "healed" if self.cut_of(CUT_LINK) is None else "cut"
                print(f"{self._elapsed()}  {verb} {link_name(CUT_LINK)}", flush=True)
            else:
                print(f"{self._elapsed()}  {self._knowledge_text()}", flush=True)
            due_s = min([LINE_S, *(toggle - elapsed for toggle in toggles[:1])])
            await asyncio.sleep(max(0.05, due_s))

    def _elapsed(self) -> str:
        return f"{time.time() - self.metrics.started_at:5.1f} s"

    def _knowledge_text(self) -> str:
        """What the floor knows, and what it shows."""
        floor = self.statuses["floor"]
        now = float(floor["at"])
        parts = []
        for stream, ways in broker_horizons(floor).items():
            ages = [
                age_text(max(0.0, now - tick / TICKS_PER_SECOND)) if tick >= CLOCK_TICK_MIN else "nothing"
                for tick in ways.values()
            ]
            parts.append(f"{stream} {' | '.join(ages)}")
        rows = floor["views"]["Matchable"]["rows"]
        return f"floor is behind: {', '.join(parts)}; {rows:,} pairs, {self.metrics.matches:,} matches"

    def totals_text(self) -> str:
        metrics = self.metrics
        return (
            f"{metrics.bids:,} bids and {metrics.matches:,} matches of {metrics.shares:,} shares "
            f"in {metrics.seconds:.1f} s; {metrics.matches / metrics.seconds:,.1f} matches/s"
        )

    def summary_lines(self) -> list[str]:
        return [self.totals_text(), *(cut.summary() for cut in self.cuts)] if self.metrics.events else []


def link_name(link: NetworkLink) -> str:
    return f"{link.caller} ← {link.called}"
