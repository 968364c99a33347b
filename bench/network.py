"""Links between brokers: the delay that a link adds, the throughput of one import, what a partition costs, and the cost
of an idle link. Then the closed loop on a network."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from bench import network_floor
from bench.prices import PROGRAM, cpu_seconds, publish_steadily, quotes, start_listeners
from bench.report import Report, verdict
from smile.demo.broker_process import BrokerProcess, running_broker
from smile.demo.tcp_proxy import TcpProxy

DELAY_MS_MAX = 5.0
STREAM_RATE_MIN = 300_000
VIEW_RATE_MIN = 100_000
STREAM_EVENTS = 3_000_000
VIEW_ROWS = 500_000
LIVE_ROWS = 1_000_000
PUBLICATION_ROWS = 20_000
SECONDS = 10.0
PERIOD_S = 0.02
CUT_S = 10.0
CUT_EVENTS_PER_SECOND = 5_000
AGAIN_MAX = 1.2
"""Bytes after a partition, at most, in multiples of what was missed."""
WAIT_S = 120.0
GREETING_BYTES_MAX = 10_000
"""What a link transfers before the first data."""

IMPORTING_VIEW = """
IMPORT Prices FROM buys;
CREATE VIEW Copies AS SELECT issue, price FROM Prices;
SUBSCRIBE Copies;
"""
IMPORTING_STREAM = """
IMPORT Quotes FROM buys;
CREATE VIEW Copies AS SELECT issue, LATEST(price) AS price FROM Quotes GROUP BY issue;
SUBSCRIBE Copies;
"""

Json = dict[str, Any]


class BrokerPair:
    """`buys` exports, `floor` imports from it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.buys = self._start("buys", PROGRAM)

    def start_floor(self, program: str, url: str | None = None) -> BrokerProcess:
        """`url` is where it calls `buys`, if there is a proxy."""
        variables = {"SMILE_BROKERS_BUYS_URL": url or self.buys.url}
        os.environ.update(variables)
        try:
            return self._start("floor", program)
        finally:
            for variable in variables:
                del os.environ[variable]

    def _start(self, name: str, program: str) -> BrokerProcess:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        source = folder / f"{name}.smile"
        source.write_text(program)
        options = ["--name", name, "--engine", "local", "--listen", "127.0.0.1:0", "--flight", ""]
        options += ["--message-bytes-max", str(2**26)]
        return self._stack.enter_context(running_broker(source, folder, options))


@contextmanager
def running_pair() -> Iterator[BrokerPair]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield BrokerPair(Path(folder), stack)


def broker_status(process: BrokerProcess) -> Json:
    status: Json = httpx.get(f"{process.url}/status", timeout=30.0).raise_for_status().json()
    return status


def publish(process: BrokerProcess, first: int, count: int, issues: int) -> None:
    """Events with consecutive numbers."""
    schema = pa.schema([("issue", pa.int64()), ("price", pa.int64())])
    for start in range(first, first + count, PUBLICATION_ROWS):
        numbers = list(range(start, min(start + PUBLICATION_ROWS, first + count)))
        batch = pa.RecordBatch.from_arrays([pa.array([n % issues for n in numbers]), pa.array(numbers)], schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        headers = {"content-type": "application/vnd.apache.arrow.stream"}
        url = f"{process.url}/streams/Quotes/events"
        httpx.post(url, content=sink.getvalue().to_pybytes(), headers=headers, timeout=60.0).raise_for_status()


def wait_for(condition: Callable[[], bool]) -> float:
    """Seconds until the condition is true."""
    start = time.perf_counter()
    while not condition():
        if time.perf_counter() - start > WAIT_S:
            raise TimeoutError("the brokers do not catch up")
        time.sleep(0.02)
    return time.perf_counter() - start


# ── throughput ──────────────────────────────────────────────────────────────────────────────────────────────────────


def measure_stream_throughput() -> tuple[float, float]:
    """Rows a second, and bytes a row."""
    with running_pair() as pair:
        publish(pair.buys, 0, STREAM_EVENTS, 1_000)
        floor = pair.start_floor("IMPORT Quotes FROM buys;\n")
        return _measure_imported(floor, STREAM_EVENTS)


def measure_view_throughput() -> tuple[float, float]:
    """Changed rows a second, and bytes a row."""
    with running_pair() as pair:
        publish(pair.buys, 0, VIEW_ROWS, VIEW_ROWS)
        wait_for(lambda: broker_status(pair.buys)["views"]["Prices"]["rows"] == VIEW_ROWS)
        floor = pair.start_floor("IMPORT Prices FROM buys;\n")
        return _measure_imported(floor, VIEW_ROWS)


def measure_live_throughput() -> float:
    """Changed rows a second of an imported view that follows while events are published as fast as they are accepted.
    Each event changes another row, so that no two changes of a row are merged."""
    with running_pair() as pair:
        floor = pair.start_floor(IMPORTING_VIEW)
        wait_for(lambda: broker_status(floor)["imports"]["Prices"]["state"] == "live")
        start = time.perf_counter()
        publish(pair.buys, 0, LIVE_ROWS, LIVE_ROWS)
        wait_for(lambda: broker_status(floor)["views"]["Copies"]["rows"] == LIVE_ROWS)
        return LIVE_ROWS / (time.perf_counter() - start)


def _measure_imported(floor: BrokerProcess, rows: int) -> tuple[float, float]:
    """From the last moment at which no data had arrived, until everything is in the log."""
    samples = [(time.perf_counter(), 0, 0)]
    while samples[-1][1] < rows:
        status = broker_status(floor)
        received = sum(link["received"]["bytes"] for link in status["links"] if link["state"] == "open")
        samples.append((time.perf_counter(), status["publisher"]["imported"], received))
        if samples[-1][0] - samples[0][0] > WAIT_S:
            raise TimeoutError(f"{samples[-1]} {status['imports']}")
        time.sleep(0.02)
    start, end = [sample for sample in samples if sample[2] < GREETING_BYTES_MAX][-1], samples[-1]
    return rows / (end[0] - start[0]), end[2] / rows


# ── delay ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def measure_delay(program: str, rows_per_second: int) -> tuple[Json, Json]:
    """The latency of a subscriber of each of the two brokers."""
    with running_pair() as pair:
        floor = pair.start_floor(program)
        with publish_quotes(pair.buys, rows_per_second):
            wait_for(lambda: broker_status(floor)["views"]["Copies"]["rows"] > 0)
            subscribed = ((pair.buys, "Prices"), (floor, "Copies"))
            listeners = [start_listeners("smile", p.url, view, 1, SECONDS) for p, view in subscribed]
            at_buys, at_floor = (json.loads(listener.communicate(timeout=WAIT_S)[0]) for listener in listeners)
        return at_buys["latency"], at_floor["latency"]


@contextmanager
def publish_quotes(process: BrokerProcess, rows_per_second: int) -> Iterator[None]:
    with httpx.Client(base_url=process.url, timeout=30.0) as client:

        def publish(numbers: range) -> None:
            client.post("/streams/Quotes/events", json=quotes(numbers, 1_000)).raise_for_status()

        with publish_steadily(publish, rows_per_second, PERIOD_S):
            yield


# ── a partition ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure_partition(program: str, relation: str) -> tuple[float, float]:
    """Seconds from the end of a partition until everything from before its end has arrived; and the bytes until then,
    in multiples of what the link transfers in the same time without a partition."""
    with running_pair() as pair, TcpProxy(int(pair.buys.url.rpartition(":")[2])) as proxy:
        floor = pair.start_floor(program, proxy.url)

        def known_until() -> float:
            status = broker_status(floor)
            behind_s = status["imports"][relation]["behind_s"]
            return 0.0 if behind_s is None else float(status["at"]) - float(behind_s)

        with publish_quotes(pair.buys, CUT_EVENTS_PER_SECOND):
            wait_for(lambda: known_until() > time.time() - 1)
            before, start = proxy.passed_bytes, time.time()
            time.sleep(SECONDS / 2)
            bytes_per_second = (proxy.passed_bytes - before) / (time.time() - start)
            proxy.cut()
            cut_at, before = time.time(), proxy.passed_bytes
            time.sleep(CUT_S)
            proxy.heal()
            healed_at = time.time()
            wait_for(lambda: known_until() >= healed_at)
            missed_bytes = bytes_per_second * (time.time() - cut_at)
            return time.time() - healed_at, (proxy.passed_bytes - before) / missed_bytes


# ── idle ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def measure_idle() -> tuple[float, float, float]:
    """Bytes a second over an idle link, both ways together; the processor time of an idle broker without a link, and of
    the two brokers of the link on average, in cores."""
    with running_pair() as pair:
        time.sleep(2)
        alone = _cores([pair.buys])
        floor = pair.start_floor(IMPORTING_VIEW)

        def transferred() -> int:
            return sum(k["received"]["bytes"] + k["sent"]["bytes"] for k in broker_status(floor)["links"])

        wait_for(lambda: broker_status(floor)["imports"]["Prices"]["state"] == "live")
        time.sleep(2)
        before, start = transferred(), time.perf_counter()
        linked = _cores([pair.buys, floor])
        return (transferred() - before) / (time.perf_counter() - start), alone, linked


def _cores(processes: Sequence[BrokerProcess]) -> float:
    """Cores that a process uses, on average."""
    before, start = [cpu_seconds(p.popen.pid) for p in processes], time.perf_counter()
    time.sleep(SECONDS)
    used = sum(cpu_seconds(p.popen.pid) for p in processes) - sum(before)
    return used / len(processes) / (time.perf_counter() - start)


def run(report: Report) -> None:
    rows = []
    for name, program in (("view", IMPORTING_VIEW), ("stream", IMPORTING_STREAM)):
        for rate in (1_000, 10_000):
            direct, linked = measure_delay(program, rate)
            median, late = (1000 * (linked[share] - direct[share]) for share in ("0.5", "0.99"))
            target = f"≤ {DELAY_MS_MAX:.0f}: {verdict(median <= DELAY_MS_MAX)}"
            rows.append((f"delay of a {name}, {rate:,} rows/s", f"{median:,.1f} ms, 99th {late:,.1f} ms", target))
    for name, measure, rate_min in (
        ("stream", measure_stream_throughput, STREAM_RATE_MIN),
        ("view", measure_view_throughput, VIEW_RATE_MIN),
    ):
        throughput, size = measure()
        target = f"≥ {rate_min:,}: {verdict(throughput >= rate_min)}"
        rows.append((f"throughput of a {name}", f"{throughput:,.0f} rows/s, {size:,.1f} bytes a row", target))
    live = measure_live_throughput()
    live_target = f"≥ {VIEW_RATE_MIN:,}: {verdict(live >= VIEW_RATE_MIN)}"
    rows.append(("live changes of a view, published to shown at the other broker", f"{live:,.0f} rows/s", live_target))
    for name, program, relation in (("stream", IMPORTING_STREAM, "Quotes"), ("view", IMPORTING_VIEW, "Prices")):
        heal_s, again = measure_partition(program, relation)
        rows.append(
            (
                f"a {name} after {CUT_S:.0f} s without a link, at {CUT_EVENTS_PER_SECOND:,} events/s",
                f"complete after {heal_s:,.1f} s, {again:.2f} times the bytes that were missed",
                f"≤ {AGAIN_MAX} times: {verdict(again <= AGAIN_MAX)}",
            )
        )
    idle_bytes, cores_alone, cores_linked = measure_idle()
    idle_text = f"{idle_bytes:,.0f} bytes/s; {100 * cores_linked:.1f} % of a core a broker"
    idle_text += f", {100 * cores_alone:.1f} % without a link"
    rows.append(("an idle link", idle_text, ""))
    report.table(
        "Links between brokers",
        "Two brokers on loopback, with the engine in their processes, and flushed logs. The delay is the difference of "
        f"what subscribers of the two brokers see, with a publication every {1000 * PERIOD_S:.0f} ms. Throughput is "
        "measured while the importing broker catches up; that of live changes while both brokers maintain the view. A "
        "partition is a proxy that holds back all bytes. The bytes that were missed are those that the link transfers "
        "in the same time without a partition. Everything shares the machine.",
        ("measured", "result", "target"),
        rows,
    )
    network_floor.run(report)
