"""The closed loop of the paper: bidders publish bids, matchers see what can be matched and publish matches, as fast as
the loop goes round. Beside it the same loop on PostgreSQL's stored procedures, and the paper's own figures."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread

import psycopg

from bench.peers.postgres import schema
from bench.report import Report
from smile.client import connect_async
from smile.demo.floor import CENTS_APART, CENTS_LEAST, LOT, LOTS_MAX, Bidders, Figures, Floor, Matcher
from smile.demo.process import broker, program
from tests.reference.postgres import Connection, running

WARM_S = 15.0
MEASURED_S = 20.0
MATCHERS = 2
PAPER = (("a commercial database", 30.0), ("SMILE, 1 broker", 87.1), ("SMILE, 4 brokers on 2 machines", 155.6))


def run(report: Report) -> None:
    rows = [("in the paper (2 machines of 1.8 and 1.2 GHz)", name, f"{rate:,.1f}", "", "") for name, rate in PAPER]
    slowest = 0.0
    for most, text in ((1, "a match a transaction"), (100, "100 matches a transaction")):
        rate = postgres(most)
        slowest = slowest or rate
        rows.append(("PostgreSQL 18, procedures", f"{text}, flushed", f"{rate:,.1f}", "", f"{rate / slowest:.1f}"))
    for engine in ("local", "spark"):
        found = smile(engine)
        name = "SMILE on Spark" if engine == "spark" else "SMILE in one process"
        latency = f"{1000 * (found.half or 0):,.0f} / {1000 * (found.most or 0):,.0f}"
        rows.append((name, "flushed", f"{found.rate:,.1f}", latency, f"{found.rate / slowest:.1f}"))
    report.table(
        "The closed loop",
        f"Bidders keep up to {Floor().open_max:,} bids open a side over {Floor().issues} issues at {Floor().prices} "
        f"prices, {MATCHERS} matchers match what they see. Broker or database, and all clients, share the machine. "
        f"{MEASURED_S:.0f} s after {WARM_S:.0f} s to warm up; latency is from the later bid of a pair to a matcher.",
        ("system", "setting", "matches/s", "latency, ms, median / 99th", "times PostgreSQL, a match a transaction"),
        rows,
    )


# ── SMILE ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Found:
    """Matches a second, and the latency of half of the pairs, and of 99 of 100, in seconds."""

    rate: float
    half: float | None
    most: float | None


def smile(engine: str) -> Found:
    options = ["--engine", engine, "--listen", "127.0.0.1:0", "--flight", ""]
    with (
        tempfile.TemporaryDirectory() as folder,
        broker(program("tradefloor.smile"), Path(folder), options) as process,
    ):
        process.wait_until_ready()
        return asyncio.run(_loop(process.url))


async def _loop(url: str) -> Found:
    floor, figures = Floor(), Figures()
    clients = [await connect_async(url) for _ in range(MATCHERS + 1)]
    issues = [floor.issue(number) for number in range(floor.issues)]
    people = [Bidders(clients[0], floor, figures).run()]
    people += [Matcher(one, issues[n::MATCHERS], figures).run() for n, one in enumerate(clients[1:])]
    tasks = [asyncio.create_task(one) for one in people]
    await asyncio.sleep(WARM_S)
    before, began = figures.matches, time.monotonic()
    figures.latencies.clear()
    done, _ = await asyncio.wait(tasks, timeout=MEASURED_S, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    found = Found((figures.matches - before) / (time.monotonic() - began), figures.latency(0.5), figures.latency(0.99))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        await client.close()
    return found


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────────

_MATCH = """
CREATE FUNCTION match_some(_issues text[], _most int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE pair record; n int := 0; left_buy bigint; left_sell bigint;
BEGIN
    FOR pair IN SELECT buyid, sellid FROM Matchable WHERE issue = ANY(_issues) LIMIT _most LOOP
        SELECT buyremaining INTO left_buy FROM Remainingbuy WHERE buyid = pair.buyid;
        CONTINUE WHEN NOT FOUND;
        SELECT sellremaining INTO left_sell FROM Remainingsell WHERE sellid = pair.sellid;
        CONTINUE WHEN NOT FOUND;
        PERFORM traded(pair.buyid, pair.sellid, least(left_buy, left_sell));
        n := n + 1;
    END LOOP;
    RETURN n;
END $$;
"""


@dataclass
class Loop:
    """What the people on PostgreSQL's floor share."""

    host: str
    most: int
    stop: Event = field(default_factory=Event)
    bids: int = 0
    matches: int = 0
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        with psycopg.connect(host=self.host, user="smile", dbname="postgres", autocommit=True) as connection:
            connection.execute("SET search_path = public")
            connection.execute("SET plan_cache_mode = force_generic_plan")
            yield connection

    def bid(self) -> None:
        floor, random, excess = Floor(), Random(1), dict[tuple[int, int], int]()
        with self.connected() as connection:
            for number in count(1):
                while self.bids - 2 * self.matches > floor.open_max and not self.stop.is_set():
                    time.sleep(0.001)
                if self.stop.is_set():
                    return
                place = random.randrange(floor.issues), random.randrange(floor.prices)
                shares, before = LOT * random.randint(1, LOTS_MAX), excess.get(place, 0)
                sells = before > 0 or (not before and random.random() < 0.5)
                excess[place] = before - shares if sells else before + shares
                price = CENTS_LEAST + CENTS_APART * place[1]
                call = f"SELECT {'sell' if sells else 'buy'}(%s::bigint, %s::text, %s::bigint, %s::bigint)"
                connection.execute(call, (number, floor.issue(place[0]), price, shares), prepare=True)
                self.bids += 1

    def match(self, number: int) -> None:
        floor = Floor()
        issues = [floor.issue(n) for n in range(floor.issues)][number::MATCHERS]
        with self.connected() as connection:
            while not self.stop.is_set():
                found = connection.execute("SELECT match_some(%s, %s)", (issues, self.most), prepare=True).fetchone()
                assert found is not None
                with self._lock:
                    self.matches += found[0]
                if not found[0]:
                    time.sleep(0.001)


def postgres(most: int) -> float:
    """Matches a second, so many of them a transaction."""
    with running(flush=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = on")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SET search_path = public")
        for statement in [*(text.replace("UNLOGGED", "") for text in schema()), _MATCH]:
            connection.execute(statement)
        loop = Loop(connection.info.host, most)
        threads = [Thread(target=loop.bid), *(Thread(target=loop.match, args=(n,)) for n in range(MATCHERS))]
        for thread in threads:
            thread.start()
        try:
            time.sleep(WARM_S)
            before, began = loop.matches, time.monotonic()
            time.sleep(MEASURED_S)
            return (loop.matches - before) / (time.monotonic() - began)
        finally:
            loop.stop.set()
            for thread in threads:
                thread.join()
