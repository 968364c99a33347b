"""Runs a load: its subscribers, a router if it needs one, and its publishers, each in a process of its own."""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.messaging.amqp import AmqpConnection
from bench.messaging.nats import NatsConnection
from bench.messaging.workload import Consumption, Load, SharedCounters, System

START_S_MAX = 60.0
"""Until the first event has arrived."""
WARMUP_S = 4.0
RUNS = 10
RUN_S = 1.5


@dataclass(frozen=True)
class Throughput:
    """Events a second over all subscribers: the mean of all runs, and their standard deviation."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:,.0f} ± {self.deviation:,.0f}"


def measure(
    system: System,
    consumption: Consumption,
    port: int,
    portfolios: list[int],
    database: str = "",
    count_received: Callable[[], int] | None = None,
    is_transactional: bool = False,
) -> Throughput:
    """The events that subscribers receive. Without `count_received`, subscribers run in a process and count them;
    with it, the subscribers are functions of the database, and it counts the events that took effect. If
    `is_transactional`, events are published in transactions of the database."""
    with tempfile.TemporaryDirectory(prefix="smile-bench-") as name, ExitStack() as processes:
        counters = SharedCounters.create(Path(name) / "counters")
        load = Load(system, consumption, port, portfolios, database, str(Path(name) / "counters"), is_transactional)
        asyncio.run(_declare(load))
        if count_received is None:
            processes.enter_context(_running("subscribers", load))
        if consumption == "filtered" and system != "smile":
            processes.enter_context(_running("router", load))
        processes.enter_context(_running("publishers", load, is_announced=False))
        return _measure(counters, count_received)


def _measure(counters: SharedCounters, count_received: Callable[[], int] | None) -> Throughput:
    def received() -> int:
        if count_received is not None:
            counters.received = count_received()
        return counters.received

    deadline_s = time.monotonic() + START_S_MAX
    while not received():
        if time.monotonic() > deadline_s:
            raise RuntimeError("no subscriber has received anything")
        time.sleep(0.05)
    _sleep_counting(WARMUP_S, received)
    rates = []
    for _ in range(RUNS):
        start_s, start_count = time.monotonic(), received()
        _sleep_counting(RUN_S, received)
        rates.append((received() - start_count) / (time.monotonic() - start_s))
    return Throughput(statistics.mean(rates), statistics.stdev(rates))


def _sleep_counting(seconds: float, received: Callable[[], int]) -> None:
    """Publishers pause if the counter stands still, so it is read often."""
    end_s = time.monotonic() + seconds
    while (rest_s := end_s - time.monotonic()) > 0:
        received()
        time.sleep(min(0.05, rest_s))


async def _declare(load: Load) -> None:
    """Declares exchanges, queues and streams."""
    if load.system == "rabbitmq":
        amqp = await AmqpConnection.connect(load.port)
        await amqp.declare_exchange("quotes", "fanout")
        await amqp.declare_exchange("portfolios", "direct")
        await amqp.declare_queue("ingest", is_durable=True)
        amqp.transport.close()
    elif load.system == "nats" and load.consumption != "filtered":
        nats = await NatsConnection.connect(load.port)
        stream = {"name": "QUOTES", "subjects": ["quotes"], "storage": "file", "retention": "limits"}
        await nats.call_api("STREAM.CREATE.QUOTES", stream)
        nats.transport.close()


@contextmanager
def _running(module: str, load: Load, is_announced: bool = True) -> Iterator[None]:
    """A process of this package; it ends when its input is closed. An announced one says when it is ready."""
    command = [sys.executable, "-m", f"bench.messaging.{module}", load.to_json()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if is_announced and process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the {module} did not start")
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the {module} have failed")
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
