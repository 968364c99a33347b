"""The closed loop of the paper on one broker and on four, each held to the same share of a core."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench.prices import cpu_seconds
from bench.processor_quota import ProcessorQuota, processor_quota, quota_problem
from bench.report import Report, verdict
from smile.client import AsyncClient, connect_async
from smile.demo.broker_network import TRADE_FLOOR, NetworkPlan, RunningNetwork
from smile.demo.broker_process import example_program
from smile.demo.trade_floor import Bidders, FloorClients, FloorMetrics, FloorSettings, Matcher

SHARE = 0.2
"""Of a core, for each broker. Four brokers leave more than a core of two for the clients, so that these are not the
limit. With much less, the fixed costs of a batch, of a commit and of an idle process weigh more than those of a
match."""
ISSUES, PRICES = 100, 10
OPEN_MAX_STEPS = (1_500, 3_000, 6_000, 12_000)
"""Bids that are open on each side: the load is raised in these steps. Up to a bid for each issue and price waits for
another one to match it, so the load is less."""
WARMUP_S = 6.0
MEASURED_S = 10.0
MATCHERS = 2
LINK_DELAY_S = 0.005
PAPER_RATIO = 155.6 / 87.1
RATIO_MIN = 2.5
ONE_BROKER = NetworkPlan({"floor": example_program("tradefloor.smile")}, ())
BY_ISSUE = NetworkPlan({f"floor{n}": example_program("tradefloor.smile") for n in range(4)}, ())
"""Each broker has the whole trading floor for a quarter of the issues, and clients call the one that has the issue."""


@dataclass(frozen=True)
class LoopResult:
    """At the best of the steps: matches a second, the median and 99th percentile of the pairs' latency in seconds, and
    the processor time of each broker in cores."""

    open_max: int
    rate: float
    latency_p50: float
    latency_p99: float
    cores: Mapping[str, float]

    @property
    def busiest(self) -> str:
        return max(self.cores, key=lambda name: self.cores[name])

    @property
    def busiest_cpu_s(self) -> float:
        """Processor time of the busiest broker for a match. Other work on the machine affects it less than the
        rate."""
        return self.cores[self.busiest] / self.rate


@dataclass(frozen=True)
class LoopSetting:
    """`share` is that of each broker; None without a quota."""

    plan: NetworkPlan
    share: float | None
    link_delay_s: float = 0.0


def run(report: Report, steps: Sequence[int] = OPEN_MAX_STEPS) -> None:
    problem = quota_problem()
    share = None if problem else SHARE
    one = measure_loop(LoopSetting(ONE_BROKER, share), steps)
    one_of_four = None if share is None else measure_loop(LoopSetting(ONE_BROKER, 4 * share), steps)
    four = measure_loop(LoopSetting(TRADE_FLOOR, share), steps)
    delayed = measure_loop(LoopSetting(TRADE_FLOOR, share, LINK_DELAY_S), steps)
    by_issue = measure_loop(LoopSetting(BY_ISSUE, share), steps)
    quota = "none" if share is None else f"{share:g} cores"
    rows = [
        ("in the paper: 1 broker", "1 machine", "87.1", "", "", "", "", "", ""),
        ("in the paper: 4 brokers", "2 machines", "155.6", f"{PAPER_RATIO:.2f}", "", "", "", "", ""),
        ("1 broker", quota, *_cells(one, None, None), ""),
    ]
    if one_of_four is not None:
        rows.append(("1 broker", f"{4 * SHARE:g} cores", *_cells(one_of_four, one, None), ""))
    target = f"≥ {RATIO_MIN}: {verdict(four.rate / one.rate >= RATIO_MIN)}"
    quota = quota if share is None else f"{quota} each"
    rows.append(("4 brokers", quota, *_cells(four, one, one_of_four), target))
    delay_ms = 1000 * LINK_DELAY_S
    rows.append((f"4 brokers, links of {delay_ms:.0f} ms each way", quota, *_cells(delayed, one, one_of_four), ""))
    rows.append(("4 brokers, a quarter of the issues each", quota, *_cells(by_issue, one, one_of_four), ""))
    quota_text = (
        f"There are no quotas, because {problem}: the brokers share the machine. "
        if problem
        else "Each broker is held to its quota by a control group; clients and delayed links are outside. The quota "
        "leaves more than half of two cores for the clients, so that the brokers are the limit. "
    )
    report.table(
        "The closed loop on a network",
        f"Bidders keep bids open on each side, over {ISSUES} issues at {PRICES} prices: up to "
        f"{', '.join(f'{n:,}' for n in steps[:-1])} and then {steps[-1]:,}. {MATCHERS} matchers match what they see. "
        f"The best of these rates counts. {quota_text}A broker that uses less than its quota waits for the clients. "
        f"Engines are in the brokers' processes, logs are flushed. {MEASURED_S:.0f} s each, after {WARMUP_S:.0f} s to "
        "warm up. Latency is from the later bid of a pair until a matcher sees it. The processor time of a match is "
        "that of the busiest broker. In parentheses, the processor time of one broker divided by it: the ratio of the "
        "rates if the busiest broker uses its quota. With the arrangement of the paper, one broker still computes and "
        "delivers all of Matchable, which is most of the work of one broker that does everything: so the three others "
        "can hardly make it faster. Load is shared by a column that rows are joined by: the last row has four brokers, "
        "each with the whole program for a quarter of the issues.",
        (
            "brokers",
            "quota",
            "matches/s",
            "times 1 broker",
            "times 1 broker with equal total quota",
            "latency, ms, median / 99th",
            "cores used: busiest, all",
            "processor time a match, µs",
            "target",
        ),
        rows,
    )


def _cells(result: LoopResult, one: LoopResult | None, same_total: LoopResult | None) -> tuple[str, ...]:
    bound = "" if same_total is None or one is None else f" ({one.busiest_cpu_s / result.busiest_cpu_s:.2f})"
    return (
        f"{result.rate:,.1f}",
        "" if one is None else f"{result.rate / one.rate:.2f}",
        "" if same_total is None else f"{result.rate / same_total.rate:.2f}",
        f"{1000 * result.latency_p50:,.0f} / {1000 * result.latency_p99:,.0f}",
        f"{result.busiest} {result.cores[result.busiest]:.3f}, {sum(result.cores.values()):.3f}",
        f"{1e6 * result.busiest_cpu_s:,.0f}{bound}",
    )


def measure_loop(setting: LoopSetting, steps: Sequence[int] = OPEN_MAX_STEPS) -> LoopResult:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        quotas: list[ProcessorQuota] = []
        share = setting.share
        if share is not None:
            quotas = [stack.enter_context(processor_quota(share)) for _ in setting.plan.programs]
        network = stack.enter_context(
            RunningNetwork(
                setting.plan,
                Path(folder),
                ["--engine", "local"],
                delay_s=setting.link_delay_s,
                has_proxies=setting.link_delay_s > 0,
            )
        )
        network.wait_until_ready()
        for process, quota in zip(network.brokers.values(), quotas, strict=False):
            quota.add(process.popen.pid)
        return asyncio.run(_run_loop(network, steps))


async def _run_loop(network: RunningNetwork, steps: Sequence[int]) -> LoopResult:
    clients = [await _connect(network) for _ in range(MATCHERS + 1)]
    metrics, bidders, tasks = FloorMetrics(), list[Bidders](), list[asyncio.Task[None]]()
    count = len(clients[0])
    for number, (of_bidders, *of_matchers) in enumerate(zip(*clients, strict=True)):
        share = ISSUES // count
        settings = FloorSettings(share, PRICES, steps[0] // count, first_issue=number * share)
        bidders.append(Bidders(of_bidders, settings, metrics))
        issues = [settings.issue_name(number) for number in range(share)]
        matchers = [Matcher(client, issues[n::MATCHERS], metrics).run() for n, client in enumerate(of_matchers)]
        tasks += [asyncio.create_task(participant) for participant in (bidders[-1].run(), *matchers)]
    results = list[LoopResult]()
    try:
        for open_max in steps:
            for each in bidders:
                each.settings = replace(each.settings, open_max=open_max // count)
            await _check_running(tasks, WARMUP_S)
            metrics.latencies.clear()
            matches, start, cpu = metrics.matches, time.monotonic(), _cpu(network)
            await _check_running(tasks, MEASURED_S)
            seconds, cpu_after = time.monotonic() - start, _cpu(network)
            results.append(
                LoopResult(
                    open_max,
                    (metrics.matches - matches) / seconds,
                    metrics.latency_quantile(0.5) or 0.0,
                    metrics.latency_quantile(0.99) or 0.0,
                    {name: (cpu_after[name] - used) / seconds for name, used in cpu.items()},
                )
            )
            print(results[-1], file=sys.stderr)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in {c for places in clients for p in places for c in (p.buys, p.sells, p.matches, p.floor)}:
            await client.close()
    return max(results, key=lambda result: result.rate)


async def _check_running(tasks: Sequence["asyncio.Task[None]"], seconds: float) -> None:
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _connect(network: RunningNetwork) -> list[FloorClients]:
    """A client of each part of the issues."""
    urls = network.urls()
    clients: dict[str, AsyncClient] = {name: await connect_async(url, timeout=30.0) for name, url in urls.items()}
    if network.plan is TRADE_FLOOR:
        return [FloorClients(**clients)]
    return [FloorClients.of_one_broker(client) for client in clients.values()]


def _cpu(network: RunningNetwork) -> dict[str, float]:
    return {name: cpu_seconds(process.popen.pid) for name, process in network.brokers.items()}
