"""One view to many subscribers over WebSocket, and the same changes fanned out by NATS core beside it."""

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
from smile.demo.process import broker

SUBSCRIBERS = 1_000
ROWS_A_SECOND = 1_000
SECONDS = 15.0
PERIOD_S = 0.05
"""Between two messages of the publisher."""
PROGRAM = """
CREATE STREAM Quotes (t: time -> issue: int, price: int);
CREATE VIEW Prices AS SELECT issue, LATEST(price) AS price FROM Quotes GROUP BY issue;
SUBSCRIBE Prices;
"""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def run(report: Report) -> None:
    rows = []
    for subscribers in (1, SUBSCRIBERS):
        for name, measured in (("NATS core", nats), ("SMILE in one process", local), ("SMILE on Spark", spark)):
            told = measured(subscribers)
            if isinstance(told, str):
                rows.append((name, f"{subscribers:,}", told, "", "", ""))
                continue
            half, most = (f"{1000 * told['latency'][share]:,.0f}" for share in ("0.5", "0.99"))
            size = told["received"] / SECONDS / 1e6
            rows.append((name, f"{subscribers:,}", half, most, f"{100 * told['cpu']:.0f} %", f"{size:,.1f}"))
    report.table(
        "Fan-out",
        f"{ROWS_A_SECOND:,} rows of one view change a second, over {SECONDS:.0f} s; a subscriber that is behind is "
        "told of a row once, as it is then. "
        "Latency is from the publisher's call, or the tick, to the subscriber, so that SMILE's has the log, the flush "
        "and the view in it, and NATS' only the way. Processor time is of the broker with all its processes, of one "
        "core. Publisher and subscribers are on the same machine.",
        ("system", "subscribers", "latency, ms, median", "99th", "processor", "MB/s received"),
        rows,
    )


def local(subscribers: int) -> Any:
    return _smile("local", subscribers)


def spark(subscribers: int) -> Any:
    return _smile("spark", subscribers)


def _smile(engine: str, subscribers: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "prices.smile"
        source.write_text(PROGRAM)
        options = ["--engine", engine, "--listen", "127.0.0.1:0", "--flight", ""]
        with broker(source, Path(folder), options) as process:
            process.wait_until_ready()
            client = connect(process.url)

            def publish(numbers: range) -> None:
                client.publish("Quotes", [{"issue": n % ROWS_A_SECOND, "price": n} for n in numbers])

            with _publishing(publish):
                found = _listened("smile", process.url, "Prices", subscribers, process.popen.pid)
            client.close()
            return found


def nats(subscribers: int) -> Any:
    server = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")
    if server is None:
        return "not installed (Debian's package nats-server)"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([server, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        connection = _connected(port)
        connection.sendall(b'CONNECT {"verbose":false}\r\n')
        Thread(target=_answer, args=(connection,), daemon=True).start()

        def publish(numbers: range) -> None:
            connection.sendall(b"".join(_message(n) for n in numbers))

        with _publishing(publish):
            found = _listened("nats", f"nats://127.0.0.1:{port}", "prices", subscribers, process.pid)
        connection.close()
        return found
    finally:
        process.terminate()
        process.wait(10)


def _message(number: int) -> bytes:
    """The same that a subscriber of the view is told."""
    row = {
        "view": "Prices",
        "key": {"issue": number % ROWS_A_SECOND},
        "row": {"price": number},
        "knowledge": {"price": {"latest": number, "at": str(time.time_ns() // 1000 * 1024)}},
        "final": False,
        "stays": True,
        "steps": number // ROWS_A_SECOND,
    }
    text = json.dumps(row, separators=(",", ":")).encode()
    return b"PUB prices %d\r\n%b\r\n" % (len(text), text)


def _connected(port: int) -> socket.socket:
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("nats-server does not answer")


def _answer(connection: socket.socket) -> None:
    """NATS asks now and then whether somebody is there."""
    try:
        while data := connection.recv(65_536):
            if b"PING" in data:
                connection.sendall(b"PONG\r\n")
    except OSError:
        pass


@contextmanager
def _publishing(publish: Callable[[range], None]) -> Iterator[None]:
    """So many rows a second, evenly, for the while."""
    stop = Event()

    def run() -> None:
        began, done = time.monotonic(), 0
        while not stop.wait(PERIOD_S):
            due = int((time.monotonic() - began) * ROWS_A_SECOND)
            publish(range(done, due))
            done = due

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _listened(kind: str, url: str, view: str, subscribers: int, pid: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.listeners", kind, url, view, str(subscribers), str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listeners:
        assert listeners.stdout is not None
        assert listeners.stdout.readline() == "ready\n"
        time.sleep(2)
        before, began = _seconds_of(pid), time.monotonic()
        time.sleep(SECONDS - 1)
        cpu = (_seconds_of(pid) - before) / (time.monotonic() - began)
        found: dict[str, Any] = json.loads(listeners.stdout.readline())
    return {**found, "cpu": cpu}


def _seconds_of(pid: int) -> float:
    """Processor time of a process and all below it."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(path.parent.name)
        parents[number] = int(told[1])
        seconds[number] = sum(map(int, told[11:15])) / CLOCK_TICKS
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(seconds.get(one, 0.0) for one in found)
