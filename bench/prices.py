"""What several benchmarks share: a broker with the newest price of each issue, a steady load on it, its subscribers,
and the processor time that it needs.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from smile.demo.broker_process import BrokerProcess, running_broker

PROGRAM = """
CREATE STREAM Quotes (t: time -> issue: int, price: int);
CREATE VIEW Prices AS SELECT issue, LATEST(price) AS price FROM Quotes GROUP BY issue;
SUBSCRIBE Prices;
"""
CPU_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@contextmanager
def running_prices(engine: str) -> Iterator[BrokerProcess]:
    """A broker that is ready, with an empty log."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "prices.smile"
        source.write_text(PROGRAM)
        options = ["--engine", engine, "--listen", "127.0.0.1:0", "--flight", ""]
        with running_broker(source, Path(folder), options) as process:
            process.wait_until_ready()
            yield process


@contextmanager
def publish_steadily(publish: Callable[[range], object], rows_per_second: int, period_s: float) -> Iterator[None]:
    """Publishes consecutive numbers, evenly, in another thread: some every `period_s` seconds."""
    stop = Event()

    def run() -> None:
        start, done = time.monotonic(), 0
        while not stop.wait(period_s):
            due = int((time.monotonic() - start) * rows_per_second)
            publish(range(done, due))
            done = due

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def quotes(numbers: range, issues: int) -> list[dict[str, int]]:
    """Events for the stream. The price is the number, so that each changes a row."""
    return [{"issue": n % issues, "price": n} for n in numbers]


def start_listeners(kind: str, url: str, view: str, subscribers: int, seconds: float) -> "subprocess.Popen[str]":
    """A process with this many subscribers, which have their first rows. It measures for `seconds`, then prints."""
    command = [sys.executable, "-m", "bench.listeners", kind, url, view, str(subscribers), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all its descendants."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process_id = int(path.parent.name)
        parents[process_id] = int(fields[1])
        seconds[process_id] = sum(map(int, fields[11:15])) / CPU_TICKS_PER_SECOND
    family = {pid}
    while children := {child for child, parent in parents.items() if parent in family} - family:
        family |= children
    return sum(seconds.get(member, 0.0) for member in family)
