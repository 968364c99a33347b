"""A database as a broker, beside message brokers with the same database: the experiments of figures 8, 9 and 10 of the
paper on PostgreSQL-PS, and what publishing and capture cost a transaction."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.filters import report_filters
from bench.messaging.durability import kill_and_count
from bench.messaging.running import RUN_S, RUNS, WARMUP_S, Throughput, measure
from bench.messaging.servers import NotInstalled, running_server as running_peer
from bench.messaging.workload import PORTFOLIOS, PUBLISHERS, SYMBOLS, Consumption, System, choose_portfolios
from bench.report import Report, verdict
from smile.demo.broker_process import BrokerProcess
from smile.postgres.immediate_way import ImmediateWay
from smile.postgres.schema.install import install
from tests.postgres.server import TEMPLATE, Server, running_server

SUBSCRIBERS = (5, 20, 100)
EQUAL_SHARES = (0.1, 0.2, 0.3)
TARGET = 10.0
TRANSACTIONS = 2_000
"""For the cost of a publication."""
PGBENCH_S = 10

_SCHEMA = """
CREATE TABLE portfolios (portfolio_id integer NOT NULL, symbol text NOT NULL, PRIMARY KEY (symbol, portfolio_id));
CREATE TABLE stored (id bigserial PRIMARY KEY, subscriber integer, symbol text, price bigint, volume bigint);
CREATE TABLE inbox (subscriber integer, message bigint, PRIMARY KEY (subscriber, message));
CREATE FUNCTION store_quote(subscriber integer, symbol text, price bigint, volume bigint) RETURNS void
LANGUAGE sql BEGIN ATOMIC INSERT INTO stored (subscriber, symbol, price, volume) VALUES ($1, $2, $3, $4); END;
CREATE FUNCTION consume_once(subscriber integer, message bigint, symbol text, price bigint, volume bigint) RETURNS void
LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO inbox VALUES (subscriber, message) ON CONFLICT DO NOTHING;
    IF FOUND THEN PERFORM store_quote(subscriber, symbol, price, volume); END IF;
END $$;
"""


@dataclass(frozen=True)
class Experiment:
    title: str
    text: str
    consumption: Consumption
    peers: Mapping[str, tuple[System, Consumption]]


EXPERIMENTS = (
    Experiment(
        "Filters on stored data",
        "Figure 8. Each subscriber asks for quotes of the symbols in its portfolio, a table of the database. All "
        "portfolios have all symbols, so every quote goes to all. SMILE joins the quotes with the changes of the "
        "table; beside the others, a router asks the database for each quote who wants it, with prepared statements "
        "on four connections. SMILE logs and flushes the quotes, the others do not. Publishers are clients of the "
        "brokers; those in transactions call the function of the event type, each on a connection of its own, and each "
        "quote is a transaction that is flushed. Equal portfolios gain nothing here: the row of a portfolio is found "
        "once whoever shares it, so what remains is to send each quote to each subscriber. The paper's ratio is 2.",
        "filtered",
        {
            "RabbitMQ, a router and PostgreSQL": ("rabbitmq", "filtered"),
            "NATS, a router and PostgreSQL": ("nats", "filtered"),
        },
    ),
    Experiment(
        "Guaranteed delivery",
        "Figure 9. Every quote goes to all subscribers, which acknowledge it. Quotes are on the disk before they "
        "are acknowledged to the publisher: flushed by SMILE and by RabbitMQ (durable queues, persistent messages, "
        "confirms). JetStream of this version writes without flushing, so a loss of power can take what it has "
        "acknowledged. In transactions of the database, quotes are flushed twice: there, and in the log.",
        "guaranteed",
        {"RabbitMQ": ("rabbitmq", "guaranteed"), "NATS JetStream, not flushed": ("nats", "guaranteed")},
    ),
    Experiment(
        "Transactional consumption",
        "Figure 10. Each subscriber stores each quote in a table of the database, in a transaction of its own, "
        "exactly once. SMILE: functions of subscriptions. The others: a connection for each subscriber, with an "
        "inbox table that detects repeated messages, in one call; or two-phase commit with RabbitMQ's transactions. "
        "Commits are flushed. The paper's ratio is about 10 for 10 to 20 subscribers.",
        "inbox",
        {
            "RabbitMQ and an inbox": ("rabbitmq", "inbox"),
            "RabbitMQ and two-phase commit": ("rabbitmq", "two_phase"),
            "NATS JetStream and an inbox": ("nats", "inbox"),
        },
    ),
)


def run(report: Report) -> None:
    with running_server(flush=True, connections=150) as server:
        server.create_template()
        for experiment in EXPERIMENTS:
            _compare(report, server, experiment)
        _report_costs(report, server)
    _report_durability(report)
    report_filters(report)


# ── figures 8, 9 and 10 ─────────────────────────────────────────────────────────────────────────────────────────────


def _compare(report: Report, server: Server, experiment: Experiment) -> None:
    consumption, most = experiment.consumption, SUBSCRIBERS[-1]
    measured: dict[str, dict[int, Throughput | str]] = {}
    measured["SMILE"] = {n: _measure_smile(server, consumption, choose_portfolios(n, 0)) for n in SUBSCRIBERS}
    if consumption != "inbox":
        measured["SMILE, published in transactions"] = {
            n: _measure_smile(server, consumption, choose_portfolios(n, 0), is_transactional=True) for n in SUBSCRIBERS
        }
    if consumption == "filtered":
        for share in EQUAL_SHARES:
            throughput = _measure_smile(server, consumption, choose_portfolios(most, share))
            measured[f"SMILE, {share:.0%} equal portfolios"] = {most: throughput}
    for name, (system, peer_consumption) in experiment.peers.items():
        measured[name] = {n: _measure_peer(server, system, peer_consumption, n) for n in SUBSCRIBERS}
    rows = [_row(name, results, measured["SMILE"], name in experiment.peers) for name, results in measured.items()]
    report.table(
        experiment.title,
        f"{experiment.text} {PUBLISHERS} publishers; clients, brokers and the database share the machine. Events a "
        "second over all subscribers, mean and standard deviation of "
        f"{RUNS} runs of {RUN_S:g} s after {WARMUP_S:g} s to warm up; in brackets, how many times slower than SMILE.",
        ("system", *(f"{n} subscribers" for n in SUBSCRIBERS), f"target: {TARGET:g} times at {most}"),
        rows,
    )


def _row(
    name: str, results: dict[int, Throughput | str], smile: dict[int, Throughput | str], has_target: bool
) -> list[str]:
    cells, target = [name], ""
    for count in SUBSCRIBERS:
        result, own = results.get(count, ""), smile[count]
        if isinstance(result, str) or isinstance(own, str):
            cells.append(str(result))
            continue
        ratio = own.mean / result.mean
        cells.append(f"{result}" if name.startswith("SMILE") else f"{result} ({ratio:.1f})")
        if has_target and count == SUBSCRIBERS[-1]:
            target = verdict(ratio >= TARGET)
    return [*cells, target]


def _measure_smile(
    server: Server, consumption: Consumption, portfolios: list[int], is_transactional: bool = False
) -> Throughput:
    with _database(server) as database, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT smile.create_event_type('StockQuote', 'symbol text, price bigint, volume bigint')")
        connection.execute("SELECT smile.advertise('StockQuote')")
        connection.execute("SELECT smile.create_table_stream('portfolios', 'portfolios')")
        count_received = None
        if consumption == "inbox":
            for number in range(len(portfolios)):
                connection.execute(
                    "SELECT smile.create_subscription(%s, 'StockQuote', 'local', NULL, 'store_quote', %s, 0)",
                    (f"subscriber{number}", f"{number}, symbol, price, volume"),
                )
            count_received = _stored_counter(connection)
        with _serving(database) as port:
            if consumption == "inbox":
                _wait_for_positions(connection, len(portfolios))
            return measure("smile", consumption, port, portfolios, database, count_received, is_transactional)


@contextmanager
def _serving(database: str) -> Iterator[int]:
    """The port of a broker with the service of the database, when the streams of its event types are there."""
    with tempfile.TemporaryDirectory(prefix="smile-bench-") as name:
        program = Path(name) / "quotes.smile"
        program.write_text("CREATE STREAM Notes (t: time -> text: string);\n")
        options = ["--engine", "local", "--listen", "127.0.0.1:0", "--flight", ""]
        process = BrokerProcess(program, Path(name), options, {"SMILE_POSTGRES_URL": database})
        process.start()
        try:
            process.wait_until_ready()
            _wait_for_streams(process.url)
            yield int(process.url.rsplit(":", 1)[1])
        finally:
            process.stop_if_running()


def _wait_for_streams(url: str) -> None:
    import httpx  # noqa: PLC0415  # only here

    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        program: Any = httpx.get(f"{url}/program").text
        if "StockQuote" in program and "portfolios" in program:
            return
        time.sleep(0.1)
    raise TimeoutError("the streams of the database are not there")


def _wait_for_positions(connection: "psycopg.Connection[tuple[Any, ...]]", subscriptions: int) -> None:
    """Until all subscriptions receive what is published from now on."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        row = connection.execute("SELECT count(DISTINCT subscription_id) FROM smile.delivery_positions").fetchone()
        if row == (subscriptions,):
            return
        time.sleep(0.1)
    raise TimeoutError("the subscriptions have no positions")


def _measure_peer(server: Server, system: System, consumption: Consumption, subscribers: int) -> Throughput | str:
    try:
        with _database(server) as database, running_peer(system) as peer:
            return measure(system, consumption, peer.port, choose_portfolios(subscribers, 0), database)
    except NotInstalled as missing:
        return str(missing)


@contextmanager
def _database(server: Server) -> Iterator[str]:
    """A new database in which each portfolio has all symbols."""
    url = server.create_database(TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SCHEMA)
        connection.execute(
            "INSERT INTO portfolios SELECT p, s FROM generate_series(0, %s) AS p, unnest(%s::text[]) AS s",
            (PORTFOLIOS - 1, SYMBOLS),
        )
        connection.execute("ANALYZE")
    yield url
    _roll_back_prepared(url)
    server.drop_database(url)


def _roll_back_prepared(url: str) -> None:
    """A subscriber that ends between the two phases of its commit leaves a transaction, which keeps the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        statement = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        for (name,) in connection.execute(statement).fetchall():
            connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(name)))


def _stored_counter(connection: "psycopg.Connection[tuple[Any, ...]]") -> Callable[[], int]:
    def count() -> int:
        row = connection.execute("SELECT last_value, is_called FROM stored_id_seq").fetchone()
        assert row is not None
        return int(row[0]) if row[1] else 0

    return count


def _report_durability(report: Report) -> None:
    """SMILE's own kills are tests (tests/torture, tests/postgres/test_service_crashes.py)."""
    rows = []
    for name, system in (("RabbitMQ", "rabbitmq"), ("NATS JetStream", "nats")):
        try:
            confirmed, found = kill_and_count(system)
            rows.append((name, f"{confirmed:,}", f"{found:,}", f"{max(0, confirmed - found):,}"))
        except NotInstalled as missing:
            rows.append((name, str(missing), "", ""))
    report.table(
        "What a kill leaves of confirmed messages",
        "The server is killed while messages are published, and started again. A kill does not show what a loss of "
        "power would take: for that, what is confirmed must have been flushed as well.",
        ("broker", "confirmed before the kill", "found afterwards", "lost"),
        rows,
    )


# ── what it costs the database ──────────────────────────────────────────────────────────────────────────────────────


def _report_costs(report: Report, server: Server) -> None:
    report.table(
        "What a publication adds to a transaction",
        "A transaction that inserts a row, and ones that publish an event as well; IMMEDIATE as a logical message. "
        f"{TRANSACTIONS:,} transactions of each kind in turn, of one connection, flushed; milliseconds from BEGIN to "
        "the end of COMMIT, while the service captures the events; in brackets, what the event adds.",
        ("transaction", "median", "99th"),
        _publication_rows(server),
    )
    plain, captured = (_pgbench(server, is_captured) for is_captured in (False, True))
    report.table(
        "What capture costs a table",
        f"pgbench (TPC-B-like, 4 connections, flushed, {PGBENCH_S} s), without and with a stream of the changes of "
        "pgbench_accounts, each update of which is two events.",
        ("table", "transactions/s", "share"),
        [
            ("not captured", f"{plain:,.0f}", ""),
            ("captured by triggers", f"{captured:,.0f}", f"{captured / plain:.0%}"),
        ],
    )


def _publication_rows(server: Server) -> list[tuple[str, str, str]]:
    times_ms: dict[str | None, list[float]] = {None: [], "deferred": [], "immediate": []}
    with _database(server) as database, psycopg.connect(database) as connection:
        connection.execute("SELECT smile.create_event_type('StockQuote', 'symbol text, price bigint, volume bigint')")
        connection.execute("SELECT smile.advertise('StockQuote')")
        connection.execute("SELECT smile.create_table_stream('portfolios', 'portfolios')")
        connection.commit()
        install(connection, ImmediateWay.logical)
        connection.commit()
        with _serving(database):
            for number in range(TRANSACTIONS):
                for visibility, times in times_ms.items():
                    start_s = time.perf_counter()
                    connection.execute("SELECT store_quote(0, 'S001', %s, 1)", (number,), prepare=True)
                    if visibility is not None:
                        call = "SELECT smile.publish_stockquote('S001', %s, 1, visibility => %s)"
                        connection.execute(call, (number, visibility), prepare=True)
                    connection.commit()
                    times.append(1000 * (time.perf_counter() - start_s))
    plain = _quantiles(times_ms.pop(None))
    rows = [("inserts a row", f"{plain[0]:.2f}", f"{plain[1]:.2f}")]
    for visibility, times in times_ms.items():
        median, last = (
            f"{ms:.2f} ({ms - plain_ms:+.2f})" for ms, plain_ms in zip(_quantiles(times), plain, strict=True)
        )
        rows.append((f"and publishes an event, {visibility}", median, last))
    return rows


def _quantiles(times_ms: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    ordered = sorted(times_ms)
    return ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))]


def _pgbench(server: Server, is_captured: bool) -> float:
    """Transactions a second."""
    with _database(server) as database:
        name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
        command = [str(server.programs / "pgbench"), "-h", str(server.folder), "-U", "postgres", name]
        subprocess.run([*command, "-i", "-q"], check=True, capture_output=True)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("SELECT smile.create_event_type('StockQuote', 'symbol text')")
            connection.execute("SELECT smile.create_table_stream('portfolios', 'portfolios')")
            if is_captured:
                connection.execute("SELECT smile.create_table_stream('accounts', 'pgbench_accounts')")
        with _serving(database):
            done = subprocess.run(
                [*command, "-c", "4", "-T", str(PGBENCH_S)], check=True, capture_output=True, text=True
            )
        line = next(line for line in done.stdout.splitlines() if line.startswith("tps"))
        return float(line.split()[2])
