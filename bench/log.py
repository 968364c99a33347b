"""Throughput of appending events to the log, compared with inserts into SQLite and plain writes of the same bytes.

Events go through the publisher: each gets a tick, and is acknowledged only after its commit and, with flushing, when it
is on the disk. Everything runs in one process.
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

from bench.report import Report, verdict
from smile.broker.publishing.publication import ProducerSequence, Publication, PublishResult
from smile.broker.publishing.publisher import Publisher
from smile.log.clock import TickGenerator
from smile.log.storage.durable import DurableLog
from smile.program import compile_program, read_source

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
STREAM = "BuyBids"
SECONDS = 3.0
"""Duration of each measurement."""
BATCH_RATE_MIN = 200_000
SINGLE_RATE_MIN = 20_000
IN_FLIGHT = 512
"""Unacknowledged publications of a thread."""

MeasuredStep = Callable[[int], int]
"""Does step number n, and returns the number of events."""


def run(report: Report) -> None:
    rows, flushed_rates = [], {}
    for name, measurement in track(MEASUREMENTS.items(), "the log"):
        rates = [_run_measurement(measurement, flush) for flush in (True, False)]
        flushed_rates[name] = rates[0]
        target = ""
        if name in TARGETS:
            target = f"≥ {TARGETS[name]:,}: {verdict(rates[0] >= TARGETS[name])}"
        rows.append((name, *(f"{rate:,.0f}" for rate in rates), target))
    share = flushed_rates["publisher, batches of 10,000"] / flushed_rates["written to a file, batches of 10,000"]
    report.table(
        "Appending to the log",
        f"Events of {STREAM} a second, measured for {SECONDS:g} s each, with every commit flushed to the disk and "
        "without. The publisher assigns ticks, stores the producers' sequence numbers, and answers each publication; "
        "batches are Arrow. Plain SQLite has one row an event and one transaction a batch. In batches of 10,000 the "
        f"publisher reaches {share:.0%} of a plain write and flush of the same Arrow bytes; small publications share "
        "flushes.",
        ("what", "events/s, flushed", "events/s, not flushed", "target"),
        rows,
    )


def _run_measurement(measurement: "Callable[[Path, bool], float]", flush: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return measurement(Path(folder), flush)


def _measure_rate(step: MeasuredStep) -> float:
    """Events a second, in this thread."""
    step(0)  # warm-up
    events, begin = 0, time.perf_counter()
    for n in count(1):
        events += step(n)
        if (elapsed := time.perf_counter() - begin) >= SECONDS:
            return events / elapsed
    raise AssertionError


# ── the publisher ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _open_publisher(folder: Path, flush: bool) -> Iterator[Publisher]:
    streams = compile_program(read_source(str(PROGRAM))).rewritten.streams
    log = DurableLog.open_or_create(str(folder / "log"), streams, flush)
    publisher = Publisher(log, TickGenerator(0), 100, 1_000, streams)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()
        log.close()


def _bids(size: int) -> pa.RecordBatch:
    issues = pa.array([f"I{n % 100}" for n in range(size)])
    return pa.record_batch({"issue": issues, "price": pa.array(range(size)), "#bid": pa.array([100] * size)})


def _publish_batches(size: int, in_flight: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        with _open_publisher(folder, flush) as publisher:
            rows = publisher.decoder.decode_batch(STREAM, _bids(size))
            unanswered: deque[Future[PublishResult]] = deque()

            def step(n: int) -> int:
                unanswered.append(
                    publisher.submit(Publication(STREAM, rows, ProducerSequence("bench", "bench", n * size)))
                )
                return len(unanswered.popleft().result().ticks) if len(unanswered) >= in_flight else 0

            return _measure_rate(step)

    return measured


def _publish_single_events(threads: int, in_flight: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        with _open_publisher(folder, flush) as publisher:
            rates = [0.0] * threads

            def publish(thread: int) -> None:
                unanswered: deque[Future[PublishResult]] = deque()

                def step(n: int) -> int:
                    publication = Publication(
                        STREAM, [("IBM", n, 100)], ProducerSequence("bench", f"bench {thread}", n)
                    )
                    unanswered.append(publisher.submit(publication))
                    return len(unanswered.popleft().result().ticks) if len(unanswered) >= in_flight else 0

                rates[thread] = _measure_rate(step)

            workers = [Thread(target=publish, args=(n,)) for n in range(threads)]
            for thread in workers:
                thread.start()
            for thread in workers:
                thread.join()
            return sum(rates)

    return measured


# ── comparison ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _insert_into_sqlite(size: int) -> Callable[[Path, bool], float]:
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
            return _measure_rate(step)
        finally:
            db.close()

    return measured


def _write_file(size: int) -> Callable[[Path, bool], float]:
    def measured(folder: Path, flush: bool) -> float:
        ticks = pa.array(range(size))
        data = pa.record_batch([ticks, *_bids(size).columns], ["buyid", "issue", "price", "bid"]).serialize()
        with (folder / "bare").open("ab", buffering=0) as file:

            def step(_: int) -> int:
                file.write(data)
                if flush:
                    os.fsync(file.fileno())
                return size

            return _measure_rate(step)

    return measured


MEASUREMENTS: dict[str, Callable[[Path, bool], float]] = {
    "publisher, batches of 10,000": _publish_batches(10_000, 8),
    "publisher, batches of 1,000": _publish_batches(1_000, 64),
    "publisher, single events of 4 threads": _publish_single_events(4, IN_FLIGHT),
    "publisher, single events of 50 threads, one by one": _publish_single_events(50, 1),
    "plain SQLite, transactions of 10,000": _insert_into_sqlite(10_000),
    "plain SQLite, transactions of 1,000": _insert_into_sqlite(1_000),
    "plain SQLite, a transaction an event": _insert_into_sqlite(1),
    "written to a file, batches of 10,000": _write_file(10_000),
    "written to a file, batches of 1,000": _write_file(1_000),
    "written to a file, an event at a time": _write_file(1),
}
TARGETS = {
    "publisher, batches of 10,000": BATCH_RATE_MIN,
    "publisher, batches of 1,000": BATCH_RATE_MIN,
    "publisher, single events of 4 threads": SINGLE_RATE_MIN,
}
