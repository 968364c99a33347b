"""The hierarchy of republishers that follows from the publishers alone (Proposition 5).

A republisher feeds from publishers that it strictly subsumes, so nobody depends on itself. Each republisher finds its
meta plan without knowing those of others, and so does everyone else: the hierarchy does not depend on its history.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from smile.algebra.dependencies import topological_order
from smile.registry.maintenance import PlanMaintenance
from smile.registry.planner import MetaPlan, Query, QueryPlan, choose_plan, plan_from_scratch
from smile.registry.publishers import StreamPublisher


@dataclass(frozen=True)
class Hierarchy:
    """By republisher: its meta plan, which is the logical hierarchy, and its plan, which is the physical one."""

    metas: Mapping[str, MetaPlan]
    plans: Mapping[str, QueryPlan]

    @property
    def logical_edges(self) -> dict[str, list[str]]:
        return {name: sorted(meta.publishers) for name, meta in self.metas.items()}

    @property
    def physical_edges(self) -> dict[str, list[str]]:
        return {name: [source.publisher for source in plan.sources] for name, plan in self.plans.items()}

    @property
    def arrows(self) -> list[tuple[str, str, bool]]:
        """From a publisher to a republisher that may feed from it, and whether it does."""
        running = self.physical_edges
        return [
            (source, target, source in running[target])
            for target, sources in self.logical_edges.items()
            for source in sources
        ]

    @property
    def depth(self) -> int:
        """The number of republishers on the longest way from a producer."""
        depths: dict[str, int] = {}
        edges = _with_producers(self.logical_edges)
        circles: list[list[str]] = []
        for name in topological_order(edges, circles.append):
            depths[name] = 1 + max(depths[p] for p in edges[name]) if edges[name] else int(name in self.metas)
        assert not circles, "no republisher strictly subsumes itself"
        return max(depths.values(), default=0)


def republisher_query(republisher: StreamPublisher) -> Query:
    return Query(republisher.condition, is_republisher=True)


def build_hierarchy(publishers: Iterable[StreamPublisher]) -> Hierarchy:
    by_name = {publisher.name: publisher for publisher in sorted(publishers, key=lambda p: p.name)}
    queries = {name: republisher_query(p) for name, p in by_name.items() if not p.is_producer}
    metas = {name: plan_from_scratch(query, by_name.values()) for name, query in queries.items()}
    plans = {name: choose_plan(query, metas[name], by_name) for name, query in queries.items()}
    return Hierarchy(metas, plans)


def find_hierarchy(publishers: Mapping[str, StreamPublisher], running: Mapping[str, QueryPlan]) -> Hierarchy:
    """The same for many publishers, by name. Republishers without a `running` plan have the one that would be chosen
    here."""
    maintenance = PlanMaintenance()
    for publisher in publishers.values():
        maintenance.add_publisher(publisher)
    queries = {name: republisher_query(p) for name, p in sorted(publishers.items()) if not p.is_producer}
    metas = {name: maintenance.add_query(query) for name, query in queries.items()}
    plans = {name: choose_plan(q, metas[name], publishers, running.get(name)) for name, q in queries.items()}
    return Hierarchy(metas, plans)


def find_circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The circles in a hierarchy. There are none unless the planning is wrong."""
    circles: list[list[str]] = []
    topological_order(_with_producers(edges), circles.append)
    return circles


def _with_producers(edges: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Producers have no edges of their own."""
    below = {name for sources in edges.values() for name in sources}
    return {name: sorted(edges.get(name, ())) for name in sorted({*edges, *below})}
