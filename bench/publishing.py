"""Single events published over the network, each flushed to the disk before it is acknowledged."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.fanout import PROGRAM
from bench.report import Report, met
from smile.demo.process import broker

CONNECTIONS = 50
SECONDS = 8.0
RATE_AT_LEAST = 5_000


def run(report: Report) -> None:
    rows = []
    for engine, name in (("local", "in one process"), ("spark", "on Spark")):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "prices.smile"
            source.write_text(PROGRAM)
            options = ["--engine", engine, "--listen", "127.0.0.1:0", "--flight", ""]
            with broker(source, Path(folder), options) as process:
                process.wait_until_ready()
                for kind, window in (("ws", 1), ("ws", 10), ("http", 1)):
                    found = published(kind, process.url, window)
                    rate = found["acknowledged"] / SECONDS
                    target = f"≥ {RATE_AT_LEAST:,}: {met(rate >= RATE_AT_LEAST)}" if kind == "ws" else ""
                    half, most = (f"{1000 * found['latency'][share]:,.1f}" for share in ("0.5", "0.99"))
                    how = f"{'WebSocket' if kind == 'ws' else 'HTTP'}, {window} under way each"
                    rows.append((how, name, f"{rate:,.0f}", half, most, target))
    report.table(
        "Single events over the network",
        f"{CONNECTIONS} connections, one event a message, flushed before it is acknowledged, while a view of the "
        f"events is kept up to date; {SECONDS:.0f} s. Broker, engine and publishers share the machine.",
        ("how", "views are kept", "events/s", "latency, ms, median", "99th", "target"),
        rows,
    )


def published(kind: str, url: str, window: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.publishers", kind, url, str(CONNECTIONS), str(window), str(SECONDS)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS + 60).stdout
    found: dict[str, Any] = json.loads(told)
    assert not found["refused"]
    return found
