"""Meta plans that are kept up to date equal those planned from scratch, and only queries whose meta plans change are
touched."""

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from smile.registry import maintenance
from smile.registry.explain import explain_plan
from smile.registry.maintenance import PlanMaintenance
from smile.registry.planner import MetaPlan, Query, decide_covers, is_relevant, plan_from_scratch
from smile.registry.publishers import StreamPublisher
from tests.registry.random_registry import (
    OPAQUE_RATE,
    condition,
    random_producer,
    random_query_text,
    random_republisher,
    with_other_condition,
)
from tests.repeatable import scaled


def check(plans: PlanMaintenance) -> dict[Query, MetaPlan]:
    metas = {query: plans.meta_plan(query) for query in plans.queries}
    for query, meta in metas.items():
        assert meta == plan_from_scratch(query, plans.publishers.values()), str(query.condition)
    return metas


def random_change(random: Random, plans: PlanMaintenance, number: int) -> dict[Query, MetaPlan]:
    """A publisher joins, leaves, or changes its condition. Returns the meta plans that changed, as they were before."""
    if plans.publishers and random.random() < 0.2:
        publisher = with_other_condition(random, plans.publishers[random.choice(sorted(plans.publishers))])
        left = plans.remove_publisher(publisher.name)
        before = {**plans.add_publisher(publisher), **left}
        return {query: meta for query, meta in before.items() if meta != plans.meta_plan(query)}
    if plans.publishers and random.random() < 0.45:
        return dict(plans.remove_publisher(random.choice(sorted(plans.publishers))))
    if random.random() < 0.5:
        return dict(plans.add_publisher(random_producer(random, f"S{number}")))
    return dict(plans.add_publisher(random_republisher(random, f"R{number}")))


def run_history(seed: int, changes: int) -> None:
    random, plans = Random(seed), PlanMaintenance()
    for _ in range(random.randrange(2, 8)):
        plans.add_query(Query(condition(random_query_text(random, OPAQUE_RATE)), random.random() < 0.4))
    metas = check(plans)
    for number in range(changes):
        touched = random_change(random, plans, number)
        before, metas = metas, check(plans)
        assert touched == {query: before[query] for query, meta in metas.items() if meta != before[query]}


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(40))
def test_incremental_meta_plans_are_those_from_scratch(seed: int) -> None:
    run_history(seed, 25)


@pytest.mark.nightly
@given(st.integers(0, 2**32))
@settings(max_examples=scaled(60))
def test_incremental_meta_plans_in_long_histories(seed: int) -> None:
    run_history(seed, 100)


@pytest.mark.parametrize(
    "proposition", ["_with_producer", "_without_producer", "_with_republisher", "_without_republisher"]
)
def test_a_proposition_that_changes_nothing_is_found(proposition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(self: PlanMaintenance, query: Query, *publishers: object) -> object:
        return self._ranked[query]

    monkeypatch.setattr(PlanMaintenance, proposition, unchanged)

    def run_histories() -> None:
        for seed in range(20):
            run_history(seed, 25)

    with pytest.raises((AssertionError, KeyError)):
        run_histories()


def test_the_papers_patch_would_promote_republishers_that_are_not_maximal() -> None:
    """Proposition 4 promotes everything that only the removed republisher subsumed. Of a chain, that is all of it."""
    plans, query = PlanMaintenance(), Query(condition("TRUE"))
    plans.add_query(query)
    for name, text in (("R1", "TRUE"), ("R2", "site = 'hw'"), ("R3", "site = 'hw' AND tool = 'ping'")):
        plans.add_publisher(StreamPublisher(name, "republisher", "broker", condition(text)))
    plans.remove_publisher("R1")
    assert str(plans.meta_plan(query)) == "({{R2}}, ∅)"
    assert plans.meta_plan(query) == plan_from_scratch(query, plans.publishers.values())


def permuted_metas(query: Query, **texts: str) -> set[str]:
    """The meta plan after republishers have joined in any order, some twice, and the one from scratch."""
    publishers = [StreamPublisher(n, "republisher", "broker", condition(text)) for n, text in texts.items()]
    metas = {str(plan_from_scratch(query, publishers))}
    for ordered in permutations(publishers):
        plans = PlanMaintenance()
        plans.add_query(query)
        for publisher in (*ordered[:1], *ordered):
            if publisher.name in plans.publishers:
                plans.remove_publisher(publisher.name)
            plans.add_publisher(publisher)
        metas.add(str(plans.meta_plan(query)))
    return metas


def test_meta_plans_are_unique_where_comparisons_are_not_decided() -> None:
    """Whoever certainly has all channels is enough. It does not matter who came first."""
    query = Query(condition("site LIKE '%w' AND site IS NULL OR upper(tool) = 'PING' AND psize % 2 = 0"))
    undecided = StreamPublisher("R2", "republisher", "broker", condition("site IS NULL"))
    assert decide_covers(undecided, query) is None
    assert permuted_metas(query, R1="TRUE", R2="site IS NULL") == {"({{R1}}, ∅)"}
    covering = replace(undecided, name="R1", condition=condition("TRUE"))
    assert explain_plan(query, [undecided, covering]).reasons["R2"] == "out: subsumed by R1"


def test_a_query_that_is_no_box_is_told_of_republishers_that_cover_it() -> None:
    query = Query(condition("site = 'hw' AND upper(tool) = 'PING'"))
    metas = permuted_metas(query, R1="site = 'hw'", R2="site = 'hw'", R3="site = 'ral'")
    assert metas == {"({{R1, R2}}, ∅)"}


def test_a_query_is_kept_until_its_last_consumer_leaves() -> None:
    plans, query = PlanMaintenance(), Query(condition("site = 'hw'"))
    plans.add_query(query)
    plans.add_query(Query(condition("site = 'hw'")))
    plans.remove_query(query)
    assert list(plans.queries) == [query]
    plans.remove_query(query)
    assert not plans.queries
    assert not plans.add_publisher(StreamPublisher("S1", "producer", "broker", condition("site = 'hw'")))


def test_only_queries_that_a_publisher_concerns_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = PlanMaintenance()
    for site in range(50):
        plans.add_query(Query(condition(f"site = 's{site}'")))
    compared: list[Query] = []

    def record(publisher: StreamPublisher, query: Query) -> bool:
        compared.append(query)
        return is_relevant(publisher, query)

    monkeypatch.setattr(maintenance, "is_relevant", record)
    plans.add_publisher(StreamPublisher("S1", "producer", "broker", condition("site = 's7' AND tool = 'ping'")))
    assert [str(query.condition) for query in compared] == ["site = 's7'"]
