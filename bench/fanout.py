"""Fan-out of one view to many subscribers over WebSocket, compared with NATS core for the same changes."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from bench.report import Report
from smile.client import connect
from smile.demo.broker_process import running_broker

SUBSCRIBERS = 1_000
ROWS_PER_SECOND = 1_000
SECONDS = 15.0
PERIOD_S = 0.05
"""Seconds between two messages of the publisher."""
PROGRAM = """
CREATE STREAM Quotes (t: time -> issue: int, price: int);
CREATE VIEW Prices AS SELECT issue, LATEST(price) AS price FROM Quotes GROUP BY issue;
SUBSCRIBE Prices;
"""
CPU_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def run(report: Report) -> None:
    rows = []
    for subscribers in (1, SUBSCRIBERS):
        for name, measure in (
            ("NATS core", measure_nats),
            ("SMILE in one process", measure_local),
            ("SMILE on Spark", measure_spark),
        ):
            measurement = measure(subscribers)
            if isinstance(measurement, str):
                rows.append((name, f"{subscribers:,}", measurement, "", "", ""))
                continue
            p50, p99 = (f"{1000 * measurement['latency'][share]:,.0f}" for share in ("0.5", "0.99"))
            size = measurement["received"] / SECONDS / 1e6
            rows.append((name, f"{subscribers:,}", p50, p99, f"{100 * measurement['cpu']:.0f} %", f"{size:,.1f}"))
    report.table(
        "Fan-out",
        f"{ROWS_PER_SECOND:,} rows of one view change a second, for {SECONDS:.0f} s. A slow subscriber receives only "
        "the latest change of a row. Latency is from the publisher's call, or the tick, to the subscriber: SMILE's "
        "includes the log, the flush and the view, NATS' only the transfer. The processor time is that of the broker "
        "with all its processes, in percent of one core. Publisher and subscribers are on the same machine.",
        ("system", "subscribers", "latency, ms, median", "99th", "processor", "MB/s received"),
        rows,
    )


def measure_local(subscribers: int) -> Any:
    return _measure_smile("local", subscribers)


def measure_spark(subscribers: int) -> Any:
    return _measure_smile("spark", subscribers)


def _measure_smile(engine: str, subscribers: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "prices.smile"
        source.write_text(PROGRAM)
        options = ["--engine", engine, "--listen", "127.0.0.1:0", "--flight", ""]
        with running_broker(source, Path(folder), options) as process:
            process.wait_until_ready()
            client = connect(process.url)

            def publish(numbers: range) -> None:
                client.publish("Quotes", [{"issue": n % ROWS_PER_SECOND, "price": n} for n in numbers])

            with _publish_steadily(publish):
                measurement = _run_listeners("smile", process.url, "Prices", subscribers, process.popen.pid)
            client.close()
            return measurement


def measure_nats(subscribers: int) -> Any:
    server = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")
    if server is None:
        return "not installed (Debian's package nats-server)"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([server, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        connection = _connect(port)
        connection.sendall(b'CONNECT {"verbose":false}\r\n')
        Thread(target=_answer_pings, args=(connection,), daemon=True).start()

        def publish(numbers: range) -> None:
            connection.sendall(b"".join(_nats_message(n) for n in numbers))

        with _publish_steadily(publish):
            measurement = _run_listeners("nats", f"nats://127.0.0.1:{port}", "prices", subscribers, process.pid)
        connection.close()
        return measurement
    finally:
        process.terminate()
        process.wait(10)


def _nats_message(number: int) -> bytes:
    """The message that a subscriber of the view would receive."""
    row = {
        "view": "Prices",
        "key": {"issue": number % ROWS_PER_SECOND},
        "row": {"price": number},
        "knowledge": {"price": {"latest": number, "at": str(time.time_ns() // 1000 * 1024)}},
        "final": False,
        "stays": True,
        "steps": number // ROWS_PER_SECOND,
    }
    text = json.dumps(row, separators=(",", ":")).encode()
    return b"PUB prices %d\r\n%b\r\n" % (len(text), text)


def _connect(port: int) -> socket.socket:
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("nats-server does not answer")


def _answer_pings(connection: socket.socket) -> None:
    """NATS drops connections that do not answer its pings."""
    try:
        while data := connection.recv(65_536):
            if b"PING" in data:
                connection.sendall(b"PONG\r\n")
    except OSError:
        pass


@contextmanager
def _publish_steadily(publish: Callable[[range], None]) -> Iterator[None]:
    """Publishes ROWS_PER_SECOND rows a second, evenly, in another thread."""
    stop = Event()

    def run() -> None:
        start, done = time.monotonic(), 0
        while not stop.wait(PERIOD_S):
            due = int((time.monotonic() - start) * ROWS_PER_SECOND)
            publish(range(done, due))
            done = due

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _run_listeners(kind: str, url: str, view: str, subscribers: int, pid: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.listeners", kind, url, view, str(subscribers), str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listeners:
        assert listeners.stdout is not None
        assert listeners.stdout.readline() == "ready\n"
        time.sleep(2)
        cpu_before, start = cpu_seconds(pid), time.monotonic()
        time.sleep(SECONDS - 1)
        cpu = (cpu_seconds(pid) - cpu_before) / (time.monotonic() - start)
        measurement: dict[str, Any] = json.loads(listeners.stdout.readline())
    return {**measurement, "cpu": cpu}


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
