"""Explains a plan: for each publisher of the stream, why it is in the plan or not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from smile.registry.conditions import decide_consistent
from smile.registry.planner import (
    MetaPlan,
    Query,
    QueryPlan,
    choose_plan,
    decide_subsumed,
    is_relevant,
    plan_from_scratch,
)
from smile.registry.publishers import StreamPublisher


@dataclass(frozen=True)
class PlanExplanation:
    query: Query
    meta: MetaPlan
    plan: QueryPlan
    reasons: Mapping[str, str]
    """By publisher."""

    def __str__(self) -> str:
        lines = [f"query      {self.query.condition}", f"meta plan  {self.meta}"]
        lines += [f"{'plan' if i == 0 else '':11}{source}" for i, source in enumerate(self.plan.sources)]
        width = max(map(len, self.reasons), default=0)
        return "\n".join([*lines, *(f"  {name:{width}}  {reason}" for name, reason in self.reasons.items())])


def explain_plan(
    query: Query, publishers: Iterable[StreamPublisher], running: QueryPlan | None = None
) -> PlanExplanation:
    """The meta plan, the plan that is chosen, and the reasons. `running` is the plan before, if there is one."""
    by_name = {publisher.name: publisher for publisher in sorted(publishers, key=lambda p: p.name)}
    meta = plan_from_scratch(query, by_name.values())
    return explain_chosen(query, by_name, meta, choose_plan(query, meta, by_name, running))


def explain_chosen(
    query: Query, publishers: Mapping[str, StreamPublisher], meta: MetaPlan, plan: QueryPlan
) -> PlanExplanation:
    """The reasons for a plan that was chosen."""
    reasons = {name: _reason(p, query, publishers, meta, plan) for name, p in sorted(publishers.items())}
    return PlanExplanation(query, meta, plan, reasons)


def _reason(
    publisher: StreamPublisher, query: Query, publishers: Mapping[str, StreamPublisher], meta: MetaPlan, plan: QueryPlan
) -> str:
    name = publisher.name
    if not is_relevant(publisher, query):
        return f"out: {_irrelevance(publisher, query)}"
    if name in {source.publisher for source in plan.sources}:
        if publisher.is_producer:
            return "in: no republisher of the plan has all of its channels"
        own = next(names for names in meta.classes if name in names)
        others = ", ".join(other for other in own if other != name)
        return "in: maximal" + (f", chosen of its class; equivalent: {others}" if others else "")
    if name in (*plan.representatives, *plan.producers):
        return "out: maximal, but the others together have all of its channels"
    if name in meta.publishers:
        own = next(names for names in meta.classes if name in names)
        return f"out: equivalent to {next(n for n in own if n in plan.representatives)}, which was chosen"
    maximal = [n for names in meta.classes for n in names]
    relevant = [n for n, p in publishers.items() if not p.is_producer and n != name and is_relevant(p, query)]
    above = (n for n in (*maximal, *relevant) if decide_subsumed(publisher, publishers[n], query) is True)
    return f"out: subsumed by {next(above)}"


def _irrelevance(publisher: StreamPublisher, query: Query) -> str:
    if decide_consistent(publisher.condition, query.condition) is False:
        return "irrelevant, no event satisfies its condition and that of the query"
    if query.is_republisher:
        return "not strongly relevant, since the republisher does not strictly subsume it"
    return (
        f"irrelevant, since it lacks measurements: {query.parts.measurement} does not entail "
        f"{publisher.parts.measurement}"
    )
