"""Fan-out of one view to many subscribers over WebSocket, compared with NATS core for the same changes."""

import json
import shutil
import socket
import subprocess
import time
from threading import Thread
from typing import Any

from bench.prices import cpu_seconds, publish_steadily, quotes, running_prices, start_listeners
from bench.report import Report
from smile.client import connect

SUBSCRIBERS = 1_000
ROWS_PER_SECOND = 1_000
SECONDS = 15.0
PERIOD_S = 0.05
"""Seconds between two messages of the publisher."""


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
    with running_prices(engine) as process:
        client = connect(process.url)

        def publish(numbers: range) -> None:
            client.publish("Quotes", quotes(numbers, ROWS_PER_SECOND))

        with publish_steadily(publish, ROWS_PER_SECOND, PERIOD_S):
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

        with publish_steadily(publish, ROWS_PER_SECOND, PERIOD_S):
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


def _run_listeners(kind: str, url: str, view: str, subscribers: int, pid: int) -> dict[str, Any]:
    with start_listeners(kind, url, view, subscribers, SECONDS) as listeners:
        assert listeners.stdout is not None
        time.sleep(2)
        cpu_before, start = cpu_seconds(pid), time.monotonic()
        time.sleep(SECONDS - 1)
        cpu = (cpu_seconds(pid) - cpu_before) / (time.monotonic() - start)
        measurement: dict[str, Any] = json.loads(listeners.stdout.readline())
    return {**measurement, "cpu": cpu}
