"""The closed loop of the paper: bidders publish bids, matchers see what can be matched and publish matches, as fast as
possible. For comparison: the same loop with stored procedures in PostgreSQL, and the figures of the paper."""

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

from bench.peers.postgres import schema_statements
from bench.report import Report
from smile.client import connect_async
from smile.demo.broker_process import example_program, running_broker
from smile.demo.trade_floor import (
    LOT,
    LOTS_MAX,
    PRICE_CENTS_MIN,
    PRICE_CENTS_STEP,
    Bidders,
    FloorClients,
    FloorMetrics,
    FloorSettings,
    Matcher,
)
from tests.reference.postgres import Connection, running

WARMUP_S = 15.0
MEASURED_S = 20.0
MATCHERS = 2
PAPER_RATES = (("a commercial database", 30.0), ("SMILE, 1 broker", 87.1), ("SMILE, 4 brokers on 2 machines", 155.6))


def run(report: Report) -> None:
    rows = [
        ("in the paper (2 machines of 1.8 and 1.2 GHz)", name, f"{rate:,.1f}", "", "") for name, rate in PAPER_RATES
    ]
    slowest = 0.0
    for matches_per_transaction, text in ((1, "a match a transaction"), (100, "100 matches a transaction")):
        rate = measure_postgres(matches_per_transaction)
        slowest = slowest or rate
        rows.append(("PostgreSQL 18, procedures", f"{text}, flushed", f"{rate:,.1f}", "", f"{rate / slowest:.1f}"))
    for engine in ("local", "spark"):
        result = measure_smile(engine)
        name = "SMILE on Spark" if engine == "spark" else "SMILE in one process"
        latency = f"{1000 * (result.latency_p50 or 0):,.0f} / {1000 * (result.latency_p99 or 0):,.0f}"
        rows.append((name, "flushed", f"{result.rate:,.1f}", latency, f"{result.rate / slowest:.1f}"))
    settings = FloorSettings()
    report.table(
        "The closed loop",
        f"Bidders keep up to {settings.open_max:,} bids open on each side, over {settings.issues} issues at "
        f"{settings.prices} prices, and {MATCHERS} matchers match what they see. The broker or database and all "
        f"clients share the machine. {MEASURED_S:.0f} s, after {WARMUP_S:.0f} s to warm up. Latency is from the later "
        "bid of a pair until a matcher sees it.",
        ("system", "setting", "matches/s", "latency, ms, median / 99th", "times PostgreSQL, a match a transaction"),
        rows,
    )


# ── SMILE ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LoopResult:
    """Matches a second, and the median and 99th percentile of the pairs' latency, in seconds."""

    rate: float
    latency_p50: float | None
    latency_p99: float | None


def measure_smile(engine: str) -> LoopResult:
    options = ["--engine", engine, "--listen", "127.0.0.1:0", "--flight", ""]
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(example_program("tradefloor.smile"), Path(folder), options) as process,
    ):
        process.wait_until_ready()
        return asyncio.run(_run_loop(process.url))


async def _run_loop(url: str) -> LoopResult:
    settings, metrics = FloorSettings(), FloorMetrics()
    connections = [await connect_async(url) for _ in range(MATCHERS + 1)]
    clients = [FloorClients.of_one_broker(connection) for connection in connections]
    issues = [settings.issue_name(number) for number in range(settings.issues)]
    participants = [Bidders(clients[0], settings, metrics).run()]
    participants += [Matcher(client, issues[n::MATCHERS], metrics).run() for n, client in enumerate(clients[1:])]
    tasks = [asyncio.create_task(participant) for participant in participants]
    await asyncio.sleep(WARMUP_S)
    matches_before, start = metrics.matches, time.monotonic()
    metrics.latencies.clear()
    done, _ = await asyncio.wait(tasks, timeout=MEASURED_S, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    result = LoopResult(
        (metrics.matches - matches_before) / (time.monotonic() - start),
        metrics.latency_quantile(0.5),
        metrics.latency_quantile(0.99),
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for connection in connections:
        await connection.close()
    return result


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────────

_MATCH_FUNCTION = """
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
class PostgresLoop:
    """What the bidder and the matchers on PostgreSQL share."""

    host: str
    matches_per_transaction: int
    stop: Event = field(default_factory=Event)
    bids: int = 0
    matches: int = 0
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def open_connection(self) -> Iterator[Connection]:
        with psycopg.connect(host=self.host, user="smile", dbname="postgres", autocommit=True) as connection:
            connection.execute("SET search_path = public")
            connection.execute("SET plan_cache_mode = force_generic_plan")
            yield connection

    def run_bidder(self) -> None:
        settings, random, excess = FloorSettings(), Random(1), dict[tuple[int, int], int]()
        with self.open_connection() as connection:
            for number in count(1):
                while self.bids - 2 * self.matches > settings.open_max and not self.stop.is_set():
                    time.sleep(0.001)
                if self.stop.is_set():
                    return
                level = random.randrange(settings.issues), random.randrange(settings.prices)
                shares, level_excess = LOT * random.randint(1, LOTS_MAX), excess.get(level, 0)
                sells = level_excess > 0 or (not level_excess and random.random() < 0.5)
                excess[level] = level_excess - shares if sells else level_excess + shares
                price = PRICE_CENTS_MIN + PRICE_CENTS_STEP * level[1]
                call = f"SELECT {'sell' if sells else 'buy'}(%s::bigint, %s::text, %s::bigint, %s::bigint)"
                connection.execute(call, (number, settings.issue_name(level[0]), price, shares), prepare=True)
                self.bids += 1

    def run_matcher(self, number: int) -> None:
        settings = FloorSettings()
        issues = [settings.issue_name(n) for n in range(settings.issues)][number::MATCHERS]
        with self.open_connection() as connection:
            while not self.stop.is_set():
                row = connection.execute(
                    "SELECT match_some(%s, %s)", (issues, self.matches_per_transaction), prepare=True
                ).fetchone()
                assert row is not None
                with self._lock:
                    self.matches += row[0]
                if not row[0]:
                    time.sleep(0.001)


def measure_postgres(matches_per_transaction: int) -> float:
    """Matches a second, with so many matches in a transaction."""
    with running(flush=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = on")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SET search_path = public")
        for statement in [*(text.replace("UNLOGGED", "") for text in schema_statements()), _MATCH_FUNCTION]:
            connection.execute(statement)
        loop = PostgresLoop(connection.info.host, matches_per_transaction)
        threads = [
            Thread(target=loop.run_bidder),
            *(Thread(target=loop.run_matcher, args=(n,)) for n in range(MATCHERS)),
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(WARMUP_S)
            matches_before, start = loop.matches, time.monotonic()
            time.sleep(MEASURED_S)
            return (loop.matches - matches_before) / (time.monotonic() - start)
        finally:
            loop.stop.set()
            for thread in threads:
                thread.join()
