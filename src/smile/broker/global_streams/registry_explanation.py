"""Explains the plans of a broker, and the hierarchy of all republishers, from the publishers that it knows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from smile.registry.explain import explain_chosen
from smile.registry.hierarchy import find_hierarchy
from smile.registry.planner import MetaPlan, Query, QueryPlan, choose_plan, plan_from_scratch
from smile.registry.publishers import StreamPublisher

Json = dict[str, Any]
ChosenPlan = tuple[Query, MetaPlan, QueryPlan]


@dataclass(frozen=True)
class PlannedStream:
    """A global stream at one broker: the publishers that it plans with, and what it has chosen for its imports, both by
    name."""

    broker: str
    publishers: Mapping[str, StreamPublisher]
    chosen: Mapping[str, ChosenPlan]


def explain_streams(streams: Iterable[PlannedStream]) -> Json:
    streams = list(streams)
    return {
        "plans": [
            explain_import(name, stream.publishers, chosen)
            for stream in streams
            for name, chosen in stream.chosen.items()
        ],
        "hierarchy": [arrow for stream in streams for arrow in _find_arrows(stream)],
    }


def choose_from_scratch(query: Query, publishers: Mapping[str, StreamPublisher]) -> ChosenPlan:
    meta = plan_from_scratch(query, publishers.values())
    return query, meta, choose_plan(query, meta, publishers)


def explain_import(name: str, publishers: Mapping[str, StreamPublisher], chosen: ChosenPlan) -> Json:
    query, meta, plan = chosen
    explanation = explain_chosen(query, publishers, meta, plan)
    return {
        "name": name,
        "query": str(query.condition),
        "meta_plan": str(meta),
        "plan": [str(source) for source in plan.sources],
        "publishers": dict(explanation.reasons),
    }


def _find_arrows(stream: PlannedStream) -> list[Json]:
    """Of the plans of other brokers, it is known which ones are equally good."""
    own = {f"{name}@{stream.broker}": plan for name, (_, _, plan) in stream.chosen.items()}
    arrows = find_hierarchy(stream.publishers, own).arrows
    return [{"source": source, "target": target, "runs": runs} for source, target, runs in arrows]
