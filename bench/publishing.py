"""Throughput and latency of single events over the network, each flushed to disk before it is acknowledged."""

import json
import subprocess
import sys
from typing import Any

from bench.prices import running_prices
from bench.report import Report, verdict

CONNECTIONS = 50
SECONDS = 8.0
RATE_MIN = 5_000


def run(report: Report) -> None:
    rows = []
    for engine, name in (("local", "in one process"), ("spark", "on Spark")):
        with running_prices(engine) as process:
            for kind, window in (("ws", 1), ("ws", 10), ("http", 1)):
                result = run_publishers(kind, process.url, window)
                rate = result["acknowledged"] / SECONDS
                target = f"≥ {RATE_MIN:,}: {verdict(rate >= RATE_MIN)}" if kind == "ws" else ""
                p50, p99 = (f"{1000 * result['latency'][share]:,.1f}" for share in ("0.5", "0.99"))
                transport = f"{'WebSocket' if kind == 'ws' else 'HTTP'}, {window} in flight each"
                rows.append((transport, name, f"{rate:,.0f}", p50, p99, target))
    report.table(
        "Single events over the network",
        f"{CONNECTIONS} connections, one event a message, flushed before it is acknowledged, while a view of the "
        f"events is kept up to date, for {SECONDS:.0f} s. Broker, engine and publishers share the machine.",
        ("protocol", "views are maintained", "events/s", "latency, ms, median", "99th", "target"),
        rows,
    )


def run_publishers(kind: str, url: str, window: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.publishers", kind, url, str(CONNECTIONS), str(window), str(SECONDS)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS + 60).stdout
    result: dict[str, Any] = json.loads(output)
    assert not result["refused"]
    return result
