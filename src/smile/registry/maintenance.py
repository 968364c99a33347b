"""Keeps the meta plans of all queries of a global stream up to date while publishers come and go.

A change touches the queries whose meta plans change, and no others (Propositions 1 to 4). The result is always that of
planning from scratch. Indexes of conditions find the publishers and queries that a change may concern.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from types import MappingProxyType

from smile.registry.condition_index import ConditionIndex
from smile.registry.planner import (
    MetaPlan,
    Query,
    Rank,
    RankedPublishers,
    decide_covers,
    decide_subsumed,
    is_exact,
    is_relevant,
    meta_plan,
    rank,
    rank_publishers,
)
from smile.registry.publishers import StreamPublisher


class PlanMaintenance:
    """Queries with one condition share a meta plan. A query is added once for each consumer or republisher."""

    def __init__(self) -> None:
        self._publishers: dict[str, StreamPublisher] = {}
        self._producers, self._republishers = ConditionIndex[str](), ConditionIndex[str]()
        self._ranked: dict[Query, RankedPublishers] = {}
        self._query_counts: dict[Query, int] = {}
        self._covered, self._uncovered = ConditionIndex[Query](), ConditionIndex[Query]()
        """Queries for which a republisher has all channels, and the others. Of the first, only republishers that have
        all channels as well can change the meta plan."""
        self._users: dict[str, set[Query]] = {}
        self._uncertain: set[Query] = set()

    @property
    def publishers(self) -> Mapping[str, StreamPublisher]:
        return MappingProxyType(self._publishers)

    @property
    def queries(self) -> Collection[Query]:
        return self._ranked.keys()

    def meta_plan(self, query: Query) -> MetaPlan:
        return self._ranked[query].meta

    # ── queries ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_query(self, query: Query) -> MetaPlan:
        """Raises E176 if the condition has no parts; then the query is not added."""
        query.parts  # noqa: B018
        self._query_counts[query] = self._query_counts.get(query, 0) + 1
        if query not in self._ranked:
            self._set(query, self._from_scratch(query))
        return self._ranked[query].meta

    def remove_query(self, query: Query) -> None:
        self._query_counts[query] -= 1
        if self._query_counts[query]:
            return
        del self._query_counts[query]
        self._index_queries(query, is_covered=None)
        self._uncertain.discard(query)
        for name in self._ranked.pop(query).meta.publishers:
            self._users[name].discard(query)

    def _from_scratch(self, query: Query) -> RankedPublishers:
        """Where a republisher has all channels of the query, only it and its like are maximal."""
        near = self._republishers.candidates(query.condition)
        covering = [name for name in near if decide_covers(self._publishers[name], query) is True]
        if relevant := self._relevant(covering, query):
            return rank_publishers(query, relevant)
        producers = self._producers.candidates(query.condition)
        return rank_publishers(query, self._relevant([*near, *producers], query))

    def _relevant(self, names: Iterable[str], query: Query) -> list[StreamPublisher]:
        return [p for name in names if is_relevant(p := self._publishers[name], query)]

    def _set(self, query: Query, ranked: RankedPublishers) -> None:
        before = self._ranked.get(query)
        old = frozenset[str]() if before is None else before.meta.publishers
        for name in old - ranked.meta.publishers:
            self._users[name].discard(query)
        for name in ranked.meta.publishers - old:
            self._users[name].add(query)
        self._ranked[query] = ranked
        self._index_queries(query, self._is_covered(query))
        (self._uncertain.discard if ranked.is_certain else self._uncertain.add)(query)

    def _is_covered(self, query: Query) -> bool:
        meta = self._ranked[query].meta
        if len(meta.classes) != 1 or meta.producers:
            return False
        return decide_covers(self._publishers[meta.classes[0][0]], query) is True

    def _index_queries(self, query: Query, is_covered: bool | None) -> None:
        """None: the query is gone."""
        for index, belongs in ((self._covered, is_covered is True), (self._uncovered, is_covered is False)):
            if belongs and query not in index:
                index.add(query, query.condition)
            elif not belongs and query in index:
                index.remove(query)

    # ── publishers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add_publisher(self, publisher: StreamPublisher) -> Mapping[Query, MetaPlan]:
        """The queries whose meta plans changed, with their meta plans before."""
        assert publisher.name not in self._publishers
        self._publishers[publisher.name] = publisher
        self._users[publisher.name] = set()
        self._index_of(publisher).add(publisher.name, publisher.condition)
        candidates = set(self._uncovered.candidates(publisher.condition))
        if publisher.is_producer:
            concerned = [q for q in candidates if is_relevant(publisher, q)]
            return self._change({query: self._with_producer(query, publisher) for query in concerned})
        candidates |= self._covered.candidates_within(publisher.parts.key)
        near = self._republishers.candidates(publisher.condition), self._producers.candidates(publisher.condition)
        concerned = [q for q in candidates if is_relevant(publisher, q)]
        return self._change({query: self._with_republisher(query, publisher, *near) for query in concerned})

    def remove_publisher(self, name: str) -> Mapping[Query, MetaPlan]:
        """The queries whose meta plans changed, with their meta plans before. Only those that had it can change."""
        publisher = self._publishers.pop(name)
        self._index_of(publisher).remove(name)
        concerned = self._users[name] | {q for q in self._uncertain if is_relevant(publisher, q)}
        remove = self._without_producer if publisher.is_producer else self._without_republisher
        changes = self._change({query: remove(query, publisher) for query in concerned})
        del self._users[name]
        return changes

    def _index_of(self, publisher: StreamPublisher) -> ConditionIndex[str]:
        return self._producers if publisher.is_producer else self._republishers

    def _change(self, results: Mapping[Query, RankedPublishers]) -> Mapping[Query, MetaPlan]:
        before: dict[Query, MetaPlan] = {}
        for query, ranked in results.items():
            old = self._ranked[query]
            if ranked.meta != old.meta:
                before[query] = old.meta
            if ranked is not old:
                self._set(query, ranked)
        return before

    # ── Propositions 1 to 4 ─────────────────────────────────────────────────────────────────────────────────────────

    def _with_producer(self, query: Query, producer: StreamPublisher) -> RankedPublishers:
        ranked = self._ranked[query]
        if self._is_subsumed(producer, query, self._maximal(ranked.meta)):
            return ranked
        is_certain = ranked.is_certain and is_exact(producer.parts.key)
        return _ranked(ranked.meta.classes, [*ranked.meta.producers, producer.name], is_certain)

    def _without_producer(self, query: Query, producer: StreamPublisher) -> RankedPublishers:
        ranked, meta = self._ranked[query], self._ranked[query].meta
        if producer.name not in meta.producers:
            return ranked
        return _ranked(meta.classes, [n for n in meta.producers if n != producer.name], ranked.is_certain)

    def _with_republisher(
        self, query: Query, added: StreamPublisher, republishers: Set[str], producers: Set[str]
    ) -> RankedPublishers:
        """`republishers` and `producers` are those with which it may share channels."""
        ranked, meta = self._ranked[query], self._ranked[query].meta
        covers = decide_covers(added, query) is True
        if query in self._covered:
            return _ranked([[*meta.classes[0], added.name]], ()) if covers else ranked
        if covers:
            return _ranked([[added.name]], ())
        if not ranked.is_certain or not is_exact(added.parts.key):
            return self._from_scratch(query)
        ranks = {c: rank(added, self._publishers[c[0]], query) for c in meta.classes if not republishers.isdisjoint(c)}
        if Rank.UNCERTAIN in ranks.values():
            return self._from_scratch(query)
        if Rank.BELOW in ranks.values():
            return ranked
        equivalent = next((c for c, r in ranks.items() if r is Rank.EQUIVALENT), None)
        if equivalent is not None:
            classes = [(*c, added.name) if c == equivalent else c for c in meta.classes]
            return _ranked(classes, meta.producers)
        classes = [c for c in meta.classes if ranks.get(c) is not Rank.ABOVE]
        gone = {
            n for n in meta.producers if n in producers and decide_subsumed(self._publishers[n], added, query) is True
        }
        return _ranked([*classes, (added.name,)], [n for n in meta.producers if n not in gone])

    def _without_republisher(self, query: Query, removed: StreamPublisher) -> RankedPublishers:
        ranked, meta = self._ranked[query], self._ranked[query].meta
        own = next((c for c in meta.classes if removed.name in c), ())
        if not ranked.is_certain or (query in self._covered and len(own) == 1):
            return self._from_scratch(query)
        classes = [c for c in meta.classes if c != own]
        if len(own) > 1:
            return _ranked([*classes, [n for n in own if n != removed.name]], meta.producers)
        patch = self._patch(query, removed, meta)
        if not patch.is_certain:
            return self._from_scratch(query)
        classes += patch.meta.classes
        maximal = {name for names in classes for name in names}
        orphans = [
            p
            for p in self._relevant(self._producers.candidates(removed.condition), query)
            if decide_subsumed(p, removed, query) is True and not self._is_subsumed(p, query, maximal)
        ]
        return _ranked(classes, {*meta.producers, *(p.name for p in orphans)})

    def _patch(self, query: Query, removed: StreamPublisher, meta: MetaPlan) -> RankedPublishers:
        """The republishers that only the removed one had subsumed strictly, directly or through others of them. The
        paper's definition of a patch also has those that another member of it subsumes; they are not maximal."""
        promoted = [
            p
            for p in self._relevant(self._republishers.candidates(removed.condition), query)
            if p.name not in meta.publishers
            and decide_subsumed(p, removed, query) is True
            and not self._is_subsumed(p, query, meta.publishers - {removed.name})
        ]
        return rank_publishers(query, promoted)

    def _maximal(self, meta: MetaPlan) -> set[str]:
        return {name for names in meta.classes for name in names}

    def _is_subsumed(self, publisher: StreamPublisher, query: Query, republishers: Collection[str]) -> bool:
        """Whether one of these republishers subsumes it. One of each class suffices, and they are alike."""
        near = self._republishers.candidates(publisher.condition)
        few, many = (near, republishers) if len(near) < len(republishers) else (republishers, near)
        return any(decide_subsumed(publisher, self._publishers[n], query) is True for n in few if n in many)


def _ranked(classes: Iterable[Iterable[str]], producers: Iterable[str], is_certain: bool = True) -> RankedPublishers:
    return RankedPublishers(meta_plan(classes, producers), is_certain)
