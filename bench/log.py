"""How fast events come into the log, beside plain inserts into SQLite and bare writes of the same bytes.

Through the publisher: every event has its tick, and is answered only once its commit is made; with flushing, once it is
on the disk. Everything in one process.
"""

import os
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Thread

import pyarrow as pa
from rich.progress import track

from bench.report import Report, met
from smile.broker.publication import Numbered, Publication, Published
from smile.broker.publisher import Publisher
from smile.log.clock import Ticks
from smile.log.durable import DurableLog
from smile.log.published_batches import rows_of_batch
from smile.program import compile_program, read_source

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
STREAM = "BuyBids"
SECONDS = 3.0
"""Of each measurement."""
BATCHES_AT_LEAST = 200_000
SINGLE_AT_LEAST = 20_000
UNDER_WAY = 512
"""Publications of a thread that it has not been answered yet."""

Step = Callable[[int], int]
"""Does one thing, given its number, and says how many events it had."""


def run(report: Report) -> None:
    rows, found = [], {}
    for name, measured in track(MEASURED.items(), "the log"):
        rates = [_measured(measured, flush) for flush in (True, False)]
        found[name] = rates[0]
        target = ""
        if name in TARGETS:
            target = f"≥ {TARGETS[name]:,}: {met(rates[0] >= TARGETS[name])}"
        rows.append((name, *(f"{rate:,.0f}" for rate in rates), target))
    share = found["publisher, batches of 10,000"] / found["written to a file, batches of 10,000"]
    report.table(
        "Appending to the log",
        f"Events of {STREAM} a second, in {SECONDS:g} s each, with every commit flushed to the disk and without. The "
        "publisher gives ticks, remembers producers' numbers, and answers each publication; batches come as Arrow. "
        "Plain SQLite has a row an event, a transaction a batch. Of a bare write and flush of the same Arrow bytes the "
        f"publisher reaches {share:.0%}, in batches of 10,000; its small ones share flushes.",
        ("what", "events/s, flushed", "events/s, not flushed", "target"),
        rows,
    )


def _measured(measured: "Callable[[Path, bool], float]", flush: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder), flush)


def _rate(step: Step) -> float:
    """Of one thread."""
    step(0)  # what is loaded only once
    events, begin = 0, time.perf_counter()
    for n in count(1):
        events += step(n)
        if (taken := time.perf_counter() - begin) >= SECONDS:
            return events / taken
    raise AssertionError


# ── the publisher ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _publisher(folder: Path, flush: bool) -> Iterator[Publisher]:
    streams = compile_program(read_source(str(PROGRAM))).rewritten.streams
    log = DurableLog.at(str(folder / "log"), streams, flush)
    publisher = Publisher(log, Ticks(0), 100, 1_000, streams)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()
        log.close()


def _bids(size: int) -> pa.RecordBatch:
    issues = pa.array([f"I{n % 100}" for n in range(size)])
    return pa.record_batch({"issue": issues, "price": pa.array(range(size)), "#bid": pa.array([100] * size)})


def _batches(size: int, under_way: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        with _publisher(folder, flush) as publisher:
            rows = rows_of_batch(publisher.shapes[STREAM], _bids(size), False)
            waiting: deque[Future[Published]] = deque()

            def step(n: int) -> int:
                waiting.append(publisher.submit(Publication(STREAM, rows, Numbered("bench", n * size))))
                return len(waiting.popleft().result().ticks) if len(waiting) >= under_way else 0

            return _rate(step)

    return measured


def _single(threads: int, under_way: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        with _publisher(folder, flush) as publisher:
            rates = [0.0] * threads

            def publish(thread: int) -> None:
                waiting: deque[Future[Published]] = deque()

                def step(n: int) -> int:
                    order = Publication(STREAM, [("IBM", n, 100)], Numbered(f"bench {thread}", n))
                    waiting.append(publisher.submit(order))
                    return len(waiting.popleft().result().ticks) if len(waiting) >= under_way else 0

                rates[thread] = _rate(step)

            running = [Thread(target=publish, args=(n,)) for n in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            return sum(rates)

    return measured


# ── beside it ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _sqlite(size: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        db = sqlite3.connect(folder / "plain", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
        db.execute("CREATE TABLE bids (id INTEGER PRIMARY KEY, issue TEXT, price INTEGER, bid INTEGER)")
        rows = [tuple(row.values()) for row in _bids(size).to_pylist()]

        def step(_: int) -> int:
            db.execute("BEGIN")
            db.executemany("INSERT INTO bids (issue, price, bid) VALUES (?, ?, ?)", rows)
            db.execute("COMMIT")
            return size

        try:
            return _rate(step)
        finally:
            db.close()

    return measured


def _written(size: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        ticks = pa.array(range(size))
        data = pa.record_batch([ticks, *_bids(size).columns], ["buyid", "issue", "price", "bid"]).serialize()
        with (folder / "bare").open("ab", buffering=0) as file:

            def step(_: int) -> int:
                file.write(data)
                if flush:
                    os.fsync(file.fileno())
                return size

            return _rate(step)

    return measured


MEASURED: dict[str, Callable[[Path, bool], float]] = {
    "publisher, batches of 10,000": _batches(10_000, 8),
    "publisher, batches of 1,000": _batches(1_000, 64),
    "publisher, single events of 4 threads": _single(4, UNDER_WAY),
    "publisher, single events of 50 threads, one by one": _single(50, 1),
    "plain SQLite, transactions of 10,000": _sqlite(10_000),
    "plain SQLite, transactions of 1,000": _sqlite(1_000),
    "plain SQLite, a transaction an event": _sqlite(1),
    "written to a file, batches of 10,000": _written(10_000),
    "written to a file, batches of 1,000": _written(1_000),
    "written to a file, an event at a time": _written(1),
}
TARGETS = {
    "publisher, batches of 10,000": BATCHES_AT_LEAST,
    "publisher, batches of 1,000": BATCHES_AT_LEAST,
    "publisher, single events of 4 threads": SINGLE_AT_LEAST,
}
