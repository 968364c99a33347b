"""Processes are killed at random moments: the client, the server, SMILE. Afterwards every committed event is in the log
once, in order and together with its transaction, every function was called once, and the table equals its view. Events of
the other modes keep the promises of their modes."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from smile.horizons import HORIZON_MIN
from smile.log.position import BatchLimit
from smile.log.storage.durable import DurableLog
from smile.postgres.immediate_way import ImmediateWay
from smile.postgres.schema.install import install
from tests.postgres.server import Server
from tests.postgres.services import connect, create_type
from tests.processes import SMILE, clean_environment, free_port, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
PUBLISHERS = 3
PROGRAM = """
CREATE STREAM A (tick TIME KEY, n int, who string);
CREATE VIEW Counts AS SELECT who, COUNT(*) AS events, SUM(n) AS total, MAX(n) AS most FROM A GROUP BY who;
"""
MODES = {"Lossy": "deferred non-guaranteed", "Now": "immediate guaranteed", "LossyNow": "immediate non-guaranteed"}
"""The types of events that are not DEFERRED GUARANTEED."""
PREPARATION = """
CREATE TABLE public.published (who text, n bigint, PRIMARY KEY (who, n));
CREATE TABLE public.committed (id text PRIMARY KEY);
CREATE TABLE public.received (id bigint GENERATED ALWAYS AS IDENTITY, who text, n bigint);
CREATE TABLE public.tried (who text, n bigint);
CREATE FUNCTION public.receive(who text, n bigint) RETURNS void LANGUAGE sql AS
    'INSERT INTO public.received (who, n) VALUES ($1, $2)';
CREATE FUNCTION public.fail_sometimes(who text, n bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.tried VALUES (who, n);
    IF n % 5 = 0 THEN RAISE EXCEPTION 'no multiples of five'; END IF;
END $$;
"""


class Processes:
    """The processes of one run. Each can be killed and started again."""

    def __init__(self, server: Server, url: str, folder: Path, seed: int) -> None:
        self._server, self._url, self._folder, self._seed = server, url, folder, seed
        self._port, self._starts = free_port(), 0
        self.broker: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self.notes = folder / "notes"
        """What the clients have tried; see `publishing_client`."""
        (folder / "p.smile").write_text(PROGRAM)

    def start_broker(self) -> None:
        words = ["serve", "p.smile", "--data", "data", "--engine", "local", "--listen", f"127.0.0.1:{self._port}"]
        with (self._folder / "broker.log").open("ab") as log:
            self.broker = subprocess.Popen(
                [SMILE, *words, "--flight", "", "--no-flush"],
                cwd=self._folder,
                env=clean_environment(SMILE_POSTGRES_URL=self._url),
                stdout=log,
                stderr=log,
            )

    def start_client(self, who: str) -> None:
        self._starts += 1
        words = [
            "-m",
            "tests.postgres.publishing_client",
            self._url,
            who,
            f"{self._seed} {self._starts}",
            str(self.notes),
        ]
        self._clients[who] = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=clean_environment())

    def kill(self, what: str, random: Random) -> None:
        if what == "server":
            self._server.kill()
            time.sleep(random.random() / 4)
            self._server.start()
        elif what == "broker":
            self.kill_broker()
            time.sleep(random.random() / 4)
            self.start_broker()
        else:
            who = random.choice(sorted(self._clients))
            self._clients[who].kill()
            self._clients[who].wait()
            self.start_client(who)

    def stop_clients(self) -> None:
        for client in self._clients.values():
            client.kill()
            client.wait()

    def kill_broker(self) -> None:
        if self.broker is not None:
            self.broker.kill()
            self.broker.wait()

    def stop_broker(self) -> None:
        assert self.broker is not None
        self.broker.send_signal(signal.SIGTERM)
        self.broker.wait()


@contextmanager
def running(server: Server, url: str, folder: Path, seed: int) -> Iterator[Processes]:
    processes = Processes(server, url, folder, seed)
    with ExitStack() as stack:
        processes.start_broker()
        stack.callback(processes.kill_broker)
        stack.callback(processes.stop_clients)
        for who in range(PUBLISHERS):
            processes.start_client(f"p{who}")
        yield processes


def prepare(url: str) -> None:
    with connect(url) as connection:
        connection.execute(PREPARATION)
        create_type(connection, "A")
        create_type(connection, "B")
        install(connection, ImmediateWay.logical)
        for name in MODES:
            create_type(connection, name, "id text")
        for name, function in (("s", "receive"), ("failing", "fail_sometimes")):
            connection.execute(
                "SELECT smile.create_subscription(%s, 'A', 'local', NULL, %s, '(event).who, (event).n', 0)",
                (name, f"public.{function}"),
            )
        connection.execute("SELECT smile.create_view_table('public.counts', 'Counts', false)")


def by_publisher(rows: list[tuple[str, int]]) -> dict[str, list[int]]:
    found = defaultdict[str, list[int]](list)
    for who, n in rows:
        found[who].append(n)
    return dict(found)


def select(url: str, query: str) -> list[tuple[Any, ...]]:
    try:
        with connect(url) as connection:
            return connection.execute(query).fetchall()
    except psycopg.OperationalError:
        return []


def check(url: str, processes: Processes, folder: Path) -> int:
    """Waits until everything is delivered, and compares. Returns the number of transactions."""
    processes.stop_clients()
    truth = by_publisher(select(url, "SELECT who, n FROM public.published ORDER BY who, n"))
    total = sum(map(len, truth.values()))
    received = "SELECT who, n FROM public.received ORDER BY id"
    wait_until(lambda: len(select(url, received)) >= total, f"not all of {total} events are delivered")
    wanted = sorted((who, len(ns), sum(ns), max(ns)) for who, ns in truth.items())
    counts = "SELECT who, events, total, most FROM public.counts ORDER BY who"
    wait_until(lambda: select(url, counts) == wanted, f"the table does not equal the view: {wanted}")
    tried = "SELECT who, n FROM public.tried UNION ALL SELECT who, n FROM smile.a_exception ORDER BY who, n"
    wait_until(lambda: len(select(url, tried)) >= total, "not all events were tried")
    committed = {id_ for (id_,) in select(url, "SELECT id FROM public.committed")}
    waiting = "SELECT pg_current_wal_flush_lsn() <= confirmed_flush_lsn FROM pg_replication_slots WHERE database = "
    wait_until(lambda: select(url, f"{waiting} current_database()") == [(True,)], "messages are not captured")
    taken = "SELECT count(*) FROM smile.in_queue_unlogged"
    wait_until(lambda: select(url, taken) == [(0,)], "unlogged events are not captured")
    processes.stop_broker()
    assert by_publisher(select(url, received)) == truth, "the function was not called once for each event, in order"
    assert by_publisher(select(url, tried)) == truth
    assert all(n % 5 for _, n in select(url, "SELECT who, n FROM public.tried"))
    log = DurableLog(path := str(folder / "data" / "log"), DurableLog.read_definitions(path))
    with closing(log):
        check_transactions(log, truth)
        check_modes(log, committed, processes.notes)
    return total


def check_transactions(log: DurableLog, truth: dict[str, list[int]]) -> None:
    events: dict[str, list[tuple[str, int]]] = {"A": [], "B": []}
    start = log.start()
    while (end := log.after(start, BatchLimit(rows=1))) != start:
        for stream, found in events.items():
            found += [(row["who"], row["n"]) for row in log.read(stream, start, end).to_pylist()]
        assert sorted(events["A"]) == sorted(events["B"]), "a batch divides a transaction"
        assert min(end.stream_horizons().values()) >= HORIZON_MIN
        start = end
    assert {stream: by_publisher(found) for stream, found in events.items()} == {"A": truth, "B": truth}


def check_modes(log: DurableLog, committed: set[str], notes: Path) -> None:
    """No event is published twice; none that is DEFERRED without its commit; and those that are GUARANTEED are not
    lost once their statement has returned."""
    noted = [line.split("\t") for line in notes.read_text().splitlines()]
    tried = {id_ for what, id_ in noted if what == "tried"}
    returned = {id_ for what, id_ in noted if what == "returned"}
    found = {name: [row["id"] for row in log.read(name, log.start(), log.newest()).to_pylist()] for name in MODES}
    for name, ids in found.items():
        assert len(ids) == len(set(ids)), f"{MODES[name]} events are doubled"
        assert ids, f"no {MODES[name]} event has arrived"
    assert set(found["Lossy"]) <= committed
    assert returned <= set(found["Now"]) <= tried
    assert set(found["LossyNow"]) <= tried
    assert set(found["Now"]) - committed, "no transaction was rolled back"


def run(server: Server, url: str, folder: Path, seed: int, kills: int) -> int:
    random = Random(seed)
    prepare(url)
    with running(server, url, folder, seed) as processes:
        wait_until(lambda: len(select(url, "SELECT FROM public.received LIMIT 5")) == 5, "nothing is delivered")
        for _ in range(kills):
            time.sleep(random.random() * 2)
            processes.kill(random.choice(["client", "server", "broker"]), random)
        time.sleep(random.random())
        return check(url, processes, folder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills(server: Server, database: str, tmp_path: Path, seed: int) -> None:
    assert run(server, database, tmp_path, seed, kills=3) > 0


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_kills(server: Server, database: str, tmp_path: Path, seed: int) -> None:
    """Sixty kills in all."""
    assert run(server, database, tmp_path, seed + int(os.environ.get("SMILE_SEED", "0")), kills=10) > 0
