"""The registry: how long planning takes with many publishers and consumers, what republishers save on real links, and
how soon others take over from one that dies."""

import gc
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from rich.progress import track

from bench import republisher_death
from bench.hierarchy_links import ADVANCE_S, LinkCounts, LinkedNetwork
from bench.report import Report
from smile.algebra import mmpl
from smile.algebra.types import FLOAT, INT, STRING, Value
from smile.registry.conditions import Condition, all_of
from smile.registry.hierarchy import build_hierarchy, republisher_query
from smile.registry.maintenance import PlanMaintenance
from smile.registry.planner import Query, QueryPlan, choose_plan
from smile.registry.publishers import PublisherKind, StreamPublisher
from smile.registry.schema import GlobalSchema

NTP: Final = GlobalSchema(
    "ntp", "t", (("from", STRING), ("to", STRING), ("tool", STRING), ("psize", INT)), (("latency", FLOAT),)
)
SITES, TOOLS = 160, 5
PRODUCERS, REPUBLISHERS, CONSUMERS = 10_000, 1_000, 10_000
SMALL = 1_000
CHANGES = 400
PLAN_TARGET_MS, CHANGE_TARGET_MS = 10, 50


def run(report: Report) -> None:
    _report_planning(report)
    _report_hierarchies(report)
    republisher_death.run(report)


# ── the network ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _condition(**values: Value) -> Condition:
    """Columns with these values; `least` is the least packet size."""
    parts: list[mmpl.Expr] = []
    for name, value in values.items():
        column, operator = ("psize", ">=") if name == "least" else (name.rstrip("_"), "=")
        data_type = NTP.types[column]
        parts.append(mmpl.Call(operator, (mmpl.ColumnRef(column), mmpl.Constant(value, data_type))))
    return all_of(NTP, parts)


def _publisher(name: str, kind: PublisherKind, condition: Condition) -> StreamPublisher:
    return StreamPublisher(name, kind, "broker", condition)


def _producer(number: int, random: Random, sites: int) -> StreamPublisher:
    """Measures the way from one site to another."""
    sites_chosen = random.sample(range(sites), 2)
    tool = f"tool{random.randrange(TOOLS)}"
    condition = _condition(from_=f"site{sites_chosen[0]}", to=f"site{sites_chosen[1]}", tool=tool)
    return _publisher(f"S{number}", "producer", condition)


def _republishers(count: int, sites: int) -> list[StreamPublisher]:
    """One for all events, one for each tool, for each site in both directions, and for each tool of a site, as many as
    are wanted."""
    conditions = [_condition()]
    conditions += [_condition(tool=f"tool{tool}") for tool in range(TOOLS)]
    conditions += [_condition(from_=f"site{site}") for site in range(sites)]
    conditions += [_condition(to=f"site{site}") for site in range(sites)]
    conditions += [_condition(from_=f"site{s}", tool=f"tool{t}") for s in range(sites) for t in range(TOOLS)]
    return [_publisher(f"R{i}", "republisher", condition) for i, condition in enumerate(conditions[:count])]


def _query(random: Random, sites: int) -> Query:
    """Selects a site, often with a tool or a packet size; seldom a tool of all sites."""
    site, tool = f"site{random.randrange(sites)}", f"tool{random.randrange(TOOLS)}"
    least = random.choice([64, 256, 512, 1024, 4096, 16384])
    return Query(
        random.choice(
            [
                _condition(from_=site),
                _condition(from_=site, tool=tool),
                _condition(from_=site, least=least),
                _condition(from_=site, tool=tool, least=least),
                _condition(to=site),
                _condition(to=site, tool=tool),
                _condition(from_=site, to=f"site{random.randrange(sites)}"),
                _condition(tool=tool, least=least) if random.random() < 0.1 else _condition(from_=site, tool=tool),
            ]
        )
    )


# ── planning ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_planning(report: Report) -> None:
    random, plans = Random(0), PlanMaintenance()
    before_bytes = _memory_bytes()
    for number in track(range(PRODUCERS), "producers"):
        plans.add_publisher(_producer(number, random, SITES))
    for republisher in track(_republishers(REPUBLISHERS, SITES), "republishers"):
        plans.add_publisher(republisher)
        plans.add_query(republisher_query(republisher))

    def plan(query: Query) -> QueryPlan:
        return choose_plan(query, plans.add_query(query), plans.publishers)

    queries = [_query(random, SITES) for _ in range(CONSUMERS)]
    running = {query: QueryPlan() for query in queries}
    planning = []
    for query in track(queries, "consumers"):
        seconds, running[query] = _timed(lambda query=query: plan(query))  # type: ignore[misc]
        planning.append(seconds)
    used_bytes = _memory_bytes() - before_bytes
    joins = _time_changes(plans, lambda i: _producer(PRODUCERS + i, random, SITES))
    changed = random.sample(_republishers(REPUBLISHERS, SITES)[1 + TOOLS :], CHANGES)
    republisher_changes = _time_republishers(plans, changed)
    general = _time_republishers(plans, _republishers(1, SITES))
    rows = [
        ("a consumer's plan", f"{len(planning):,}", *_milliseconds(planning), ""),
        ("a producer joins", str(len(joins[0])), *_milliseconds(joins[0]), _touched(joins[2])),
        ("a producer leaves", str(len(joins[1])), *_milliseconds(joins[1]), _touched(joins[3])),
        (
            "a republisher leaves",
            str(len(changed)),
            *_milliseconds(republisher_changes[0]),
            _touched(republisher_changes[2]),
        ),
        (
            "a republisher joins",
            str(len(changed)),
            *_milliseconds(republisher_changes[1]),
            _touched(republisher_changes[3]),
        ),
        ("the one for all events leaves", "1", *_milliseconds(general[0]), _touched(general[2])),
        ("the one for all events joins", "1", *_milliseconds(general[1]), _touched(general[3])),
    ]
    changes = [*joins[0], *joins[1], *republisher_changes[0], *republisher_changes[1]]
    report.table(
        "Planning in the registry",
        f"{PRODUCERS:,} producers, {REPUBLISHERS:,} republishers and {CONSUMERS:,} consumers of one global stream, "
        f"with {len(plans.queries):,} different conditions. Publishers and queries, with their indexes and meta "
        f"plans, have added {used_bytes / 2**20:.0f} MiB to the resident memory of the process. A plan should take "
        f"at most {PLAN_TARGET_MS} ms (median) and a change {CHANGE_TARGET_MS} ms: {_verdict(planning, changes)}. "
        "Touched are the queries whose meta plans changed: mean, and most.",
        ("what", "times", "median ms", "p99 ms", "worst ms", "queries touched"),
        rows,
    )


def _verdict(planning: list[float], changes: list[float]) -> str:
    plan_ms, change_ms = median(planning) * 1000, _percentile(changes, 0.99) * 1000
    are_met = plan_ms <= PLAN_TARGET_MS and change_ms <= CHANGE_TARGET_MS
    return "they do, at the 99th percentile of changes" if are_met else "they do not"


def _memory_bytes() -> int:
    """The resident memory of this process now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _timed(action: Callable[[], QueryPlan]) -> tuple[float, QueryPlan]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


_Times = tuple[list[float], list[float], list[int], list[int]]


def _time_changes(plans: PlanMaintenance, new: Callable[[int], StreamPublisher]) -> _Times:
    """Each of some new publishers joins, and leaves again: seconds of both, and queries touched by both."""
    times: _Times = ([], [], [], [])
    for number in range(CHANGES):
        publisher = new(number)
        _time_change(lambda publisher=publisher: plans.add_publisher(publisher), times[0], times[2])  # type: ignore[misc]
        _time_change(lambda publisher=publisher: plans.remove_publisher(publisher.name), times[1], times[3])  # type: ignore[misc]
    return times


def _time_republishers(plans: PlanMaintenance, republishers: Iterable[StreamPublisher]) -> _Times:
    """Each of some republishers leaves, and joins again."""
    times: _Times = ([], [], [], [])
    for publisher in republishers:
        _time_change(lambda publisher=publisher: plans.remove_publisher(publisher.name), times[0], times[2])  # type: ignore[misc]
        _time_change(lambda publisher=publisher: plans.add_publisher(publisher), times[1], times[3])  # type: ignore[misc]
    return times


def _time_change(change: Callable[[], Mapping[Query, object]], seconds: list[float], touched: list[int]) -> None:
    start = time.perf_counter()
    queries = change()
    seconds.append(time.perf_counter() - start)
    touched.append(len(queries))


def _percentile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * share))]


def _milliseconds(seconds: list[float]) -> tuple[str, str, str]:
    values = (median(seconds), _percentile(seconds, 0.99), max(seconds))
    return tuple(f"{value * 1000:.2f}" for value in values)  # type: ignore[return-value]


def _touched(counts: list[int]) -> str:
    return f"{sum(counts) / len(counts):.1f}, {max(counts):,}"


# ── hierarchies ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_hierarchies(report: Report) -> None:
    sites, random = 20, Random(0)
    producers = [_producer(number, random, sites) for number in range(SMALL)]
    queries = [_query(random, sites) for _ in range(SMALL)]
    full = 1 + TOOLS + 2 * sites + sites * TOOLS
    hierarchies = {
        "none": [],
        "one for all events": _republishers(1, sites),
        "one for each site": _republishers(full, sites)[1 + TOOLS : 1 + TOOLS + 2 * sites],
        "for each site, and all events": _republishers(1 + TOOLS + 2 * sites, sites),
        "and for each tool of a site": _republishers(full, sites),
    }
    counts = {
        name: measure_links(producers, republishers, queries)
        for name, republishers in track(hierarchies.items(), "hierarchies")
    }
    report.table(
        "Connections and messages of a hierarchy",
        f"{SMALL:,} producers of {sites} sites and {SMALL:,} consumers, each with a broker of its own, linked to the "
        "sources of its plan. The links, imports, exports and assemblies are those of the product; there is no network "
        "and no engine. Each consumer had exactly the events that it selects. Opening counts all messages before the "
        "first event; the others are of a round, in which every producer publishes one event. There are as many "
        "confirmations, which count in the bytes. A link that is used sends no heartbeats. "
        + explain_links({name: c for name, (_, c) in counts.items()}),
        (
            "republishers",
            "depth",
            "connections",
            "of a consumer",
            "of the busiest producer",
            "messages to open",
            "messages of a round",
            "of these by producers",
            "kB",
            "events in them",
        ),
        [
            (
                name,
                str(depth),
                f"{c.connections:,}",
                f"{c.of_consumer:.1f}",
                f"{c.of_busiest_producer:,}",
                f"{c.opening:,}",
                f"{c.round.data:,}",
                f"{c.by_producers:,}",
                f"{c.round.bytes / 1000:,.0f}",
                f"{c.rows:,}",
            )
            for name, (depth, c) in counts.items()
        ],
    )
    report.table(
        "An idle hierarchy",
        f"The same networks while nothing is published: the horizon of each producer advances every {ADVANCE_S:g} s, "
        "at times of its own, and everybody has to know it. Silence waits for that of other origins for a quarter of "
        "this time at each hop. Without any delay, the horizons of consumers would be behind by half of the interval "
        "on average.",
        ("republishers", "messages a second", "kB a second", "horizons behind, mean s"),
        [
            (name, f"{c.idle.data:,}", f"{c.idle.bytes / 1000:,.0f}", f"{c.lag_s:.2f}")
            for name, (_, c) in counts.items()
        ],
    )


def explain_links(counts: Mapping[str, LinkCounts]) -> str:
    """Where a hierarchy pays. The first counts are those without one."""
    alone, *others = counts.items()
    fewest = min(others, key=lambda item: item[1].connections)
    cheapest = min(others, key=lambda item: item[1].round.data)
    smallest = min(others, key=lambda item: item[1].round.bytes)
    _, none = alone
    return (
        f"A hierarchy pays in connections, {_compare(fewest[1].connections, none.connections)} with {fewest[0]}; at "
        f"the producers, the busiest of which has {fewest[1].of_busiest_producer:,} instead of "
        f"{none.of_busiest_producer:,}, and which send {_compare(fewest[1].by_producers, none.by_producers)} messages; "
        f"and in messages on all hops, {_compare(cheapest[1].round.data, none.round.data)} with {cheapest[0]}, since a "
        "message has ranges of all origins that a link carries. In bytes it is "
        f"{_compare(smallest[1].round.bytes, none.round.bytes)} with {smallest[0]}, the best in that: a link says of "
        "each origin of its republisher up to where it is known, also of those without events for this consumer. So "
        "republishers with narrow conditions pay more than one for all events."
    )


def _compare(number: int, alone: int) -> str:
    ratio = number / alone
    return f"{1 / ratio:.1f} times fewer" if ratio < 1 else f"{ratio:.1f} times as many"


def measure_links(
    producers: list[StreamPublisher], republishers: list[StreamPublisher], queries: list[Query]
) -> tuple[int, LinkCounts]:
    """The depth of the hierarchy, and what its links need. Consumers come one after the other, and see the loads that
    those before them have left."""
    publishers = {p.name: p for p in [*producers, *republishers]}
    hierarchy, plans = build_hierarchy(publishers.values()), PlanMaintenance()
    for publisher in publishers.values():
        plans.add_publisher(publisher)
    consumers = []
    for query in queries:
        plan = choose_plan(query, plans.add_query(query), publishers)
        consumers.append((query, plan))
        for name in plan.representatives:
            publishers[name] = replace(publishers[name], load=publishers[name].load + 1)
    return hierarchy.depth, LinkedNetwork(publishers, hierarchy, consumers).measure(_event)


def _event(producer: StreamPublisher) -> dict[str, Value]:
    boxes = producer.condition.boxes
    assert boxes is not None
    fixed = {column: values.intervals[0].first for column, values in boxes[0].items()}
    return {**fixed, "psize": 1024, "latency": 1.0, "t": 0}
