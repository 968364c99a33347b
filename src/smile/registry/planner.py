"""Plans queries over a configuration of publishers: relevance, subsumption, meta plans and plans.

Definitions and names are those of the paper on republishers, sections 2.4 and 4.3. Where it is not known whether one of
two republishers subsumes the other, neither does: then both are in the plan, and their conditions keep them disjoint.

Invariant: the meta plan is a function of the query and the publishers, also where comparisons are not decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from smile.algebra.printer import print_expression
from smile.registry.condition_index import ConditionIndex
from smile.registry.conditions import (
    Condition,
    conjunction,
    decide_consistent,
    decide_entails,
    decide_entails_within,
    difference,
)
from smile.registry.decoupling import DecoupledCondition, split
from smile.registry.publishers import Configuration, StreamPublisher


@dataclass(frozen=True)
class Query:
    """A consumer's or republisher's selection of events. For a republisher, only strongly relevant publishers count, so
    that no republisher depends on itself."""

    condition: Condition
    is_republisher: bool = False

    @cached_property
    def parts(self) -> DecoupledCondition:
        return split(self.condition)


# ── relevance ───────────────────────────────────────────────────────────────────────────────────────────────────────


def is_relevant(publisher: StreamPublisher, query: Query) -> bool:
    """Whether it may have events for the query, all of those channels for which it has any, and may be used."""
    if decide_consistent(publisher.condition, query.condition) is False:
        return False
    if publisher.is_producer:
        return True
    if query.is_republisher:
        return is_strictly_below(publisher, query)
    return decide_entails(query.parts.measurement, publisher.parts.measurement) is True


def is_strictly_below(publisher: StreamPublisher, query: Query) -> bool:
    """P ≺ R: R delivers every channel that P has some of, and P all that R delivers of these; and not the other way
    round. It must be certain: otherwise republishers could depend on each other in a circle."""
    mine, other = publisher.parts, query.parts
    if decide_entails(mine.key, other.key) is not True:
        return False
    if decide_entails(other.measurement, mine.measurement) is not True:
        return False
    converse = (decide_entails(other.key, mine.key), decide_entails(mine.measurement, other.measurement))
    return False in converse


# ── subsumption with respect to a query ─────────────────────────────────────────────────────────────────────────────


def decide_subsumed(publisher: StreamPublisher, republisher: StreamPublisher, query: Query) -> bool | None:
    """P ≼q R: R has all channels of the query that P has some of. Both are relevant."""
    answer = decide_entails_within(publisher.parts.key, republisher.parts.key, query.parts.key)
    return True if answer is None and decide_covers(republisher, query) is True else answer


def decide_covers(republisher: StreamPublisher, query: Query) -> bool | None:
    """Whether the republisher has all channels of the query."""
    return decide_entails(query.parts.key, republisher.parts.key)


def is_exact(condition: Condition) -> bool:
    """Whether comparisons with other such conditions are decided."""
    return condition.boxes is not None


class Rank(Enum):
    """How one republisher is related to another, with respect to a query."""

    BELOW = "strictly subsumed"
    EQUIVALENT = "equivalent"
    ABOVE = "strictly subsumes"
    INCOMPARABLE = "neither subsumes the other"
    UNCERTAIN = "not known whether one subsumes the other"


def rank(a: StreamPublisher, b: StreamPublisher, query: Query) -> Rank:
    upwards, downwards = decide_subsumed(a, b, query), decide_subsumed(b, a, query)
    if upwards is None or downwards is None:
        return Rank.UNCERTAIN
    if upwards:
        return Rank.EQUIVALENT if downwards else Rank.BELOW
    return Rank.ABOVE if downwards else Rank.INCOMPARABLE


# ── meta plans ──────────────────────────────────────────────────────────────────────────────────────────────────────

PublisherNames = tuple[str, ...]


@dataclass(frozen=True)
class MetaPlan:
    """All plans of a query that are equally good: the equivalence classes of its maximal republishers, and the
    producers that no republisher subsumes. Everything is in the order of names."""

    classes: tuple[PublisherNames, ...]
    producers: PublisherNames

    def __str__(self) -> str:
        classes = ", ".join("{" + ", ".join(names) + "}" for names in self.classes)
        return f"({_braces(classes)}, {_braces(', '.join(self.producers))})"

    @cached_property
    def publishers(self) -> frozenset[str]:
        return frozenset(name for names in (*self.classes, self.producers) for name in names)


def _braces(text: str) -> str:
    return "{" + text + "}" if text else "∅"


def meta_plan(classes: Iterable[Iterable[str]], producers: Iterable[str]) -> MetaPlan:
    return MetaPlan(tuple(sorted(tuple(sorted(names)) for names in classes)), tuple(sorted(producers)))


@dataclass(frozen=True)
class RankedPublishers:
    """The relevant publishers of a query and how they are ranked, from which the meta plan follows."""

    meta: MetaPlan
    is_certain: bool
    """Whether one republisher has all channels, or all comparisons are decided. If not, the meta plan cannot be kept up
    to date by the propositions, which rely on a transitive order."""


def plan_from_scratch(query: Query, publishers: Iterable[StreamPublisher]) -> MetaPlan:
    return rank_publishers(query, [p for p in publishers if is_relevant(p, query)]).meta


def rank_publishers(query: Query, relevant: Sequence[StreamPublisher]) -> RankedPublishers:
    """Where a republisher has all channels of the query, only it and its like are maximal: those that certainly have
    all of them too."""
    covering = [p.name for p in relevant if not p.is_producer and decide_covers(p, query) is True]
    if covering:
        return RankedPublishers(meta_plan([covering], ()), is_certain=True)
    republishers = [p for p in relevant if not p.is_producer]
    by_name = {r.name: r for r in republishers}
    index = ConditionIndex[str]()
    for republisher in republishers:
        index.add(republisher.name, republisher.condition)
    ranks = {
        (a.name, b): rank(a, by_name[b], query)
        for a in republishers
        for b in sorted(index.candidates(a.condition))
        if a.name < b
    }
    below = {a for (a, _), r in ranks.items() if r is Rank.BELOW} | {
        b for (_, b), r in ranks.items() if r is Rank.ABOVE
    }
    classes = [{r.name} for r in republishers if r.name not in below]
    for (a, b), r in ranks.items():
        if r is Rank.EQUIVALENT and a not in below and b not in below:
            joined = [names for names in classes if a in names or b in names]
            classes = [names for names in classes if names not in joined] + [set[str]().union(*joined)]
    producers = [
        p.name
        for p in relevant
        if p.is_producer
        and not any(
            decide_subsumed(p, by_name[n], query) is True for n in index.candidates(p.condition) if n not in below
        )
    ]
    are_exact = is_exact(query.parts.key) and all(is_exact(p.parts.key) for p in relevant)
    return RankedPublishers(meta_plan(classes, producers), are_exact and Rank.UNCERTAIN not in ranks.values())


# ── plans ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class QuerySource:
    """What one publisher is asked for."""

    publisher: str
    condition: Condition

    def __str__(self) -> str:
        return f"σ[{print_expression(self.condition.expr)}]({self.publisher})"


@dataclass(frozen=True)
class QueryPlan:
    """The union of its sources answers the query. No two of them deliver the same channel. `representatives` are the
    republishers chosen, one of each class: the supplier sequence. One that has nothing left to deliver is no source.
    `conditions` are those of the representatives and the producers from which the sources were made."""

    sources: tuple[QuerySource, ...] = ()
    representatives: PublisherNames = ()
    producers: PublisherNames = ()
    conditions: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        return " ⊎ ".join(map(str, self.sources)) or "∅"


def choose_plan(
    query: Query,
    meta: MetaPlan,
    publishers: Mapping[str, StreamPublisher] | Configuration,
    running: QueryPlan | None = None,
) -> QueryPlan:
    """The plan that is running if the meta plan allows it, with the conditions that its publishers have now. Otherwise
    its representatives stay where they can, before those of other classes, for which the cheapest publisher is
    chosen."""
    kept = [] if running is None else [name for name in running.representatives if name in meta.publishers]
    if running is not None and is_compatible(running, meta):
        representatives = [publishers[name] for name in running.representatives]
        producers = [publishers[name] for name in running.producers]
        is_current = running.conditions == tuple(p.condition for p in (*representatives, *producers))
        return running if is_current else canonical_plan(query, representatives, producers)
    chosen = list[str]()
    open_classes = [frozenset(names) for names in meta.classes]
    for name in kept:
        own = next((names for names in open_classes if name in names), None)
        if own is not None:
            open_classes.remove(own)
            chosen.append(name)
    for names in open_classes:
        chosen.append(min(names, key=lambda name: (publishers[name].cost, publishers[name].load, name)))
    return canonical_plan(query, [publishers[n] for n in chosen], [publishers[n] for n in meta.producers])


def is_compatible(plan: QueryPlan, meta: MetaPlan) -> bool:
    """Whether it is one of the plans that the meta plan stands for, if its publishers have their conditions still."""
    if plan.producers != meta.producers or len(plan.representatives) != len(meta.classes):
        return False
    return all(len(set(names) & set(plan.representatives)) == 1 for names in meta.classes)


def canonical_plan(
    query: Query, representatives: Sequence[StreamPublisher], producers: Sequence[StreamPublisher]
) -> QueryPlan:
    """Each republisher is asked for the channels that those before it do not have, each producer for the channels that
    no republisher has (Theorem 1). Conditions of republishers count on key attributes only: on the measurements of the
    query they are complete."""
    rest, sources = query.condition, list[QuerySource]()
    for republisher in representatives:
        if decide_consistent(rest, republisher.parts.key) is not False:
            sources.append(QuerySource(republisher.name, rest))
        rest = difference(rest, republisher.parts.key)
    for producer in producers:
        if decide_consistent(rest, producer.condition) is not False:
            sources.append(QuerySource(producer.name, rest))
    return QueryPlan(
        tuple(sources),
        tuple(r.name for r in representatives),
        tuple(p.name for p in producers),
        tuple(p.condition for p in (*representatives, *producers)),
    )


def delivered(source: QuerySource, publisher: StreamPublisher) -> Condition:
    """The events that a source of a plan may deliver."""
    return conjunction(source.condition, publisher.condition)
