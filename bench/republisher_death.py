"""How soon a consumer has events again when the republisher that it uses dies: broker processes, and `kill -9`."""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from bench.prices import publish_steadily
from bench.report import Report
from smile.cli.log_comparison import Comparison, compare_logs
from smile.client import Change, connect
from tests.brokers import BrokerProcess
from tests.network.processes import NetworkProcesses
from tests.processes import wait_until

KILLS: Final = 10
EVENTS_PER_SECOND: Final = 100
PERIOD_S: Final = 0.01
SETTLE_S: Final = 2.0
"""How long both republishers run before one of them is killed."""
WAIT_S: Final = 120.0
BEHIND_S_MAX: Final = 0.5
"""A republisher has caught up if it is no further behind."""

_NTP = 'CREATE GLOBAL STREAM ntp (t: time, tool: string, "from": string -> latency: int);\n'
_PRODUCER = _NTP + "ADVERTISE ntp WHERE \"from\" = 'hw' AS S;\n"
_CONSUMER = _NTP + "CREATE VIEW v AS SELECT * FROM ntp; SUBSCRIBE v;\n"

Json = dict[str, Any]


class Arrivals:
    """When each event was published, and when the consumer's subscriber had it, by its number. Times are monotonic
    seconds."""

    def __init__(self) -> None:
        self.published: dict[int, float] = {}
        self.arrived: dict[int, float] = {}

    def wait_for_later(self, moment: float) -> float:
        """Waits for the first event that was published after a moment. Returns when it arrived."""

        def find() -> float | None:
            later = [n for n, at in list(self.published.items()) if at > moment]
            return min((self.arrived[n] for n in later if n in self.arrived), default=None)

        first = wait_until(find, "no event comes", WAIT_S)
        assert first is not None
        return first


def run(report: Report, kills: int = KILLS) -> None:
    times, comparison = measure_deaths(kills)
    report.table(
        "A republisher dies",
        "A producer, two equivalent republishers and a consumer: four processes on loopback, with the engine in "
        f"their processes and flushed logs; {EVENTS_PER_SECOND} events a second. The republisher that the consumer "
        "uses is killed (`kill -9`), and started again. The time is that from the signal until a subscriber of the "
        "consumer's view has an event that was published after it: it can only come by the new plan. Lost and "
        "doubled are events of the consumer's log compared with that of the producer, one by one. Everything shares"
        " the machine.",
        ("deaths", "median", "worst", "events published", "lost", "doubled"),
        [
            (
                str(len(times)),
                f"{1000 * median(times):,.0f} ms",
                f"{1000 * max(times):,.0f} ms",
                f"{comparison.published:,}",
                str(comparison.lost),
                str(comparison.doubled),
            )
        ],
    )


def measure_deaths(kills: int) -> tuple[list[float], Comparison]:
    """For each death the seconds until the first event by the new plan; and what was published and received in all."""
    times, arrivals = list[float](), Arrivals()
    with tempfile.TemporaryDirectory() as folder, NetworkProcesses(Path(folder)) as network:
        hw = network.start("hw", _PRODUCER, origin=2)
        home = {"hw": network.url("hw")}
        relays = {
            name: network.start(name, f"{_NTP}CREATE REPUBLISHER {name.upper()} AS SELECT * FROM ntp;\n", home)
            for name in ("r1", "r2")
        }
        consumer = network.start("c", _CONSUMER, {**home, **{name: network.url(name) for name in relays}})
        consumer.wait_until_ready()
        with _following(consumer, arrivals):
            with _publishing(hw, arrivals):
                for _ in range(kills):
                    used = relays[_wait_for_both(consumer, relays)]
                    time.sleep(SETTLE_S)
                    killed_at = time.monotonic()
                    used.popen.kill()
                    times.append(arrivals.wait_for_later(killed_at) - killed_at)
                    used.wait()
                    used.start()
            wait_until(lambda: arrivals.arrived.keys() == arrivals.published.keys(), "events are lost", WAIT_S)
        plans = _get(consumer, "/registry")["plans"]
        (comparison,) = compare_logs("ntp", [hw.data_path / "log"], consumer.data_path / "log", plans)
    return times, comparison


def _wait_for_both(consumer: BrokerProcess, relays: dict[str, BrokerProcess]) -> str:
    """Until the consumer uses one of the republishers, and the other one could replace it. Returns the one in use."""

    def find() -> str | None:
        report = _get(consumer, "/registry")
        sources = [source["broker"] for plan in report["plans"] for source in plan["sources"]]
        publishers = {p["broker"] for s in report["global_streams"] for p in s["publishers"] if p["problem"] is None}
        has_all = relays.keys() <= publishers and all(_has_caught_up(relay) for relay in relays.values())
        return sources[0] if has_all and len(sources) == 1 and sources[0] in relays else None

    used = wait_until(find, "the republishers are not used", WAIT_S)
    assert used is not None
    return used


def _has_caught_up(relay: BrokerProcess) -> bool:
    imports = [i for i in _get(relay, "/status")["imports"].values() if i["broker"] == "hw"]
    return any(i["state"] == "live" and i["behind_s"] is not None and i["behind_s"] < BEHIND_S_MAX for i in imports)


@contextmanager
def _publishing(hw: BrokerProcess, arrivals: Arrivals) -> Iterator[None]:
    with httpx.Client(base_url=hw.url, timeout=30.0) as client:

        def publish(numbers: range) -> None:
            events = [{"tool": "ping", "from": "hw", "latency": n} for n in numbers]
            arrivals.published |= dict.fromkeys(numbers, time.monotonic())
            if events:
                client.post("/streams/ntp/events", content=json.dumps(events)).raise_for_status()

        with publish_steadily(publish, EVENTS_PER_SECOND, PERIOD_S):
            yield


@contextmanager
def _following(consumer: BrokerProcess, arrivals: Arrivals) -> Iterator[None]:
    """A subscriber of the consumer's view."""

    def record(changes: Sequence[Change]) -> None:
        now = time.monotonic()
        for change in changes:
            arrivals.arrived.setdefault(int(change.row["latency"]), now)

    with connect(consumer.url) as client:
        client.table("v").changed(record)
        yield


def _get(broker: BrokerProcess, path: str) -> Json:
    with broker.http() as client:
        answer: Json = client.get(path).json()
    return answer
